"""Reads few rows of local files by one loop over their pages.

Most of the cost of a few rows are the steps between the read plans of files, columns and pages.
Here all pages of all columns and files are read in step, without plans around them: mostly by one
read of each file, because open pages know where their values are. Pages of a column that have the
same description are decoded together, whichever file they are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import is_plain
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.meta import ColumnMeta, FieldReader
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.field_read import LeafReader, StructuralField
from lance_spark.encoding.v2_1.layouts.fetched_rows import decoded
from lance_spark.errors import LanceError
from lance_spark.file.schema.field import Field
from lance_spark.storage.source import Bytes, Ranges, ReadPlan

# --------------------------------------------------------------------------------------------------
# Reads columns with few rows together.
#
# In a file with thousands of columns and few rows, the cost per column dominates. So columns of one
# type are read as one column with the pages of all of them: equal pages are decoded together, and
# each column is a slice of the result.

#: Minimum number of columns; fewer columns are read one by one.
_LEAST = 4
#: Maximum rows of a page, and stored bytes of all pages, of a small column.
_PAGE_ROWS = 8192
_COLUMN_BYTES = 256 * 1024
#: If rows are not a range, files of at most `_MOST_ROWS_READ_WHOLE` rows are read whole; others if
#: one row in `_MOST_UNWANTED` is needed.
_MOST_ROWS_READ_WHOLE = 64
_MOST_UNWANTED = 4
#: Maximum stored bytes and columns that are read together.
_GROUP_BYTES = 2 * 1024 * 1024
_GROUP_COLUMNS = 1024


def groups(
    fields: Sequence[Field], columns: Sequence[Sequence[ColumnMeta]], rows: Rows, num_rows: int
) -> list[list[int]]:
    """Return groups of positions of fields that are read together; each position is in one group.

    - `fields`: Fields as the file stores them.
    - `columns`: Of each field.
    - `num_rows`: Rows of the file. For rows that are not a range, small columns are read whole,
      which must pay off.
    """
    single = [[position] for position in range(len(fields))]
    if len(fields) < _LEAST or (
        not isinstance(rows, range)
        and num_rows > _MOST_ROWS_READ_WHOLE
        and num_rows > _MOST_UNWANTED * len(rows)
    ):
        return single
    by_type: dict[tuple[pa.DataType, int], list[tuple[bytes, int, int]]] = {}
    for position, (field, metas) in enumerate(zip(fields, columns, strict=True)):
        if not metas or not all(_is_small(meta, num_rows) for meta in metas):
            continue
        if _type_determines_columns(field):
            size = sum([_size(meta) for meta in metas])
            key = field.arrow_field.type, len(metas)
            by_type.setdefault(key, []).append((metas[0].pages[0].encoding, position, size))
    results: list[list[int]] = []
    for members in by_type.values():
        # Equal pages become neighbours.
        members.sort()
        results += _cut(members)
    grouped = {position for group in results for position in group}
    return results + [item for item in single if item[0] not in grouped]


def _is_small(column: ColumnMeta, num_rows: int) -> bool:
    pages = column.pages
    return 0 < num_rows <= _PAGE_ROWS * len(pages) and _size(column) <= _COLUMN_BYTES


def _size(column: ColumnMeta) -> int:
    return sum([buffer.length for page in column.pages for buffer in page.buffers])


def _type_determines_columns(field: Field) -> bool:
    """Return whether fields of one Arrow type have the same columns, and no shared dictionaries."""
    if not field.children:
        return _is_of_one_leaf(field.arrow_field.type) and not field.is_blob and not field.has_json
    # Types are equal even if the metadata of their children differs.
    return not any(node.metadata or node.logical_type.startswith("dict:") for node in field.walk())


def _is_of_one_leaf(dtype: pa.DataType) -> bool:
    """Return whether columns of a type are single values, or vectors of them."""
    return is_plain(dtype.value_type if pat.is_fixed_size_list(dtype) else dtype)


def _cut(members: Sequence[tuple[bytes, int, int]]) -> list[list[int]]:
    results: list[list[int]] = []
    total = 0
    for _, position, size in members:
        if not results or total + size > _GROUP_BYTES or len(results[-1]) == _GROUP_COLUMNS:
            results.append([])
            total = 0
        results[-1].append(position)
        total += size
    return [group for group in results if len(group) >= _LEAST]


def read_together(
    reader: StructuralField, rows: Rows, num_rows: int, count: int
) -> ReadPlan[list[pa.Array]]:
    """Plan the read of some rows of several columns; errors do not name the column.

    - `reader`: Of the columns as one, one column after the other.
    - `num_rows`: Of each column.
    - `count`: Number of columns.
    """
    size = len(rows)
    if size == num_rows:
        chosen = yield from reader.read(range(num_rows * count))
    elif isinstance(rows, range):
        chosen = yield from reader.read_columns(rows, num_rows, count)
    else:
        value_rows = (np.arange(count)[:, None] * num_rows + rows).reshape(-1)
        if reader.num_pages > count:
            # Some pages may not contain a requested row.
            chosen = yield from reader.read(value_rows)
        else:
            every = yield from reader.read(range(num_rows * count))
            chosen = every.take(pa.array(value_rows))
    # Each column is copied: a slice would keep the memory of all columns, also when pickled.
    return [pa.concat_arrays([chosen.slice(index * size, size)]) for index in range(count)]


# --------------------------------------------------------------------------------------------------
# Reads few rows of local files by one loop over their pages.

#: A file of fewer rows for each row to read is not read here: many columns of few rows are read
#: together.
_MOST_WANTED = 16


class _File(Protocol):
    """A reader of a file."""

    @property
    def num_rows(self) -> int: ...

    @property
    def is_local(self) -> bool: ...

    @property
    def ranges(self) -> Ranges: ...

    def column_metas(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> list[ColumnMeta]: ...

    def field_reader(self, field: Field, column_of: Mapping[int, int] | None) -> FieldReader: ...


class _Column(NamedTuple):
    """A column of all files: its reader of the first file, and the numbers of its plans."""

    reader: StructuralField
    leaf: LeafReader
    plans: range


def read_few_rows(
    parts: Sequence[tuple[_File, IndexArray]],
    fields: Sequence[Field],
    column_of: Mapping[int, int] | None,
) -> list[pa.Array] | None:
    """Return columns of few rows of some files of one schema and version, one file after the other.

    - `parts` (sequence of (FileReader, int64 array)): Files of version 2.1 or 2.2, and increasing
      rows of each.
    - `column_of`: As of `FileReader.read`, of all files.

    None if the rows are to be read plan by plan: a column is nested, or something is wrong, and the
    error is to name the column.
    """
    if any(
        file.num_rows < _MOST_WANTED * len(rows) or not file.is_local for file, rows in parts
    ) or any(field.children or field.is_blob or field.has_json for field in fields):
        return None
    try:
        return _read(parts, fields, column_of)
    except (LanceError, pa.ArrowException, ValueError, IndexError, OverflowError):
        return None


def _read(
    parts: Sequence[tuple[_File, IndexArray]],
    fields: Sequence[Field],
    column_of: Mapping[int, int] | None,
) -> list[pa.Array] | None:
    columns: list[_Column] = []
    plans: list[ReadPlan[Any]] = []
    files: list[int] = []
    for file, _ in parts:
        # One call reads and parses the metadata of all columns of a file.
        file.column_metas(fields, column_of)
    for field in fields:
        first: tuple[StructuralField, LeafReader] | None = None
        start = len(plans)
        for number, (file, rows) in enumerate(parts):
            reader = file.field_reader(field, column_of)
            leaf = reader.only_leaf if isinstance(reader, StructuralField) else None
            if leaf is None:
                return None
            assert isinstance(reader, StructuralField)
            first = first or (reader, leaf)
            pages = leaf.fetch(rows)
            plans += pages
            files += [number] * len(pages)
        if first is None or len(plans) == start:
            return None
        columns.append(_Column(*first, range(start, len(plans))))
    fetched = _run(parts, plans, files)
    # Columns of one type are decoded as one column with the pages of all of them.
    by_type: dict[Any, list[int]] = {}
    for position, field in enumerate(fields):
        arrow = field.arrow_field
        metadata = arrow.metadata
        key = arrow.type, None if metadata is None else tuple(metadata.items())
        by_type.setdefault(key if _is_of_one_leaf(arrow.type) else position, []).append(position)
    count = sum([len(rows) for _, rows in parts])
    arrays: list[pa.Array] = [None] * len(fields)
    for positions in by_type.values():
        reader, leaf, _ = columns[positions[0]]
        pages = [fetched[number] for position in positions for number in columns[position].plans]
        values = reader.joined(list(map(leaf.rows_of_page, decoded(pages))))
        if len(values) != count * len(positions):
            return None
        if len(positions) == 1:
            arrays[positions[0]] = values
            continue
        for number, position in enumerate(positions):
            # A slice would keep the memory of all columns, also when it is pickled.
            arrays[position] = pa.concat_arrays([values.slice(number * count, count)])
    return arrays


def _run(
    parts: Sequence[tuple[_File, IndexArray]],
    plans: Sequence[ReadPlan[Any]],
    files: Sequence[int],
) -> list[Any]:
    """Return the results of plans in step, each of which reads one file."""
    results: list[Any] = [None] * len(plans)
    answers: list[Iterator[Bytes]] = []
    waiting = [(number, -1) for number in range(len(plans))]
    while waiting:
        unfinished = []
        wanted: list[list[Any]] = [[] for _ in parts]
        for number, count in waiting:
            plan, file = plans[number], files[number]
            try:
                answer = list(islice(answers[file], count)) if count >= 0 else None
                ranges = next(plan) if answer is None else plan.send(answer)
            except StopIteration as stop:
                results[number] = stop.value
                continue
            wanted[file].extend(ranges)
            unfinished.append((number, len(ranges)))
        answers = [
            iter(file.ranges.read(ranges) if ranges else ())
            for (file, _), ranges in zip(parts, wanted, strict=True)
        ]
        waiting = unfinished
    return results

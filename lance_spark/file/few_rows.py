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

import pyarrow as pa

from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.meta import FieldReader
from lance_spark.encoding.v2_1.field_read import LeafReader, StructuralField
from lance_spark.encoding.v2_1.layouts.fetched_rows import decoded
from lance_spark.errors import LanceError
from lance_spark.file.schema.field import Field
from lance_spark.storage.source import Bytes, Ranges, ReadPlan

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
    arrays = []
    for reader, leaf, numbers in columns:
        of_pages = decoded([fetched[number] for number in numbers])
        arrays.append(reader.joined(list(map(leaf.rows_of_page, of_pages))))
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

"""Reads columns with few rows together.

In a file with thousands of columns and few rows, the cost per column dominates. So columns of one
type are read as one column with the pages of all of them: equal pages are decoded together, and
each column is a slice of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import is_plain
from lance_spark.encoding.meta import ColumnMeta
from lance_spark.encoding.rows import Rows
from lance_spark.file.schema.field import Field
from lance_spark.storage.source import ReadPlan

#: Minimum number of columns; fewer columns are read one by one.
_LEAST = 4
#: Maximum rows of a page, and stored bytes of all pages, of a small column.
_PAGE_ROWS = 1024
_COLUMN_BYTES = 16 * 1024
#: Files of at most `_FEW_ROWS` rows are read whole; others if one row in `_MOST_UNWANTED` is
#: needed.
_FEW_ROWS = 64
_MOST_UNWANTED = 4
#: Maximum stored bytes and columns that are read together.
_GROUP_BYTES = 1024 * 1024
_GROUP_COLUMNS = 1024


def groups(
    fields: Sequence[Field], columns: Sequence[Sequence[ColumnMeta]], rows: Rows, num_rows: int
) -> list[list[int]]:
    """Return groups of positions of fields that are read together; each position is in one group.

    - `fields`: Fields as the file stores them.
    - `columns`: Of each field.
    - `num_rows`: Rows of the file. Small columns are read whole, which must pay off for the
      requested rows.
    """
    single = [[position] for position in range(len(fields))]
    if len(fields) < _LEAST or (num_rows > _FEW_ROWS and num_rows > _MOST_UNWANTED * len(rows)):
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
        return is_plain(field.arrow_field.type) and not field.is_blob and not field.has_json
    # Types are equal even if the metadata of their children differs.
    return not any(node.metadata or node.logical_type.startswith("dict:") for node in field.walk())


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
    field: Field, columns: Sequence[Sequence[ColumnMeta]], rows: Rows, num_rows: int, file: str
) -> ReadPlan[list[pa.Array]]:
    """Plan the read of some rows of several columns; errors do not name the column.

    - `field`: One of the fields, which all have its type.
    - `columns`: Columns of each field; all have as many rows as the file.
    - `num_rows`: Of the file.
    - `file`: Name of the file, for errors.
    """
    from lance_spark.encoding.v2_1.field_read import StructuralField

    leaves = [
        ColumnMeta(tuple([page for column in leaf for page in column.pages]))
        for leaf in zip(*columns, strict=True)
    ]
    reader = StructuralField(field.arrow_field, leaves, file)
    count = len(rows)
    if count == num_rows:
        chosen = yield from reader.read(range(num_rows * len(columns)))
    else:
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
        value_rows = (np.arange(len(columns))[:, None] * num_rows + numbers).reshape(-1)
        if len(columns[0][0].pages) > 1:
            # Some pages may not contain a requested row.
            chosen = yield from reader.read(value_rows)
        else:
            every = yield from reader.read(range(num_rows * len(columns)))
            chosen = every.take(pa.array(value_rows))
    # Each column is copied: a slice would keep the memory of all columns, also when pickled.
    return [pa.concat_arrays([chosen.slice(index * count, count)]) for index in range(len(columns))]

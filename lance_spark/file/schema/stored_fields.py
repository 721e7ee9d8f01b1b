"""The fields of a schema that have columns in a file.

In version 2.0 every field has a column, from 2.1 on only leaves have one, depth-first in both. A
packed struct, a fixed-size list of plain values and a blob are leaves, also with fields below them;
in 2.0 any fixed-size list is a leaf.

Specification: format/file, "Columns".
"""

from __future__ import annotations

from collections.abc import Iterator

from lance_spark.file.schema.field import Field


def column_fields(field: Field, version: tuple[int, int]) -> Iterator[Field]:
    """Yield the fields at and below a field that have columns, in the order of the columns."""
    if is_leaf(field, version):
        yield field
        return
    if version == (2, 0):
        yield field
    for child in field.children:
        yield from column_fields(child, version)


def is_leaf(field: Field, version: tuple[int, int]) -> bool:
    """Whether nothing below a field has a column."""
    if not field.children or field.is_packed or field.is_blob:
        return True
    return version == (2, 0) and field.logical_type.startswith("fixed_size_list:")

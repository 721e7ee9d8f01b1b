"""Estimates the bytes of the rows of a scan in Spark, for the optimizer, before anything is read.

Spark broadcasts a table that it estimates as small, so unknown sizes are assumed to be large:

| column | bytes of a value |
| --- | --- |
| numbers, dates, decimals, booleans | size in Spark |
| vectors | number of items times size of an item |
| strings, bytes, lists, maps | at least 20; in total three times the file bytes without vectors |
| blobs | unknown: they are in separate files |

A row takes 8 bytes more. No data file is opened.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.file.schema.schema import Field, Schema
from lance_spark.scan.row_size import INFLATION
from lance_spark.table.fragments.fragment import Fragment

_ROW = 8
_VARIABLE = 20.0
#: Fragments in the sample, evenly spaced.
_SAMPLE = 1_000


def estimated_size(
    fragments: Sequence[Fragment], rows: int, read: Schema, table: Schema
) -> int | None:
    """Return an upper estimate of the bytes of rows in Spark; None if unknown.

    Parameters
    ----------
    fragments : sequence of Fragment
        Fragments of the whole table.
    rows : int
        Rows of the scan.
    read : Schema
        Columns of the scan.
    table : Schema
        All columns of the table.
    """
    if any(node.is_blob for field in read.fields for node in field.walk()):
        return None
    widths = [_width(field.to_arrow().type) for field in read.fields]
    total = rows * (_ROW + sum(width for width, _ in widths))
    if all(fixed for _, fixed in widths):
        return int(total)
    stored = _stored_row_bytes(fragments, table.fields)
    return None if stored is None else int(total + rows * INFLATION * stored)


def _width(dtype: pa.DataType) -> tuple[float, bool]:
    """Return the known bytes of a value, and whether they are all."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _width(dtype.storage_type)
    if pat.is_struct(dtype):
        parts = [_width(dtype.field(i).type) for i in range(dtype.num_fields)]
        return sum(width for width, _ in parts), all(fixed for _, fixed in parts)
    if pat.is_fixed_size_list(dtype):
        width, fixed = _width(dtype.value_type)
        return width * dtype.list_size, fixed
    if pat.is_decimal(dtype):
        return (8.0 if dtype.precision <= 18 else 16.0), True
    if pat.is_fixed_size_binary(dtype):
        return float(dtype.byte_width), True
    if pat.is_dictionary(dtype):
        return _width(dtype.value_type)
    if pat.is_nested(dtype) or pat.is_null(dtype):
        return (0.0, True) if pat.is_null(dtype) else (_VARIABLE, False)
    try:
        width = max(1.0, dtype.bit_width / 8)
    except ValueError:
        return _VARIABLE, False
    # Spark has types of twice the width for unsigned integers, half floats and short times of day.
    narrow = pat.is_unsigned_integer(dtype) or pat.is_float16(dtype) or pat.is_time32(dtype)
    return min(8.0, width * 2) if narrow else width, True


def _stored_row_bytes(fragments: Sequence[Fragment], fields: Sequence[Field]) -> float | None:
    """Return the file bytes of a row without vectors; None if a size is not recorded."""
    sample = fragments[:: max(1, len(fragments) // _SAMPLE)]
    files = [file for fragment in sample for file in fragment.files]
    rows = sum(fragment.physical_rows for fragment in sample)
    if any(file.file_size_bytes <= 0 for file in files) or not rows:
        return None
    stored = sum(file.file_size_bytes for file in files) / rows
    vectors = sum(_vector_bytes(field) for field in fields)
    # Fewer bytes mean compressed or null vectors: the share of other columns is unknown.
    return stored - vectors if stored > vectors else stored


def _vector_bytes(field: Field) -> float:
    dtype = field.to_arrow().type
    if not (pat.is_fixed_size_list(dtype) and pat.is_floating(dtype.value_type)):
        return 0.0
    return float(dtype.list_size * dtype.value_type.bit_width // 8)

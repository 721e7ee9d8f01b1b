"""Estimates of the bytes of a decoded row, made before decoding."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lance_spark.encoding.arrow_blocks import WIDEST_NULL
from lance_spark.errors import UnsupportedTypeError

_OFFSET = 4.0
#: Typical decoded bytes per stored byte of compressed strings, lists and dictionaries.
INFLATION = 3.0


def fixed_width(data_type: pa.DataType) -> float | None:
    """Return the bytes of one value, or None if values of the type differ in size."""
    if pa.types.is_null(data_type):
        return 0.0
    if pa.types.is_fixed_size_list(data_type):
        item = fixed_width(data_type.value_type)
        return None if item is None else item * data_type.list_size
    if pa.types.is_struct(data_type):
        widths = [fixed_width(field.type) for field in data_type]
        return None if None in widths else sum(w for w in widths if w is not None)
    if pa.types.is_fixed_size_binary(data_type):
        # Arrow counts its bits modulo 2^32.
        return float(data_type.byte_width)
    try:
        return float(data_type.bit_width) / 8
    except ValueError:
        return None


def estimate_row_bytes(schema: pa.Schema, stored: Sequence[float | None]) -> float:
    """Estimate the decoded bytes of one row.

    Parameters
    ----------
    schema : pyarrow.Schema
    stored : sequence of float or None
        Bytes that a row of each column takes on storage; None where the column is not stored.
    """
    total = 0.0
    for field, stored_bytes in zip(schema, stored, strict=True):
        width = fixed_width(field.type)
        if width is None:
            width = 16.0 + INFLATION * (stored_bytes or 0.0)
        total += width
    return total


def is_too_wide(data_type: pa.DataType) -> bool:
    """Return whether a null of a type, or of a type in it, takes more than `WIDEST_NULL` bytes."""
    if _least_width(data_type) > WIDEST_NULL:
        return True
    return any(is_too_wide(data_type.field(index).type) for index in range(data_type.num_fields))


def _least_width(data_type: pa.DataType) -> float:
    """Return the least bytes of a value: an offset for strings and lists."""
    if pa.types.is_fixed_size_list(data_type):
        return _least_width(data_type.value_type) * float(data_type.list_size)
    if pa.types.is_struct(data_type):
        return sum(_least_width(field.type) for field in data_type)
    width = fixed_width(data_type)
    return _OFFSET if width is None else width


def nulls(count: int, field: pa.Field) -> pa.Array:
    """Return the nulls of a column that no file holds.

    Raises
    ------
    UnsupportedTypeError
        A null takes more than `WIDEST_NULL` bytes.
    """
    # A schema of a hundred bytes can claim lists of any fixed size, and a null is as large.
    if is_too_wide(field.type):
        raise UnsupportedTypeError(
            f"column {field.name!r}: no data file holds it, and a null of type {field.type} takes "
            f"more than {WIDEST_NULL} bytes; read the other columns"
        )
    return pa.nulls(count, field.type)

"""Estimates of the bytes of a decoded row, made before decoding."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

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

    - `stored`: Bytes that a row of each column takes on storage; None where the column is not
      stored.
    """
    total = 0.0
    for field, stored_bytes in zip(schema, stored, strict=True):
        width = fixed_width(field.type)
        if width is None:
            width = 16.0 + INFLATION * (stored_bytes or 0.0)
        total += width
    return total

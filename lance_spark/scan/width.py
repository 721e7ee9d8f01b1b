"""How many bytes a decoded row takes, estimated before anything is decoded."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

#: Decoded bytes per stored byte of strings, lists and dictionaries: what compression usually hides.
INFLATION = 3.0


def fixed_width(data_type: pa.DataType) -> float | None:
    """Return the bytes of one value, or None if values of the type differ in size."""
    if pa.types.is_null(data_type):
        return 0.0
    if pa.types.is_fixed_size_list(data_type):
        item = fixed_width(data_type.value_type)
        return None if item is None else item * data_type.list_size
    if pa.types.is_struct(data_type):
        widths = [fixed_width(data_type.field(i).type) for i in range(data_type.num_fields)]
        return None if None in widths else sum(w for w in widths if w is not None)
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
    for field, held in zip(schema, stored, strict=True):
        width = fixed_width(field.type)
        if width is None:
            width = 16.0 + INFLATION * (held or 0.0)
        total += width
    return total

"""How many bytes a decoded row takes, estimated before anything is decoded."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lance_spark.errors import UnsupportedTypeError

#: Bytes of a value that no file has to hold: those of a tensor, not what a damaged schema may claim.
_WIDEST_NULL = 1 << 26
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


def nulls(count: int, field: pa.Field) -> pa.Array:
    """Return the nulls of a column that no file holds.

    Raises
    ------
    UnsupportedTypeError
        A schema of a hundred bytes can claim lists of any fixed size, and each null takes as much as they do.
    """
    width = fixed_width(field.type)
    if width is not None and width > _WIDEST_NULL:
        raise UnsupportedTypeError(
            f"column {field.name!r}: no data file holds it, and a null of type {field.type} takes {width:.0f} bytes; "
            f"{_WIDEST_NULL} are the limit: read the other columns"
        )
    return pa.nulls(count, field.type)

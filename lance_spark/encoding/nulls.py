"""Nulls that no page stores: a schema of a hundred bytes can claim a type whose null is as large
as any number, for example a list of fixed size.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import fixed_width
from lance_spark.errors import CorruptFileError, UnsupportedTypeError

#: Most bytes of a null that no file stores: enough for a tensor, but not for any size that a
#: damaged schema claims.
WIDEST_NULL = 1 << 26
_OFFSET = 4


def is_too_wide(dtype: pa.DataType) -> bool:
    """Return whether a null of a type, or of a type in it, takes more than `WIDEST_NULL` bytes."""
    if _least_width(dtype) > WIDEST_NULL:
        return True
    return any(is_too_wide(dtype.field(index).type) for index in range(dtype.num_fields))


def _least_width(dtype: pa.DataType) -> float:
    """Return the least bytes of a value: an offset for strings and lists."""
    if pat.is_null(dtype):
        return 0
    if pat.is_fixed_size_list(dtype):
        return _least_width(dtype.value_type) * int(dtype.list_size)
    if pat.is_struct(dtype):
        return sum(_least_width(field.type) for field in dtype)
    return fixed_width(dtype) / 8 or _OFFSET


def nulls(count: int, field: pa.Field) -> pa.Array:
    """Return the nulls of a column that no file holds.

    Raises UnsupportedTypeError: a null takes more than `WIDEST_NULL` bytes.
    """
    if is_too_wide(field.type):
        raise UnsupportedTypeError(
            f"column {field.name!r}: no data file holds it, and a null of type {field.type} takes "
            f"more than {WIDEST_NULL} bytes; read the other columns"
        )
    return pa.nulls(count, field.type)


def unstored_nulls(count: int, dtype: pa.DataType) -> pa.Array:
    """Return nulls of a page that stores no values.

    Raises CorruptFileError: a null takes more than `WIDEST_NULL` bytes.
    """
    if is_too_wide(dtype):
        raise CorruptFileError(
            f"a null of type {dtype} takes more than {WIDEST_NULL} bytes; read the other columns"
        )
    return pa.nulls(count, dtype)

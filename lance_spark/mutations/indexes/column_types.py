"""The types of columns that indexes take."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

_SCALARS = (
    pat.is_integer,
    pat.is_floating,
    pat.is_boolean,
    pat.is_decimal,
    pat.is_temporal,
    pat.is_string,
    pat.is_large_string,
    pat.is_binary,
    pat.is_large_binary,
    pat.is_fixed_size_binary,
)


def is_scalar(dtype: pa.DataType) -> bool:
    """Return whether a type is one of single values."""
    return any(test(dtype) for test in _SCALARS)


def is_list_of_scalars(dtype: pa.DataType) -> bool:
    """Return whether a type is one of lists of single values."""
    # Other clients refuse lists of a fixed size.
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype)) and is_scalar(dtype.value_type)


def is_string(dtype: pa.DataType) -> bool:
    """Return whether a type is one of texts."""
    return bool(pat.is_string(dtype) or pat.is_large_string(dtype))

"""Minimum and maximum in Spark's order: NaN is the greatest value, and nulls are skipped."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.types as pat

_ORDERED = (
    pat.is_integer,
    pat.is_float32,
    pat.is_float64,
    pat.is_decimal,
    pat.is_boolean,
    pat.is_date,
    pat.is_time,
    pat.is_timestamp,
    pat.is_string,
    pat.is_large_string,
    pat.is_binary,
    pat.is_large_binary,
    pat.is_fixed_size_binary,
)


def is_ordered(dtype: pa.DataType) -> bool:
    """Return whether `min_max` supports a type. It does not support float16 and nested types."""
    return any(test(dtype) for test in _ORDERED)


def min_max(values: pa.ChunkedArray) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the minimum and the maximum, both null if all values are null.

    Returns None if the type is not ordered.
    """
    import pyarrow.compute as pc

    dtype = values.type
    if not is_ordered(dtype):
        return None
    # The kernel skips NaN if there are other values.
    bounds = pc.min_max(values)
    low, high = bounds["min"], bounds["max"]
    if pat.is_floating(dtype) and pc.any(pc.is_nan(values)).as_py():
        high = pa.scalar(math.nan, dtype)
        numbers = values.filter(pc.invert(pc.is_nan(values)))
        low = pc.min_max(numbers)["min"]
        if not low.is_valid:
            low = high
    return low, high


def is_less(left: pa.Scalar, right: pa.Scalar) -> bool:
    """Return whether `left` is less than `right`. Both have one type, and neither is null."""
    import pyarrow.compute as pc

    if pat.is_floating(left.type):
        if math.isnan(left.as_py()):
            return False
        if math.isnan(right.as_py()):
            return True
    return bool(pc.less(left, right).as_py())

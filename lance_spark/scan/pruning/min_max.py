"""Least and greatest values as Spark orders them: NaN is equal to itself and greater than all others, nulls do not count."""

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


def is_ordered(kind: pa.DataType) -> bool:
    """Tell whether values of a type can be compared here: numbers but those of 16 bits, bools, times, strings and bytes."""
    return any(test(kind) for test in _ORDERED)


def min_max(values: pa.ChunkedArray) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the least and the greatest of some values; null where there are none. None if their type has no order here."""
    import pyarrow.compute as pc

    kind = values.type
    if not is_ordered(kind):
        return None
    # The kernel passes NaN over where there are other values.
    found = pc.min_max(values)
    low, high = found["min"], found["max"]
    if pat.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():
        high = pa.scalar(math.nan, kind)
        rest = values.filter(pc.invert(pc.is_nan(values)))
        low = pc.min_max(rest)["min"]
        if not low.is_valid:
            low = high
    return low, high


def is_less(one: pa.Scalar, other: pa.Scalar) -> bool:
    """Tell whether a value is less than another of the same type; neither of them null."""
    import pyarrow.compute as pc

    if pat.is_floating(one.type):
        if math.isnan(one.as_py()):
            return False
        if math.isnan(other.as_py()):
            return True
    return bool(pc.less(one, other).as_py())

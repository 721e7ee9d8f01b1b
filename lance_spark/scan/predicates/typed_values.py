"""Literals with their Spark type. Each Spark type that can be compared is one Arrow type:

| Spark | Arrow |
| --- | --- |
| void, boolean | null, bool |
| tinyint, smallint, int, bigint | int8, int16, int32, int64 |
| float, double | float32, float64 |
| decimal(p, s) | decimal128(p, s) |
| string, binary | string, binary |
| date | date32 |
| timestamp, timestamp_ntz | timestamp[us, UTC], timestamp[us] |
| time(6) | time64[us] |
| interval day to second | duration[us] |
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

INSTANT = pa.timestamp("us", "UTC")
CLOCK = pa.timestamp("us")
TIME = pa.time64("us")
DURATION = pa.duration("us")
#: Digits of Spark's widest decimal.
MOST_DIGITS = 38
_EPOCH = datetime.datetime(1970, 1, 1)
_NAMES: dict[pa.DataType, str] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    INSTANT: "timestamp",
    CLOCK: "timestamp_ntz",
    TIME: "time(6)",
    DURATION: "interval day to second",
}
_SHOWN: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


@dataclass(frozen=True, slots=True)
class Typed:
    """A literal of one type of Spark.

    - `value`: None for null; an int for integers, for dates (days since 1970), timestamps
      (microseconds since 1970), times of day and intervals (microseconds); a float, Decimal, str,
      bytes or bool.
    - `dtype`: One of the module's table.
    - `written`: Whether it is a literal in the text, and not the result of an expression. Spark has
      special rules for integer and decimal literals.
    """

    value: Any
    dtype: pa.DataType
    written: bool = False

    @classmethod
    def of(cls, value: Any) -> Typed:
        """Return a Python value, or a scalar of Arrow, with its Spark type.

        Raises TypeError: Spark does not have the type, or does not compare it.
        """
        if isinstance(value, Typed):
            return value
        if isinstance(value, pa.Scalar):
            return _of_scalar(value)
        if isinstance(value, np.generic):
            value = value.item()
        if value is None:
            return cls(None, pa.null())
        if isinstance(value, bool):
            return cls(value, pa.bool_())
        if isinstance(value, int):
            return replace(integer(value), written=False)
        if isinstance(value, float):
            return cls(float(value), pa.float64())
        if isinstance(value, Decimal):
            return replace(decimal(value), written=False)
        if isinstance(value, str):
            return cls(str(value), pa.string())
        if isinstance(value, bytes | bytearray | memoryview):
            return cls(bytes(value), pa.binary())
        if isinstance(value, datetime.datetime):
            if getattr(value, "nanosecond", 0):
                raise TypeError(f"{value} has nanoseconds, but Spark's timestamps have none")
            if value.tzinfo is None:
                return cls(micros(value), CLOCK)
            return cls(micros(value.astimezone(datetime.UTC).replace(tzinfo=None)), INSTANT)
        if isinstance(value, datetime.date):
            return cls((value - _EPOCH.date()).days, pa.date32())
        if isinstance(value, datetime.time):
            if value.tzinfo is not None:
                raise TypeError(f"{value} has a time zone, but Spark's times of day have none")
            return cls(micros(datetime.datetime.combine(_EPOCH, value)), TIME)
        if isinstance(value, datetime.timedelta):
            if getattr(value, "nanoseconds", 0):
                raise TypeError(f"{value} has nanoseconds, but Spark's intervals have none")
            return cls(value // datetime.timedelta(microseconds=1), DURATION)
        raise TypeError(f"values of type {type(value).__name__} cannot be compared")


def integer(value: int) -> Typed:
    """Return an integer with its Spark type: int, bigint, or a decimal of its digits."""
    if -(1 << 31) <= value < 1 << 31:
        return Typed(value, pa.int32(), True)
    if -(1 << 63) <= value < 1 << 63:
        return Typed(value, pa.int64(), True)
    # The error does not show the value: Python refuses to format integers of thousands of digits.
    if abs(value) >= 10**MOST_DIGITS:
        raise TypeError(f"an integer has more than {MOST_DIGITS} digits, the most of any type")
    return decimal(Decimal(value))


def decimal(value: Decimal) -> Typed:
    """Return a decimal with the precision and the scale of its digits.

    Raises TypeError: the value has more digits than Spark's decimals, or is not a number.
    """
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeError(f"{value} is not a decimal number")
    if max(len(digits), len(digits) + exponent, -exponent) > MOST_DIGITS:
        raise TypeError(f"it has more than {MOST_DIGITS} digits, the most of Spark's decimals")
    if exponent > 0:
        digits, exponent = digits + (0,) * exponent, 0
        value = Decimal((value.as_tuple().sign, digits, 0))
    scale = -exponent
    return Typed(value, pa.decimal128(max(len(digits), scale, 1), scale), True)


def micros(local: datetime.datetime) -> int:
    """Return microseconds since 1970 of a time without a zone."""
    return (local - _EPOCH) // datetime.timedelta(microseconds=1)


def _of_scalar(scalar: pa.Scalar) -> Typed:
    if isinstance(scalar, pa.ExtensionScalar | pa.DictionaryScalar):
        return _of_scalar(scalar.value) if scalar.is_valid else Typed(None, pa.null())
    dtype = shown_type(scalar.type)
    if dtype is None:
        raise TypeError(f"values of type {scalar.type} cannot be compared")
    if not scalar.is_valid:
        return Typed(None, dtype)
    if pat.is_temporal(dtype):
        integers = pa.int32() if pat.is_date32(dtype) else pa.int64()
        ticks = pa.array([scalar]).cast(dtype).cast(integers)[0].as_py()
        return Typed(ticks, dtype)
    if pat.is_uint64(scalar.type):
        return replace(integer(scalar.as_py()), written=False)
    return Typed(scalar.as_py(), dtype)


def shown_type(arrow: pa.DataType) -> pa.DataType | None:
    """Return the Spark type of a column of an Arrow type; None if Spark does not compare it.

    Decimals of more digits than Spark's are returned unchanged.
    """
    if isinstance(arrow, pa.BaseExtensionType):
        return shown_type(arrow.storage_type)
    if pat.is_dictionary(arrow):
        return shown_type(arrow.value_type)
    if arrow in _SHOWN:
        return _SHOWN[arrow]
    if pat.is_decimal(arrow):
        if is_spark_decimal(arrow.precision, arrow.scale):
            return pa.decimal128(arrow.precision, arrow.scale)
        return arrow
    if is_text(arrow):
        return pa.string()
    if is_bytes(arrow):
        return pa.binary()
    if pat.is_timestamp(arrow):
        return CLOCK if arrow.tz is None else INSTANT
    if pat.is_time(arrow):
        return TIME
    if pat.is_duration(arrow):
        return DURATION
    return arrow if arrow in _NAMES else None


def is_spark_decimal(precision: int, scale: int) -> bool:
    """Return whether Spark has a decimal of this precision and scale."""
    return precision <= MOST_DIGITS and 0 <= scale <= precision


def type_name(dtype: pa.DataType) -> str:
    """Return Spark's name of a type."""
    shown = shown_type(dtype)
    if shown is None:
        return str(dtype)
    if pat.is_decimal(shown):
        return f"decimal({shown.precision},{shown.scale})"
    if is_text(shown) or is_bytes(shown):
        return "string" if is_text(shown) else "binary"
    return _NAMES.get(shown, str(dtype))


def is_number(dtype: pa.DataType) -> bool:
    """Return whether values are integers, floats or decimals."""
    return bool(pat.is_integer(dtype) or pat.is_floating(dtype) or pat.is_decimal(dtype))


def is_text(dtype: pa.DataType) -> bool:
    """Return whether values are strings."""
    return bool(pat.is_string(dtype) or pat.is_large_string(dtype) or pat.is_string_view(dtype))


def is_bytes(dtype: pa.DataType) -> bool:
    """Return whether values are bytes."""
    return bool(
        pat.is_binary(dtype)
        or pat.is_large_binary(dtype)
        or pat.is_binary_view(dtype)
        or pat.is_fixed_size_binary(dtype)
    )


def is_datetime(dtype: pa.DataType) -> bool:
    """Return whether values are dates or timestamps."""
    return bool(pat.is_date(dtype) or pat.is_timestamp(dtype))

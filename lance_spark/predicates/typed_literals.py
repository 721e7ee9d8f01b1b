"""Literals of a type that a cast or a text names, and values of such types."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.predicates import times
from lance_spark.predicates.sql_settings import SqlSettings

# --------------------------------------------------------------------------------------------------
# Literals with their Spark type. Each Spark type that can be compared is one Arrow type:
#
# | Spark | Arrow |
# | --- | --- |
# | void, boolean | null, bool |
# | tinyint, smallint, int, bigint | int8, int16, int32, int64 |
# | float, double | float32, float64 |
# | decimal(p, s) | decimal128(p, s) |
# | string, binary | string, binary |
# | date | date32 |
# | timestamp, timestamp_ntz | timestamp[us, UTC], timestamp[us] |
# | time(6) | time64[us] |
# | interval day to second | duration[us] |

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


# --------------------------------------------------------------------------------------------------
# Casts of literals with Spark's results, and rounding of numbers with Java's results.
#
# A cast that fails in Spark, or that returns null without ANSI mode, is an error here in both
# modes.

#: Half a unit beyond the largest float32: from here on numbers are infinite.
_INFINITE = 2**128 - 2**103
#: Without ANSI mode Spark ignores the digits after the point.
_WHOLE = re.compile(r"([+-]?[0-9]+)(\.[0-9]*)?")
_POINT_ONLY = re.compile(r"[+-]?\.[0-9]*")
#: Forms of floats that Java parses, and that are not supported here.
_OTHER_FLOATS = re.compile(r"[+-]?0[xX]|.*[eE][+-]?[0-9]{6}")
#: All dates that Spark parses, and dates in the years that are supported here.
_DATE = re.compile(r"[+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}([ T].*)?)?)?", re.DOTALL)
_NEAR_DATE = re.compile(r"\+?(?!0000)[0-9]{4}(-.*)?", re.DOTALL)
_TIMESTAMP = re.compile(r"[T0-9+-]")
#: Texts that are a time of day, or can be one in some release of Spark.
_NEAR_TIME = re.compile(r"T?[0-9]{1,2}:")
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?)([dDfF]?)")
#: Names that Spark's optimizer replaces by times, and a word that can be such a name.
_SPECIAL = ("epoch", "now", "today", "tomorrow", "yesterday")
_WORD = re.compile(r"[a-zA-Z]+")
_NAMED = re.compile(r"([+-]?)(inf|infinity|nan)", re.IGNORECASE)
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
#: Spark strips white space and control characters from both ends of a string before a cast.
_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_DAY = 86_400_000_000
#: Most characters of a string that is cast. No type has numbers of more digits.
_MAX_CHARACTERS = 400


def to_float32(number: Decimal | Fraction | int | float) -> float:
    """Return the float32 that is nearest to a number; the even one if two are equally near.

    A conversion through float64 would round twice, and sometimes return another neighbour.
    """
    if isinstance(number, float):
        with np.errstate(over="ignore"):
            return float(np.float32(number))
    exact = Fraction(number)
    if abs(exact) >= _INFINITE:
        return float("inf") if exact > 0 else float("-inf")
    with np.errstate(over="ignore"):
        guess = np.float32(float(exact))
    if np.isinf(guess):
        guess = np.copysign(np.finfo(np.float32).max, guess)
    candidates = [
        guess,
        np.nextafter(guess, np.float32("-inf")),
        np.nextafter(guess, np.float32("inf")),
    ]
    best = min(
        (value for value in candidates if np.isfinite(value)),
        key=lambda value: (abs(Fraction(float(value)) - exact), int(value.view(np.uint32)) & 1),
    )
    if best == 0 and isinstance(number, Decimal) and number.is_signed():
        return -0.0
    return float(best)


def to_float64(number: Decimal | Fraction | int) -> float:
    """Return the float64 that is nearest to a number; infinite if it is too large."""
    # Python rounds integers, decimals and fractions correctly.
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def half_up(number: Fraction, scale: int) -> int:
    """Return a number in units of 10 ** -scale, halves rounded away from zero."""
    units = abs(number) * Fraction(10) ** scale
    rounded = (2 * units.numerator + units.denominator) // (2 * units.denominator)
    return rounded if number >= 0 else -rounded


def decimal_of(units: int, scale: int) -> Decimal:
    """Return the decimal of a number of units of 10 ** -scale, never rounded."""
    digits = tuple(int(digit) for digit in str(abs(units)))
    return Decimal((int(units < 0), digits, -scale))


class CastError(ValueError):
    """A literal cannot be cast to a type, in Spark or in this package."""


class FailedCastError(CastError):
    """A literal cannot be cast to a type: Spark raises an error in ANSI mode."""


def cast(
    literal: Typed, dtype: pa.DataType, settings: SqlSettings, *, foldable: bool = True
) -> Typed:
    """Cast a literal to another type.

    - `dtype`: One of the types in `typed_values`.
    - `settings`: Its time zone applies to dates, and to timestamps without a zone.
    - `foldable`: Whether Spark knows the value while it plans. Then it parses ``epoch``, ``now``,
      ``today`` and similar names as times.

    Raises CastError: Spark raises an error or returns null, or this package does not support the
    cast.
    """
    if literal.dtype.equals(dtype):
        return Typed(literal.value, dtype)
    if literal.value is None:
        return Typed(None, dtype)
    try:
        if foldable and pat.is_temporal(dtype) and _is_special(literal):
            raise CastError("names of days and times are not supported; write a date")
        return Typed(_cast(literal, dtype, settings), dtype)
    except (ValueError, OverflowError, ArithmeticError) as error:
        failure = FailedCastError if isinstance(error, FailedCastError) else CastError
        reason = f": {error}" if str(error) else ""
        raise failure(
            f"{_shown(literal)} of type {type_name(literal.dtype)} cannot be cast to "
            f"{type_name(dtype)}{reason}"
        ) from None


def _is_special(literal: Typed) -> bool:
    """Return whether a text begins with a name that Spark's optimizer replaces by a time."""
    if not is_text(literal.dtype):
        return False
    name = _WORD.match(literal.value.strip(_BLANK))
    return name is not None and name[0].lower() in _SPECIAL


def _cast(literal: Typed, dtype: pa.DataType, settings: SqlSettings) -> Any:
    value, source = literal.value, literal.dtype
    if is_text(source):
        return _of_text(value, dtype, settings)
    if is_text(dtype):
        return _to_text(value, source)
    if pat.is_boolean(source) and is_number(dtype):
        return _to_number(Fraction(int(value)), dtype)
    if is_number(source) and pat.is_boolean(dtype):
        return value != 0
    if is_number(source) and is_number(dtype):
        if not isinstance(value, float):
            return _to_number(value, dtype)
        return _of_float(value, dtype)
    if is_datetime(source) and is_datetime(dtype):
        return _to_time(value, source, dtype, settings)
    raise CastError("this cast is not supported")


def _of_float(value: float, dtype: pa.DataType) -> Any:
    if pat.is_floating(dtype):
        return to_float32(value) if pat.is_float32(dtype) else value
    if pat.is_decimal(dtype):
        raise CastError("the cast of a float to a decimal is not supported; write a decimal")
    if not math.isfinite(value):
        raise FailedCastError("it is not an integer")
    return _to_number(Fraction(math.trunc(value)), dtype)


def _to_number(value: int | Decimal | Fraction, dtype: pa.DataType) -> Any:
    """Cast an exact number."""
    if pat.is_floating(dtype):
        return to_float32(value) if pat.is_float32(dtype) else to_float64(value)
    if pat.is_decimal(dtype):
        units = half_up(Fraction(value), dtype.scale)
        if abs(units) >= 10**dtype.precision:
            raise FailedCastError("it has more digits than the type")
        return decimal_of(units, dtype.scale)
    integer = value if isinstance(value, int) else math.trunc(Fraction(value))
    limit = 1 << dtype.bit_width - 1
    if not -limit <= integer < limit:
        raise FailedCastError("it is out of range")
    return integer


def _of_text(text: str, dtype: pa.DataType, settings: SqlSettings) -> Any:
    if is_bytes(dtype):
        return text.encode()
    text = text.strip(_BLANK)
    if not text.isascii() and pat.is_decimal(dtype):
        raise CastError("write digits from 0 to 9")
    if not text.isascii() and (is_number(dtype) or pat.is_boolean(dtype)):
        raise FailedCastError("it has characters that numbers and booleans do not have")
    has_clock = pat.is_timestamp(dtype) or dtype.equals(TIME)
    if len(text) > _MAX_CHARACTERS or (has_clock and not text.isascii()):
        raise CastError("")
    if dtype.equals(TIME):
        return _time_of_day(text)
    if pat.is_duration(dtype):
        raise CastError("write INTERVAL '...'")
    if pat.is_boolean(dtype):
        if text.lower() not in (*_TRUE, *_FALSE):
            raise FailedCastError("write true or false")
        return text.lower() in _TRUE
    if pat.is_date(dtype):
        return _days(text)
    if pat.is_timestamp(dtype):
        if not _TIMESTAMP.match(text) or not any(char.isdigit() for char in text):
            raise FailedCastError("write it as 2024-01-31 12:30:15")
        return times.parse_micros(text, dtype.tz is not None, settings.time_zone)
    if pat.is_integer(dtype):
        integer = _WHOLE.fullmatch(text)
        if integer is None or (settings.ansi and integer[2]):
            if not settings.ansi and _POINT_ONLY.fullmatch(text):
                raise CastError("")
            raise FailedCastError("it is not an integer")
        return _to_number(Decimal(integer[1]), dtype)
    if named := _NAMED.fullmatch(text):
        if not pat.is_floating(dtype) or (named[1] and named[2].lower() == "nan"):
            raise FailedCastError("it is not a number")
        return float(text)
    match = _NUMBER.fullmatch(text)
    if match is None and _OTHER_FLOATS.match(text):
        raise CastError("write its digits")
    if match is None or (match[2] and pat.is_decimal(dtype)):
        raise FailedCastError("it is not a number")
    number = Decimal(match[1])
    if pat.is_decimal(dtype) and abs(number.adjusted()) > _MAX_CHARACTERS:
        raise FailedCastError("it has more digits than the type")
    if pat.is_float64(dtype):
        return float(match[1])
    # Java parses a float directly, so that it is rounded once.
    return to_float32(number) if pat.is_float32(dtype) else _to_number(number, dtype)


def _time_of_day(text: str) -> int:
    try:
        return times.parse_time(text)
    except ValueError as error:
        if not _NEAR_TIME.match(text) or times.TIME.fullmatch(text):
            raise FailedCastError(str(error)) from None
        raise


def _days(text: str) -> int:
    try:
        return times.parse_days(text)
    except ValueError as error:
        if not _DATE.fullmatch(text) or _NEAR_DATE.fullmatch(text):
            raise FailedCastError(str(error)) from None
        raise


def _to_text(value: Any, source: pa.DataType) -> str:
    if pat.is_boolean(source):
        return "true" if value else "false"
    if pat.is_integer(source):
        return str(value)
    if pat.is_decimal(source) and -value.as_tuple().exponent <= 6:
        return f"{value:f}"
    if is_bytes(source):
        return str(value.decode())
    if pat.is_date(source):
        return times.date_of(value).isoformat()
    if source.equals(TIME):
        return times.time_text(value)
    raise CastError("this cast is not supported")


def _to_time(value: int, source: pa.DataType, dtype: pa.DataType, settings: SqlSettings) -> int:
    """Cast days or microseconds of one date or timestamp type to another."""
    if pat.is_date(source):
        if dtype.tz is None:
            return value * _DAY
        return times.start_of_day(value, settings.time_zone)
    if pat.is_date(dtype):
        local = value if source.tz is None else times.to_local(value, settings.time_zone)
        return local // _DAY
    if source.equals(CLOCK) and dtype.equals(INSTANT):
        return times.to_instant(value, settings.time_zone)
    return times.to_local(value, settings.time_zone)


def _shown(literal: Typed) -> str:
    if pat.is_temporal(literal.dtype):
        return str(pa.scalar(literal.value, literal.dtype))
    text = repr(literal.value) if not isinstance(literal.value, Decimal) else str(literal.value)
    return text if len(text) <= 60 else f"{text[:60]}..."

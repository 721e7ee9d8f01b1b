"""Casts of literals with Spark's results, and rounding of numbers with Java's results.

A cast that fails in Spark, or that returns null without ANSI mode, is an error here in both modes.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates import times
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import (
    CLOCK,
    INSTANT,
    TIME,
    Typed,
    is_bytes,
    is_datetime,
    is_number,
    is_text,
    type_name,
)

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

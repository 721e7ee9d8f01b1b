"""Literals cast as Spark casts them.

A cast that Spark refuses, or answers by null without ANSI mode, is an error here in both modes.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates import times
from lance_spark.scan.predicates.rounding import decimal_of, half_up, to_float32, to_float64
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

#: Without ANSI mode Spark passes over digits after a point.
_WHOLE = re.compile(r"([+-]?[0-9]+)(\.[0-9]*)?")
_POINT_ONLY = re.compile(r"[+-]?\.[0-9]*")
#: Forms of floats that Java takes, and that are not read here.
_OTHER_FLOATS = re.compile(r"[+-]?0[xX]|.*[eE][+-]?[0-9]{6}")
#: All dates that Spark reads, and those of years that are read here.
_DATE = re.compile(r"[+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}([ T].*)?)?)?", re.DOTALL)
_NEAR_DATE = re.compile(r"\+?(?!0000)[0-9]{4}(-.*)?", re.DOTALL)
_TIMESTAMP = re.compile(r"[T0-9+-]")
#: Texts that are a time of day, or may be one to some release of Spark.
_NEAR_TIME = re.compile(r"T?[0-9]{1,2}:")
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?)([dDfF]?)")
#: Names of times that Spark's optimizer knows, and a word that can be one.
_SPECIAL = ("epoch", "now", "today", "tomorrow", "yesterday")
_WORD = re.compile(r"[a-zA-Z]+")
_NAMED = re.compile(r"([+-]?)(inf|infinity|nan)", re.IGNORECASE)
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
#: What Spark takes off both ends of a string that is cast: white space and control characters.
_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_DAY = 86_400_000_000
#: Digits of a string that is made a decimal: more are no number that any column has.
_MOST_CHARACTERS = 400


class CastError(ValueError):
    """A literal is not cast to a type, or has no value in it."""


class FailedCastError(CastError):
    """Spark raises an error for the cast in ANSI mode."""


def cast(
    literal: Typed, dtype: pa.DataType, settings: SqlSettings, *, foldable: bool = True
) -> Typed:
    """Return a literal as one of another type.

    Parameters
    ----------
    literal : Typed
    dtype : pa.DataType
        One of the types of `typed`.
    settings : SqlSettings
        The time zone is that of dates and timestamps without one.
    foldable : bool
        Whether Spark knows the value while it plans: then it reads ``epoch``, ``now``, ``today`` and
        the like as times.

    Raises
    ------
    CastError
        Spark raises an error, or makes it null, or it is not known here what Spark makes of it.
    """
    if literal.dtype.equals(dtype):
        return Typed(literal.value, dtype)
    if literal.value is None:
        return Typed(None, dtype)
    try:
        if foldable and pat.is_temporal(dtype) and _is_special(literal):
            raise CastError("days and times by names are not read here; write a date")
        return Typed(_cast(literal, dtype, settings), dtype)
    except (ValueError, OverflowError, ArithmeticError) as error:
        failure = FailedCastError if isinstance(error, FailedCastError) else CastError
        why = f": {error}" if str(error) else ""
        raise failure(
            f"{_shown(literal)} of type {type_name(literal.dtype)} cannot be cast to "
            f"{type_name(dtype)}{why}"
        ) from None


def _is_special(literal: Typed) -> bool:
    """Tell whether a text begins with a name that Spark's optimizer replaces by a time before it casts."""
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
    raise CastError("that is not done here")


def _of_float(value: float, dtype: pa.DataType) -> Any:
    if pat.is_floating(dtype):
        return to_float32(value) if pat.is_float32(dtype) else value
    if pat.is_decimal(dtype):
        raise CastError("the digits of a float are not made a decimal here; write a decimal")
    if not math.isfinite(value):
        raise FailedCastError("it is not an integer")
    return _to_number(Fraction(math.trunc(value)), dtype)


def _to_number(value: int | Decimal | Fraction, dtype: pa.DataType) -> Any:
    """Return an exact number as one of a type."""
    if pat.is_floating(dtype):
        return to_float32(value) if pat.is_float32(dtype) else to_float64(value)
    exact = Fraction(value)
    if pat.is_decimal(dtype):
        units = half_up(exact, dtype.scale)
        if abs(units) >= 10**dtype.precision:
            raise FailedCastError("it has more digits than that type")
        return decimal_of(units, dtype.scale)
    whole = math.trunc(exact)
    limit = 1 << dtype.bit_width - 1
    if not -limit <= whole < limit:
        raise FailedCastError("the type has no value so large")
    return whole


def _of_text(text: str, dtype: pa.DataType, settings: SqlSettings) -> Any:
    if is_bytes(dtype):
        return text.encode()
    text = text.strip(_BLANK)
    if not text.isascii() and pat.is_decimal(dtype):
        raise CastError("write digits from 0 to 9")
    if not text.isascii() and (is_number(dtype) or pat.is_boolean(dtype)):
        raise FailedCastError("it has letters other than those of numbers and truth values")
    of_clock = pat.is_timestamp(dtype) or dtype.equals(TIME)
    if len(text) > _MOST_CHARACTERS or (of_clock and not text.isascii()):
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
        whole = _WHOLE.fullmatch(text)
        if whole is None or (settings.ansi and whole[2]):
            if not settings.ansi and _POINT_ONLY.fullmatch(text):
                raise CastError("")
            raise FailedCastError("it is not an integer")
        return _to_number(Decimal(whole[1]), dtype)
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
    if pat.is_decimal(dtype) and abs(number.adjusted()) > _MOST_CHARACTERS:
        raise FailedCastError("it has more digits than that type")
    if pat.is_float64(dtype):
        return float(match[1])
    # Java reads it as a float at once.
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
    raise CastError("that is not done here")


def _to_time(value: int, source: pa.DataType, dtype: pa.DataType, settings: SqlSettings) -> int:
    """Return days, or microseconds, of one type as those of another."""
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

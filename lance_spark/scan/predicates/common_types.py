"""The type in which Spark compares values of two or more types.

After AnsiTypeCoercion, TypeCoercion and DecimalPrecisionTypeCoercion of Spark 4:

| one side | other side | compared as |
| --- | --- | --- |
| a type | the same, or null | that type |
| integer | wider integer | the wider |
| integer, decimal | decimal | a decimal of both sides' digits; an integer that is a literal has only its own |
| integer | float, double | double; without ANSI, float beside a float |
| float | double | double |
| decimal | float, double | double |
| string | integer | bigint; without ANSI, that integer type |
| string | float, double, decimal | double; without ANSI, float beside a float, and a decimal of scale 0 beside one |
| string | boolean, binary, date, timestamp, timestamp_ntz, time | that type |
| date | timestamp, timestamp_ntz | that timestamp |
| timestamp | timestamp_ntz | timestamp |

A decimal that would need more than 38 digits keeps those before the point. Nothing else has a common type. `IN` takes
the common type of all its values, from left to right.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import (
    CLOCK,
    DURATION,
    INSTANT,
    MOST_DIGITS,
    Typed,
    is_bytes,
    is_datetime,
    is_number,
    is_spark_decimal,
    is_text,
    type_name,
)

#: Decimals that hold all values of an integer type.
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
#: Digits of the widest decimal of Arrow.
_WIDEST = 76


class NoCommonTypeError(ValueError):
    """Two types have no common type, or none that is known here."""


def comparison_type(
    left: pa.DataType | Typed, right: pa.DataType | Typed, settings: SqlSettings
) -> pa.DataType:
    """Return the type that both sides of a comparison are cast to.

    Parameters
    ----------
    left, right : pa.DataType or Typed
        The type of a column, as `typed.shown_type` gives it, or a literal.
    settings : SqlSettings

    Raises
    ------
    NoCommonTypeError
    """
    one, other = _dtype(left), _dtype(right)
    if pat.is_decimal(one) and pat.is_integer(other):
        return wider_decimal(one, _digits_of(right, other, settings), settings)
    if pat.is_integer(one) and pat.is_decimal(other):
        return wider_decimal(_digits_of(left, one, settings), other, settings)
    return wider_type(one, other, settings)


def list_type(
    types: Iterable[pa.DataType], settings: SqlSettings, *, strings: bool = False
) -> pa.DataType:
    """Return the type that the values of an ``IN``, or of several branches, are cast to.

    Parameters
    ----------
    types : iterable of pa.DataType
    settings : SqlSettings
    strings : bool
        Whether values can be cast to strings each, as Spark does without ANSI mode.

    Raises
    ------
    NoCommonTypeError
    """
    given = list(types)
    if not settings.ansi:
        others = {one for one in given if not (pat.is_null(one) or is_text(one))}
        if others and any(is_text(one) for one in given):
            if strings and not any(is_bytes(one) or pat.is_boolean(one) for one in others):
                return pa.string()
            raise NoCommonTypeError(
                "without ANSI mode Spark compares strings with other types in IN as strings, "
                "which is not done here; write literals of one type"
            )
    common = pa.null()
    for one in given:
        common = wider_type(common, one, settings)
    return common


def wider_type(one: pa.DataType, other: pa.DataType, settings: SqlSettings) -> pa.DataType:
    """Return the common type of two types.

    Raises
    ------
    NoCommonTypeError
    """
    if one.equals(other) or pat.is_null(other):
        return one
    if pat.is_null(one):
        return other
    if is_text(one) or is_text(other):
        return _beside_string(other if is_text(one) else one, settings)
    if is_number(one) and is_number(other):
        return _wider_number(one, other, settings)
    if is_datetime(one) and is_datetime(other):
        return INSTANT if INSTANT in (one, other) else CLOCK
    raise NoCommonTypeError(
        f"Spark does not compare {type_name(one)} with {type_name(other)}; cast one of them"
    )


def wider_decimal(one: pa.DataType, other: pa.DataType, settings: SqlSettings) -> pa.DataType:
    """Return the decimal that has the digits of two, or as many as Spark keeps of them.

    Raises
    ------
    NoCommonTypeError
        Both have more digits than any decimal of Arrow.
    """
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    if not all(is_spark_decimal(side.precision, side.scale) for side in (one, other)):
        # Spark has no such column: nothing is lost then.
        if precision > _WIDEST:
            raise NoCommonTypeError(f"no decimal has the digits of {one} and {other}")
        return pa.decimal256(precision, scale)
    if precision <= MOST_DIGITS:
        return pa.decimal128(precision, scale)
    if settings.retain_fraction_digits:
        return pa.decimal128(MOST_DIGITS, min(scale, MOST_DIGITS))
    return pa.decimal128(MOST_DIGITS, max(0, scale - (precision - MOST_DIGITS)))


def decimal_for(dtype: pa.DataType) -> pa.DataType:
    """Return the decimal that holds all values of an integer type."""
    return pa.decimal128(_DIGITS[dtype], 0)


def _dtype(side: pa.DataType | Typed) -> pa.DataType:
    return side.dtype if isinstance(side, Typed) else side


def _digits_of(side: pa.DataType | Typed, dtype: pa.DataType, settings: SqlSettings) -> pa.DataType:
    literal = isinstance(side, Typed) and side.written and side.value is not None
    if literal and settings.minimum_precision:
        assert isinstance(side, Typed)
        return pa.decimal128(len(str(abs(side.value))), 0)
    return decimal_for(dtype)


def _beside_string(other: pa.DataType, settings: SqlSettings) -> pa.DataType:
    if other.equals(DURATION):
        raise NoCommonTypeError(
            "Spark does not compare string with interval day to second; write INTERVAL '...'"
        )
    if settings.ansi:
        if pat.is_integer(other):
            return pa.int64()
        return pa.float64() if is_number(other) else other
    if is_datetime(other) and settings.datetime_to_string:
        raise NoCommonTypeError(
            "with spark.sql.legacy.typeCoercion.datetimeToString.enabled Spark compares dates as "
            "strings, which is not done here; write DATE '...' or TIMESTAMP '...'"
        )
    return pa.float64() if pat.is_decimal(other) and other.scale > 0 else other


def _wider_number(one: pa.DataType, other: pa.DataType, settings: SqlSettings) -> pa.DataType:
    if pat.is_decimal(one) or pat.is_decimal(other):
        if pat.is_floating(one) or pat.is_floating(other):
            return pa.float64()
        left, right = (side if pat.is_decimal(side) else decimal_for(side) for side in (one, other))
        return wider_decimal(left, right, settings)
    if pat.is_floating(one) or pat.is_floating(other):
        double = pa.float64() in (one, other) or settings.ansi
        return pa.float64() if double else pa.float32()
    return one if one.bit_width > other.bit_width else other

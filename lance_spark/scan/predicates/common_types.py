"""The type in which Spark compares values of two or more types.

The rules are from AnsiTypeCoercion, TypeCoercion and DecimalPrecisionTypeCoercion of Spark 4:

| one side | other side | compared as | without ANSI mode |
| --- | --- | --- | --- |
| a type | the same, or null | that type | |
| integer | wider integer | the wider type | |
| integer, decimal | decimal | a decimal with the digits of both | |
| integer | float | double | float |
| integer | double | double | |
| float | double | double | |
| decimal | float, double | double | |
| string | integer | bigint | that integer type |
| string | float | double | float |
| string | double | double | |
| string | decimal | double | the decimal, if its scale is 0 |
| string | boolean, binary, date, timestamp, timestamp_ntz, time | that type | |
| date | timestamp, timestamp_ntz | that timestamp | |
| timestamp | timestamp_ntz | timestamp | |

An integer literal beside a decimal has only the digits of its value. A decimal that would need more
than 38 digits keeps the digits before the point. Other pairs have no common type. The values of an
``IN`` have the common type of all, from left to right.
"""

from __future__ import annotations

import itertools
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
    """Types have no common type or no common operation, in Spark or in this package."""


def comparison_type(
    left: pa.DataType | Typed, right: pa.DataType | Typed, settings: SqlSettings
) -> pa.DataType:
    """Return the type that both sides of a comparison are cast to.

    - `left`, `right`: The Spark type of a column (`shown_type`), or a literal.

    Raises NoCommonTypeError.
    """
    a, b = _dtype(left), _dtype(right)
    if pat.is_decimal(a) and pat.is_integer(b):
        return wider_decimal(a, _digits_of(right, b, settings), settings)
    if pat.is_integer(a) and pat.is_decimal(b):
        return wider_decimal(_digits_of(left, a, settings), b, settings)
    return wider_type(a, b, settings)


def list_type(
    types: Iterable[pa.DataType], settings: SqlSettings, *, strings: bool = False
) -> pa.DataType:
    """Return the type to which the values of an ``IN``, or of several branches, are cast.

    - `strings`: Whether the caller can cast each value to a string, as Spark does without ANSI
      mode.

    Raises NoCommonTypeError.
    """
    dtypes = list(types)
    if not settings.ansi:
        other_dtypes = {dtype for dtype in dtypes if not (pat.is_null(dtype) or is_text(dtype))}
        if other_dtypes and any(map(is_text, dtypes)):
            if strings and not any(
                is_bytes(dtype) or pat.is_boolean(dtype) for dtype in other_dtypes
            ):
                return pa.string()
            raise NoCommonTypeError(
                "without ANSI mode Spark compares strings and other types in IN as strings, "
                "which is not supported; write literals of one type"
            )
    common = pa.null()
    # Lists of thousands of values have few types.
    for dtype, _ in itertools.groupby(dtypes):
        common = wider_type(common, dtype, settings)
    return common


def wider_type(left: pa.DataType, right: pa.DataType, settings: SqlSettings) -> pa.DataType:
    """Return the common type of two types. Raises NoCommonTypeError."""
    if left.equals(right) or pat.is_null(right):
        return left
    if pat.is_null(left):
        return right
    if is_text(left) or is_text(right):
        return _beside_string(right if is_text(left) else left, settings)
    if is_number(left) and is_number(right):
        return _wider_number(left, right, settings)
    if is_datetime(left) and is_datetime(right):
        return INSTANT if INSTANT in (left, right) else CLOCK
    raise NoCommonTypeError(
        f"Spark does not compare {type_name(left)} with {type_name(right)}; cast one of them"
    )


def wider_decimal(left: pa.DataType, right: pa.DataType, settings: SqlSettings) -> pa.DataType:
    """Return a decimal with the digits of both, or with as many as Spark keeps.

    Raises NoCommonTypeError: both together have more digits than any decimal of Arrow.
    """
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    if not all(is_spark_decimal(side.precision, side.scale) for side in (left, right)):
        # Spark does not have such a column, so that no digits need to be dropped.
        if precision > _WIDEST:
            raise NoCommonTypeError(f"no decimal has the digits of {left} and {right}")
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
            "strings, which is not supported; write DATE '...' or TIMESTAMP '...'"
        )
    return pa.float64() if pat.is_decimal(other) and other.scale > 0 else other


def _wider_number(left: pa.DataType, right: pa.DataType, settings: SqlSettings) -> pa.DataType:
    if pat.is_decimal(left) or pat.is_decimal(right):
        if pat.is_floating(left) or pat.is_floating(right):
            return pa.float64()
        a, b = (side if pat.is_decimal(side) else decimal_for(side) for side in (left, right))
        return wider_decimal(a, b, settings)
    if pat.is_floating(left) or pat.is_floating(right):
        is_double = pa.float64() in (left, right) or settings.ansi
        return pa.float64() if is_double else pa.float32()
    return left if left.bit_width > right.bit_width else right

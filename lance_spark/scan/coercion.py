"""Conditions from columns and literals of any type, compared as Spark compares them.

A literal that its column's type has exactly is compared in that type, so that columns need no cast. Otherwise both sides take
the type that Spark gives them:

| column | literal | compared as |
| --- | --- | --- |
| integer | integer | 64 bits; decimal, past them |
| integer, decimal | decimal | decimal of both sides' digits |
| float | integer, float, decimal | double |
| integer, decimal | float | double |

Others (text with numbers, dates with times) are not compared: Spark casts one side by rules of the session.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema import Field, Schema
from lance_spark.scan.comparing import Op, is_nan, like_regex
from lance_spark.scan.literals import is_too_long, to_scalar
from lance_spark.scan.predicates import (
    And,
    Column,
    Compare,
    CompareColumns,
    Constant,
    In,
    IsNull,
    Known,
    Match,
    Or,
    Predicate,
)

#: Integers beyond are not told apart by doubles.
_EXACT_DOUBLE = 1 << 53
_INT64 = range(-(1 << 63), 1 << 63)


def column(schema: Schema, path: Sequence[str]) -> Column:
    """Return the column of a path.

    Parameters
    ----------
    schema : Schema
        Of the table.
    path : sequence of str
        Names from the top down; in another case than the table's, if only one column has it.

    Raises
    ------
    InvalidInputError
        There is no such column, or it is inside of a list or a map, or a blob.
    """
    found: list[Field] = []
    fields: Sequence[Field] = schema.fields
    for depth, name in enumerate(path):
        if found and not pat.is_struct(found[-1].arrow_field.type):
            raise InvalidInputError(
                f"filter: column {'.'.join(path[:depth])} is no struct, so there is no {name!r} in it"
            )
        found.append(_named(name, fields, path))
        fields = found[-1].children
    if found[-1].is_blob:
        raise InvalidInputError(f"filter: column {'.'.join(path)} is a blob")
    return Column(tuple(found))


def _named(name: str, fields: Sequence[Field], path: Sequence[str]) -> Field:
    for field in fields:
        if field.name == name:
            return field
    alike = [field for field in fields if field.name.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    there = ", ".join(field.name for field in fields)
    what = "more than one" if alike else "no"
    raise InvalidInputError(f"filter: there is {what} column {'.'.join(path)}; there are {there}")


def compare(where: Column, op: Op, value: Any) -> Predicate:
    """Return the condition that a column stands in an order to a literal.

    Parameters
    ----------
    where : Column
    op : str
    value : object or pa.Scalar
        Null makes a condition that is null for all rows.

    Raises
    ------
    InvalidInputError
        The two cannot be compared.
    """
    kind = kind_of(where.field)
    if _is_null(value):
        return Constant(None)
    exact = _exact(value, kind, where)
    if exact is not None:
        return Compare(where, op, exact)
    common, scalar = _common(kind, value, where)
    return Compare(Column(where.path, common), op, scalar)


def compare_columns(left: Column, op: Op, right: Column) -> Predicate:
    """Return the condition that two columns stand in an order.

    Raises
    ------
    InvalidInputError
        Their types cannot be compared.
    """
    kinds = kind_of(left.field), kind_of(right.field)
    if kinds[0].equals(kinds[1]):
        return CompareColumns(left, op, right)
    common = _common_of_columns(*kinds)
    if common is None:
        raise InvalidInputError(
            f"filter: {left} is {kinds[0]} and {right} is {kinds[1]}, which are not compared here; cast one in Spark"
        )
    return CompareColumns(Column(left.path, common), op, Column(right.path, common))


def null_safe_equal(where: Column, value: Any) -> Predicate:
    """Return the condition that a column equals a literal, null equalling null; it is never null itself.

    Raises
    ------
    InvalidInputError
    """
    if _is_null(value):
        return IsNull(where)
    equal = compare(where, "==", value)
    # False, where the column is null and the comparison is.
    return And((IsNull(where, inverted=True), equal))


def is_in(where: Column, values: Sequence[Any]) -> Predicate:
    """Return the condition that a column has one of some values.

    Raises
    ------
    InvalidInputError
        One of them cannot be compared with the column.
    """
    kind = kind_of(where.field)
    given = [value for value in values if not _is_null(value)]
    has_null = len(given) < len(values)
    exact = [_exact(value, kind, where) for value in given]
    same = [one for one in exact if one is not None]
    others = [value for value, one in zip(given, exact, strict=True) if one is None]
    parts: list[Predicate] = []
    if same or not others:
        parts.append(In(where, pa.array(same, _plain(kind)), has_null))
    parts += [compare(where, "==", value) for value in others]
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def match(where: Column, how: str, text: Any) -> Predicate:
    """Return the condition that a column of strings or bytes starts with, ends with or contains a text, or is like a pattern.

    Parameters
    ----------
    where : Column
    how : str
        "starts", "ends", "contains" or "like".
    text : str, bytes or None

    Raises
    ------
    InvalidInputError
        The column is neither, or the pattern is none.
    """
    kind = kind_of(where.field)
    if text is None:
        return Constant(None)
    if _is_text(kind):
        fits = isinstance(text, str)
    else:
        fits = isinstance(text, bytes) and how != "like" and _is_bytes(kind)
    if not fits:
        raise InvalidInputError(f"filter on {str(where)!r}: {kind} is not matched with {text!r}")
    if how == "like":
        return like(where, text)
    if how not in ("starts", "ends", "contains"):
        raise InvalidInputError(f"filter on {str(where)!r}: there is no way {how!r} to match")
    return Match(where, how, text)  # type: ignore[arg-type]


def like(where: Column, pattern: str, escape: str = "\\") -> Predicate:
    """Return the condition that a column of strings is ``LIKE`` a pattern; see `like_regex`.

    Raises
    ------
    InvalidInputError
        The pattern is none.
    """
    try:
        how, text = like_regex(pattern, escape)
    except ValueError as error:
        raise InvalidInputError(f"filter on {str(where)!r}: {error}") from None
    return Match(where, how, text)


def known(predicate: Predicate) -> Predicate:
    """Return what is true where a predicate is, and false elsewhere, null included."""
    return Known(predicate)


def is_text(where: Column) -> bool:
    """Tell whether a column has strings."""
    return _is_text(kind_of(where.field))


def kind_of(field: Field) -> pa.DataType:
    """Return the type that a field's values are compared in: that of dictionaries' values, without extension types."""
    kind = field.arrow_field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pat.is_dictionary(kind) else kind


def _exact(value: Any, kind: pa.DataType, where: Column) -> pa.Scalar | None:
    """Return a literal as a scalar of the column's type; None if that has not exactly this value."""
    if pat.is_nested(kind) or pat.is_null(kind):
        raise InvalidInputError(f"filter on {str(where)!r}: {kind} cannot be compared")
    number = value.as_py() if isinstance(value, pa.Scalar) else value
    if pat.is_float16(kind):
        kind = pa.float32()
    if not _same_clock(number, kind):
        raise _not_compared(where, kind, value)
    if isinstance(number, bool) != pat.is_boolean(kind):
        raise _not_compared(where, kind, value)
    if isinstance(number, float) and not pat.is_floating(kind):
        if not _is_number(kind):
            raise _not_compared(where, kind, value)
        # Spark compares as doubles, for which great integers, and decimals, are not what they are.
        if not (abs(number) < _EXACT_DOUBLE and number.is_integer() and pat.is_integer(kind)):
            return None
        value = int(number)
    if isinstance(number, Decimal) and is_too_long(number):
        raise _not_compared(where, kind, value)
    if isinstance(number, Decimal | int) and pat.is_floating(kind):
        try:
            as_float = float(number)
        except OverflowError:
            return None
        if Decimal(as_float) != Decimal(number):
            return None
        value = as_float
    try:
        scalar = to_scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        if isinstance(number, int | float | Decimal) and _is_number(kind):
            return None
        raise _not_compared(where, kind, value) from None
    if isinstance(number, float) and scalar.as_py() != number and not is_nan(scalar):
        return None
    return scalar


def _common(kind: pa.DataType, value: Any, where: Column) -> tuple[pa.DataType, pa.Scalar]:
    number = value.as_py() if isinstance(value, pa.Scalar) else value
    if isinstance(number, float) or pat.is_floating(kind):
        try:
            return pa.float64(), pa.scalar(float(number), pa.float64())
        except OverflowError:
            raise _not_compared(where, kind, value) from None
    narrow = pat.is_integer(kind) and not pat.is_uint64(kind)
    if narrow and isinstance(number, int) and number in _INT64:
        return pa.int64(), pa.scalar(number, pa.int64())
    try:
        literal = pa.scalar(Decimal(number)).type
        common = _decimal_for(_decimal_of(kind), (literal.precision, literal.scale))
        return common, pa.scalar(Decimal(number), common)
    except (pa.ArrowException, ValueError, TypeError):
        # Infinity and NaN are Decimals, too.
        raise _not_compared(where, kind, value) from None


def _common_of_columns(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if not (_is_number(left) and _is_number(right)):
        if _is_text(left) and _is_text(right):
            return pa.large_string()
        if _is_bytes(left) and _is_bytes(right):
            return pa.large_binary()
        return None
    if pat.is_floating(left) or pat.is_floating(right):
        small = all(pat.is_floating(one) and one.bit_width <= 32 for one in (left, right))
        return pa.float32() if small else pa.float64()
    if pat.is_integer(left) and pat.is_integer(right) and pa.uint64() not in (left, right):
        return pa.int64()
    try:
        return _decimal_for(_decimal_of(left), _decimal_of(right))
    except ValueError:
        return None


def _decimal_of(kind: pa.DataType) -> tuple[int, int]:
    return (kind.precision, kind.scale) if pat.is_decimal(kind) else (20, 0)


def _decimal_for(one: tuple[int, int], other: tuple[int, int]) -> pa.DataType:
    scale = max(one[1], other[1])
    digits = max(one[0] - one[1], other[0] - other[1]) + scale
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)


def _same_clock(value: Any, kind: pa.DataType) -> bool:
    """Tell whether a value that has to do with time can be one of a type, without a zone that only the session knows."""
    if isinstance(value, datetime.datetime):
        return bool(pat.is_timestamp(kind)) and (value.tzinfo is None) == (kind.tz is None)
    return not isinstance(value, datetime.date) or bool(pat.is_date(kind))


def _not_compared(where: Column, kind: pa.DataType, value: Any) -> InvalidInputError:
    shown = value.as_py() if isinstance(value, pa.Scalar) else value
    return InvalidInputError(
        f"filter on {str(where)!r}: {kind} is not compared with {shown!r}; write a literal of the column's type"
    )


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, pa.Scalar) and not value.is_valid)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.float32() if pat.is_float16(kind) else kind


def _is_number(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_fixed_size_binary(kind))

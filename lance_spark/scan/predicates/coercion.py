"""Conditions from columns and literals of any type, compared as Spark compares them.

`common_types` says in which type both sides are compared. A literal is cast to it (`casts`); instead of the column the
comparison is turned into one of the column's own values (`bounds`), so that no row is cast and statistics can be asked. Two columns
are cast both. What Spark would answer by casting each row of strings, or by clocks of a zone that go back, is refused.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Field, Schema
from lance_spark.scan.predicates.cast_bounds import bounded, order_of, places
from lance_spark.scan.predicates.common_types import (
    NoCommonTypeError,
    comparison_type,
    decimal_for,
    list_type,
)
from lance_spark.scan.predicates.comparison import Op, like_regex
from lance_spark.scan.predicates.literal_casts import CastError, cast
from lance_spark.scan.predicates.sql_settings import DEFAULTS, SqlSettings
from lance_spark.scan.predicates.tree import (
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
from lance_spark.scan.predicates.typed_values import (
    DURATION,
    INSTANT,
    TIME,
    Typed,
    is_bytes,
    is_datetime,
    is_number,
    is_text,
    shown_type,
    type_name,
)

_INT64 = range(-(1 << 63), 1 << 63)
_ORDERED: tuple[Op, ...] = ("<", "<=", ">", ">=")
#: What the order of equal values is where a literal is left of its column.
FLIPPED: dict[Op, Op] = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def column(schema: Schema, path: Sequence[str], exact: bool | None = None) -> Column:
    """Return the column of a path.

    Parameters
    ----------
    schema : Schema
        Of the table.
    path : sequence of str
        Names from the top down.
    exact : bool, optional
        Whether the case of letters counts. If not given, a column of the same case comes before
        others.

    Raises
    ------
    InvalidInputError
        There is no such column, or more than one; or it is inside of a list or a map, or a blob.
    """
    found: list[Field] = []
    fields: Sequence[Field] = schema.fields
    for depth, name in enumerate(path):
        if found and not pat.is_struct(found[-1].arrow_field.type):
            raise InvalidInputError(
                f"filter: column {'.'.join(path[:depth])} is not a struct and has no {name!r} in it"
            )
        found.append(_named(name, fields, path, exact))
        fields = found[-1].children
    if found[-1].is_blob:
        raise InvalidInputError(f"filter: column {'.'.join(path)} is a blob")
    return Column(tuple(found))


def _named(name: str, fields: Sequence[Field], path: Sequence[str], exact: bool | None) -> Field:
    if exact is not False:
        for field in fields:
            if field.name == name:
                return field
    alike = [] if exact else [field for field in fields if field.name.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    names = ", ".join(field.name for field in (alike or fields))
    if alike:
        raise InvalidInputError(
            f"filter: column {'.'.join(path)} is ambiguous: there are {names}, which differ only in "
            "the case of letters; with spark.sql.caseSensitive=true each is a column of its own"
        )
    hint = ""
    if len(path) > 1 and any(field.name.lower() == ".".join(path).lower() for field in fields):
        hint = f"; a name with a dot is written in backticks, as `{'.'.join(path)}`"
    raise InvalidInputError(f"filter: there is no column {'.'.join(path)}; there are {names}{hint}")


def compare(where: Column, op: Op, value: Any, settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the condition that a column stands in an order to a literal.

    Parameters
    ----------
    where : Column
    op : str
    value : Typed, object or pa.Scalar
        A literal, or a value whose type `Typed.of` says. Null makes a condition that is null for
        all rows.
    settings : SqlSettings, optional

    Raises
    ------
    InvalidInputError
        The two cannot be compared, or not here.
    """
    literal, shown = _typed(where, value), type_of(where)
    if literal.value is None:
        # Spark refuses a null of a type that is not compared.
        _common(where, shown, literal, settings)
        return Constant(None)
    if (
        literal.written
        and op in _ORDERED
        and pat.is_integer(shown)
        and pat.is_decimal(literal.dtype)
    ):
        return _compare_integers(where, shown, op, literal.value, settings)
    return _compare_as(
        where, shown, op, literal, _common(where, shown, literal, settings), settings
    )


def _compare_integers(
    where: Column, shown: pa.DataType, op: Op, value: Decimal, settings: SqlSettings
) -> Predicate:
    """Return the order of integers to a decimal that is a literal, which Spark rounds to an integer."""
    unsigned = pat.is_uint64(kind_of(where.field))
    above = value > _INT64.stop - 1
    # Spark answers this before it looks at rows, so that null is no exception.
    holds = above == (op in ("<", "<="))
    if value < _INT64.start or value > (_INT64.stop << unsigned) - 1:
        return Constant(holds)
    whole = math.floor(value) if op in (">", "<=") else math.ceil(value)
    literal = Typed(whole, pa.int64())
    compared = _compare_as(where, shown, op, literal, pa.int64(), settings)
    if not above:
        return compared
    # Spark has no values of uint64 past those of int64; they are compared all the same.
    if holds:
        return Or((IsNull(where), compared))
    return And((IsNull(where, inverted=True), compared))


def compare_columns(
    left: Column, op: Op, right: Column, settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that two columns stand in an order.

    Raises
    ------
    InvalidInputError
        Their types cannot be compared.
    """
    one, other = type_of(left), type_of(right)
    try:
        common = comparison_type(one, other, settings)
    except NoCommonTypeError as error:
        raise InvalidInputError(f"filter on {str(left)!r} and {str(right)!r}: {error}") from None
    return _compare_columns_as(left, op, right, common)


def null_safe_equal(where: Column, value: Any, settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the condition that a column equals a literal, null equalling null; it is never null itself.

    Raises
    ------
    InvalidInputError
    """
    literal = _typed(where, value)
    if literal.value is None:
        if not pat.is_null(literal.dtype):
            _common(where, type_of(where), literal, settings)
        return IsNull(where)
    equal = compare(where, "==", literal, settings)
    # False, where the column is null and the comparison is.
    return And((IsNull(where, inverted=True), equal))


def null_safe_equal_columns(
    left: Column, right: Column, settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that two columns are equal, or both null; it is never null itself.

    Raises
    ------
    InvalidInputError
    """
    equal = compare_columns(left, "==", right, settings)
    valid = And((IsNull(left, inverted=True), IsNull(right, inverted=True), equal))
    return Or((And((IsNull(left), IsNull(right))), valid))


def is_in(where: Column, values: Sequence[Any], settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the condition that a column has one of some values.

    Parameters
    ----------
    where : Column
    values : sequence of Typed, Column, object or pa.Scalar
        All of them, and the column, are compared in one type.
    settings : SqlSettings, optional

    Raises
    ------
    InvalidInputError
        One of them cannot be compared with the column.
    """
    shown = type_of(where)
    given = [one if isinstance(one, Column) else _typed(where, one) for one in values]
    types = [type_of(one) if isinstance(one, Column) else one.dtype for one in given]
    try:
        common = list_type([shown, *types], settings)
    except NoCommonTypeError as error:
        raise InvalidInputError(f"filter on {str(where)!r}: {error}") from None
    parts: list[Predicate] = [
        _compare_columns_as(where, "==", one, common) for one in given if isinstance(one, Column)
    ]
    literals = [one for one in given if isinstance(one, Typed)]
    if literals:
        parts = [*_in_parts(where, shown, literals, common, settings), *parts]
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
    if is_text(kind):
        fits = isinstance(text, str)
    else:
        fits = isinstance(text, bytes) and how != "like" and is_bytes(kind)
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


def kind_of(field: Field) -> pa.DataType:
    """Return the type that a field's values are compared in: that of dictionaries' values, without extension types."""
    kind = field.arrow_field.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pat.is_dictionary(kind) else kind


def _typed(where: Column, value: Any) -> Typed:
    try:
        return Typed.of(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"filter on {str(where)!r}: {error}") from None


def type_of(where: Column) -> pa.DataType:
    """Return the type that Spark shows a column as, or that it is cast to."""
    shown = shown_type(where.kind or where.field.arrow_field.type)
    if shown is None or pat.is_null(shown):
        raise InvalidInputError(
            f"filter on {str(where)!r}: values of type {where.field.arrow_field.type} are not "
            "compared here; compare their children, or leave it to DataFrame.where"
        )
    return shown


def _common(
    where: Column, shown: pa.DataType, literal: Typed, settings: SqlSettings
) -> pa.DataType:
    try:
        return comparison_type(shown, literal, settings)
    except NoCommonTypeError as error:
        raise _not_compared(where, literal, str(error)) from None


def _compare_as(
    where: Column,
    shown: pa.DataType,
    op: Op,
    literal: Typed,
    common: pa.DataType,
    settings: SqlSettings,
) -> Predicate:
    value = _cast(where, shown, literal, common, settings)
    plain = Column(where.path)
    own, order = type_of(plain), order_of(_plain(kind_of(where.field)))
    if order is None:
        scalar = _own_scalar(plain, value)
        return Compare(
            *((plain, op, scalar) if scalar is not None else _as_bytes(plain, op, value))
        )
    try:
        return bounded(plain, order, own, op, value, settings)
    except (ValueError, OverflowError) as error:
        raise _not_compared(where, literal, str(error)) from None


def _in_parts(
    where: Column,
    shown: pa.DataType,
    literals: Sequence[Typed],
    common: pa.DataType,
    settings: SqlSettings,
) -> list[Predicate]:
    """Return the set of values that equal literals, and ranges of those that a cast takes to one."""
    plain, kind = Column(where.path), _plain(kind_of(where.field))
    given = [one for one in literals if one.value is not None]
    own, order = type_of(plain), order_of(kind)
    same: list[pa.Scalar] = []
    ranges: list[Predicate] = []
    for literal in given:
        value = _cast(where, shown, literal, common, settings)
        if order is None:
            scalar = _own_scalar(plain, value)
            # Bytes of another length equal none.
            same += [] if scalar is None else [scalar]
            continue
        try:
            first, after = places(order, own, value, settings)
        except (ValueError, OverflowError) as error:
            raise _not_compared(where, literal, str(error)) from None
        if after == first + 1:
            same.append(order.scalar(first))
        elif after > first:
            ranges.append(bounded(plain, order, own, "==", value, settings))
    parts: list[Predicate] = [In(plain, pa.array(same, kind), len(given) < len(literals))]
    return [*parts, *ranges]


def _cast(
    where: Column,
    shown: pa.DataType,
    literal: Typed,
    common: pa.DataType,
    settings: SqlSettings,
) -> Typed:
    if is_text(shown) and not is_text(common):
        raise _not_compared(
            where, literal, f"Spark casts each string to {type_name(common)}; write a string"
        )
    if not literal.dtype.equals(common) and pat.is_decimal256(common):
        # Spark has no such column: the literal is compared as it is.
        if not isinstance(literal.value, int | Decimal):
            raise _not_compared(where, literal, "write a decimal")
        return Typed(literal.value, common)
    try:
        return cast(literal, common, settings)
    except CastError as error:
        raise _not_compared(where, literal, str(error)) from None


def _own_scalar(where: Column, literal: Typed) -> pa.Scalar | None:
    """Return strings, bytes and truth values in the column's type; None for bytes of another length."""
    kind = kind_of(where.field)
    if pat.is_fixed_size_binary(kind) and len(literal.value) != kind.byte_width:
        return None
    try:
        return pa.scalar(literal.value, kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _not_compared(where, literal, str(error)) from None


def _as_bytes(where: Column, op: Op, literal: Typed) -> tuple[Column, Op, pa.Scalar]:
    return Column(where.path, pa.binary()), op, pa.scalar(literal.value, pa.binary())


def _compare_columns_as(left: Column, op: Op, right: Column, common: pa.DataType) -> Predicate:
    kinds = kind_of(left.field), kind_of(right.field)
    if kinds[0].equals(kinds[1]) and shown_type(kinds[0]) == common:
        return CompareColumns(Column(left.path), op, Column(right.path))
    both = [(type_of(one), kind) for one, kind in zip((left, right), kinds, strict=True)]
    kind = _column_type(both, common)
    if kind is None:
        raise InvalidInputError(
            f"filter: {left} is {kinds[0]} and {right} is {kinds[1]}, which are not compared here; "
            "leave it to DataFrame.where"
        )
    return CompareColumns(Column(left.path, kind), op, Column(right.path, kind))


def _column_type(
    columns: Sequence[tuple[pa.DataType, pa.DataType]], common: pa.DataType
) -> pa.DataType | None:
    """Return the type that columns are cast to so that they compare as in a common type; None if there is none."""
    shown = [one for one, _ in columns]
    if is_text(common):
        return pa.large_string() if all(map(is_text, shown)) else None
    if is_bytes(common):
        return pa.large_binary() if all(map(is_bytes, shown)) else None
    if pat.is_timestamp(common):
        if not all(is_datetime(one) for one in shown):
            return None
        if common.equals(INSTANT) and any(not one.equals(INSTANT) for one in shown):
            return None
        units = [kind.unit for _, kind in columns if pat.is_timestamp(kind)]
        return pa.timestamp("ns" if "ns" in units else "us", common.tz)
    if common in (TIME, DURATION):
        if not all(one.equals(common) for one in shown):
            return None
        finest = any(kind.unit == "ns" for _, kind in columns)
        if not finest:
            return common
        return pa.time64("ns") if common.equals(TIME) else pa.duration("ns")
    if not all(is_number(one) for one in shown):
        return common if all(one.equals(common) for one in shown) else None
    if pat.is_integer(common):
        # Spark has no type for all values of uint64.
        wide = any(pat.is_uint64(kind) for _, kind in columns)
        return pa.decimal128(20, 0) if wide else common
    if pat.is_decimal(common):
        decimals = [decimal_for(one) if pat.is_integer(one) else one for one in shown]
        digits = common.precision - common.scale
        if any(one.scale > common.scale or one.precision - one.scale > digits for one in decimals):
            return None
    return common


def _not_compared(where: Column, literal: Typed, why: str) -> InvalidInputError:
    value = literal.value
    if pat.is_temporal(literal.dtype):
        value = _shown_time(value, literal.dtype)
    elif isinstance(value, Decimal | datetime.date):
        value = str(value)
    text = value if isinstance(value, str) and not is_text(literal.dtype) else repr(value)
    text = text if len(text) <= 100 else f"{text[:100]}..."
    return InvalidInputError(
        f"filter on {str(where)!r}: {kind_of(where.field)} is not compared with {text}: {why}"
    )


def _shown_time(value: int, dtype: pa.DataType) -> str:
    try:
        return str(pa.scalar(value, dtype))
    except (OverflowError, ValueError):
        # The dates of Python end with the year 9999.
        return f"{value} {'days' if pat.is_date(dtype) else 'microseconds'} since 1970"


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.float32() if pat.is_float16(kind) else kind

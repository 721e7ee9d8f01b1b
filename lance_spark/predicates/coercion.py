"""Coercion: predicates on columns and literals of any types, with Spark's rules for comparisons.

`common_types` chooses the type in which both sides are compared. A literal is cast to it
(`literal_casts`). The column is not cast: the comparison is turned into bounds on the column's own
values (`cast_bounds`), so that statistics apply. Two columns are both cast. Comparisons for which
Spark would cast each string of a column, or which depend on clocks that are put back, are refused.
"""

from __future__ import annotations

import datetime
import itertools
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import SPARK_TYPE
from lance_spark.predicates import times
from lance_spark.predicates.columns import ColumnMatch, Compare, CompareColumns, In, IsNull
from lance_spark.predicates.comparison import Op, kernel_type, like_regex
from lance_spark.predicates.sql_settings import DEFAULTS, SqlSettings
from lance_spark.predicates.tree import And, Column, Constant, Or, Predicate
from lance_spark.predicates.typed_literals import (
    CLOCK,
    DURATION,
    INSTANT,
    MOST_DIGITS,
    TIME,
    CastError,
    Typed,
    cast,
    decimal_of,
    half_up,
    is_bytes,
    is_datetime,
    is_number,
    is_spark_decimal,
    is_text,
    shown_type,
    to_float32,
    to_float64,
    type_name,
)

# --------------------------------------------------------------------------------------------------
# The type in which Spark compares values of two or more types.
#
# The rules are from AnsiTypeCoercion, TypeCoercion and DecimalPrecisionTypeCoercion of Spark 4:
#
# | one side | other side | compared as | without ANSI mode |
# | --- | --- | --- | --- |
# | a type | the same, or null | that type | |
# | integer | wider integer | the wider type | |
# | integer, decimal | decimal | a decimal with the digits of both | |
# | integer | float | double | float |
# | integer | double | double | |
# | float | double | double | |
# | decimal | float, double | double | |
# | string | integer | bigint | that integer type |
# | string | float | double | float |
# | string | double | double | |
# | string | decimal | double | the decimal, if its scale is 0 |
# | string | boolean, binary, date, timestamp, timestamp_ntz, time | that type | |
# | date | timestamp, timestamp_ntz | that timestamp | |
# | timestamp | timestamp_ntz | timestamp | |
#
# An integer literal beside a decimal has only the digits of its value. A decimal that would need
# more than 38 digits keeps the digits before the point. Other pairs have no common type. The values
# of an ``IN`` have the common type of all, from left to right.

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


# --------------------------------------------------------------------------------------------------
# Bounds on a column that replace a comparison of the cast column.
#
# If a cast keeps the order of values, ``cast(column) < value`` holds for the values of the column
# below a bound: the least value whose cast is not below. To find it by bisection, the values of a
# type are numbered in their order, without NaN, which comes after all other values. Page statistics
# and zone maps have bounds of uncast values, so that they apply to the result.

_DAY = 86_400_000_000
#: Ticks in a second of the units of timestamps, times of day and intervals.
_TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Order(ABC):
    """The values of a type, numbered in their order. An *ordinal* is the number of a value.

    - `dtype`: Of the scalars: the type of the values of a `Column`.
    - `low`, `high`: The first and the last ordinal.
    """

    def __init__(self, dtype: pa.DataType, low: int, high: int) -> None:
        self.dtype, self.low, self.high = dtype, low, high

    @abstractmethod
    def number(self, ordinal: int) -> Any:
        """Return the value at an ordinal: a number; days of dates, microseconds of times."""

    @abstractmethod
    def scalar(self, ordinal: int) -> pa.Scalar:
        """Return the value at an ordinal as a scalar of Arrow."""

    def ordinals(self, value: Any) -> tuple[int, int]:
        """Return the first ordinal that is not below a value, and the first ordinal above it."""
        first = self.first(lambda ordinal: self.number(ordinal) >= value)
        return first, self.first(lambda ordinal: self.number(ordinal) > value)

    def first(self, holds: Callable[[int], bool]) -> int:
        """Return the first ordinal from which a condition holds; `high` + 1 if it never holds."""
        return times.first_where(self.low, self.high + 1, holds)


class _Steps(Order):
    """Integers, decimals, dates, times and intervals: each value is a number of steps."""

    def __init__(self, dtype: pa.DataType, low: int, high: int, step: Fraction) -> None:
        super().__init__(dtype, low, high)
        self._step = step

    def number(self, ordinal: int) -> Fraction:
        return ordinal * self._step

    def ordinals(self, value: Any) -> tuple[int, int]:
        if self._step == 1 and isinstance(value, int):
            return self._within(value), self._within(value + 1)
        steps = Fraction(value) / self._step
        first, after = math.ceil(steps), math.floor(steps) + 1
        return self._within(first), self._within(after)

    def _within(self, ordinal: int) -> int:
        return min(max(ordinal, self.low), self.high + 1)

    def scalar(self, ordinal: int) -> pa.Scalar:
        if pat.is_decimal(self.dtype):
            return pa.scalar(decimal_of(ordinal, self.dtype.scale), self.dtype)
        return pa.scalar(ordinal, self.dtype)


class _Floats(Order):
    """Floats of 32 or 64 bits. Bits of positive floats are ordered. Both zeros share an ordinal."""

    def __init__(self, dtype: pa.DataType) -> None:
        single = pat.is_float32(dtype)
        self._codes = ("<f", "<I") if single else ("<d", "<Q")
        last = 0x7F800000 if single else 0x7FF0000000000000
        super().__init__(dtype, -last, last)

    def number(self, ordinal: int) -> float:
        size = float(struct.unpack(self._codes[0], struct.pack(self._codes[1], abs(ordinal)))[0])
        return -size if ordinal < 0 else size

    def ordinals(self, value: Any) -> tuple[int, int]:
        # The nearest float is on either side of the value.
        nearest = (to_float32 if self._codes[0] == "<f" else to_float64)(value)
        (bits,) = struct.unpack(self._codes[1], struct.pack(self._codes[0], abs(nearest)))
        ordinal = -bits if nearest < 0 else bits
        first = ordinal if nearest >= value else ordinal + 1
        return first, first + (nearest == value)

    def scalar(self, ordinal: int) -> pa.Scalar:
        return pa.scalar(self.number(ordinal) if ordinal <= self.high else math.nan, self.dtype)


def order_of(dtype: pa.DataType) -> Order | None:
    """Return the order of the values of a column; None for types other than numbers and times.

    - `dtype`: Type of the result of `Column.values`.
    """
    if pat.is_integer(dtype):
        signed = pat.is_signed_integer(dtype)
        size = 1 << dtype.bit_width - signed
        return _Steps(dtype, -size if signed else 0, size - 1, Fraction(1))
    if pat.is_float32(dtype) or pat.is_float64(dtype):
        return _Floats(dtype)
    if pat.is_decimal(dtype):
        last = 10**dtype.precision - 1
        return _Steps(dtype, -last, last, Fraction(10) ** -dtype.scale)
    if pat.is_date32(dtype):
        return _Steps(dtype, -(1 << 31), (1 << 31) - 1, Fraction(1))
    if pat.is_date64(dtype):
        return _Steps(dtype, -(1 << 63), (1 << 63) - 1, Fraction(1, _DAY // 1000))
    if pat.is_timestamp(dtype) or pat.is_duration(dtype) or pat.is_time(dtype):
        size = 1 << dtype.bit_width - 1
        return _Steps(dtype, -size, size - 1, Fraction(1_000_000, _TICKS[dtype.unit]))
    return None


def bounded(
    column: Column, order: Order, shown: pa.DataType, op: Op, literal: Typed, settings: SqlSettings
) -> Predicate:
    """Return the comparison of a column, cast to a literal's type, with the literal.

    - `column`: Without a cast.
    - `order`: Of its values.
    - `shown`: The Spark type of the column.
    - `literal`: Not null; of the type in which both are compared.

    Raises ValueError, OverflowError: the cast does not keep the order.
    """
    return _compared(column, order, op, *ordinals(order, shown, literal, settings))


def ordinals(
    order: Order, shown: pa.DataType, literal: Typed, settings: SqlSettings
) -> tuple[int, int]:
    """Return the first ordinal whose cast value is not below a literal, and the first above it.

    Parameters and errors as for `bounded`.
    """
    common, value = literal.dtype, literal.value
    if isinstance(value, float) and math.isnan(value):
        # NaN comes after all other values. Only floats can be NaN.
        nan = order.high + 1
        return nan, nan + isinstance(order, _Floats)
    if pat.is_decimal(common):
        _check_digits(shown, common)
    if pat.is_floating(common) and not pat.is_floating(shown):
        return _rounded(order, to_float64 if pat.is_float64(common) else to_float32, value)
    if pat.is_decimal(common) and pat.is_decimal(shown) and common.scale < shown.scale:
        units = half_up(Fraction(value), common.scale)
        return _rounded(order, lambda number: half_up(number, common.scale), units)
    if pat.is_timestamp(common) and not common.equals(shown):
        if pat.is_date(shown):
            return _days(order, common, value, settings.time_zone)
        if shown.equals(CLOCK):
            first, after = (
                times.first_local(value, settings.time_zone, after=later) for later in (False, True)
            )
            return order.ordinals(first)[0], order.ordinals(after)[0]
    return order.ordinals(value)


def _check_digits(shown: pa.DataType, common: pa.DataType) -> None:
    dtype = decimal_for(shown) if pat.is_integer(shown) else shown
    if dtype.precision - dtype.scale > common.precision - common.scale:
        raise ValueError(f"they are compared as {type_name(common)}, which has too few digits")


def _rounded(order: Order, cast: Callable[[Any], Any], value: Any) -> tuple[int, int]:
    first = order.first(lambda ordinal: bool(cast(order.number(ordinal)) >= value))
    return first, order.first(lambda ordinal: bool(cast(order.number(ordinal)) > value))


def _days(order: Order, common: pa.DataType, value: int, zone: str | None) -> tuple[int, int]:
    if common.equals(INSTANT):
        day = times.to_local(value, zone) // _DAY
        is_start = times.start_of_day(day, zone) == value
    else:
        day, remainder = divmod(value, _DAY)
        is_start = not remainder
    first, after = day if is_start else day + 1, day + 1
    return order.ordinals(first)[0], order.ordinals(after)[0]


def _compared(column: Column, order: Order, op: Op, first: int, after: int) -> Predicate:
    """Return the comparison with a literal that equals the values `first` to `after` - 1."""
    if op in ("==", "!="):
        equal = _equal(column, order, first, after)
        return equal if op == "==" else equal.negated()
    ordinal = first if op in ("<", ">=") else after
    if isinstance(order, _Floats):
        # NaN has the ordinal after the last ordinal.
        if ordinal > order.high + 1:
            return Constant(op in ("<", "<="), column)
        below: Op = "<" if op in ("<", "<=") else ">="
        if op in ("<=", ">") and order.low < ordinal <= order.high + 1:
            return Compare(column, op, order.scalar(ordinal - 1))
        return Compare(column, below, order.scalar(ordinal))
    if ordinal <= order.low or ordinal > order.high:
        return Constant((op in ("<", "<=")) == (ordinal > order.high), column)
    if op in ("<=", ">"):
        return Compare(column, op, order.scalar(ordinal - 1))
    return Compare(column, op, order.scalar(ordinal))


def _equal(column: Column, order: Order, first: int, after: int) -> Predicate:
    if first >= after:
        return Constant(False, column)
    if after == first + 1:
        return Compare(column, "==", order.scalar(first))
    low = Compare(column, ">=", order.scalar(first))
    return And((low, Compare(column, "<=", order.scalar(after - 1))))


# --------------------------------------------------------------------------------------------------
# Coercion: predicates on columns and literals of any types, with Spark's rules for comparisons.

_INT64 = range(-(1 << 63), 1 << 63)
_ORDERED: tuple[Op, ...] = ("<", "<=", ">", ">=")


def column(
    schema: Schema, path: Sequence[str], exact: bool | None = None, *, takes_blobs: bool = False
) -> Column:
    """Find a column by its path.

    - `schema`: Of the table.
    - `path`: Names from the top-level column down.
    - `exact`: Whether the case of letters matters. If left out, an exact match comes before other
      matches.
    - `takes_blobs`: Whether the column may be a blob: only `IsNull` can test one.

    Raises InvalidInputError: the column is not found or ambiguous, is inside a list or map, or is a
    blob.
    """
    result: list[Field] = []
    fields: Sequence[Field] = schema.fields
    for depth, name in enumerate(path):
        if result and (result[-1].is_blob or not pat.is_struct(result[-1].arrow_field.type)):
            raise InvalidInputError(
                f"filter: column {'.'.join(path[:depth])} is not a struct and has no child {name!r}"
            )
        result.append(_named(name, fields, path, exact))
        fields = result[-1].children
    if result[-1].is_blob and not takes_blobs:
        raise InvalidInputError(
            f"filter: column {'.'.join(path)} is a blob, which a filter tests only by IS [NOT] "
            "NULL; compare the bytes of a read with blob_handling=all_binary"
        )
    return Column(tuple(result))


def check_compared_by_bytes(column: Column) -> None:
    """Refuse a column whose strings Spark does not compare by their bytes.

    Raises InvalidInputError: the strings have a collation, or the type char(n), whose values Spark
    pads.
    """
    dtype = column.field.metadata.get(SPARK_TYPE, b"").decode(errors="replace")
    if dtype.startswith("char(") or " collate " in dtype:
        raise InvalidInputError(
            f"filter: column {column} is {dtype}, which Spark does not compare by bytes; filter by "
            "DataFrame.where or by SQL"
        )


def _named(name: str, fields: Sequence[Field], path: Sequence[str], exact: bool | None) -> Field:
    if exact is not False:
        for field in fields:
            if field.name == name:
                return field
    matches = [] if exact else [field for field in fields if field.name.lower() == name.lower()]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(field.name for field in (matches or fields))
    if matches:
        raise InvalidInputError(
            f"filter: column {'.'.join(path)} is ambiguous: the names {names} differ only in the "
            "case of letters; set spark.sql.caseSensitive=true to distinguish them"
        )
    hint = ""
    if len(path) > 1 and any(field.name.lower() == ".".join(path).lower() for field in fields):
        hint = f"; write a name with a dot in backticks, as `{'.'.join(path)}`"
    raise InvalidInputError(
        f"filter: column {'.'.join(path)} not found; the columns are {names}{hint}"
    )


def compare(column: Column, op: Op, value: Any, settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the comparison of a column with a literal.

    - `value`: A literal, or a value that `Typed.of` accepts. The comparison with null is null for
      all rows.

    Raises InvalidInputError: Spark does not compare the types, or this package does not.
    """
    literal, shown = _typed(column, value), type_of(column)
    if literal.value is None:
        # Spark refuses also a null of a type that cannot be compared.
        _common(column, literal, settings)
        return Constant(None)
    is_decimal = literal.written and pat.is_decimal(literal.dtype)
    if is_decimal and op in _ORDERED and pat.is_integer(shown):
        return _compare_integers(column, op, literal.value, settings)
    return _compare_as(column, op, literal, _common(column, literal, settings), settings)


def _compare_integers(column: Column, op: Op, value: Decimal, settings: SqlSettings) -> Predicate:
    """Return the comparison of integers with a decimal literal, which Spark rounds first."""
    unsigned = pat.is_uint64(dtype_of(column.field))
    above = value > _INT64.stop - 1
    # Spark decides this while it plans, so that the result is the same for null.
    holds = above == (op in ("<", "<="))
    if value < _INT64.start or value > (_INT64.stop << unsigned) - 1:
        return Constant(holds)
    integer = math.floor(value) if op in (">", "<=") else math.ceil(value)
    literal = Typed(integer, pa.int64())
    compared = _compare_as(column, op, literal, pa.int64(), settings)
    if not above:
        return compared
    # A uint64 column can have values past int64, which Spark does not have.
    if holds:
        return Or((IsNull(column), compared))
    return And((IsNull(column, inverted=True), compared))


def compare_columns(
    left: Column, op: Op, right: Column, settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the comparison of two columns.

    Raises InvalidInputError: the types cannot be compared.
    """
    types = type_of(left), type_of(right)
    try:
        common = comparison_type(*types, settings)
    except NoCommonTypeError as error:
        raise InvalidInputError(f"filter on {str(left)!r} and {str(right)!r}: {error}") from None
    return _compare_columns_as(left, op, right, common)


def null_safe_equal(column: Column, value: Any, settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the condition that a column equals a literal, where null equals null. Never null.

    Raises InvalidInputError.
    """
    literal = _typed(column, value)
    if literal.value is None:
        if not pat.is_null(literal.dtype):
            _common(column, literal, settings)
        return IsNull(column)
    equal = compare(column, "==", literal, settings)
    # False if the column is null, where the comparison is null.
    return And((IsNull(column, inverted=True), equal))


def null_safe_equal_columns(
    left: Column, right: Column, settings: SqlSettings = DEFAULTS
) -> Predicate:
    """Return the condition that two columns are equal, or both null. Never null.

    Raises InvalidInputError.
    """
    equal = compare_columns(left, "==", right, settings)
    valid = And((IsNull(left, inverted=True), IsNull(right, inverted=True), equal))
    return Or((And((IsNull(left), IsNull(right))), valid))


def is_in(column: Column, values: Sequence[Any], settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the condition that a column equals one of some values.

    - `values`: The column and all values are compared in one type.

    Raises InvalidInputError: a value cannot be compared with the column.
    """
    shown = type_of(column)
    items = [item if isinstance(item, Column) else _typed(column, item) for item in values]
    types = [type_of(item) if isinstance(item, Column) else item.dtype for item in items]
    try:
        common = list_type([shown, *types], settings)
    except NoCommonTypeError as error:
        raise InvalidInputError(f"filter on {str(column)!r}: {error}") from None
    parts: list[Predicate] = [
        _compare_columns_as(column, "==", item, common)
        for item in items
        if isinstance(item, Column)
    ]
    literals = [item for item in items if isinstance(item, Typed)]
    if literals:
        parts = [*_in_parts(column, literals, common, settings), *parts]
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def match(column: Column, match_kind: str, text: Any) -> Predicate:
    """Return the condition that a column of strings or bytes matches a text or a pattern.

    - `match_kind`: "starts", "ends", "contains" or "like".

    Raises InvalidInputError: the column has another type, or the pattern is not valid.
    """
    dtype = dtype_of(column.field)
    if text is None:
        return Constant(None)
    if is_text(dtype):
        fits = isinstance(text, str)
    else:
        fits = isinstance(text, bytes) and match_kind != "like" and is_bytes(dtype)
    if not fits:
        raise InvalidInputError(
            f"filter on {str(column)!r}: {dtype} cannot be matched with {text!r}"
        )
    if match_kind == "like":
        return like(column, text)
    if match_kind not in ("starts", "ends", "contains"):
        raise InvalidInputError(
            f"filter on {str(column)!r}: a match must be one of starts, ends, contains, like, not "
            f"{match_kind!r}"
        )
    return ColumnMatch(column, match_kind, text)  # type: ignore[arg-type]


def like(column: Column, pattern: str, escape: str = "\\") -> Predicate:
    """Return the condition that a column of strings is ``LIKE`` a pattern; see `like_regex`.

    Raises InvalidInputError: the pattern is not valid.
    """
    try:
        match_kind, text = like_regex(pattern, escape)
    except ValueError as error:
        raise InvalidInputError(f"filter on {str(column)!r}: {error}") from None
    return ColumnMatch(column, match_kind, text)


def dtype_of(field: Field) -> pa.DataType:
    """Return the type of a field's values, without dictionary and extension type."""
    dtype = field.arrow_field.type
    if isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.storage_type
    return dtype.value_type if pat.is_dictionary(dtype) else dtype


def _typed(column: Column, value: Any) -> Typed:
    try:
        return Typed.of(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"filter on {str(column)!r}: {error}") from None


def type_of(column: Column) -> pa.DataType:
    """Return the type of a column in Spark, or the type that it is cast to."""
    shown = shown_type(column.cast_type or column.field.arrow_field.type)
    if shown is None or pat.is_null(shown):
        raise InvalidInputError(
            f"filter on {str(column)!r}: comparisons of {column.field.arrow_field.type} are not "
            "supported; compare its children, or leave it to DataFrame.where"
        )
    return shown


def _common(column: Column, literal: Typed, settings: SqlSettings) -> pa.DataType:
    shown = type_of(column)
    try:
        return comparison_type(shown, literal, settings)
    except NoCommonTypeError as error:
        raise _not_compared(column, literal, str(error)) from None


def _compare_as(
    column: Column, op: Op, literal: Typed, common: pa.DataType, settings: SqlSettings
) -> Predicate:
    value = _cast(column, literal, common, settings)
    uncast = Column(column.path)
    spark_type, order = type_of(uncast), order_of(kernel_type(dtype_of(column.field)))
    if order is None:
        scalar = _scalar_of_column(uncast, value)
        if scalar is not None:
            return Compare(uncast, op, scalar)
        return Compare(Column(column.path, pa.binary()), op, pa.scalar(value.value, pa.binary()))
    try:
        return bounded(uncast, order, spark_type, op, value, settings)
    except (ValueError, OverflowError) as error:
        raise _not_compared(column, literal, str(error)) from None


def _in_parts(
    column: Column, literals: Sequence[Typed], common: pa.DataType, settings: SqlSettings
) -> list[Predicate]:
    """Return an `In` for literals that one value equals, and ranges for literals that more values
    equal.

    Several values of a column can be equal to a literal after the cast to the common type.
    """
    uncast, dtype = Column(column.path), kernel_type(dtype_of(column.field))
    valid = [literal for literal in literals if literal.value is not None]
    spark_type, order = type_of(uncast), order_of(dtype)
    types = {dtype, common, *(literal.dtype for literal in valid)}
    if order is not None and all(map(pat.is_integer, types)):
        # A cast to a wider integer changes no value; other values equal none of the column.
        numbers = [item.value for item in valid if order.low <= item.value <= order.high]
        return [In(uncast, pa.array(numbers, dtype), len(valid) < len(literals))]
    values: list[pa.Scalar] = []
    ranges: list[Predicate] = []
    for literal in valid:
        value = _cast(column, literal, common, settings)
        if order is None:
            scalar = _scalar_of_column(uncast, value)
            # Bytes of another length do not equal any value.
            values += [] if scalar is None else [scalar]
            continue
        try:
            first, after = ordinals(order, spark_type, value, settings)
        except (ValueError, OverflowError) as error:
            raise _not_compared(column, literal, str(error)) from None
        if after == first + 1:
            values.append(order.scalar(first))
        elif after > first:
            ranges.append(bounded(uncast, order, spark_type, "==", value, settings))
    parts: list[Predicate] = [In(uncast, pa.array(values, dtype), len(valid) < len(literals))]
    return [*parts, *ranges]


def _cast(column: Column, literal: Typed, common: pa.DataType, settings: SqlSettings) -> Typed:
    if is_text(type_of(column)) and not is_text(common):
        raise _not_compared(
            column, literal, f"Spark casts each string to {type_name(common)}; write a string"
        )
    if not literal.dtype.equals(common) and pat.is_decimal256(common):
        # Spark does not have such a column. The literal is compared without a cast.
        if not isinstance(literal.value, int | Decimal):
            raise _not_compared(column, literal, "write a decimal")
        return Typed(literal.value, common)
    try:
        return cast(literal, common, settings)
    except CastError as error:
        raise _not_compared(column, literal, str(error)) from None


def _scalar_of_column(column: Column, literal: Typed) -> pa.Scalar | None:
    """Return a string, bytes or bool in the column's type; None for bytes of another length."""
    dtype = dtype_of(column.field)
    if pat.is_fixed_size_binary(dtype) and len(literal.value) != dtype.byte_width:
        return None
    try:
        return pa.scalar(literal.value, dtype)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _not_compared(column, literal, str(error)) from None


def _compare_columns_as(left: Column, op: Op, right: Column, common: pa.DataType) -> Predicate:
    dtypes = dtype_of(left.field), dtype_of(right.field)
    if dtypes[0].equals(dtypes[1]) and shown_type(dtypes[0]) == common:
        return CompareColumns(Column(left.path), op, Column(right.path))
    cast_type = _cast_type([type_of(left), type_of(right)], dtypes, common)
    if cast_type is None:
        raise InvalidInputError(
            f"filter: the comparison of {left}, which is {dtypes[0]}, with {right}, which is "
            f"{dtypes[1]}, is not supported; leave it to DataFrame.where"
        )
    return CompareColumns(Column(left.path, cast_type), op, Column(right.path, cast_type))


def _cast_type(
    spark_types: Sequence[pa.DataType], dtypes: Sequence[pa.DataType], common: pa.DataType
) -> pa.DataType | None:
    """Return a type for columns in which they compare as Spark compares them; None if not known.

    - `spark_types`: Types of the columns in Spark.
    - `dtypes`: Types of the stored values, which can be finer: nanoseconds, or uint64.
    - `common`: The type in which Spark compares them.
    """
    if is_text(common):
        return pa.large_string() if all(map(is_text, spark_types)) else None
    if is_bytes(common):
        return pa.large_binary() if all(map(is_bytes, spark_types)) else None
    if pat.is_timestamp(common):
        if not all(map(is_datetime, spark_types)):
            return None
        if common.equals(INSTANT) and any(not dtype.equals(INSTANT) for dtype in spark_types):
            return None
        units = [dtype.unit for dtype in dtypes if pat.is_timestamp(dtype)]
        return pa.timestamp("ns" if "ns" in units else "us", common.tz)
    if common in (TIME, DURATION):
        if not all(dtype.equals(common) for dtype in spark_types):
            return None
        if all(dtype.unit != "ns" for dtype in dtypes):
            return common
        return pa.time64("ns") if common.equals(TIME) else pa.duration("ns")
    if not all(map(is_number, spark_types)):
        return common if all(dtype.equals(common) for dtype in spark_types) else None
    if pat.is_integer(common):
        # Spark does not have a type for all values of uint64.
        return pa.decimal128(20, 0) if any(map(pat.is_uint64, dtypes)) else common
    if pat.is_decimal(common):
        decimals = [decimal_for(t) if pat.is_integer(t) else t for t in spark_types]
        digits = common.precision - common.scale
        if any(t.scale > common.scale or t.precision - t.scale > digits for t in decimals):
            return None
    return common


def _not_compared(column: Column, literal: Typed, reason: str) -> InvalidInputError:
    value = literal.value
    if pat.is_temporal(literal.dtype):
        value = _shown_time(value, literal.dtype)
    elif isinstance(value, Decimal | datetime.date):
        value = str(value)
    text = value if isinstance(value, str) and not is_text(literal.dtype) else repr(value)
    text = text if len(text) <= 100 else f"{text[:100]}..."
    return InvalidInputError(
        f"filter on {str(column)!r}: {dtype_of(column.field)} is not compared with {text}: {reason}"
    )


def _shown_time(value: int, dtype: pa.DataType) -> str:
    try:
        return str(pa.scalar(value, dtype))
    except (OverflowError, ValueError):
        # The dates of Python end with the year 9999.
        return f"{value} {'days' if pat.is_date(dtype) else 'microseconds'} since 1970"

"""Bounds on a column that replace a comparison of the cast column.

If a cast keeps the order of values, ``cast(column) < value`` holds for the values of the column
below a bound: the least value whose cast is not below. To find it by bisection, the values of a
type are numbered in their order, without NaN, which comes after all other values. Page statistics
and zone maps have bounds of uncast values, so that they apply to the result.
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates import times
from lance_spark.scan.predicates.column_predicates import Compare
from lance_spark.scan.predicates.common_types import decimal_for
from lance_spark.scan.predicates.comparison import Op
from lance_spark.scan.predicates.literal_casts import decimal_of, half_up, to_float32, to_float64
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.tree import And, Column, Constant, Predicate
from lance_spark.scan.predicates.typed_values import CLOCK, INSTANT, Typed, type_name

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

"""Arithmetic of decimals, as Spark computes it: by their unscaled values, which are integers.

The greatest value of a batch shows how its integers are computed. Most decimals have far fewer
digits than their type:

| integers | as |
| --- | --- |
| that fit 64 bits | int64 arrays of NumPy |
| of results that have at most 38 digits | decimals of Arrow, without digits after the point |
| of others, and those that are rounded | objects of Python, which have any number of digits |

A result with more digits than its type is null, or an error in ANSI mode. Spark rounds a result
half up if its type has fewer digits after the point than the result has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import (
    decimal_words,
    from_decimal_words,
    from_unscaled,
    unscaled_if_short,
)
from lance_spark.errors import EvaluationError
from lance_spark.predicates.comparison import column_at
from lance_spark.predicates.expressions.node import ColumnValue, Expression, Literal
from lance_spark.predicates.tree import Column
from lance_spark.predicates.typed_literals import MOST_DIGITS, type_name

#: One more than the greatest value of 64 bits.
_LONG = 1 << 63
_WORD = (1 << 64) - 1
#: Digits of a product.
_EXACT = Context(prec=2 * MOST_DIGITS)


class Integers(NamedTuple):
    """The unscaled values of decimals.

    - `values`: int64, objects of Python, or an array of decimals. Any value where a decimal is
      null. A single one may stand for all rows.
    - `null`: Where the decimals are null; None if nowhere.
    - `bound`: No value is farther from 0, but for those of nulls.
    """

    values: npt.NDArray[Any] | pa.Array
    null: npt.NDArray[np.bool_] | None
    bound: int

    @property
    def numbers(self) -> npt.NDArray[Any]:
        """The values as int64 or objects."""
        if not isinstance(self.values, pa.Array):
            return self.values
        words = decimal_words(self.values)
        high, low = words[:, 1].astype(object), words[:, 0].view(np.uint64).astype(object)
        numbers: npt.NDArray[Any] = high << 64 | low
        return numbers


def integers_of(array: pa.Array) -> Integers:
    """Return the unscaled values of an array of decimals, of unscaled values, or of integers."""
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    longs = unscaled_if_short(array) if pat.is_decimal(array.type) else array.cast(pa.int64())
    if longs is not None:
        return _longs(longs, null)
    whole = _of_digits(array, MOST_DIGITS)
    return Integers(whole, null, _bound(whole))


def _of_digits(array: pa.Array, digits: int) -> pa.Array:
    """Return decimals as if they had so many digits, and none of them after the point."""
    dtype = pa.decimal128(digits, 0)
    return pa.Array.from_buffers(dtype, len(array), array.buffers(), offset=array.offset)


def _bound(array: pa.Array) -> int:
    import pyarrow.compute as pc

    ends = pc.min_max(array).as_py()
    return 0 if ends["min"] is None else int(max(abs(ends["min"]), abs(ends["max"])))


def _longs(array: pa.Array, null: npt.NDArray[np.bool_] | None) -> Integers:
    data = np.frombuffer(array.buffers()[1], np.int64, array.offset + len(array))
    return Integers(data[array.offset :], null, _bound(array))


def array_of(integers: Integers, dtype: pa.DataType, num_rows: int) -> pa.Array:
    """Return an array of unscaled values: int64, or decimals of a type if they do not all fit."""
    null = integers.null
    if isinstance(integers.values, pa.Array) and len(integers.values) == num_rows:
        return from_decimal_words(decimal_words(integers.values), dtype, null)
    values = integers.numbers
    if values.dtype == np.int64:
        whole = np.broadcast_to(values, num_rows)
        return pa.array(whole, pa.int64(), mask=null)
    words = np.empty((num_rows, 2), np.int64)
    words[:, 0] = (values & _WORD).astype(np.uint64).view(np.int64)
    words[:, 1] = (values >> 64).astype(np.int64)
    return from_decimal_words(words, dtype, null)


@dataclass(frozen=True, slots=True)
class DecimalResult(Expression):
    """The result of ``+``, ``-`` or ``*``, or of a cast of a number to a decimal.

    - `op`: The operator, or "cast".
    - `args`: Decimals, or integers.
    - `result`: Of any scale; a result of more digits after the point is rounded.
    - `fails`: Whether a result of too many digits is an error.
    """

    op: str
    args: tuple[Expression, ...]
    result: pa.DataType
    fails: bool

    @property
    def dtype(self) -> pa.DataType:
        """A decimal."""
        return self.result

    def columns(self) -> Iterator[Column]:
        for arg in self.args:
            yield from arg.columns()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        array = self.compact(batch)
        return array if pat.is_decimal(array.type) else from_unscaled(array, self.result)

    def compact(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values of a batch as unscaled ones, int64, if they fit; see `array_of`."""
        if not batch.num_rows:
            return pa.array([], pa.int64())
        return array_of(self.integers(batch), self.result, batch.num_rows)

    def integers(self, batch: pa.RecordBatch) -> Integers:
        """Return the unscaled values of a batch."""
        args = [_integers(arg, batch) for arg in self.args]
        scales = [_scale(arg.dtype) for arg in self.args]
        scale = sum(scales) if self.op == "*" else max(scales)
        if self.op != "*":
            args = [_times(arg, 10 ** (scale - own)) for arg, own in zip(args, scales, strict=True)]
        left, right = args[0], args[-1]
        values, bound = left.values, left.bound
        if len(args) > 1:
            bound = left.bound * right.bound if self.op == "*" else left.bound + right.bound
            values = _combined(self.op, left, right, bound)
        null = left.null if right.null is None else right.null
        if left.null is not None and right.null is not None:
            null = left.null | right.null
        return self._fitted(_rescaled(Integers(values, null, bound), self.result.scale - scale))

    def _fitted(self, result: Integers) -> Integers:
        """Return results of which those with too many digits are null."""
        limit = 10**self.result.precision
        if result.bound < limit:
            return _cleared(result)
        values, null = result.numbers, result.null
        outside = (values >= limit) | (values <= -limit)
        outside = np.asarray(outside, np.bool_) & (True if null is None else ~null)
        if outside.any():
            if self.fails:
                first = int(np.broadcast_to(values, outside.shape)[np.argmax(outside)])
                value = Decimal(first).scaleb(-self.result.scale, _EXACT)
                raise EvaluationError(
                    f"[NUMERIC_VALUE_OUT_OF_RANGE] {value} cannot be represented as "
                    f"{type_name(self.result)}; to get NULL instead, use try_add, try_subtract or "
                    "try_multiply, or set spark.sql.ansi.enabled to false"
                )
            null = outside if null is None else null | outside
        return _cleared(Integers(values, null, min(result.bound, limit - 1)))


@dataclass(frozen=True, slots=True)
class UnscaledValue(Expression):
    """The unscaled value of a decimal of at most 18 digits."""

    value: Expression

    @property
    def dtype(self) -> pa.DataType:
        """An integer of 64 bits."""
        return pa.int64()

    def columns(self) -> Iterator[Column]:
        yield from self.value.columns()

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        if not batch.num_rows:
            return pa.array([], pa.int64())
        return array_of(_integers(self.value, batch), self.value.dtype, batch.num_rows)


def _cleared(integers: Integers) -> Integers:
    """Return integers without the objects of nulls, which can have any number of digits."""
    values, null, bound = integers
    if null is None or isinstance(values, pa.Array) or values.dtype != object:
        return integers
    return Integers(np.where(null, 0, values), null, bound)


def _scale(dtype: pa.DataType) -> int:
    return int(dtype.scale) if pat.is_decimal(dtype) else 0


def _integers(value: Expression, batch: pa.RecordBatch) -> Integers:
    if isinstance(value, DecimalResult):
        return value.integers(batch)
    if isinstance(value, Literal) and value.typed.value is not None:
        number = value.typed.value
        if isinstance(number, Decimal):
            number = int(number.scaleb(_scale(value.dtype), _EXACT))
        values = np.array([number], np.int64 if abs(number) < _LONG else object)
        return Integers(values, None, abs(number))
    if isinstance(value, ColumnValue):
        stored = column_at(batch, [node.name for node in value.column.path])
        if pat.is_int64(stored.type):
            return integers_of(stored)
    return integers_of(value.evaluate(batch))


def _combined(op: str, left: Integers, right: Integers, bound: int) -> Any:
    """Return the results of an operator, of which none is farther from 0 than a bound."""
    import pyarrow.compute as pc

    if bound >= _LONG:
        digits = [len(str(side.bound)) for side in (left, right)]
        if op != "*":
            digits = [max(digits)] * 2
        if (sum(digits) if op == "*" else digits[0]) < MOST_DIGITS:
            kernel = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[op]
            a, b = (_decimals(side, own) for side, own in zip((left, right), digits, strict=True))
            if len(a) != len(b):
                a, b = (side[0] if len(side) == 1 else side for side in (a, b))
            return kernel(a, b)
    x, y = (_sized(side, bound) for side in (left, right))
    return x * y if op == "*" else x + y if op == "+" else x - y


def _decimals(integers: Integers, digits: int) -> pa.Array:
    values = integers.values
    if isinstance(values, pa.Array):
        return _of_digits(values, digits)
    if values.dtype == object:
        return pa.array([Decimal(value) for value in values], pa.decimal128(digits, 0))
    return from_unscaled(pa.array(values), pa.decimal128(digits, 0))


def _sized(integers: Integers, bound: int) -> npt.NDArray[Any]:
    """Return integers whose results fit if none is farther from 0 than a bound."""
    numbers = integers.numbers
    return numbers if bound < _LONG else numbers.astype(object)


def _times(integers: Integers, factor: int) -> Integers:
    if factor == 1:
        return integers
    values = np.array([factor], np.int64 if factor < _LONG else object)
    bound = integers.bound * factor
    product = _combined("*", integers, Integers(values, None, factor), bound)
    return Integers(product, integers.null, bound)


def _rescaled(integers: Integers, digits: int) -> Integers:
    """Return values with more or fewer digits after the point; half of a digit is rounded up."""
    if digits >= 0:
        return _times(integers, 10**digits)
    divisor = 10**-digits
    half = divisor // 2
    values = _sized(integers, integers.bound + divisor)
    rounded = (abs(values) + half) // divisor
    rounded = np.where(values < 0, -rounded, rounded)
    return Integers(rounded, integers.null, (integers.bound + half) // divisor)

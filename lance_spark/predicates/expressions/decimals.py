"""Arithmetic of decimals, as Spark computes it: by their unscaled values, which are integers.

Integers of a batch that fit 64 bits are int64 arrays of NumPy. All others are objects of Python,
which have any number of digits. The greatest value of a batch shows which: most decimals have far
fewer digits than their type.

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
    is_short_decimal,
    unscaled,
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

    - `values`: int64, or objects of Python. Any value where a decimal is null. A single one may
      stand for all rows.
    - `null`: Where the decimals are null; None if nowhere.
    - `bound`: No value is farther from 0, but for those of nulls.
    """

    values: npt.NDArray[Any]
    null: npt.NDArray[np.bool_] | None
    bound: int


def integers_of(array: pa.Array) -> Integers:
    """Return the unscaled values of an array of decimals, of unscaled values, or of integers."""
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if not pat.is_decimal(array.type):
        return _longs(array.cast(pa.int64()), null)
    if is_short_decimal(array.type):
        return _longs(unscaled(array), null)
    words = decimal_words(array)
    low, high = words[:, 0], words[:, 1]
    # Nulls have any bytes.
    in_low = high == low >> 63
    if null is not None:
        in_low |= null
    if in_low.all():
        return _longs(pa.array(low, mask=null), null)
    values = (high.astype(object) << 64) | low.view(np.uint64).astype(object)
    if null is not None:
        values[null] = 0
    return Integers(values, null, _greatest(values))


def _longs(array: pa.Array, null: npt.NDArray[np.bool_] | None) -> Integers:
    import pyarrow.compute as pc

    ends = pc.min_max(array).as_py()
    bound = 0 if ends["min"] is None else max(-ends["min"], ends["max"])
    data = np.frombuffer(array.buffers()[1], np.int64, array.offset + len(array))
    return Integers(data[array.offset :], null, bound)


def _greatest(values: npt.NDArray[Any]) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def array_of(integers: Integers, dtype: pa.DataType, num_rows: int) -> pa.Array:
    """Return an array of unscaled values: int64, or decimals of a type if they do not all fit."""
    values, null, _ = integers
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
        if self.op == "*":
            (left, right), scale = args, sum(scales)
            bound = left.bound * right.bound
        else:
            scale = max(scales)
            args = [_times(arg, 10 ** (scale - own)) for arg, own in zip(args, scales, strict=True)]
            left, right = args[0], args[-1]
            bound = left.bound + right.bound if len(args) > 1 else left.bound
        values = left.values
        if len(args) > 1:
            a, b = (_sized(arg.values, bound) for arg in args)
            values = a * b if self.op == "*" else a + b if self.op == "+" else a - b
        null = left.null if right.null is None else right.null
        if left.null is not None and right.null is not None:
            null = left.null | right.null
        return self._fitted(_rescaled(Integers(values, null, bound), self.result.scale - scale))

    def _fitted(self, result: Integers) -> Integers:
        """Return results of which those with too many digits are null."""
        limit = 10**self.result.precision
        if result.bound < limit:
            return result
        values, null, _ = result
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
        if null is not None and values.dtype == object:
            values = np.where(null, 0, values)
        return Integers(values, null, min(result.bound, limit - 1))


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


def _sized(values: npt.NDArray[Any], bound: int) -> npt.NDArray[Any]:
    return values if bound < _LONG else values.astype(object)


def _times(integers: Integers, factor: int) -> Integers:
    if factor == 1:
        return integers
    bound = integers.bound * factor
    return Integers(_sized(integers.values, bound) * factor, integers.null, bound)


def _rescaled(integers: Integers, digits: int) -> Integers:
    """Return values with more or fewer digits after the point; half of a digit is rounded up."""
    if digits >= 0:
        return _times(integers, 10**digits)
    divisor = 10**-digits
    half = divisor // 2
    values = _sized(integers.values, integers.bound + divisor)
    rounded = (abs(values) + half) // divisor
    rounded = np.where(values < 0, -rounded, rounded)
    return Integers(rounded, integers.null, (integers.bound + half) // divisor)

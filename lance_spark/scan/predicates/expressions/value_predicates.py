"""Predicates on computed values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lance_spark.scan.predicates.column_predicates import OPPOSITE
from lance_spark.scan.predicates.comparison import Op, compared
from lance_spark.scan.predicates.expressions.node import Expression
from lance_spark.scan.predicates.tree import Column, Predicate


@dataclass(frozen=True, slots=True)
class CompareValues(Predicate):
    """A comparison of two computed values of one type."""

    left: Expression
    op: Op
    right: Expression

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return compared(self.left.evaluate(batch), self.op, self.right.evaluate(batch))

    def columns(self) -> Iterator[Column]:
        yield from self.left.columns()
        yield from self.right.columns()

    def negated(self) -> CompareValues:
        return CompareValues(self.left, OPPOSITE[self.op], self.right)


@dataclass(frozen=True, slots=True)
class Holds(Predicate):
    """Whether a computed boolean is true; if `inverted`, whether it is false."""

    value: Expression
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        result = self.value.evaluate(batch)
        return pc.invert(result) if self.inverted else result

    def columns(self) -> Iterator[Column]:
        yield from self.value.columns()

    def negated(self) -> Holds:
        return Holds(self.value, not self.inverted)


@dataclass(frozen=True, slots=True)
class ValueIsNull(Predicate):
    """Whether a computed value is null; if `inverted`, whether it is not null."""

    value: Expression
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        array = self.value.evaluate(batch)
        return array.is_valid() if self.inverted else array.is_null()

    def columns(self) -> Iterator[Column]:
        yield from self.value.columns()

    def negated(self) -> ValueIsNull:
        return ValueIsNull(self.value, not self.inverted)

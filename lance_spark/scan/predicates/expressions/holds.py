"""Conditions on computed values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lance_spark.scan.predicates.comparison import Op, compared
from lance_spark.scan.predicates.expressions.node import Expression
from lance_spark.scan.predicates.tree import OPPOSITE, Column, Predicate


@dataclass(frozen=True, slots=True)
class CompareValues(Predicate):
    """Two computed values of one type that stand in an order."""

    left: Expression
    op: Op
    right: Expression

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row."""
        return compared(self.left.evaluate(batch), self.op, self.right.evaluate(batch))

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield from self.left.columns()
        yield from self.right.columns()

    def negated(self) -> CompareValues:
        """Return the opposite."""
        return CompareValues(self.left, OPPOSITE[self.op], self.right)


@dataclass(frozen=True, slots=True)
class Holds(Predicate):
    """A computed boolean that is true, or false."""

    value: Expression
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row."""
        import pyarrow.compute as pc

        met = self.value.evaluate(batch)
        return pc.invert(met) if self.inverted else met

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield from self.value.columns()

    def negated(self) -> Holds:
        """Return the opposite."""
        return Holds(self.value, not self.inverted)


@dataclass(frozen=True, slots=True)
class ValueIsNull(Predicate):
    """A computed value that is, or is not, null."""

    value: Expression
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true or false for each row."""
        array = self.value.evaluate(batch)
        return array.is_valid() if self.inverted else array.is_null()

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield from self.value.columns()

    def negated(self) -> ValueIsNull:
        """Return the opposite."""
        return ValueIsNull(self.value, not self.inverted)

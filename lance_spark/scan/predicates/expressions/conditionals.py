"""Conditions on computed values, and choices between values: ``coalesce``, ``nullif``, ``CASE``.

An error in a value counts only for the rows that choose it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.scan.predicates.column_predicates import OPPOSITE, is_in, match_candidates
from lance_spark.scan.predicates.common_types import list_type
from lance_spark.scan.predicates.comparison import FLIPPED, Op, compared, has_nan, is_nan
from lance_spark.scan.predicates.conditions import Bound, ColumnBound, RangePruner
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.node import (
    JSON,
    Builder,
    Call,
    Choice,
    Expression,
    Literal,
)
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.tree import Column, Constant, Predicate
from lance_spark.scan.predicates.typed_values import Typed
from lance_spark.subjects import JSON_VALUES, load


def documents_of(value: Expression) -> ColumnBound | None:
    """Return an expression as the values that an index of documents can have; None if not.

    The bound of the result has no meaning.
    """
    if not isinstance(value, Call) or value.name != JSON:
        return None
    documents: ColumnBound | None = load(JSON_VALUES)(value)
    return documents


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

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        bound = self._bound()
        return None if bound is None else bound.ask(statistics, *bound.bound)

    def column_bound(self) -> ColumnBound | None:
        return None if self.op in ("==", "!=") else self._bound()

    def _bound(self) -> ColumnBound | None:
        """Return the comparison of values in documents with a literal that it is; None if not."""
        left, op, right = self.left, self.op, self.right
        if isinstance(left, Literal):
            left, op, right = right, FLIPPED[op], left
        documents = documents_of(left)
        if documents is None or not isinstance(right, Literal) or right.typed.value is None:
            return None
        scalar = pa.scalar(right.typed.value, right.dtype)
        return None if is_nan(scalar) else documents._replace(bound=Bound(op, scalar))


@dataclass(frozen=True, slots=True)
class InValues(Predicate):
    """Whether a computed value is in a set; the other attributes are those of `In`."""

    value: Expression
    values: pa.Array
    has_null: bool = False
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        result = is_in(self.value.evaluate(batch), self.values, has_null=self.has_null)
        return pc.invert(result) if self.inverted else result

    def columns(self) -> Iterator[Column]:
        yield from self.value.columns()

    def negated(self) -> InValues:
        return InValues(self.value, self.values, self.has_null, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        documents = documents_of(self.value)
        if documents is None or has_nan(self.values) or (self.inverted and self.has_null):
            return None
        return documents.ask(statistics, "not_in" if self.inverted else "in", self.values)


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

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        if isinstance(self.value, Call) and self.value.name == "match" and not self.inverted:
            documents = documents_of(self.value.args[0])
            if documents is None:
                return None
            match, text = self.value.detail
            return match_candidates(match, text, partial(documents.ask, statistics))
        documents = documents_of(self.value)
        if documents is None:
            return None
        return documents.ask(statistics, "==", pa.scalar(not self.inverted))


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

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        documents = documents_of(self.value)
        if documents is None:
            return None
        return documents.ask(statistics, "is_not_null" if self.inverted else "is_null", None)


def choice(
    branches: Sequence[tuple[Predicate, Expression]], otherwise: Expression, settings: SqlSettings
) -> Expression:
    """Return the value of the first branch whose condition is true, in the common type.

    Raises
    ------
    NoCommonTypeError
        The values have no common type.
    """
    values = _in_common_type([*(value for _, value in branches), otherwise], settings)
    conditions = [condition for condition, _ in branches]
    return Choice(tuple(zip(conditions, values[:-1], strict=True)), values[-1])


def _in_common_type(values: Sequence[Expression], settings: SqlSettings) -> Sequence[Expression]:
    common = list_type([value.dtype for value in values], settings, strings=True)
    if pat.is_null(common):
        return values
    return [casted(value, common, settings) for value in values]


def _coalesce(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    # The null check is on the value after the cast, because a cast can return null.
    values = _in_common_type(args, settings)
    branches = tuple((ValueIsNull(value, inverted=True), value) for value in values[:-1])
    return Choice(branches, values[-1]) if branches else values[0]


def _nvl2(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return choice([(ValueIsNull(args[0], inverted=True), args[1])], args[2], settings)


def truth(value: Expression) -> Predicate:
    """Return a boolean value as a condition."""
    if isinstance(value, Literal):
        return Constant(value.typed.value)
    return Holds(value)


def nullif(value: Expression, equal: Predicate) -> Expression:
    """Return the value, or null where the condition `equal` is true."""
    return Choice(((equal, Literal(Typed(None, value.dtype))),), value)


FUNCTIONS: dict[str, tuple[range, Builder]] = {
    "coalesce": (range(1, 1000), _coalesce),
    **dict.fromkeys(("ifnull", "nvl"), (range(2, 3), _coalesce)),
    "nvl2": (range(3, 4), _nvl2),
}

"""Predicates as in Spark: trees of conditions with the truth values true, false and null.

| node | true for a row |
| --- | --- |
| `Compare`, `CompareColumns` | if a comparison with a literal, or with another column, holds |
| `In` | if the value is in a set; null if it is not, but the set has a null |
| `Match` | if the text starts with, ends with or contains a text, or is ``LIKE`` a pattern |
| `IsNull`, `IsNan` | |
| `SameTruth` | if two conditions have the same truth value |
| `And`, `Or`, `Known`, `Constant` | |

The first three rows are in `column_predicates`; `list_predicates` searches lists, and
`expressions.conditionals` has conditions on computed values. A filter keeps the rows for which a
predicate is true. NaN equals NaN and is greater than all other values.

`candidates` returns the rows that statistics do not rule out. A `RangePruner` answers this for a
comparison of one column. Negations are first moved down to the conditions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import from_unscaled
from lance_spark.encoding.rows import NO_ROWS, RowRanges, in_any
from lance_spark.errors import EvaluationError
from lance_spark.file.dictionaries import DECIMAL
from lance_spark.file.schema.field import Field
from lance_spark.predicates.comparison import column_at, values_at, widened
from lance_spark.predicates.conditions import ColumnBound, Condition, RangePruner, candidates_of_all


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a child of struct columns.

    - `path`: The fields from the top-level field to the column.
    - `cast_type`: Type to which values are cast before they are compared. Every value fits;
      decimals may be rounded to a double.
    """

    path: tuple[Field, ...]
    cast_type: pa.DataType | None = None

    @property
    def field(self) -> Field:
        """The field of the column."""
        return self.path[-1]

    @property
    def can_fail(self) -> bool:
        """Whether `values` may raise an error: of a cast, or of a document that is damaged."""
        return self.cast_type is not None or any(node.has_json for node in self.path)

    def __str__(self) -> str:
        return ".".join(node.name for node in self.path)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values in a batch, without dictionaries, extension types and float16.

        The batch may have the unscaled values of decimals.
        """
        return self._compared_as(self._stored(batch))

    def tested(
        self, batch: pa.RecordBatch, test: Callable[[pa.Array], pa.BooleanArray]
    ) -> pa.BooleanArray:
        """Return the truth of a test of each value in a batch, which is null for null.

        The values of a dictionary are tested once. Decimals that the batch has as their unscaled
        values are tested as these, of type int64, if the column is not cast.
        """
        array = self._stored(batch)
        if pat.is_dictionary(array.type) and len(array.dictionary) < len(array):
            truths = test(self._compared_as(array.dictionary, unscaled=True))
            return truths.take(array.indices)
        return test(self._compared_as(array, unscaled=True))

    def is_null(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return which values in a batch are null. JSON is not decoded."""
        array = self.documents(batch)
        if pat.is_dictionary(array.type) and array.dictionary.null_count:
            array = array.dictionary_decode()
        return array.is_null()

    def _stored(self, batch: pa.RecordBatch) -> pa.Array:
        array = values_at(batch, self.path)
        return array.storage if isinstance(array.type, pa.BaseExtensionType) else array

    def documents(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values of a JSON column in a batch: JSONB, or texts if the batch has texts."""
        array = column_at(batch, [node.name for node in self.path])
        return array.storage if isinstance(array.type, pa.BaseExtensionType) else array

    def _compared_as(self, array: pa.Array, *, unscaled: bool = False) -> pa.Array:
        if pat.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        if pat.is_float16(array.type):
            array = array.cast(pa.float32())
        if pat.is_int64(array.type) and self.field.logical_type.startswith(DECIMAL):
            if unscaled and self.cast_type is None:
                return array
            array = from_unscaled(array, self.field.arrow_field.type)
        if self.cast_type is not None and not array.type.equals(self.cast_type):
            array = widened(array, self.cast_type)
        return array


class Predicate(ABC):
    """A condition on rows. Immutable, and can be pickled."""

    __slots__ = ()

    @abstractmethod
    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row of a batch that has the columns."""

    @abstractmethod
    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""

    @abstractmethod
    def negated(self) -> Predicate:
        """Return the predicate with true and false exchanged; null stays null."""

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        """Return the rows for which it can be true by statistics; None if they do not decide."""
        return None

    @property
    def is_decided(self) -> bool:
        """Whether `candidates` has just the rows for which it is true if all answers have."""
        return False

    @property
    def can_fail(self) -> bool:
        """Whether `evaluate` may raise an error for a row."""
        return True

    def conjuncts(self) -> Iterator[Condition]:
        """Yield the predicates of which it is the conjunction; itself if it is none."""
        yield self

    def column_bound(self) -> ColumnBound | None:
        """Return the comparison with ``<``, ``<=``, ``>`` or ``>=`` that it is; None if not."""
        return None

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether a filter keeps it; never null."""
        return self.evaluate(batch).fill_null(False)

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """Paths of the columns that it reads."""
        return tuple({column.path: None for column in self.columns()})


@dataclass(frozen=True, slots=True)
class Constant(Predicate):
    """One truth value for all rows; with `where_valid`, null for rows where that column is null."""

    value: bool | None
    where_valid: Column | None = None

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        array = pa.repeat(pa.scalar(self.value, pa.bool_()), batch.num_rows)
        if self.where_valid is None:
            return array
        valid = self.where_valid.values(batch).is_valid()
        return pc.if_else(valid, array, pa.scalar(None, pa.bool_()))

    def columns(self) -> Iterator[Column]:
        if self.where_valid is not None:
            yield self.where_valid

    def negated(self) -> Constant:
        return Constant(None if self.value is None else not self.value, self.where_valid)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        if not self.value:
            return NO_ROWS
        return (
            None
            if self.where_valid is None
            else statistics(self.where_valid.field, "is_not_null", None)
        )


@dataclass(frozen=True, slots=True)
class And(Predicate):
    """The conjunction of several predicates."""

    parts: tuple[Predicate, ...]

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        result = self.parts[0].evaluate(batch)
        for part in self.parts[1:]:
            # Spark does not evaluate the next part for rows that are false already.
            result = pc.and_kleene(result, evaluated_where(part.evaluate, batch, result, null=True))
        return result

    def columns(self) -> Iterator[Column]:
        for part in self.parts:
            yield from part.columns()

    def negated(self) -> Or:
        return Or(tuple(part.negated() for part in self.parts))

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        return candidates_of_all(self.parts, statistics)

    @property
    def is_decided(self) -> bool:
        return all(part.is_decided for part in self.parts)

    @property
    def can_fail(self) -> bool:
        return any(part.can_fail for part in self.parts)

    def conjuncts(self) -> Iterator[Condition]:
        for part in self.parts:
            yield from part.conjuncts()


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    """The disjunction of several predicates."""

    parts: tuple[Predicate, ...]

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        result = self.parts[0].evaluate(batch)
        for part in self.parts[1:]:
            # Spark does not evaluate the next part for rows that are true already.
            needed = pc.invert(result)
            result = pc.or_kleene(result, evaluated_where(part.evaluate, batch, needed, null=True))
        return result

    def columns(self) -> Iterator[Column]:
        for part in self.parts:
            yield from part.columns()

    def negated(self) -> And:
        return And(tuple(part.negated() for part in self.parts))

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        return in_any(part.candidates(statistics) for part in self.parts)

    @property
    def is_decided(self) -> bool:
        return all(part.is_decided for part in self.parts)

    @property
    def can_fail(self) -> bool:
        return any(part.can_fail for part in self.parts)


@dataclass(frozen=True, slots=True)
class SameTruth(Predicate):
    """Whether two conditions have the same truth value, where null equals null; never null.

    If `inverted`, whether they have different truth values.
    """

    left: Predicate
    right: Predicate
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        left, right = self.left.evaluate(batch), self.right.evaluate(batch)
        both_null = pc.and_(left.is_null(), right.is_null())
        equal = pc.if_else(
            pc.and_(left.is_valid(), right.is_valid()), pc.equal(left, right), both_null
        )
        return pc.invert(equal) if self.inverted else equal

    def columns(self) -> Iterator[Column]:
        yield from self.left.columns()
        yield from self.right.columns()

    def negated(self) -> SameTruth:
        return SameTruth(self.left, self.right, not self.inverted)


@dataclass(frozen=True, slots=True)
class IsTrue(Predicate):
    """Whether a predicate is true; if `inverted`, whether it is false or null. Never null."""

    part: Predicate
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        result = self.part.evaluate(batch).fill_null(False)
        return pc.invert(result) if self.inverted else result

    def columns(self) -> Iterator[Column]:
        yield from self.part.columns()

    def negated(self) -> IsTrue:
        return IsTrue(self.part, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        return None if self.inverted else self.part.candidates(statistics)


def evaluated_where(
    evaluate: Callable[[pa.RecordBatch], pa.Array],
    batch: pa.RecordBatch,
    needed: pa.BooleanArray,
    *,
    null: bool = False,
) -> pa.Array:
    """Evaluate some rows of a batch, and ignore errors for the other rows.

    - `evaluate`: Takes a batch, and may raise `EvaluationError`.
    - `needed`: The rows to evaluate. The result for other rows is any value or null.
    - `null`: Whether rows with null in `needed` are needed.

    Raises EvaluationError: the evaluation fails for a needed row.
    """
    try:
        return evaluate(batch)
    except EvaluationError:
        import pyarrow.compute as pc

        mask = needed.fill_null(null)
        if mask.true_count == batch.num_rows:
            raise
        values = evaluate(batch.filter(mask))
        indices = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
        return values.take(pc.if_else(mask, indices, pa.scalar(None, pa.int64())))


def conjunction(parts: Sequence[Predicate]) -> Predicate | None:
    """Return the conjunction of some predicates; None if there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return And(tuple(parts))

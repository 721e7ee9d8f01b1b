"""Predicates as Spark has them: trees of conditions on columns, with three truth values.

| node | true for rows |
| --- | --- |
| `Compare` | whose value stands in an order to a literal; NaN equals NaN and is greater than all, as in Spark |
| `CompareColumns` | the same between two columns |
| `In` | whose value is one of a set; null if it is not, but the set has a null |
| `Match` | whose text starts with, ends with or contains another, or is ``LIKE`` a pattern |
| `IsNull`, `IsNan` | |
| `SameTruth` | for which two conditions have the same truth value |
| `And`, `Or`, `Known`, `Constant` | |

Rows are kept for which a predicate is true. `filters` has the conditions of pyarrow's kind, which know no NaN.

`candidates` asks for what statistics rule out: `RangePruner` maps a condition on one column to the rows that it can hold for. A tree is
asked with its negations carried down to the conditions.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import EvaluationError, InvalidInputError
from lance_spark.file.schema.schema import Field
from lance_spark.scan.predicates.comparison import (
    How,
    Op,
    column_at,
    compared,
    exact_ticks,
    is_nan,
    widened,
    with_one_zero,
)
from lance_spark.scan.predicates.conditions import RangePruner
from lance_spark.scan.pruning.ranges import in_all, in_any

#: The operator that is true where another is false.
OPPOSITE: dict[Op, Op] = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a child of struct columns.

    Attributes
    ----------
    path : tuple of Field
        The top-level field, and its children down to the one that is meant.
    kind : pa.DataType, optional
        What its values are cast to before they are compared; every value fits, if rounded to a double now and then.
    """

    path: tuple[Field, ...]
    kind: pa.DataType | None = None

    @property
    def field(self) -> Field:
        """The field that is meant."""
        return self.path[-1]

    def __str__(self) -> str:
        return ".".join(node.name for node in self.path)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Return its values in a batch, as kernels take them: decoded, and without extension types."""
        array = column_at(batch, [node.name for node in self.path])
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        if pat.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        if pat.is_float16(array.type):
            array = array.cast(pa.float32())
        if self.kind is not None and not array.type.equals(self.kind):
            array = widened(array, self.kind)
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
        """Return what is true where this is false, false where it is true, and null where it is null."""

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that it can be true for, as far as statistics tell; None if they do not."""
        return None

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether it is kept; never null."""
        return self.evaluate(batch).fill_null(False)

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """Paths of the columns that it looks at."""
        return tuple({column.path: None for column in self.columns()})


@dataclass(frozen=True, slots=True)
class Constant(Predicate):
    """The same for all rows, or for all in which a column is not null; null for the others."""

    value: bool | None
    where_valid: Column | None = None

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return the value for each row."""
        import pyarrow.compute as pc

        array = pa.repeat(pa.scalar(self.value, pa.bool_()), batch.num_rows)
        if self.where_valid is None:
            return array
        valid = self.where_valid.values(batch).is_valid()
        return pc.if_else(valid, array, pa.scalar(None, pa.bool_()))

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        if self.where_valid is not None:
            yield self.where_valid

    def negated(self) -> Constant:
        """Return the opposite."""
        return Constant(None if self.value is None else not self.value, self.where_valid)

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return no rows, unless it is true."""
        if not self.value:
            return []
        return (
            None
            if self.where_valid is None
            else statistics(self.where_valid.field, "is_not_null", None)
        )


@dataclass(frozen=True, slots=True)
class Compare(Predicate):
    """A column and a literal that is not null; of one type, once the column is cast."""

    column: Column
    op: Op
    value: pa.Scalar

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row."""
        array = self.column.values(batch)
        return compared(array, self.op, self.value)

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield self.column

    def negated(self) -> Compare:
        """Return the opposite."""
        return Compare(self.column, OPPOSITE[self.op], self.value)

    def __reduce__(self) -> tuple[Callable[..., Compare], tuple[Column, Op, pa.Array]]:
        """Return what makes it again: scalars are pickled by way of Python's dates, which do not reach as far as Arrow's."""
        return _compare, (self.column, self.op, pa.repeat(self.value, 1))

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that statistics do not rule out."""
        if self.column.kind is not None or is_nan(self.value):
            return None
        return statistics(self.column.field, self.op, self.value)


def _compare(column: Column, op: Op, value: pa.Array) -> Compare:
    return Compare(column, op, value[0])


@dataclass(frozen=True, slots=True)
class CompareColumns(Predicate):
    """Two columns of one type, once they are cast."""

    left: Column
    op: Op
    right: Column

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row."""
        try:
            return compared(self.left.values(batch), self.op, self.right.values(batch))
        except InvalidInputError:
            # No unit has all values of both timestamps.
            left, right = (Column(one.path).values(batch) for one in (self.left, self.right))
            if not (pat.is_temporal(left.type) and pat.is_temporal(right.type)):
                raise
            return compared(exact_ticks(left), self.op, exact_ticks(right))

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield self.left
        yield self.right

    def negated(self) -> CompareColumns:
        """Return the opposite."""
        return CompareColumns(self.left, OPPOSITE[self.op], self.right)


@dataclass(frozen=True, slots=True)
class In(Predicate):
    """A column whose value is, or is not, one of a set.

    Attributes
    ----------
    column : Column
    values : pa.Array
        Without nulls, of the column's type once that is cast.
    has_null : bool
        Whether the set has a null besides: no value is then known not to be in it.
    inverted : bool
    """

    column: Column
    values: pa.Array
    has_null: bool = False
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row."""
        import pyarrow.compute as pc

        array = self.column.values(batch)
        found = pc.is_in(with_one_zero(array), value_set=with_one_zero(self.values))
        null = pa.scalar(None, pa.bool_())
        if self.has_null:
            found = pc.if_else(found, True, null)
        found = pc.if_else(array.is_valid(), found, null)
        return pc.invert(found) if self.inverted else found

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield self.column

    def negated(self) -> In:
        """Return the opposite."""
        return In(self.column, self.values, self.has_null, not self.inverted)

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that statistics do not rule out."""
        if self.inverted:
            return [] if self.has_null else None
        if self.column.kind is not None or len(self.values) > _MOST_ASKED:
            return None
        if any(is_nan(value) for value in self.values):
            return None
        return in_any(statistics(self.column.field, "==", value) for value in self.values)


@dataclass(frozen=True, slots=True)
class Match(Predicate):
    """A column of strings or bytes that starts with, ends with, contains or is like something.

    Attributes
    ----------
    column : Column
    how : str
        "starts", "ends" or "contains"; "like" with a regular expression that `like_regex` makes.
    text : str or bytes
        Bytes for a column of bytes.
    inverted : bool
    """

    column: Column
    how: How
    text: str | bytes
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row."""
        import pyarrow.compute as pc

        kernels = {
            "starts": pc.starts_with,
            "ends": pc.ends_with,
            "contains": pc.match_substring,
            "like": pc.match_substring_regex,
        }
        array = self.column.values(batch)
        if pat.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        met = kernels[self.how](array, self.text)
        return pc.invert(met) if self.inverted else met

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield self.column

    def negated(self) -> Match:
        """Return the opposite."""
        return Match(self.column, self.how, self.text, not self.inverted)

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that statistics do not rule out: those whose text can be between what it starts with and what follows."""
        if self.how != "starts" or self.inverted or self.column.kind is not None:
            return None
        field, end = self.column.field, _after(self.text)
        rows = statistics(field, ">=", self.text)
        below = None if end is None else statistics(field, "<", end)
        return in_all((rows, below))


@dataclass(frozen=True, slots=True)
class IsNull(Predicate):
    """A column that is, or is not, null."""

    column: Column
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true or false for each row."""
        array = self.column.values(batch)
        return array.is_valid() if self.inverted else array.is_null()

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield self.column

    def negated(self) -> IsNull:
        """Return the opposite."""
        return IsNull(self.column, not self.inverted)

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that statistics do not rule out."""
        return statistics(self.column.field, "is_not_null" if self.inverted else "is_null", None)


@dataclass(frozen=True, slots=True)
class IsNan(Predicate):
    """A column of floats that is, or is not, NaN; false, or true, where it is null, as in Spark."""

    column: Column
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true or false for each row."""
        import pyarrow.compute as pc

        found = pc.is_nan(self.column.values(batch)).fill_null(False)
        return pc.invert(found) if self.inverted else found

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield self.column

    def negated(self) -> IsNan:
        """Return the opposite."""
        return IsNan(self.column, not self.inverted)


@dataclass(frozen=True, slots=True)
class And(Predicate):
    """All of several."""

    parts: tuple[Predicate, ...]

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row."""
        import pyarrow.compute as pc

        met = self.parts[0].evaluate(batch)
        for part in self.parts[1:]:
            # Spark does not look at the next part where one is false already.
            met = pc.and_kleene(met, evaluated_where(part.evaluate, batch, met, null=True))
        return met

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        for part in self.parts:
            yield from part.columns()

    def negated(self) -> Or:
        """Return the opposite."""
        return Or(tuple(part.negated() for part in self.parts))

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that statistics do not rule out for any part."""
        return in_all(part.candidates(statistics) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or(Predicate):
    """One of several at least."""

    parts: tuple[Predicate, ...]

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true, false or null for each row."""
        import pyarrow.compute as pc

        met = self.parts[0].evaluate(batch)
        for part in self.parts[1:]:
            # Nor where one is true.
            missed = pc.invert(met)
            met = pc.or_kleene(met, evaluated_where(part.evaluate, batch, missed, null=True))
        return met

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        for part in self.parts:
            yield from part.columns()

    def negated(self) -> And:
        """Return the opposite."""
        return And(tuple(part.negated() for part in self.parts))

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that statistics do not rule out for all parts."""
        return in_any(part.candidates(statistics) for part in self.parts)


@dataclass(frozen=True, slots=True)
class SameTruth(Predicate):
    """Two conditions that have, or have not, the same truth value, null being one; never null itself."""

    left: Predicate
    right: Predicate
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true or false for each row."""
        import pyarrow.compute as pc

        left, right = self.left.evaluate(batch), self.right.evaluate(batch)
        both_null = pc.and_(left.is_null(), right.is_null())
        same = pc.if_else(
            pc.and_(left.is_valid(), right.is_valid()), pc.equal(left, right), both_null
        )
        return pc.invert(same) if self.inverted else same

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield from self.left.columns()
        yield from self.right.columns()

    def negated(self) -> SameTruth:
        """Return the opposite."""
        return SameTruth(self.left, self.right, not self.inverted)


@dataclass(frozen=True, slots=True)
class Known(Predicate):
    """True where another predicate is, or is not, and the opposite elsewhere: never null."""

    part: Predicate
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true or false for each row."""
        import pyarrow.compute as pc

        met = self.part.evaluate(batch).fill_null(False)
        return pc.invert(met) if self.inverted else met

    def columns(self) -> Iterator[Column]:
        """Yield the columns that it looks at."""
        yield from self.part.columns()

    def negated(self) -> Known:
        """Return the opposite."""
        return Known(self.part, not self.inverted)

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that statistics do not rule out."""
        return None if self.inverted else self.part.candidates(statistics)


#: Values of an `In` that statistics are asked for at most.
_MOST_ASKED = 100


def evaluated_where(
    evaluate: Callable[[pa.RecordBatch], pa.Array],
    batch: pa.RecordBatch,
    needed: pa.BooleanArray,
    *,
    null: bool = False,
) -> pa.Array:
    """Return what an evaluation gives for the rows that are needed; for others anything, or null.

    Parameters
    ----------
    evaluate : callable
        Takes a batch, and may raise `EvaluationError`. Errors count for needed rows only.
    batch : pa.RecordBatch
    needed : pa.BooleanArray
    null : bool
        Whether rows are needed for which `needed` is null.

    Raises
    ------
    EvaluationError
        There is an error for a row that is needed.
    """
    try:
        return evaluate(batch)
    except EvaluationError:
        import pyarrow.compute as pc

        chosen = needed.fill_null(null)
        if chosen.true_count == batch.num_rows:
            raise
        values = evaluate(batch.filter(chosen))
        places = pc.subtract(pc.cumulative_sum(chosen.cast(pa.int64())), 1)
        return values.take(pc.if_else(chosen, places, pa.scalar(None, pa.int64())))


def conjunction(parts: Sequence[Predicate]) -> Predicate | None:
    """Return one predicate that holds where all do; None for none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return And(tuple(parts))


def _after(text: str | bytes) -> str | bytes | None:
    """Return the least text that is greater than all that start with a text; None if there is none."""
    if isinstance(text, bytes):
        head = text.rstrip(b"\xff")
        return head[:-1] + bytes([head[-1] + 1]) if head else None
    start = text.rstrip(chr(sys.maxunicode))
    if not start:
        return None
    # Strings are ordered by their bytes, which is the order of code points; surrogates are none.
    code = ord(start[-1]) + 1
    return start[:-1] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)

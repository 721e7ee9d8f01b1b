"""Predicates on columns: comparisons, sets, text matches, null and NaN, and items of lists."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding import rows as integer_sets
from lance_spark.encoding.rows import NO_ROWS, RowRanges, in_all
from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import is_null
from lance_spark.file.schema.field import Field
from lance_spark.predicates.comparison import (
    Op,
    TextMatch,
    compared,
    exact_ticks,
    has_nan,
    in_64_bits,
    is_nan,
    regex_parts,
    text_matches,
    with_one_zero,
)
from lance_spark.predicates.conditions import Between, Bound, ColumnBound, RangePruner
from lance_spark.predicates.tree import Column, Or, Predicate

# --------------------------------------------------------------------------------------------------
# Predicates on columns: comparisons, sets, text matches, null and NaN.

#: Most parts of a pattern that an index is asked for.
_MAX_PARTS = 4
#: The operator that is true if another is false.
OPPOSITE: dict[Op, Op] = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class OfColumn(Predicate):
    """A predicate on one column. It fails only if the values of the column cannot be had."""

    column: Column

    def columns(self) -> Iterator[Column]:
        yield self.column

    @property
    def can_fail(self) -> bool:
        return self.column.can_fail


@dataclass(frozen=True, slots=True)
class Compare(OfColumn):
    """A comparison of a column with a literal, which is not null and of the column's type."""

    op: Op
    value: pa.Scalar

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return self.column.tested(batch, lambda values: compared(values, self.op, self.value))

    def negated(self) -> Compare:
        return Compare(self.column, OPPOSITE[self.op], self.value)

    def __reduce__(self) -> tuple[Callable[..., Compare], tuple[Column, Op, pa.Array]]:
        # The pickle of a scalar uses Python's dates, which do not have Arrow's range.
        return _compare, (self.column, self.op, pa.repeat(self.value, 1))

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        if self.column.cast_type is not None or is_nan(self.value):
            return None
        return statistics(self.column.field, self.op, self.value)

    @property
    def is_decided(self) -> bool:
        return self.column.cast_type is None

    def column_bound(self) -> ColumnBound | None:
        if self.op in ("==", "!=") or self.column.cast_type is not None or is_nan(self.value):
            return None
        return ColumnBound(self.column.field, Bound(self.op, self.value))


def _compare(column: Column, op: Op, value: pa.Array) -> Compare:
    return Compare(column, op, value[0])


@dataclass(frozen=True, slots=True)
class CompareColumns(Predicate):
    """A comparison of two columns of one type."""

    left: Column
    op: Op
    right: Column

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        try:
            return compared(self.left.values(batch), self.op, self.right.values(batch))
        except InvalidInputError:
            # No unit of timestamps has all values of both columns.
            left, right = (Column(side.path).values(batch) for side in (self.left, self.right))
            if not (pat.is_temporal(left.type) and pat.is_temporal(right.type)):
                raise
            return compared(exact_ticks(left), self.op, exact_ticks(right))

    def columns(self) -> Iterator[Column]:
        yield self.left
        yield self.right

    def negated(self) -> CompareColumns:
        return CompareColumns(self.left, OPPOSITE[self.op], self.right)


@dataclass(frozen=True, slots=True)
class In(OfColumn):
    """Whether the value of a column is in a set; if `inverted`, whether it is not.

    - `values`: Without nulls, of the column's type.
    - `has_null`: Whether the set also has a null: the result is null for a value that is not in
      `values`.
    """

    values: pa.Array
    has_null: bool = False
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return self.column.tested(batch, self._is_in)

    def _is_in(self, array: pa.Array) -> pa.BooleanArray:
        import pyarrow.compute as pc

        result = is_in(in_64_bits(array), in_64_bits(self.values), has_null=self.has_null)
        return pc.invert(result) if self.inverted else result

    def negated(self) -> In:
        return In(self.column, self.values, self.has_null, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        if self.inverted and self.has_null:
            return NO_ROWS
        if self.column.cast_type is not None or has_nan(self.values):
            return None
        return statistics(self.column.field, "not_in" if self.inverted else "in", self.values)

    @property
    def is_decided(self) -> bool:
        return self.column.cast_type is None and not self.inverted


@dataclass(frozen=True, slots=True)
class ColumnMatch(OfColumn):
    """Whether a column of strings or bytes matches a text; if `inverted`, whether it does not.

    - `match`: "starts", "ends" or "contains"; "like" with a regular expression, see `like_regex`.
    - `text`: Bytes for a column of bytes.
    """

    match: TextMatch
    text: str | bytes
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return self.column.tested(batch, self._matches)

    def _matches(self, array: pa.Array) -> pa.BooleanArray:
        import pyarrow.compute as pc

        if pat.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        matches = text_matches(array, self.match, self.text)
        return pc.invert(matches) if self.inverted else matches

    def negated(self) -> ColumnMatch:
        return ColumnMatch(self.column, self.match, self.text, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        if self.inverted or self.column.cast_type is not None:
            return None
        return match_candidates(self.match, self.text, partial(statistics, self.column.field))


@dataclass(frozen=True, slots=True)
class IsNull(OfColumn):
    """Whether a column is null; if `inverted`, whether it is not null."""

    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        is_blob = self.column.field.is_blob
        nulls = is_null(self.column.values(batch)) if is_blob else self.column.is_null(batch)
        return pc.invert(nulls) if self.inverted else nulls

    def negated(self) -> IsNull:
        return IsNull(self.column, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        return statistics(self.column.field, "is_not_null" if self.inverted else "is_null", None)


@dataclass(frozen=True, slots=True)
class IsNan(OfColumn):
    """Whether a column of floats is NaN; if `inverted`, whether it is not. Never null."""

    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        result = pc.is_nan(self.column.values(batch)).fill_null(False)
        return pc.invert(result) if self.inverted else result

    def negated(self) -> IsNan:
        return IsNan(self.column, not self.inverted)


def any_of(parts: Sequence[Predicate]) -> Predicate:
    """Return the disjunction of predicates. Comparisons of one column become one set.

    An index searches all values of a set at once.
    """
    joined: list[Predicate] = []
    # The values that columns of neighbours are compared with. Between them may be a predicate that
    # is not evaluated for all rows, because it may fail.
    sets: dict[tuple[Column, pa.DataType], list[Predicate]] = {}
    for part in parts:
        values = _equal_to(part)
        if values is None:
            joined += map(_as_set, sets.values())
            sets.clear()
            joined.append(part)
        else:
            assert isinstance(part, Compare | In)
            sets.setdefault((part.column, values), []).append(part)
    joined += map(_as_set, sets.values())
    return joined[0] if len(joined) == 1 else Or(tuple(joined))


def _equal_to(part: Predicate) -> pa.DataType | None:
    """Return the type of the values that a predicate compares a column with; None for others."""
    if isinstance(part, Compare) and part.op == "==":
        return part.value.type
    if isinstance(part, In) and not part.has_null and not part.inverted:
        return part.values.type
    return None


def _as_set(parts: Sequence[Predicate]) -> Predicate:
    """Return the disjunction of comparisons of one column with values of one type."""
    first = parts[0]
    if len(parts) == 1:
        return first
    arrays = [
        part.values if isinstance(part, In) else pa.repeat(part.value, 1)
        for part in parts
        if isinstance(part, Compare | In)
    ]
    assert isinstance(first, Compare | In)
    return In(first.column, pa.concat_arrays(arrays))


def is_in(array: pa.Array, values: pa.Array, *, has_null: bool) -> pa.BooleanArray:
    """Return which values of an array are in a set, as for `In`; null for null."""
    import pyarrow.compute as pc

    result = integer_sets.is_in(with_one_zero(array), with_one_zero(values))
    null = pa.scalar(None, pa.bool_())
    if has_null:
        result = pc.if_else(result, True, null)
    return pc.if_else(array.is_valid(), result, null)


def match_candidates(
    match: TextMatch, text: str | bytes, ask: Callable[[str, Any], RowRanges | None]
) -> RowRanges | None:
    """Return the rows whose texts can match, by statistics; None if they do not decide.

    - `match`, `text`: As in `ColumnMatch`.
    - `ask`: Answers a question about the texts: operator and value; see `conditions.RangePruner`.
    """
    if match == "like":
        assert isinstance(text, str)
        parts = sorted(regex_parts(text), key=len)[-_MAX_PARTS:]
        return in_all(ask("contains", part) for part in parts)
    rows = None
    if match == "starts":
        # Texts with a prefix are between the prefix and the next text without it.
        lower, end = Bound(">=", text), _next_after(text)
        question = lower if end is None else ("between", Between(lower, Bound("<", end)))
        rows = ask(*question)
    return ask("contains", text) if rows is None else rows


def _next_after(prefix: str | bytes) -> str | bytes | None:
    """Return the least text greater than all texts with a prefix; None if the prefix has none."""
    if isinstance(prefix, bytes):
        head = prefix.rstrip(b"\xff")
        return head[:-1] + bytes([head[-1] + 1]) if head else None
    start = prefix.rstrip(chr(sys.maxunicode))
    if not start:
        return None
    # Strings are ordered by UTF-8 bytes, which is the order of code points. Surrogates are skipped.
    code = ord(start[-1]) + 1
    return start[:-1] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)


# --------------------------------------------------------------------------------------------------
# Predicates on the items of lists.

_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class HasItems(Predicate):
    """Whether a list has, for each of some tests, an item that passes; null for a null list.

    - `column`: Lists.
    - `tests`: On the column that `item_column` returns.
    - `unknown`: Whether the result is null if no item passes a test that is null for an item.
    - `inverted`: Whether true and false are exchanged.
    """

    column: Column
    tests: tuple[Predicate, ...]
    unknown: bool
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        lists = self.column.values(batch)
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        items = pa.record_batch([lists.flatten()], [str(self.column)])
        result = pa.repeat(pa.scalar(True), len(lists))
        for test in self.tests:
            truths = test.evaluate(items)
            passed = _has_any(truths.fill_null(False), bounds)
            is_unknown = ~passed & _has_any(truths.is_null(), bounds) if self.unknown else None
            result = pc.and_kleene(result, pa.array(passed, mask=is_unknown))
        result = pc.if_else(lists.is_valid(), result, pa.scalar(None, pa.bool_()))
        return pc.invert(result) if self.inverted else result

    def columns(self) -> Iterator[Column]:
        yield self.column

    def negated(self) -> HasItems:
        return HasItems(self.column, self.tests, self.unknown, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        if self.inverted:
            return None
        sets = [values for test in self.tests if (values := _set_of(test)) is not None]
        if any(not len(values) for values in sets):
            return NO_ROWS
        # A set of `has_all` is one value; a test of several values leaves more rows.
        single = [values for values in sets if len(values) == 1]
        if len(single) > 1:
            return statistics(self.column.field, "has_all", pa.concat_arrays(single))
        return statistics(self.column.field, "has_any", sets[0]) if sets else None


def item_column(column: Column) -> Column:
    """Return the items of a column of lists as a column, with the name of the list.

    Raises InvalidInputError: the column has another type, or has blobs.
    """
    dtype = column.field.arrow_field.type
    if column.field.has_blobs:
        raise InvalidInputError(f"filter: column {column} has blobs, which are not searched")
    if not (pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_fixed_size_list(dtype)):
        raise InvalidInputError(f"filter on {str(column)!r}: {dtype} is not a list")
    children = column.field.children
    # Lists of a fixed size have no field for their items.
    item = children[0] if children else Field.from_arrow(dtype.value_field, -1)
    return Column((replace(item, name=str(column)),))


def _set_of(test: Predicate) -> pa.Array | None:
    """Return the values that pass a test; None if they are not a set without NaN."""
    if not isinstance(test, In) or test.inverted or test.column.cast_type is not None:
        return None
    return None if has_nan(test.values) else test.values


def _has_any(flags: pa.BooleanArray, bounds: npt.NDArray[np.int64]) -> _Flags:
    """Return which lists have an item with a flag."""
    counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(flags.to_numpy(False))])
    result: _Flags = counts[bounds[1:]] > counts[bounds[:-1]]
    return result

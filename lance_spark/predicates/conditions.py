"""The interface of conditions that the rows of a scan must meet, and lists of row ranges.

`tuples` implements the interface for filters in pyarrow's form, `tree` for predicates in Spark's.
The ranges of a list are in order and do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.blocks import flags_of
from lance_spark.encoding.rows import RowRanges, in_all, in_any
from lance_spark.file.open import DataFileReader
from lance_spark.file.schema.field import Field

#: Returns the rows for which a comparison ``(field, op, value)`` can hold; None if unknown.
#:
#: | op | value |
#: | --- | --- |
#: | ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=`` | the other side, not null |
#: | ``between`` | `Between` |
#: | ``in``, ``not_in`` | array without nulls |
#: | ``contains`` | a part of a text |
#: | ``has_any``, ``has_all`` | array without nulls; a list has one, or all, of its values |
#: | ``intersects`` | a `spatial.geometries.Box`; bounding boxes have a point in common with it |
#: | ``is_null``, ``is_not_null`` | None |
#: | ``json`` | `JsonQuestion` about the values at a path of JSON documents |
RangePruner = Callable[[Field, str, Any], RowRanges | None]
#: Comparisons that leave an interval of values, from a lower bound or to an upper bound.
_LOWER, _UPPER = (">", ">="), ("<", "<=")
#: Questions that bounds of values do not answer.
_SEARCHES = ("contains", "has_any", "has_all", "not_in", "intersects", "json")
#: A set of more values is not looked up one by one.
_MAX_VALUES = 100


class Bound(NamedTuple):
    """One side of an interval: the column's values that satisfy ``column op value``."""

    op: str
    value: Any


class Between(NamedTuple):
    """An interval of values."""

    lower: Bound
    upper: Bound


class JsonQuestion(NamedTuple):
    """A question about the values that a function like ``json_get_int`` finds in documents.

    - `keys`: The steps to the value; see `json_paths`.
    - `dtype`: Of the values.
    - `op`, `value`: As in a question about a column of the values.
    """

    keys: tuple[Any, ...]
    dtype: pa.DataType
    op: str
    value: Any


class ColumnBound(NamedTuple):
    """A comparison that leaves an interval of the values of a column.

    If `json` is given, it is about values in documents: the keys and type of a `JsonQuestion`.
    """

    field: Field
    bound: Bound
    json: tuple[tuple[Any, ...], pa.DataType] | None = None

    def ask(self, statistics: RangePruner, op: str, value: Any) -> RowRanges | None:
        """Ask statistics about a comparison of the same values."""
        if self.json is not None:
            op, value = "json", JsonQuestion(*self.json, op, value)
        return statistics(self.field, op, value)


class Condition(Protocol):
    """A condition on rows. Immutable, and can be pickled."""

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The columns that it reads, each as the fields from the top-level field to the column."""

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null."""

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        """Return the rows for which it can hold by statistics; None if they do not decide."""

    @property
    def is_decided(self) -> bool:
        """Whether `candidates` has just the rows for which it holds if all answers have."""

    @property
    def can_fail(self) -> bool:
        """Whether `holds` may raise an error for a row."""

    def conjuncts(self) -> Iterator[Condition]:
        """Yield the conditions of which it is the conjunction; itself if it is none."""

    def column_bound(self) -> ColumnBound | None:
        """Return the comparison with ``<``, ``<=``, ``>`` or ``>=`` that it is; None if not."""


def candidates_of_all(conditions: Iterable[Condition], statistics: RangePruner) -> RowRanges | None:
    """Return the rows for which all conditions can hold by statistics; None if unknown.

    A lower and an upper bound of one column become one question. Whether a column is not null is
    asked only if statistics decide nothing else about it: Spark adds this test to all comparisons,
    and an index would have to read nearly all its rows to answer.
    """
    decided: set[int] = set()
    left: list[tuple[Condition, set[int]]] = []
    not_null: set[int] = set()

    def ask(field: Field, op: str, value: Any) -> RowRanges | None:
        if op == "is_not_null":
            not_null.add(field.id)
            return None
        rows = statistics(field, op, value)
        if rows is not None:
            decided.add(field.id)
        return rows

    bounds: dict[Hashable, tuple[ColumnBound, list[Bound], list[Bound]]] = {}
    answers: list[RowRanges | None] = []
    for condition in conditions:
        for part in condition.conjuncts():
            bound = part.column_bound()
            if bound is None:
                not_null.clear()
                answers.append(part.candidates(ask))
                if not_null:
                    left.append((part, set(not_null)))
                continue
            key = (bound.field.id, bound.json)
            _, lower, upper = bounds.setdefault(key, (bound, [], []))
            (lower if bound.bound.op in _LOWER else upper).append(bound.bound)
    for first, lower, upper in bounds.values():
        if len(lower) == len(upper) == 1:
            answers.append(first.ask(ask, "between", Between(lower[0], upper[0])))
        else:
            answers += [first.ask(ask, *bound) for bound in (*lower, *upper)]
    for part, fields in left:
        if not fields <= decided:
            answers.append(part.candidates(statistics))
    return in_all(answers)


def by_comparisons(
    compare: Callable[[str, Any], RowRanges | None], op: str, value: Any
) -> RowRanges | None:
    """Answer a question of a `RangePruner` by statistics that know comparisons with one value.

    - `compare`: Takes the operator of a comparison with one value, and the value.
    """
    if op == "between":
        return in_all((compare(*value.lower), compare(*value.upper)))
    if op == "in":
        return in_any(compare("==", item) for item in value) if len(value) <= _MAX_VALUES else None
    return None if op in _SEARCHES else compare(op, value)


def matching(conditions: Sequence[Condition], batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which rows of a batch meet all conditions."""
    matches: npt.NDArray[np.bool_] | None = None
    for condition in conditions:
        holds = condition.holds(batch)
        if not holds.true_count:
            return np.zeros(batch.num_rows, np.bool_)
        # Several times as fast as `to_numpy`.
        bits = np.frombuffer(holds.buffers()[1], np.uint8)
        flags = flags_of(bits, holds.offset, len(holds))
        matches = flags if matches is None else matches & flags
    return np.ones(batch.num_rows, np.bool_) if matches is None else matches


def top_fields(conditions: Iterable[Condition]) -> list[Field]:
    """Return the top-level fields that conditions read."""
    paths = (path for condition in conditions for path in condition.paths)
    return list({path[0].id: path[0] for path in paths}.values())


def candidate_ranges(file: DataFileReader, field: Field, op: str, value: Any) -> RowRanges | None:
    """Return the rows of a data file for which a comparison can hold, by page statistics.

    None if the file has no statistics of the field.
    """
    if file.version >= (2, 0):
        return None
    from lance_spark.file.v0_1.reader import LegacyFileReader
    from lance_spark.file.v0_1.statistics import prune

    statistics = file.statistics(field.id) if isinstance(file, LegacyFileReader) else None
    if statistics is None:
        return None
    return by_comparisons(partial(prune, statistics), op, value)

"""Predicates on the items of lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.row_ranges import NO_ROWS, RowRanges
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.scan.predicates.column_predicates import In
from lance_spark.scan.predicates.comparison import has_nan
from lance_spark.scan.predicates.conditions import RangePruner
from lance_spark.scan.predicates.tree import Column, Predicate

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

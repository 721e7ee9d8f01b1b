"""The interface of conditions that the rows of a scan must meet, and lists of row ranges.

`tuples` implements the interface for filters in pyarrow's form, `tree` for predicates in Spark's.
The ranges of a list are in order and do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import flags_of
from lance_spark.file.open import DataFileReader
from lance_spark.file.schema.field import Field

#: Returns the rows for which a comparison ``(field, op, value)`` can hold, in order; None if
#: unknown.
RangePruner = Callable[[Field, str, Any], "list[range] | None"]


class Condition(Protocol):
    """A condition on rows. Immutable, and can be pickled."""

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The columns that it reads, each as the fields from the top-level field to the column."""

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null."""

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows for which it can hold by statistics; None if they do not decide."""


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


def candidate_ranges(file: DataFileReader, field: Field, op: str, value: Any) -> list[range] | None:
    """Return the rows of a data file for which a comparison can hold, by page statistics.

    Returns None if the file has no statistics of the field.
    """
    if file.version >= (2, 0):
        return None
    from lance_spark.file.v0_1.reader import LegacyFileReader
    from lance_spark.file.v0_1.statistics import prune

    statistics = file.statistics(field.id) if isinstance(file, LegacyFileReader) else None
    return None if statistics is None else prune(statistics, op, value)  # type: ignore[arg-type]


def intersection(left: Sequence[range], right: Sequence[range]) -> list[range]:
    """Return the rows that are in both lists."""
    result: list[range] = []
    first = 0
    for rows in left:
        while first < len(right) and right[first].stop <= rows.start:
            first += 1
        index = first
        while index < len(right) and right[index].start < rows.stop:
            common = range(max(rows.start, right[index].start), min(rows.stop, right[index].stop))
            if common:
                result.append(common)
            index += 1
    return result


def union(lists: Iterable[Sequence[range]]) -> list[range]:
    """Return the rows that are in any of several lists, with adjacent ranges joined."""
    result: list[range] = []
    for rows in sorted((rows for ranges in lists for rows in ranges), key=lambda r: r.start):
        if result and rows.start <= result[-1].stop:
            result[-1] = range(result[-1].start, max(result[-1].stop, rows.stop))
        else:
            result.append(rows)
    return result


def in_all(lists: Iterable[Sequence[range] | None]) -> list[range] | None:
    """Return the rows that are in all known lists. None means an unknown list.

    Returns None if all are unknown.
    """
    result: list[range] | None = None
    for rows in lists:
        if rows is not None:
            result = list(rows) if result is None else intersection(result, rows)
    return result


def in_any(lists: Iterable[Sequence[range] | None]) -> list[range] | None:
    """Return the rows that are in any of several lists; None if one of them is unknown."""
    range_lists: list[Sequence[range]] = []
    for rows in lists:
        if rows is None:
            return None
        range_lists.append(rows)
    return union(range_lists)

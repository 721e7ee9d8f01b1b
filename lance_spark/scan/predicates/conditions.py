"""The interface of conditions that the rows of a scan must meet.

`tuples` implements it for filters in pyarrow's form, `tree` for predicates in Spark's.
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

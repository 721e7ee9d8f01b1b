"""What the rows of a scan have to meet, whatever kind it is of: pyarrow's (`filters`) or Spark's (`predicates`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import flags_of
from lance_spark.file.open import DataFileReader
from lance_spark.file.schema.schema import Field

#: The rows that ``(field, op, value)`` can hold for, in order, or None if nothing is known.
RangePruner = Callable[[Field, str, Any], "list[range] | None"]


class Condition(Protocol):
    """A condition on rows. Immutable, and can be pickled."""

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The columns that it looks at: top-level fields, and their children down to what is meant."""

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch that has the columns whether the condition holds; never null."""

    def candidates(self, statistics: RangePruner) -> list[range] | None:
        """Return the rows that it can hold for, as far as statistics tell; None if they do not."""


def matching(conditions: Sequence[Condition], batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which rows of a batch meet all conditions."""
    met: npt.NDArray[np.bool_] | None = None
    for condition in conditions:
        holds = condition.holds(batch)
        if not holds.true_count:
            return np.zeros(batch.num_rows, np.bool_)
        # Several times as fast as Arrow's own way to numpy.
        bits = np.frombuffer(holds.buffers()[1], np.uint8)
        flags = flags_of(bits, holds.offset, len(holds))
        met = flags if met is None else met & flags
    return np.ones(batch.num_rows, np.bool_) if met is None else met


def top_fields(conditions: Iterable[Condition]) -> list[Field]:
    """Return the top-level fields that conditions look at."""
    return list({path[0].id: path[0] for one in conditions for path in one.paths}.values())


def candidate_ranges(file: DataFileReader, field: Field, op: str, value: Any) -> list[range] | None:
    """Return the rows of a data file that a comparison can hold for; None if the file has no statistics of the field."""
    if file.version >= (2, 0):
        return None
    from lance_spark.file.v0_1.reader import LegacyFileReader
    from lance_spark.file.v0_1.statistics import prune

    statistics = file.statistics(field.id) if isinstance(file, LegacyFileReader) else None
    return None if statistics is None else prune(statistics, op, value)  # type: ignore[arg-type]

"""The rows of a task with the nearest vectors, as ORDER BY of a distance with LIMIT asks for them.

The task reads the vectors with their row numbers first, and then all columns of the rows that
remain. Distances are known as intervals (`vector_distances`): a row remains unless as many rows as
are wanted are certainly before it. So the remaining rows include the first rows, although Spark may
round distances in another way, and may order rows of equal distances by further keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import EXTENSION_NAME
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.vector_distances import MAX_DIMENSION, Distance

if TYPE_CHECKING:
    from lance_spark.scan.task import ScanTask

_Addresses = npt.NDArray[np.uint64]
_Floats = npt.NDArray[np.float64]

#: Rows that are collected before they are compared again.
_COLLECTED_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class NearestRows:
    """The first rows by the distance of their vectors.

    - `field`: A top-level column of fixed-size lists, see `can_measure`.
    - `distance`: From a vector with as many items.
    - `has_more_keys`: Whether other keys order the rows of equal distances.
    - `count`: How many rows are wanted.
    """

    field: Field
    distance: Distance
    descending: bool
    nulls_first: bool
    has_more_keys: bool
    count: int

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that are read of all rows."""
        return (self.field,)

    def addresses(self, task: ScanTask, metrics: ScanMetrics) -> _Addresses:
        """Return the addresses of the first rows of a task, and maybe of more, in any order."""
        read = replace(task, lance_schema=Schema((*self.fields, row_meta.ROW_ADDRESS)))
        rows = _NearRows(self.count)
        nulls: list[_Addresses] = []
        num_nulls = 0
        for batch in read.batches(metrics):
            addresses: _Addresses = batch.column(1).to_numpy()
            low, high = self._intervals(batch.column(0))
            is_null = np.isnan(low)
            rows.add(low[~is_null], high[~is_null], addresses[~is_null])
            if self.has_more_keys or num_nulls < self.count:
                nulls.append(addresses[is_null])
                num_nulls += len(nulls[-1])
        if not self.nulls_first and rows.num_seen >= self.count:
            nulls = []
        return np.concatenate([rows.remaining(), *nulls])

    def _intervals(self, array: pa.Array) -> tuple[_Floats, _Floats]:
        """Return intervals of a key in ascending order; NaN for null."""
        size = array.type.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        if items.null_count:
            is_missing = items.is_null().to_numpy(zero_copy_only=False)
            is_null = is_null | is_missing.reshape(-1, size).any(axis=1)
        if pat.is_float16(items.type):
            items = items.cast(pa.float32())
        items = items.fill_null(0)
        low, high = self.distance.intervals(items.to_numpy().reshape(-1, size))
        if self.descending:
            low, high = -high, -low
        low[is_null] = np.nan
        return low, high


class _NearRows:
    """Rows that may be among the first.

    - `num_seen`: Number of all rows.
    """

    def __init__(self, count: int) -> None:
        self.num_seen = 0
        self._count = count
        #: The least upper ends of all rows, at most as many as rows are wanted.
        self._ends = np.empty(0, np.float64)
        self._lows = [np.empty(0, np.float64)]
        self._addresses: list[_Addresses] = [np.empty(0, np.uint64)]
        self._num_collected = 0

    def add(self, low: _Floats, high: _Floats, addresses: _Addresses) -> None:
        self.num_seen += len(low)
        self._ends = np.concatenate([self._ends, high[high <= self._bound]])
        if len(self._ends) > self._count:
            self._ends = np.partition(self._ends, self._count)[: self._count]
        may_precede = low <= self._bound
        self._lows.append(low[may_precede])
        self._addresses.append(addresses[may_precede])
        self._num_collected += len(self._lows[-1])
        if self._num_collected > max(_COLLECTED_ROWS, 2 * self._count):
            self.remaining()

    def remaining(self) -> _Addresses:
        """Return the addresses of the rows that may be among the first."""
        lows, addresses = np.concatenate(self._lows), np.concatenate(self._addresses)
        may_precede = lows <= self._bound
        self._lows, self._addresses = [lows[may_precede]], [addresses[may_precede]]
        self._num_collected = 0
        return self._addresses[0]

    @property
    def _bound(self) -> float:
        """The key that no row may exceed, once enough rows are known."""
        if len(self._ends) < self._count:
            return np.inf
        return float(self._ends.max(initial=-np.inf))


def can_measure(field: Field, distance: Distance) -> bool:
    """Return whether a column has vectors of floats whose distance can be computed."""
    vector = distance.vector
    if distance.function == "cosine_distance" and not any(vector):
        # All distances are null.
        return False
    dtype = field.to_arrow().type
    return (
        EXTENSION_NAME not in field.metadata
        and field.name not in row_meta.META_FIELDS
        and pat.is_fixed_size_list(dtype)
        and dtype.list_size == len(vector)
        and 0 < len(vector) <= MAX_DIMENSION
        and pat.is_floating(dtype.value_type)
        and all(map(math.isfinite, vector))
    )

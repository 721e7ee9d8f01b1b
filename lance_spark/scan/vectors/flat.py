"""Exact search: the distances of all vectors of some rows.

| queries | how |
| --- | --- |
| of bits, or several vectors for one value | all distances are computed |
| others | products leave out most vectors; the distances of the others are computed exactly |

A row that is not nearer than the `k` best rows before it is dropped at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.scan.vectors.columns import ColumnVectors, VectorType
from lance_spark.scan.vectors.distances import Bounds, exact, measured, step_rows
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.neighbors import Neighbors, NeighborsCollector, joined
from lance_spark.table.rows.u64_segments import UInt64Array

#: Queries that are compared at once.
_QUERIES = 1024
#: Bytes of vectors that are read at once, to measure rows again.
_READ_BYTES = 64 * 1024 * 1024
#: Rows that are collected before the best of them are chosen: the fewer, the fewer are measured
#: exactly.
_COLLECTED = 64
_Limits = npt.NDArray[np.float32]


class FlatSearch:
    """Collects the nearest rows among those that are added.

    Parameters
    ----------
    dtype : VectorType
    metric : Metric
    queries : array of shape (queries, dimension)
        As `VectorType.query` returns them. For multivectors, the vectors of one query.
    k : int
        Most rows of a query.
    lower, upper : float or None
        Only rows with `lower` <= distance < `upper`.
    """

    def __init__(
        self,
        dtype: VectorType,
        metric: Metric,
        queries: Vectors,
        k: int,
        lower: float | None = None,
        upper: float | None = None,
    ) -> None:
        self._dtype, self._metric, self._k = dtype, metric, k
        self._has_lower = lower is not None
        size = len(queries) if dtype.is_multi else _QUERIES
        self._blocks = [
            _Block(metric, queries[first : first + size], first)
            for first in range(0, len(queries), size)
        ]
        num_queries = 1 if dtype.is_multi else len(queries)
        self._rows = NeighborsCollector(num_queries, k, lower, upper, _COLLECTED)

    def add(self, array: pa.Array, ids: UInt64Array, addresses: UInt64Array) -> None:
        """Measure the vectors of rows.

        Parameters
        ----------
        array : pa.Array
            The column.
        ids, addresses : uint64 arrays
            Of the rows. The same array if they are equal.
        """
        vectors = ColumnVectors.of(array, self._dtype)
        if self._dtype.is_multi:
            (block,) = self._blocks
            distances = _multi_distances(self._metric, block.queries, vectors)
            self._rows.add(distances, np.zeros(1, np.int64), ids, addresses)
            return
        num_rows = len(vectors.values)
        for block in self._blocks:
            rows = step_rows(vectors.values, len(block.queries))
            for first in range(0, num_rows, rows):
                self._measure(block, vectors, slice(first, first + rows), ids, addresses)

    def neighbors(self) -> Neighbors:
        """Return the nearest rows."""
        return self._rows.neighbors()

    def _measure(
        self,
        block: _Block,
        vectors: ColumnVectors,
        rows: slice,
        ids: UInt64Array,
        addresses: UInt64Array,
    ) -> None:
        """Measure some vectors, none of which is a multivector."""
        missing = None if vectors.missing is None else vectors.missing[rows]
        row_ids = ids[rows]
        places = row_ids if addresses is ids else addresses[rows]
        if self._metric is Metric.HAMMING:
            distances = measured(self._metric, block.queries, vectors.values[rows])
            if missing is not None:
                distances[:, missing] = np.nan
            self._rows.add(distances, block.numbers, row_ids, places)
            return
        floats = vectors.floats(rows)
        least = block.bounds(floats).least(floats)
        if missing is not None:
            least[missing] = np.nan
        limits = self._rows.limits[block.numbers]
        if not self._has_lower and not self._rows.is_full[block.numbers].all():
            limits = np.minimum(limits, block.first_limits(floats, least, self._k))
        chosen = least <= block.bounds(floats).limits(limits)
        row, query = np.divmod(np.flatnonzero(chosen), len(block.queries))
        if len(row):
            distances = exact(self._metric, block.queries, floats, (query, row))
            self._rows.add_pairs(distances, block.numbers[query], row, row_ids, places)


def measured_again(
    dtype: VectorType,
    metric: Metric,
    queries: Vectors,
    neighbors: Neighbors,
    read: Callable[[UInt64Array], Iterable[tuple[pa.Array, UInt64Array, UInt64Array]]],
) -> Neighbors:
    """Return rows with their distances by their vectors; those without a distance are left out.

    Parameters
    ----------
    dtype, metric, queries
        As for `FlatSearch`.
    neighbors : Neighbors
    read : callable
        Returns the vectors, the ids and the addresses of rows, given their addresses.
    """
    addresses, row = np.unique(neighbors.addresses, return_inverse=True)
    order = np.argsort(row, kind="stable")
    row = row[order]
    step = max(1, _READ_BYTES // dtype.stored_bytes)
    parts = []
    for first in range(0, len(addresses), step):
        start = first
        for array, _, places in read(addresses[first : first + step]):
            stop = start + len(places)
            positions = slice(*np.searchsorted(row, (start, stop)).tolist())
            part = neighbors.at(order[positions])
            vectors = ColumnVectors.of(array, dtype)
            pairs = part.queries.astype(np.int64), row[positions] - start
            if dtype.is_multi:
                distances = _multi_distances(metric, queries, vectors)[pairs]
            else:
                distances = exact(metric, queries, vectors.values, pairs)
                if vectors.missing is not None:
                    distances[vectors.missing[pairs[1]]] = np.nan
            parts.append(replace(part, distances=distances).at(~np.isnan(distances)))
            start = stop
    return joined(parts)


class _Block:
    """Queries that are compared at once."""

    def __init__(self, metric: Metric, queries: Vectors, first: int) -> None:
        self.queries = queries
        self.numbers = np.arange(first, first + len(queries))
        self._metric = metric
        self._bounds: Bounds | None = None

    def bounds(self, vectors: Vectors) -> Bounds:
        """Return the bounds of the queries, for vectors such as the first ones."""
        if self._bounds is None:
            self._bounds = Bounds(self._metric, self.queries, vectors)
        return self._bounds

    def first_limits(self, vectors: Vectors, least: npt.NDArray[np.floating], k: int) -> _Limits:
        """Return distances that `k` of the vectors have or are nearer, for each query."""
        num_vectors, num_queries = least.shape
        limits = np.full(num_queries, np.inf, np.float32)
        if num_vectors < k:
            return limits
        chosen = np.argpartition(least, k - 1, axis=0)[:k]
        query = np.broadcast_to(np.arange(num_queries), chosen.shape)
        pairs = query.reshape(-1), chosen.reshape(-1)
        distances = exact(self._metric, self.queries, vectors, pairs).reshape(chosen.shape)
        # NaN for a query that has fewer vectors.
        farthest: _Limits = np.where(np.isnan(distances), np.inf, distances).max(axis=0)
        return farthest


def _multi_distances(
    metric: Metric, queries: Vectors, vectors: ColumnVectors
) -> npt.NDArray[np.float32]:
    """Return the distances of multivectors: sums of those of the nearest vectors."""
    starts = vectors.starts
    assert starts is not None
    num_rows = len(starts) - 1
    if not len(vectors.values):
        return np.full((1, num_rows), np.nan, np.float32)
    step = step_rows(vectors.values, len(queries))
    parts = [
        measured(metric, queries, vectors.values[first : first + step])
        for first in range(0, len(vectors.values), step)
    ]
    distances = np.concatenate(parts, axis=1)
    has_vectors = np.diff(starts) > 0
    sums = np.full((1, num_rows), np.nan, np.float32)
    # A vector with NaN is not the nearest; with `cosine`, no vector is nearer than 0.
    distances[np.isnan(distances)] = np.inf
    if metric is Metric.COSINE:
        distances[:, ~vectors.values.any(axis=1)] = np.nan
    nearest = np.minimum.reduceat(distances, starts[:-1][has_vectors], axis=1)
    sums[0, has_vectors] = nearest.sum(axis=0)
    if vectors.missing is not None:
        sums[0, vectors.missing] = np.nan
    return sums

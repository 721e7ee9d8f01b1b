"""The rows that are nearest to queries, and how they are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.indexes.vectors.columns import (
    ColumnVectors,
    Int64Array,
    Metric,
    Vectors,
    VectorType,
)
from lance_spark.indexes.vectors.distances import DistanceBounds, exact, measured, step_rows
from lance_spark.table.rows.u64_segments import UInt64Array

#: Rows that are collected before the best of them are chosen, as a rule.
_COLLECTED = 16 * 1024
#: Rows of a query are looked through in advance if they are so many times as many as wanted.
_SCATTERED = 4
#: Least number of groups of rows, of which only the nearest row is looked at.
_GROUPS = 64
#: One distance of this number is looked at to leave out most of the others.
_SAMPLED = 16

Distances = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Neighbors:
    """Rows with their distances from queries. Can be pickled.

    - `queries` (int32 array): Numbers of the queries.
    - `distances` (float32 array): Without NaN.
    - `ids` (uint64 array): Row ids: stable row ids if the table has them, else addresses.
    - `addresses`: Uint64 array.
    """

    queries: npt.NDArray[np.int32]
    distances: npt.NDArray[np.float32]
    ids: UInt64Array
    addresses: UInt64Array

    @classmethod
    def none(cls) -> Neighbors:
        """Return no rows."""
        row_keys = np.empty(0, np.uint64)
        return cls(np.empty(0, np.int32), np.empty(0, np.float32), row_keys, row_keys)

    def __len__(self) -> int:
        return len(self.queries)

    def at(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Neighbors:
        """Return some of the rows, by their numbers or a mask."""
        ids = self.ids[rows]
        addresses = ids if self.addresses is self.ids else self.addresses[rows]
        return Neighbors(self.queries[rows], self.distances[rows], ids, addresses)

    def best(self, k: int) -> Neighbors:
        """Return the nearest rows of each query, by query and distance.

        Of rows with equal distances, the row with the least id is first.

        - `k`: Most rows of a query.
        """
        order = self._order()
        queries = self.queries[order]
        rank = np.arange(len(order))
        # The first row of each query counts from 0.
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = queries[1:] != queries[:-1]
        rank -= np.maximum.accumulate(np.where(is_first, rank, 0))
        return self.at(order[rank < k])

    def _order(self) -> Int64Array:
        """Return the rows by query, distance and id."""
        # Adding 0 turns -0 into 0. The bits of floats are ordered as integers are, but for signs.
        bits = (self.distances + np.float32(0)).view(np.uint32)
        sign = np.uint32(1 << 31)
        bits = np.where(bits & sign, ~bits, bits | sign)
        key = self.queries.astype(np.uint64) << np.uint64(32) | bits
        order = np.argsort(key)
        ordered = key[order]
        is_equal = ordered[1:] == ordered[:-1]
        if is_equal.any():
            tied = np.zeros(len(key), np.bool_)
            tied[1:] = is_equal
            tied[:-1] |= is_equal
            rows = order[tied]
            order[tied] = rows[np.lexsort((self.ids[rows], key[rows]))]
        return order

    def within(self, lower: float | None, upper: float | None) -> Neighbors:
        """Return the rows with `lower` <= distance < `upper`."""
        if lower is None and upper is None:
            return self
        is_within = np.ones(len(self), np.bool_)
        if lower is not None:
            is_within &= self.distances >= np.float32(lower)
        if upper is not None:
            is_within &= self.distances < np.float32(upper)
        return self.at(is_within)


def joined(parts: Sequence[Neighbors]) -> Neighbors:
    """Return the rows of all results."""
    if not parts:
        return Neighbors.none()
    if len(parts) == 1:
        return parts[0]
    ids = np.concatenate([part.ids for part in parts])
    same = all(part.addresses is part.ids for part in parts)
    return Neighbors(
        np.concatenate([part.queries for part in parts]),
        np.concatenate([part.distances for part in parts]),
        ids,
        ids if same else np.concatenate([part.addresses for part in parts]),
    )


def merged(parts: Sequence[Neighbors], k: int) -> Neighbors:
    """Return the nearest rows of each query among several results of different rows."""
    return joined(parts).best(k)


class NeighborsCollector:
    """Collects the nearest rows of queries.

    - `k`: Most rows of a query.
    - `lower`, `upper`: Only rows with `lower` <= distance < `upper`.
    - `most_collected`: Rows that are collected before the best of them are chosen; more, for many
      queries.
    - `limits` (float32 array): For each query, a distance that no other of the nearest rows
      exceeds.
    - `is_full` (bool array): Whether a query has `k` rows.
    """

    def __init__(
        self,
        num_queries: int,
        k: int,
        lower: float | None = None,
        upper: float | None = None,
        most_collected: int = _COLLECTED,
    ) -> None:
        self._k, self.lower, self.upper = k, lower, upper
        self._most_collected = max(most_collected, 2 * k * num_queries)
        limit = np.inf if upper is None else upper
        self.limits = np.full(num_queries, limit, np.float32)
        self.is_full = np.zeros(num_queries, np.bool_)
        self._parts: list[Neighbors] = []
        self._num_collected = self._num_chosen = 0

    def add(
        self,
        distances: Distances,
        queries: npt.NDArray[np.int64],
        ids: UInt64Array,
        addresses: UInt64Array,
    ) -> None:
        """Collect rows by all their distances.

        - `distances` (float32 array of shape (queries, rows)): NaN for no distance.
        - `queries` (int64 array): Numbers of the queries.
        - `ids`, `addresses` (uint64 arrays): Of the rows. The same array if they are equal.
        """
        if len(queries) == 1:
            row = self.near_rows(distances[0], int(queries[0]))
            near, query = row, np.zeros(len(row), np.int64)
        else:
            limits = self.limits[queries]
            if self._leaves_out(len(ids)):
                limits = np.fmin(limits, _last_of(distances, self._k))
                # All rows up to these distances are collected now: others that are farther are not.
                self.limits[queries] = limits
            # Of one dimension: numpy finds few among many in a fifth of the time.
            near = np.flatnonzero(distances <= limits[:, None])
            query, row = np.divmod(near, max(1, distances.shape[1]))
        self.add_pairs(distances.reshape(-1)[near], queries[query], row, ids, addresses)

    def near_rows(self, distances: Distances, query: int) -> Int64Array:
        """Return the rows that may be among the nearest of a query, for `add_pairs`.

        - `distances` (float32 array): Of all rows of the query that are to be collected now. NaN
          for no distance.
        - `query`: Number of the query.
        """
        limit = self.limits[query]
        if not self._leaves_out(len(distances)):
            return np.flatnonzero(distances <= limit)
        if len(distances) > _SAMPLED * self._k:
            sample = np.partition(distances[::_SAMPLED], self._k - 1)
            # At least as many rows are as near as the nearest ones of a sample.
            limit = np.fmin(limit, sample[self._k - 1])
        near = np.flatnonzero(distances <= limit)
        if len(near) > self._k:
            near_distances = distances[near]
            limit = np.partition(near_distances, self._k - 1)[self._k - 1]
            near = near[near_distances <= limit]
        if len(near) >= self._k:
            # All rows up to this distance are collected now: others that are farther are not.
            self.limits[query] = limit
        return near

    def _leaves_out(self, num_rows: int) -> bool:
        """Return whether it is worthwhile to leave out rows before they are collected."""
        return self.lower is None and num_rows >= _SCATTERED * self._k

    def add_pairs(
        self,
        distances: Distances,
        queries: npt.NDArray[np.int64],
        rows: Int64Array,
        ids: UInt64Array,
        addresses: UInt64Array,
    ) -> None:
        """Collect pairs of a query and a row, by the number of the row among `ids`."""
        is_near = distances <= self.limits[queries]
        if not is_near.all():
            distances, queries, rows = distances[is_near], queries[is_near], rows[is_near]
        row_ids = ids[rows]
        places = row_ids if addresses is ids else addresses[rows]
        part = Neighbors(queries.astype(np.int32), distances, row_ids, places)
        part = part.within(self.lower, self.upper)
        if not len(part):
            return
        self._parts.append(part)
        self._num_collected += len(part)
        few = self._most_collected
        if not self.is_full.any():
            # No row is left out yet. It takes `k` rows, and as many again if these did not do.
            few = min(few, max(self._k, 2 * self._num_chosen) - 1)
        if self._num_collected > few:
            self._choose()

    def neighbors(self) -> Neighbors:
        """Return the nearest rows."""
        self._choose()
        return self._parts[0]

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the number of rows of each query."""
        self._choose()
        return np.bincount(self._parts[0].queries, minlength=len(self.limits))

    def _choose(self) -> None:
        """Keep the nearest rows only."""
        best = joined(self._parts).best(self._k)
        self._parts, self._num_collected, self._num_chosen = [best], len(best), len(best)
        counts = np.bincount(best.queries, minlength=len(self.limits))
        self.is_full = full = counts == self._k
        # Rows of a query are together, the nearest first.
        last = np.cumsum(counts) - 1
        self.limits[full] = best.distances[last[full]]


def _last_of(distances: Distances, count: int) -> Distances:
    """Return for each query a distance that at least `count` rows do not exceed.

    The least distances of groups of rows belong to different rows. NaN if there are too few.
    """
    num_queries, num_rows = distances.shape
    num_groups = min(num_rows, max(_GROUPS, _SCATTERED * count))
    size = num_rows // num_groups
    groups = distances[:, : size * num_groups].reshape(num_queries, size, num_groups)
    least = np.fmin.reduce(groups, axis=1)
    last: Distances = np.partition(least, count - 1, axis=1)[:, count - 1]
    return last


# --------------------------------------------------------------------------------------------------
# Exact search: the distances of all vectors of some rows.
#
# | queries | how |
# | --- | --- |
# | of bits, or several vectors for one value | all distances are computed |
# | others | products leave out most vectors; the distances of the others are computed exactly |
#
# A row that is not nearer than the `k` best rows before it is dropped at once.

#: Queries that are compared at once.
_QUERIES = 1024
#: Bytes of vectors that are read at once, to measure rows again.
_READ_BYTES = 64 * 1024 * 1024
#: Rows that are collected before the best of them are chosen: the fewer, the fewer are measured
#: exactly.
_COLLECTED_OF_BATCH = 64
_Limits = npt.NDArray[np.float32]


class FlatSearch:
    """Collects the nearest rows among those that are added.

    - `queries` (array of shape (queries, dimension)): As `VectorType.query` returns them. For
      multivectors, the vectors of one query.
    - `k`: Most rows of a query.
    - `lower`, `upper`: Only rows with `lower` <= distance < `upper`.
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
        self._rows = NeighborsCollector(num_queries, k, lower, upper, _COLLECTED_OF_BATCH)

    def add(self, array: pa.Array, ids: UInt64Array, addresses: UInt64Array) -> None:
        """Measure the vectors of rows.

        - `array`: The column.
        - `ids`, `addresses` (uint64 arrays): Of the rows. The same array if they are equal.
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

    - `dtype`, `metric`, `queries`: As for `FlatSearch`.
    - `read`: Returns the vectors, the ids and the addresses of rows, given their addresses.
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
        self._bounds: DistanceBounds | None = None

    def bounds(self, vectors: Vectors) -> DistanceBounds:
        """Return the bounds of the queries, for vectors such as the first ones."""
        if self._bounds is None:
            self._bounds = DistanceBounds(self._metric, self.queries, vectors)
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

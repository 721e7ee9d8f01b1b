"""Approximate search: the rows of the partitions of an index that are near queries.

A partition is measured for all queries that search it at once. Row ids of the nearest vectors are
looked up afterwards: rows can be deleted, or have another vector now. If too few rows remain, or if
rows must meet a prefilter, the rows of a partition are looked up before they are measured. A
post-filter, too, is evaluated on the nearest rows first, and on all rows if too few of these meet
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lance_spark.indexes.row_sets import MovedRows
from lance_spark.indexes.vectors.columns import Int64Array, Ivf, Metric, Vectors, VectorType
from lance_spark.indexes.vectors.distances import measured, normalized
from lance_spark.indexes.vectors.neighbors import Neighbors, NeighborsCollector, joined
from lance_spark.indexes.vectors.quantizers.quantizer import LEAST_PAIRS, Partition
from lance_spark.indexes.vectors.query import NearestQuery
from lance_spark.indexes.vectors.segment import VectorSegment
from lance_spark.table.rows.addresses import FindRows
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Which partitions of a segment are searched: those whose centroids are nearest to a query.
#
# The least number of partitions is `minimum_nprobes`. By default it grows to the number of
# centroids that are about as near as the nearest one, as in pylance: their distances are within a
# margin of the least distance, and at least and at most some number of partitions is searched.
# These numbers depend on the metric and on `k`. With `hamming`, all partitions are searched by
# default.

_Floats = npt.NDArray[np.float32]

#: The greatest `k` of each column of the tables below.
_MARGIN_KS = (1, 10, 100, 200, 500, 1000, 1 << 62)
#: For a metric and `k`: margin as a part of the least distance, and least and most partitions.
_MARGINS = {
    Metric.L2: (
        (0.2175, 0.265, 0.33, 0.375, 0.3725, 0.4175, 0.4175),
        (5, 6, 11, 15, 22, 29, 98),
        (19, 24, 38, 56, 81, 93, 238),
    ),
    Metric.COSINE: (
        (0.235, 0.2875, 0.38, 0.415, 0.45, 0.47, 0.47),
        (3, 8, 7, 18, 28, 34, 104),
        (50, 77, 106, 156, 192, 248, 447),
    ),
    Metric.DOT: (
        (0.14, 0.055, 0.0625, 0.0675, 0.07, 0.0725, 0.0725),
        (56, 144, 200, 211, 244, 279, 517),
        (112, 432, 768, 833, 971, 1092, 1500),
    ),
}
#: The part of the partitions that a search has by default.
_DEFAULT_EFFORT = 0.5
_ROUNDING = 1e-9


def ranked(ivf: Ivf, metric: Metric, queries: Vectors) -> tuple[Int64Array, _Floats]:
    """Return the partitions in the order of their distances from each query.

    Parameters
    ----------
    ivf : Ivf
    metric : Metric
    queries : array of shape (queries, dimension)
        With `cosine`, of length 1.

    Returns
    -------
    int64 array of shape (queries, partitions)
        Numbers of the partitions.
    float32 array of the same shape
        Distances of their centroids, increasing.
    """
    routed = Metric.L2 if metric is Metric.COSINE else metric
    distances = measured(routed, queries, ivf.centroids)
    order = np.argsort(distances, axis=1, kind="stable")
    return order, np.take_along_axis(distances, order, axis=1)


def first_probes(query: NearestQuery, metric: Metric, distances: _Floats) -> Int64Array:
    """Return how many partitions are searched first, for each query.

    - `distances` (float32 array of shape (queries, partitions)): As `ranked` returns them.
    """
    count = distances.shape[1]
    maximum = count if query.maximum_nprobes is None else min(count, query.maximum_nprobes)
    least = min(query.minimum_nprobes, maximum)
    if query.maximum_nprobes == query.minimum_nprobes and query.search_effort is None:
        return np.full(len(distances), least, np.int64)
    auto = _automatic(query.k, metric, distances)
    auto = np.clip(auto, least, maximum)
    effort = query.search_effort
    if effort is None or effort == _DEFAULT_EFFORT:
        return auto
    # The default is half way between the least and all, as powers.
    low = max(1, least)
    if effort < _DEFAULT_EFFORT:
        start, end, part = low, np.maximum(auto, low), effort / _DEFAULT_EFFORT
    else:
        start, end, part = np.maximum(auto, low), maximum, effort / _DEFAULT_EFFORT - 1
    between = np.ceil(start * (end / np.maximum(start, 1)) ** part - _ROUNDING)
    first: Int64Array = np.clip(between.astype(np.int64), min(low, maximum), maximum)
    return first


def probed(ivf: Ivf, metric: Metric, query: NearestQuery, vectors: Vectors) -> Int64Array:
    """Return the numbers of the partitions that any of the queries searches first.

    - `vectors` (array of shape (queries, dimension)): With `cosine`, of length 1.
    """
    order, distances = ranked(ivf, metric, vectors)
    first = first_probes(query, metric, distances)
    return np.unique(order[np.arange(order.shape[1]) < first[:, None]])


def probes_of_shares(
    query: NearestQuery, first: Int64Array, order: Int64Array, lengths: Int64Array, k: int
) -> Int64Array:
    """Return how many partitions are searched first, by all shares of a segment together.

    A share does not know how many rows others find, so the partitions have at least `k` rows.

    - `first` (int64 array): As `first_probes` returns them.
    - `order` (int64 array of shape (queries, partitions)): As `ranked` returns it.
    - `lengths` (int64 array): Rows of each partition.
    """
    rows = np.cumsum(lengths[order], axis=1)
    result: Int64Array = np.maximum(first, (rows < k).sum(axis=1) + 1)
    most = len(lengths) if query.maximum_nprobes is None else query.maximum_nprobes
    return np.minimum(result, most)


def _automatic(k: int, metric: Metric, distances: _Floats) -> Int64Array:
    """Return how many partitions are about as near as the nearest one."""
    if metric not in _MARGINS:
        return np.full(len(distances), distances.shape[1], np.int64)
    margins, least, most = _MARGINS[metric]
    place = int(np.searchsorted(_MARGIN_KS, min(k, _MARGIN_KS[-1])))
    wide = distances.astype(np.float64)
    nearest = wide[:, :1]
    scale = np.abs(1 - nearest) if metric is Metric.DOT else nearest
    with np.errstate(invalid="ignore"):
        counts = (wide - nearest <= np.float32(margins[place]) * scale).sum(axis=1)
    result: Int64Array = np.clip(counts, least[place], most[place])
    return result


# --------------------------------------------------------------------------------------------------
# Measures the rows of a partition for the queries that search it.
#
# A few queries measure all rows. Of many, each leaves out the rows that cannot be among its nearest
# (`partial`), as soon as it has a limit: the distance of the farthest row that it would keep.

#: Queries that are measured at once: their distances from a step of rows stay in the caches.
_QUERIES = 512
#: With more queries than this number, most rows of a partition are left out before.
FEW_QUERIES = 16
#: If a query has too few rows yet, one row of so many is measured first, of at least so many rows.
_SEEDS, _SEEDED_ROWS = 8, 4096


@dataclass(frozen=True, slots=True)
class MeasuredPartition:
    """The rows of a partition, and the collector that gets those that are near.

    - `vectors` (array of shape (queries, dimension)): All queries of the search; methods get
      numbers of these.
    - `ids`, `places` (uint64 arrays): Of all rows of the partition, as `NeighborsCollector.add`
      gets them.
    """

    collector: NeighborsCollector
    partition: Partition
    vectors: Vectors
    ids: UInt64Array
    places: UInt64Array

    def collect(self, queries: Int64Array, rows: Int64Array) -> None:
        """Collect rows for queries.

        - `queries` (int64 array): Numbers of queries.
        - `rows` (int64 array): Numbers of rows of the partition, increasing.
        """
        if len(queries) <= FEW_QUERIES:
            self._collect_all(queries, rows)
            return
        has_limit = np.isfinite(self.collector.limits[queries])
        self._collect_near(queries[has_limit], rows)
        others = queries[~has_limit]
        if len(rows) < _SEEDED_ROWS:
            self._collect_all(others, rows)
            return
        # Some of the rows give the limits by which the others are left out.
        self._collect_all(others, rows[::_SEEDS])
        self._collect_near(others, np.delete(rows, slice(None, None, _SEEDS)))

    def _collect_all(self, queries: Int64Array, rows: Int64Array) -> None:
        """Collect rows by all their distances."""
        ids, places = self.ids, self.places
        chosen = None
        if len(rows) < len(ids):
            chosen, chosen_ids = rows, ids[rows]
            ids, places = chosen_ids, chosen_ids if places is ids else places[rows]
        for first in range(0, len(queries), _QUERIES):
            block = queries[first : first + _QUERIES]
            distances = self.partition.distances(self.vectors[block], chosen)
            self.collector.add(distances, block, ids, places)

    def _collect_near(self, queries: Int64Array, rows: Int64Array) -> None:
        """Collect rows; those that cannot be among the nearest are left out first."""
        decoded = None
        if len(queries) * len(rows) >= LEAST_PAIRS:
            decoded = self.partition.decoded(self.vectors[queries], rows)
        if decoded is not None:
            limits = self.collector.limits
            groups, others = decoded.groups(limits[queries])
            for query, row, distances in decoded.near(groups, lambda some: limits[queries[some]]):
                self.collector.add_pairs(distances, queries[query], row, self.ids, self.places)
            queries = queries[others]
        self._collect_all(queries, rows)


# --------------------------------------------------------------------------------------------------
# Approximate search: the rows of the partitions of an index that are near queries.

#: How many more rows than are wanted are found before they are looked up.
_MORE_FACTOR, _MORE_ROWS = 2, 64
#: Partitions that are searched in another round, as a divisor of those that were.
_LATER = 8
#: Partitions that are in memory at once.
_PARTITIONS = 64
#: How many times more rows are found for each vector of a multivector.
_MULTI_FACTOR = 10


@dataclass(frozen=True, slots=True)
class PostFilter:
    """A condition that costs much for all rows, and little for the rows that an index finds.

    - `meet`: Returns which of some rows, by their addresses, meet it; None if it costs less to
      evaluate it on all rows.
    - `passing`: Returns the increasing addresses of all rows that meet it and the prefilter; None
      if all do.
    """

    meet: Callable[[UInt64Array], npt.NDArray[np.bool_] | None]
    passing: Callable[[], UInt64Array | None]


@dataclass(frozen=True, slots=True)
class LiveRows:
    """The rows of segments that are live, and their addresses.

    - `find`: Finds rows by their ids.
    - `covered`: The fragments of the version that the index covers.
    - `passing` (uint64 array or None): Increasing addresses of the rows that meet the prefilter.
    - `all_live`: Whether all rows of the segments are live, and none is left out by a post-filter.
    - `hidden` (uint64 array or None): Addresses of rows that the segments have old vectors of.
    - `post_filter`: What rows must meet, too. `addresses` does not evaluate it.
    """

    find: FindRows
    moved: MovedRows
    covered: BitMap
    stable_row_ids: bool
    passing: UInt64Array | None
    all_live: bool = False
    hidden: UInt64Array | None = None
    post_filter: PostFilter | None = None

    def complete(self) -> LiveRows:
        """Return the rows that may be found, with the post-filter evaluated on all rows."""
        if self.post_filter is None:
            return self
        return replace(self, passing=self.post_filter.passing(), post_filter=None)

    def addresses(
        self, ids: UInt64Array, fragments: BitMap
    ) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the addresses of rows of a segment, and which of them may be found.

        - `ids` (uint64 array): As the segment has them.
        - `fragments`: The fragments of the segment.
        """
        addresses, is_valid = self.moved.live_addresses(
            self.find, ids, fragments, self.covered, stable_row_ids=self.stable_row_ids
        )
        if self.hidden is not None:
            is_valid &= ~np.isin(addresses, self.hidden)
        if self.passing is not None:
            if not len(self.passing):
                return addresses, np.zeros(len(ids), np.bool_)
            place = np.searchsorted(self.passing, addresses)
            place = np.minimum(place, len(self.passing) - 1)
            is_valid &= self.passing[place] == addresses
        return addresses, is_valid


#: An open segment, the fragments that it covers, and the share of its partitions.
OpenedSegment = tuple[VectorSegment, BitMap, tuple[int, int]]


class VectorIndexSearch:
    """Searches segments of an index.

    - `vectors` (array of shape (queries, dimension)): As `VectorType.query` returns them.
    """

    def __init__(
        self,
        query: NearestQuery,
        dtype: VectorType,
        vectors: Vectors,
        live: LiveRows,
        segments: Iterable[OpenedSegment],
    ) -> None:
        self._query, self._dtype, self._live = query, dtype, live
        self._segments = [
            _Segment(*opened, query, normalized(vectors) if is_cosine else vectors)
            for opened in segments
            for is_cosine in [opened[0].metric is Metric.COSINE]
        ]
        self._num_queries = len(vectors)

    def neighbors(
        self, k: int, lower: float | None = None, upper: float | None = None
    ) -> Neighbors:
        """Return the nearest rows.

        - `k`: Most rows of a query.
        - `lower`, `upper`: Only rows with `lower` <= distance < `upper`.
        """
        if self._dtype.is_multi:
            return self._nearest_multivectors(k, lower, upper)
        return self._nearest(k, lower, upper).best(k)

    def _nearest_multivectors(self, k: int, lower: float | None, upper: float | None) -> Neighbors:
        """Return the nearest rows of a query of several vectors; see `neighbors`."""
        count = self._query.k * _MULTI_FACTOR
        most = sum(int(segment.opened.ivf.lengths.sum()) for segment in self._segments)
        if self._query.ef is not None:
            # A graph finds no more rows.
            most = min(most, self._query.ef)
        while True:
            vectors = self._nearest(count).best(count)
            rows = _of_multivectors(vectors, self._num_queries).within(lower, upper).best(k)
            if lower is None or len(rows) >= k or count >= most:
                return rows
            # The vectors so far can all be of rows that are too near.
            count = min(_MULTI_FACTOR * count, most)

    def _nearest(self, k: int, lower: float | None = None, upper: float | None = None) -> Neighbors:
        post_filter = self._live.post_filter
        # A graph finds other rows if some are left out before.
        is_exact = post_filter is None or not any(part.opened.has_graphs for part in self._segments)
        if is_exact and (post_filter is not None or self._live.passing is None):
            count = k if self._live.all_live else _MORE_FACTOR * k + _MORE_ROWS
            neighbors, is_complete = self._looked_up(k, count, lower, upper)
            if is_complete:
                return neighbors
        live = self._live.complete()
        collector = NeighborsCollector(self._num_queries, k, lower, upper)
        for segment in self._segments:
            segment.search_first(collector, live, k)
        self._search_later(collector, live, k)
        return collector.neighbors()

    def _looked_up(
        self, k: int, count: int, lower: float | None, upper: float | None
    ) -> tuple[Neighbors, bool]:
        """Return the live rows among the nearest vectors, and whether there are enough.

        They meet the post-filter. No rows are returned if it is to be evaluated on all rows.
        """
        parts = []
        num_searched = np.zeros(self._num_queries, np.int64)
        counted = self._live.all_live and lower is None and upper is None
        measured = None if self._live.passing is None else self._live
        for segment in self._segments:
            collector = NeighborsCollector(self._num_queries, count, lower, upper)
            segment.search_first(collector, measured, k)
            parts.append(
                _looked_up(
                    collector.neighbors(),
                    self._num_queries,
                    segment.opened,
                    segment.fragments,
                    self._live,
                    count,
                )
            )
            num_searched += segment.has_more(counted)
        rows = [alive for alive, _ in parts]
        if self._live.post_filter is not None:
            meets = self._live.post_filter.meet(np.concatenate([part.addresses for part in rows]))
            if meets is None:
                return Neighbors.none(), False
            ends = np.cumsum([len(part) for part in rows])
            rows = [
                part.at(flags) for part, flags in zip(rows, np.split(meets, ends[:-1]), strict=True)
            ]
        is_complete = np.ones(self._num_queries, np.bool_)
        num_live = np.zeros(self._num_queries, np.int64)
        for alive, (_, may_lack) in zip(rows, parts, strict=True):
            counts = np.bincount(alive.queries, minlength=self._num_queries)
            is_complete &= ~may_lack | (counts >= k)
            num_live += counts
        enough = is_complete & ((num_live >= k) | (num_searched == 0))
        return joined(rows), bool(enough.all())

    def _search_later(self, collector: NeighborsCollector, live: LiveRows, k: int) -> None:
        """Search further partitions while queries have too few rows."""
        while True:
            lacking = collector.counts() < k
            searched = [
                segment.search_next(collector, live, lacking, k) for segment in self._segments
            ]
            if not any(searched):
                return


class _Segment:
    """The search of one segment."""

    def __init__(
        self,
        opened: VectorSegment,
        fragments: BitMap,
        share: tuple[int, int],
        query: NearestQuery,
        vectors: Vectors,
    ) -> None:
        self.opened, self.fragments = opened, fragments
        self._query, self._vectors = query, vectors
        self._order, distances = ranked(opened.ivf, opened.metric, vectors)
        self._first = first_probes(query, opened.metric, distances)
        count = opened.ivf.num_partitions
        self._most = count if query.maximum_nprobes is None else min(count, query.maximum_nprobes)
        self._share = share
        #: How many of its partitions each query has searched.
        self._done = np.zeros(len(vectors), np.int64)

    def has_more(self, counted: bool) -> npt.NDArray[np.bool_]:
        """Return for which queries there are more partitions to search.

        - `counted`: Whether all rows of a partition can be found.
        """
        # One share does not know how many rows the others find. By the sizes of the partitions, the
        # first ones of all shares have enough.
        return (self._done < self._most) & (self._share[1] == 1 or not counted)

    def search_first(self, collector: NeighborsCollector, live: LiveRows | None, k: int) -> None:
        """Search the first partitions of all queries.

        - `live`: If set, only rows that may be found are measured.
        - `k`: Rows that a graph has to find.
        """
        self._done[:] = 0
        first = self._first
        if self._share[1] > 1:
            lengths = self.opened.ivf.lengths
            first = probes_of_shares(self._query, first, self._order, lengths, k)
        if len(self._vectors) > FEW_QUERIES and not self.opened.has_graphs:
            # The nearest rows are most often in the nearest partition. The others have few.
            nearest = (self._order % self._share[1] == self._share[0]).argmax(axis=1) + 1
            self._search(np.minimum(first, nearest), collector, live, k)
        self._search(first, collector, live, k)

    def search_next(
        self, collector: NeighborsCollector, live: LiveRows, lacking: npt.NDArray[np.bool_], k: int
    ) -> bool:
        """Search further partitions for some queries; return whether there were any."""
        more = np.where(lacking, self._done + np.maximum(1, self._done // _LATER), self._done)
        more = np.minimum(more, self._most)
        if (more <= self._done).all():
            return False
        self._search(more, collector, live, k)
        return True

    def _search(
        self, stops: Int64Array, collector: NeighborsCollector, live: LiveRows | None, k: int
    ) -> None:
        """Search the partitions before some place in the order of each query."""
        stops = np.minimum(stops, self._most)
        rank = np.arange(self._order.shape[1])
        is_next = (rank >= self._done[:, None]) & (rank < stops[:, None])
        query, place = np.nonzero(is_next)
        number = self._order[query, place]
        in_share = number % self._share[1] == self._share[0]
        search_pairs(
            self.opened,
            self.fragments,
            self._vectors,
            (query[in_share], number[in_share]),
            collector,
            live,
            k,
            self._query.ef,
        )
        self._done = np.maximum(self._done, stops)


def search_pairs(
    opened: VectorSegment,
    fragments: BitMap,
    vectors: Vectors,
    pairs: tuple[Int64Array, Int64Array],
    collector: NeighborsCollector,
    live: LiveRows | None,
    k: int,
    ef: int | None,
) -> None:
    """Collect the rows of some partitions, each of which is read once.

    - `fragments`: The fragments that the segment covers.
    - `vectors` (array of shape (queries, dimension)): With `cosine`, of length 1.
    - `pairs` (tuple of int64 arrays): Numbers of queries, and of the partition that each of them
      searches.
    - `collector`: Gets row ids in place of addresses if `live` is None.
    - `live`: If set, only rows that may be found are measured.
    - `k`: Rows that a graph has to find.
    - `ef`: Rows that a graph search keeps.
    """
    query, number = pairs
    has_rows = opened.ivf.lengths[number] > 0
    query, number = query[has_rows], number[has_rows]
    # All queries of a partition are together.
    order = np.argsort(number, kind="stable")
    query, number = query[order], number[order]
    numbers, starts = np.unique(number, return_index=True)
    groups = np.split(query, starts[1:]) if len(numbers) else []
    graphs = opened.graphs
    for first in range(0, len(numbers), _PARTITIONS):
        block = numbers[first : first + _PARTITIONS].tolist()
        if graphs is None and len(vectors) == 1:
            _measure_one(collector, opened.partitions(block), vectors, fragments, live)
            continue
        opened_graphs = [None] * len(block) if graphs is None else graphs.open(block)
        partitions = zip(groups[first:], opened_graphs, opened.partitions(block), strict=False)
        for queries, graph, (ids, partition) in partitions:
            passing, places = None, ids
            if live is not None:
                places, passing = live.addresses(ids, fragments)
                if not passing.any():
                    continue
            if graph is None:
                rows = np.arange(len(ids)) if passing is None else np.flatnonzero(passing)
                measured = MeasuredPartition(collector, partition, vectors, ids, places)
                measured.collect(queries, rows)
                continue
            for query_number in queries.tolist():
                # The nearest rows of a graph can all be out of the bounds.
                rows, distances = graph.search(
                    partition,
                    vectors[query_number],
                    k,
                    ef=ef,
                    passing=passing,
                    lower=collector.lower,
                    upper=collector.upper,
                )
                query_numbers = np.full(len(rows), query_number, np.int64)
                collector.add_pairs(distances, query_numbers, rows, ids, places)


def _looked_up(
    neighbors: Neighbors,
    num_queries: int,
    opened: VectorSegment,
    fragments: BitMap,
    live: LiveRows,
    count: int,
) -> tuple[Neighbors, npt.NDArray[np.bool_]]:
    """Return the live rows among the nearest rows, and which queries may lack rows.

    - `neighbors`: With row ids in place of addresses.
    - `count`: The most rows that were collected for a query: others are farther.
    """
    addresses, is_valid = live.addresses(neighbors.ids, fragments)
    alive = Neighbors(neighbors.queries, neighbors.distances, neighbors.ids, addresses).at(is_valid)
    num_found = np.bincount(neighbors.queries, minlength=num_queries)
    if opened.has_graphs:
        # A graph finds some rows only, and others if these are left out.
        return alive, num_found > np.bincount(alive.queries, minlength=num_queries)
    return alive, num_found == count


def _measure_one(
    collector: NeighborsCollector,
    partitions: Sequence[tuple[UInt64Array, Partition]],
    vectors: Vectors,
    fragments: BitMap,
    live: LiveRows | None,
) -> None:
    """Collect the rows of the partitions of one query together: most of them are left out."""
    if not partitions:
        return
    distances = np.concatenate([partition.distances(vectors)[0] for _, partition in partitions])
    query = np.zeros(1, np.int64)
    if live is not None:
        ids = np.concatenate([part for part, _ in partitions])
        places, is_valid = live.addresses(ids, fragments)
        distances[~is_valid] = np.nan
        collector.add(distances[None], query, ids, places)
        return
    near = collector.near_rows(distances, 0)
    ends = np.cumsum([len(part) for part, _ in partitions])
    pieces = zip(np.split(near, np.searchsorted(near, ends[:-1])), ends, partitions, strict=True)
    ids = np.concatenate([part[rows - (end - len(part))] for rows, end, (part, _) in pieces])
    every = np.arange(len(near))
    collector.add_pairs(distances[near], query.repeat(len(near)), every, ids, ids)


def _of_multivectors(neighbors: Neighbors, num_vectors: int) -> Neighbors:
    """Return rows by the sum of the distances of their nearest vectors from those of the query.

    A row that has none of the nearest vectors is as far as the farthest of them.
    """
    if not len(neighbors):
        return Neighbors.none()
    best = neighbors.at(np.lexsort((neighbors.distances, neighbors.ids, neighbors.queries)))
    first = np.ones(len(best), np.bool_)
    first[1:] = (best.queries[1:] != best.queries[:-1]) | (best.ids[1:] != best.ids[:-1])
    best = best.at(first)
    ids, index, place = np.unique(best.ids, return_index=True, return_inverse=True)
    sums = np.zeros(len(ids), np.float64)
    for number in range(num_vectors):
        all_distances = neighbors.distances[neighbors.queries == number]
        if not len(all_distances):
            continue
        distances = np.full(len(ids), all_distances.max(), np.float64)
        is_of_vector = best.queries == number
        distances[place[is_of_vector]] = best.distances[is_of_vector]
        sums += distances
    return Neighbors(
        np.zeros(len(ids), np.int32), sums.astype(np.float32), ids, best.addresses[index]
    )

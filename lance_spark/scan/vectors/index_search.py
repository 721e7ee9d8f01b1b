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

from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.scan.vectors.columns import VectorType
from lance_spark.scan.vectors.distances import normalized
from lance_spark.scan.vectors.files.segment import VectorSegment
from lance_spark.scan.vectors.ivf import Int64Array, Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.neighbors import Neighbors, NeighborsCollector, joined
from lance_spark.scan.vectors.probes import first_probes, probes_of_shares, ranked
from lance_spark.scan.vectors.quantizers.measuring import FEW_QUERIES, MeasuredPartition
from lance_spark.scan.vectors.quantizers.quantizer import Partition
from lance_spark.scan.vectors.query import NearestQuery
from lance_spark.table.rows.index import FindRows
from lance_spark.table.rows.u64_segments import UInt64Array

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

    Attributes
    ----------
    meet : callable
        Returns which of some rows, by their addresses, meet it; None if it costs less to evaluate
        it on all rows.
    passing : callable
        Returns the increasing addresses of all rows that meet it and the prefilter; None if all do.
    """

    meet: Callable[[UInt64Array], npt.NDArray[np.bool_] | None]
    passing: Callable[[], UInt64Array | None]


@dataclass(frozen=True, slots=True)
class LiveRows:
    """The rows of segments that are live, and their addresses.

    Attributes
    ----------
    find : callable
        Finds rows by their ids.
    moved : MovedRows
    covered : BitMap
        The fragments of the version that the index covers.
    stable_row_ids : bool
    passing : uint64 array or None
        Increasing addresses of the rows that meet the prefilter.
    all_live : bool
        Whether all rows of the segments are live, and none is left out by a post-filter.
    hidden : uint64 array or None
        Addresses of rows that the segments have old vectors of.
    post_filter : PostFilter or None
        What rows must meet, too. `addresses` does not evaluate it.
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

        Parameters
        ----------
        ids : uint64 array
            As the segment has them.
        fragments : BitMap
            The fragments of the segment.
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


class IndexSearch:
    """Searches segments of an index.

    Parameters
    ----------
    query : NearestQuery
    dtype : VectorType
    vectors : array of shape (queries, dimension)
        As `VectorType.query` returns them.
    live : LiveRows
    segments : iterable of OpenedSegment
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

        Parameters
        ----------
        k : int
            Most rows of a query.
        lower, upper : float or None
            Only rows with `lower` <= distance < `upper`.
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
    """The search of one segment.

    Attributes
    ----------
    opened : VectorSegment
    fragments : BitMap
    """

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

        Parameters
        ----------
        counted : bool
            Whether all rows of a partition can be found.
        """
        # One share does not know how many rows the others find. By the sizes of the partitions, the
        # first ones of all shares have enough.
        return (self._done < self._most) & (self._share[1] == 1 or not counted)

    def search_first(self, collector: NeighborsCollector, live: LiveRows | None, k: int) -> None:
        """Search the first partitions of all queries.

        Parameters
        ----------
        collector : NeighborsCollector
        live : LiveRows, optional
            If set, only rows that may be found are measured.
        k : int
            Rows that a graph has to find.
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

    Parameters
    ----------
    opened : VectorSegment
    fragments : BitMap
        The fragments that the segment covers.
    vectors : array of shape (queries, dimension)
        With `cosine`, of length 1.
    pairs : tuple of int64 arrays
        Numbers of queries, and of the partition that each of them searches.
    collector : NeighborsCollector
        Gets row ids in place of addresses if `live` is None.
    live : LiveRows, optional
        If set, only rows that may be found are measured.
    k : int
        Rows that a graph has to find.
    ef : int, optional
        Rows that a graph search keeps.
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

    Parameters
    ----------
    neighbors : Neighbors
        With row ids in place of addresses.
    count : int
        The most rows that were collected for a query: others are farther.
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

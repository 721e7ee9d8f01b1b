"""The slots of a nearest-neighbour join: parts of a table, each of which one task searches.

| slot | what it has | which queries it gets |
| --- | --- | --- |
| of an index | some partitions of a segment | a group of those that search one of them |
| of rows | ranges of rows of fragments, about 64 MiB of vectors | all |
| of overlaid rows | rows that the index has old vectors of, of some fragments | all |

A task reads a slot once for many queries. Several tasks read a small segment, each for a group of
queries. So the work is divided evenly, even if most queries search the same partitions. The rows
of the nearest partitions show early which other partitions are too far. Distances that are not
exact, or not comparable with others, are measured again for the rows that remain of all slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.errors import InvalidInputError
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.plan import pack
from lance_spark.scan.pruning.narrowing import narrowed
from lance_spark.scan.task import FragmentSlice
from lance_spark.scan.vectors.distances import normalized
from lance_spark.scan.vectors.flat import measured_again
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.neighbors import Neighbors
from lance_spark.scan.vectors.probes import first_probes, probes_of_shares, ranked
from lance_spark.scan.vectors.search import VectorRows
from lance_spark.spark.table.jobs.join_rows import NEIGHBOR_BYTES
from lance_spark.table.rows.index import OFFSET_BITS

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.scan.vectors.files.searched import SearchedSegment
    from lance_spark.scan.vectors.ivf import Int64Array, Vectors
    from lance_spark.scan.vectors.search import VectorSearch
    from lance_spark.scan.vectors.task import VectorScanTask
    from lance_spark.table.fragments.fragment import Fragment
    from lance_spark.table.rows.u64_segments import UInt64Array

#: Bytes of the vectors of a slot of rows.
_SLOT_BYTES = 64 * 1024 * 1024
#: Most rows of a segment in a slot on average, and least ones of a slot that another core is worth.
_SLOT_ROWS, _LEAST_SLOT_ROWS = 1 << 22, 1 << 16
#: The same for rows whose vectors are compared.
_LEAST_COMPARED_ROWS = 1 << 14
#: Most queries that are searched at once, bytes of their vectors and rows, and distances from
#: centroids.
_QUERIES, _QUERY_BYTES, _RANKED = 16_384, 64 * 1024 * 1024, 1 << 23
_Ranges = tuple[tuple[int, int, int], ...]


class IndexSlot(NamedTuple):
    """A share of the partitions of a segment.

    Attributes
    ----------
    segment : int
        Number of the segment.
    share, shares : int
        Number of the share, and how many there are: every so many partitions are searched.
    group, groups : int
        Number of the group of queries, and how many there are.
    """

    segment: int
    share: int
    shares: int
    group: int
    groups: int


@dataclass(frozen=True)
class Slots:
    """What queries of a join are compared with, and how. Can be pickled.

    Attributes
    ----------
    search : VectorSearch
        Of the whole table, with any query. Its `k` is the number of candidates of a query.
    k : int
        Most rows of a query.
    measures_again : bool
        Whether candidates are measured by their vectors.
    lower, upper : float or None
        Only rows with `lower` <= distance < `upper`.
    of_index : tuple of IndexSlot
    of_rows : tuple of tuple of (int, int, int)
        Slots of rows: fragment, first row and end.
    of_overlaid : tuple of tuple of int
        Slots of overlaid rows: fragments.
    allowed : mapping of int to RowRanges, or None
        The rows that may be found, by fragment; all if None.
    """

    search: VectorSearch
    k: int
    measures_again: bool
    lower: float | None
    upper: float | None
    of_index: tuple[IndexSlot, ...]
    of_rows: tuple[_Ranges, ...]
    of_overlaid: tuple[tuple[int, ...], ...]
    allowed: Mapping[int, RowRanges] | None = None

    @classmethod
    def of(
        cls,
        search: VectorSearch,
        fragments: Sequence[Fragment],
        num_tasks: int,
        allowed: Mapping[int, RowRanges] | None,
    ) -> Slots:
        """Divide a search.

        Parameters
        ----------
        search : VectorSearch
        fragments : sequence of Fragment
            Of the table.
        num_tasks : int
            How many slots are wanted.
        allowed : mapping, optional
        """
        query = search.query
        factor = query.refine_factor or 1
        of_index = tuple(
            IndexSlot(number, share, shares, group, groups)
            for number, segment in enumerate(search.segments)
            for shares, groups in [_division(segment, num_tasks)]
            for share in range(shares)
            for group in range(groups)
        )
        uncovered = [
            fragment
            for fragment in fragments
            if fragment.id in search.uncovered and fragment.id not in search.overlaid
        ]
        rows = max(1, _SLOT_BYTES // search.dtype.stored_bytes)
        total = sum(fragment.physical_rows for fragment in uncovered)
        rows = min(rows, max(total // num_tasks, _LEAST_COMPARED_ROWS))
        groups = pack(uncovered, rows)
        of_rows = tuple(
            tuple((piece.fragment.id, piece.start, piece.stop) for piece in group)
            for group in groups
        )
        measures_again = search.measures_again and bool(search.segments)
        lower, upper = search.code_bounds
        whole = replace(
            query,
            is_batch=True,
            k=query.k * factor,
            refine_factor=None,
            lower_bound=lower,
            upper_bound=upper,
        )
        return cls(
            replace(search, query=whole, measures_again=False),
            query.k,
            measures_again,
            query.lower_bound,
            query.upper_bound,
            of_index,
            of_rows,
            _overlaid_slots(search, rows),
            allowed,
        )

    @property
    def count(self) -> int:
        """Number of slots."""
        return len(self.of_index) + len(self.of_rows) + len(self.of_overlaid)

    @property
    def num_partitions(self) -> int:
        """Number of partitions of the queries in Spark: one for each slot."""
        return max(1, self.count)

    @property
    def metric(self) -> Metric:
        """The metric of the distances."""
        return self.search.metric

    @property
    def num_candidates(self) -> int:
        """Rows of a query that are measured again: as many of each segment as a search has.

        As many rows without an index do not take their places.
        """
        has_rows = bool(self.of_rows or self.of_overlaid)
        return self.search.query.k * (len(self.search.segments) + has_rows)

    @cached_property
    def item_type(self) -> np.dtype[Any]:
        """The type of the items of queries."""
        dtype = self.search.dtype
        return dtype.query(np.zeros((1, dtype.dimension), np.float32), self.metric).dtype

    @property
    def most_queries(self) -> int:
        """How many queries are searched at once, at most."""
        # Vectors come in, and rows go out.
        size = self.search.dtype.dimension * self.item_type.itemsize
        size += self.search.most_rows * NEIGHBOR_BYTES
        partitions = max((part.num_partitions for part in self.search.segments), default=1)
        return max(1, min(_QUERIES, _QUERY_BYTES // size, _RANKED // partitions))

    def queries(self, array: pa.Array, name: str) -> tuple[Vectors, npt.NDArray[np.bool_]]:
        """Return the vectors of queries, and which queries have one.

        Parameters
        ----------
        array : pa.Array
            Lists of numbers. Null lists, and lists with a null or NaN, are no vectors.
        name : str
            What errors call the column.

        Raises
        ------
        InvalidInputError
            A list has another length than the vectors of the table.
        """
        dtype = self.search.dtype
        has_vector = array.is_valid().to_numpy(zero_copy_only=False).copy()
        lengths = pc.list_value_length(array).fill_null(dtype.dimension).to_numpy()
        if (lengths != dtype.dimension).any():
            wrong = int(lengths[lengths != dtype.dimension][0])
            raise InvalidInputError(
                f"column {name} has an array of {wrong} items; the vectors of the table have "
                f"{dtype.dimension}"
            )
        items = array.drop_null().flatten()
        # Nulls become NaN.
        values = items.cast(pa.float64()) if items.null_count else items
        matrix = values.to_numpy(zero_copy_only=False).reshape(-1, dtype.dimension)
        if matrix.dtype.kind == "f":
            is_number = ~np.isnan(matrix).any(axis=1)
            has_vector[has_vector] = is_number
            matrix = matrix[is_number]
        return np.ascontiguousarray(dtype.query(matrix, self.metric)), has_vector

    def assigned(
        self, dataset: Dataset, vectors: Vectors, keys: Int64Array
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Yield pairs of a query and a slot that is to search it, as numbers.

        Parameters
        ----------
        vectors : array of shape (queries, dimension)
        keys : int64 array
            Any numbers of the queries, which choose their groups.
        """
        yield from self._nearest_slots(dataset, vectors, keys)
        for slot in range(len(self.of_index), self.count):
            yield np.arange(len(vectors)), np.full(len(vectors), slot)

    def _nearest_slots(
        self, dataset: Dataset, vectors: Vectors, keys: Int64Array
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        search = self.search
        unit = normalized(vectors) if self.metric is Metric.COSINE else vectors
        # Partitions are searched until there are enough rows that are allowed.
        everywhere = self.allowed is not None and search.query.maximum_nprobes is None
        first = 0
        for number, segment in enumerate(search.segments):
            slot = next(slot for slot in self.of_index if slot.segment == number)
            count, start = slot.shares, first
            groups = start + keys % slot.groups
            first += count * slot.groups
            if everywhere or count == 1:
                for share in range(count):
                    yield np.arange(len(vectors)), groups + share * slot.groups
                continue
            opened = segment.open(dataset._table.paths)
            order, distances = ranked(opened.ivf, opened.metric, unit)
            probes = first_probes(search.query, opened.metric, distances)
            lengths = opened.ivf.lengths
            probes = probes_of_shares(search.query, probes, order, lengths, search.query.k)
            is_probed = np.arange(order.shape[1]) < probes[:, None]
            query, place = np.nonzero(is_probed)
            pairs = np.unique(query * count + order[query, place] % count)
            yield pairs // count, groups[pairs // count] + pairs % count * slot.groups

    def searcher(self, dataset: Dataset) -> SlotSearcher:
        """Return what searches slots, in one task."""
        return SlotSearcher(self, dataset)


class SlotSearcher:
    """Searches slots one after the other, and measures candidates."""

    def __init__(self, slots: Slots, dataset: Dataset) -> None:
        self._slots = slots
        self._dataset = dataset
        self._by_id = {fragment.id: fragment for fragment in dataset.fragments}

    def neighbors(self, number: int, vectors: Vectors) -> Neighbors:
        """Return the nearest rows of queries in a slot.

        Parameters
        ----------
        number : int
            Of the slot.
        vectors : array of shape (queries, dimension)
        """
        slots = self._slots
        whole = slots.search
        query = replace(whole.query, vectors=vectors)
        if number >= len(slots.of_index):
            # Rows without an index have no distances of codes.
            query = replace(query, lower_bound=slots.lower, upper_bound=slots.upper)
        first_overlaid = len(slots.of_index) + len(slots.of_rows)
        if number < len(slots.of_index):
            slot = slots.of_index[number]
            segment = replace(whole.segments[slot.segment], share=(slot.share, slot.shares))
            search = replace(whole, query=query, segments=(segment,), uncovered={})
            task = self._task(search)
        elif number >= first_overlaid:
            overlaid = {
                fragment: rows
                for fragment in slots.of_overlaid[number - first_overlaid]
                if (rows := self._allowed_of(fragment, whole.overlaid[fragment]))
            }
            uncovered = {fragment: len(rows) for fragment, rows in overlaid.items()}
            search = replace(
                whole, query=query, segments=(), uncovered=uncovered, overlaid=overlaid
            )
            task = self._task(search)
        else:
            ranges = slots.of_rows[number - len(slots.of_index)]
            uncovered = {fragment: 0 for fragment, _, _ in ranges}
            search = replace(whole, query=query, segments=(), uncovered=uncovered, overlaid={})
            task = self._task(search)
            pieces = tuple(
                FragmentSlice(self._by_id[fragment], start, stop)
                for fragment, start, stop in ranges
            )
            if slots.allowed is not None:
                groups = narrowed([pieces], slots.allowed, 1 << 62)
                pieces = groups[0] if groups else ()
            task = replace(task, slices=pieces)
        neighbors = search.neighbors(self._rows(task))
        if slots.measures_again and search.segments and search.code_scale > 1:
            # They are compared with those of rows without an index.
            distances = neighbors.distances / np.float32(search.code_scale)
            neighbors = replace(neighbors, distances=distances)
        return neighbors

    def measured(self, vectors: Vectors, neighbors: Neighbors) -> Neighbors:
        """Return candidates with their distances by their vectors.

        Parameters
        ----------
        vectors : array of shape (queries, dimension)
            By the numbers of the queries.
        neighbors : Neighbors
        """
        search = self._slots.search
        read = partial(self._rows(self._task(search)).read_vectors, search.path, [])
        again = measured_again(search.dtype, search.metric, vectors, neighbors, read)
        return again.within(self._slots.lower, self._slots.upper)

    def _task(self, search: VectorSearch) -> VectorScanTask:
        schema = self._dataset._reader.nearest_schema([], None)
        return self._dataset._reader.nearest_task(search, schema, (), ())

    def _rows(self, task: VectorScanTask) -> VectorRows:
        opened = self._dataset._reader.opened_rows()
        return VectorRows(
            paths=opened.paths,
            fragments=list({piece.fragment.id: piece.fragment for piece in task.slices}.values()),
            find_rows=opened.find,
            read_vectors=partial(task._read_vectors, ScanMetrics(), opened),
            passing=lambda fragments: (self._passing(fragments), None),
        )

    def _passing(self, fragments: Sequence[Fragment]) -> UInt64Array | None:
        if self._slots.allowed is None:
            return None
        allowed = self._allowed
        return allowed[np.isin(allowed >> np.uint64(OFFSET_BITS), [f.id for f in fragments])]

    def _allowed_of(self, fragment: int, rows: BitMap) -> BitMap:
        """Return those of some rows of a fragment that may be found."""
        allowed = self._slots.allowed
        if allowed is None:
            return rows
        ranges = allowed.get(fragment)
        return BitMap() if ranges is None else rows & BitMap(ranges.numbers())

    @cached_property
    def _allowed(self) -> UInt64Array:
        """The addresses of all rows that may be found."""
        allowed = self._slots.allowed or {}
        parts = [
            (np.uint64(number) << np.uint64(OFFSET_BITS)) + ranges.numbers().astype(np.uint64)
            for number, ranges in sorted(allowed.items())
        ]
        return np.concatenate([np.empty(0, np.uint64), *parts])


def _overlaid_slots(search: VectorSearch, rows: int) -> tuple[tuple[int, ...], ...]:
    """Return fragments with overlaid rows that are read, in groups of about some number of rows."""
    groups: list[list[int]] = []
    size = 0
    for fragment, overlaid in search.overlaid.items():
        if fragment not in search.uncovered:
            continue
        if not groups or size + len(overlaid) > rows:
            groups.append([])
            size = 0
        groups[-1].append(fragment)
        size += len(overlaid)
    return tuple(map(tuple, groups))


def _division(segment: SearchedSegment, num_tasks: int) -> tuple[int, int]:
    """Return the number of shares of a segment, and of groups of queries."""
    shares = min(segment.num_partitions, -(-segment.num_rows // _SLOT_ROWS))
    tasks = min(num_tasks, -(-segment.num_rows // _LEAST_SLOT_ROWS))
    return max(1, shares), max(1, -(-tasks // max(1, shares)))


def ranges_of(rows: Mapping[int, BitMap]) -> dict[int, RowRanges]:
    """Return rows by fragment as ranges."""
    return {
        number: RowRanges.of_rows(np.asarray(bitmap.to_array(), np.int64))
        for number, bitmap in rows.items()
        if bitmap
    }

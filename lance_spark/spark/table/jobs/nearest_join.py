"""Plans nearest-neighbour joins: the queries of a DataFrame against the vectors of a table.

| step (`join_steps`) | partitions by | what it does |
| --- | --- | --- |
| `AssignQueries` | the queries' own | sends each query to slots that may have its nearest rows |
| `SearchSlots` | slot (`nearest_slots`) | the nearest rows of each query in the slot |
| `ReadRows` | query | the nearest rows of all slots; reads their columns |

The columns of a query travel once through each step (`join_rows`), so that the DataFrame of the
queries is computed once.
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
from pyspark.sql.types import StructType

from lance_spark.dataset.dataset import Dataset
from lance_spark.encoding.rows import RowRanges
from lance_spark.errors import InvalidInputError
from lance_spark.indexes.candidates import narrowed
from lance_spark.indexes.vectors.columns import Metric, Vectors, VectorType
from lance_spark.indexes.vectors.distances import normalized
from lance_spark.indexes.vectors.index_search import first_probes, probes_of_shares, ranked
from lance_spark.indexes.vectors.neighbors import Neighbors, measured_again
from lance_spark.indexes.vectors.query import parse_nearest
from lance_spark.indexes.vectors.search import VectorRows
from lance_spark.scan.fragment.column_reader import cuts
from lance_spark.scan.fragment.row_meta import DISTANCE, ROW_ID
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.plan import estimated_bytes, pack
from lance_spark.scan.take import bytes_at, take_addresses
from lance_spark.scan.task import FragmentSlice
from lance_spark.spark.job import Job, parallelism
from lance_spark.spark.python_process import TaskObject
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.dataframes import analysis_errors
from lance_spark.spark.table.jobs.find_rows import find_rows
from lance_spark.spark.table.jobs.partition_keys import partition_keys
from lance_spark.spark.types.convert import BatchConverter
from lance_spark.spark.types.mapping import batch_schema, to_spark_schema
from lance_spark.table.rows.addresses import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.indexes.vectors.columns import Int64Array
    from lance_spark.indexes.vectors.search import SearchedSegment, VectorScanTask, VectorSearch
    from lance_spark.scan.search_keywords import IndexSearchKeywords
    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.fragments.fragment import Fragment


# --------------------------------------------------------------------------------------------------
# Rows that travel between the steps of a nearest-neighbour join.
#
# | column | probe | partial result | query |
# | --- | --- | --- | --- |
# | `first`, `second` | key of the vector | same | same; any without a vector |
# | `slot` | key (`partition_keys`) of the slot | 0 | any of these |
# | `vector` | its items | null | its items |
# | `found` | null | rows with distances | null |
# | `row` | null | null | the columns of the query |
#
# A key is a hash of 128 bits of the items, so that a step that Spark runs again makes the same
# keys, in any order of the rows. Equal vectors have the same key: they are searched once.

Keys = npt.NDArray[np.int64]
FIRST, SECOND, SLOT = "first", "second", "slot"
VECTOR, NEIGHBORS, ROW = "vector", "neighbors", "row"
NAMES = (FIRST, SECOND, SLOT, VECTOR, NEIGHBORS, ROW)
_TYPES: dict[str, pa.DataType] = {
    FIRST: pa.int64(),
    SECOND: pa.int64(),
    SLOT: pa.int32(),
    VECTOR: pa.binary(),
    NEIGHBORS: pa.binary(),
}
#: A found row.
_NEIGHBOR = np.dtype([("distance", "<f4"), ("id", "<u8"), ("address", "<u8")])
NEIGHBOR_BYTES = _NEIGHBOR.itemsize
#: Odd numbers of 64 bits, from a fixed seed: tasks make the same keys.
_SEED = 20_011
#: Bytes of products that are computed at once.
_STEP_BYTES = 1 << 24


def joined_schema(queries: StructType) -> StructType:
    """Return the schema of the rows, for queries of a schema."""
    from pyspark.sql import types as spark

    binary, long = spark.BinaryType(), spark.LongType()
    dtypes = (long, long, spark.IntegerType(), binary, binary, queries)
    fields = [spark.StructField(name, dtype) for name, dtype in zip(NAMES, dtypes, strict=True)]
    return spark.StructType(fields)


def batch_of(columns: dict[str, pa.Array], num_rows: int, row: pa.DataType) -> pa.RecordBatch:
    """Return a batch of rows, with nulls in the columns that are not given."""
    arrays = [
        columns[name] if name in columns else pa.nulls(num_rows, _TYPES.get(name, row))
        for name in NAMES
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(NAMES))


def keys_of(vectors: Vectors) -> Keys:
    """Return the keys of vectors.

    Returns
    -------
    int64 array of shape (vectors, 2)
    """
    data = np.ascontiguousarray(vectors).view(np.uint8)
    if padding := -data.shape[1] % 4:
        data = np.pad(data, ((0, 0), (0, padding)))
    words = np.ascontiguousarray(data).view("<u4")
    rng = np.random.default_rng(_SEED)
    factors = rng.integers(0, 2**63, (2, words.shape[1]), np.uint64) * np.uint64(2) + np.uint64(1)
    keys = np.empty((len(vectors), 2), np.uint64)
    step = max(1, _STEP_BYTES // (8 * max(1, words.shape[1])))
    for first in range(0, len(words), step):
        part = words[first : first + step].astype(np.uint64)
        for number in range(2):
            keys[first : first + step, number] = (part * factors[number]).sum(axis=1)
    # The upper bits depend on all bits of the items.
    keys ^= keys >> np.uint64(32)
    return keys.view(np.int64)


def binaries(values: npt.NDArray[Any], counts: Int64Array) -> pa.Array:
    """Return values as binary values, each of some items.

    - `values` (array): Of one dimension; contiguous.
    - `counts` (int64 array): Number of items of each binary value.
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    ends = (offsets * values.dtype.itemsize).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers)


def vectors_as_binaries(vectors: Vectors) -> pa.Array:
    """Return vectors as binary values."""
    counts = np.full(len(vectors), vectors.shape[1], np.int64)
    return binaries(np.ascontiguousarray(vectors).reshape(-1), counts)


def matrix_of(array: pa.Array, vectors: Vectors) -> Vectors:
    """Return binary values without nulls as vectors of the shape and type of others."""
    values, counts = _items_of(array, vectors.dtype)
    return values.reshape(len(counts), vectors.shape[1])


def _items_of(array: pa.Array, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Int64Array]:
    """Return the items of binary values without nulls, and how many each has."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    start, stop = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    values = np.frombuffer(data or b"", np.uint8, stop - start, start)
    counts = np.diff(offsets).astype(np.int64) // np.dtype(dtype).itemsize
    return values.view(dtype), counts


def neighbors_as_binaries(neighbors: Neighbors, num_queries: int) -> pa.Array:
    """Return the rows that each query has found, ordered by query, as binary values."""
    rows = np.empty(len(neighbors), _NEIGHBOR)
    rows["distance"], rows["id"] = neighbors.distances, neighbors.ids
    rows["address"] = neighbors.addresses
    return binaries(rows, np.bincount(neighbors.queries, minlength=num_queries))


def neighbors_of(array: pa.Array, numbers: Int64Array) -> Neighbors:
    """Return the found rows of partial results; a row that is there twice once.

    - `numbers` (int64 array): The number of the query of each partial result.
    """
    rows, counts = _items_of(array, _NEIGHBOR)
    queries = np.repeat(numbers, counts)
    order = np.lexsort((rows["id"], queries))
    queries, rows = queries[order], rows[order]
    # Equal vectors can have been searched twice.
    first = np.ones(len(rows), np.bool_)
    first[1:] = (queries[1:] != queries[:-1]) | (rows["id"][1:] != rows["id"][:-1])
    queries, rows = queries[first], rows[first]
    return Neighbors(
        queries.astype(np.int32),
        np.ascontiguousarray(rows["distance"]),
        np.ascontiguousarray(rows["id"]),
        np.ascontiguousarray(rows["address"]),
    )


class Runs:
    """Collects probes that are sorted by their slots.

    - `rows`: Most probes of a slot that are collected.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._slot = self._num_collected = 0
        self._collected: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Table]]:
        """Add probes; yield slots of which there are no more probes, or as many as are wanted."""
        slots = batch.column(SLOT).to_numpy()
        starts = np.flatnonzero(np.diff(slots, prepend=slots[:1] - 1)).tolist()
        for first, stop in zip(starts, [*starts[1:], len(slots)], strict=False):
            start = first
            while start < stop:
                if slots[start] != self._slot or self._num_collected >= self._rows:
                    yield from self.finish()
                    self._slot = int(slots[start])
                end = min(stop, start + self._rows - self._num_collected)
                self._collected.append(batch.slice(start, end - start))
                self._num_collected += end - start
                start = end

    def finish(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield the probes that are left."""
        if self._collected:
            yield self._slot, pa.Table.from_batches(self._collected)
        self._collected, self._num_collected = [], 0


def groups(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield partial results and queries that are sorted by key, partial results first.

    The partial results of a key are in each table that has a query of this key.

    - `rows`: About how many rows a table has.
    """
    collected: list[pa.RecordBatch] = []
    for next_batch in batches:
        batch = next_batch
        if not batch.num_rows:
            continue
        if sum(part.num_rows for part in collected) >= rows:
            last = collected[-1].slice(collected[-1].num_rows - 1)
            stop = _end_of_results(last, batch)
            if stop:
                collected.append(batch.slice(0, stop))
                batch = batch.slice(stop)
            if batch.num_rows:
                yield pa.Table.from_batches(collected)
                collected = [part for part in _results_of(collected, batch) if part.num_rows]
        if batch.num_rows:
            collected.append(batch)
    if collected:
        yield pa.Table.from_batches(collected)


def _has_key(batch: pa.RecordBatch, row: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which rows of a batch have the key of the first row of another batch."""
    same = np.ones(batch.num_rows, np.bool_)
    for name in (FIRST, SECOND):
        same &= batch.column(name).to_numpy() == row.column(name)[0].as_py()
    return same


def _end_of_results(last: pa.RecordBatch, batch: pa.RecordBatch) -> int:
    """Return the first row of a batch that is not a partial result of the key of a row."""
    is_result = batch.column(NEIGHBORS).is_valid().to_numpy(zero_copy_only=False)
    own = is_result & _has_key(batch, last)
    return batch.num_rows if own.all() else int(np.argmin(own))


def _results_of(collected: list[pa.RecordBatch], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the partial results that have the key of the first row of a batch."""
    for part in collected:
        is_result = part.column(NEIGHBORS).is_valid().to_numpy(zero_copy_only=False)
        yield part.filter(pa.array(is_result & _has_key(part, batch)))


# --------------------------------------------------------------------------------------------------
# The slots of a nearest-neighbour join: parts of a table, each of which one task searches.
#
# | slot | what it has | which queries it gets |
# | --- | --- | --- |
# | of an index | some partitions of a segment | a group of those that search one of them |
# | of rows | ranges of rows of fragments, about 64 MiB of vectors | all |
# | of overlaid rows | rows that the index has old vectors of, of some fragments | all |
#
# A task reads a slot once for many queries. Several tasks read a small segment, each for a group of
# queries. So the work is divided evenly, even if most queries search the same partitions. The rows
# of the nearest partitions show early which other partitions are too far. Distances that are not
# exact, or not comparable with others, are measured again for the rows that remain of all slots.

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

    - `segment`: Number of the segment.
    - `share`, `shares`: Number of the share, and how many there are: every so many partitions are
      searched.
    - `group`, `groups`: Number of the group of queries, and how many there are.
    """

    segment: int
    share: int
    shares: int
    group: int
    groups: int


@dataclass(frozen=True)
class Slots:
    """What queries of a join are compared with, and how. Can be pickled.

    - `search`: Of the whole table, with any query. Its `k` is the number of candidates of a query.
    - `k`: Most rows of a query.
    - `measures_again`: Whether candidates are measured by their vectors.
    - `lower`, `upper`: Only rows with `lower` <= distance < `upper`.
    - `of_rows` (tuple of tuple of (int, int, int)): Slots of rows: fragment, first row and end.
    - `of_overlaid`: Slots of overlaid rows: fragments.
    - `allowed`: The rows that may be found, by fragment; all if None.
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

        - `fragments`: Of the table.
        - `num_tasks`: How many slots are wanted.
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

        - `array`: Lists of numbers. Null lists, and lists with a null or NaN, are no vectors.
        - `name`: What errors call the column.

        Raises InvalidInputError: a list has another length than the vectors of the table.
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

        - `vectors`: Array of shape (queries, dimension).
        - `keys` (int64 array): Any numbers of the queries, which choose their groups.
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

        - `number`: Of the slot.
        - `vectors`: Array of shape (queries, dimension).
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

        - `vectors` (array of shape (queries, dimension)): By the numbers of the queries.
        """
        search = self._slots.search
        read = partial(self._rows(self._task(search)).read_vectors, search.path, [])
        again = measured_again(search.dtype, search.metric, vectors, neighbors, read)
        return again.within(self._slots.lower, self._slots.upper)

    def _task(self, search: VectorSearch) -> VectorScanTask:
        schema = self._dataset._reader.nearest_schema([])
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


# --------------------------------------------------------------------------------------------------
# What tasks do in a nearest-neighbour join; see `nearest_join`.

#: Queries, or rows of the result, that a step handles at once.
_BATCH_ROWS = 4_096
#: Bytes of the rows of the result that are handled at once, if rows are wide.
_BATCH_BYTES = 64 * 1024 * 1024
#: Bytes of the vectors that are sent at once: binary values of one array have less than 2 GiB.
_SENT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NearestJoin:
    """What the steps know of a join. Can be pickled.

    - `columns`: Columns of the table to read.
    - `names`: Their names in the result.
    - `keeps_all`: Whether queries without a row are returned.
    - `vectors`: What errors call the vectors of the queries.
    """

    table: TableSnapshot
    slots: Slots
    columns: tuple[str, ...]
    names: tuple[str, ...]
    blob_handling: str
    keeps_all: bool
    vectors: str

    def dataset(self) -> Dataset:
        """Open the version of the table."""
        return Dataset(self.table.open(), dict(self.table.storage_options) or None)

    def table_columns(self) -> StructType:
        """Return the columns of the table, as Spark has them."""
        dataset = self.dataset()
        return to_spark_schema(
            dataset._stored_schema(self.columns, blob_handling=self.blob_handling)
        )


@dataclass(frozen=True)
class AssignQueries(TaskObject):
    """Work that sends queries to slots."""

    join: NearestJoin

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slots = self.join.slots
        dataset = self.join.dataset()
        slot_keys = partition_keys(slots.num_partitions)
        num_at_once = min(_BATCH_ROWS, slots.most_queries)
        for batch in batches:
            for first in range(0, batch.num_rows, num_at_once):
                part = batch.slice(first, num_at_once)
                row = part.column(ROW)
                vectors, has_vector = slots.queries(part.column(VECTOR), self.join.vectors)
                keys = keys_of(vectors)
                yield self._queries(row, vectors, keys, has_vector, slot_keys)
                # Equal vectors of a batch are searched once.
                _, distinct = np.unique(keys, axis=0, return_index=True)
                for query, slot in slots.assigned(dataset, vectors[distinct], keys[distinct, 1]):
                    sent = slot_keys[slot]
                    yield from self._probes(distinct[query], sent, vectors, keys, row.type)

    def _probes(
        self,
        query: Int64Array,
        slot: npt.NDArray[np.int32],
        vectors: Vectors,
        keys: Keys,
        dtype: pa.DataType,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that send queries to slots."""
        step = max(1, _SENT_BYTES // max(1, vectors[:1].nbytes))
        for first in range(0, len(query), step):
            own = query[first : first + step]
            columns = {
                **_keys(keys[own]),
                SLOT: pa.array(slot[first : first + step]),
                VECTOR: vectors_as_binaries(vectors[own]),
            }
            yield batch_of(columns, len(own), dtype)

    def _queries(
        self,
        row: pa.Array,
        vectors: Vectors,
        keys: Keys,
        has_vector: npt.NDArray[np.bool_],
        slot_keys: npt.NDArray[np.int32],
    ) -> pa.RecordBatch:
        """Return the rows that carry the columns of queries."""
        num_missing = int((~has_vector).sum())
        own = np.empty((len(row), 2), np.int64)
        own[has_vector] = keys
        # Any keys that do not bring all of them to one task: there is no partial result for them.
        own[~has_vector] = np.random.default_rng().integers(-(2**63), 2**63, (num_missing, 2))
        place = pa.array(np.cumsum(has_vector) - 1, mask=~has_vector)
        columns = {
            **_keys(own),
            SLOT: pa.array(slot_keys[own[:, 0] % len(slot_keys)]),
            VECTOR: vectors_as_binaries(vectors).take(place),
            ROW: row,
        }
        batch = batch_of(columns, len(row), row.type)
        return batch if self.join.keeps_all else batch.filter(pa.array(has_vector))


@dataclass(frozen=True)
class SearchSlots(TaskObject):
    """Work that searches slots, and passes the columns of queries on."""

    join: NearestJoin

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slots = self.join.slots
        searcher = slots.searcher(self.join.dataset())
        shape = np.empty((0, slots.search.dtype.dimension), slots.item_type)
        runs = Runs(slots.most_queries)
        slot_of = {
            key: slot for slot, key in enumerate(partition_keys(slots.num_partitions).tolist())
        }
        for batch in batches:
            is_query = batch.column(ROW).is_valid()
            yield batch.filter(is_query)
            for key, probes in runs.add(batch.filter(pc.invert(is_query))):
                yield self._search(searcher, shape, slot_of[key], probes)
        for key, probes in runs.finish():
            yield self._search(searcher, shape, slot_of[key], probes)

    def _search(
        self, searcher: SlotSearcher, shape: Vectors, slot: int, probes: pa.Table
    ) -> pa.RecordBatch:
        keys, first, _ = _numbered(probes)
        vector = probes.column(VECTOR).combine_chunks().take(pa.array(first))
        neighbors = searcher.neighbors(slot, matrix_of(vector, shape))
        columns = {
            **_keys(keys),
            SLOT: pa.array(np.zeros(len(keys), np.int32)),
            NEIGHBORS: neighbors_as_binaries(neighbors, len(keys)),
        }
        return batch_of(columns, len(keys), probes.schema.field(ROW).type)


@dataclass(frozen=True)
class ReadRows(TaskObject):
    """Work that chooses the nearest rows of each query, and reads their columns.

    - `schema`: Of the result.
    """

    join: NearestJoin
    schema: StructType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        dataset = self.join.dataset()
        searcher = self.join.slots.searcher(dataset)
        rows = _FoundRows(self.join, dataset)
        names = batch_schema(self.schema).names
        for table in groups(batches, _BATCH_ROWS):
            keys, _, number = _numbered(table)
            is_query = table.column(NEIGHBORS).is_null().to_numpy()
            queries = table.filter(pa.array(is_query)).combine_chunks()
            partial_results = table.column(NEIGHBORS).combine_chunks().filter(pa.array(~is_query))
            neighbors = neighbors_of(partial_results, number[~is_query])
            neighbors = self._best(searcher, queries, number[is_query], len(keys), neighbors)
            yield from self._joined(rows, names, queries, number[is_query], len(keys), neighbors)

    def _best(
        self,
        searcher: SlotSearcher,
        queries: pa.Table,
        number: Int64Array,
        num_keys: int,
        neighbors: Neighbors,
    ) -> Neighbors:
        """Return the nearest rows of each key."""
        slots = self.join.slots
        if not slots.measures_again:
            return neighbors.best(slots.k)
        items = np.zeros((num_keys, slots.search.dtype.dimension), slots.item_type)
        vector = queries.column(VECTOR)
        has_vector = vector.is_valid().to_numpy()
        if has_vector.any():
            own = vector.combine_chunks().drop_null()
            items[number[has_vector]] = matrix_of(own, items)
        best = neighbors.best(slots.num_candidates)
        return searcher.measured(items, best).best(slots.k)

    def _joined(
        self,
        rows: _FoundRows,
        names: Sequence[str],
        queries: pa.Table,
        number: Int64Array,
        num_keys: int,
        neighbors: Neighbors,
    ) -> Iterator[pa.RecordBatch]:
        """Yield each query with its rows."""
        counts = np.bincount(neighbors.queries, minlength=num_keys)
        starts = np.cumsum(counts) - counts
        own = counts[number]
        lengths = np.maximum(own, 1) if self.join.keeps_all else own
        query = np.repeat(np.arange(len(number)), lengths)
        within = np.arange(len(query)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        place = pa.array(starts[number[query]] + within, mask=own[query] == 0)
        if not len(query):
            return
        query_rows = queries.column(ROW).combine_chunks()
        distances = pa.array(neighbors.distances)
        for first, part in rows.parts(neighbors.addresses, place):
            columns = query_rows.take(pa.array(query[first : first + len(part)])).flatten()
            columns += [*rows.read(neighbors.addresses, part), distances.take(part)]
            yield pa.RecordBatch.from_arrays(columns, names=list(names))


class _FoundRows:
    """Reads rows of the table as Spark has them."""

    def __init__(self, join: NearestJoin, dataset: Dataset) -> None:
        self._dataset = dataset
        self._schema = dataset._reader.select(join.columns, blob_handling=join.blob_handling)
        self._output = batch_schema(join.table_columns())
        self._convert = BatchConverter(self._schema.to_arrow(), self._output, reading=True)
        num_rows = max(1, sum(fragment.physical_rows for fragment in dataset.fragments))
        width = estimated_bytes(dataset.fragments, num_rows) // num_rows
        self._num_at_once = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, width)))

    def parts(self, addresses: UInt64Array, place: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """Yield parts of places that are read at once, each with the number of its first place."""
        dataset = self._dataset
        for start in range(0, len(place), self._num_at_once):
            part = place.slice(start, self._num_at_once)
            is_row = part.is_valid().to_numpy(zero_copy_only=False)
            sizes = np.zeros(len(part), np.int64)
            sizes[is_row] = bytes_at(
                dataset._table.paths,
                dataset.fragments,
                self._schema,
                addresses[part.drop_null().to_numpy()],
                dataset._reader.open_files,
            )
            for rows in cuts(sizes):
                yield start + rows.start, part.slice(rows.start, rows.stop - rows.start)

    def read(self, addresses: UInt64Array, place: pa.Array) -> list[pa.Array]:
        """Return the columns of some of the addresses; null for a null place."""
        wanted = addresses[place.drop_null().to_numpy()]
        unique, row = np.unique(wanted, return_inverse=True)
        index = np.zeros(len(place), np.int64)
        is_row = place.is_valid().to_numpy(zero_copy_only=False)
        index[is_row] = row.reshape(-1)
        if not self._output.names:
            return []
        dataset = self._dataset
        taken = take_addresses(
            dataset._table.paths,
            dataset.fragments,
            self._schema,
            unique,
            dataset._reader.open_files,
            ScanMetrics(),
        )
        batches = [part for batch in taken.to_batches() for part in self._convert(batch)]
        table = pa.Table.from_batches(batches, self._output).combine_chunks()
        table = table.take(pa.array(index, mask=~is_row))
        return [column.combine_chunks() for column in table.columns]


def _keys(keys: Keys) -> dict[str, pa.Array]:
    return {FIRST: pa.array(keys[:, 0]), SECOND: pa.array(keys[:, 1])}


def _numbered(rows: pa.Table) -> tuple[Keys, Int64Array, Int64Array]:
    """Return distinct keys, the first row of each, and the number of the key of each row."""
    keys = np.column_stack([rows.column(name).to_numpy() for name in (FIRST, SECOND)])
    distinct, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return distinct, first, number.reshape(-1)


# --------------------------------------------------------------------------------------------------
# Plans nearest-neighbour joins: the queries of a DataFrame against the vectors of a table.

#: Tasks of a step for each task that runs at a time.
_WAVES = 2


def nearest_join(
    handle: TableHandle,
    queries: DataFrame,
    on: str | tuple[str, str],
    nearest: Mapping[str, Any],
    *,
    how: str,
    columns: Sequence[str] | None,
    aliases: Mapping[str, str],
    condition: str | Column | None,
    search: IndexSearchKeywords,
    with_row_id: bool,
    blob_handling: str,
) -> DataFrame:
    """Return the queries with their nearest rows; see `LanceTable.nearest_join`.

    - `nearest`: Keys of `nearest` of `Dataset.to_table`, without the column and the query.
    """
    from pyspark.sql import functions

    if how not in ("inner", "left"):
        raise InvalidInputError(f"how must be one of 'inner', 'left', not {how!r}")
    query_column, column = (on, on) if isinstance(on, str) else on
    dataset = handle.dataset()
    dtype = VectorType.of(dataset._table.schema.path(column))
    if dtype.is_multi:
        raise InvalidInputError(f"column {column!r} has multivectors, which a join cannot compare")
    vector = functions.col(quoted(query_column))
    _check_vectors(queries, vector, query_column)
    any_query = [0] * dtype.dimension
    query = parse_nearest({**nearest, "column": column, "q": [any_query]})
    planned = dataset._reader.plan_nearest(query, **search)
    if columns is None:
        every = dataset._stored_schema(blob_handling=blob_handling).names
        columns = [name for name in every if name != column]
    read = [*columns, ROW_ID.name] if with_row_id else list(columns)
    # Paths of children of a struct are one column.
    read_names = dataset._stored_schema(read, blob_handling=blob_handling).names
    if unknown := aliases.keys() - set(read_names):
        raise InvalidInputError(
            f"aliases: {min(unknown)!r} is not a column of the result; the columns of the table in "
            f"it are {', '.join(read_names)}"
        )
    names = [aliases.get(name, name) for name in read_names]
    _check_names(queries, [*names, DISTANCE.name])
    allowed = None
    if condition is not None:
        with Job(handle.spark, dataset._table, "nearest join") as job:
            allowed = ranges_of(find_rows(handle, job, dataset, condition))
    join = NearestJoin(
        table=snapshot_of(dataset._table),
        slots=Slots.of(planned, dataset.fragments, _WAVES * parallelism(handle.spark), allowed),
        columns=tuple(read),
        names=tuple(names),
        blob_handling=blob_handling,
        keeps_all=how == "left",
        vectors=query_column,
    )
    return _joined(join, queries, vector)


def _joined(join: NearestJoin, queries: DataFrame, vector: Column) -> DataFrame:
    from pyspark.sql import functions
    from pyspark.sql.types import FloatType, StructField, StructType

    between = joined_schema(queries.schema)
    table_fields = [
        StructField(name, field.dataType)
        for name, field in zip(join.names, join.table_columns(), strict=True)
    ]
    distance = StructField(DISTANCE.name, FloatType())
    schema = StructType([*queries.schema.fields, *table_fields, distance])
    query_rows = queries.select(functions.struct("*").alias(ROW), vector.alias(VECTOR))
    probes = query_rows.mapInArrow(AssignQueries(join), between)
    routed = probes.repartition(join.slots.num_partitions, SLOT)
    partial = routed.sortWithinPartitions(SLOT).mapInArrow(SearchSlots(join), between)
    # Partial results of a key come before its queries.
    is_query = functions.col(NEIGHBORS).isNull()
    keyed = partial.repartition(FIRST, SECOND)
    keyed = keyed.sortWithinPartitions(FIRST, SECOND, is_query)
    return keyed.mapInArrow(ReadRows(join, schema), schema)


def _check_vectors(queries: DataFrame, vector: Column, name: str) -> None:
    """Raise an error unless a column of queries has arrays of numbers."""
    from pyspark.sql.types import ArrayType, DecimalType, NumericType

    with analysis_errors("on"):
        dtype = queries.select(vector).schema[0].dataType
    items = dtype.elementType if isinstance(dtype, ArrayType) else None
    if not isinstance(items, NumericType) or isinstance(items, DecimalType):
        raise InvalidInputError(
            f"column {name} of the queries must have arrays of numbers, not {dtype.simpleString()}"
        )


def _check_names(queries: DataFrame, names: Sequence[str]) -> None:
    """Raise an error if columns of the table have names that are taken."""
    taken = {name.lower() for name in queries.columns}
    for name in names:
        if name.lower() in taken:
            raise InvalidInputError(
                f"column {name} is a column of the queries or of the result already; choose others "
                f"by columns, or give it another name, such as aliases={{{name!r}: 'found_{name}'}}"
            )
        taken.add(name.lower())

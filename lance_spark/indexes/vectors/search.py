"""Vector search of the rows of a version: planned as a whole, evaluated as a whole or in shares.

| step | where | what it reads |
| --- | --- | --- |
| `plan_vectors` | driver | of each segment of an index: centroids, and sizes of partitions |
| `VectorSearch.shares` | driver | nothing |
| `VectorSearch.neighbors` | driver or task | partitions of segments, and vectors of other rows |

Rows that segments of an index cover are searched by the index, approximately. All vectors of other
rows are measured. If there are such rows, or with a refine factor, the rows that the index found
are measured by their vectors, too, so that their distances can be compared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, MissingFileError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.indexes.files import INDEX_ERRORS, IndexFiles
from lance_spark.indexes.row_sets import MovedRows, RowSet
from lance_spark.indexes.search_task import OpenedRows, SearchedVersion, SearchTask
from lance_spark.indexes.vectors.columns import Metric, Vectors, VectorType
from lance_spark.indexes.vectors.files import VECTOR
from lance_spark.indexes.vectors.index_search import LiveRows, PostFilter, VectorIndexSearch
from lance_spark.indexes.vectors.neighbors import FlatSearch, Neighbors, measured_again, merged
from lance_spark.indexes.vectors.query import NearestQuery
from lance_spark.indexes.vectors.segment import VectorSegment, open_segment
from lance_spark.predicates.comparison import column_at
from lance_spark.predicates.conditions import Condition
from lance_spark.proto import table_pb2
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.plan import UsedIndex
from lance_spark.scan.take import cut_by_bytes, take_addresses
from lance_spark.scan.task import READ_AHEAD, FragmentSlice
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.addresses import FindRows
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# The segments of a vector index that a search uses.

_LOG = logging.getLogger(__name__)

#: Versions of segments that are searched.


@dataclass(frozen=True, slots=True)
class SearchedSegment:
    """A segment of an index that a search uses, or a share of its partitions.

    - `fragments`: The fragments that its rows had when it was built.
    - `num_rows`: Vectors in all partitions.
    - `share`: Number of the share, and how many shares there are: every so many partitions are
      searched.
    """

    metadata: table_pb2.IndexMetadata
    fragments: BitMap
    num_rows: int
    num_partitions: int
    share: tuple[int, int] = (0, 1)

    def open(self, paths: TablePaths) -> VectorSegment:
        """Open the files of the segment.

        Raises CorruptFileError, MissingFileError, StorageError.
        """
        opened = open_segment(IndexFiles(paths, self.metadata))
        if opened is None:
            raise MissingFileError(
                f"{paths.store.display}: the files of index {self.metadata.name!r} cannot be read "
                "any more; run the query again"
            )
        return opened


def open_segments(
    paths: TablePaths,
    path: tuple[Field, ...],
    dtype: VectorType,
    segments: Iterable[table_pb2.IndexMetadata],
    metric: Metric | None,
) -> list[tuple[SearchedSegment, VectorSegment]]:
    """Return the segments of the first index of a column that measures by a metric.

    A segment that cannot be read is left out with a warning.

    - `path`: The fields from the top-level field to the column.
    - `dtype`: Of the column. Segments with other vectors are left out.
    - `segments`: Those of all indexes of the version, in its order.
    - `metric`: None for that of the first segment.
    """
    built_on: dict[str, BitMap] = {}
    by_name: dict[str, list[tuple[SearchedSegment, VectorSegment]]] = {}
    for segment in segments:
        if list(segment.fields) != [path[-1].id] or indexes.type_of_index(segment) != VECTOR:
            continue
        before = built_on.setdefault(segment.name, BitMap())
        bitmap = indexes.fragment_bitmap(segment) or BitMap()
        fragments = bitmap - before
        if not fragments:
            continue
        if not indexes.has_known_version(segment):
            _LOG.warning(
                "index %r is ignored: it has version %d, which this release does not read",
                segment.name,
                segment.index_version,
            )
            continue
        try:
            files = open_segment(IndexFiles(paths, segment))
        except INDEX_ERRORS as error:
            _LOG.warning("index %r is ignored: %s", segment.name, error)
            continue
        if files is None or (metric is not None and files.metric is not metric):
            continue
        if not _fits(files, dtype):
            _LOG.warning(
                "index %r is ignored: its %s vectors of %d items are not those of the column; "
                "create it again",
                segment.name,
                files.metric.value,
                files.quantizer.dimension,
            )
            continue
        before |= fragments
        lengths = files.ivf.lengths
        searched = SearchedSegment(segment, fragments, int(lengths.sum()), len(lengths))
        by_name.setdefault(segment.name, []).append((searched, files))
    first = next(iter(by_name.values()), [])
    # All distances of a search have one metric.
    return [pair for pair in first if pair[1].metric is first[0][1].metric]


def _fits(segment: VectorSegment, dtype: VectorType) -> bool:
    """Return whether a segment has vectors of a type."""
    has_bits = segment.ivf.centroids.dtype == np.uint8
    return (
        segment.quantizer.dimension == dtype.dimension
        and has_bits is (segment.metric is Metric.HAMMING)
        and (not has_bits or dtype.items == "uint8")
    )


# --------------------------------------------------------------------------------------------------
# Vector search of the rows of a version: planned as a whole, evaluated as a whole or in shares.

#: So many codes are measured in the time of one vector of a fragment.
_CODES_OF_A_VECTOR = 8
#: Most rows of an index whose ids are compared with those of its fragments.
_COMPARED_ROWS = 1 << 24
#: Partitions that a query without a number of them searches, as a rule at most.
_AUTOMATIC_PROBES = 64

#: Reads the column of some fragments, and of rows given by their addresses, which increase: the
#: values of live rows, their ids and their addresses. Rows of fragments meet the prefilter.
ReadVectors = Callable[
    [tuple[Field, ...], Sequence[Fragment], UInt64Array],
    Iterator[tuple[pa.Array, UInt64Array, UInt64Array]],
]

#: The addresses of the rows that meet a prefilter, and a condition that they have to meet, too.
Passing = tuple[UInt64Array | None, PostFilter | None]


@dataclass(frozen=True, slots=True)
class VectorRows:
    """The rows that a search looks at.

    - `passing`: Returns the increasing addresses of the rows of some fragments that meet the
      prefilter, or None without one; and the condition that these rows have to meet, too, or None.
    """

    paths: TablePaths
    fragments: Sequence[Fragment]
    find_rows: FindRows
    read_vectors: ReadVectors
    passing: Callable[[Sequence[Fragment]], Passing]


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """A planned search. Can be pickled.

    - `query`: Its metric is known.
    - `path`: The fields from the top-level field to the column.
    - `covered`: The fragments of the version that the segments cover.
    - `uncovered`: Fragments with rows whose vectors are read, and the number of these rows.
    - `overlaid`: Rows of covered fragments that the segments have old vectors of.
    - `measures_again`: Whether the rows that the index finds are measured by their vectors.
    - `stable_row_ids`: Whether the table has them.
    - `code_scale`: How many times greater distances by the index are than those of vectors.
    """

    query: NearestQuery
    path: tuple[Field, ...]
    dtype: VectorType
    segments: tuple[SearchedSegment, ...]
    covered: BitMap
    uncovered: Mapping[int, int]
    overlaid: Mapping[int, BitMap]
    measures_again: bool
    moved: MovedRows
    stable_row_ids: bool
    code_scale: int = 1

    @property
    def num_queries(self) -> int:
        """Number of queries: a column of multivectors has one."""
        return len(self.query.vectors) if self.query.is_batch else 1

    @property
    def metric(self) -> Metric:
        """The metric of the distances."""
        assert self.query.metric is not None
        return self.query.metric

    @property
    def code_bounds(self) -> tuple[float | None, float | None]:
        """The bounds of distances by the index, where those of the query are for vectors."""
        lower, upper = self.query.lower_bound, self.query.upper_bound
        scale = self.code_scale if self.measures_again else 1
        return (
            None if lower is None else scale * lower,
            None if upper is None else scale * upper,
        )

    @property
    def cost(self) -> int:
        """About how many vectors of fragments take as long to measure."""
        codes = sum(map(self._segment_cost, self.segments))
        return sum(self.uncovered.values()) * self.num_queries + codes

    @property
    def num_rows(self) -> int:
        """Number of vectors in the segments."""
        return sum(segment.num_rows for segment in self.segments)

    @property
    def most_rows(self) -> int:
        """Most rows that a search finds."""
        rows = self.num_rows + sum(self.uncovered.values())
        return min(self.query.k, rows) * self.num_queries

    @property
    def fragments(self) -> BitMap:
        """The fragments that may have rows that are found."""
        result = BitMap(self.uncovered)
        for segment in self.segments:
            # Rows of several segments may have moved to one fragment.
            result |= self.covered if self.moved else self.covered & segment.fragments
        return result

    @property
    def indexes(self) -> tuple[UsedIndex, ...]:
        """The indexes that are used, with the number of their vectors."""
        used: dict[str, UsedIndex] = {}
        column = ".".join(node.name for node in self.path)
        for segment in self.segments:
            name = segment.metadata.name
            before = used[name].num_rows if name in used else 0
            used[name] = UsedIndex(name, VECTOR, column, before + segment.num_rows)
        return tuple(used.values())

    def neighbors(self, rows: VectorRows) -> Neighbors:
        """Return the nearest live rows of each query.

        - `rows`: At least the rows of the fragments of this search.

        Raises CorruptFileError, CorruptTableError, MissingFileError, StorageError.
        """
        query = self.query
        vectors = self.dtype.query(query.vectors, self.metric)
        parts = []
        if self.segments:
            parts.append(self._by_index(rows, vectors))
        uncovered = [part for part in rows.fragments if part.id in self.uncovered]
        if uncovered:
            bounds = query.lower_bound, query.upper_bound
            flat = FlatSearch(self.dtype, self.metric, vectors, query.k, *bounds)
            for values in rows.read_vectors(self.path, uncovered, np.empty(0, np.uint64)):
                flat.add(*values)
            parts.append(flat.neighbors())
        return merged(parts, query.k)

    def has_every_row(
        self, paths: TablePaths, fragments: Sequence[Fragment], find_rows: FindRows
    ) -> bool:
        """Return whether the index has all live rows of the fragments that it covers.

        It has no rows without a vector. False if this is not known without reading too much.

        - `fragments`: Those of the version.

        Raises CorruptFileError, CorruptTableError, MissingFileError, StorageError.
        """
        if self.overlaid:
            return False
        covered = [fragment for fragment in fragments if fragment.id in self.covered]
        row_sets: list[tuple[RowSet, BitMap]] = []
        for segment in self.segments:
            ids = segment.open(paths).row_ids() if self.num_rows <= _COMPARED_ROWS else None
            if ids is None:
                return False
            row_sets.append((ids, segment.fragments))
        if not self.moved and not self.stable_row_ids:
            # A segment can have rows of fragments that it no longer covers.
            rows = RowSet.union(ids.of_fragments(built_on) for ids, built_on in row_sets)
            counts = [len(rows.bitmaps.get(fragment.id) or ()) for fragment in covered]
            if counts == [fragment.physical_rows for fragment in covered]:
                return True
        live = self._live_rows(find_rows, covered, (None, None))
        is_live = [live.addresses(ids.row_keys(), built_on)[1] for ids, built_on in row_sets]
        wanted = sum(fragment.num_rows for fragment in covered)
        return sum(int(np.count_nonzero(rows)) for rows in is_live) == wanted

    def shares(self, target: int) -> list[VectorSearch]:
        """Split the search into searches of different rows.

        If the rows that the index finds are measured again, each share measures as many of them as
        the whole search: together they can find rows that are nearer.

        - `target`: Cost that a share aims at.
        """
        shares = [
            self._share((replace(segment, share=(number, count)),), {})
            for segment in self.segments
            for count in [self._segment_shares(segment, target)]
            for number in range(count)
        ]
        total = max(1, sum(self.uncovered.values()))
        # Whole fragments, in shares that are about as large as each other.
        count = max(1, round(total * self.num_queries / max(1, target)))
        current: dict[int, int] = {}
        num_rows = num_shares = 0
        for number, rows in self.uncovered.items():
            current[number] = rows
            num_rows += rows
            if num_rows * count >= total * (num_shares + 1):
                shares.append(self._share((), current))
                current = {}
                num_shares = num_rows * count // total
        return [*shares, self._share((), current)] if current else shares

    def _share(
        self, segments: tuple[SearchedSegment, ...], uncovered: Mapping[int, int]
    ) -> VectorSearch:
        return replace(self, segments=segments, uncovered=uncovered)

    def _segment_shares(self, segment: SearchedSegment, target: int) -> int:
        """Return the number of shares of a segment."""
        count = self._segment_cost(segment) // max(1, target)
        return max(1, min(count, segment.num_partitions))

    def _segment_cost(self, segment: SearchedSegment) -> int:
        query, count = self.query, max(1, segment.num_partitions)
        most = query.maximum_nprobes
        if most is None:
            most = (
                count if query.search_effort == 1 else max(query.minimum_nprobes, _AUTOMATIC_PROBES)
            )
        rows = segment.num_rows * min(count, most) // count
        return rows * self.num_queries // _CODES_OF_A_VECTOR // segment.share[1]

    def _live_rows(
        self, find_rows: FindRows, covered: Sequence[Fragment], passing: Passing
    ) -> LiveRows:
        built_on = BitMap.union(BitMap(), *(segment.fragments for segment in self.segments))
        # The files keep the rows of a fragment that the segment no longer covers.
        num_rows = sum(part.physical_rows for part in covered if part.id in built_on)
        has_others = self.num_rows > num_rows and not self.dtype.is_multi
        addresses, post_filter = passing
        return LiveRows(
            find=find_rows,
            moved=self.moved,
            covered=self.covered,
            stable_row_ids=self.stable_row_ids,
            passing=addresses,
            hidden=RowSet(self.overlaid).row_keys() if self.overlaid else None,
            post_filter=post_filter,
            all_live=post_filter is None
            and not self.overlaid
            and not has_others
            and self.covered.issuperset(built_on)
            and all(fragment.deletion_file is None for fragment in covered),
        )

    def _by_index(self, rows: VectorRows, vectors: Vectors) -> Neighbors:
        """Return the rows that the segments find."""
        query = self.query
        covered = [fragment for fragment in rows.fragments if fragment.id in self.covered]
        live = self._live_rows(rows.find_rows, covered, rows.passing(covered))
        opened = [
            (segment.open(rows.paths), segment.fragments, segment.share)
            for segment in self.segments
        ]
        k = query.k * (query.refine_factor or 1)
        search = VectorIndexSearch(query, self.dtype, vectors, live, opened)
        neighbors = search.neighbors(k, *self.code_bounds)
        if not self.measures_again:
            return neighbors
        again = measured_again(
            self.dtype, self.metric, vectors, neighbors, partial(rows.read_vectors, self.path, [])
        )
        return again.within(query.lower_bound, query.upper_bound).best(query.k)


def plan_vectors(
    version: SearchedVersion,
    query: NearestQuery,
    *,
    use_index: bool = True,
) -> VectorSearch:
    """Plan a search over the rows of a version.

    - `use_index`: Whether indexes are searched. `query` can say that they are not, too.

    Raises CorruptTableError, StorageError. Raises InvalidInputError: the column does not exist or
    has no vectors, or the query does not fit.
    """
    path, section = version.field_path(query.column), version.section
    dtype = checked_type(path, query)
    if dtype.is_multi:
        query = replace(query, is_batch=False)
    moved = MovedRows()
    opened: list[tuple[SearchedSegment, VectorSegment]] = []
    if use_index and query.use_index:
        try:
            moved = MovedRows.of(version.paths, section)
            opened = open_segments(version.paths, path, dtype, section.indices, query.metric)
        except INDEX_ERRORS as error:
            _LOG.warning("the vector index of column %r is ignored: %s", query.column, error)
    metric = opened[0][1].metric if opened else query.metric or dtype.default_metric
    dtype.check_metric(metric)
    dtype.query(query.vectors, metric)
    segments = tuple(segment for segment, _ in opened)
    built_on = [segment.fragments for segment in segments]
    has_codes = bool(opened) and opened[0][1].quantizer.name != "FLAT"
    covered, uncovered, overlaid = version.coverage(path, built_on, moved)
    return VectorSearch(
        query=replace(query, metric=metric),
        path=path,
        dtype=dtype,
        segments=segments,
        covered=covered,
        uncovered=uncovered,
        overlaid=overlaid,
        measures_again=bool(uncovered) or query.refine_factor is not None,
        moved=moved,
        stable_row_ids=version.stable_row_ids,
        # The codes of `cosine` give the squared L2 distance of vectors of length 1.
        code_scale=2 if has_codes and metric is Metric.COSINE else 1,
    )


def checked_type(path: tuple[Field, ...], query: NearestQuery) -> VectorType:
    """Return the type of a column that a query fits.

    Raises InvalidInputError: the column has no vectors, or those of another dimension or metric.
    """
    dtype = VectorType.of(path)
    dtype.check_metric(query.metric or dtype.default_metric)
    if query.vectors.shape[1] != dtype.dimension:
        raise InvalidInputError(
            f"q must have {dtype.dimension} items, as the vectors of column {query.column!r}, not "
            f"{query.vectors.shape[1]}"
        )
    return dtype


# --------------------------------------------------------------------------------------------------
# The task of a vector search: the nearest rows, with the column `_distance`.

_ADDRESS = row_meta.ROW_ADDRESS
#: Rows of a batch of vectors: whole windows.
_BATCH_ROWS = 1 << 20
#: Most rows for which the driver evaluates a prefilter, and bytes of the rows that it sends.
_PREFILTERED_ROWS = 1 << 22
_PASSING_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorScanTask(SearchTask):
    """A task that reads the nearest rows of each query, the nearest first.

    `slices` are the rows of the fragments of the search that can meet the prefilter. `lance_schema`
    has `DISTANCE` and `QUERY_INDEX` if they are wanted. The nearest rows have to meet `filters`.

    - `prefilter`: Only rows that meet these are searched.
    - `passing`: The rows of the covered fragments that meet the prefilter, if it has been
      evaluated.
    """

    search: VectorSearch
    prefilter: tuple[Condition, ...] = ()
    passing: RowSet | None = None

    @property
    def most_rows(self) -> int:
        """Most rows that the task finds."""
        return self.search.most_rows

    @property
    def num_measured(self) -> int:
        """About how many vectors the task measures."""
        if self.search.segments:
            return self.search.cost
        # The task may have a part of the rows.
        return sum(piece.num_rows for piece in self.slices) * self.search.num_queries

    def further_shares(self) -> list[VectorScanTask]:
        """Return the tasks of rows that no share of the search has."""
        return []

    def share(self, search: VectorSearch) -> VectorScanTask:
        """Return the task of a share of the search."""
        numbers = search.fragments
        slices = tuple(piece for piece in self.slices if piece.fragment.id in numbers)
        passing = None
        if self.passing is not None and search.segments:
            passing = self.passing.of_fragments(numbers)
        return replace(self, search=search, slices=slices, passing=passing)

    def with_passing(self) -> VectorScanTask:
        """Evaluate the prefilter, so that the shares of a segment do not do it again.

        Returns the same task if that reads too many rows, or leaves too many.
        """
        slices = [piece for piece in self.slices if piece.fragment.id in self.search.covered]
        if sum(piece.num_rows for piece in slices) > _PREFILTERED_ROWS:
            return self
        passing = RowSet.of(self._addresses(ScanMetrics(), self.opened(), slices, self.prefilter))
        is_small = len(passing.encode()) <= _PASSING_BYTES
        return replace(self, passing=passing) if is_small else self

    def neighbors(self, metrics: ScanMetrics, table: OpenedRows) -> Neighbors:
        """Return the nearest rows, those that do not meet `filters` left out.

        - `metrics`: Counts what is read of the table.
        - `table`: At least the rows of the fragments.

        Raises As `VectorSearch.neighbors`..
        """
        rows = VectorRows(
            paths=table.paths,
            fragments=self._fragments,
            find_rows=table.find,
            read_vectors=partial(self._read_vectors, metrics, table),
            passing=partial(self._passing, metrics, table),
        )
        neighbors = self.search.neighbors(rows)
        if not self.filters or not len(neighbors):
            return neighbors
        slices = self._slices(np.unique(neighbors.addresses))
        passing = self._addresses(metrics, table, slices, self.filters)
        return neighbors.at(np.isin(neighbors.addresses, passing))

    def nearest_rows(
        self, metrics: ScanMetrics, table: OpenedRows, limit: int | None = None
    ) -> pa.Table:
        """Return the columns of the nearest rows, by query and distance."""
        neighbors = self.neighbors(metrics, table)
        return self.rows(neighbors if limit is None else neighbors.at(slice(limit)), metrics, table)

    def rows(self, neighbors: Neighbors, metrics: ScanMetrics, table: OpenedRows) -> pa.Table:
        """Return the columns of rows that were found, in their order."""
        computed: dict[int, npt.NDArray[Any]] = {
            DISTANCE.id: neighbors.distances,
            QUERY_INDEX.id: neighbors.queries,
            _ADDRESS.id: neighbors.addresses,
            row_meta.ROW_ID.id: neighbors.ids,
        }
        fields = self.lance_schema.fields
        read = replace(
            self.lance_schema, fields=tuple(field for field in fields if field.id not in computed)
        )
        if read.fields:
            taken = self._take(table, read, neighbors.addresses, metrics)
        columns = []
        for field in fields:
            if field.id in computed:
                columns.append(pa.chunked_array([pa.array(computed[field.id])]))
            else:
                columns.append(taken.column(read.fields.index(field)))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def batches(
        self, metrics: ScanMetrics | None = None, *, prefetch: bool = READ_AHEAD
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `ScanTask.batches`."""
        metrics = ScanMetrics() if metrics is None else metrics
        table = self.opened()
        neighbors = self.neighbors(metrics, table)
        for first in range(0, len(neighbors), self.batch_size):
            rows = neighbors.at(slice(first, first + self.batch_size))
            if not self.lance_schema.fields:
                yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
                continue
            schema, addresses = self.lance_schema, rows.addresses
            for part in cut_by_bytes(
                table.paths, self._fragments, schema, addresses, table.open_files
            ):
                read = self.rows(rows.at(part), metrics, table)
                yield from read.combine_chunks().to_batches()

    def _take(
        self, table: OpenedRows, schema: Schema, addresses: UInt64Array, metrics: ScanMetrics
    ) -> pa.Table:
        return take_addresses(
            table.paths, self._fragments, schema, addresses, table.open_files, metrics
        )

    def _passing(
        self, metrics: ScanMetrics, table: OpenedRows, fragments: Sequence[Fragment]
    ) -> Passing:
        if not self.prefilter:
            return None, None
        fragment_ids = BitMap(fragment.id for fragment in fragments)
        if self.passing is not None:
            return self.passing.of_fragments(fragment_ids).row_keys(), None
        slices = [piece for piece in self.slices if piece.fragment.id in fragment_ids]
        return self._addresses(metrics, table, slices, self.prefilter), None

    def _addresses(
        self,
        metrics: ScanMetrics,
        table: OpenedRows,
        slices: Sequence[FragmentSlice],
        filters: tuple[Condition, ...],
    ) -> UInt64Array:
        """Return the addresses of the rows that meet filters, increasing."""
        read = self._scan((_ADDRESS,), slices, filters)
        batches = read._batches(table.paths, table.open_files, metrics)
        parts = [batch.column(0).to_numpy() for batch in batches]
        return np.sort(np.concatenate([np.empty(0, np.uint64), *parts]))

    def _read_vectors(
        self,
        metrics: ScanMetrics,
        table: OpenedRows,
        path: tuple[Field, ...],
        fragments: Sequence[Fragment],
        addresses: UInt64Array,
    ) -> Iterator[tuple[pa.Array, UInt64Array, UInt64Array]]:
        column = Schema.of_paths([path]).fields
        meta = (_ADDRESS, row_meta.ROW_ID) if self.search.stable_row_ids else (_ADDRESS,)
        schema = Schema((*column, *meta))
        names = [node.name for node in path]
        if len(addresses):
            batches = iter(self._take(table, schema, addresses, metrics).to_batches())
        else:
            fragment_ids = {fragment.id for fragment in fragments}
            overlaid = {
                number: rows
                for number, rows in self.search.overlaid.items()
                if number in fragment_ids
            }
            fragment_ids -= overlaid.keys()
            slices = [piece for piece in self.slices if piece.fragment.id in fragment_ids]
            slices += self._slices(RowSet(overlaid).row_keys())
            task = self._scan(schema.fields, slices, self.prefilter, _BATCH_ROWS)
            batches = task._batches(table.paths, table.open_files, metrics)
        for batch in batches:
            places = batch.column(1).to_numpy()
            ids = batch.column(2).to_numpy() if self.search.stable_row_ids else places
            yield column_at(batch, names), ids, places

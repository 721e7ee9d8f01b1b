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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.scan.indexes.files import INDEX_ERRORS
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.scan.indexes.row_sets import RowSet
from lance_spark.scan.plan import UsedIndex
from lance_spark.scan.search_task import SearchedVersion
from lance_spark.scan.vectors.columns import VectorType
from lance_spark.scan.vectors.details import VECTOR
from lance_spark.scan.vectors.files.searched import SearchedSegment, open_segments
from lance_spark.scan.vectors.files.segment import VectorSegment
from lance_spark.scan.vectors.flat import FlatSearch, measured_again
from lance_spark.scan.vectors.index_search import IndexSearch, LiveRows, PostFilter
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.neighbors import Neighbors, merged
from lance_spark.scan.vectors.query import NearestQuery
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.index import FindRows
from lance_spark.table.rows.u64_segments import UInt64Array

_LOG = logging.getLogger(__name__)

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

    Attributes
    ----------
    paths : TablePaths
    fragments : sequence of Fragment
    find_rows : callable
    read_vectors : callable
    passing : callable
        Returns the increasing addresses of the rows of some fragments that meet the prefilter, or
        None without one; and the condition that these rows have to meet, too, or None.
    """

    paths: TablePaths
    fragments: Sequence[Fragment]
    find_rows: FindRows
    read_vectors: ReadVectors
    passing: Callable[[Sequence[Fragment]], Passing]


@dataclass(frozen=True, slots=True)
class VectorSearch:
    """A planned search. Can be pickled.

    Attributes
    ----------
    query : NearestQuery
        Its metric is known.
    path : tuple of Field
        The fields from the top-level field to the column.
    dtype : VectorType
    segments : tuple of SearchedSegment
    covered : BitMap
        The fragments of the version that the segments cover.
    uncovered : mapping of int to int
        Fragments with rows whose vectors are read, and the number of these rows.
    overlaid : mapping of int to BitMap
        Rows of covered fragments that the segments have old vectors of.
    measures_again : bool
        Whether the rows that the index finds are measured by their vectors.
    moved : MovedRows
    stable_row_ids : bool
        Whether the table has them.
    code_scale : int
        How many times greater distances by the index are than those of vectors.
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

        Parameters
        ----------
        rows : VectorRows
            At least the rows of the fragments of this search.

        Raises
        ------
        CorruptFileError, CorruptTableError, MissingFileError, StorageError
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

        Parameters
        ----------
        fragments : sequence of Fragment
            Those of the version.

        Raises
        ------
        CorruptFileError, CorruptTableError, MissingFileError, StorageError
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

        Parameters
        ----------
        target : int
            Cost that a share aims at.
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
        search = IndexSearch(query, self.dtype, vectors, live, opened)
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

    Parameters
    ----------
    version : SearchedVersion
    query : NearestQuery
    use_index : bool
        Whether indexes are searched. `query` can say that they are not, too.

    Raises
    ------
    InvalidInputError
        The column does not exist or has no vectors, or the query does not fit.
    CorruptTableError, StorageError
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

    Raises
    ------
    InvalidInputError
        The column has no vectors, or those of another dimension or metric.
    """
    dtype = VectorType.of(path)
    dtype.check_metric(query.metric or dtype.default_metric)
    if query.vectors.shape[1] != dtype.dimension:
        raise InvalidInputError(
            f"q must have {dtype.dimension} items, as the vectors of column {query.column!r}, not "
            f"{query.vectors.shape[1]}"
        )
    return dtype

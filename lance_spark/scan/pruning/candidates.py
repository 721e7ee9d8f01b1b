"""The rows of a table for which conditions can hold, by its indexes.

Rows of all fragments are numbered consecutively, in the table's order, so that a condition is
evaluated once for the whole table. The indexes that answer a comparison:

| index | answer |
| --- | --- |
| of `lance_spark.scan.indexes.search`, such as BTREE | the rows for which the comparison holds |
| zone map | the zones that may have such rows |
| Bloom filter | the zones that may have some values, or nulls |

The first index of `search` that can answer is the only one that is asked. Otherwise the answers of
zone maps and Bloom filters are combined.

An index answers for the fragments that its bitmap names. All rows of other fragments are
candidates, and so are the rows of fragments with overlays of the column. A scan evaluates the
conditions for all candidates again, so that an answer may have too many rows. An index that is
damaged, or whose version is unknown, is left out with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.row_ranges import NO_ROWS, RowRanges, in_all, in_any
from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.scan.indexes.search import SEARCHED, IndexType
from lance_spark.scan.plan import UsedIndex
from lance_spark.scan.predicates.conditions import Condition, candidates_of_all
from lance_spark.scan.pruning import bloom_filters, zone_maps
from lance_spark.scan.pruning.zone_places import INDEX_ERRORS, is_overlaid, starts_of
from lance_spark.scan.task import FragmentSlice
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.index import split_addresses
from lance_spark.table.rows.u64_segments import UInt64Array

_LOG = logging.getLogger(__name__)

#: Returns for row ids whether a live row has the id, and the address of that row.
FindRows = Callable[[UInt64Array], tuple[npt.NDArray[np.bool_], UInt64Array]]

#: An index is not used if it leaves more than one row in this number: reading a chosen row costs
#: as much as reading this many rows one after the other.
_SELECTIVE = 16
#: Rows that an index may always leave.
_FEW_ROWS = 64 * 1024
#: Most rows that the segments of an index leave together. The rows of segments past this number are
#: scanned: the rows of a segment may be found by one process, those of a hundred may not.
_MAX_ROWS = 8 * 1024 * 1024


class _Zones(Protocol):
    """Zones of one column."""

    def candidates(self, op: str, value: Any) -> RowRanges | None:
        """Return the rows for which a comparison can hold; None if unknown."""


@dataclass(frozen=True, slots=True)
class _ZonedType:
    """A type of index that describes zones.

    Attributes
    ----------
    name : str
    versions : collection of int
        Supported versions.
    ops : collection of str
        Comparisons that it answers.
    read : callable
        Returns the zones of a column; see `zone_maps.read_zones`.
    """

    name: str
    versions: Collection[int]
    ops: Collection[str]
    read: Callable[
        [
            TablePaths,
            Sequence[Fragment],
            RowNumbers,
            tuple[Field, ...],
            Sequence[table_pb2.IndexMetadata],
        ],
        _Zones | None,
    ]


#: The order in which they are asked.
_ZONED = (
    _ZonedType(zone_maps.KIND, zone_maps.VERSIONS, zone_maps.OPS, zone_maps.read_zones),
    _ZonedType(
        bloom_filters.KIND, bloom_filters.VERSIONS, bloom_filters.OPS, bloom_filters.read_filters
    ),
)


class Candidates(NamedTuple):
    """The rows for which conditions can hold.

    Attributes
    ----------
    rows : mapping of int to RowRanges
        Physical rows by the fragment's id. A fragment without rows may be missing.
    used : tuple of UsedIndex
        The indexes that decided.
    """

    rows: Mapping[int, RowRanges]
    used: tuple[UsedIndex, ...]


def find_candidates(
    conditions: Sequence[Condition],
    paths: TablePaths,
    manifest: Manifest,
    fragments: Sequence[Fragment],
    find_rows: FindRows,
) -> Candidates | None:
    """Return the rows of a version for which all conditions can hold, by its indexes.

    Parameters
    ----------
    conditions : sequence of Condition
    paths : TablePaths
    manifest : Manifest
    fragments : sequence of Fragment
        Of the version.
    find_rows : callable
        Finds rows by their ids, in tables with stable row ids.

    Returns
    -------
    Candidates or None
        None if no index has one of the columns.

    Raises
    ------
    CorruptTableError, StorageError
    """
    if not conditions or manifest.index_section is None or not fragments:
        return None
    column_paths = {path[-1].id: path for condition in conditions for path in condition.paths}
    segments: dict[int, list[table_pb2.IndexMetadata]] = {}
    section = indexes.read_section(manifest)
    for index in section.indices:
        # Computed columns have negative ids, and no index.
        if len(index.fields) == 1 and index.fields[0] in column_paths:
            segments.setdefault(index.fields[0], []).append(index)
    if not segments or len({fragment.id for fragment in fragments}) < len(fragments):
        # An index names fragments by id. If an id occurs twice, no rows are ruled out.
        return None
    table = _Table(paths, manifest, section, fragments, find_rows)
    columns = {
        number: _Column(table, column_paths[number], segments[number]) for number in segments
    }

    def statistics(field: Field, op: str, value: Any) -> RowRanges | None:
        column = columns.get(field.id)
        return None if column is None else column.candidates(op, value)

    rows = candidates_of_all(conditions, statistics)
    return None if rows is None else Candidates(table.by_fragment(rows), tuple(table.used.values()))


def narrowed(
    groups: Sequence[tuple[FragmentSlice, ...]],
    rows: Mapping[int, RowRanges],
    target_rows: int,
) -> list[tuple[FragmentSlice, ...]]:
    """Return groups of slices without the rows that are ruled out.

    Parameters
    ----------
    groups : sequence of tuple of FragmentSlice
    rows : mapping of int to RowRanges
        The rows to keep, by the fragment's id.
    target_rows : int
        Consecutive groups are joined up to this number of rows.
    """
    result: list[tuple[FragmentSlice, ...]] = []
    current: list[FragmentSlice] = []
    size = 0
    for group in groups:
        remaining = [part for piece in group for part in _narrowed(piece, rows)]
        count = sum(piece.num_rows for piece in remaining)
        if current and size + count > target_rows:
            result.append(tuple(current))
            current, size = [], 0
        current += remaining
        size += count
    if current:
        result.append(tuple(current))
    return result


def _narrowed(piece: FragmentSlice, rows: Mapping[int, RowRanges]) -> Iterator[FragmentSlice]:
    kept = rows.get(piece.fragment.id, NO_ROWS).within(piece.start, piece.stop)
    if kept.num_ranges:
        start, stop = int(kept.starts[0]), int(kept.stops[-1])
        yield piece._replace(start=start, stop=stop, rows=None if kept.num_ranges == 1 else kept)


class _Table:
    """The rows of a version, numbered in its order."""

    def __init__(
        self,
        paths: TablePaths,
        manifest: Manifest,
        section: table_pb2.IndexSection,
        fragments: Sequence[Fragment],
        find_rows: FindRows,
    ) -> None:
        self.paths = paths
        self.fragments = fragments
        self.stable_row_ids = manifest.flags.stable_row_ids
        self.starts = starts_of(fragments)
        self.used: dict[str, UsedIndex] = {}
        #: Whether the rows in index files can be found, although compactions moved them.
        self.can_find_rows = True
        self._moved = MovedRows()
        try:
            self._moved = MovedRows.of(paths, section)
        except INDEX_ERRORS as error:
            _LOG.warning("indexes of rows are ignored: %s", error)
            self.can_find_rows = False
        self._find_rows = find_rows
        ids = np.array([fragment.id for fragment in fragments], np.uint64)
        self._order = np.argsort(ids)
        self._ids = ids[self._order]
        self._id_bitmap = BitMap(ids)
        self.with_overlays = [
            position for position, fragment in enumerate(fragments) if fragment.has_overlays
        ]

    def positions_of(self, index: table_pb2.IndexMetadata) -> RowNumbers:
        """Return the positions of the fragments that a segment covers."""
        bitmap = self._moved.fragments(indexes.fragment_bitmap(index) or BitMap())
        # A bitmap of few bytes can have millions of ids, most of which no fragment has.
        named = bitmap & self._id_bitmap
        ids = np.frombuffer(named.to_array(), np.uint32).astype(np.uint64)
        return self._order[np.searchsorted(self._ids, ids)]

    def rows_of(
        self, index: table_pb2.IndexMetadata, words: UInt64Array, covered: npt.NDArray[np.bool_]
    ) -> RowRanges:
        """Return the rows with some row ids or addresses, as a segment holds them.

        Rows that do not exist, and rows outside of the covered fragments, are left out.
        """
        if self.stable_row_ids and not indexes.holds_addresses(index, stable_row_ids=True):
            is_live, addresses = self._find_rows(words)
            words = addresses[is_live]
        else:
            bitmap = indexes.fragment_bitmap(index) or BitMap()
            words, is_own = self._moved.addresses(words, bitmap)
            words = words[is_own]
        ids, offsets = split_addresses(words)
        position = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        fragment = self._order[position]
        is_known = (self._ids[position] == ids) & covered[fragment]
        is_known &= offsets < np.diff(self.starts)[fragment]
        rows = self.starts[fragment[is_known]] + offsets[is_known]
        return RowRanges.of_rows(np.unique(rows))

    def by_fragment(self, rows: RowRanges) -> dict[int, RowRanges]:
        """Return rows by the id of their fragment, counted from its first row."""
        first = np.searchsorted(self.starts, rows.starts, "right") - 1
        last = np.searchsorted(self.starts, rows.stops - 1, "right") - 1
        touched = RowRanges.of(map(range, first.tolist(), (last + 1).tolist()))
        result = {}
        for positions in touched:
            for position in positions:
                start, stop = self.starts[position : position + 2].tolist()
                result[self.fragments[position].id] = rows.within(start, stop).shifted(-start)
        return result


class _Column:
    """Answers comparisons of one column by its indexes."""

    def __init__(
        self,
        table: _Table,
        path: tuple[Field, ...],
        segments: Sequence[table_pb2.IndexMetadata],
    ) -> None:
        self._table = table
        self._path = path
        dtype = path[-1].arrow_field.type
        self._dtype = dtype.value_type if pat.is_dictionary(dtype) else dtype
        self._segments = segments
        self._zones: dict[str, tuple[Sequence[table_pb2.IndexMetadata], _Zones | None]] = {}
        self._searched = [
            (index_type, [index for index in segments if indexes.type_of_index(index) == name])
            for name, index_type in SEARCHED.items()
        ]

    def candidates(self, op: str, value: Any) -> RowRanges | None:
        """Return the rows for which a comparison can hold; None if no index decides."""
        for index_type, segments in self._searched if self._table.can_find_rows else ():
            if op in index_type.ops and segments:
                rows = self._search(index_type, segments, op, value)
                if rows is not None:
                    return rows
        return in_all([self._by_zones(index_type, op, value) for index_type in _ZONED])

    def _by_zones(self, index_type: _ZonedType, op: str, value: Any) -> RowRanges | None:
        """Return the rows that the zones of one type leave; None if they do not decide."""
        if op not in index_type.ops:
            return None
        segments, zones = self._zones_of(index_type)
        rows = None if zones is None else zones.candidates(op, value)
        if rows is not None:
            self._note(segments[0], rows.num_rows)
        return rows

    def _zones_of(
        self, index_type: _ZonedType
    ) -> tuple[Sequence[table_pb2.IndexMetadata], _Zones | None]:
        """Return the segments of one type, and their zones; None if no zones are usable."""
        if index_type.name not in self._zones:
            table = self._table
            segments = [
                segment
                for segment in self._segments
                if indexes.type_of_index(segment) == index_type.name
                and _is_known(segment, index_type.versions)
            ]
            zones = None
            if segments:
                zones = index_type.read(
                    table.paths, table.fragments, table.starts, self._path, segments
                )
            self._zones[index_type.name] = segments, zones
        return self._zones[index_type.name]

    def _search(
        self,
        index_type: IndexType,
        segments: Sequence[table_pb2.IndexMetadata],
        op: str,
        value: Any,
    ) -> RowRanges | None:
        """Return the rows that segments of one type leave; None if they do not decide."""
        table = self._table
        answered = np.zeros(len(table.fragments), np.bool_)
        answers = []
        remaining = _MAX_ROWS
        for segment in segments:
            if not (_is_known(segment, index_type.versions) and _has_all_rows(segment)):
                continue
            covered = self._covered(segment) & ~answered
            if not covered.any():
                continue
            num_rows = int(np.diff(table.starts)[covered].sum())
            limit = min(max(num_rows // _SELECTIVE, _FEW_ROWS), remaining)
            files = IndexFiles(table.paths, segment)
            try:
                words = index_type.search(files, self._dtype, op, value, limit)
            except INDEX_ERRORS as error:
                _LOG.warning("index %r is ignored: %s", segment.name, error)
                continue
            if words is None:
                continue
            remaining -= len(words)
            answers.append(table.rows_of(segment, words, covered))
            answered |= covered
        if not answers:
            return None
        self._note(segments[0], sum(rows.num_rows for rows in answers))
        return in_any([*answers, RowRanges.of_blocks(table.starts, ~answered)])

    def _covered(self, segment: table_pb2.IndexMetadata) -> npt.NDArray[np.bool_]:
        """Return the fragments that a segment covers, without those that overlays changed."""
        fragments = self._table.fragments
        covered = np.zeros(len(fragments), np.bool_)
        covered[self._table.positions_of(segment)] = True
        field_ids = {node.id for node in self._path}
        for position in self._table.with_overlays:
            if is_overlaid(fragments[position], field_ids):
                covered[position] = False
        return covered

    def _note(self, index: table_pb2.IndexMetadata, num_rows: int) -> None:
        """Note that an index answered; of several answers, the one with the fewest rows."""
        existing = self._table.used.get(index.name)
        if existing is None or num_rows < existing.num_rows:
            column = ".".join(node.name for node in self._path)
            self._table.used[index.name] = UsedIndex(
                index.name, indexes.type_of_index(index), column, num_rows
            )


def _is_known(segment: table_pb2.IndexMetadata, versions: Collection[int]) -> bool:
    """Return whether the version of a segment is supported; warn if it is not."""
    if segment.index_version in versions:
        return True
    _LOG.warning(
        "index %r is ignored: its version %d is unknown", segment.name, segment.index_version
    )
    return False


def _has_all_rows(segment: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment has all rows of its fragments; warn if it may not."""
    if not indexes.may_lack_rows(segment):
        return True
    _LOG.warning(
        "index %r is ignored: an early release wrote it, and may have left out rows; rebuild it",
        segment.name,
    )
    return False

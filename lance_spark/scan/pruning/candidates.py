"""The rows of a table for which conditions can hold, by its indexes.

Rows of all fragments are numbered consecutively, in the table's order, so that a condition is
evaluated once for the whole table. The indexes that answer a comparison:

| index | answer |
| --- | --- |
| of `lance_spark.scan.indexes.search`, such as BTREE | the rows for which the comparison holds |
| zone map | the zones that may have such rows |
| Bloom filter | the zones that may have some values, or nulls |
| JSON | those of its target, for the values at its path |

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
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.row_ranges import RowRanges, in_all, in_any
from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes import json_path
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.scan.indexes.search import SEARCHED, IndexType
from lance_spark.scan.plan import UsedIndex
from lance_spark.scan.predicates.conditions import Condition, JsonQuestion, candidates_of_all
from lance_spark.scan.pruning import bloom_filters, zone_maps
from lance_spark.scan.pruning.zone_places import INDEX_ERRORS, is_overlaid, starts_of
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.index import FindRows, split_addresses
from lance_spark.table.rows.u64_segments import UInt64Array

_LOG = logging.getLogger(__name__)

#: An index is not used if it leaves more than one row in this number: reading a chosen row costs
#: as much as reading this many rows one after the other.
_SELECTIVE = 16
#: Rows that an index may always leave.
_FEW_ROWS = 64 * 1024
#: The same for rows in more than half of the chunks of the table, if a chunk has fewer than one in
#: `_DENSE` of its rows among them: all columns are decoded nearly whole.
_SELECTIVE_SCATTERED = 128
_FEW_SCATTERED = 16 * 1024
_DENSE = 4
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


class TableIndexes:
    """The indexes of a version, and its rows, numbered in its order.

    Threads can share it: a search for candidates changes nothing but what is read once.

    Parameters
    ----------
    paths : TablePaths
    manifest : Manifest
    fragments : sequence of Fragment
        Of the version.
    find_rows : callable
        Finds rows by their ids, in tables with stable row ids.

    Raises
    ------
    CorruptTableError
    """

    def __init__(
        self,
        paths: TablePaths,
        manifest: Manifest,
        fragments: Sequence[Fragment],
        find_rows: FindRows,
    ) -> None:
        self.paths = paths
        self.fragments = fragments
        self.stable_row_ids = manifest.flags.stable_row_ids
        self._section = indexes.read_section(manifest)
        self._segments: dict[int, list[table_pb2.IndexMetadata]] = {}
        for index in self._section.indices:
            # Computed columns have negative ids, and no index.
            if len(index.fields) == 1:
                self._segments.setdefault(index.fields[0], []).append(index)
        self._columns: dict[tuple[int, ...], _Column] = {}
        self._find_rows = find_rows

    def candidates(self, conditions: Sequence[Condition]) -> Candidates | None:
        """Return the rows for which all conditions can hold.

        Returns
        -------
        Candidates or None
            None if no index decides, or if a scan of all rows costs less.

        Raises
        ------
        CorruptTableError, StorageError
        """
        columns = {
            path[-1].id: self._column(path)
            for condition in conditions
            for path in condition.paths
            if path[-1].id in self._segments
        }
        if not columns or not self.fragments or not self._has_unique_ids:
            return None
        used: dict[str, UsedIndex] = {}

        def statistics(field: Field, op: str, value: Any) -> RowRanges | None:
            column = columns.get(field.id)
            return None if column is None else column.candidates(op, value, used)

        rows = candidates_of_all(conditions, statistics)
        if rows is not None and _is_everywhere(rows, int(self.starts[-1])):
            return None
        return None if rows is None else Candidates(self._by_fragment(rows), tuple(used.values()))

    def _column(self, path: tuple[Field, ...]) -> _Column:
        ids = tuple(node.id for node in path)
        column = self._columns.get(ids)
        if column is None:
            column = self._columns[ids] = _Column(self, path, self._segments[ids[-1]])
        return column

    @cached_property
    def starts(self) -> RowNumbers:
        """The number of each fragment's first row, and the number of all rows."""
        return starts_of(self.fragments)

    @cached_property
    def with_overlays(self) -> list[int]:
        """The positions of the fragments with overlays."""
        return [
            position for position, fragment in enumerate(self.fragments) if fragment.has_overlays
        ]

    @cached_property
    def moved(self) -> MovedRows | None:
        """The rows that compactions moved; None if the rows in index files cannot be found."""
        try:
            return MovedRows.of(self.paths, self._section)
        except INDEX_ERRORS as error:
            _LOG.warning("indexes of rows are ignored: %s", error)
            return None

    @cached_property
    def _ids(self) -> UInt64Array:
        return np.array([fragment.id for fragment in self.fragments], np.uint64)[self._order]

    @cached_property
    def _order(self) -> RowNumbers:
        return np.argsort(np.array([fragment.id for fragment in self.fragments], np.uint64))

    @cached_property
    def _id_bitmap(self) -> BitMap:
        return BitMap(self._ids)

    @cached_property
    def _has_unique_ids(self) -> bool:
        # An index names fragments by id. If an id occurs twice, no rows are ruled out.
        return len(self._id_bitmap) == len(self.fragments)

    def positions_of(self, index: table_pb2.IndexMetadata) -> RowNumbers:
        """Return the positions of the fragments that a segment covers."""
        if self.moved is None:
            return np.empty(0, np.int64)
        bitmap = self.moved.fragments(indexes.fragment_bitmap(index) or BitMap())
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
        elif self.moved is not None:
            bitmap = indexes.fragment_bitmap(index) or BitMap()
            words, is_own = self.moved.addresses(words, bitmap)
            words = words[is_own]
        ids, offsets = split_addresses(words)
        position = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        fragment = self._order[position]
        is_known = (self._ids[position] == ids) & covered[fragment]
        is_known &= offsets < np.diff(self.starts)[fragment]
        rows = self.starts[fragment[is_known]] + offsets[is_known]
        return RowRanges.of_rows(np.unique(rows))

    def _by_fragment(self, rows: RowRanges) -> dict[int, RowRanges]:
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
        table: TableIndexes,
        path: tuple[Field, ...],
        segments: Sequence[table_pb2.IndexMetadata],
        type_name: str | None = None,
    ) -> None:
        self._table = table
        self._path = path
        #: The type that a query shows, if it is not that of the segments.
        self._type_name = type_name
        self._in_documents: dict[Any, _Column] = {}
        dtype = path[-1].arrow_field.type
        self._dtype = dtype.value_type if pat.is_dictionary(dtype) else dtype
        self._segments = segments
        # By the identity of the segments, which this object keeps.
        self._coverage: dict[int, npt.NDArray[np.bool_]] = {}
        self._zones: dict[str, tuple[Sequence[table_pb2.IndexMetadata], _Zones | None]] = {}
        self._searched = [
            (index_type, [index for index in segments if indexes.type_of_index(index) == name])
            for name, index_type in SEARCHED.items()
        ]

    def candidates(self, op: str, value: Any, used: dict[str, UsedIndex]) -> RowRanges | None:
        """Return the rows for which a comparison can hold; None if no index decides.

        Adds the indexes that answer to `used`.
        """
        if op == "json":
            return self._of_documents(value, used)
        for index_type, segments in self._searched:
            if op in index_type.ops and segments and self._table.moved is not None:
                rows = self._search(index_type, segments, op, value, used)
                if rows is not None:
                    return rows
        return in_all([self._by_zones(index_type, op, value, used) for index_type in _ZONED])

    def _of_documents(self, question: JsonQuestion, used: dict[str, UsedIndex]) -> RowRanges | None:
        """Return the rows whose documents have values for which a comparison can hold."""
        key = (question.keys, question.dtype)
        column = self._in_documents.get(key)
        if column is None:
            leaf = self._path[-1]
            values = Field.from_arrow(pa.field(leaf.name, question.dtype), leaf.id)
            segments = list(self._targets(question.keys))
            column = _Column(self._table, (*self._path[:-1], values), segments, json_path.KIND)
            self._in_documents[key] = column
        rows = column.candidates(question.op, question.value, used)
        if question.op == "is_null" and pat.is_string(question.dtype):
            # Early releases recorded null in a document as this text.
            rows = in_any((rows, column.candidates("==", pa.scalar("null"), used)))
        return rows

    def _targets(self, keys: Sequence[Any]) -> Iterator[table_pb2.IndexMetadata]:
        """Yield the segments of JSON indexes that have the values of keys, as their targets."""
        for segment in self._segments:
            if indexes.type_of_index(segment) == json_path.KIND and _is_known(
                segment, json_path.VERSIONS
            ):
                try:
                    target = json_path.searched_target(segment, keys)
                except INDEX_ERRORS as error:
                    _LOG.warning("index %r is ignored: %s", segment.name, error)
                    continue
                if target is not None:
                    yield target

    def _by_zones(
        self, index_type: _ZonedType, op: str, value: Any, used: dict[str, UsedIndex]
    ) -> RowRanges | None:
        """Return the rows that the zones of one type leave; None if they do not decide."""
        if op not in index_type.ops:
            return None
        segments, zones = self._zones_of(index_type)
        rows = None if zones is None else zones.candidates(op, value)
        if rows is not None:
            self._note(used, segments[0], rows.num_rows)
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
        used: dict[str, UsedIndex],
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
        self._note(used, segments[0], sum(rows.num_rows for rows in answers))
        return in_any([*answers, RowRanges.of_blocks(table.starts, ~answered)])

    def _covered(self, segment: table_pb2.IndexMetadata) -> npt.NDArray[np.bool_]:
        """Return the fragments that a segment covers, without those that overlays changed."""
        covered = self._coverage.get(id(segment))
        if covered is None:
            fragments = self._table.fragments
            covered = np.zeros(len(fragments), np.bool_)
            covered[self._table.positions_of(segment)] = True
            field_ids = {node.id for node in self._path}
            for position in self._table.with_overlays:
                if is_overlaid(fragments[position], field_ids):
                    covered[position] = False
            self._coverage[id(segment)] = covered
        return covered

    def _note(
        self, used: dict[str, UsedIndex], index: table_pb2.IndexMetadata, num_rows: int
    ) -> None:
        """Note that an index answered; of several answers, the one with the fewest rows."""
        existing = used.get(index.name)
        if existing is None or num_rows < existing.num_rows:
            column = ".".join(node.name for node in self._path)
            type_name = self._type_name or indexes.type_of_index(index)
            used[index.name] = UsedIndex(index.name, type_name, column, num_rows)


def _is_everywhere(rows: RowRanges, num_rows: int) -> bool:
    """Return whether rows lie in most chunks of a table, so that to scan it costs less."""
    return rows.num_rows > max(
        _FEW_SCATTERED, num_rows // _SELECTIVE_SCATTERED
    ) and rows.num_decoded > max(num_rows // 2, _DENSE * rows.num_rows)


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

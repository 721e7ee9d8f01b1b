"""Zones: runs of some thousand consecutive live rows of one fragment.

ZONEMAP and BLOOMFILTER indexes have a row for each zone. Both have these columns:

| column | content |
| --- | --- |
| fragment_id | u64 |
| zone_start | u64; row offset of the zone's first live row |
| zone_length | u64; up to the zone's last live row |

Offsets are physical, also in tables with stable row ids. The zones of a fragment follow one
another. The schema metadata `null_bitmap` is the number of a global buffer with the addresses of
all null rows, as a row address map (`row_sets`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.files import INDEX_ERRORS
from lance_spark.indexes.row_sets import RowSet
from lance_spark.indexes.table_rows import overlaid_rows
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.addresses import fragment_runs
from lance_spark.table.rows.deletions import offsets_of, read_deletions
from lance_spark.table.rows.u64_segments import UInt64Array

PLACE_COLUMNS = ("fragment_id", "zone_start", "zone_length")
PLACE_FIELDS = [pa.field(name, pa.uint64(), nullable=False) for name in PLACE_COLUMNS]
#: Key in the schema metadata of an index that knows which rows are null.
NULL_BITMAP = "null_bitmap"
#: Live rows of a zone, if the caller does not say.
DEFAULT_ROWS = 8192


@dataclass(frozen=True, slots=True)
class ZonedRows:
    """Live rows of fragments, divided into zones.

    - `bounds` (int64 array): Number of each zone's first row among the rows, and the number of all
      rows.
    - `fragment_id`, `start`, `length` (uint64 arrays): The place of each zone.
    """

    bounds: RowNumbers
    fragment_id: UInt64Array
    start: UInt64Array
    length: UInt64Array

    @classmethod
    def of(cls, addresses: UInt64Array, rows_per_zone: int) -> ZonedRows:
        """Divide rows, given by their addresses in increasing order."""
        ids, first, last, bounds = [], [], [], []
        for number, part, offsets in fragment_runs(addresses):
            starts = np.arange(0, len(offsets), rows_per_zone)
            ends = np.append(starts[1:], len(offsets)) - 1
            ids.append(np.full(len(starts), number, np.uint64))
            first.append(offsets[starts])
            last.append(offsets[ends])
            bounds.append(starts + part.start)
        none = np.empty(0, np.int64)
        start, stop = np.concatenate([none, *first]), np.concatenate([none, *last]) + 1
        return cls(
            np.concatenate([none, *bounds, [len(addresses)]]).astype(np.int64),
            np.concatenate([none.astype(np.uint64), *ids]),
            start.astype(np.uint64),
            (stop - start).astype(np.uint64),
        )

    @property
    def num_zones(self) -> int:
        """The number of zones."""
        return len(self.start)

    def counts(self, flags: npt.NDArray[np.bool_]) -> RowNumbers:
        """Return the number of true flags in each zone, given a flag for each row."""
        totals = np.cumsum(flags, dtype=np.int64)
        counts: RowNumbers = np.diff(np.append(0, totals)[self.bounds])
        return counts

    def place_columns(self) -> list[pa.Array]:
        """Return the columns `PLACE_COLUMNS`."""
        return [pa.array(column) for column in (self.fragment_id, self.start, self.length)]


def add_null_bitmap(writer: FileWriter, values: pa.Array, addresses: UInt64Array) -> None:
    """Write which rows are null."""
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    set_null_bitmap(writer, RowSet.of(addresses[is_null]))


def set_null_bitmap(writer: FileWriter, rows: RowSet) -> None:
    """Write which rows are null."""
    writer.set_metadata(NULL_BITMAP, str(writer.add_global_buffer(rows.encode())))


def with_integers(zones: pa.Table, names: Sequence[str], name: str) -> pa.Table:
    """Return zones with some columns as int64. Too large numbers become negative.

    - `names`: Columns of integers. Their width depends on the release of the writer.
    - `name`: What errors call the file.

    Raises CorruptFileError: a column has another type, or nulls.
    """
    for column_name in names:
        column = zones[column_name]
        if column.null_count or not pat.is_integer(column.type):
            raise CorruptFileError(
                f"{name}: {column_name} must be an integer and not null; rebuild the index"
            )
        index = zones.column_names.index(column_name)
        zones = zones.set_column(index, column_name, column.cast(pa.int64(), safe=False))
    return zones


# --------------------------------------------------------------------------------------------------
# Places the zones of indexes among the rows of a table.
#
# Rows of all fragments are numbered consecutively, in the table's order. The zones of a fragment
# follow one another; rows outside of all zones were deleted when the index was built. So a zone is
# extended up to the start of the next zone. A fragment is ignored if a live row is outside of all
# zones, or if the segment's bitmap does not name the fragment. A zone is ignored if an overlay that
# is newer than the segment covers one of its rows.
#
# In releases until 2025 `zone_length` is the number of live rows.

_LOG = logging.getLogger(__name__)

_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PlacedZones:
    """All rows of a table, divided into zones and into parts that zones do not describe.

    - `bounds` (int64 array): First row of each part, and the number of all rows.
    - `is_zone` (bool array): Whether the part is a zone.
    - `columns`: The columns of each zone; null for another part.
    """

    bounds: RowNumbers
    is_zone: _Flags
    columns: pa.Table


class ZonePlacer:
    """Places the zones of one column.

    - `fragments`: Of the version.
    - `starts` (int64 array): The result of `table_rows.starts_of` for the fragments.
    - `field_ids`: The result of `value_fields` for the column.
    """

    def __init__(
        self,
        paths: TablePaths,
        fragments: Sequence[Fragment],
        starts: RowNumbers,
        field_ids: Collection[int],
    ) -> None:
        self._paths = paths
        self._fragments = fragments
        self._starts = starts
        self._field_ids = field_ids
        self._index_of = {fragment.id: index for index, fragment in enumerate(fragments)}
        self._fragment_ids = BitMap(self._index_of)

    def place(
        self,
        segments: Sequence[table_pb2.IndexMetadata],
        read: Callable[[table_pb2.IndexMetadata], pa.Table | None],
    ) -> PlacedZones | None:
        """Return the zones of segments; None if no segment has usable zones.

        A segment that is damaged is left out with a warning.

        - `read`: Returns the zones of a segment, with integers in the columns
          `zones.PLACE_COLUMNS`. The tables of all segments have the same columns. None if the
          segment is not usable.

        Raises CorruptTableError, CorruptFileError, StorageError: a deletion file is damaged or
        missing.
        """
        tables = []
        covered: set[int] = set()
        for segment in segments:
            positions = self._covered(segment) - covered
            if not positions:
                continue
            try:
                table = read(segment)
            except INDEX_ERRORS as error:
                _LOG.warning("index %r is ignored: %s", segment.name, error)
                continue
            if table is None:
                continue
            table = self._usable(table, positions, segment.dataset_version)
            covered |= set(table["position"].to_numpy().tolist())
            tables.append(table)
        return self._parts(pa.concat_tables(tables), covered) if covered else None

    def _covered(self, segment: table_pb2.IndexMetadata) -> set[int]:
        """Return the positions of the fragments that a segment describes."""
        bitmap = indexes.fragment_bitmap(segment)
        # A bitmap of few bytes can have millions of ids, most of which no fragment has.
        named = BitMap() if bitmap is None else bitmap & self._fragment_ids
        return {self._index_of[fragment_id] for fragment_id in named}

    def _usable(self, table: pa.Table, positions: set[int], built_on: int) -> pa.Table:
        """Return the zones of wanted fragments that have all their live rows in zones.

        The zones are in the table's order. The columns `position` of the fragment, `first_row` and
        `is_overlaid` are added.
        """
        # Too large numbers become negative, and are found to be wrong.
        ids, start, length = (
            table[name].to_numpy().astype(np.int64)
            for name in ("fragment_id", "zone_start", "zone_length")
        )
        stop = start + length
        fragment = np.array([self._index_of.get(number, -1) for number in ids.tolist()], np.int64)
        order = np.lexsort([start, fragment])
        order = order[np.isin(fragment[order], list(positions))]
        order = order[self._has_all_live(fragment[order], start[order], stop[order])]
        first = self._starts[fragment[order]] + start[order]
        # The rows before the first zone of a fragment are deleted, and become part of the zone.
        heads = np.flatnonzero(np.diff(fragment[order], prepend=-1))
        first[heads] = self._starts[fragment[order][heads]]
        has_new_values = self._has_new_values(fragment[order], first, built_on)
        return (
            table.take(pa.array(order))
            .append_column("position", pa.array(fragment[order]))
            .append_column("first_row", pa.array(first))
            .append_column("is_overlaid", pa.array(has_new_values))
        )

    def _has_new_values(self, fragment: RowNumbers, first: RowNumbers, built_on: int) -> _Flags:
        """Return for each zone whether an overlay covers one of its rows.

        - `fragment`, `first` (int64 arrays): Position of each zone's fragment, and the zone's first
          row in the table.
        - `built_on`: The version whose values the zones describe.
        """
        flags = np.zeros(len(fragment), np.bool_)
        for position in np.unique(fragment).tolist():
            rows = overlaid_rows(self._fragments[position], self._field_ids, built_on)
            if rows:
                numbers = self._starts[position] + offsets_of(rows)
                flags[np.searchsorted(first, numbers, "right") - 1] = True
        return flags

    def _has_all_live(self, fragment: RowNumbers, start: RowNumbers, stop: RowNumbers) -> _Flags:
        """Return for each zone whether the zones of its fragment have all live rows.

        - `fragment` (int64 array): Position of each zone's fragment. The zones of a fragment follow
          one another.
        - `start`, `stop` (int64 arrays): Rows of each zone in its fragment.
        """
        heads = np.flatnonzero(np.diff(fragment, prepend=-1))
        if not len(heads):
            return np.zeros(0, np.bool_)
        sizes = np.diff(heads, append=len(fragment))
        fragments = [self._fragments[index] for index in fragment[heads].tolist()]
        rows = np.array([fragment.physical_rows for fragment in fragments])
        is_wrong = (start < 0) | (stop < start) | (stop > np.repeat(rows, sizes))
        is_wrong[:-1] |= (fragment[:-1] == fragment[1:]) & (stop[:-1] > start[1:])
        is_valid = np.add.reduceat(is_wrong, heads, dtype=np.int64) == 0
        has_all = is_valid & (np.add.reduceat(stop - start, heads) == rows)
        for index in np.flatnonzero(is_valid & ~has_all).tolist():
            zones = slice(heads[index], heads[index] + sizes[index])
            has_all[index] = self._others_deleted(fragments[index], start[zones], stop[zones])
        return np.repeat(has_all, sizes)

    def _others_deleted(self, fragment: Fragment, start: RowNumbers, stop: RowNumbers) -> bool:
        """Return whether all rows of a fragment outside of its zones are deleted."""
        if fragment.deletion_file is None:
            return False
        # Zones do not overlap, so that counting is enough. No array has the size of the fragment,
        # which is only claimed by the manifest.
        deleted = read_deletions(self._paths, fragment)
        zone = np.searchsorted(start, deleted, "right") - 1
        inside = (zone >= 0) & (deleted < stop[zone])
        rows = int((stop - start).sum()) + int(np.count_nonzero(~inside))
        return rows == fragment.physical_rows

    def _parts(self, table: pa.Table, covered: set[int]) -> PlacedZones:
        # Each fragment without zones becomes a part.
        uncovered = np.array(sorted(set(range(len(self._fragments))) - covered), np.int64)
        first = np.concatenate([table["first_row"].to_numpy(), self._starts[uncovered]])
        order = np.argsort(first, kind="stable")
        is_zone = np.append(~table["is_overlaid"].to_numpy(), np.zeros(len(uncovered), np.bool_))
        is_zone = is_zone[order]
        return PlacedZones(
            np.append(first[order], self._starts[-1]),
            is_zone,
            table.take(pa.array(order, mask=~is_zone)),
        )

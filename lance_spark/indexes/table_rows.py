"""The rows of a version, numbered in its order, and which of them the segments of indexes hold."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lance_spark.encoding.rows import NO_ROWS, RowNumbers, RowRanges
from lance_spark.file.schema.field import Field
from lance_spark.indexes.files import INDEX_ERRORS
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.files import Overlay
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.addresses import FindRows, split_addresses
from lance_spark.table.rows.deletions import decode_rows, offsets_of
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Rows whose values overlays have replaced since an index was built.
#
# The files of an index have the values of the version that it was built on. An overlay that was
# committed later has other values for the rows that it covers. A search takes the rows of an index
# without these rows, and evaluates these rows by their values in the table.


def value_fields(path: Sequence[Field]) -> frozenset[int]:
    """Return the ids of the fields whose values a column has.

    - `path`: The fields from the top-level field to the column.
    """
    return frozenset(node.id for node in path) | {node.id for node in path[-1].walk()}


def is_overlaid(fragment: Fragment, ids: Collection[int], since: int = 0) -> bool:
    """Return whether overlays of a fragment have new values of some fields.

    - `ids`: Ids of the fields.
    - `since`: The version whose values are known: its overlays do not count.
    """
    return fragment.has_overlays and any(_newer(fragment, ids, since))


def overlaid_rows(fragment: Fragment, ids: Collection[int], since: int = 0) -> BitMap:
    """Return the offsets of the rows that the overlays of `is_overlaid` cover.

    Raises CorruptTableError: the rows of an overlay cannot be decoded.
    """
    rows = BitMap()
    if fragment.has_overlays:
        for overlay in _newer(fragment, ids, since):
            name = f"overlay {overlay.data_file.path}"
            for data in overlay.bitmaps:
                rows |= decode_rows(data, fragment.physical_rows, name)
    return rows


def _newer(fragment: Fragment, ids: Collection[int], since: int) -> list[Overlay]:
    wanted = set(ids)
    return [
        overlay
        for overlay in fragment.overlays
        # A version of 0 is not recorded.
        if not 0 < overlay.committed_version <= since
        and not wanted.isdisjoint(overlay.data_file.fields)
    ]


# --------------------------------------------------------------------------------------------------
# The rows of a version, numbered in its order, and which of them the segments of indexes hold.

_LOG = logging.getLogger(__name__)


def starts_of(fragments: Sequence[Fragment]) -> RowNumbers:
    """Return the number of each fragment's first row, and the number of all rows."""
    return np.cumsum([0, *(fragment.physical_rows for fragment in fragments)])


class TableRows:
    """The rows of some fragments, numbered in their order.

    - `section`: The indexes of the version.
    - `stable_row_ids`: Whether the table has stable row ids.
    - `find_rows`: Finds rows of the fragments by their ids, in tables with stable row ids.
    """

    def __init__(
        self,
        paths: TablePaths,
        section: table_pb2.IndexSection,
        stable_row_ids: bool,
        fragments: Sequence[Fragment],
        find_rows: FindRows,
    ) -> None:
        self.paths = paths
        self.section = section
        self.stable_row_ids = stable_row_ids
        self.fragments = fragments
        self._find_rows = find_rows

    @cached_property
    def starts(self) -> RowNumbers:
        """The number of each fragment's first row, and the number of all rows."""
        return starts_of(self.fragments)

    @cached_property
    def _with_overlays(self) -> RowNumbers:
        flags = np.array([fragment.has_overlays for fragment in self.fragments], np.bool_)
        return np.flatnonzero(flags)

    def overlaid_rows(
        self, positions: RowNumbers, field_ids: Collection[int], since: int
    ) -> RowRanges:
        """Return the rows of some fragments that overlays cover; see `overlaid_rows.overlaid_rows`.

        - `positions` (int64 array): Positions of the fragments.
        """
        if not len(self._with_overlays):
            return NO_ROWS
        parts = [np.empty(0, np.int64)]
        for position in np.intersect1d(positions, self._with_overlays).tolist():
            rows = overlaid_rows(self.fragments[position], field_ids, since)
            parts.append(self.starts[position] + offsets_of(rows))
        return RowRanges.of_rows(np.concatenate(parts))

    @cached_property
    def moved(self) -> MovedRows | None:
        """The rows that compactions moved; None if the rows in index files cannot be found."""
        try:
            return MovedRows.of(self.paths, self.section)
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
    def has_unique_ids(self) -> bool:
        """Whether no two fragments have the same id."""
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
        self, index: table_pb2.IndexMetadata, row_keys: UInt64Array, covered: npt.NDArray[np.bool_]
    ) -> RowRanges:
        """Return the rows with some row ids or addresses, as a segment holds them.

        Rows that do not exist, and rows outside of the covered fragments, are left out.
        """
        if self.stable_row_ids and not indexes.holds_addresses(index, stable_row_ids=True):
            is_live, addresses = self._find_rows(row_keys)
            row_keys = addresses[is_live]
        elif self.moved is not None:
            bitmap = indexes.fragment_bitmap(index) or BitMap()
            row_keys, is_own = self.moved.addresses(row_keys, bitmap)
            row_keys = row_keys[is_own]
        ids, offsets = split_addresses(row_keys)
        position = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        fragment = self._order[position]
        is_known = (self._ids[position] == ids) & covered[fragment]
        is_known &= offsets < np.diff(self.starts)[fragment]
        rows = self.starts[fragment[is_known]] + offsets[is_known]
        return RowRanges.of_rows(np.sort(rows))

    def by_fragment(self, rows: RowRanges) -> Iterator[tuple[int, RowRanges]]:
        """Yield the positions of the fragments of rows, and the rows, counted from its first."""
        first = np.searchsorted(self.starts, rows.starts, "right") - 1
        last = np.searchsorted(self.starts, rows.stops - 1, "right") - 1
        is_touched = np.zeros(len(self.fragments) + 1, np.int64)
        np.add.at(is_touched, first, 1)
        np.subtract.at(is_touched, last + 1, 1)
        positions = np.flatnonzero(np.cumsum(is_touched))
        # All at once, because a table may have thousands of fragments.
        starts, stops = self.starts[positions], self.starts[positions + 1]
        first = np.searchsorted(rows.stops, starts, "right")
        counts = np.maximum(np.searchsorted(rows.starts, stops, "left") - first, 0)
        ends = np.cumsum(counts)
        ranges = np.arange(counts.sum()) + np.repeat(first - (ends - counts), counts)
        begins = np.repeat(starts, counts)
        range_starts = np.maximum(rows.starts[ranges], begins) - begins
        range_stops = np.minimum(rows.stops[ranges], np.repeat(stops, counts)) - begins
        for position, begin, end in zip(
            positions.tolist(), (ends - counts).tolist(), ends.tolist(), strict=True
        ):
            yield position, RowRanges(range_starts[begin:end], range_stops[begin:end])

"""Segments that are merged, and the rows of them that the merged segment keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, BitMap64

from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.indexes.moved_rows import MovedRows, in_fragments
from lance_spark.scan.indexes.row_sets import RowSet
from lance_spark.table.rows.index import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array


class KeptRows:
    """The rows of an existing segment that stay.

    Parameters
    ----------
    covered : BitMap
        The fragments that the segment names. They may have been replaced, although its files still
        have the old addresses.
    fragments : BitMap
        The fragments whose rows stay.
    moved : MovedRows or None
        Translates old addresses; None if the files have row ids.
    live : RowSet or None
        The live rows of `fragments`, as the files name rows; None if the files have each row once,
        so that rows which were deleted do no harm.
    """

    def __init__(
        self, covered: BitMap, fragments: BitMap, moved: MovedRows | None, live: RowSet | None
    ) -> None:
        self.fragments = fragments
        self._covered, self._moved, self._live = covered, moved, live
        self._known: RowSet | None = None
        self._live64: BitMap64 | None = None

    def addresses(self, row_keys: UInt64Array) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the newest addresses of rows, and which of the rows stay."""
        assert self._moved is not None, "row ids are kept as sets"
        row_keys, exists = self._moved.addresses(row_keys, self._covered)
        return row_keys, exists & in_fragments(row_keys, self.fragments)

    def rows(self, row_keys: UInt64Array) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the newest addresses, or the ids, of rows, and which of the rows are live.

        Addresses of deleted rows stay, if the live rows are not known.
        """
        if self._live is None:
            return self.addresses(row_keys)
        stays = np.ones(len(row_keys), np.bool_)
        if self._moved is not None:
            row_keys, stays = self.addresses(row_keys)
        highs = row_keys >> np.uint64(OFFSET_BITS)
        for high in np.unique(highs).tolist():
            places = np.flatnonzero(highs == high)
            live = self._live.bitmaps.get(high, BitMap()) & BitMap(
                row_keys[places].astype(np.uint32)
            )
            low = np.frombuffer(live.to_array(), np.uint32)
            stays[places] &= np.isin(row_keys[places].astype(np.uint32), low)
        return row_keys, stays

    def of_set(self, rows: RowSet) -> RowSet:
        """Return the rows of a set that stay."""
        assert self._live is not None, "the live rows are needed"
        if self._moved is not None and any(True for _ in self._moved.old_fragments()):
            # A damaged set of few bytes can have billions of row keys.
            rows = RowSet.intersection([rows, self._known_rows(self._moved)])
            row_keys, stays = self.addresses(rows.row_keys())
            rows = RowSet.of(np.sort(row_keys[stays]))
        rows = RowSet.intersection([rows, self._live])
        return RowSet({high: bitmap for high, bitmap in rows.bitmaps.items() if bitmap})

    def of_bitmap(self, rows: BitMap64) -> BitMap64:
        """Return the rows of a 64-bit bitmap that stay."""
        assert self._live is not None, "the live rows are needed"
        if self._moved is not None and any(True for _ in self._moved.old_fragments()):
            rows &= _as_bitmap(self._known_rows(self._moved))
            row_keys, stays = self.addresses(np.frombuffer(rows.to_array(), np.uint64))
            rows = BitMap64(row_keys[stays])
        if self._live64 is None:
            self._live64 = _as_bitmap(self._live)
        return rows & self._live64

    def _known_rows(self, moved: MovedRows) -> RowSet:
        """Return the live rows, and all rows that compactions moved."""
        if self._known is None:
            assert self._live is not None
            self._known = RowSet.union([self._live, moved.old_rows()])
        return self._known


def _as_bitmap(rows: RowSet) -> BitMap64:
    result = BitMap64()
    for high, bitmap in rows.bitmaps.items():
        row_keys = np.frombuffer(bitmap.to_array(), np.uint32).astype(np.uint64)
        result.update(row_keys | np.uint64(high << OFFSET_BITS))
    return result


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """A segment to merge.

    Attributes
    ----------
    files : IndexFiles
    kept : KeptRows or None
        None for all rows, if they are in no other source.
    """

    files: IndexFiles
    kept: KeptRows | None = None


@dataclass(frozen=True, slots=True)
class Merging:
    """How segments of one type of index are merged.

    Attributes
    ----------
    can_merge : callable
        Returns whether the files of a segment can be merged, given the type of the column and the
        parameters of the new segment.
    merge : callable
        Writes the files of a segment with the rows of all sources, given the type of the column
        and the parameters.
    """

    can_merge: Callable[[IndexFiles, pa.DataType, Mapping[str, Any]], bool]
    merge: Callable[[SegmentWriter, pa.DataType, Sequence[SegmentSource], Mapping[str, Any]], None]


def sets_of(row_keys: Iterator[UInt64Array]) -> RowSet:
    """Return the set of rows that are given in parts."""
    rows = RowSet.union(RowSet.of(np.sort(part)) for part in row_keys)
    for bitmap in rows.bitmaps.values():
        bitmap.run_optimize()
    return rows

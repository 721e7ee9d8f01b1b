"""The new addresses of rows that a compaction moves, and how indexes get them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from lance_spark.file.open import DataFileReader
from lance_spark.indexes import registry
from lance_spark.indexes.files import IndexFiles, SegmentWriter
from lance_spark.indexes.row_sets import RowSet
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.fragment_reuse import RemappedRows
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.addresses import OFFSET_BITS, split_addresses
from lance_spark.table.rows.deletions import Offsets, expect_deletions, read_deletions
from lance_spark.table.rows.u64_segments import UInt64Array

#: File versions of indexes that can be rewritten.
WRITTEN = ((2, 0), (2, 1), (2, 2))


class AddressMap:
    """Map of the old addresses of moved rows to their new addresses.

    - `paths`: Opens the deletion files of the old fragments.
    - `left_out`: Old fragments none of whose rows is live.

    Raises CorruptFileError, MissingFileError, StorageError.
    """

    def __init__(
        self, paths: TablePaths, moves: Sequence[RemappedRows], left_out: Collection[int] = ()
    ) -> None:
        self._old: dict[int, _Source] = {}
        self._left_out = frozenset(left_out)
        expect_deletions(paths, (fragment for move in moves for fragment in move.old))
        for move in moves:
            ids = np.array([new.id for new in move.new], np.uint64)
            ends = np.cumsum([new.physical_rows for new in move.new], dtype=np.int64)
            first = 0
            for fragment in move.old:
                deleted = read_deletions(paths, fragment)
                rows = fragment.physical_rows
                self._old[fragment.id] = _Source(first, rows, deleted, ids, ends)
                first += rows - len(deleted)

    def old_rows(self) -> BitMap64:
        """Return the old addresses of all rows of the old fragments."""
        rows = BitMap64()
        for number, source in self._old.items():
            first = number << OFFSET_BITS
            rows.add_range(first, first + source.num_rows)
        return rows

    def new_addresses(self, addresses: UInt64Array) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the new addresses of rows, and which of these rows are live."""
        fragments, offsets = split_addresses(addresses)
        new, is_live = addresses.copy(), np.ones(len(addresses), bool)
        for number in np.unique(fragments):
            source = self._old.get(int(number))
            if int(number) in self._left_out:
                is_live[fragments == number] = False
            elif source is not None:
                rows = np.flatnonzero(fragments == number)
                new[rows], is_live[rows] = source.locate(offsets[rows])
        return new, is_live

    def of_set(self, rows: RowSet) -> RowSet:
        """Return the new addresses of the live rows of a set."""
        sets = []
        for number, offsets in rows.bitmaps.items():
            source = self._old.get(number)
            if source is None:
                if number not in self._left_out:
                    sets.append(RowSet({number: offsets}))
                continue
            # A damaged set of few bytes can have billions of rows.
            known = BitMap()
            known.add_range(0, source.num_rows)
            first = np.uint64(number << OFFSET_BITS)
            old = np.frombuffer((offsets & known).to_array(), np.uint32).astype(np.uint64)
            addresses, is_live = self.new_addresses(first | old)
            sets.append(RowSet.of(addresses[is_live]))
        return RowSet.union(sets)


@dataclass(frozen=True, slots=True)
class _Source:
    """An old fragment of a group.

    - `first`: Position of its first live row among the rows of the group's new fragments.
    - `deleted` (int64 array): Offsets of its deleted rows, increasing.
    - `new_ids`, `ends` (array): Id of each new fragment, and the position after its last row.
    """

    first: int
    num_rows: int
    deleted: Offsets
    new_ids: UInt64Array
    ends: Offsets

    def locate(self, offsets: Offsets) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        before = np.searchsorted(self.deleted, offsets)
        is_live = offsets < self.num_rows
        if len(self.deleted):
            position = np.minimum(before, len(self.deleted) - 1)
            is_live &= self.deleted[position] != offsets
        rows = self.first + offsets - before
        if not len(self.ends):
            return np.zeros(len(offsets), np.uint64), np.zeros(len(offsets), bool)
        index = np.minimum(np.searchsorted(self.ends, rows, side="right"), len(self.ends) - 1)
        starts = np.concatenate([[0], self.ends[:-1]])
        offset = (rows - starts[index]).astype(np.uint64)
        return (self.new_ids[index] << np.uint64(OFFSET_BITS)) | offset, is_live


def rewritten(
    index: table_pb2.IndexMetadata,
    segment: SegmentWriter,
    files: Sequence[table_pb2.IndexFile],
) -> RewrittenIndex:
    """Return a segment whose files were written again, with the version and details of the old."""
    details = table_pb2.IndexMetadata(index_version=index.index_version, files=files)
    details.index_details.CopyFrom(index.index_details)
    return RewrittenIndex(index.uuid.uuid, segment.id.bytes, details)


class BuiltPart(Protocol):
    """A file with a part of a segment. Can be pickled."""

    @property
    def segment(self) -> table_pb2.IndexMetadata:
        """The folder and the file."""


class Remap(Protocol):
    """Writes the files of a segment with new row addresses."""

    def __call__(
        self,
        paths: TablePaths,
        index: table_pb2.IndexMetadata,
        address_map: AddressMap,
        version: tuple[int, int],
        parts: Sequence[Any],
        /,
    ) -> RewrittenIndex | None:
        """Write the files; return None if this release does not write the form of the segment.

        - `version`: File version of the table.
        - `parts`: What tasks have built before; none if there are no such tasks.

        Raises CorruptFileError, CorruptTableError, MissingFileError, UnsupportedError,
        StorageError.
        """


class BuildPart(Protocol):
    """Builds a part of a segment in a task of its own."""

    def __call__(
        self,
        paths: TablePaths,
        index: table_pb2.IndexMetadata,
        address_map: AddressMap,
        version: tuple[int, int],
        numbers: Sequence[int],
        /,
    ) -> Any:
        """Write a file with some partitions of a segment; return a `BuiltPart`.

        Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
        """


@dataclass(frozen=True, slots=True)
class Remapping:
    """How indexes of a type are rewritten with the row addresses after a compaction.

    - `can_remap`: Returns whether a segment can be rewritten; None if each can.
    - `groups_of`: Returns the partitions of a segment, in groups of about some number of rows,
      whose parts are built by tasks; None if there are no parts.
    """

    remap: Remap
    can_remap: Callable[[table_pb2.IndexMetadata], bool] | None = None
    groups_of: (
        Callable[[TablePaths, table_pb2.IndexMetadata, int], list[tuple[int, ...]]] | None
    ) = None
    build_part: BuildPart | None = None


#: Writes the new file of a segment, from its old file.
WriteFile = Callable[[SegmentWriter, DataFileReader, AddressMap], None]


def of_one_file(name: str, write: WriteFile) -> Remapping:
    """Return how segments of one file are rewritten: if this release writes the file's version.

    - `name`: Of the file.
    """

    def remap(
        paths: TablePaths,
        index: table_pb2.IndexMetadata,
        address_map: AddressMap,
        version: tuple[int, int],
        parts: Sequence[object],
    ) -> RewrittenIndex | None:
        with closing(IndexFiles(paths, index).open(name)) as file:
            if file.version not in WRITTEN:
                return None
            with SegmentWriter(paths, file.version) as segment:
                write(segment, file, address_map)
                written = segment.finish()
        return rewritten(index, segment, written)

    return Remapping(remap)


def remapping_of(index: table_pb2.IndexMetadata) -> Remapping | None:
    """Return how a segment is rewritten; None if its type is not."""
    remapping: Remapping | None = registry.part_of(indexes.type_of_files(index), "remapping")
    return remapping

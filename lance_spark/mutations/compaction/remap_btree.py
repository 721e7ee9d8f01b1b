"""BTREE indexes rewritten with the row addresses after a compaction.

`lance_spark.scan.indexes.btree` has the layout of the files. Deleted rows are left out, so all
pages from the first one of them on change. Memory is bounded by a window of rows.

Specification: table/index/scalar/btree.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.btree import (
    DATA_COLUMNS,
    DATA_FILE,
    LOOKUP_FILE,
    BTreeWriter,
    is_known_layout,
    rows_of_page,
)
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.table.indexes.fragment_reuse import RemappedRows
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import Offsets, expect_deletions, read_deletions
from lance_spark.table.rows.index import OFFSET_BITS, split_addresses
from lance_spark.table.rows.u64_segments import UInt64Array

#: File versions of indexes that can be rewritten.
WRITTEN = ((2, 0), (2, 1), (2, 2))

#: Number of rows that are read at once.
_WINDOW_ROWS = 1 << 18


class AddressMap:
    """Map of the old addresses of moved rows to their new addresses.

    Parameters
    ----------
    paths : TablePaths
        Opens the deletion files of the old fragments.
    moves : sequence of RemappedRows
    left_out : collection of int
        Old fragments none of whose rows is live.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
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


@dataclass(frozen=True, slots=True)
class _Source:
    """An old fragment of a group.

    Attributes
    ----------
    first : int
        Position of its first live row among the rows of the group's new fragments.
    deleted : int64 array
        Offsets of its deleted rows, increasing.
    new_ids, ends : array
        Id of each new fragment, and the position after its last row.
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


def remap_btree(
    paths: TablePaths, index: table_pb2.IndexMetadata, address_map: AddressMap
) -> RewrittenIndex | None:
    """Write the files of a segment with new row addresses.

    Parameters
    ----------
    index : table_pb2.IndexMetadata
        A segment of type BTREE.

    Returns
    -------
    RewrittenIndex or None
        None if this release does not know the layout of the segment.

    Raises
    ------
    CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
    """
    files = IndexFiles(paths, index)
    with closing(files.open(LOOKUP_FILE)) as lookup:
        if not is_known_layout(lookup):
            return None
        batch_size = rows_of_page(lookup)
    with closing(files.open(DATA_FILE)) as data:
        if data.schema.names != DATA_COLUMNS or data.version not in WRITTEN:
            return None
        with SegmentWriter(paths, data.version) as segment:
            dtype = data.schema.fields[0].arrow_field.type
            writer = BTreeWriter(segment, dtype, batch_size)
            for values, ids in _remapped(data, address_map, batch_size):
                writer.write(values, ids)
            writer.finish()
            written = segment.finish()
    return rewritten(index, segment, written)


def rewritten(
    index: table_pb2.IndexMetadata,
    segment: SegmentWriter,
    files: Sequence[table_pb2.IndexFile],
) -> RewrittenIndex:
    """Return a segment whose files were written again, with the version and details of the old."""
    details = table_pb2.IndexMetadata(index_version=index.index_version, files=files)
    details.index_details.CopyFrom(index.index_details)
    return RewrittenIndex(index.uuid.uuid, segment.id.bytes, details)


def _remapped(
    data: DataFileReader, address_map: AddressMap, batch_size: int
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the values and new addresses of the live rows."""
    window = batch_size * max(_WINDOW_ROWS // batch_size, 1)
    for start in range(0, data.num_rows, window):
        rows = range(start, min(start + window, data.num_rows))
        values, ids = data.read(data.schema.fields, rows)
        if ids.type != pa.uint64() or ids.null_count:
            raise CorruptFileError(
                f"{data.source.name}: ids must be uint64 without nulls, not {ids.type} with "
                f"{ids.null_count} nulls"
            )
        addresses, is_live = address_map.new_addresses(ids.to_numpy())
        mask = pa.array(is_live)
        yield values.filter(mask), pa.array(addresses).filter(mask)

"""BTREE indexes rewritten with the row addresses after a compaction.

| file of the index | columns | content |
| --- | --- | --- |
| `page_data.lance` | values, ids (uint64) | one row per row of the table, by value, nulls first |
| `page_lookup.lance` | min, max, null_count, page_idx (uint32) | a row per `batch_size` rows |

`batch_size` is metadata of the schema of `page_lookup.lance`. An index with `range_partitioned`
other than ``false`` has more files, and is not rewritten. `ids` are row addresses; from version 1
of the index on, also in tables with stable row ids. Deleted rows are omitted, so all pages from the
first one of them on change. Memory is bounded by a window of rows.

Specification: table/index/scalar/btree.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import CorruptFileError, StorageError
from lance_spark.file.open import DataFileReader, DataFileWriter, create_file, open_file
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import table_pb2
from lance_spark.scan.pruning.btree_bounds import rows_of_page
from lance_spark.storage.write.output import OutputFile
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.fragment_reuse import RemappedRows
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import INDICES, TablePaths
from lance_spark.table.rows.deletions import Offsets, read_deletions
from lance_spark.table.rows.index import OFFSET_BITS, split_addresses
from lance_spark.table.rows.u64_segments import UInt64Array

#: File versions of indexes that can be rewritten.
_WRITTEN = ((2, 0), (2, 1), (2, 2))

LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
DATA_FILE, LOOKUP_FILE = "page_data.lance", "page_lookup.lance"
#: Number of rows that are read at once.
_WINDOW_ROWS = 1 << 18


class AddressMap:
    """Map of the old addresses of moved rows to their new addresses.

    Parameters
    ----------
    paths : TablePaths
        Opens the deletion files of the old fragments.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """

    def __init__(self, paths: TablePaths, moves: Sequence[RemappedRows]) -> None:
        self._old: dict[int, _Source] = {}
        for move in moves:
            ids = np.array([new.id for new in move.new], np.uint64)
            ends = np.cumsum([new.physical_rows for new in move.new], dtype=np.int64)
            first = 0
            for fragment in move.old:
                deleted = read_deletions(paths, fragment)
                rows = fragment.physical_rows
                self._old[fragment.id] = _Source(first, rows, deleted, ids, ends)
                first += rows - len(deleted)

    def new_addresses(self, addresses: UInt64Array) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the new addresses of rows, and which of these rows are live."""
        fragments, offsets = split_addresses(addresses)
        new, is_live = addresses.copy(), np.ones(len(addresses), bool)
        for number in np.unique(fragments):
            source = self._old.get(int(number))
            if source is not None:
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
    base = index.base_id if index.HasField("base_id") else None
    old, new = indexes.uuid_of(index), uuid.uuid4()
    lookup = open_file(paths.open_index_file(f"{old}/{LOOKUP_FILE}", base))
    try:
        batch_size = _batch_size(lookup.schema, lookup.source.name)
    finally:
        lookup.close()
    if batch_size is None:
        return None
    data = open_file(paths.open_index_file(f"{old}/{DATA_FILE}", base))
    outputs: dict[str, OutputFile] = {}
    try:
        if data.schema.names != ["values", "ids"] or data.version not in _WRITTEN:
            return None
        writers = {}
        for name, schema in ((DATA_FILE, data.schema), (LOOKUP_FILE, lookup.schema)):
            outputs[name] = paths.store.open_output(f"{INDICES}/{new}/{name}")
            writers[name] = create_file(outputs[name], schema, data.version)
        _write(data, address_map, batch_size, writers[DATA_FILE], writers[LOOKUP_FILE])
        files = []
        for name, writer in writers.items():
            written = writer.finish()
            outputs[name].close()
            files.append(table_pb2.IndexFile(path=name, size_bytes=written.size_bytes))
    except BaseException:
        for output in outputs.values():
            output.abort()
        with suppress(StorageError):
            paths.store.delete([f"{INDICES}/{new}/{name}" for name in outputs])
        raise
    finally:
        data.close()
    details = table_pb2.IndexMetadata(index_version=index.index_version, files=files)
    details.index_details.CopyFrom(index.index_details)
    return RewrittenIndex(index.uuid.uuid, new.bytes, details)


def files_of(index: RewrittenIndex) -> list[str]:
    """Return the paths of the files of a rewritten segment, relative to the table's root."""
    folder = uuid.UUID(bytes=index.new_id)
    return [f"{INDICES}/{folder}/{file.path}" for file in index.details.files]


def _batch_size(lookup: Schema, name: str) -> int | None:
    """Return the number of rows of a page; None if the index is partitioned."""
    if lookup.names != LOOKUP_COLUMNS:
        return None
    if lookup.metadata.get("range_partitioned", b"false") != b"false":
        return None
    return rows_of_page(lookup.metadata, name)


def _write(
    data: DataFileReader,
    address_map: AddressMap,
    batch_size: int,
    data_writer: DataFileWriter,
    lookup_writer: DataFileWriter,
) -> None:
    pages = 0
    arrow = data.schema.to_arrow()
    waiting = arrow.empty_table()
    for batch in _remapped(data, address_map, batch_size, arrow):
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])]).combine_chunks()
        # The rows of an incomplete page wait for the next batch.
        full = len(waiting) - len(waiting) % batch_size
        pages += _write_pages(waiting.slice(0, full), batch_size, pages, data_writer, lookup_writer)
        waiting = waiting.slice(full)
    _write_pages(waiting, batch_size, pages, data_writer, lookup_writer)


def _remapped(
    data: DataFileReader, address_map: AddressMap, batch_size: int, arrow: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows, with their new addresses."""
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
        batch = pa.RecordBatch.from_arrays([values, pa.array(addresses)], schema=arrow)
        yield batch if is_live.all() else batch.filter(pa.array(is_live))


def _write_pages(
    rows: pa.Table, batch_size: int, first: int, data: DataFileWriter, lookup: DataFileWriter
) -> int:
    """Write pages and their rows in the lookup file; return the number of pages."""
    if not len(rows):
        return 0
    starts = np.arange(0, len(rows), batch_size)
    ends = np.minimum(starts + batch_size, len(rows)) - 1
    for batch in rows.to_batches():
        data.write(batch)
    values = rows.column("values").combine_chunks()
    nulls = np.add.reduceat(
        values.is_null().to_numpy(zero_copy_only=False).astype(np.uint32), starts
    )
    columns = [
        values.take(pa.array(starts)),
        values.take(pa.array(ends)),
        pa.array(nulls, pa.uint32()),
        pa.array(np.arange(first, first + len(starts)), pa.uint32()),
    ]
    lookup.write(pa.RecordBatch.from_arrays(columns, names=LOOKUP_COLUMNS))
    return len(starts)

"""Giving a BTREE index the addresses that its rows have after a compaction.

| file of the index | columns | content |
| --- | --- | --- |
| `page_data.lance` | values, ids (uint64) | a row for each row of the table, by value, nulls first |
| `page_lookup.lance` | min, max, null_count, page_idx (uint32) | a row for each page: `batch_size` rows of the other file |

`batch_size` is metadata of the schema of `page_lookup.lance`; with `range_partitioned` other than
``false`` there are more files, which are left alone. `ids` are row addresses; in tables with stable
row ids too from version 1 of the index on. Rows that are deleted are left out, so that all pages
after the first such one are others. Memory is bounded by a window of rows.

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
from lance_spark.file.create import DataFileWriter, create_file
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import table_pb2
from lance_spark.scan.pruning.btree_bounds import rows_of_page
from lance_spark.storage.write.output import OutputFile
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.fragment_reuse import RemappedRows
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import INDICES, TablePaths
from lance_spark.table.rows.deletions import Offsets, read_deletions
from lance_spark.table.rows.index import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

#: Versions of the files of an index that are written.
_WRITTEN = ((2, 0), (2, 1), (2, 2))

LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
DATA_FILE, LOOKUP_FILE = "page_data.lance", "page_lookup.lance"
#: Rows that are read at once.
_WINDOW_ROWS = 1 << 18
_OFFSET_MASK = np.uint64((1 << OFFSET_BITS) - 1)


class Moves:
    """Where rows have gone.

    Parameters
    ----------
    paths : TablePaths
        Opens the deletion files of the old fragments.
    moves : sequence of MovedRows

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """

    def __init__(self, paths: TablePaths, moves: Sequence[RemappedRows]) -> None:
        self._old: dict[int, _Source] = {}
        for move in moves:
            ids = np.array([item.id for item in move.new], np.uint64)
            ends = np.cumsum([item.physical_rows for item in move.new], dtype=np.int64)
            first = 0
            for fragment in move.old:
                deleted = read_deletions(paths, fragment)
                rows = fragment.physical_rows
                self._old[fragment.id] = _Source(first, rows, deleted, ids, ends)
                first += rows - len(deleted)

    def new_addresses(self, addresses: UInt64Array) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the addresses that rows have now, and which of the rows there are."""
        fragments = addresses >> np.uint64(OFFSET_BITS)
        result, alive = addresses.copy(), np.ones(len(addresses), bool)
        for number in np.unique(fragments):
            source = self._old.get(int(number))
            if source is not None:
                rows = np.flatnonzero(fragments == number)
                offsets = (addresses[rows] & _OFFSET_MASK).astype(np.int64)
                result[rows], alive[rows] = source.locate(offsets)
        return result, alive


@dataclass(frozen=True, slots=True)
class _Source:
    """An old fragment: its first live row is the `first`-th of the new ones, of which there are
    `ends`.
    """

    first: int
    num_rows: int
    deleted: Offsets
    new_ids: UInt64Array
    ends: Offsets

    def locate(self, offsets: Offsets) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        before = np.searchsorted(self.deleted, offsets)
        alive = offsets < self.num_rows
        if len(self.deleted):
            position = np.minimum(before, len(self.deleted) - 1)
            alive &= self.deleted[position] != offsets
        rows = self.first + offsets - before
        if not len(self.ends):
            return np.zeros(len(offsets), np.uint64), np.zeros(len(offsets), bool)
        place = np.minimum(np.searchsorted(self.ends, rows, side="right"), len(self.ends) - 1)
        starts = np.concatenate([[0], self.ends[:-1]])
        local = (rows - starts[place]).astype(np.uint64)
        return (self.new_ids[place] << np.uint64(OFFSET_BITS)) | local, alive


def remap_btree(
    paths: TablePaths, index: table_pb2.IndexMetadata, moves: Moves
) -> RewrittenIndex | None:
    """Write the files of a segment anew.

    Parameters
    ----------
    paths : TablePaths
    index : table_pb2.IndexMetadata
        A segment of kind BTREE.
    moves : Moves

    Returns
    -------
    RewrittenIndex or None
        None if the segment is laid out in another way than this release knows.

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
        _write(data, moves, batch_size, writers[DATA_FILE], writers[LOOKUP_FILE])
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
    """Return the files of a rewritten segment, below the table's root."""
    folder = uuid.UUID(bytes=index.new_id)
    return [f"{INDICES}/{folder}/{file.path}" for file in index.details.files]


def _batch_size(lookup: Schema, name: str) -> int | None:
    """Return how many rows make a page; None if the index has parts."""
    if lookup.names != LOOKUP_COLUMNS:
        return None
    if lookup.metadata.get("range_partitioned", b"false") != b"false":
        return None
    return rows_of_page(lookup.metadata, name)


def _write(
    data: DataFileReader,
    moves: Moves,
    batch_size: int,
    data_writer: DataFileWriter,
    lookup_writer: DataFileWriter,
) -> None:
    pages = 0
    arrow = data.schema.to_arrow()
    waiting = arrow.empty_table()
    for batch in _moved(data, moves, batch_size, arrow):
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])]).combine_chunks()
        # What does not fill a page waits for more.
        full = len(waiting) - len(waiting) % batch_size
        pages += _write_pages(waiting.slice(0, full), batch_size, pages, data_writer, lookup_writer)
        waiting = waiting.slice(full)
    _write_pages(waiting, batch_size, pages, data_writer, lookup_writer)


def _moved(
    data: DataFileReader, moves: Moves, batch_size: int, arrow: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that there are, with their new addresses."""
    window = batch_size * max(_WINDOW_ROWS // batch_size, 1)
    for start in range(0, data.num_rows, window):
        rows = range(start, min(start + window, data.num_rows))
        values, ids = data.read(data.schema.fields, rows)
        if ids.type != pa.uint64() or ids.null_count:
            raise CorruptFileError(f"{data.source.name}: ids are {ids.type}, some of them null")
        result, alive = moves.new_addresses(ids.to_numpy())
        batch = pa.RecordBatch.from_arrays([values, pa.array(result)], schema=arrow)
        yield batch if alive.all() else batch.filter(pa.array(alive))


def _write_pages(
    rows: pa.Table, batch_size: int, first: int, data: DataFileWriter, lookup: DataFileWriter
) -> int:
    """Write whole pages, and what the other file says of them; return their number."""
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

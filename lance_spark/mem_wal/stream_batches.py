"""Batches of a stream as upserts: each shard gets the rows of a batch once.

| mode | each shard gets for a batch | readable by other clients that read |
| --- | --- | --- |
| `SSTABLE` | an SSTable, about twenty requests | SSTables |
| `LOG` | a WAL entry, one request; its rows are flushed by size | logs, too |

A stream numbers its batches, and repeats the last one after a crash. A batch of several shards is
not atomic: a crash leaves it in some of them. So each shard records the batch: in the properties of
the WAL entry, and in the version of the shard manifest that adds an SSTable
(`mem_wal/table/details`). A repeated batch looks there, and in older versions and flushed
entries if another client has changed the shard since. Shards that have the batch are left as they
are. A later batch in a shard is an error: a crash repeats only the last one, so the checkpoint is
an old one.

The stream does not claim a shard again as long as the newest version is its own. Otherwise it
claims the shard, and first flushes the rows of its log, which are those of another writer or of its
own earlier `LOG`. Then it looks for the batch once more: another driver of the query may have gone
on meanwhile. With `LOG`, a process keeps its claims for the next batches, until the MemWAL is
disabled.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.indexes.order import order_of
from lance_spark.mem_wal.claims import publish_sstable
from lance_spark.mem_wal.compaction import mem_wal_of
from lance_spark.mem_wal.entries import Entry, delete_rows, put_rows, read_entry
from lance_spark.mem_wal.open import spec_of
from lance_spark.mem_wal.sharding import ShardRows, split_by_shard
from lance_spark.mem_wal.sstable import write_sstable
from lance_spark.mem_wal.table.details import (
    BATCH,
    QUERY_ID,
    MemWalDetails,
    ShardingSpec,
    find_index,
    progress_in,
    progress_of,
)
from lance_spark.mem_wal.table.shard_manifest import (
    ShardManifest,
    read_latest_manifest,
    read_manifest,
)
from lance_spark.mem_wal.writer import ShardWriter
from lance_spark.mem_wal.writer_options import WriterOptions
from lance_spark.proto import table_pb2
from lance_spark.storage.parallel import read_all
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.options import DEFAULT_LOOKBACK, stale_batch_error
from lance_spark.table.constraints import check_no_conditions
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.open import OpenTable
from lance_spark.table.primary_key import primary_key

#: Attempts while other writers claim a shard.
_ATTEMPTS = 10
#: Versions of a shard manifest that are read at once.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class _KeptWriter:
    """A writer for the next batches of a stream.

    - `batch`: The last batch that it has written.
    - `index_id`: The id of the table's entry `__lance_mem_wal` then. Each change of it gives it
      another id.
    """

    writer: ShardWriter
    batch: int
    index_id: bytes


#: Writers of this process, by table, shard and stream; those that were used last are at the end.
_WRITERS: dict[tuple[str, uuid.UUID, str], _KeptWriter] = {}
#: Most writers that are kept. Streams end without a word, so the oldest are closed.
_MOST_WRITERS = 256


def _close_writer(key: tuple[str, uuid.UUID, str]) -> None:
    """Close a kept writer. Its rows stay in the log, for readers and the next writer."""
    kept = _WRITERS.pop(key, None)
    if kept is not None:
        kept.writer.close(flush=False)


class StreamMode(enum.Enum):
    """What a shard gets for each batch; see the module."""

    SSTABLE = "sstable"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a stream.

    - `query_id`: Stays the same over restarts of the stream.
    - `number`: Later batches have greater numbers.
    - `lookback`: Most versions of a shard manifest that are searched for the stream.
    """

    query_id: str
    number: int
    lookback: int = DEFAULT_LOOKBACK
    mode: StreamMode = StreamMode.SSTABLE


def shaped_rows(
    table: OpenTable, rows: pa.Table, deleted: pa.ChunkedArray | None, order: pa.ChunkedArray | None
) -> pa.Table:
    """Return the rows of a batch in the shape of a log: upserts and tombstones.

    - `rows`: All columns of the table. Of rows to delete, only the key counts.
    - `deleted`: Bool: the rows to delete. Null stands for false.
    - `order`: Of rows with the same key, the one with the greatest value counts, and of equal
      values the last row. Null is less than all values.

    Raises SchemaMismatchError: a column is missing, unknown, or of another type. Raises
    InvalidInputError: a column that must not be null has nulls.
    """
    if order is not None:
        places = pa.array(order_of(order.combine_chunks()))
        rows = rows.take(places)
        deleted = None if deleted is None else deleted.take(places)
    if deleted is None:
        return put_rows(table.schema, rows)
    is_deleted = deleted.combine_chunks().fill_null(False)
    kept = put_rows(table.schema, rows.filter(pc.invert(is_deleted)))
    tombstones = delete_rows(table.schema, rows.filter(is_deleted))
    flags = is_deleted.to_numpy(zero_copy_only=False)
    places = np.empty(rows.num_rows, np.int64)
    places[np.concatenate([np.flatnonzero(~flags), np.flatnonzero(flags)])] = np.arange(len(flags))
    return pa.concat_tables([kept, tombstones]).take(pa.array(places))


def write_batch(table: OpenTable, rows: pa.Table, batch: StreamBatch) -> list[uuid.UUID]:
    """Write the rows of a batch, as one SSTable for each shard that they belong to.

    - `table`: The newest version of the base table.
    - `rows`: See `shaped_rows`.

    Returns the shards that did not have the batch. Raises InvalidInputError: the table has no
    MemWAL, no primary key, or no sharding by which rows are dealt out; or a shard has a later batch
    of the stream. Raises CommitConflictError: other writers claimed a shard again and again. The
    batch may be in some shards; repeat it. Raises CorruptFileError, StorageError: the same holds.
    """
    details = mem_wal_of(table)
    # Another client may have made the MemWAL.
    check_no_conditions(table.manifest.message.config, table.store.display)
    if not primary_key(table.schema):
        raise InvalidInputError(
            f"{table.store.display}: the table has no primary key, which upserts need; set the "
            "metadata lance-schema:unenforced-primary-key of its key columns"
        )
    spec = spec_of(table, details)
    parts = split_by_shard(spec, table.schema, rows)
    writers = [_ShardOfStream(table, details, spec, part, batch) for part in parts]
    written = read_all(_ShardOfStream.write, writers, local=table.store.is_local)
    return [part.shard for part, is_written in zip(parts, written, strict=True) if is_written]


def has_batch(
    store: ObjectStore,
    newest: ShardManifest,
    batch: StreamBatch,
    before: ShardManifest | None = None,
) -> bool:
    """Return whether SSTables of a shard have the rows of a batch.

    The shard manifests record it. If a client that does not keep `stream_progress` has made these
    SSTables, the entries of the log record it that they cover.

    - `store`: Root of the branch.
    - `newest`: The newest version.
    - `before`: An older version without the batch. Only later versions and entries are searched.

    Raises CorruptFileError, StorageError. Raises InvalidInputError: it has a later batch of the
    stream.
    """
    if before is not None and before.version < newest.version:
        version, position = before.version, before.replay_after
    else:
        version = position = 0
    known = _version_with(store, newest, batch, max(newest.version - batch.lookback, version))
    if known is not None:
        # Entries before have earlier batches.
        position = max(position, known.replay_after)
    position = max(newest.replay_after - batch.lookback, position)
    numbers = _numbers_in_log(store, newest, batch, position)
    progress = None if known is None else progress_of(known, batch.query_id)
    if progress is not None:
        numbers.append(progress.batch)
    return _is_repeated(store, max(numbers, default=None), batch)


def _is_repeated(store: ObjectStore, number: int | None, batch: StreamBatch) -> bool:
    """Return whether the last batch that a shard has of a stream is this batch.

    Raises InvalidInputError: it is a later batch.
    """
    if number is not None and number > batch.number:
        raise stale_batch_error(store, batch.query_id, number, batch.number)
    return number == batch.number


def _version_with(
    store: ObjectStore, newest: ShardManifest, batch: StreamBatch, first: int
) -> ShardManifest | None:
    """Return the last version after `first` that knows a stream."""
    manifests: list[ShardManifest | None] = [newest]
    last = newest.version - 1
    while True:
        for manifest in manifests:
            if manifest is not None and progress_of(manifest, batch.query_id) is not None:
                return manifest
        versions = range(last, max(last - _AT_ONCE, first), -1)
        if not versions:
            return None
        manifests = read_all(
            lambda version: read_manifest(store, newest.shard, version),
            versions,
            local=store.is_local,
        )
        last -= len(versions)


def _numbers_in_log(
    store: ObjectStore, newest: ShardManifest, batch: StreamBatch, first: int
) -> list[int]:
    """Return batches of a stream that entries have, among them the last one after `first`.

    Only entries that SSTables cover are read.
    """
    last = newest.replay_after
    while last > first:
        positions = range(last, max(last - _AT_ONCE, first), -1)
        entries = read_all(
            lambda position: read_entry(store, newest.shard, position),
            positions,
            local=store.is_local,
        )
        numbers = _numbers_in([entry for entry in entries if entry is not None], batch)
        if numbers or None in entries:
            # Cleanup has removed the entries before.
            return numbers
        last -= len(positions)
    return []


def _numbers_in(entries: Sequence[Entry], batch: StreamBatch) -> list[int]:
    """Return the numbers of the batches of a stream that entries have."""
    known = (progress_in(entry.properties) for entry in entries)
    return [
        progress.batch
        for progress in known
        if progress is not None and progress.query_id == batch.query_id
    ]


@dataclass(frozen=True, slots=True)
class _ShardOfStream:
    """The rows of a batch that belong to one shard."""

    table: OpenTable
    details: MemWalDetails
    spec: ShardingSpec
    part: ShardRows
    batch: StreamBatch

    def write(self) -> bool:
        """Write the rows, unless the shard has them; return whether they were written."""
        is_log = self.batch.mode is StreamMode.LOG
        for attempts_left in range(_ATTEMPTS - 1, -1, -1):
            try:
                return self._append() if is_log else self._write()
            except CommitConflictError:
                # Another writer has claimed the shard.
                if not attempts_left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _append(self) -> bool:
        """Append the rows to the log, unless the shard has them."""
        store, number = self.table.store, self.batch.number
        key = (store.uri, self.part.shard, self.batch.query_id)
        index = find_index(section_of(self.table.manifest))
        index_id = b"" if index is None else index.uuid.uuid
        # Only a writer that does not fail is used again.
        kept = _WRITERS.pop(key, None)
        if kept is not None and (kept.index_id == index_id or kept.writer.has_claim()):
            writer = kept.writer
            is_new = not _is_repeated(store, kept.batch, self.batch)
        else:
            newest = read_latest_manifest(store, self.part.shard)
            if newest is not None and has_batch(store, newest, self.batch):
                return False
            writer = self._writer()
            last = max(_numbers_in(writer.entries, self.batch), default=-1)
            # The claim flushes a full log, and another writer can have flushed it before.
            is_new = not (
                _is_repeated(store, last, self.batch)
                or self._has_batch_after(newest, read_latest_manifest(store, self.part.shard))
            )
        if is_new:
            properties = {QUERY_ID: self.batch.query_id, BATCH: str(number)}
            writer.append(self.part.rows, properties)
        if not writer.has_failed:
            # A stream that ended has left its writer, which has lost the shard to this one.
            for other in list(_WRITERS):
                if other[:2] == key[:2]:
                    _close_writer(other)
            _WRITERS[key] = _KeptWriter(writer, number, index_id)
            if len(_WRITERS) > _MOST_WRITERS:
                _close_writer(next(iter(_WRITERS)))
        return is_new

    def _writer(self) -> ShardWriter:
        """Claim the shard."""
        options = WriterOptions.from_text(self.details.writer_defaults)
        part = self.part
        return ShardWriter(self.table, self.details, part.shard, options, self.spec, part.entries)

    def _write(self) -> bool:
        """Write the rows as an SSTable, unless the shard has them."""
        store, shard = self.table.store, self.part.shard
        newest = read_latest_manifest(store, shard)
        if newest is not None and has_batch(store, newest, self.batch):
            return False
        progress = None if newest is None else progress_of(newest, self.batch.query_id)
        if newest is None or progress is None or progress.writer_epoch != newest.writer_epoch:
            before, newest = newest, self._claimed()
            if self._has_batch_after(before, newest):
                return False
        generation, epoch = newest.current_generation, newest.writer_epoch
        sstable = write_sstable(self.table, shard, generation, self.part.rows)
        recorded = table_pb2.StreamProgress(
            query_id=self.batch.query_id, batch=self.batch.number, writer_epoch=epoch
        )
        publish_sstable(store, shard, epoch, sstable, newest.replay_after, [recorded])
        return True

    def _has_batch_after(self, before: ShardManifest | None, newest: ShardManifest | None) -> bool:
        """Return whether SSTables that came after `before` have the batch.

        Raises InvalidInputError: they have a later batch.
        """
        return newest is not None and has_batch(self.table.store, newest, self.batch, before)

    def _claimed(self) -> ShardManifest:
        """Claim the shard, and flush the rows of its log."""
        shard = self.part.shard
        writer = self._writer()
        writer.close()
        manifest = read_latest_manifest(self.table.store, shard)
        if manifest is None or manifest.writer_epoch != writer.epoch:
            raise CommitConflictError(
                f"{self.table.store.display}: another writer has claimed shard {shard} at the same "
                "time; stop the other writers of the shard, or start the query again later",
                retryable=True,
            )
        return manifest

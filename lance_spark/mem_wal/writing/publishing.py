"""Adds SSTables to the manifest of a shard, as long as the claim of the writer holds."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from lance_spark.errors import CommitConflictError, InvalidInputError, LanceError, StorageError
from lance_spark.mem_wal.sstable import delete_sstable
from lance_spark.mem_wal.writing.claims import fenced
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.mem_wal.names import sstable_path
from lance_spark.table.mem_wal.shard_manifest import ShardManifest, SsTable, publish, read_latest
from lance_spark.table.mem_wal.stream_progress import with_progress

#: Attempts while a compaction changes the shard manifest.
_ATTEMPTS = 10


def publish_sstable(
    store: ObjectStore,
    shard: uuid.UUID,
    epoch: int,
    sstable: SsTable,
    covered: int,
    progress: Sequence[table_pb2.StreamProgress] = (),
) -> ShardManifest:
    """Add an SSTable to the manifest of a shard.

    - `store`: Root of the branch.
    - `epoch`: The claim of the writer.
    - `sstable`: Of the current generation of the shard.
    - `covered`: The last position of the log whose rows are in SSTables then.
    - `progress`: Batches of streams whose rows the SSTable has.

    Returns the version that has the SSTable. Raises CommitConflictError: the claim has ended, the
    shard is at another generation, or others changed the manifest many times. The files of the
    SSTable are deleted as far as possible. Raises InvalidInputError: the shard is gone. The files
    are deleted as well. Raises StorageError: the SSTable may be published or not.
    """
    for _ in range(_ATTEMPTS):
        newest = read_latest(store, shard)
        reason = _refusal(store, shard, newest, epoch, sstable)
        if newest is None or reason is not None:
            with suppress(StorageError):
                delete_sstable(store, sstable_path(shard, sstable.folder))
            raise reason or _removed(store, shard)
        new = replace(
            newest,
            version=newest.version + 1,
            replay_after=max(newest.replay_after, covered),
            last_seen=max(newest.last_seen, covered),
            current_generation=sstable.generation + 1,
            sstables=(*newest.sstables, sstable),
        )
        published = publish(store, with_progress(new, progress))
        if published is not None:
            return published
    with suppress(StorageError):
        delete_sstable(store, sstable_path(shard, sstable.folder))
    raise CommitConflictError(
        f"{store.display}: other clients changed the manifest of shard {shard} {_ATTEMPTS} times; "
        "open a new writer, which finds the rows in the log",
        retryable=False,
    )


def _refusal(
    store: ObjectStore,
    shard: uuid.UUID,
    newest: ShardManifest | None,
    epoch: int,
    sstable: SsTable,
) -> LanceError | None:
    if newest is None:
        return _removed(store, shard)
    if newest.writer_epoch != epoch:
        return fenced(store, shard, epoch, newest.writer_epoch)
    if newest.current_generation != sstable.generation:
        return CommitConflictError(
            f"{store.display}: shard {shard} is at generation {newest.current_generation}, not at "
            f"{sstable.generation}; open a new writer",
            retryable=False,
        )
    return None


def _removed(store: ObjectStore, shard: uuid.UUID) -> InvalidInputError:
    return InvalidInputError(
        f"{store.display}: shard {shard} was removed, because its MemWAL was disabled; initialize "
        "a MemWAL again (Dataset.initialize_mem_wal, LanceTable.initialize_mem_wal), and open a "
        "new writer"
    )

"""Writes the rows that only the logs of shards have to SSTables, so that they can be compacted."""

from __future__ import annotations

from lance_spark.mem_wal.entries import read_tail
from lance_spark.mem_wal.writing.options import WriterOptions
from lance_spark.mem_wal.writing.writer import ShardWriter
from lance_spark.table.mem_wal.details import details_of
from lance_spark.table.mem_wal.shard_manifest import ShardStatus, list_shards, read_latest
from lance_spark.table.open import OpenTable


def flush_logs(table: OpenTable) -> int:
    """Flush the logs of all shards; return the number of shards with rows there.

    The writers of these shards end: they must be opened again.

    - `table`: The newest version. Without MemWAL nothing is done.

    Raises CorruptFileError, StorageError. Raises CommitConflictError: another client claims a shard
    at the same time.
    """
    details = details_of(table.manifest)
    if details is None:
        return 0
    flushed = 0
    for shard in list_shards(table.store):
        manifest = read_latest(table.store, shard)
        if manifest is None or manifest.status is ShardStatus.SEALED:
            continue
        tail = read_tail(table.store, shard, manifest.replay_after)
        if any(not entry.is_sentinel for entry in tail):
            ShardWriter(table, details, shard, WriterOptions()).close()
            flushed += 1
    return flushed

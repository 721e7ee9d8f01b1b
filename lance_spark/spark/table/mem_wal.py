"""The MemWAL of a table: its shards, their compaction, and its end.

| operation | runs on | effect |
| --- | --- | --- |
| shards | driver | lists the shards, and their rows that are not compacted |
| compaction | executors write, the driver commits | brings rows of SSTables into the table |
| cleanup | driver | removes files that no reader or writer needs any more |
| end | executors write, the driver commits | compacts, and removes the MemWAL |
"""

from __future__ import annotations

from dataclasses import astuple
from datetime import timedelta
from typing import TYPE_CHECKING

from lance_spark.dataset.dataset import Dataset
from lance_spark.mem_wal.cleanup import clean_mem_wal
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.open import flush_logs
from lance_spark.mem_wal.setup import disable_mem_wal
from lance_spark.spark.job import Job
from lance_spark.spark.table.base import ChangeResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.commit.options import CommitOptions

SHARD_COLUMNS = (
    "shard_id string, values map<string, string>, status string, writer_epoch long, "
    "current_generation long, compacted_generation long, num_sstables long, sstable_rows long, "
    "num_log_entries long, log_rows long"
)
MEM_WAL_CLEANUP_COLUMNS = "bytes_removed long, sstables_removed long, entries_removed long"
STEP = "compact SSTables"


def shards_frame(handle: TableHandle) -> DataFrame:
    """Return a row for each shard; see `LanceTable.shards`."""
    rows = []
    for shard in handle.dataset().mem_wal_shards():
        texts = {name: str(value) for name, value in shard.values.items()}
        rows.append((shard.shard_id, texts, *astuple(shard)[2:]))
    return handle.data_frame(rows, SHARD_COLUMNS)


def compact(handle: TableHandle, flush: bool, commit: CommitOptions) -> ChangeResult:
    """Bring the rows of all SSTables into the table; see `LanceTable.compact_mem_wal`."""
    table = handle.writable("compact the MemWAL")
    if flush:
        flush_logs(table)
    with Job(handle.spark, table, "compact the MemWAL") as job:
        done = compact_mem_wal(table, commit, runner=job.runner(STEP))
        job.committed()
    return ChangeResult(done.version, done.num_inserted, done.num_updated, done.num_deleted)


def clean(handle: TableHandle, older_than: timedelta) -> DataFrame:
    """Remove files that nobody needs; see `LanceTable.clean_mem_wal`."""
    stats = clean_mem_wal(handle.writable("clean the MemWAL"), older_than)
    row = (stats.bytes_removed, stats.sstables_removed, stats.entries_removed)
    return handle.data_frame([row], MEM_WAL_CLEANUP_COLUMNS)


def disable(handle: TableHandle, compacts: bool, commit: CommitOptions) -> ChangeResult:
    """Remove the MemWAL with all its files; see `LanceTable.disable_mem_wal`."""
    table = handle.writable("disable the MemWAL")
    if compacts and Dataset(table).mem_wal_index_details() is not None:
        compact(handle, True, commit)
    return ChangeResult(disable_mem_wal(table, commit, compact=False).version)

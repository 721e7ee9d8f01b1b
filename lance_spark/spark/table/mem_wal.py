"""Methods of `LanceTable` for a MemWAL.

| method | runs on | effect |
| --- | --- | --- |
| `initializeMemWal` | driver | gives the table a MemWAL |
| `shards` | driver | lists the shards, and their rows that are not compacted |
| `compactMemWal` | executors write, the driver commits | brings rows of SSTables into the table |
| `cleanMemWal` | driver | removes files that no reader or writer needs any more |
| `disableMemWal` | executors write, the driver commits | compacts, and removes the MemWAL |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from lance_spark.dataset.dataset import Dataset
from lance_spark.mem_wal.cleanup import DEFAULT_GRACE, clean_mem_wal
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.setup.disable import disable_mem_wal
from lance_spark.mem_wal.setup.initialize import initialize_mem_wal
from lance_spark.mem_wal.writing.flush import flush_logs
from lance_spark.spark.job import Job
from lance_spark.spark.table.base import ChangeResult, TableBase
from lance_spark.table.commit.options import CommitKeywords, CommitOptions, RetryKeywords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHARD_COLUMNS = (
    "shard_id string, values map<string, string>, status string, writer_epoch long, "
    "current_generation long, compacted_generation long, num_sstables long, sstable_rows long, "
    "num_log_entries long, log_rows long"
)
MEM_WAL_CLEANUP_COLUMNS = "bytes_removed long, sstables_removed long, entries_removed long"
STEP = "compact SSTables"


class MemWalMethods(TableBase):
    """Methods of `LanceTable` for a MemWAL."""

    def initializeMemWal(  # noqa: N802 - as its siblings
        self,
        bucketColumn: str | None = None,  # noqa: N803 - as its siblings
        numBuckets: int | None = None,  # noqa: N803
        identityColumn: str | None = None,  # noqa: N803
        unsharded: bool = False,
        *,
        maintained_indexes: Sequence[str] | None = None,
        writer_options: Mapping[str, Any] | None = None,
        **keywords: Unpack[CommitKeywords],
    ) -> ChangeResult:
        """Give the table a MemWAL, for upserts with low latency.

        Parameters
        ----------
        bucketColumn : str, optional
            Deals rows out to shards by the hash of this column of the primary key.
        numBuckets : int, optional
            The number of these shards, from 1 to 1024.
        identityColumn : str, optional
            Each value of this column of the primary key has a shard.
        unsharded : bool
            Whether all rows go to one shard.
        maintained_indexes : sequence of str, optional
            Indexes that pylance builds for new rows, too; by default all.
        writer_options : mapping of str to value, optional
            Defaults of all writers, by the names of `Dataset.mem_wal_writer`.

        Returns
        -------
        ChangeResult
            `version` is the version that was committed.

        Raises
        ------
        LanceError
            Errors of `Dataset.initialize_mem_wal`.

        Examples
        --------
        >>> table.initializeMemWal(bucketColumn="id", numBuckets=4)  # doctest: +SKIP
        """
        table = initialize_mem_wal(
            self._writable("initialize the MemWAL"),
            CommitOptions.of(**keywords),
            maintained_indexes=maintained_indexes,
            bucket_column=bucketColumn,
            num_buckets=numBuckets,
            identity_column=identityColumn,
            unsharded=unsharded,
            writer_options=writer_options,
        )
        return ChangeResult(table.version)

    def shards(self) -> DataFrame:
        """Return the shards of the MemWAL, with the rows that are not compacted.

        Returns
        -------
        DataFrame
            A row for each shard; see `Dataset.mem_wal_shards`.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL.
        CorruptTableError, CorruptFileError, StorageError
        """
        rows = []
        for shard in self.dataset().mem_wal_shards():
            texts = {name: str(value) for name, value in shard.values.items()}
            rows.append((shard.shard_id, texts, *astuple(shard)[2:]))
        return self._data_frame(rows, SHARD_COLUMNS)

    def compactMemWal(  # noqa: N802 - as its siblings
        self,
        flush: bool = False,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Bring the rows of all SSTables into the table, in one commit.

        Parameters
        ----------
        flush : bool
            Whether to make SSTables of rows that only the logs have. This ends the writers of their
            shards.

        Returns
        -------
        ChangeResult
            The version that was committed, or the newest if no SSTable was left to compact, and the
            numbers of rows.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL.
        CommitConflictError, CorruptTableError, CorruptFileError, StorageError
        """
        table = self._writable("compact the MemWAL")
        commit = CommitOptions.of(**keywords)
        if flush:
            flush_logs(table)
        with Job(self.spark, table, "compact the MemWAL") as job:
            done = compact_mem_wal(table, commit, runner=job.runner(STEP))
            job.committed()
        return ChangeResult(done.version, done.num_inserted, done.num_updated, done.num_deleted)

    def cleanMemWal(  # noqa: N802 - as its siblings
        self,
        olderThan: timedelta = DEFAULT_GRACE,  # noqa: N803 - as its siblings
    ) -> DataFrame:
        """Remove files of the MemWAL that no reader or writer needs any more.

        Parameters
        ----------
        olderThan : timedelta
            Keep files that were needed within this time. It must be longer than any fresh read, and
            any write, takes.

        Returns
        -------
        DataFrame
            A row: bytes_removed, sstables_removed, entries_removed.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL, or the time is negative.
        CorruptTableError, CorruptFileError, StorageError
        """
        stats = clean_mem_wal(self._writable("clean the MemWAL"), olderThan)
        row = (stats.bytes_removed, stats.sstables_removed, stats.entries_removed)
        return self._data_frame([row], MEM_WAL_CLEANUP_COLUMNS)

    def disableMemWal(  # noqa: N802 - as its siblings
        self,
        compact: bool = True,
        **keywords: Unpack[CommitKeywords],
    ) -> ChangeResult:
        """Remove the MemWAL with all its files. Its writers end. Stop them before.

        Parameters
        ----------
        compact : bool
            Whether to bring the rows of the MemWAL into the table first. If False, a MemWAL with
            rows that are not in the table is refused.

        Returns
        -------
        ChangeResult
            `version` is the version that was committed.

        Raises
        ------
        LanceError
            Errors of `Dataset.disable_mem_wal`.
        """
        table = self._writable("disable the MemWAL")
        if compact and Dataset(table).mem_wal_index_details() is not None:
            self.compactMemWal(flush=True, **keywords)
        newest = disable_mem_wal(table, CommitOptions.of(**keywords), compact=False)
        return ChangeResult(newest.version)

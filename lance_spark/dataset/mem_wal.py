"""Methods of `Dataset` for a MemWAL: set up, write, compact, clean up, remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, Unpack

from lance_spark.dataset.history import HistoryMethods
from lance_spark.table.commit.options import CommitKeywords, CommitOptions, RetryKeywords

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_spark.mem_wal.cleanup import MemWalCleanup
    from lance_spark.mem_wal.setup.shards import ShardDescription
    from lance_spark.mem_wal.writing.writer import ShardWriter
    from lance_spark.table.mem_wal.details import ShardingSpec


class MemWalMethods(HistoryMethods):
    """Methods of `Dataset` for a MemWAL."""

    def initialize_mem_wal(
        self,
        *,
        maintained_indexes: Sequence[str] | None = None,
        bucket_column: str | None = None,
        num_buckets: int | None = None,
        identity_column: str | None = None,
        unsharded: bool = False,
        durable_write: bool | None = None,
        max_wal_buffer_size: int | None = None,
        max_wal_flush_interval_ms: int | None = None,
        max_memtable_size: int | None = None,
        max_memtable_rows: int | None = None,
        max_memtable_batches: int | None = None,
        max_unflushed_memtable_bytes: int | None = None,
        manifest_scan_batch_size: int | None = None,
        backpressure_log_interval_ms: int | None = None,
        stats_log_interval_ms: int | None = None,
        hnsw_params: Mapping[str, Mapping[str, int]] | None = None,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Give the table a MemWAL: logs for upserts with low latency.

        At most one of `bucket_column`, `identity_column` and `unsharded` says to which shard a row
        belongs. With none, the writers choose.

        Clients that do not know MemWALs read the table without the rows that are not compacted.

        Parameters
        ----------
        maintained_indexes : sequence of str, optional
            Indexes that pylance builds for new rows, too; by default all.
        bucket_column : str, optional
            Deals rows out to `num_buckets` shards by the hash of this column, which must be in the
            primary key, if the table has one.
        num_buckets : int, optional
            From 1 to 1024.
        identity_column : str, optional
            Each value of this column has a shard. As `bucket_column`, with booleans, integers or
            strings.
        unsharded : bool
            All rows go to one shard.
        durable_write, max_wal_buffer_size, max_wal_flush_interval_ms, max_memtable_size, \
max_memtable_rows, max_memtable_batches, max_unflushed_memtable_bytes, manifest_scan_batch_size, \
backpressure_log_interval_ms, stats_log_interval_ms, hnsw_params
            Defaults of all writers; see `mem_wal_writer`.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            The table has a MemWAL, or files of an earlier one; or a column or index is not found.
        SchemaMismatchError
            A column of the primary key is nullable.
        UnsupportedTypeError, UnsupportedFeatureError
            The type of a column cannot be in a MemWAL.
        InvalidOptionError, CommitConflictError, CorruptTableError, StorageError

        Examples
        --------
        >>> dataset = dataset.initialize_mem_wal(  # doctest: +SKIP
        ...     bucket_column="id", num_buckets=4
        ... )
        """
        from lance_spark.mem_wal.setup.initialize import initialize_mem_wal

        table = initialize_mem_wal(
            self._table,
            CommitOptions.of(**keywords),
            maintained_indexes=maintained_indexes,
            bucket_column=bucket_column,
            num_buckets=num_buckets,
            identity_column=identity_column,
            unsharded=unsharded,
            writer_options={
                "durable_write": durable_write,
                "max_wal_buffer_size": max_wal_buffer_size,
                "max_wal_flush_interval_ms": max_wal_flush_interval_ms,
                "max_memtable_size": max_memtable_size,
                "max_memtable_rows": max_memtable_rows,
                "max_memtable_batches": max_memtable_batches,
                "max_unflushed_memtable_bytes": max_unflushed_memtable_bytes,
                "manifest_scan_batch_size": manifest_scan_batch_size,
                "backpressure_log_interval_ms": backpressure_log_interval_ms,
                "stats_log_interval_ms": stats_log_interval_ms,
                "hnsw_params": hnsw_params,
            },
        )
        return self._committed(table)

    def mem_wal_index_details(self) -> dict[str, Any] | None:
        """Return the settings of the MemWAL, in the form of pylance; None without MemWAL.

        Returns
        -------
        dict, optional
            Keys: num_shards, maintained_indexes, maintain_all_indexes, writer_config_defaults and
            sharding_specs.

        Raises
        ------
        CorruptTableError
        """
        from lance_spark.mem_wal.setup.shards import settings_of

        return settings_of(self._table)

    def mem_wal_shards(self) -> list[ShardDescription]:
        """Return the state of each shard of the MemWAL of the newest version of this branch.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> [shard.num_sstables for shard in dataset.mem_wal_shards()]  # doctest: +SKIP
        [2, 0]
        """
        from lance_spark.mem_wal.setup.shards import describe_shards

        return describe_shards(self._table)

    def mem_wal_writer(
        self,
        shard_id: str | None = None,
        *,
        shard_values: Mapping[str, Any] | None = None,
        durable_write: bool | None = None,
        max_wal_buffer_size: int | None = None,
        max_wal_flush_interval_ms: int | None = None,
        max_memtable_size: int | None = None,
        max_memtable_rows: int | None = None,
        max_memtable_batches: int | None = None,
        max_unflushed_memtable_bytes: int | None = None,
        manifest_scan_batch_size: int | None = None,
        backpressure_log_interval_ms: int | None = None,
        stats_log_interval_ms: int | None = None,
        hnsw_params: Mapping[str, Mapping[str, int]] | None = None,
    ) -> ShardWriter:
        """Open a writer of a shard, which ends the writer that the shard has.

        Parameters
        ----------
        shard_id : str, optional
            UUID of the shard, which is made if it does not exist. Without it, `shard_values` says
            which shard; a table without sharding by columns (`unsharded`) needs neither.
        shard_values : mapping of str to value, optional
            The values of the sharding fields, for example ``{"bucket": 3}``. The writer refuses
            rows that belong to other shards.
        durable_write : bool, optional
            Whether a put returns only when its rows are stored in the log. True by default. If
            False, rows wait for others; a crash can lose them.
        max_wal_buffer_size, max_wal_flush_interval_ms : int, optional
            The number of bytes and the time after which waiting rows are stored; 10 MiB and 100 ms
            by default.
        max_memtable_size, max_memtable_rows, max_memtable_batches : int, optional
            Sizes of the rows in memory after which they become an SSTable: 256 MiB, 100,000 rows
            and 8,000 log entries by default.
        max_unflushed_memtable_bytes, manifest_scan_batch_size, backpressure_log_interval_ms, \
stats_log_interval_ms, hnsw_params
            Have no effect here; pylance has them.

        Returns
        -------
        ShardWriter
            A context manager, which flushes at its end.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL, the shard is not determined, or it is sealed.
        CommitConflictError
            Another client claims the shard at the same time.
        InvalidOptionError, CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> with dataset.mem_wal_writer(shard_values={"bucket": 0}) as writer:  # doctest: +SKIP
        ...     writer.put(rows)
        """
        from lance_spark.mem_wal.writing.open import open_writer

        return open_writer(
            self._table,
            shard_id,
            shard_values,
            {
                "durable_write": durable_write,
                "max_wal_buffer_size": max_wal_buffer_size,
                "max_wal_flush_interval_ms": max_wal_flush_interval_ms,
                "max_memtable_size": max_memtable_size,
                "max_memtable_rows": max_memtable_rows,
                "max_memtable_batches": max_memtable_batches,
                "max_unflushed_memtable_bytes": max_unflushed_memtable_bytes,
                "manifest_scan_batch_size": manifest_scan_batch_size,
                "backpressure_log_interval_ms": backpressure_log_interval_ms,
                "stats_log_interval_ms": stats_log_interval_ms,
                "hnsw_params": hnsw_params,
            },
        )

    def split_by_shard(self, data: Any, *, schema: pa.Schema | None = None) -> dict[str, pa.Table]:
        """Split rows by the shard that they belong to.

        Parameters
        ----------
        data : pyarrow.Table, RecordBatch, RecordBatchReader or other Arrow data
            With the column that rows are dealt out by.
        schema : pyarrow.Schema, optional
            Of an iterable of batches.

        Returns
        -------
        dict of str to pyarrow.Table
            The rows by the UUID of the shard, in their order.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL, or its writers choose shards.
        UnsupportedError, CorruptTableError

        Examples
        --------
        >>> for shard_id, part in dataset.split_by_shard(rows).items():  # doctest: +SKIP
        ...     writers[shard_id].put(part)
        """
        from lance_spark.mem_wal.writing.open import split_rows

        return split_rows(self._table, data, schema)

    def compact_mem_wal(
        self,
        *,
        flush: bool = False,
        **keywords: Unpack[RetryKeywords],
    ) -> Self:
        """Bring the rows of all SSTables of the MemWAL into the table, in one commit.

        Parameters
        ----------
        flush : bool
            Whether to make SSTables of rows that only the logs have. This ends the writers of their
            shards.

        Returns
        -------
        Dataset
            The version that was committed; the newest version if no SSTable was left to compact.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL.
        CommitConflictError, CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset = dataset.compact_mem_wal()  # doctest: +SKIP
        """
        from lance_spark.mem_wal.compaction import compact_mem_wal
        from lance_spark.mem_wal.writing.flush import flush_logs
        from lance_spark.mutations.commits import at_version
        from lance_spark.table.open import read_latest

        options = CommitOptions.of(**keywords)
        newest = at_version(self._table, read_latest(self._table.store))
        if flush:
            flush_logs(newest)
        compact_mem_wal(newest, options)
        return self._committed(at_version(newest, read_latest(newest.store)))

    def clean_mem_wal(self, older_than: timedelta = timedelta(days=7)) -> MemWalCleanup:
        """Remove files of the MemWAL that no reader or writer needs any more.

        Parameters
        ----------
        older_than : timedelta
            Keep files that were needed within this time. It must be longer than any fresh read, and
            any write, takes.

        Returns
        -------
        MemWalCleanup
            Numbers of removed files and bytes.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL, or the time is negative.
        CorruptTableError, CorruptFileError, StorageError
        """
        from lance_spark.mem_wal.cleanup import clean_mem_wal
        from lance_spark.mutations.commits import at_version
        from lance_spark.table.open import read_latest

        return clean_mem_wal(at_version(self._table, read_latest(self._table.store)), older_than)

    def disable_mem_wal(
        self,
        *,
        compact: bool = True,
        **keywords: Unpack[CommitKeywords],
    ) -> Self:
        """Remove the MemWAL with all its files. Its writers end. Stop them before.

        Files that an earlier MemWAL has left are removed, too.

        Parameters
        ----------
        compact : bool
            Whether to bring the rows of the MemWAL into the table first. If False, a MemWAL with
            rows that are not in the table is refused.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        UnsupportedFeatureError
            Shards have rows that are not in the table.
        InvalidInputError
            The table has no MemWAL.
        CommitConflictError, CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset = dataset.disable_mem_wal()  # doctest: +SKIP
        """
        from lance_spark.mem_wal.setup.disable import disable_mem_wal

        options = CommitOptions.of(**keywords)
        return self._committed(disable_mem_wal(self._table, options, compact=compact))


def evaluate_sharding_spec(
    batch: pa.RecordBatch | pa.Table,
    spec: ShardingSpec | Mapping[str, Any],
    schema: HistoryMethods,
) -> pa.RecordBatch:
    """Compute the values by which rows are dealt out to shards.

    Parameters
    ----------
    batch : pyarrow.RecordBatch or pyarrow.Table
        Rows with the columns that the spec uses.
    spec : ShardingSpec or mapping
        A mapping is one of the values ``sharding_specs`` of `Dataset.mem_wal_index_details`.
    schema : Dataset
        The table whose field ids the spec has.

    Returns
    -------
    pyarrow.RecordBatch
        One column for each sharding field, with its name.

    Raises
    ------
    InvalidInputError
        The spec or the rows lack a column or a parameter.
    UnsupportedError
        The transform is unknown, or not defined for the type of the column.

    Examples
    --------
    >>> (spec,) = dataset.mem_wal_index_details()["sharding_specs"]  # doctest: +SKIP
    >>> evaluate_sharding_spec(rows, spec, dataset)["bucket"]  # doctest: +SKIP
    """
    from lance_spark.mem_wal import sharding

    return sharding.evaluate_sharding_spec(batch, spec, schema._table.schema)

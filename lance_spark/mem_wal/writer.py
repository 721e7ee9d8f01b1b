"""The writer of a shard: rows go to the log and to memory, and from memory to SSTables.

| step | effect |
| --- | --- |
| open | claims the shard, and reads the rows of the log that no SSTable has (`claims`) |
| put, delete | stores a WAL entry, then keeps its rows in memory (the MemTable) |
| flush | writes the rows in memory as an SSTable, and publishes it in the shard manifest |
| close | flushes |

A durable put returns after its entry is stored: then a crash loses nothing. Without
`durable_write` rows wait for the entry of other rows, at most for the flush interval.

The MemTable has a generation, which its entries carry. The flush publishes the SSTable, the last
position of the log that it covers, and the next generation, in one version of the shard manifest.
Before that, the folder of the SSTable is garbage that readers do not see.

After a failure that leaves it open what is stored, the writer refuses all further calls. A new
writer reads what is stored. A put whose rows are stored does not fail if the flush after it fails:
the next call does.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

import pyarrow as pa

from lance_spark.errors import (
    CommitConflictError,
    CorruptFileError,
    CorruptTableError,
    InvalidInputError,
    LanceError,
    StorageError,
    error_context,
)
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.claims import Claim, claim, fenced, publish_sstable
from lance_spark.mem_wal.entries import (
    Entry,
    LogRows,
    delete_rows,
    put_rows,
    read_entry,
    write_entry,
)
from lance_spark.mem_wal.sharding import FieldEntries, entry_bytes, evaluate_sharding_spec
from lance_spark.mem_wal.sstable import key_columns, write_sstable
from lance_spark.mem_wal.table.details import MemWalDetails, ShardingSpec, details_of, progress_in
from lance_spark.mem_wal.table.shard_manifest import publish, read_manifest
from lance_spark.mem_wal.writer_options import WriterOptions
from lance_spark.mutations.commits import at_version
from lance_spark.storage.store import ObjectStore
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.open import read_latest as read_latest_version
from lance_spark.table.sources import table_of

# --------------------------------------------------------------------------------------------------
# The end of the log of a shard, to which its writer appends entries.

#: Bounds of the options, which another client may have stored: a failure must not wait for ever.
_MAX_RETRIES, _MAX_DELAY = 100, 60.0


class Log:
    """Appends entries to the log of a shard.

    - `store`: Root of the branch.
    - `epoch`: The claim of the writer.
    - `position`: The first free position.
    """

    def __init__(
        self,
        store: ObjectStore,
        shard: uuid.UUID,
        epoch: int,
        position: int,
        options: WriterOptions,
    ) -> None:
        self._store = store
        self._shard = shard
        self._epoch = epoch
        self._position = position
        self._retries = min(options.max_wal_persist_retries, _MAX_RETRIES)
        self._delay = options.wal_persist_retry_base_delay_ms / 1000

    def append(
        self, rows: pa.Table, generation: int, properties: Mapping[str, str] | None = None
    ) -> Entry:
        """Store rows in the shape of a log as the next entry.

        Raises CorruptFileError. Raises CommitConflictError: another writer has claimed the shard.
        The rows are not stored. Raises StorageError: the rows may be stored or not.
        """
        entry = Entry(
            self._position, self._epoch, generation, rows=rows, properties=properties or {}
        )
        while not self._put(entry):
            entry = replace(entry, position=entry.position + 1)
        self._position = entry.position + 1
        return entry

    def _put(self, entry: Entry) -> bool:
        """Store an entry; return False if its position has the sentinel of an older claim."""
        for attempt in range(self._retries + 1):
            try:
                stored = write_entry(self._store, self._shard, entry)
                return stored or self._is_own(entry.position)
            except StorageError:
                if attempt == self._retries:
                    raise
                time.sleep(min(self._delay * 2**attempt, _MAX_DELAY))
        raise AssertionError("the last attempt returns or raises")

    def _is_own(self, position: int) -> bool:
        """Return whether the entry at a taken position is of this writer.

        A failed request may have created it before it was repeated. No other writer has the epoch.
        It is not if it is the sentinel of an older claim. pylance writes its sentinel before it
        looks for newer claims, and gives up then. Raises CorruptFileError, StorageError. Raises
        CommitConflictError: it is the entry of another writer.
        """
        existing = read_entry(self._store, self._shard, position)
        if existing is None:
            raise CorruptFileError(
                f"{self._store.display}: the store refuses position {position} of shard "
                f"{self._shard}, but has no entry there; open a new writer"
            )
        if existing.writer_epoch > self._epoch:
            raise fenced(self._store, self._shard, self._epoch, existing.writer_epoch)
        if existing.writer_epoch < self._epoch and existing.is_sentinel:
            return False
        if existing.writer_epoch < self._epoch:
            raise CommitConflictError(
                f"{self._store.display}: position {position} of shard {self._shard} has an entry "
                f"of epoch {existing.writer_epoch}, whose writer ignores the claim of this writer "
                f"(epoch {self._epoch}); stop that writer, and open a new one",
                retryable=False,
            )
        return True


# --------------------------------------------------------------------------------------------------
# Whether a shard that was claimed belongs to the newest MemWAL of the table.
#
# A writer reads the table first, and claims the shard then. In between another client can disable
# the MemWAL, and initialize it again. No reader looks for the rows of a shard without MemWAL. So
# the writer reads the table again after its claim, before it stores rows.
#
# A client that disables the MemWAL lists the shards again after its commit. It finds each shard
# that was made before the commit; and the writer of each later shard finds that the MemWAL is gone.


def check_mem_wal(store: ObjectStore, details: MemWalDetails, claimed: Claim) -> None:
    """Raise an error if the shard was claimed for another MemWAL than the newest one.

    - `details`: Those by which the shard was chosen and claimed.

    Raises StorageError. Raises InvalidInputError: the MemWAL was disabled. Raises
    CommitConflictError: it was initialized again meanwhile. Raises CorruptTableError: the rows of
    the shard count as compacted before they are written.
    """
    manifest = claimed.manifest
    newest = details_of(read_latest(store))
    if newest is None:
        raise InvalidInputError(
            f"{store.display}: another client has disabled the MemWAL while a writer of shard "
            f"{manifest.shard} was opened, and nothing is stored; remove the shard "
            "(Dataset.disable_mem_wal, LanceTable.disable_mem_wal), and initialize a MemWAL again"
        )
    first = newest.compacted.get(manifest.shard, 0) + 1
    is_stale = manifest.version == 1 and manifest.current_generation != first
    if is_stale:
        # The claim has made the shard, with a generation that follows SSTables of the other MemWAL.
        # Readers would miss these.
        publish(store, replace(manifest, version=2, current_generation=first))
    if is_stale or newest.sharding_specs != details.sharding_specs:
        raise CommitConflictError(
            f"{store.display}: another client has disabled the MemWAL and initialized it again "
            f"while a writer of shard {manifest.shard} was opened, and nothing is stored; open the "
            "writer again",
            retryable=True,
        )
    if manifest.current_generation < first:
        raise CorruptTableError(
            f"{store.display}: shard {manifest.shard} is at generation "
            f"{manifest.current_generation}, but the table counts generation {first - 1} of it as "
            "compacted, so that no reader would find new rows, and nothing is stored: another "
            "client has made the shard on a branch or clone, which has the progress of its origin; "
            "write to a shard with another id"
        )


def check_readable(table: OpenTable, shard: uuid.UUID) -> None:
    """Raise an error if no reader of the newest version looks for the rows of shards.

    Clients that disable a MemWAL seal its shards. pylance leaves them as they are if it overwrites
    the table, or drops the index. Raises InvalidInputError.
    """
    if details_of(table.manifest) is None:
        raise InvalidInputError(
            f"{table.store.display}: the MemWAL was removed: another client disabled or dropped "
            "it, or overwrote the table. Readers do not find what this writer has put since into "
            f"shard {shard}; initialize a MemWAL again (Dataset.initialize_mem_wal, "
            "LanceTable.initialize_mem_wal), open a new writer, and put these rows again"
        )


# --------------------------------------------------------------------------------------------------
# Whether rows belong to the shard that they are put into.


def check_shard(
    schema: Schema,
    shard: uuid.UUID,
    spec: ShardingSpec | None,
    entries: Mapping[str, bytes],
    data: pa.Table,
) -> None:
    """Refuse rows that belong to another shard, as far as the values of this one are known.

    - `schema`: Of the table.
    - `entries`: The values of the sharding fields that select the shard; empty if they are unknown.

    Raises InvalidInputError.
    """
    if spec is None or not entries or not data.num_rows:
        return
    sources = {number for part in spec.fields for number in part.source_ids}
    # Top-level columns that say which shard a row belongs to.
    columns = {
        top.name for top in schema.fields if sources.intersection(node.id for node in top.walk())
    }
    if not columns or not columns.issubset(data.schema.names):
        # One shard, or keys to delete without the column that shards are chosen by.
        return
    values = evaluate_sharding_spec(data, spec, schema)
    for part, column in zip(spec.fields, values.columns, strict=True):
        for value in column.unique():
            own = entries.get(part.field_id)
            if own is not None and (not value.is_valid or entry_bytes(value) != own):
                raise InvalidInputError(
                    f"rows with the value {value} of sharding field {part.field_id!r} do not "
                    f"belong to shard {shard}; split the rows by shard (Dataset.split_by_shard)"
                )


# --------------------------------------------------------------------------------------------------
# Rows of users, in the forms in which they have Arrow data.


def as_table(data: Any, schema: pa.Schema | None = None) -> pa.Table:
    """Return Arrow data of any form as a table; `schema` counts only for data without its own.

    Raises InvalidInputError: the data has another form.
    """
    return table_of(data, None if hasattr(data, "schema") else schema)


# --------------------------------------------------------------------------------------------------
# The writer of a shard: rows go to the log and to memory, and from memory to SSTables.

_COUNTS = (
    "put_count",
    "put_time_ms",
    "wal_flush_count",
    "wal_flush_bytes",
    "wal_flush_time_ms",
    "memtable_flush_count",
    "memtable_flush_rows",
    "memtable_flush_failures",
    "memtable_flush_time_ms",
)
#: Gives rows the shape of a log.
_Shape: TypeAlias = Callable[[Schema, pa.Table], pa.Table]


class _Failure(NamedTuple):
    """Why a writer is of no use any more.

    The exception itself is not kept: its traceback holds the rows of the call, and grows with each
    time that it is raised.

    - `retryable`: As of `CommitConflictError`; None for other errors.
    """

    text: str
    retryable: bool | None

    @classmethod
    def of(cls, error: BaseException) -> _Failure:
        """Return the failure that an error is."""
        retryable = error.retryable if isinstance(error, CommitConflictError) else None
        return cls(str(error), retryable)


class ShardWriter:
    """Puts and deletes rows of one shard of a table. Made by `Dataset.mem_wal_writer`.

    A writer has a shard for itself: a later writer of the shard ends this one. For more writers at
    once, use more shards. All rows of a key must go to one shard.

    Methods can be called from several threads. A writer cannot be pickled.

    Examples
    --------
    >>> with dataset.mem_wal_writer(shard_id) as writer:  # doctest: +SKIP
    ...     writer.put(pa.table({"id": [1], "name": ["a"]}))
    ...     writer.delete(pa.table({"id": [2]}))
    """

    def __init__(
        self,
        table: OpenTable,
        details: MemWalDetails,
        shard: uuid.UUID,
        options: WriterOptions,
        spec: ShardingSpec | None = None,
        field_entries: FieldEntries = (),
    ) -> None:
        self._table = table
        self._shard = shard
        self._options = options
        self._spec = spec
        self._lock = threading.RLock()
        self._failure: _Failure | None = None
        self._closed = False
        #: Rows that are not in the log yet.
        self._pending: list[pa.Table] = []
        #: Entries of the MemTable, in the order of the log.
        self._memtable: list[Entry] = []
        self._memtable_rows = self._memtable_bytes = self._memtable_batches = 0
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._timer: threading.Timer | None = None
        spec_id = spec.spec_id if spec is not None else 0
        with error_context(table.store.display):
            claimed = claim(
                table.store,
                shard,
                spec_id=spec_id,
                field_entries=field_entries,
                compacted=details.compacted.get(shard, 0),
            )
            check_mem_wal(table.store, details, claimed)
            self._claimed = claimed.manifest
            self._epoch = claimed.epoch
            self._log = Log(table.store, shard, claimed.epoch, claimed.next_position, options)
            self._generation = claimed.manifest.current_generation
            self._entries_of_shard = dict(field_entries or claimed.manifest.field_entries)
            self._replay(claimed)

    @property
    def shard_id(self) -> str:
        """The UUID of the shard."""
        return str(self._shard)

    @property
    def epoch(self) -> int:
        """The number of the claim of this writer."""
        return self._epoch

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of the log whose rows are in memory, in order."""
        return tuple(self._memtable)

    @property
    def has_failed(self) -> bool:
        """Whether the writer refuses further calls after a failure."""
        return self._failure is not None

    def has_claim(self) -> bool:
        """Return whether the shard still has the manifest by which this writer claimed it.

        It has not if the MemWAL was disabled since: then the files of the shard were deleted. The
        shard may exist again.

        Raises
        ------
        CorruptFileError, StorageError
        """
        claimed = self._claimed
        manifest = read_manifest(self._table.store, self._shard, claimed.version)
        return manifest is not None and (
            manifest.message.publication_id == claimed.message.publication_id
        )

    def put(self, data: Any, *, schema: pa.Schema | None = None) -> None:
        """Insert rows, or replace rows of the same keys.

        Parameters
        ----------
        data : pyarrow.Table, RecordBatch, RecordBatchReader or other Arrow data
            All columns of the table, of its types.
        schema : pyarrow.Schema, optional
            Of an iterable of batches.

        Raises
        ------
        SchemaMismatchError
            A column is missing, unknown or of another type.
        InvalidInputError
            A value is null where the table has no nulls, a row belongs to another shard, or the
            writer is closed.
        CommitConflictError
            Another writer has claimed the shard. The rows are not stored.
        StorageError
            The rows, or a part of them, may be stored or not. Open a new writer.
        """
        self._write(put_rows, as_table(data, schema))

    def delete(self, keys: Any, *, schema: pa.Schema | None = None) -> None:
        """Delete the rows of keys. Keys without a row are ignored.

        Parameters
        ----------
        keys : pyarrow.Table, RecordBatch, RecordBatchReader or other Arrow data
            The columns of the primary key; other columns are ignored.
        schema : pyarrow.Schema, optional
            Of an iterable of batches.

        Raises
        ------
        SchemaMismatchError
            A column of the key is missing or of another type.
        UnsupportedFeatureError
            The table has no primary key.
        InvalidInputError, CommitConflictError, StorageError
            As `put`.
        """
        self._write(delete_rows, as_table(keys, schema))

    def append(self, rows: pa.Table, properties: Mapping[str, str] | None = None) -> None:
        """Store rows in the shape of a log as one durable WAL entry.

        Parameters
        ----------
        rows : pyarrow.Table
            As `entries.put_rows` and `entries.delete_rows` return them.
        properties : mapping of str to str, optional
            Kept in the metadata of the entry.

        Raises
        ------
        InvalidInputError, CommitConflictError, StorageError
            As `put`.
        """
        with self._lock, self._storing():
            self._store_pending()
            self._store(rows, properties or {})

    def flush(self) -> None:
        """Write the rows in memory as an SSTable, without which nothing is lost either.

        Raises
        ------
        CommitConflictError
            Another writer has claimed the shard, which has the rows in its log.
        InvalidInputError, StorageError
        """
        with self._lock, self._storing():
            self._store_pending()
            self._flush()

    def close(self, *, flush: bool = True) -> None:
        """Flush and close the writer. A closed writer stays closed.

        Parameters
        ----------
        flush : bool
            If False, the rows stay in the log, where readers find them, and the next writer too.

        Raises
        ------
        CommitConflictError, StorageError
            As `flush`. The writer is closed.
        """
        with self._lock:
            if self._closed:
                return
            try:
                with self._storing():
                    self._store_pending()
                    if flush:
                        self._flush()
            finally:
                self._closed = True
                if self._timer is not None:
                    self._timer.cancel()

    def stats(self) -> dict[str, int]:
        """Return counts and durations of puts, WAL entries and flushes, by pylance's names."""
        with self._lock:
            return dict(self._counts)

    def memtable_stats(self) -> dict[str, int]:
        """Return numbers about the rows in memory, by pylance's names."""
        with self._lock:
            pending = sum(rows.num_rows for rows in self._pending)
            return {
                "row_count": self._memtable_rows + pending,
                "batch_count": len(self._memtable) + len(self._pending),
                "estimated_size_bytes": self._memtable_bytes
                + sum(rows.nbytes for rows in self._pending),
                "generation": self._generation,
                "durable_batch_count": len(self._memtable),
                "pending_wal_batch_count": len(self._pending),
                "pending_wal_row_count": pending,
                "pending_wal_estimated_bytes": sum(rows.nbytes for rows in self._pending),
                "index_bytes": 0,
                "frozen_count": 0,
                "frozen_bytes": 0,
            }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, shape: _Shape, data: pa.Table) -> None:
        started = time.monotonic()
        with self._lock, error_context(self._table.store.display):
            self._check_usable()
            rows = shape(self._table.schema, data)
            key_columns(self._table.schema, rows)
            check_shard(self._table.schema, self._shard, self._spec, self._entries_of_shard, data)
            self._counts["put_count"] += 1
            if rows.num_rows:
                self._pending.append(rows)
                if self._options.durable_write or self._is_buffer_full():
                    with self._storing():
                        self._store_pending()
                else:
                    self._start_timer()
            self._counts["put_time_ms"] += _milliseconds(started)

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """Refuse further calls after a failure, which leaves it open what is stored."""
        self._check_usable()
        try:
            with error_context(self._table.store.display):
                yield
        except BaseException as error:
            self._failure = _Failure.of(error)
            raise

    def _check_usable(self) -> None:
        if self._closed:
            raise InvalidInputError(
                f"{self._table.store.display}: the writer of shard {self._shard} is closed; open "
                "a new writer"
            )
        if self._failure is not None:
            text, retryable = self._failure
            if retryable is not None:
                raise CommitConflictError(text, retryable=retryable)
            raise InvalidInputError(
                f"{self._table.store.display}: the writer of shard {self._shard} failed "
                f"({text}); open a new writer, which finds the stored rows"
            )

    def _is_buffer_full(self) -> bool:
        size: int = sum(rows.nbytes for rows in self._pending)
        return size >= self._options.max_wal_buffer_size

    def _store_pending(self) -> None:
        """Store the rows that are not in the log yet, in entries of a bounded size."""
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending)
        self._pending = []
        step = self._rows_per_entry(rows)
        for first in range(0, rows.num_rows, step):
            try:
                self._store(rows.slice(first, step), {})
            except LanceError as error:
                if not first:
                    raise
                raise StorageError(
                    f"{self._table.store.display}: the first {first} of {rows.num_rows} rows are "
                    f"stored in shard {self._shard}, the others are not, or may be not ({error}); "
                    "open a new writer, which finds the stored rows, and look for these before "
                    "rows are put again"
                ) from error

    def _rows_per_entry(self, rows: pa.Table) -> int:
        by_size = rows.num_rows * self._options.max_wal_buffer_size // max(rows.nbytes, 1)
        most: int = min(by_size, self._options.max_memtable_rows, rows.num_rows)
        return max(1, most)

    def _store(self, rows: pa.Table, properties: Mapping[str, str]) -> None:
        """Store rows as the next entry of the log."""
        self._check_usable()
        self._make_room(rows)
        started = time.monotonic()
        # pylance counts the batches of entries, and not the entries.
        rows = rows.combine_chunks()
        self._remember(self._log.append(rows, self._generation, properties))
        self._counts["wal_flush_count"] += 1
        self._counts["wal_flush_bytes"] += rows.nbytes
        self._counts["wal_flush_time_ms"] += _milliseconds(started)
        try:
            with error_context(self._table.store.display):
                self._flush_if_full()
        except LanceError as error:
            is_conflict = isinstance(error, CommitConflictError)
            if isinstance(error, InvalidInputError) or (is_conflict and not self.has_claim()):
                # The MemWAL was disabled, and the log with the rows is gone.
                raise
            # The rows are stored. The caller must not take them for lost and put them again: the
            # next call raises the error.
            self._failure = _Failure.of(error)

    def _make_room(self, rows: pa.Table) -> None:
        """Flush before an entry that makes the MemTable larger than the options say.

        After a crash, pylance would not read its entries, which all have one generation.
        """
        if self._memtable_rows + rows.num_rows > self._options.max_memtable_rows:
            self._flush()

    def _remember(self, entry: Entry) -> None:
        if entry.rows is not None and entry.rows.num_rows:
            self._memtable.append(entry)
            self._memtable_rows += entry.rows.num_rows
            self._memtable_bytes += entry.rows.nbytes
            self._memtable_batches += entry.rows.column(0).num_chunks

    def _replay(self, claimed: Claim) -> None:
        """Read the rows of the log into memory, and flush older generations of them.

        The generation of the first rows may be greater than that of the shard manifest.
        """
        shift: int | None = None
        for entry in claimed.entries:
            generation = entry.generation
            if generation is not None and generation < claimed.manifest.current_generation:
                # An SSTable has the rows.
                continue
            if generation is not None:
                shift = generation - self._generation if shift is None else shift
                if generation == self._generation + shift + 1:
                    self._flush()
                if generation != self._generation + shift:
                    raise self._wrong_generation(entry, self._generation + shift)
            self._remember(entry)
        if shift:
            # Further entries must not have a smaller generation than these.
            self._flush()
        self._flush_if_full()

    def _wrong_generation(self, entry: Entry, expected: int) -> CorruptFileError:
        return CorruptFileError(
            f"{self._table.store.display}: the WAL entry at position {entry.position} of shard "
            f"{self._shard} has generation {entry.generation}, but {expected} or {expected + 1} "
            "was expected: entries are missing or in a wrong order"
        )

    def _flush_if_full(self) -> None:
        if (
            self._memtable_rows >= self._options.max_memtable_rows
            or self._memtable_bytes >= self._options.max_memtable_size
            or self._memtable_batches >= self._options.max_memtable_batches
        ):
            self._flush()

    def _flush(self) -> None:
        """Write the MemTable as an SSTable, and publish it."""
        self._check_usable()
        if not self._memtable:
            return
        started = time.monotonic()
        store = self._table.store
        # A column that was renamed or dropped since would be in the SSTable under its old name.
        table = at_version(self._table, read_latest_version(store))
        check_readable(table, self._shard)
        rows = LogRows.of(store, self._shard, self._memtable).read(table.schema.fields)
        covered = self._memtable[-1].position
        batches = [progress_in(entry.properties) for entry in self._memtable]
        progress = [batch for batch in batches if batch is not None]
        sstable = write_sstable(table, self._shard, self._generation, rows)
        try:
            publish_sstable(store, self._shard, self._epoch, sstable, covered, progress)
        except LanceError:
            self._counts["memtable_flush_failures"] += 1
            raise
        self._generation += 1
        self._memtable.clear()
        self._memtable_rows = self._memtable_bytes = self._memtable_batches = 0
        self._counts["memtable_flush_count"] += 1
        self._counts["memtable_flush_rows"] += rows.num_rows
        self._counts["memtable_flush_time_ms"] += _milliseconds(started)

    def _start_timer(self) -> None:
        """Store pending rows after the flush interval."""
        if self._timer is not None:
            return
        interval = min(self._options.max_wal_flush_interval_ms / 1000, threading.TIMEOUT_MAX)
        self._timer = threading.Timer(interval, self._on_timer)
        self._timer.daemon = True
        self._timer.start()

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
            if self._closed or self._failure is not None:
                return
            # The next call raises the error.
            with suppress(LanceError), self._storing():
                self._store_pending()


def _milliseconds(started: float) -> int:
    return round(1000 * (time.monotonic() - started))

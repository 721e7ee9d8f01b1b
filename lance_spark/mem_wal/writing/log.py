"""The end of the log of a shard, to which its writer appends entries."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lance_spark.errors import CommitConflictError, CorruptFileError, StorageError
from lance_spark.mem_wal.entries import Entry, read_entry, write_entry
from lance_spark.mem_wal.writing.claims import fenced
from lance_spark.mem_wal.writing.options import WriterOptions
from lance_spark.storage.store import ObjectStore

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

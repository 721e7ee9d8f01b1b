"""Claims of a shard: a shard has one writer, and each claim ends that of the writer before.

1. The claimant creates the next version of the shard manifest, with the next writer epoch. Of two
   claimants at once, one creates it; the other gives up, because the winner may be writing.
2. If there was a writer before, the claimant writes a fence sentinel: an entry without rows at the
   first free position of the log. The writer before, whose next entry has this position, learns
   that another writer has claimed the shard. Without sentinel its entry would be stored, and the
   new writer would not know it.
3. The claimant reads the entries that no SSTable has yet, those before the sentinel first. An entry
   of a later epoch shows that another writer has claimed the shard since. Then the claimant writes
   no sentinel: it would take a position of that writer.
4. The claimant looks for later claims in the shard manifest. Since step 1, a cleanup can have
   removed entries that a later writer had flushed, so that step 3 ended too early.

A writer whose claim has ended must not write again (`fenced`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lance_spark.errors import CommitConflictError, InvalidInputError, LanceError, StorageError
from lance_spark.mem_wal.entries import Entry, read_entry, read_tail, write_entry
from lance_spark.mem_wal.sharding import FieldEntries
from lance_spark.mem_wal.sstable import delete_sstable
from lance_spark.mem_wal.table.details import with_progress
from lance_spark.mem_wal.table.shard_manifest import (
    ShardManifest,
    ShardStatus,
    SsTable,
    publish,
    read_latest_manifest,
    read_newer,
    sstable_path,
)
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore

#: Attempts to claim a shard whose manifest others change, but do not claim.
_ATTEMPTS = 16


@dataclass(frozen=True)
class Claim:
    """The right to write to a shard.

    - `manifest`: The version that the claim created.
    - `entries`: Entries of the log that no SSTable has, without sentinels, in order.
    - `next_position`: The first free position of the log.
    """

    manifest: ShardManifest
    entries: tuple[Entry, ...]
    next_position: int

    @property
    def epoch(self) -> int:
        """The number of the claim."""
        return self.manifest.writer_epoch


def claim(
    store: ObjectStore,
    shard: uuid.UUID,
    *,
    spec_id: int = 0,
    field_entries: FieldEntries = (),
    compacted: int = 0,
) -> Claim:
    """Claim a shard, and end the claim of its last writer. A shard that does not exist is made.

    - `store`: Root of the branch.
    - `spec_id`, `field_entries`: The sharding spec, and the values that select the shard, if they
      are known.
    - `compacted`: The newest generation of the shard whose rows are in the base table. A new shard
      starts after it: a branch has the progress of the branch that it was made from, but not its
      shards.

    Raises CorruptFileError. Raises CommitConflictError: another writer claims the shard at the same
    time, or has claimed it since. Raises InvalidInputError: the shard is sealed, or belongs to
    other values. Raises StorageError: the store fails, or cannot create a file only if it is
    absent.
    """
    check_store(store)
    manifest = _claimed(store, shard, spec_id, field_entries, compacted)
    entries = list(read_tail(store, shard, manifest.replay_after))
    _check_newest(store, manifest, entries)
    position = manifest.replay_after + len(entries) + 1
    if manifest.writer_epoch > 1:
        sentinel = Entry(position, manifest.writer_epoch, is_sentinel=True)
        while not write_entry(store, shard, replace(sentinel, position=position)):
            # The writer before was faster.
            entry = read_entry(store, shard, position)
            if entry is not None:
                _check_newest(store, manifest, [entry])
                entries.append(entry)
                position += 1
        position += 1
        # The claimant may have slept since step 1. Then a later writer can have flushed entries,
        # which were cleaned up, and the log seemed to end where they were.
        newest = read_newer(store, manifest)
        if newest.writer_epoch != manifest.writer_epoch:
            raise fenced(store, shard, manifest.writer_epoch, newest.writer_epoch)
    return Claim(manifest, tuple(e for e in entries if not e.is_sentinel), position)


def seal(store: ObjectStore, shard: uuid.UUID) -> ShardManifest | None:
    """End the claim of the writer of a shard, and let no writer claim it; see `claim`.

    Returns the sealed version; None if the shard has no manifest. Raises CommitConflictError,
    CorruptFileError, StorageError.
    """
    manifest = read_latest_manifest(store, shard)
    if manifest is None or manifest.status is ShardStatus.SEALED:
        return manifest
    return change_status(store, claim(store, shard).manifest, ShardStatus.SEALED)


def change_status(
    store: ObjectStore, manifest: ShardManifest, status: ShardStatus
) -> ShardManifest:
    """Set whether a shard takes writers; return the new version of its manifest.

    Raises CorruptFileError, StorageError. Raises CommitConflictError: another client has claimed
    the shard, or changed its manifest many times.
    """
    newest: ShardManifest | None = manifest
    for _ in range(_ATTEMPTS):
        if newest is None or newest.writer_epoch != manifest.writer_epoch:
            break
        new = publish(store, replace(newest, version=newest.version + 1, status=status))
        if new is not None:
            return new
        # A compaction removes SSTables from the manifest, and does not claim the shard.
        newest = read_latest_manifest(store, manifest.shard)
    raise _lost_shard_error(store, manifest.shard)


def check_store(store: ObjectStore) -> None:
    """Refuse a store without atomic creation of files, on which two writers could lose rows.

    Raises StorageError.
    """
    if store.manifest_store is not None:
        raise StorageError(
            f"{store.display}: a MemWAL needs a store that itself creates a file only if it is "
            "absent, and this table has an external manifest store; open the table without it"
        )
    store.check_put_if_absent()


def fenced(store: ObjectStore, shard: uuid.UUID, own: int, other: int) -> CommitConflictError:
    """Return the error of a writer whose claim has ended."""
    return CommitConflictError(
        f"{store.display}: writer fenced: shard {shard} was claimed by another writer (epoch "
        f"{other}, this writer has epoch {own}); what this writer has acknowledged is stored; open "
        "a new writer to go on",
        retryable=False,
    )


def _claimed(
    store: ObjectStore,
    shard: uuid.UUID,
    spec_id: int,
    field_entries: FieldEntries,
    compacted: int,
) -> ShardManifest:
    """Create the version of the shard manifest with the next epoch."""
    target = 0
    for _ in range(_ATTEMPTS):
        newest = read_latest_manifest(store, shard)
        if newest is None:
            newest = ShardManifest(
                shard,
                version=0,
                current_generation=compacted + 1,
                spec_id=spec_id,
                field_entries=field_entries,
            )
        if newest.status is ShardStatus.SEALED:
            raise InvalidInputError(
                f"{store.display}: shard {shard} is sealed: its MemWAL is being disabled, or "
                "another client has closed it; write to another shard"
            )
        _check_entries(store, newest, field_entries)
        if target and newest.writer_epoch >= target:
            break
        target = newest.writer_epoch + 1
        # A shard that exists without values may have rows with other values.
        new = publish(store, replace(newest, version=newest.version + 1, writer_epoch=target))
        if new is not None:
            return new
    raise _lost_shard_error(store, shard)


def _check_newest(store: ObjectStore, manifest: ShardManifest, entries: Iterable[Entry]) -> None:
    """Raise an error if an entry shows that another writer has claimed the shard since."""
    for entry in entries:
        if entry.writer_epoch > manifest.writer_epoch:
            raise fenced(store, manifest.shard, manifest.writer_epoch, entry.writer_epoch)


def _check_entries(store: ObjectStore, manifest: ShardManifest, entries: FieldEntries) -> None:
    recorded: Mapping[str, bytes] = dict(manifest.field_entries)
    if entries and recorded and recorded != dict(entries):
        raise InvalidInputError(
            f"{store.display}: shard {manifest.shard} belongs to other values of its sharding "
            "fields than the given ones; write to the shard of these values"
        )


def _lost_shard_error(store: ObjectStore, shard: uuid.UUID) -> CommitConflictError:
    return CommitConflictError(
        f"{store.display}: another client has claimed shard {shard} at the same time; try again "
        "when it has finished",
        retryable=True,
    )


# --------------------------------------------------------------------------------------------------
# Adds SSTables to the manifest of a shard, as long as the claim of the writer holds.

#: Attempts while a compaction changes the shard manifest.
_PUBLISH_ATTEMPTS = 10


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
    for _ in range(_PUBLISH_ATTEMPTS):
        newest = read_latest_manifest(store, shard)
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
        f"{store.display}: other clients changed the manifest of shard {shard} "
        f"{_PUBLISH_ATTEMPTS} times; open a new writer, which finds the rows in the log",
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

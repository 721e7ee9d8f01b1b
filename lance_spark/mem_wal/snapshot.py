"""The state of a MemWAL that a fresh read reads: the base table, SSTables, and the ends of logs.

Shard manifests are read before the base table. A compaction commits the rows of an SSTable to the
base table before it removes the SSTable from the shard manifest; in the other order, a read could
miss both. The generations that the base table has are not read from SSTables and logs.

A log is read when its rows are first needed, so that a search for a key reads few logs. Each shard
is as it was when it was read: no version covers several shards.

A log ends before the first missing entry, so a deleted log looks like an empty one. Another client
that disables the MemWAL deletes shard manifests before logs. So the reader looks for the shard
manifest again after it has read the log.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lance_spark.errors import CorruptFileError, CorruptTableError
from lance_spark.mem_wal.clone_progress import check_generations
from lance_spark.mem_wal.entries import Entry, read_tail
from lance_spark.mem_wal.table.details import MemWalDetails, details_of
from lance_spark.mem_wal.table.shard_manifest import (
    ShardManifest,
    SsTable,
    list_shards,
    read_latest_manifest,
    read_manifest,
)
from lance_spark.storage.parallel import read_all
from lance_spark.storage.store import ObjectStore
from lance_spark.table.open import OpenTable, check_branch_bases
from lance_spark.table.open import read_latest as read_latest_version
from lance_spark.table.paths import TablePaths

#: Attempts to read shards and base table: a compaction can finish between the two.
_ATTEMPTS = 5
#: Seconds after which entries of a log may have been cleaned up since the shard manifest was read.
_PROMPT = 60


@dataclass(frozen=True, slots=True)
class ShardState:
    """The rows of a shard that the base table does not have.

    - `sstables`: In increasing order of their generations.
    - `entries`: Of the log, in order; without sentinels.
    """

    manifest: ShardManifest
    sstables: tuple[SsTable, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def shard(self) -> uuid.UUID:
        """The id of the shard."""
        return self.manifest.shard

    @property
    def has_rows(self) -> bool:
        """Whether there are rows that the base table does not have."""
        return bool(self.sstables or self.entries)


@dataclass(frozen=True)
class FreshState:
    """A version of the base table, and the rows that it does not have yet.

    - `details`: None if the table has no MemWAL; then there are no shards.
    - `manifests`: The newest of each shard.
    - `has_logs`: Whether the rows of logs belong to it.
    """

    table: OpenTable
    details: MemWalDetails | None = None
    manifests: tuple[ShardManifest, ...] = ()
    has_logs: bool = True
    _read_at: float = field(default_factory=time.monotonic, repr=False)

    @cached_property
    def shards(self) -> tuple[ShardState, ...]:
        """The shards that have rows which the base table does not have.

        Raises CorruptFileError, StorageError.
        """
        return tuple(state for state in self.read_shards(self.manifests) if state.has_rows)

    def read_shards(self, manifests: Iterable[ShardManifest]) -> list[ShardState]:
        """Read the logs of some shards.

        Raises StorageError. Raises CorruptFileError: an entry cannot be read. Or entries were
        cleaned up, or the MemWAL was disabled, since the state was read.
        """
        return read_all(self._read_shard, list(manifests), local=self.table.store.is_local)

    def _read_shard(self, manifest: ShardManifest) -> ShardState:
        compacted = 0 if self.details is None else self.details.compacted.get(manifest.shard, 0)
        sstables = tuple(table for table in manifest.sstables if table.generation > compacted)
        if not self.has_logs:
            return ShardState(manifest, sstables)
        entries = tuple(read_tail(self.table.store, manifest.shard, manifest.replay_after))
        self._check_whole(manifest, entries)
        pending = (entry for entry in entries if _is_pending(entry, manifest, compacted))
        return ShardState(manifest, sstables, tuple(pending))

    def _check_whole(self, manifest: ShardManifest, entries: tuple[Entry, ...]) -> None:
        """Raise an error if entries may have been deleted: a log ends at a missing entry."""
        store = self.table.store
        # A MemWAL that was initialized again has the same shards. Its manifests have other
        # messages: clients of this package put random bytes into them.
        same = read_manifest(store, manifest.shard, manifest.version)
        if same is None or same.message != manifest.message:
            raise CorruptFileError(
                f"{store.display}: another client has disabled the MemWAL since this read began, "
                f"so that the log of shard {manifest.shard} is gone; read again"
            )
        if time.monotonic() - self._read_at < _PROMPT:
            return
        newest = read_latest_manifest(store, manifest.shard)
        last = entries[-1].position if entries else manifest.replay_after
        if newest is None or newest.replay_after > last:
            raise CorruptFileError(
                f"{store.display}: WAL entries of shard {manifest.shard} after position {last} do "
                "not exist any more; read again, and clean up with a longer retention"
            )


def read_state(table: OpenTable) -> FreshState:
    """Read the newest state of a table and of its shards, without logs.

    - `table`: Any version of the branch.

    Raises CorruptFileError, UnsupportedFeatureError, StorageError. Raises CorruptTableError: a
    shard lacks an SSTable whose rows the base table does not have, or has one that counts as
    compacted and is not.
    """
    store = table.store
    problem = ""
    for _ in range(_ATTEMPTS):
        manifests = _read_manifests(store)
        newest = _newest(table)
        details = details_of(newest.manifest)
        if details is None:
            return FreshState(newest)
        problem = next(
            filter(None, (_missing(shard, details.compacted) for shard in manifests)), ""
        )
        if not problem:
            check_generations(store, manifests, details.compacted)
            return FreshState(newest, details, tuple(manifests))
    raise CorruptTableError(
        f"{store.display}: {problem}. A restore of an older version of the table causes this, if "
        "later generations had been compacted and removed: read the table without fresh rows, or "
        "restore the newer version. A client that dropped the MemWAL and initialized it again "
        "causes this, too, and the table has the rows of the missing SSTables: put the rows of the "
        "others into a shard with another id, and delete the folder of this shard"
    )


def _newest(table: OpenTable) -> OpenTable:
    manifest = read_latest_version(table.store)
    check_branch_bases(table.store, manifest)
    paths = TablePaths(table.store, manifest.base_paths, table.store.options)
    return OpenTable(paths, manifest, table.target_bases)


def _read_manifests(store: ObjectStore) -> list[ShardManifest]:
    shards = list_shards(store)
    manifests = read_all(
        lambda shard: read_latest_manifest(store, shard), shards, local=store.is_local
    )
    return [manifest for manifest in manifests if manifest is not None]


def _missing(manifest: ShardManifest, compacted: Mapping[uuid.UUID, int]) -> str:
    """Return which rows of a shard are neither in the base table nor in an SSTable, as text."""
    newest = compacted.get(manifest.shard, 0)
    if newest >= manifest.current_generation:
        return (
            f"shard {manifest.shard} of the MemWAL is at generation "
            f"{manifest.current_generation}, but the table has generation {newest} of it"
        )
    listed = {table.generation for table in manifest.sstables}
    pending = manifest.current_generation - 1 - newest
    if sum(generation > newest for generation in listed) < pending:
        first = newest + 1
        while first in listed:
            first += 1
        return (
            f"shard {manifest.shard} of the MemWAL has no SSTable of generation {first}, and the "
            f"table has its rows up to generation {newest} only"
        )
    return ""


def _is_pending(entry: Entry, manifest: ShardManifest, compacted: int) -> bool:
    """Return whether an entry has rows that are not in an SSTable or in the base table."""
    if entry.rows is None or not entry.rows.num_rows:
        return False
    generation = entry.generation
    return generation is None or generation >= max(manifest.current_generation, compacted + 1)

"""Whether a shard that was claimed belongs to the newest MemWAL of the table.

A writer reads the table first, and claims the shard then. In between another client can disable the
MemWAL, and initialize it again. No reader looks for the rows of a shard without MemWAL. So the
writer reads the table again after its claim, before it stores rows.

A client that disables the MemWAL lists the shards again after its commit. It finds each shard that
was made before the commit; and the writer of each later shard finds that the MemWAL is gone.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from lance_spark.errors import CommitConflictError, CorruptTableError, InvalidInputError
from lance_spark.mem_wal.writing.claims import Claim
from lance_spark.storage.store import ObjectStore
from lance_spark.table.mem_wal.details import MemWalDetails, details_of
from lance_spark.table.mem_wal.shard_manifest import publish
from lance_spark.table.open import OpenTable, read_latest


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

"""Removes compacted SSTables from the shard manifests.

A client creates the next version of the shard manifest, without these SSTables and with all else as
it is. The epoch stays, so that the writer of the shard goes on. If the writer creates the version
first, the client reads the shard again. The files of the SSTables stay, for readers that have read
an older shard manifest (`cleanup`).

Shards of a MemWAL that was disabled and initialized again have the same ids, and count their
generations from 1 again. Therefore the client reads the progress of compactions after the shard
manifests.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from lance_spark.errors import StorageError
from lance_spark.storage.parallel import read_all
from lance_spark.table.commit.options import Backoff
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.mem_wal.details import details_of
from lance_spark.table.mem_wal.shard_manifest import publish, read_latest
from lance_spark.table.open import OpenTable
from lance_spark.table.open import read_latest as read_latest_version

#: Attempts to create the next version before the writer of the shard does.
_ATTEMPTS = 10


def drain(table: OpenTable) -> Mapping[uuid.UUID, int]:
    """Remove the SSTables whose rows a version of the base table has from the shard manifests.

    - `table`: A version of the table. The shards of compactions that it has are read.

    Returns the number of removed SSTables of each shard that had some. Raises CorruptTableError,
    CorruptFileError, UnsupportedFeatureError, StorageError.
    """
    store, backoff = table.store, Backoff()
    removed: dict[uuid.UUID, int] = {}
    shards = list(_compacted(table.manifest))
    for _ in range(_ATTEMPTS):
        manifests = read_all(partial(read_latest, store), shards, local=store.is_local)
        filled = [manifest for manifest in manifests if manifest is not None and manifest.sstables]
        compacted = _compacted(read_latest_version(store)) if filled else {}
        shards = []
        for manifest in filled:
            newest = compacted.get(manifest.shard, 0)
            kept = tuple(part for part in manifest.sstables if part.generation > newest)
            if len(kept) == len(manifest.sstables):
                continue
            if publish(store, replace(manifest, version=manifest.version + 1, sstables=kept)):
                removed[manifest.shard] = len(manifest.sstables) - len(kept)
            else:
                shards.append(manifest.shard)
        if not shards:
            return removed
        backoff.wait()
    raise StorageError(
        f"{store.display}: shard {shards[0]} of the MemWAL was changed {_ATTEMPTS} times while its "
        "compacted SSTables were removed from its manifest; their rows are in the table. Compact "
        "the MemWAL again to remove them (Dataset.compact_mem_wal, LanceTable.compact_mem_wal)"
    )


def _compacted(manifest: Manifest) -> Mapping[uuid.UUID, int]:
    details = details_of(manifest)
    return details.compacted if details is not None else {}

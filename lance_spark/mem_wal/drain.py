"""Removes compacted SSTables from the shard manifests.

A client creates the next version of the shard manifest, without these SSTables and with all else as
it is. The epoch stays, so that the writer of the shard goes on. If the writer creates the version
first, the client reads the shard again. The files of the SSTables stay, for readers that have read
an older shard manifest (`cleanup`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

from lance_spark.errors import StorageError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.options import Backoff
from lance_spark.table.mem_wal.details import details_of
from lance_spark.table.mem_wal.shard_manifest import publish, read_latest
from lance_spark.table.open import OpenTable

#: Attempts to create the next version before the writer of the shard does.
_ATTEMPTS = 10


def drain(table: OpenTable) -> Mapping[uuid.UUID, int]:
    """Remove the SSTables whose rows a version of the base table has from the shard manifests.

    Parameters
    ----------
    table : OpenTable
        The newest version.

    Returns
    -------
    mapping of UUID to int
        The number of removed SSTables of each shard that had some.

    Raises
    ------
    CorruptTableError, CorruptFileError, UnsupportedFeatureError, StorageError
    """
    details = details_of(table.manifest)
    compacted = details.compacted if details is not None else {}
    removed = {
        shard: _drain(table.store, shard, generation) for shard, generation in compacted.items()
    }
    return {shard: count for shard, count in removed.items() if count}


def _drain(store: ObjectStore, shard: uuid.UUID, compacted: int) -> int:
    backoff = Backoff()
    for _ in range(_ATTEMPTS):
        manifest = read_latest(store, shard)
        if manifest is None:
            return 0
        kept = tuple(part for part in manifest.sstables if part.generation > compacted)
        count = len(manifest.sstables) - len(kept)
        if not count:
            return 0
        if publish(store, replace(manifest, version=manifest.version + 1, sstables=kept)):
            return count
        backoff.wait()
    raise StorageError(
        f"{store.display}: shard {shard} of the MemWAL was changed {_ATTEMPTS} times while its "
        "compacted SSTables were removed from its manifest; their rows are in the table. Compact "
        "the MemWAL again to remove them (Dataset.compact_mem_wal, LanceTable.compactMemWal)"
    )

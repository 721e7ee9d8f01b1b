"""The progress of compactions that a branch or a clone has from its origin.

A branch and a clone begin with the index `__lance_mem_wal` of their origin, but without its shards.
So the index counts generations as compacted whose rows belong to the shards of the origin. A writer
of this package begins a shard of the same id after these generations. pylance begins it with
generation 1. Then its first SSTables count as compacted, although no version has their rows: reads
would leave these rows out, and a drain would remove them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from lance_spark.change_feed.diff import is_first_of_clone
from lance_spark.errors import CorruptTableError, UnsupportedFeatureError, VersionNotFoundError
from lance_spark.mem_wal.table.details import details_of
from lance_spark.mem_wal.table.shard_manifest import ShardManifest
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.versions import list_manifests


def check_generations(
    store: ObjectStore, manifests: Iterable[ShardManifest], compacted: Mapping[uuid.UUID, int]
) -> None:
    """Raise an error if SSTables count as compacted by the progress of the origin alone.

    Without SSTables that count as compacted there is no request. If the first version of a branch
    or clone was cleaned up, its progress is unknown.

    - `store`: Root of the branch.
    - `manifests`: The newest of each shard.
    - `compacted`: For each shard, the newest generation that the newest version counts as
      compacted.

    Raises CorruptTableError, StorageError.
    """
    least = {
        manifest.shard: manifest.sstables[0].generation
        for manifest in manifests
        if manifest.sstables
    }
    if all(generation > compacted.get(shard, 0) for shard, generation in least.items()):
        return
    inherited = _inherited(store)
    for shard, generation in least.items():
        if generation <= inherited.get(shard, 0):
            raise CorruptTableError(
                f"{store.display}: the SSTable of generation {generation} of shard {shard} counts "
                f"as compacted, but its rows are in no version: this branch or clone has the "
                f"progress of its origin, generation {inherited[shard]}, and another client began "
                "the shard with generation 1. Put the rows of its SSTables and its log into a "
                "shard with another id, for example by the scanner of that client, and delete the "
                "folder of this shard"
            )


def _inherited(store: ObjectStore) -> Mapping[uuid.UUID, int]:
    """Return the progress that a branch or clone began with; empty for other tables."""
    locations = list_manifests(store)
    try:
        oldest = read_version(store, locations[0].version) if locations else None
        if oldest is None or not is_first_of_clone(store, oldest):
            return {}
    except (VersionNotFoundError, UnsupportedFeatureError):
        # It is cleaned up meanwhile, or has a later operation.
        return {}
    details = details_of(oldest)
    return {} if details is None else details.compacted

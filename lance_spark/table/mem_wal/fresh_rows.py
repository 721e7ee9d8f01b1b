"""Finds shards whose rows are not in the base table yet, by their manifests and logs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pyarrow as pa

from lance_spark.errors import CorruptFileError, MissingFileError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.mem_wal import names
from lance_spark.table.mem_wal.shard_manifest import ShardManifest, list_shards, read_latest

#: Metadata of the schema of an entry without rows, which only takes its position.
_SENTINEL = b"fence_sentinel"
_GENERATION = b"generation"


def shards_with_fresh_rows(
    store: ObjectStore, compacted: Mapping[uuid.UUID, int]
) -> Iterator[uuid.UUID]:
    """Yield the shards whose newest rows a reader of the base table does not see.

    Parameters
    ----------
    store : ObjectStore
        Root of the branch.
    compacted : mapping of UUID to int
        For each shard, the newest generation whose rows are in the base table.

    Raises
    ------
    CorruptFileError, StorageError, UnsupportedFeatureError
    """
    for shard in list_shards(store):
        manifest = read_latest(store, shard)
        if manifest is None:
            manifest = ShardManifest(shard)
        if has_fresh_rows(store, manifest, compacted.get(shard, 0)):
            yield shard


def has_fresh_rows(store: ObjectStore, manifest: ShardManifest, compacted: int) -> bool:
    """Return whether a shard has SSTables above a generation, or rows in its log.

    Raises
    ------
    CorruptFileError, StorageError
    """
    if any(table.generation > compacted for table in manifest.sstables):
        return True
    flushed = max(compacted, manifest.current_generation - 1)
    position = manifest.replay_after + 1
    while (generation := _generation_at(store, manifest.shard, position)) is not None:
        if generation > flushed:
            return True
        position += 1
    return False


def _generation_at(store: ObjectStore, shard: uuid.UUID, position: int) -> int | None:
    """Return the generation of a WAL entry: 0 for one without rows, None without entry.

    Rows without a generation count as newer than any generation.
    """
    path = names.wal_path(shard, position)
    try:
        data = store.read_bytes(path)
    except MissingFileError:
        return None
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            metadata = reader.schema.metadata or {}
        if metadata.get(_SENTINEL) == b"true":
            return 0
        return int(metadata.get(_GENERATION, str(2**64).encode()))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(
            f"{store.name(path)}: the WAL entry cannot be read: {error}"
        ) from None

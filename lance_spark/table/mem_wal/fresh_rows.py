"""Rows of shards that are not in the base table yet: whether there are some, and their fields."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import pyarrow as pa

from lance_spark.encoding.field_metadata import FIELD_ID
from lance_spark.errors import CorruptFileError, MissingFileError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.mem_wal import names
from lance_spark.table.mem_wal.shard_manifest import ShardManifest, list_shards, read_latest

#: Metadata of the schema of an entry without rows, which only takes its position.
_SENTINEL = b"fence_sentinel"
_GENERATION = b"generation"
_FIELD_ID = FIELD_ID.encode()
#: The only version of an SSTable.
_VERSION_OF_SSTABLE = 1


def shards_with_fresh_rows(
    store: ObjectStore, compacted: Mapping[uuid.UUID, int]
) -> Iterator[uuid.UUID]:
    """Yield the shards whose newest rows a reader of the base table does not see.

    - `store`: Root of the branch.
    - `compacted`: For each shard, the newest generation whose rows are in the base table.

    Raises CorruptFileError, StorageError, UnsupportedFeatureError.
    """
    for shard in list_shards(store):
        manifest = read_latest(store, shard)
        if manifest is None:
            manifest = ShardManifest(shard)
        if has_fresh_rows(store, manifest, compacted.get(shard, 0)):
            yield shard


def has_fresh_rows(store: ObjectStore, manifest: ShardManifest, compacted: int) -> bool:
    """Return whether a shard has SSTables above a generation, or rows in its log.

    Raises CorruptFileError, StorageError.
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


def fresh_field_ids(store: ObjectStore, compacted: Mapping[uuid.UUID, int]) -> set[int]:
    """Return the ids of all fields for which rows of shards that are not compacted have values.

    Raises CorruptFileError, CorruptTableError, StorageError, UnsupportedFeatureError.
    """
    ids: set[int] = set()
    for shard in list_shards(store):
        manifest = read_latest(store, shard) or ShardManifest(shard)
        for table in manifest.sstables:
            if table.generation > compacted.get(shard, 0):
                folder = store.below(names.sstable_path(shard, table.folder))
                fields = read_version(folder, _VERSION_OF_SSTABLE).message.fields
                ids.update(f.id for f in fields if f.parent_id >= 0 or f.name != names.TOMBSTONE)
        position = manifest.replay_after + 1
        while (schema := _schema_at(store, shard, position)) is not None:
            stack = [field for field in schema if field.name != names.TOMBSTONE]
            while stack:
                field = stack.pop()
                recorded = (field.metadata or {}).get(_FIELD_ID, b"")
                if recorded.isdigit():
                    ids.add(int(recorded))
                stack += [field.type.field(i) for i in range(field.type.num_fields)]
            position += 1
    return ids


def _generation_at(store: ObjectStore, shard: uuid.UUID, position: int) -> int | None:
    """Return the generation of a WAL entry: 0 for one without rows, None without entry.

    Rows without a generation count as newer than any generation.
    """
    schema = _schema_at(store, shard, position)
    if schema is None:
        return None
    metadata = schema.metadata or {}
    if metadata.get(_SENTINEL) == b"true":
        return 0
    try:
        return int(metadata.get(_GENERATION, str(2**64).encode()))
    except ValueError as error:
        raise _damaged(store, shard, position, error) from None


def _schema_at(store: ObjectStore, shard: uuid.UUID, position: int) -> pa.Schema | None:
    """Return the schema of a WAL entry; None without entry."""
    path = names.wal_path(shard, position)
    try:
        data = store.read_bytes(path)
    except MissingFileError:
        return None
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.schema
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(store, shard, position, error) from None


def _damaged(
    store: ObjectStore, shard: uuid.UUID, position: int, error: Exception
) -> CorruptFileError:
    name = store.name(names.wal_path(shard, position))
    return CorruptFileError(f"{name}: the WAL entry cannot be read: {error}")

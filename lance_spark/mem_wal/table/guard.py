"""Checks of changes of a table with a MemWAL, against the newest version of the table.

Rows of shards have the fields that the table had when they were written. Readers match them by
field id, and a row of a shard hides the row of its key in the base table. So some changes would not
reach these rows, and others would be undone by them:

| change | refused |
| --- | --- |
| delete, update, overlays, other values of columns | while a shard has rows of its own |
| overwrite, restore | while there are shards |
| a new column with values, another primary key | always |
| a column that becomes not nullable or gets another type | always |
| a column with the name `_tombstone` | always |
| a new column with the id of a dropped one | while rows of shards have values for this id |
| drop of a column of the key or of the sharding | always |
| drop of the MemWAL | while a shard has rows of its own |

Rows of its own are those that are not in the base table.

A compaction is the change that brings such rows into the table. The planner of a change checks
this first (`mutations.mem_wal`). Each attempt of a commit checks it again, because another client
can add rows, shards and the MemWAL itself meanwhile. No request of a store covers both the shards
and the version. A row that comes after the last check counts as written after the change.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.encoding.meta import FIELD_ID
from lance_spark.errors import CorruptFileError, MissingFileError, UnsupportedFeatureError
from lance_spark.mem_wal.table import shard_manifest
from lance_spark.mem_wal.table.details import MemWalDetails, decode, details_of, find_index
from lance_spark.mem_wal.table.shard_manifest import (
    TOMBSTONE,
    ShardManifest,
    list_shards,
    read_latest_manifest,
)
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.indexes.sections import MEM_WAL, may_have_mem_wal, read_section
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, read_latest

if TYPE_CHECKING:
    from lance_spark.table.manifest.builder import ManifestBuilder
    from lance_spark.table.operations.base import Operation


# --------------------------------------------------------------------------------------------------
# Rows of shards that are not in the base table yet: whether there are some, and their fields.

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
        manifest = read_latest_manifest(store, shard)
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
        manifest = read_latest_manifest(store, shard) or ShardManifest(shard)
        for table in manifest.sstables:
            if table.generation > compacted.get(shard, 0):
                folder = store.below(shard_manifest.sstable_path(shard, table.folder))
                fields = read_version(folder, _VERSION_OF_SSTABLE).message.fields
                ids.update(
                    f.id for f in fields if f.parent_id >= 0 or f.name != shard_manifest.TOMBSTONE
                )
        position = manifest.replay_after + 1
        while (schema := _schema_at(store, shard, position)) is not None:
            stack = [field for field in schema if field.name != shard_manifest.TOMBSTONE]
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
    path = shard_manifest.wal_path(shard, position)
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
    name = store.name(shard_manifest.wal_path(shard, position))
    return CorruptFileError(f"{name}: the WAL entry cannot be read: {error}")


# --------------------------------------------------------------------------------------------------
# Checks of changes of a table with a MemWAL, against the newest version of the table.

_CHANGES_ROWS = frozenset({"delete", "update", "data_replacement", "data_overlay"})
_REPLACES_TABLE = {
    "overwrite": "the table cannot be overwritten",
    "restore": "an older version cannot be restored",
}
_ADDS_INDEXES = frozenset({"create_index", "restore"})
_Fields = Mapping[int, file_pb2.Field]


def check_commit(store: ObjectStore, builder: ManifestBuilder, operation: Operation) -> None:
    """Raise an error for an attempt of a commit that does not fit the shards of a MemWAL.

    Without MemWAL, there is no request.

    - `store`: Root of the branch.
    - `builder`: The operation has been applied to it.

    Raises CorruptTableError, CorruptFileError, StorageError. Raises UnsupportedFeatureError: see
    the table above.
    """
    base = builder.base
    if base is None or not (
        may_have_mem_wal(base.index_section)
        or (operation.name in _ADDS_INDEXES and may_have_mem_wal(builder.index_section))
    ):
        return
    if operation.name in _REPLACES_TABLE:
        _check_no_shards(store, _REPLACES_TABLE[operation.name])
        return
    before, after = find_index(read_section(base)), find_index(builder.indices)
    index = after or before
    if index is None:
        return
    details = decode(index, base.name)
    if after is None:
        check_no_fresh_rows(store, details, "the MemWAL cannot be dropped")
        return
    _check_schema(store, base, builder.proto, details, is_new=before is None)
    _record_field_ids(base, builder.proto)
    changes_rows = operation.name in _CHANGES_ROWS or (
        operation.name == "merge" and _changes_values(base.message, builder.proto)
    )
    # Rows of a compaction come from shards.
    if changes_rows and before is not None and not operation.compacted_generations:
        check_no_fresh_rows(store, details, "rows cannot be changed")


def _record_field_ids(base: Manifest, new: table_pb2.Manifest) -> None:
    """Record the greatest field id if a column is dropped, so that no column gets its id again.

    Shards hold values by field id, also those of a writer that does not know of the drop.
    """
    before = {field.id for field in base.message.fields}
    if before - {field.id for field in new.fields}:
        new.max_allocated_field_id = max(new.max_allocated_field_id, *before)


def check_no_shards(store: ObjectStore, manifest: Manifest, change: str) -> None:
    """Raise an error for a change after which the shards of a MemWAL would not fit the table.

    - `store`: Root of the branch.
    - `manifest`: The newest version.
    - `change`: The refused change, for example "the table cannot be overwritten".

    Raises CorruptTableError, StorageError. Raises UnsupportedFeatureError: the table has a MemWAL
    with shards.
    """
    if find_index(read_section(manifest)) is not None:
        _check_no_shards(store, change)


def _check_no_shards(store: ObjectStore, change: str) -> None:
    shards = list_shards(store)
    if shards:
        raise UnsupportedFeatureError(
            f"{store.display}: {change}: its MemWAL (index {MEM_WAL}) has {len(shards)} shards, "
            "whose rows would appear in the changed table; disable the MemWAL before "
            "(Dataset.disable_mem_wal, LanceTable.disable_mem_wal)"
        )


def check_no_fresh_rows(store: ObjectStore, details: MemWalDetails, change: str) -> None:
    """Raise an error if a shard has rows that are not in the base table.

    - `store`: Root of the branch.
    - `details`: Of the newest version, which is read before the shards.
    - `change`: The refused change, for example "rows cannot be changed".

    Raises UnsupportedFeatureError, CorruptFileError, StorageError.
    """
    fresh = next(shards_with_fresh_rows(store, details.compacted), None)
    if fresh is not None:
        raise UnsupportedFeatureError(
            f"{store.display}: {change}: shard {fresh} of the MemWAL (index {MEM_WAL}) has rows "
            "that are not in the base table, which would hide or undo the change, or be lost; "
            "change rows through the MemWAL, or compact it before (Dataset.compact_mem_wal, "
            "LanceTable.compact_mem_wal)"
        )


def used_fields(fields: Collection[file_pb2.Field], details: MemWalDetails) -> frozenset[int]:
    """Return the ids of the fields of the primary key and of the sharding."""
    key = {field.id for field in fields if field.unenforced_primary_key}
    sources = (part.source_ids for spec in details.sharding_specs for part in spec.fields)
    return frozenset(key.union(*sources))


def schema_refusal(store: ObjectStore, change: str) -> UnsupportedFeatureError:
    """Return the error for a change of the schema, for example "column 'a' cannot be cast"."""
    return UnsupportedFeatureError(
        f"{store.display}: {change}: the table has a MemWAL (index {MEM_WAL}), whose rows "
        "this change would not reach; disable the MemWAL before (Dataset.disable_mem_wal, "
        "LanceTable.disable_mem_wal), which brings its rows into the table, and initialize it "
        "again after the change"
    )


def dropped_refusal(store: ObjectStore, name: str) -> UnsupportedFeatureError:
    """Return the error for the drop of a column of the key or sharding."""
    return schema_refusal(store, f"column {name!r} of its key or sharding cannot be dropped")


def _check_schema(
    store: ObjectStore,
    base: Manifest,
    new: table_pb2.Manifest,
    details: MemWalDetails,
    *,
    is_new: bool,
) -> None:
    """Raise an error for a change of columns; `is_new` if the change creates the MemWAL."""
    before: _Fields = {field.id: field for field in base.message.fields}
    after: _Fields = {field.id: field for field in new.fields}
    missing = used_fields(before.values(), details) - after.keys()
    if not is_new:
        # Other clients may have dropped such a column before.
        missing &= before.keys()
    if missing:
        number = min(missing)
        name = before[number].name if number in before else f"with field id {number}"
        raise dropped_refusal(store, name)
    if before == after:
        return
    if _key(before) != _key(after):
        raise schema_refusal(store, "the primary key cannot be changed")
    added = after.keys() - before.keys()
    if added and not is_new:
        _check_new_ids(store, details, {number: after[number].name for number in added})
    for number, field in after.items():
        old = before.get(number)
        is_renamed = old is None or old.name != field.name
        if field.name == TOMBSTONE and field.parent_id < 0 and is_renamed:
            raise schema_refusal(store, f"no column can get the name {TOMBSTONE!r}")
        if old is not None and old.logical_type != field.logical_type:
            raise schema_refusal(store, f"column {field.name!r} cannot get another type")
        # Of a new struct, only the struct itself can be null in rows of shards.
        has_nulls = old.nullable if old is not None else field.parent_id not in added
        if has_nulls and not field.nullable:
            raise schema_refusal(store, f"column {field.name!r} cannot be not nullable")
    old_fragments = {fragment.id for fragment in base.message.fragments}
    filled = {
        number
        for fragment in new.fragments
        if fragment.id in old_fragments
        for file in fragment.files
        for number in file.fields
    }
    computed = min(filled & added, default=None)
    if computed is not None:
        raise schema_refusal(
            store, f"values of the new column {after[computed].name!r} cannot be computed"
        )


def _check_new_ids(store: ObjectStore, details: MemWalDetails, added: Mapping[int, str]) -> None:
    """Raise an error if a new field has the id of a dropped one that rows of shards still have.

    Clients that do not record the greatest id (`_record_field_ids`) make the id free by a drop.
    """
    used = min(fresh_field_ids(store, details.compacted) & added.keys(), default=None)
    if used is not None:
        raise UnsupportedFeatureError(
            f"{store.display}: column {added[used]!r} would get the field id {used} of a dropped "
            f"column, for which rows of the MemWAL (index {MEM_WAL}) still have values; compact it "
            "before, with the rows of its logs (Dataset.compact_mem_wal, "
            "LanceTable.compact_mem_wal, flush=True)"
        )


def _key(fields: _Fields) -> dict[int, int]:
    return {
        number: field.unenforced_primary_key_position
        for number, field in fields.items()
        if field.unenforced_primary_key
    }


def _changes_values(base: table_pb2.Manifest, new: table_pb2.Manifest) -> bool:
    """Return whether existing rows are deleted, or have other files for existing columns."""
    fields = {field.id for field in base.fields}.intersection(field.id for field in new.fields)
    fragments = {fragment.id: fragment for fragment in new.fragments}
    return any(
        fragment.id not in fragments
        or _content(fragment, fields) != _content(fragments[fragment.id], fields)
        for fragment in base.fragments
    )


def _content(
    fragment: table_pb2.DataFragment, fields: Collection[int]
) -> tuple[bytes, set[tuple[int, str]]]:
    files = {
        (number, file.path) for file in fragment.files for number in file.fields if number in fields
    }
    return fragment.deletion_file.SerializeToString(), files


# --------------------------------------------------------------------------------------------------
# Checks of changes of tables with a MemWAL, before a change is planned.
#
# Each commit checks the same again.


def check_rows(table: OpenTable) -> None:
    """Raise an error for a change of rows while rows of the MemWAL are not in the base table.

    Raises UnsupportedFeatureError, CorruptTableError, CorruptFileError, StorageError.
    """
    details = details_of(table.manifest)
    if details is None or not any(shards_with_fresh_rows(table.store, details.compacted)):
        return
    # A compaction since the table was opened would make these rows old.
    newest = details_of(read_latest(table.store))
    if newest is not None:
        check_no_fresh_rows(table.store, newest, "rows cannot be changed")


def check_schema(table: OpenTable, change: str) -> None:
    """Raise an error for a change of columns, such as "column 'a' cannot be cast".

    Raises UnsupportedFeatureError. Raises CorruptTableError: the indexes cannot be read.
    """
    if details_of(table.manifest) is not None:
        raise schema_refusal(table.store, change)


def check_droppable(table: OpenTable, fields: Collection[int]) -> None:
    """Raise an error if the MemWAL needs one of the fields with some ids.

    Raises UnsupportedFeatureError. Raises CorruptTableError: the indexes cannot be read.
    """
    details = details_of(table.manifest)
    if details is None:
        return
    used = used_fields([field.to_proto() for field in table.schema.walk()], details)
    dropped = [field for field in table.schema.walk() if field.id in used.intersection(fields)]
    if dropped:
        raise dropped_refusal(table.store, dropped[0].name)

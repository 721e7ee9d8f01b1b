"""Gives a MemWAL to a table, and takes it away."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidOptionError,
    LanceError,
    SchemaMismatchError,
    StorageError,
    UnsupportedFeatureError,
)
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.claims import change_status, check_store, seal
from lance_spark.mem_wal.clone_progress import check_generations
from lance_spark.mem_wal.compaction import compact_mem_wal, read_shards
from lance_spark.mem_wal.entries import log_schema
from lance_spark.mem_wal.keys import check_key_type
from lance_spark.mem_wal.open import flush_logs
from lance_spark.mem_wal.sharding import (
    BUCKET,
    IDENTITY,
    MAX_BUCKETS,
    NUM_BUCKETS,
    UNSHARDED,
    can_bucket,
    can_identify,
)
from lance_spark.mem_wal.table import shard_manifest
from lance_spark.mem_wal.table.details import (
    MemWalDetails,
    ShardingField,
    ShardingSpec,
    details_of,
    find_index,
    new_index,
)
from lance_spark.mem_wal.table.guard import has_fresh_rows, shards_with_fresh_rows
from lance_spark.mem_wal.table.shard_manifest import ShardManifest, ShardStatus, list_shards
from lance_spark.mem_wal.writer_options import WriterOptions
from lance_spark.mutations.commits import at_version, change_schema
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.operations.indexes import CreateIndex
from lance_spark.table.primary_key import primary_key
from lance_spark.table.removal import delete_files

# --------------------------------------------------------------------------------------------------
# Gives a table a MemWAL: the entry `__lance_mem_wal` in its index section.
#
# Shards are made by their first writers. Files that an earlier MemWAL left below `_mem_wal/` must
# be removed before: its shards would come back to life.

#: Ids of sharding specs are positive numbers of 31 bits.
_MAX_SPEC_ID = 2**31 - 1
#: Name of the only sharding field. pylance gives it this name with any transform.
_FIELD_ID = "bucket"
_RESULT_TYPES = {"string": "utf8", "large_string": "large_utf8", "bool": "boolean"}


def initialize_mem_wal(
    table: OpenTable,
    options: CommitOptions,
    sharding: Mapping[str, Any],
    writer_options: Mapping[str, Any] | None = None,
) -> OpenTable:
    """Give a table a MemWAL; see `Dataset.initialize_mem_wal`.

    - `sharding`: All values of `lance_spark.dataset.mem_wal.ShardingKeywords`.
    """
    maintained_indexes = sharding["maintained_indexes"]
    spec_of = _spec_maker(sharding)
    settings = {name: value for name, value in (writer_options or {}).items() if value is not None}
    defaults = WriterOptions().changed(settings).to_text() if settings else {}

    def plan(current: OpenTable) -> CreateIndex:
        display = current.store.display
        section = section_of(current.manifest)
        if find_index(section) is not None:
            raise InvalidInputError(
                f"{display}: the table has a MemWAL already; disable it before "
                "(Dataset.disable_mem_wal, LanceTable.disable_mem_wal) to give it other settings"
            )
        shards = list_shards(current.store)
        if shards:
            raise InvalidInputError(
                f"{display}: the folder {shard_manifest.FOLDER}/ has {len(shards)} shards of "
                "an earlier MemWAL, whose rows would appear in the table; remove them before "
                "(Dataset.disable_mem_wal, LanceTable.disable_mem_wal)"
            )
        check_store(current.store)
        _check_key(current)
        existing = {index.name for index in section.indices}
        missing = sorted(set(maintained_indexes or ()) - existing)
        if missing:
            raise InvalidInputError(
                f"{display}: index {missing[0]!r} of maintained_indexes not found; the indexes are "
                f"{', '.join(sorted(existing)) or 'none'}"
            )
        details = MemWalDetails(
            num_shards=sharding["num_buckets"] or int(sharding["unsharded"]),
            sharding_specs=spec_of(current),
            maintained_indexes=tuple(maintained_indexes or ()),
            maintain_all_indexes=maintained_indexes is None,
            writer_defaults=defaults,
        )
        return CreateIndex((new_index(details, current.version),))

    return change_schema(table, plan, options)


def _check_key(table: OpenTable) -> None:
    """Raise an error if the rows of a table cannot be put into a MemWAL."""
    display = table.store.display
    for path in primary_key(table.schema):
        name = ".".join(node.name for node in path)
        if any(node.nullable for node in path):
            raise SchemaMismatchError(
                f"{display}: column {name!r} is in the primary key, so that it and the fields "
                "above it must not be nullable"
            )
        check_key_type(name, path[-1].arrow_field.type)
    # Refuses columns that a log cannot hold.
    log_schema(table.schema)


def _spec_maker(
    sharding: Mapping[str, Any],
) -> Callable[[OpenTable], tuple[ShardingSpec, ...]]:
    """Return a function that returns the sharding of a version of the table."""
    bucket_column, num_buckets = sharding["bucket_column"], sharding["num_buckets"]
    identity_column, unsharded = sharding["identity_column"], sharding["unsharded"]
    if (bucket_column is None) != (num_buckets is None):
        raise InvalidOptionError(
            "bucket_column and num_buckets must be given together: rows are dealt out to "
            "num_buckets shards by the hash of bucket_column"
        )
    if (bucket_column is not None) + (identity_column is not None) + bool(unsharded) > 1:
        raise InvalidOptionError(
            "at most one of bucket_column, identity_column and unsharded can be given"
        )
    if num_buckets is not None and not (
        type(num_buckets) is int and 1 <= num_buckets <= MAX_BUCKETS
    ):
        raise InvalidOptionError(
            f"num_buckets must be a whole number from 1 to {MAX_BUCKETS}, not {num_buckets!r}"
        )

    def make(table: OpenTable) -> tuple[ShardingSpec, ...]:
        if unsharded:
            part = ShardingField(_FIELD_ID, (), UNSHARDED)
        elif bucket_column is not None:
            field = _sharding_column(table, "bucket_column", bucket_column, can_bucket)
            parameters = {NUM_BUCKETS: str(num_buckets)}
            part = ShardingField(_FIELD_ID, (field.id,), BUCKET, parameters=parameters)
        elif identity_column is not None:
            field = _sharding_column(table, "identity_column", identity_column, can_identify)
            dtype = str(field.arrow_field.type)
            result_type = _RESULT_TYPES.get(dtype, dtype)
            part = ShardingField(_FIELD_ID, (field.id,), IDENTITY, result_type=result_type)
        else:
            return ()
        # Names of shards depend on the id. With the id 1, which pylance gives each spec, the shards
        # of a MemWAL that is disabled and initialized again would have the names of those before,
        # and a client that was stopped meanwhile could change or delete files of the new ones.
        return (ShardingSpec(1 + secrets.randbelow(_MAX_SPEC_ID), (part,)),)

    return make


def _sharding_column(
    table: OpenTable, argument: str, name: str, is_allowed: Callable[[Any], bool]
) -> Field:
    display, schema = table.store.display, table.schema
    path = schema.path(name)
    field = path[-1]
    if not is_allowed(field.arrow_field.type):
        raise InvalidInputError(
            f"{display}: column {name!r} has type {field.arrow_field.type}, which cannot be "
            f"{argument}"
        )
    _check_in_key(display, schema, argument, name, field)
    return field


def _check_in_key(display: str, schema: Schema, argument: str, name: str, field: Field) -> None:
    """Raise an error if two rows of one key could belong to different shards."""
    key = primary_key(schema)
    if key and field.id not in {path[-1].id for path in key}:
        keys = ", ".join(".".join(node.name for node in path) for path in key)
        raise InvalidInputError(
            f"{display}: {argument} must be a column of the primary key ({keys}), not {name!r}: "
            "another value would bring a key to another shard, and both rows would stay"
        )


# --------------------------------------------------------------------------------------------------
# Takes a MemWAL from a table.
#
# 1. The rows of its shards are brought into the base table.
# 2. The shards are sealed: no writer adds rows to them.
# 3. A commit removes the entry `__lance_mem_wal` from the index section.
# 4. The shards are listed again, and those that writers have made since step 2 are sealed.
# 5. The files below `_mem_wal/` are deleted.
#
# If a writer was faster than step 1, or claims a shard during step 2, the shards are opened again,
# and the MemWAL stays. The same happens if the commit is refused. If a shard has rows in step 4,
# another commit puts the entry back first.
#
# After an interruption, the function removes what is left.


def disable_mem_wal(table: OpenTable, options: CommitOptions, *, compact: bool = True) -> OpenTable:
    """Remove the MemWAL of a table, and its files; see `Dataset.disable_mem_wal`.

    - `compact`: Whether rows that are not in the base table are brought there, instead of refused.

    Raises CorruptFileError, CorruptTableError. Raises UnsupportedFeatureError: a shard has rows
    that are not in the base table. Its writers can go on. Raises CommitConflictError: another
    client claims a shard at the same time. Raises StorageError: the store fails. Call the function
    again, which removes what is left.
    """
    store = table.store
    newest = at_version(table, read_latest(store))
    details = details_of(newest.manifest)
    if details is None and not (list_shards(store) or _files(store)):
        raise InvalidInputError(
            f"{store.display}: the table has no MemWAL, and no files of one; nothing is left to do"
        )
    if details is not None:
        check_generations(store, read_shards(newest), details.compacted)
        if compact and any(shards_with_fresh_rows(store, details.compacted)):
            flush_logs(newest)
            compact_mem_wal(newest, options)
            newest = at_version(table, read_latest(store))
            details = details_of(newest.manifest) or details
        sealed: list[ShardManifest] = []
        try:
            _seal_shards(store, details, sealed)
            newest = change_schema(newest, _removal, options)
        except (CommitConflictError, UnsupportedFeatureError):
            _open_again(store, sealed)
            raise
        try:
            _seal_shards(store, details, sealed)
        except LanceError as error:
            _put_back(newest, details, options, error)
            _open_again(store, sealed)
            raise
    files = _files(store)
    # Before the logs: a reader takes a log as whole if its shard manifest still exists.
    store.delete([path for path in files if shard_manifest.is_in_manifest_folder(path)])
    delete_files(store, shard_manifest.FOLDER, files, (), manifests_first=False)
    if store.is_local:
        _remove_folders(store, shard_manifest.FOLDER)
    return newest


def _removal(current: OpenTable) -> CreateIndex:
    index = find_index(section_of(current.manifest))
    if index is None:
        raise InvalidInputError(
            f"{current.store.display}: another client has disabled the MemWAL at the same time; "
            "disable it again to remove the files that are left"
        )
    return CreateIndex((), (index,))


def _put_back(
    table: OpenTable, details: MemWalDetails, options: CommitOptions, cause: LanceError
) -> None:
    """Give the table its MemWAL again, for the rows of a late writer.

    Raises StorageError: it failed, so that no reader finds these rows.
    """

    def plan(current: OpenTable) -> CreateIndex:
        if find_index(section_of(current.manifest)) is not None:
            raise InvalidInputError("another client has initialized a MemWAL")
        return CreateIndex((new_index(details, current.version),))

    try:
        change_schema(table, plan, options)
    except LanceError as error:
        raise StorageError(
            f"{cause}; and the MemWAL, which is removed from the table, could not be put back "
            f"({error}): readers do not find what was put into new shards meanwhile, and the next "
            "call of disable_mem_wal deletes it; put these rows again"
        ) from error


def _remove_folders(store: ObjectStore, folder: str) -> None:
    """Remove empty folders, which an interrupted deletion has left without their files."""
    for name in store.list_folders(folder):
        _remove_folders(store, f"{folder}/{name}")
    store.remove_folder(folder)


def _files(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list_tree(shard_manifest.FOLDER)]


def _seal_shards(store: ObjectStore, details: MemWalDetails, sealed: list[ShardManifest]) -> None:
    """Seal all other shards, and add them to `sealed`; refuse one with rows that are not compacted.

    Raises CommitConflictError, UnsupportedFeatureError: Shards of `sealed` stay sealed.
    """
    known = {manifest.shard for manifest in sealed}
    for shard in list_shards(store):
        if shard in known:
            continue
        manifest = seal(store, shard)
        if manifest is None:
            continue
        sealed.append(manifest)
        if has_fresh_rows(store, manifest, details.compacted.get(shard, 0)):
            raise UnsupportedFeatureError(
                f"{store.display}: the MemWAL cannot be disabled: shard {shard} has rows that are "
                "not in the base table; stop its writers and compact it before "
                "(Dataset.compact_mem_wal, LanceTable.compact_mem_wal)"
            )


def _open_again(store: ObjectStore, sealed: Iterable[ShardManifest]) -> None:
    """Let shards take writers again. A shard that cannot be opened stays sealed."""
    for manifest in sealed:
        with suppress(CommitConflictError, StorageError):
            change_status(store, manifest, ShardStatus.ACTIVE)

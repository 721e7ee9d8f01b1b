"""Gives a table a MemWAL: the entry `__lance_mem_wal` in its index section.

Shards are made by their first writers. Files that an earlier MemWAL left below `_mem_wal/` must be
removed before: its shards would come back to life.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Any

from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
)
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.entries import log_schema
from lance_spark.mem_wal.key_bytes import check_key_type
from lance_spark.mem_wal.sharding import (
    BUCKET,
    IDENTITY,
    MAX_BUCKETS,
    NUM_BUCKETS,
    UNSHARDED,
    can_bucket,
    can_identify,
)
from lance_spark.mem_wal.writing.claims import check_store
from lance_spark.mem_wal.writing.options import WriterOptions
from lance_spark.mutations.commits import change_schema
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.mem_wal import names
from lance_spark.table.mem_wal.details import (
    MemWalDetails,
    ShardingField,
    ShardingSpec,
    find_index,
    new_index,
)
from lance_spark.table.mem_wal.shard_manifest import list_shards
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.metadata.create_index import CreateIndex
from lance_spark.table.primary_key import primary_key

#: Ids of sharding specs are positive numbers of 31 bits.
_MAX_SPEC_ID = 2**31 - 1
#: Name of the only sharding field. pylance gives it this name with any transform.
_FIELD_ID = "bucket"
_RESULT_TYPES = {"string": "utf8", "large_string": "large_utf8", "bool": "boolean"}


def initialize_mem_wal(
    table: OpenTable,
    options: CommitOptions,
    *,
    maintained_indexes: Collection[str] | None = None,
    bucket_column: str | None = None,
    num_buckets: int | None = None,
    identity_column: str | None = None,
    unsharded: bool = False,
    writer_options: Mapping[str, Any] | None = None,
) -> OpenTable:
    """Give a table a MemWAL; see `Dataset.initialize_mem_wal`."""
    spec_of = _spec_maker(bucket_column, num_buckets, identity_column, unsharded)
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
                f"{display}: the folder {names.FOLDER}/ has {len(shards)} shards of an earlier "
                "MemWAL, whose rows would appear in the table; remove them before "
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
            num_shards=num_buckets or int(unsharded),
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
    bucket_column: str | None, num_buckets: int | None, identity_column: str | None, unsharded: bool
) -> Callable[[OpenTable], tuple[ShardingSpec, ...]]:
    """Return a function that returns the sharding of a version of the table."""
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

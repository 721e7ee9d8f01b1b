"""The shards of a MemWAL as users see them, and how a user names one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.sharding import (
    BUCKET,
    IDENTITY,
    MAX_BUCKETS,
    UNSHARDED,
    FieldEntries,
    bucket_entries,
    entry_bytes,
    entry_value,
    num_buckets_of,
    shard_uuid,
)
from lance_spark.mem_wal.snapshot import read_state
from lance_spark.mem_wal.table.details import ShardingField, ShardingSpec, details_of
from lance_spark.mem_wal.table.shard_manifest import (
    ShardManifest,
    list_shards,
    read_latest_manifest,
)
from lance_spark.storage.parallel import read_all
from lance_spark.table.open import OpenTable


@dataclass(frozen=True)
class ShardDescription:
    """The state of a shard of a MemWAL.

    Attributes
    ----------
    shard_id : str
        UUID.
    values : mapping of str to value
        The values of the sharding fields that select the shard; empty if they are unknown.
    status : str
        ``active``, or ``sealed``: the shard takes no writers.
    writer_epoch : int
        How often the shard was claimed.
    current_generation : int
        The generation of the next SSTable.
    compacted_generation : int
        The newest generation whose rows are in the base table; 0 for none.
    num_sstables, sstable_rows : int
        SSTables whose rows are not in the base table, and their rows, with replaced rows and
        tombstones.
    num_log_entries, log_rows : int
        The same for entries of the log.
    """

    shard_id: str
    values: Mapping[str, Any]
    status: str
    writer_epoch: int
    current_generation: int
    compacted_generation: int
    num_sstables: int
    sstable_rows: int
    num_log_entries: int
    log_rows: int


def settings_of(table: OpenTable) -> dict[str, Any] | None:
    """Return the settings of the MemWAL; see `Dataset.mem_wal_index_details`."""
    details = details_of(table.manifest)
    if details is None:
        return None
    return {
        "num_shards": details.num_shards,
        "maintained_indexes": list(details.maintained_indexes),
        "maintain_all_indexes": details.maintain_all_indexes,
        "writer_config_defaults": dict(details.writer_defaults),
        "sharding_specs": [
            {
                "spec_id": spec.spec_id,
                "fields": [
                    {
                        "field_id": part.field_id,
                        "source_ids": list(part.source_ids),
                        "transform": part.transform,
                        "expression": part.expression,
                        "result_type": part.result_type,
                        "parameters": dict(part.parameters),
                    }
                    for part in spec.fields
                ],
            }
            for spec in details.sharding_specs
        ],
    }


def describe_shards(table: OpenTable) -> list[ShardDescription]:
    """Return the state of all shards of the newest version; see `Dataset.mem_wal_shards`."""
    state = read_state(table)
    if state.details is None:
        raise no_mem_wal(table)
    store = table.store
    read = partial(read_latest_manifest, store)
    manifests = {
        manifest.shard: manifest
        for manifest in read_all(read, list_shards(store), local=store.is_local)
        if manifest is not None
    }
    specs = {spec.spec_id: spec for spec in state.details.sharding_specs}
    fresh = {shard.shard: shard for shard in state.shards}
    result = []
    for shard, newest in manifests.items():
        rows = fresh.get(shard)
        manifest = newest if rows is None else rows.manifest
        sstables = () if rows is None else rows.sstables
        entries = () if rows is None else rows.entries
        result.append(
            ShardDescription(
                shard_id=str(shard),
                values=values_of(manifest, specs.get(manifest.spec_id), state.table.schema),
                status=manifest.status.name.lower(),
                writer_epoch=manifest.writer_epoch,
                current_generation=manifest.current_generation,
                compacted_generation=state.details.compacted.get(shard, 0),
                num_sstables=len(sstables),
                sstable_rows=sum(sstable.physical_rows or 0 for sstable in sstables),
                num_log_entries=len(entries),
                log_rows=sum(entry.rows.num_rows for entry in entries if entry.rows is not None),
            )
        )
    return result


def values_of(manifest: ShardManifest, spec: ShardingSpec | None, schema: Schema) -> dict[str, Any]:
    """Return the values that select a shard, by the name of the sharding field."""
    fields = {} if spec is None else {part.field_id: part for part in spec.fields}
    values = {
        name: entry_value(data, _type_of(fields[name], schema))
        for name, data in manifest.field_entries
        if name in fields
    }
    return {name: value for name, value in values.items() if value is not None}


def entries_of_values(
    spec: ShardingSpec, schema: Schema, values: Mapping[str, Any], table: str
) -> FieldEntries:
    """Return the entries of given values of the sharding fields.

    - `table`: Name of the table, for errors.

    Raises InvalidInputError: a value is missing, unknown, or not of the type of its field.
    """
    expected = [part.field_id for part in spec.fields]
    if set(values) != set(expected):
        raise InvalidInputError(
            f"{table}: shard_values must have the keys {', '.join(expected)}, not "
            f"{', '.join(map(str, values)) or 'none'}"
        )
    entries = []
    for part in spec.fields:
        value = values[part.field_id]
        dtype = _type_of(part, schema)
        try:
            scalar = pa.scalar(value, dtype)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            scalar = pa.scalar(None, dtype)
        count = num_buckets_of(part) if part.transform == BUCKET else 1
        in_range = part.transform == IDENTITY or (scalar.is_valid and 0 <= scalar.as_py() < count)
        if not scalar.is_valid or not in_range:
            limit = f"{dtype}" if part.transform == IDENTITY else f"number from 0 to {count - 1}"
            raise InvalidInputError(
                f"{table}: shard_values: {part.field_id!r} must be a {limit}, not {value!r}"
            )
        entries.append((part.field_id, entry_bytes(scalar)))
    return tuple(entries)


def entries_of_shard(spec: ShardingSpec, shard: uuid.UUID) -> FieldEntries:
    """Return the entries of a shard whose UUID this package has made; () for other shards.

    Shards of a sharding by value are not recognised.
    """
    if len(spec.fields) != 1 or spec.fields[0].transform not in (BUCKET, UNSHARDED):
        return ()
    part = spec.fields[0]
    count = num_buckets_of(part) if part.transform == BUCKET else 1
    # A larger number is not of a writer: its buckets are not all tried.
    for number in range(min(count, MAX_BUCKETS)):
        entries = bucket_entries(spec, number)
        if shard_uuid(spec, entries) == shard:
            return entries
    return ()


def no_mem_wal(table: OpenTable) -> InvalidInputError:
    """Return the error for a table without MemWAL."""
    return InvalidInputError(
        f"{table.store.display}: the table has no MemWAL; initialize it before "
        "(Dataset.initialize_mem_wal, LanceTable.initialize_mem_wal)"
    )


def _type_of(part: ShardingField, schema: Schema) -> pa.DataType:
    if part.transform != IDENTITY:
        return pa.int32()
    field = schema.field_by_id(part.source_ids[0]) if part.source_ids else None
    if field is None:
        raise InvalidInputError(
            f"sharding field {part.field_id!r}: the table has no field of its ids "
            f"{list(part.source_ids)}"
        )
    return field.arrow_field.type

"""Opens writers of shards, and splits rows by shard, as users name them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.mem_wal.entries import read_tail
from lance_spark.mem_wal.sharding import (
    UNSHARDED,
    FieldEntries,
    bucket_entries,
    shard_uuid,
    split_by_shard,
)
from lance_spark.mem_wal.shards import entries_of_shard, entries_of_values, no_mem_wal
from lance_spark.mem_wal.table.details import MemWalDetails, ShardingSpec, details_of
from lance_spark.mem_wal.table.shard_manifest import ShardStatus, list_shards, read_latest_manifest
from lance_spark.mem_wal.writer import ShardWriter, as_table
from lance_spark.mem_wal.writer_options import WriterOptions
from lance_spark.mutations.commits import at_version, check_writable
from lance_spark.table.constraints import check_no_conditions
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.primary_key import primary_key


class ShardId(str):
    """The UUID of a shard, with the values of its sharding fields.

    - `entries`: tuple of (str, bytes)
    """

    __slots__ = ("entries",)

    entries: FieldEntries


def open_writer(
    table: OpenTable,
    shard_id: str | None,
    shard_values: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> ShardWriter:
    """Open a writer on the newest version of a branch; see `Dataset.mem_wal_writer`."""
    newest = at_version(table, read_latest(table.store))
    check_writable(newest)
    details = details_of(newest.manifest)
    if details is None:
        raise no_mem_wal(newest)
    chosen = WriterOptions.from_text(details.writer_defaults).changed(options)
    display = newest.store.display
    spec = details.sharding_specs[0] if len(details.sharding_specs) == 1 else None
    shard = None if shard_id is None else _parsed(shard_id, display)
    if shard_values is not None:
        spec = spec_of(newest, details)
        entries = entries_of_values(spec, newest.schema, shard_values, display)
        if shard is None:
            shard = shard_uuid(spec, entries)
    elif shard is not None:
        entries = () if spec is None else _entries_of(shard_id, shard, spec)
    elif spec is not None and [part.transform for part in spec.fields] == [UNSHARDED]:
        entries = bucket_entries(spec, 0)
        shard = shard_uuid(spec, entries)
    else:
        raise InvalidInputError(
            f"{display}: shard_id or shard_values must say which shard to write to: the table has "
            "more than one"
        )
    # Another client may have made the MemWAL.
    check_no_conditions(newest.manifest.message.config, display)
    return ShardWriter(newest, details, shard, chosen, spec, entries)


def split_rows(table: OpenTable, data: Any, schema: pa.Schema | None) -> dict[str, pa.Table]:
    """Split rows by the shard that they belong to; see `Dataset.split_by_shard`."""
    details = details_of(table.manifest)
    if details is None:
        raise no_mem_wal(table)
    spec = spec_of(table, details)
    parts = split_by_shard(spec, table.schema, as_table(data, schema))
    rows: dict[str, pa.Table] = {}
    for part in parts:
        shard_id = ShardId(part.shard)
        shard_id.entries = part.entries
        rows[shard_id] = part.rows
    return rows


def spec_of(table: OpenTable, details: MemWalDetails) -> ShardingSpec:
    """Return the sharding spec by which rows can be dealt out to shards.

    Raises InvalidInputError: the writers choose the shards; or two rows of one key could belong to
    different shards.
    """
    display = table.store.display
    if len(details.sharding_specs) != 1:
        raise InvalidInputError(
            f"{display}: the MemWAL has {len(details.sharding_specs)} sharding specs, but one is "
            "needed to find the shard of a row; give a shard_id, or initialize the MemWAL with "
            "bucket_column, identity_column or unsharded"
        )
    spec = details.sharding_specs[0]
    key = {path[-1].id for path in primary_key(table.schema)}
    sources = {number for part in spec.fields for number in part.source_ids}
    if key and not sources <= key:
        raise InvalidInputError(
            f"{display}: the MemWAL deals rows out by columns that are not in the primary key "
            f"(fields {sorted(sources - key)}): another value would bring a key to another shard, "
            "and both rows would stay; disable the MemWAL and initialize it with a column of the "
            "key"
        )
    return spec


def _entries_of(shard_id: str | None, shard: uuid.UUID, spec: ShardingSpec) -> FieldEntries:
    """Return the values of a shard that `split_rows` returned, or a bucket; () if unknown."""
    if isinstance(shard_id, ShardId) and shard_uuid(spec, shard_id.entries) == shard:
        return shard_id.entries
    return entries_of_shard(spec, shard)


def _parsed(shard_id: str, display: str) -> uuid.UUID:
    try:
        return uuid.UUID(shard_id)
    except ValueError:
        raise InvalidInputError(f"{display}: shard_id must be a UUID, not {shard_id!r}") from None


# --------------------------------------------------------------------------------------------------
# Writes the rows that only the logs of shards have to SSTables, so that they can be compacted.


def flush_logs(table: OpenTable) -> int:
    """Flush the logs of all shards; return the number of shards with rows there.

    The writers of these shards end: they must be opened again.

    - `table`: The newest version. Without MemWAL nothing is done.

    Raises CorruptFileError, StorageError. Raises CommitConflictError: another client claims a shard
    at the same time.
    """
    details = details_of(table.manifest)
    if details is None:
        return 0
    flushed = 0
    for shard in list_shards(table.store):
        manifest = read_latest_manifest(table.store, shard)
        if manifest is None or manifest.status is ShardStatus.SEALED:
            continue
        tail = read_tail(table.store, shard, manifest.replay_after)
        if any(not entry.is_sentinel for entry in tail):
            ShardWriter(table, details, shard, WriterOptions()).close()
            flushed += 1
    return flushed

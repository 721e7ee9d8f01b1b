"""Whether rows belong to the shard that they are put into."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.sharding import entry_bytes, evaluate_sharding_spec
from lance_spark.table.mem_wal.details import ShardingSpec


def check_shard(
    schema: Schema,
    shard: uuid.UUID,
    spec: ShardingSpec | None,
    entries: Mapping[str, bytes],
    data: pa.Table,
) -> None:
    """Refuse rows that belong to another shard, as far as the values of this one are known.

    - `schema`: Of the table.
    - `entries`: The values of the sharding fields that select the shard; empty if they are unknown.

    Raises InvalidInputError.
    """
    if spec is None or not entries or not data.num_rows:
        return
    sources = {number for part in spec.fields for number in part.source_ids}
    # Top-level columns that say which shard a row belongs to.
    columns = {
        top.name for top in schema.fields if sources.intersection(node.id for node in top.walk())
    }
    if not columns or not columns.issubset(data.schema.names):
        # One shard, or keys to delete without the column that shards are chosen by.
        return
    values = evaluate_sharding_spec(data, spec, schema)
    for part, column in zip(spec.fields, values.columns, strict=True):
        for value in column.unique():
            own = entries.get(part.field_id)
            if own is not None and (not value.is_valid or entry_bytes(value) != own):
                raise InvalidInputError(
                    f"rows with the value {value} of sharding field {part.field_id!r} do not "
                    f"belong to shard {shard}; split the rows by shard (Dataset.split_by_shard)"
                )

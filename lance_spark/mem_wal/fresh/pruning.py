"""The keys that conditions select, and the shards that can have rows with them.

A shard manifest names a sharding of the table and the values of its fields. The shard is left out
if no value of a column that the conditions select has this value of the sharding field. All rows of
a key are in one shard. So a shard without a selected key hides no selected row either, if the
sharding depends on columns of the key only, or if the table has no key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.encoding.row_ranges import NO_ROWS, RowRanges
from lance_spark.errors import LanceError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.fresh.key_sets import KeyPaths
from lance_spark.mem_wal.sharding import (
    BUCKET,
    IDENTITY,
    can_bucket,
    can_identify,
    entry_value,
    sharding_values,
)
from lance_spark.mem_wal.snapshot import FreshState
from lance_spark.scan.predicates.conditions import Condition, candidates_of_all
from lance_spark.table.mem_wal.details import ShardingField, ShardingSpec
from lance_spark.table.mem_wal.shard_manifest import ShardManifest

#: More keys than this are not looked up in Bloom filters and shards.
_MOST_KEYS = 10_000


class _Selected(NamedTuple):
    """The values of a sharding field that conditions select."""

    name: str
    dtype: pa.DataType
    values: frozenset[Any]


def selected_shards(
    state: FreshState, key: KeyPaths, conditions: tuple[Condition, ...]
) -> tuple[ShardManifest, ...]:
    """Return the shards that can have rows, or hide rows, for which conditions can hold.

    - `key`: The columns of the key; empty without one.
    """
    if state.details is None or not conditions:
        return state.manifests
    schema = state.table.schema
    key_ids = {path[-1].id for path in key}
    selected = {
        spec.spec_id: _selected_by(spec, schema, key_ids, conditions)
        for spec in state.details.sharding_specs
    }
    return tuple(
        manifest
        for manifest in state.manifests
        if _can_have(manifest, selected.get(manifest.spec_id, ()))
    )


def selected_keys(paths: KeyPaths, conditions: tuple[Condition, ...]) -> list[pa.Array] | None:
    """Return all keys of rows that can meet conditions; None if they are unknown or many.

    - `paths`: The columns of the key.

    Returns the columns of the key.
    """
    if not paths or not conditions:
        return None
    columns = []
    for path in paths:
        values = _selected_values(path[-1], conditions)
        if values is None:
            return None
        columns.append(values)
    count = math.prod(map(len, columns))
    if count > _MOST_KEYS:
        return None
    # Each value of a column together with each of the others.
    numbers = np.indices([len(values) for values in columns]).reshape(len(columns), count)
    return [values.take(pa.array(number)) for values, number in zip(columns, numbers, strict=True)]


def _selected_by(
    spec: ShardingSpec, schema: Schema, key_ids: set[int], conditions: tuple[Condition, ...]
) -> list[_Selected]:
    """Return the values of the sharding fields for which they are known."""
    names = [part.field_id for part in spec.fields]
    selected = []
    for part in spec.fields:
        field = schema.field_by_id(part.source_ids[0]) if part.source_ids else None
        is_unique = names.count(part.field_id) == 1
        if field is None or not is_unique or (key_ids and field.id not in key_ids):
            continue
        dtype = field.arrow_field.type
        test = {BUCKET: can_bucket, IDENTITY: can_identify}.get(part.transform or "")
        values = _selected_values(field, conditions) if test is not None and test(dtype) else None
        if values is None or len(values) > _MOST_KEYS:
            continue
        sharding_keys = _of_field(part, values)
        if sharding_keys is not None:
            selected.append(
                _Selected(part.field_id, sharding_keys.type, frozenset(sharding_keys.to_pylist()))
            )
    return selected


def _of_field(part: ShardingField, values: pa.Array) -> pa.Array | None:
    """Return the values of a sharding field for values of its column."""
    try:
        return pc.unique(sharding_values(part, values))
    except LanceError:
        # The number of buckets is missing.
        return None


def _can_have(manifest: ShardManifest, selected: Sequence[_Selected]) -> bool:
    entries = dict(manifest.field_entries)
    if len(entries) < len(manifest.field_entries):
        return True
    for name, dtype, values in selected:
        value = entry_value(entries[name], dtype) if name in entries else None
        if value is not None and value not in values:
            return False
    return True


def _selected_values(field: Field, conditions: tuple[Condition, ...]) -> pa.Array | None:
    """Return the values of a column for which conditions can hold; None if they are unknown."""
    dtype = field.arrow_field.type
    selected: list[Any] = []

    def ask(condition_field: Field, op: str, value: Any) -> RowRanges | None:
        if condition_field.id != field.id or op not in ("==", "in"):
            return None
        selected.append(value)
        return NO_ROWS

    # If no row has one of the values, and thus no row can meet the conditions, then all rows that
    # can meet them have one of the values.
    rows = candidates_of_all(conditions, ask)
    if rows is None or rows.num_rows:
        return None
    try:
        arrays = [
            value if isinstance(value, pa.Array) else pa.array([value.as_py()], value.type)
            for value in selected
        ]
        return pa.concat_arrays([pa.array([], dtype), *(array.cast(dtype) for array in arrays)])
    except (pa.ArrowException, AttributeError):
        return None

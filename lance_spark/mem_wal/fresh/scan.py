"""Scans of a base table with the rows that its MemWAL has and the table does not have yet.

| rows of | are left out if their key is in |
| --- | --- |
| the base table | any SSTable or log |
| an SSTable | a newer SSTable or the log of its shard; tombstones |
| the log of a shard | a later row of the log; tombstones |

Filters are evaluated on the rows that are left, because a row that does not meet a filter hides
older rows all the same. A shard has no order to other shards: a key must determine its shard. In a
table without a primary key, no row is hidden.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.encoding.rows import NO_ROWS, RowRanges
from lance_spark.errors import LanceError, MissingFileError
from lance_spark.file.json_columns import read_json
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal import keys as bloom_filter
from lance_spark.mem_wal.entries import TOMBSTONE, LogRows
from lance_spark.mem_wal.fresh.key_sets import KeyPaths, KeySet, LogKeys, SsTableKeys, keys_of
from lance_spark.mem_wal.key_index import SortedKeys
from lance_spark.mem_wal.sharding import (
    BUCKET,
    IDENTITY,
    can_bucket,
    can_identify,
    entry_value,
    sharding_values,
)
from lance_spark.mem_wal.snapshot import FreshState, ShardState
from lance_spark.mem_wal.sstable import open_sstable
from lance_spark.mem_wal.table.details import ShardingField, ShardingSpec
from lance_spark.mem_wal.table.shard_manifest import ShardManifest, SsTable
from lance_spark.predicates.comparison import values_at
from lance_spark.predicates.conditions import (
    ColumnBound,
    Condition,
    RangePruner,
    candidates_of_all,
    matching,
)
from lance_spark.scan.fragment.column_reader import rows_without_columns
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.task import READ_AHEAD, BatchesReader, FragmentSlice, ScanTask
from lance_spark.storage.parallel import read_all
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import LAST_LEGACY, TablePaths
from lance_spark.table.primary_key import primary_key

# --------------------------------------------------------------------------------------------------
# Tasks of fresh reads, and the condition that leaves hidden rows out.

#: Id that `_tombstone` has in scans. Its id in an SSTable can belong to a column of the base table.
TOMBSTONE_ID = 2**31 - 2
TOMBSTONE_FIELD = Field(TOMBSTONE, TOMBSTONE_ID, "bool")


@dataclass(frozen=True, slots=True)
class Unshadowed:
    """The condition that a row is not hidden, and then meets other conditions.

    - `keys`: Rows with these keys are hidden.
    - `tombstone`: The column `_tombstone`, if rows have it.
    - `conditions`: Evaluated on the other rows only.
    """

    keys: KeySet | None
    tombstone: Field | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The columns that it reads."""
        paths: list[tuple[Field, ...]] = []
        if self.tombstone is not None:
            paths.append((self.tombstone,))
        if self.keys is not None:
            paths += self.keys.paths
        paths += (path for condition in self.conditions for path in condition.paths)
        return tuple(paths)

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null."""
        visible = np.ones(batch.num_rows, np.bool_)
        if self.tombstone is not None:
            flags = values_at(batch, (self.tombstone,)).fill_null(False)
            visible &= ~flags.to_numpy(zero_copy_only=False)
        if self.keys is not None and visible.any():
            visible &= ~self.keys.has(batch)
        if self.conditions and visible.any():
            if visible.all():
                visible = matching(self.conditions, batch)
            else:
                visible[visible] = matching(self.conditions, batch.filter(pa.array(visible)))
        return pa.array(visible)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        """Return the rows for which it can hold by statistics; None if they do not decide."""
        return candidates_of_all(self.conditions, statistics)

    @property
    def is_decided(self) -> bool:
        """False: other rows may be among the candidates."""
        return False

    @property
    def can_fail(self) -> bool:
        """Whether one of its conditions may raise an error for a row."""
        return any(condition.can_fail for condition in self.conditions)

    def conjuncts(self) -> Iterator[Condition]:
        """Yield the condition itself."""
        yield self

    def column_bound(self) -> ColumnBound | None:
        """Return None: it is not a comparison."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SsTableTask(ScanTask):
    """A task that reads an SSTable.

    - `tombstone`: The column `_tombstone` of its files.
    """

    generation: int
    tombstone: Field = TOMBSTONE_FIELD

    def _batches(
        self,
        paths: TablePaths,
        open_files: OpenFiles | None = None,
        metrics: ScanMetrics | None = None,
        *,
        prefetch: bool = READ_AHEAD,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; `paths` are those of the base table, whose files are others."""
        paths = TablePaths.open(self.uri, self.storage_options)
        # `super()` does not work in a dataclass with slots.
        return ScanTask._batches(self, paths, None, metrics, prefetch=prefetch)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTask(ScanTask):
    """A task that reads rows of the log of a shard.

    - `generation`: The generation that the rows will be flushed as.
    - `paths`: The columns of the key; empty without a primary key.
    """

    generation: int
    log: LogRows
    paths: KeyPaths

    @property
    def num_rows(self) -> int:
        """Rows of the log, with those that later rows hide."""
        return self.log.num_rows

    def _parts(
        self, paths: TablePaths, open_files: OpenFiles | None, *, prefetch: bool, at_once: bool
    ) -> Iterator[BatchesReader]:
        """Yield the function that reads the rows."""
        yield lambda _, metrics: self._rows(paths, metrics)

    def _rows(
        self, paths: TablePaths, metrics: ScanMetrics
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows."""
        columns = self.lance_schema.fields
        filter_fields = Schema.of_paths(
            path for part in self.filters for path in part.paths if path[0] != TOMBSTONE_FIELD
        ).fields
        key_fields = Schema.of_paths(self.paths).fields
        fields = [*columns, *filter_fields, *key_fields]
        (rows,) = self.log.read(fields).combine_chunks().to_batches() or (None,)
        if rows is None:
            return
        count = rows.num_rows
        if self.paths:
            keys = keys_of(_part(rows, len(fields) - len(key_fields), key_fields), self.paths)
            superseded = SortedKeys.of([keys]).superseded()
            is_last = np.ones(count, np.bool_)
            is_last[superseded] = False
            rows = rows.filter(pa.array(is_last))
        if self.filters:
            batch = _part(rows, len(columns), filter_fields)
            batch = batch.append_column(TOMBSTONE, rows.column(rows.num_columns - 1))
            rows = rows.filter(pa.array(matching(self.filters, batch)))
        metrics.rows_filtered += count - rows.num_rows
        if not columns:
            yield rows_without_columns(rows.num_rows)
            return
        name = paths.store.display
        arrays = [
            read_json(array, column, name)
            for column, array in zip(columns, rows.columns, strict=False)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedTask(ScanTask):
    """A task that reads the rows of several tasks, one after the other.

    - `tasks`: With the same columns and conditions.
    """

    tasks: tuple[ScanTask, ...]

    @classmethod
    def of(cls, tasks: Sequence[ScanTask]) -> JoinedTask:
        """Join tasks."""
        first = tasks[0]
        return cls(
            uri=first.uri,
            lance_schema=first.lance_schema,
            slices=(),
            batch_size=first.batch_size,
            filters=first.filters,
            storage_options=first.storage_options,
            tasks=tuple(tasks),
        )

    @property
    def num_rows(self) -> int:
        """Physical rows of all tasks."""
        return sum(task.num_rows for task in self.tasks)

    def batches(
        self,
        metrics: ScanMetrics | None = None,
        *,
        prefetch: bool = READ_AHEAD,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `ScanTask.batches`."""
        for task in self.tasks:
            # Overlays replace values of plain arrays, so these tasks keep no dictionaries.
            has_overlays = any(piece.fragment.has_overlays for piece in task.slices)
            part = task if has_overlays else replace(task, lance_schema=self.lance_schema)
            yield from part.batches(metrics, prefetch=prefetch)


def count_sources(tasks: Sequence[ScanTask]) -> tuple[int, int]:
    """Return how many SSTables and WAL entries tasks read."""
    sstables = entries = 0
    for task in tasks:
        parts = task.tasks if isinstance(task, JoinedTask) else getattr(task, "fresh", ())
        if parts:
            numbers = count_sources(parts)
            sstables, entries = sstables + numbers[0], entries + numbers[1]
        elif isinstance(task, LogTask):
            entries += len(task.log.positions)
        else:
            sstables += isinstance(task, SsTableTask)
    return sstables, entries


def _part(rows: pa.RecordBatch, first: int, fields: Sequence[Field]) -> pa.RecordBatch:
    """Return some columns of rows, by the names of their fields."""
    arrays = rows.columns[first : first + len(fields)]
    if not arrays:
        return rows_without_columns(rows.num_rows)
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


# --------------------------------------------------------------------------------------------------
# The keys that conditions select, and the shards that can have rows with them.
#
# A shard manifest names a sharding of the table and the values of its fields. The shard is left out
# if no value of a column that the conditions select has this value of the sharding field. All rows
# of a key are in one shard. So a shard without a selected key hides no selected row either, if the
# sharding depends on columns of the key only, or if the table has no key.

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


# --------------------------------------------------------------------------------------------------
# Scans of a base table with the rows that its MemWAL has and the table does not have yet.


@dataclass(frozen=True, slots=True)
class _ShardRows:
    """The open SSTables and the log of a shard, and the keys of each."""

    state: ShardState
    sstables: tuple[SsTableTask, ...]
    log: LogRows | None
    keys: tuple[SsTableKeys | LogKeys, ...] = field(default=())

    def having(self, keys: Sequence[pa.Array], filters: _Filters) -> _ShardRows:
        """Return the sources that may have some keys."""
        tasks = [filters.may_have(task, keys) for task in self.sstables]
        kept = [source for source, keep in zip(self.keys, tasks, strict=False) if keep]
        log = self.log
        if log is not None:
            log_keys = self.keys[-1]
            if KeySet((log_keys,), log_keys.paths).has_any(keys):
                kept.append(log_keys)
            else:
                log = None
        sstables = tuple(task for task, keep in zip(self.sstables, tasks, strict=True) if keep)
        return _ShardRows(self.state, sstables, log, tuple(kept))


class _Filters:
    """The Bloom filters of SSTables that were read."""

    def __init__(self) -> None:
        self._data: dict[str, tuple[bytes, str] | None] = {}

    def may_have(self, task: SsTableTask, keys: Sequence[pa.Array]) -> bool:
        """Return whether an SSTable may have one of some keys."""
        if task.uri not in self._data:
            store = TablePaths.open(task.uri, task.storage_options).store
            try:
                data = store.read_bytes(bloom_filter.FILE, bloom_filter.MAX_FILTER_BYTES)
                self._data[task.uri] = data, store.name(bloom_filter.FILE)
            except MissingFileError:
                self._data[task.uri] = None
        known = self._data[task.uri]
        return known is None or bool(bloom_filter.may_have(known[0], keys, known[1]).any())


class FreshScan:
    """Plans scans of a state. The sources of a shard are opened when they are needed first.

    - `paths`: The columns of the key; by default those of the primary key.
    - `paths`: The columns of the key.
    """

    def __init__(self, state: FreshState, paths: KeyPaths | None = None) -> None:
        self.state = state
        of_table: KeyPaths = tuple(primary_key(state.table.schema))
        self.paths = of_table if paths is None else paths
        self._has_filters = self.paths == of_table
        self._opened: dict[uuid.UUID, _ShardRows] = {}
        self._filters = _Filters()

    @property
    def sources(self) -> FreshSources:
        """The sources of all shards. Raises CorruptFileError, CorruptTableError, StorageError."""
        return self._open(self.state.manifests)

    def sources_of(self, conditions: tuple[Condition, ...]) -> FreshSources:
        """Return the sources that may have keys for which conditions can hold.

        The others neither have rows that meet the conditions, nor hide such rows. The Bloom filters
        of SSTables are read if the conditions select keys by `=` or `IN`. Raises CorruptFileError,
        CorruptTableError, StorageError.
        """
        sources = self._open(selected_shards(self.state, self.paths, conditions))
        # The filters are those of the primary key.
        keys = selected_keys(self.paths, conditions) if self._has_filters else None
        return sources if keys is None else sources.having(keys, self._filters)

    def _open(self, manifests: Sequence[ShardManifest]) -> FreshSources:
        table = self.state.table
        unopened = [part for part in manifests if part.shard not in self._opened]
        states = self.state.read_shards(unopened)
        sstables = [(state.shard, sstable) for state in states for sstable in state.sstables]
        tasks = iter(read_all(self._sstable_task, sstables, local=table.store.is_local))
        for state in states:
            own = tuple(islice(tasks, len(state.sstables)))
            self._opened[state.shard] = self._shard_rows(state, own)
        shards = (self._opened[manifest.shard] for manifest in manifests)
        return FreshSources(
            table, self.paths, tuple(part for part in shards if part.state.has_rows)
        )

    def _sstable_task(self, place: tuple[uuid.UUID, SsTable]) -> SsTableTask:
        """Open an SSTable, and return the task that reads all live rows without columns."""
        shard, sstable = place
        table = self.state.table
        opened = open_sstable(table, shard, sstable.folder)
        fragments, tombstone = _fragments(opened)
        slices = [FragmentSlice(part, 0, part.physical_rows) for part in fragments]
        return SsTableTask(
            uri=opened.store.uri,
            lance_schema=Schema(()),
            slices=tuple(slices),
            batch_size=1 << 16,
            storage_options=dict(table.store.options),
            generation=sstable.generation,
            tombstone=tombstone,
        )

    def _shard_rows(self, state: ShardState, tasks: tuple[SsTableTask, ...]) -> _ShardRows:
        log = None
        if state.entries:
            log = LogRows.of(self.state.table.store, state.shard, state.entries)
        keys: list[SsTableKeys | LogKeys] = []
        if self.paths:
            keys += (SsTableKeys(task, self.paths, self._has_filters) for task in tasks)
            if log is not None:
                keys.append(LogKeys.of(log, self.paths, self.state.table.manifest.timestamp_ns))
        return _ShardRows(state, tasks, log, tuple(keys))


@dataclass(frozen=True, slots=True)
class FreshSources:
    """SSTables and logs that a scan reads.

    - `table`: The version of the base table.
    - `paths`: The columns of the key.
    - `shards`: With rows that the base table does not have.
    """

    table: OpenTable
    paths: KeyPaths
    shards: tuple[_ShardRows, ...]

    @property
    def num_sstables(self) -> int:
        """Number of SSTables."""
        return sum(len(shard.sstables) for shard in self.shards)

    @property
    def num_entries(self) -> int:
        """Number of WAL entries."""
        return sum(len(shard.state.entries) for shard in self.shards)

    @property
    def max_rows(self) -> int:
        """The maximum number of rows of SSTables and logs."""
        return sum(
            sum(task.num_rows for task in shard.sstables)
            + (0 if shard.log is None else shard.log.num_rows)
            for shard in self.shards
        )

    def having(self, keys: Sequence[pa.Array], filters: _Filters) -> FreshSources:
        """Return the sources that may have some keys.

        - `keys`: The columns of the key, in its order.
        """
        return replace(self, shards=tuple(shard.having(keys, filters) for shard in self.shards))

    def base_tasks(
        self, tasks: Sequence[ScanTask], conditions: tuple[Condition, ...]
    ) -> list[ScanTask]:
        """Return tasks of the base table without hidden rows.

        - `tasks`: Planned with the conditions.
        """
        unshadowed = self.unshadowed(conditions)
        if unshadowed == conditions:
            return list(tasks)
        return [replace(task, filters=unshadowed) for task in tasks]

    def unshadowed(self, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
        """Return conditions which rows of the base table that are not hidden have to meet, too."""
        keys = self.keys
        return conditions if keys is None else (Unshadowed(keys, conditions=conditions),)

    @property
    def keys(self) -> KeySet | None:
        """The keys of rows of the base table that are hidden; None if no row is."""
        sources = tuple(keys for shard in self.shards for keys in shard.keys)
        return KeySet(sources, self.paths) if sources else None

    def fresh_tasks(
        self, schema: Schema, conditions: tuple[Condition, ...], batch_size: int
    ) -> list[SsTableTask | LogTask]:
        """Return a task for each SSTable and each log.

        - `schema`: Columns of the base table.
        """
        tasks: list[SsTableTask | LogTask] = []
        for shard in self.shards:
            for number, sstable in enumerate(shard.sstables):
                newer = shard.keys[number + 1 :]
                keys = KeySet(newer, self.paths) if newer else None
                unshadowed = Unshadowed(keys, sstable.tombstone, conditions)
                tasks.append(
                    replace(
                        sstable,
                        lance_schema=schema,
                        filters=(unshadowed,),
                        batch_size=batch_size,
                    )
                )
            if shard.log is not None:
                unshadowed = Unshadowed(None, TOMBSTONE_FIELD, conditions)
                tasks.append(self._log_task(shard, shard.log, schema, unshadowed, batch_size))
        return tasks

    def _log_task(
        self,
        shard: _ShardRows,
        log: LogRows,
        schema: Schema,
        unshadowed: Unshadowed,
        batch_size: int,
    ) -> LogTask:
        store = self.table.store
        last = shard.state.entries[-1].generation
        return LogTask(
            uri=store.uri,
            lance_schema=schema,
            slices=(),
            batch_size=batch_size,
            filters=(unshadowed,),
            storage_options=dict(store.options),
            generation=shard.state.manifest.current_generation if last is None else last,
            log=log,
            paths=self.paths,
        )


def _fragments(table: OpenTable) -> tuple[Sequence[Fragment], Field]:
    """Return the fragments of an SSTable for scans, and the column `_tombstone` in them."""
    from lance_spark.table.fragments.row_counts import counted_fragments

    fragments = counted_fragments(table.paths, table.manifest)
    tombstone = next((top for top in table.schema.fields if top.name == TOMBSTONE), None)
    if tombstone is None:
        return fragments, TOMBSTONE_FIELD
    if table.manifest.data_storage_version <= LAST_LEGACY:
        # pylance writes such files if the base table has them. They find columns by their ids. No
        # column of the base table has this id: no client adds columns without values there.
        return fragments, replace(TOMBSTONE_FIELD, id=tombstone.id)
    renumbered = []
    for fragment in fragments:
        proto = fragment.to_proto()
        for file in proto.files:
            file.fields[:] = [
                TOMBSTONE_FIELD.id if number == tombstone.id else number for number in file.fields
            ]
        renumbered.append(Fragment.from_proto(proto, fragment.source))
    return renumbered, TOMBSTONE_FIELD

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

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import pyarrow as pa

from lance_spark.errors import MissingFileError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal import bloom_filter
from lance_spark.mem_wal.entries import TOMBSTONE
from lance_spark.mem_wal.fresh.key_sets import (
    KeyPaths,
    KeySet,
    LogKeys,
    SsTableKeys,
)
from lance_spark.mem_wal.fresh.pruning import selected_keys, selected_shards
from lance_spark.mem_wal.fresh.tasks import (
    TOMBSTONE_FIELD,
    LogTask,
    SsTableTask,
    Unshadowed,
)
from lance_spark.mem_wal.log_rows import LogRows
from lance_spark.mem_wal.snapshot import FreshState, ShardState
from lance_spark.mem_wal.sstable import open_sstable
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.storage.parallel import read_all
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.mem_wal.shard_manifest import ShardManifest, SsTable
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import LAST_LEGACY, TablePaths
from lance_spark.table.primary_key import primary_key


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

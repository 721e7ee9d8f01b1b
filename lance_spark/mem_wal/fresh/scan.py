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

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lance_spark.errors import MissingFileError
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal import bloom_filter
from lance_spark.mem_wal.entries import TOMBSTONE
from lance_spark.mem_wal.fresh.key_sets import (
    KeyPaths,
    KeySet,
    LogKeys,
    SsTableKeys,
    selected_keys,
)
from lance_spark.mem_wal.fresh.tasks import TOMBSTONE_ID, LogTask, SsTableTask, Unshadowed
from lance_spark.mem_wal.log_rows import LogRows
from lance_spark.mem_wal.snapshot import FreshState, ShardState
from lance_spark.mem_wal.sstable import open_sstable
from lance_spark.scan.predicates.conditions import (
    Condition,
)
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import TablePaths
from lance_spark.table.primary_key import primary_key


@dataclass(frozen=True, slots=True)
class _SsTableRows:
    """An open SSTable."""

    generation: int
    table: OpenTable
    fragments: tuple[Fragment, ...]

    def task(self, storage_options: Mapping[str, Any]) -> SsTableTask:
        """Return the task that reads all live rows without columns."""
        return SsTableTask(
            uri=self.table.store.uri,
            lance_schema=Schema(()),
            slices=tuple(FragmentSlice(part, 0, part.physical_rows) for part in self.fragments),
            batch_size=1 << 16,
            storage_options=dict(storage_options),
            generation=self.generation,
        )


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
    """Plans scans of a state.

    Parameters
    ----------
    state : FreshState
    paths : tuple of tuple of Field, optional
        The columns of the key; by default those of the primary key.

    Attributes
    ----------
    paths : tuple of tuple of Field
        The columns of the key.
    num_entries : int
    num_sstables : int
    """

    def __init__(self, state: FreshState, paths: KeyPaths | None = None) -> None:
        self.state = state
        self.paths: KeyPaths = tuple(primary_key(state.table.schema)) if paths is None else paths
        self._shards = [self._opened(shard) for shard in state.shards]
        self._filters = _Filters()
        self.num_sstables = sum(len(shard.sstables) for shard in state.shards)
        self.num_entries = sum(len(shard.entries) for shard in state.shards)

    @property
    def max_rows(self) -> int:
        """The maximum number of rows of SSTables and logs."""
        return sum(
            sum(task.num_rows for task in shard.sstables)
            + (0 if shard.log is None else shard.log.num_rows)
            for shard in self._shards
        )

    def sources_of(self, conditions: tuple[Condition, ...]) -> FreshScan:
        """Return the scan of the sources that may have keys for which conditions can hold.

        The others neither have rows that meet the conditions, nor hide such rows. The Bloom filters
        of SSTables are read if the conditions select keys by `=` or `IN`.

        Raises
        ------
        CorruptFileError, StorageError
        """
        # The filters are those of the primary key.
        has_filters = bool(self._shards) and self.paths == tuple(
            primary_key(self.state.table.schema)
        )
        keys = selected_keys(self.paths, conditions) if has_filters else None
        return self if keys is None else self.having(keys)

    def having(self, keys: Sequence[pa.Array]) -> FreshScan:
        """Return the scan of the sources that may have some keys.

        Parameters
        ----------
        keys : sequence of pyarrow.Array
            The columns of the key, in its order.
        """
        scan = copy(self)
        scan._shards = [shard.having(keys, self._filters) for shard in self._shards]
        return scan

    def base_tasks(
        self, tasks: Sequence[ScanTask], conditions: tuple[Condition, ...]
    ) -> list[ScanTask]:
        """Return tasks of the base table without hidden rows.

        Parameters
        ----------
        tasks : sequence of ScanTask
            Planned with the conditions.
        """
        unshadowed = self.unshadowed(conditions)
        if unshadowed == conditions:
            return list(tasks)
        return [replace(task, filters=unshadowed) for task in tasks]

    def unshadowed(self, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
        """Return conditions which rows of the base table that are not hidden have to meet, too."""
        sources = tuple(keys for shard in self._shards for keys in shard.keys)
        if not sources:
            return conditions
        return (Unshadowed(KeySet(sources, self.paths), conditions=conditions),)

    def fresh_tasks(
        self, schema: Schema, conditions: tuple[Condition, ...], batch_size: int
    ) -> list[SsTableTask | LogTask]:
        """Return a task for each SSTable and each log.

        Parameters
        ----------
        schema : Schema
            Columns of the base table.
        """
        tasks: list[SsTableTask | LogTask] = []
        for shard in self._shards:
            for number, sstable in enumerate(shard.sstables):
                newer = shard.keys[number + 1 :]
                keys = KeySet(newer, self.paths) if newer else None
                unshadowed = Unshadowed(keys, has_tombstones=True, conditions=conditions)
                tasks.append(
                    replace(
                        sstable,
                        lance_schema=schema,
                        filters=(unshadowed,),
                        batch_size=batch_size,
                    )
                )
            if shard.log is not None:
                unshadowed = Unshadowed(None, has_tombstones=True, conditions=conditions)
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
        store = self.state.table.store
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

    def _opened(self, state: ShardState) -> _ShardRows:
        table = self.state.table
        tasks = []
        for sstable in state.sstables:
            opened = open_sstable(table, state.shard, sstable.folder)
            rows = _SsTableRows(sstable.generation, opened, _fragments(opened))
            tasks.append(rows.task(table.store.options))
        log = LogRows.of(table.store, state.shard, state.entries) if state.entries else None
        keys: list[SsTableKeys | LogKeys] = []
        if self.paths:
            keys += (SsTableKeys(task, self.paths) for task in tasks)
            if log is not None:
                keys.append(LogKeys(log, self.paths))
        return _ShardRows(state, tuple(tasks), log, tuple(keys))


def _fragments(table: OpenTable) -> tuple[Fragment, ...]:
    """Return the fragments of an SSTable, with the id of scans for `_tombstone`."""
    from lance_spark.table.fragments.row_counts import counted_fragments

    fragments = counted_fragments(table.paths, table.manifest)
    tombstone = next((top.id for top in table.schema.fields if top.name == TOMBSTONE), None)
    if tombstone is None:
        return fragments
    renumbered = []
    for fragment in fragments:
        proto = fragment.to_proto()
        for file in proto.files:
            file.fields[:] = [
                TOMBSTONE_ID if number == tombstone else number for number in file.fields
            ]
        renumbered.append(Fragment.from_proto(proto, fragment.source))
    return tuple(renumbered)

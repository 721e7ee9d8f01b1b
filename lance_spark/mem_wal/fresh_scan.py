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

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import read_json
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.entries import TOMBSTONE
from lance_spark.mem_wal.key_index import SortedKeys
from lance_spark.mem_wal.key_sets import KeyPaths, KeySet, LogKeys, SsTableKeys, keys_of
from lance_spark.mem_wal.log_rows import LogRows
from lance_spark.mem_wal.snapshot import FreshState, ShardState
from lance_spark.mem_wal.sstable import open_sstable
from lance_spark.scan.fragment.column_reader import rows_without_columns
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.comparison import values_at
from lance_spark.scan.predicates.conditions import (
    ColumnBound,
    Condition,
    RangePruner,
    candidates_of_all,
    matching,
)
from lance_spark.scan.task import READ_AHEAD, FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import TablePaths
from lance_spark.table.primary_key import primary_key

#: Id that `_tombstone` has in scans. Its id in an SSTable can belong to a column of the base table.
_TOMBSTONE_ID = 2**31 - 2
_TOMBSTONE_FIELD = Field(TOMBSTONE, _TOMBSTONE_ID, "bool")


@dataclass(frozen=True, slots=True)
class Unshadowed:
    """The condition that a row is not hidden, and then meets other conditions.

    Attributes
    ----------
    keys : KeySet or None
        Rows with these keys are hidden.
    has_tombstones : bool
        Whether rows have the column `_tombstone`.
    conditions : tuple of Condition
        Evaluated on the other rows only.
    """

    keys: KeySet | None
    has_tombstones: bool = False
    conditions: tuple[Condition, ...] = ()

    @property
    def paths(self) -> tuple[tuple[Field, ...], ...]:
        """The columns that it reads."""
        paths: list[tuple[Field, ...]] = []
        if self.has_tombstones:
            paths.append((_TOMBSTONE_FIELD,))
        if self.keys is not None:
            paths += self.keys.paths
        paths += (path for condition in self.conditions for path in condition.paths)
        return tuple(paths)

    def holds(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row of a batch whether the condition holds; never null."""
        visible = np.ones(batch.num_rows, np.bool_)
        if self.has_tombstones:
            flags = values_at(batch, (_TOMBSTONE_FIELD,)).fill_null(False)
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

    def conjuncts(self) -> Iterator[Condition]:
        """Yield the condition itself."""
        yield self

    def column_bound(self) -> ColumnBound | None:
        """Return None: it is not a comparison."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SsTableTask(ScanTask):
    """A task that reads an SSTable.

    Attributes
    ----------
    generation : int
    """

    generation: int

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

    Attributes
    ----------
    generation : int
        The generation that the rows will be flushed as.
    log : LogRows
    paths : tuple of tuple of Field
        The columns of the key; empty without a primary key.
    """

    generation: int
    log: LogRows
    paths: KeyPaths

    @property
    def num_rows(self) -> int:
        """Rows of the log, with those that later rows hide."""
        return self.log.num_rows

    def _pieces(
        self,
        metrics: ScanMetrics,
        paths: TablePaths,
        open_files: OpenFiles | None,
        *,
        prefetch: bool,
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows."""
        columns = self.lance_schema.fields
        filter_fields = Schema.of_paths(
            path for part in self.filters for path in part.paths if path[0] != _TOMBSTONE_FIELD
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

    Attributes
    ----------
    tasks : tuple of ScanTask
        With the same columns and conditions.
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


class FreshScan:
    """Plans scans of a state.

    Parameters
    ----------
    state : FreshState

    Attributes
    ----------
    paths : tuple of tuple of Field
        The columns of the primary key.
    num_entries : int
    num_sstables : int
    """

    def __init__(self, state: FreshState) -> None:
        self.state = state
        self.paths: KeyPaths = tuple(primary_key(state.table.schema))
        self._shards = [self._opened(shard) for shard in state.shards]
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

    def base_tasks(
        self, tasks: Sequence[ScanTask], conditions: tuple[Condition, ...]
    ) -> list[ScanTask]:
        """Return tasks of the base table without hidden rows.

        Parameters
        ----------
        tasks : sequence of ScanTask
            Planned with the conditions.
        """
        sources = tuple(keys for shard in self._shards for keys in shard.keys)
        if not sources:
            return list(tasks)
        unshadowed = Unshadowed(KeySet(sources, self.paths), conditions=conditions)
        return [replace(task, filters=(unshadowed,)) for task in tasks]

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
                _TOMBSTONE_ID if number == tombstone else number for number in file.fields
            ]
        renumbered.append(Fragment.from_proto(proto, fragment.source))
    return tuple(renumbered)


def _part(rows: pa.RecordBatch, first: int, fields: Sequence[Field]) -> pa.RecordBatch:
    """Return some columns of rows, by the names of their fields."""
    arrays = rows.columns[first : first + len(fields)]
    if not arrays:
        return rows_without_columns(rows.num_rows)
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])

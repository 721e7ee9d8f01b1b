"""Tasks of fresh reads, and the condition that leaves hidden rows out."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import read_json
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.entries import TOMBSTONE
from lance_spark.mem_wal.fresh.key_sets import KeyPaths, KeySet, keys_of
from lance_spark.mem_wal.key_index import SortedKeys
from lance_spark.mem_wal.log_rows import LogRows
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
from lance_spark.scan.task import READ_AHEAD, BatchesReader, ScanTask
from lance_spark.table.paths import TablePaths

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

"""Scans and lookups over given SSTables of shards, by pylance's names.

`Dataset.fresh` finds the rows of a MemWAL itself, those in logs, too. These classes read a version
and the SSTables that the caller names. SSTables whose rows the version has are left out; pylance
reads them, and then returns old rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.fresh.rows import FreshRows
from lance_spark.dataset.fresh.snapshots import ShardSnapshot, rows_of
from lance_spark.dataset.scanning.request import scan_request
from lance_spark.dataset.search import searched_rows
from lance_spark.errors import InvalidInputError
from lance_spark.mem_wal.fresh.tasks import LogTask, SsTableTask
from lance_spark.scan.fragment.row_meta import DISTANCE, ROW_ADDRESS
from lance_spark.scan.predicates.tuples import Comparison

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.file.schema.schema import Schema
    from lance_spark.scan.predicates.conditions import Condition
    from lance_spark.scan.task import ScanTask

GENERATION = pa.field("_memtable_gen", pa.uint64(), nullable=False)


class LsmScanner:
    """Scans a table together with rows of its MemWAL; of each key, the newest row.

    Made by `LsmScanner.from_snapshots`, or by `Dataset.lsm_scanner`, which reads logs, too.

    Examples
    --------
    >>> scanner = LsmScanner.from_snapshots(dataset, [snapshot])
    >>> scanner.project(["id", "value"]).filter("value > 0.5").to_table()
    """

    def __init__(self, rows: FreshRows) -> None:
        self._rows = rows
        self._columns: list[str] | None = None
        self._filter: str | None = None
        self._limit: int | None = None
        self._offset = 0
        self._row_address = False
        self._generation = False

    @staticmethod
    def from_snapshots(dataset: Dataset, shard_snapshots: Sequence[ShardSnapshot]) -> LsmScanner:
        """Scan a version and SSTables, without logs.

        Raises
        ------
        UnsupportedFeatureError
            The table has no primary key.
        InvalidInputError, CorruptTableError, StorageError
        """
        return LsmScanner(rows_of(dataset, shard_snapshots))

    def project(self, columns: Sequence[str]) -> LsmScanner:
        """Read only these columns, and those of the primary key."""
        self._columns = list(columns)
        return self

    def filter(self, expr: str) -> LsmScanner:
        """Read only rows that meet a condition; see `Dataset.to_batches`."""
        self._filter = expr
        return self

    def limit(self, n: int | None = None, offset: int | None = None) -> LsmScanner:
        """Read at most `n` rows, after the first `offset` rows."""
        for name, value in (("n", n), ("offset", offset)):
            if value is not None:
                check_least(name, value, 0)
        self._limit, self._offset = n, offset or 0
        return self

    def with_row_address(self) -> LsmScanner:
        """Append ``_rowaddr``, which is null for rows that are not in the table yet."""
        self._row_address = True
        return self

    def with_memtable_gen(self) -> LsmScanner:
        """Append ``_memtable_gen``: the generation of a row, 0 if it is in the table."""
        self._generation = True
        return self

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        schema = self._schema().to_arrow()
        if self._row_address:
            schema = schema.append(ROW_ADDRESS.arrow_field)
        return schema.append(GENERATION) if self._generation else schema

    def to_batches(self) -> list[pa.RecordBatch]:
        """Return the rows as record batches."""
        return list(self._batches())

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return pa.Table.from_batches(self._batches(), self.schema)

    def to_batch(self) -> pa.RecordBatch:
        """Return the rows as one record batch."""
        batches = self.to_table().combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self.schema)

    def count_rows(self) -> int:
        """Return the number of rows."""
        if self._limit is None and not self._offset:
            return self._rows.count_rows(self._filter)
        return sum(batch.num_rows for batch in self._batches())

    def _schema(self) -> Schema:
        if self._columns is None:
            return self._rows._reader.select(None, None)
        names = dict.fromkeys([*self._columns, *self._rows.key_columns])
        return self._rows._reader.select(list(names), None)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        skipped, remaining = self._offset, self._limit
        for task in self._tasks() if remaining != 0 else ():
            for batch in task.batches(prefetch=remaining is None):
                rows = batch.slice(skipped)
                skipped -= batch.num_rows - rows.num_rows
                rows = rows.slice(0, remaining)
                if rows.num_rows:
                    yield self._completed(rows, task, schema)
                if remaining is not None:
                    remaining -= rows.num_rows
                    if remaining <= 0:
                        return

    def _completed(self, rows: pa.RecordBatch, task: ScanTask, schema: pa.Schema) -> pa.RecordBatch:
        arrays = rows.columns
        is_fresh = isinstance(task, SsTableTask | LogTask)
        if self._row_address and is_fresh:
            arrays.append(pa.nulls(rows.num_rows, pa.uint64()))
        if self._generation:
            generation = task.generation if isinstance(task, SsTableTask | LogTask) else 0
            arrays.append(pa.repeat(pa.scalar(generation, pa.uint64()), rows.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _tasks(self) -> list[ScanTask]:
        schema = self._schema()
        conditions = self._rows._reader.conditions(None, self._filter)
        tasks = self._rows._reader.tasks(schema.names, conditions)
        if not self._row_address:
            return tasks
        with_address = replace(schema, fields=(*schema.fields, ROW_ADDRESS))
        return [
            task
            if isinstance(task, SsTableTask | LogTask)
            else replace(task, lance_schema=with_address)
            for task in tasks
        ]


class ExecutionPlan:
    """A planned lookup or search. Each call reads the rows again."""

    def __init__(
        self,
        schema: pa.Schema,
        dataset_schema: pa.Schema,
        tasks: Sequence[ScanTask],
        read: Callable[[], Iterator[pa.RecordBatch]],
    ) -> None:
        self._schema, self._dataset_schema = schema, dataset_schema
        self._planned, self._batches = tuple(tasks), read

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self._schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return self._dataset_schema

    def explain(self) -> str:
        """Return what is read, a line for each source."""
        lines = []
        for task in self._planned:
            if isinstance(task, LogTask):
                lines.append(f"log of shard {task.log.shard}: {task.log.num_rows} rows")
            elif isinstance(task, SsTableTask):
                lines.append(f"SSTable of generation {task.generation}: {task.num_rows} rows")
            else:
                lines.append(f"table: {task.num_rows} rows of {len(task.slices)} slices")
        return "\n".join(lines)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_batches(self) -> list[pa.RecordBatch]:
        """Return the rows as record batches."""
        return list(self._batches())

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return pa.Table.from_batches(self._batches(), self.schema)


class LsmPointLookupPlanner:
    """Plans lookups of keys in a table and in rows of its MemWAL.

    Bloom filters rule SSTables out that do not have a key.

    Parameters
    ----------
    dataset : Dataset
    shard_snapshots : sequence of ShardSnapshot
    pk_columns : sequence of str, optional
        The columns of the key; by default those of the primary key of the table.

    Examples
    --------
    >>> planner = LsmPointLookupPlanner(dataset, [snapshot])
    >>> planner.plan_lookup(pa.array([42], pa.int64())).to_table()
    """

    def __init__(
        self,
        dataset: Dataset,
        shard_snapshots: Sequence[ShardSnapshot],
        pk_columns: Sequence[str] | None = None,
    ) -> None:
        self._rows = rows_of(dataset, shard_snapshots, pk_columns)

    def plan_lookup(
        self, pk_value: pa.Array, columns: Sequence[str] | None = None
    ) -> ExecutionPlan:
        """Plan the lookup of a key.

        Parameters
        ----------
        pk_value : pyarrow.Array
            One value; for a key of several columns, a struct with a field for each.
        columns : sequence of str, optional
            Columns to read besides those of the key; all columns by default.

        Raises
        ------
        InvalidInputError
            There is not exactly one value, or it is not of the type of the key.
        """
        rows = self._rows
        keys = _key_columns(pk_value, rows)
        conditions: tuple[Condition, ...] = tuple(
            Comparison(path, "==", values[0])
            for path, values in zip(rows._reader.scan.paths, keys, strict=True)
        )
        names = None if columns is None else [*dict.fromkeys([*columns, *rows.key_columns])]
        schema = rows._reader.select(names, None)
        tasks = rows._reader.tasks(schema.names, conditions)

        def read() -> Iterator[pa.RecordBatch]:
            for task in tasks:
                yield from task.batches(prefetch=False)

        return ExecutionPlan(schema.to_arrow(), rows.schema, tasks, read)


class LsmVectorSearchPlanner:
    """Plans vector searches in a table and in rows of its MemWAL.

    All vectors of SSTables, and of rows of the table that no index covers, are measured. pylance
    searches by indexes only.

    Parameters
    ----------
    dataset : Dataset
    shard_snapshots : sequence of ShardSnapshot
    vector_column : str
    pk_columns : sequence of str, optional
        The columns of the key; by default those of the primary key of the table.
    distance_type : str, optional
        The metric: ``l2``, ``cosine``, ``dot`` or ``hamming``; by default that of the index, or
        ``l2``.
    filter : str, optional
        Only rows that meet this condition are searched.

    Examples
    --------
    >>> planner = LsmVectorSearchPlanner(dataset, [snapshot], "vector")
    >>> planner.plan_search(pa.array([0.5, 0.1], pa.float32()), k=10).to_table()
    """

    def __init__(
        self,
        dataset: Dataset,
        shard_snapshots: Sequence[ShardSnapshot],
        vector_column: str,
        pk_columns: Sequence[str] | None = None,
        distance_type: str | None = None,
        filter: str | None = None,
    ) -> None:
        self._rows = rows_of(dataset, shard_snapshots, pk_columns)
        self._column, self._metric, self._filter = vector_column, distance_type, filter

    def plan_search(
        self,
        query: pa.Array,
        k: int = 10,
        nprobes: int = 20,
        columns: Sequence[str] | None = None,
        refine_base_table: bool = False,
        overfetch_factor: float = 1.0,
    ) -> ExecutionPlan:
        """Plan the search of the rows that are nearest to a vector.

        Parameters
        ----------
        query : pyarrow.Array
            The numbers of the vector.
        k : int
            Number of rows.
        nprobes : int
            Number of partitions of an index that are searched.
        columns : sequence of str, optional
            Columns to read besides those of the key and ``_distance``; all columns by default.
        refine_base_table : bool
            Whether rows that an index finds are measured by their vectors. They are, if SSTables
            have rows.
        overfetch_factor : float
            At least 1. Ignored: hidden rows take no place of other rows.

        Raises
        ------
        InvalidInputError
        """
        for name, value in (("k", k), ("nprobes", nprobes)):
            check_least(name, value, 1)
        if not 1 <= overfetch_factor < math.inf:
            raise InvalidInputError(f"overfetch_factor must be at least 1, not {overfetch_factor}")
        rows = self._rows
        nearest: dict[str, Any] = {"column": self._column, "q": query, "k": k, "nprobes": nprobes}
        if self._metric is not None:
            nearest["metric"] = self._metric
        if refine_base_table:
            nearest["refine_factor"] = 1
        names = None if columns is None else [*dict.fromkeys([*columns, *rows.key_columns])]
        schema = rows._reader.select(names, None).to_arrow().append(DISTANCE.arrow_field)
        conditions = rows._reader.conditions(None, self._filter)

        def read() -> Iterator[pa.RecordBatch]:
            request = scan_request(
                rows._reader, names, self._filter, nearest=nearest, prefilter=True
            )
            table = searched_rows(rows._reader, request)
            yield from table.to_batches()

        return ExecutionPlan(
            schema, rows.schema, rows._reader.tasks([self._column], conditions), read
        )


def _key_columns(pk_value: pa.Array, rows: FreshRows) -> list[pa.Array]:
    """Return the columns of a key that a caller passed."""
    if not isinstance(pk_value, pa.Array) or len(pk_value) != 1:
        count = len(pk_value) if isinstance(pk_value, pa.Array) else None
        problem = f"not {type(pk_value).__name__}" if count is None else f"but it has {count} rows"
        raise InvalidInputError(f"pk_value must be an array of exactly one row, {problem}")
    names, paths = rows.key_columns, rows._reader.scan.paths
    columns = [pk_value]
    if len(names) > 1:
        if not pa.types.is_struct(pk_value.type):
            raise InvalidInputError(
                f"pk_value must be a struct with the fields {', '.join(names)}, not {pk_value.type}"
            )
        missing = [name for name in names if pk_value.type.get_field_index(name) < 0]
        if missing:
            raise InvalidInputError(f"pk_value does not have the field {missing[0]!r}")
        columns = [pk_value.field(name) for name in names]
    try:
        columns = [
            column.cast(path[-1].arrow_field.type)
            for column, path in zip(columns, paths, strict=True)
        ]
    except pa.ArrowException as error:
        raise InvalidInputError(f"pk_value is not of the type of the key: {error}") from None
    if any(column.null_count for column in columns):
        raise InvalidInputError("pk_value is null, but no row has a null key")
    return columns

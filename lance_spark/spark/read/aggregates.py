"""Aggregates that Spark pushes down: counts, minima and maxima. Each partition returns one row.

Without filters, the manifest has the counts of all rows and of non-nullable columns, and exact
indexes have bounds and other counts. Other aggregates are computed from the values as Spark sees
them; only the aggregated columns are read, and for counts only pages with nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as spark

from lance_spark.errors import LanceError
from lance_spark.scan.predicates.comparison import column_at
from lance_spark.spark.pushdown.request import Aggregate, refused
from lance_spark.spark.read.projection import find
from lance_spark.spark.types.mapping import to_spark_type

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.scan.pruning.metadata_aggregates import MinMax
    from lance_spark.scan.task import ScanTask


def needed(aggregates: Iterable[Aggregate], schema: pa.Schema) -> spark.StructType:
    """Return the aggregated columns, with structs reduced to the aggregated children.

    Parameters
    ----------
    aggregates : iterable of Aggregate
    schema : pyarrow.Schema
        Columns of the table.

    Raises
    ------
    UnsupportedError
        A column does not exist.
    """
    tree: dict[str, Any] = {}
    for aggregate in aggregates:
        node = tree
        for name in aggregate.path[:-1]:
            node = node.setdefault(name, {})
            if node is None:
                break
        else:
            if aggregate.path:
                node[aggregate.path[-1]] = None
    return _narrowed(list(schema), tree, ())


def _narrowed(
    fields: Sequence[pa.Field], tree: dict[str, Any], above: tuple[str, ...]
) -> spark.StructType:
    result = []
    for name, below in tree.items():
        position = find([field.name for field in fields], name)
        path = (*above, name)
        if position < 0:
            raise refused("a column was not found", ".".join(path))
        dtype: Any = fields[position].type
        if below is not None and not pa.types.is_struct(dtype):
            raise refused("a column is not a struct", ".".join(path))
        data_type: spark.DataType = (
            to_spark_type(dtype, ".".join(path))
            if below is None
            else _narrowed([dtype.field(i) for i in range(dtype.num_fields)], below, path)
        )
        result.append(spark.StructField(name, data_type, fields[position].nullable))
    return spark.StructType(result)


def known_values(
    aggregates: Iterable[Aggregate], dataset: Dataset, visible: pa.Schema
) -> list[pa.Array] | None:
    """Return the aggregates over all rows as arrays of one value, if metadata has all of them.

    Parameters
    ----------
    aggregates : iterable of Aggregate
    dataset : Dataset
    visible : pyarrow.Schema
        Columns of the table, with row columns.
    """
    values = []
    bounds: dict[tuple[str, ...], MinMax | None] = {}
    for aggregate in aggregates:
        value = _known_value(aggregate, dataset, visible, bounds)
        if value is None:
            return None
        values.append(value)
    return values


def _known_value(
    aggregate: Aggregate,
    dataset: Dataset,
    visible: pa.Schema,
    bounds: dict[tuple[str, ...], MinMax | None],
) -> pa.Array | None:
    if aggregate.op == "count_star":
        return pa.array([dataset.count_rows()], pa.int64())
    fields = _fields_at(visible, aggregate.path)
    if fields is None:
        return None
    if aggregate.op == "count" and not any(field.nullable for field in fields):
        return pa.array([dataset.count_rows()], pa.int64())
    from lance_spark.scan.pruning.metadata_aggregates import min_max_from_metadata, value_count

    path = tuple(field.name for field in fields)
    try:
        if aggregate.op == "count":
            count = value_count(dataset._table, dataset.fragments, path)
            return None if count is None else pa.array([count], pa.int64())
        if path not in bounds:
            # Both bounds cost as much as one.
            bounds[path] = min_max_from_metadata(dataset._table, dataset.fragments, path)
    except LanceError:
        # An unreadable index must not prevent the read of the rows.
        return None
    result = bounds[path]
    return None if result is None else _for_spark(result[aggregate.op == "max"], fields[-1])


def _fields_at(schema: pa.Schema, path: Sequence[str]) -> list[pa.Field] | None:
    """Return the fields of a path, outermost first."""
    results: list[pa.Field] = []
    fields = list(schema)
    for name in path:
        position = find([field.name for field in fields], name)
        if position < 0:
            return None
        results.append(fields[position])
        dtype = fields[position].type
        fields = (
            [dtype.field(i) for i in range(dtype.num_fields)] if pa.types.is_struct(dtype) else []
        )
    return results


def _for_spark(value: pa.Scalar, field: pa.Field) -> pa.Array | None:
    """Return a value as Spark sees it in the column."""
    from lance_spark.spark.types.convert import BatchConverter
    from lance_spark.spark.types.mapping import batch_schema, to_spark_schema

    schema = pa.schema([field.with_nullable(True)])
    values = pa.array([value], value.type)
    if values.type != field.type:
        return None
    convert = BatchConverter(schema, batch_schema(to_spark_schema(schema)), reading=True)
    (batch,) = convert(pa.RecordBatch.from_arrays([values], schema=schema))
    return batch.column(0)


def split_counted(aggregates: Sequence[Aggregate], task: ScanTask) -> tuple[int, ScanTask]:
    """Count the rows of a task without filters for all aggregates, where no values are needed.

    Returns
    -------
    int
        Count for each aggregate of the rows that need not be read.
    ScanTask
        The remaining rows, perhaps none.
    """
    paths = {aggregate.path for aggregate in aggregates if aggregate.op != "count_star"}
    if len(paths) != 1 or any(
        aggregate.op not in ("count_star", "count") for aggregate in aggregates
    ):
        return 0, task
    fields = _fields_at(task.schema, *paths)
    if fields is None:
        return 0, task
    from lance_spark.scan.pruning.null_counts import split_valid

    return split_valid(task, [field.name for field in fields])


def aggregated(
    aggregates: Sequence[Aggregate],
    wanted: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    counted: int = 0,
) -> pa.RecordBatch:
    """Return the row of aggregates over batches with the columns of `needed`, and counted rows."""
    states = [_State(aggregate, counted) for aggregate in aggregates]
    for batch in batches:
        for state in states:
            state.add(batch)
    return row_of([state.value() for state in states], wanted)


def merged(
    aggregates: Sequence[Aggregate], wanted: pa.Schema, rows: Sequence[pa.RecordBatch]
) -> pa.RecordBatch:
    """Merge the rows of aggregates of several partitions."""
    import pyarrow.compute as pc

    table = pa.Table.from_batches(rows, wanted)
    arrays = []
    for aggregate, column in zip(aggregates, table.columns, strict=True):
        value = (
            pc.sum(column)
            if aggregate.op in ("count_star", "count")
            else pc.min_max(column)[aggregate.op]
        )
        arrays.append(pa.array([value], column.type))
    return row_of(arrays, wanted)


def row_of(arrays: Sequence[pa.Array | None], wanted: pa.Schema) -> pa.RecordBatch:
    """Return a row of arrays of one value each; None for null."""
    columns = [
        pa.nulls(1, field.type) if array is None else array.cast(field.type)
        for array, field in zip(arrays, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


class _State:
    """An aggregate of the batches so far."""

    def __init__(self, aggregate: Aggregate, counted: int) -> None:
        self._op = aggregate.op
        self._path = aggregate.path
        self._rows = counted
        self._best: pa.Array | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        if self._op == "count_star":
            self._rows += batch.num_rows
            return
        values = column_at(batch, self._path)
        if self._op == "count":
            self._rows += len(values) - values.null_count
            return
        import pyarrow.compute as pc

        # The kernels that compare two arrays do not support time zones.
        chunks = [values] if self._best is None else [self._best, values]
        best = pc.min_max(pa.chunked_array(chunks, values.type))[self._op]
        self._best = pa.array([best], values.type)

    def value(self) -> pa.Array | None:
        """Return the aggregate as an array of one value; None for bounds without values."""
        if self._op in ("count_star", "count"):
            return pa.array([self._rows], pa.int64())
        return self._best

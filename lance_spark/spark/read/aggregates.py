"""Counts, minima and maxima that Spark leaves to a scan: each partition gives one row of them, and
Spark puts the rows together.

If no rows are filtered, counts of all rows, and of columns that are never null, come out of the
manifest, and least and greatest values and other counts out of indexes that know them exactly.
Everything else is computed over the values as Spark would get them; only the columns that are asked
about are read, and for counts only pages with nulls.
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
    """Return the columns that aggregates are about, structs with no other children than these.

    Parameters
    ----------
    aggregates : iterable of Aggregate
    schema : pyarrow.Schema
        What the table can be asked for.

    Raises
    ------
    UnsupportedError
        There is no such column.
    """
    tree: dict[str, Any] = {}
    for aggregate in aggregates:
        position = tree
        for name in aggregate.path[:-1]:
            position = position.setdefault(name, {})
            if position is None:
                break
        else:
            if aggregate.path:
                position[aggregate.path[-1]] = None
    return _narrowed(list(schema), tree, ())


def _narrowed(
    fields: Sequence[pa.Field], tree: dict[str, Any], above: tuple[str, ...]
) -> spark.StructType:
    result = []
    for name, below in tree.items():
        position = find([field.name for field in fields], name)
        path = (*above, name)
        if position < 0:
            raise refused("there is no such column", ".".join(path))
        kind: Any = fields[position].type
        if below is not None and not pa.types.is_struct(kind):
            raise refused("it is no struct", ".".join(path))
        data_type: spark.DataType = (
            to_spark_type(kind, ".".join(path))
            if below is None
            else _narrowed([kind.field(i) for i in range(kind.num_fields)], below, path)
        )
        result.append(spark.StructField(name, data_type, fields[position].nullable))
    return spark.StructType(result)


def known_values(
    aggregates: Iterable[Aggregate], dataset: Dataset, visible: pa.Schema
) -> list[pa.Array] | None:
    """Return the values of aggregates over all rows, arrays of one each, if the manifest and
    indexes know all of them.

    Parameters
    ----------
    aggregates : iterable of Aggregate
    dataset : Dataset
    visible : pyarrow.Schema
        What the table can be asked for.
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
            # Both of them cost what one does.
            bounds[path] = min_max_from_metadata(dataset._table, dataset.fragments, path)
    except LanceError:
        # An index that cannot be read keeps nobody from the rows.
        return None
    result = bounds[path]
    return None if result is None else _for_spark(result[aggregate.op == "max"], fields[-1])


def _fields_at(schema: pa.Schema, path: Sequence[str]) -> list[pa.Field] | None:
    """Return the field that a path names, behind those that it is in."""
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
    """Return a value as Spark gets it of the column."""
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
    """Count rows of a task without filters as all of its aggregates would, where no values are
    needed for it.

    Returns
    -------
    int
        What each aggregate counts of the rows that need not be read.
    ScanTask
        The others; there may be none.
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
    """Return the row of aggregates over batches that have the columns of `needed`, and over rows
    that `split_counted` counted.
    """
    states = [_State(aggregate, counted) for aggregate in aggregates]
    for batch in batches:
        for state in states:
            state.add(batch)
    return row_of([state.value() for state in states], wanted)


def merged(
    aggregates: Sequence[Aggregate], wanted: pa.Schema, rows: Sequence[pa.RecordBatch]
) -> pa.RecordBatch:
    """Return the row of aggregates over what several partitions gave a row of each."""
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
    """Return the row of some values: arrays of one each, None for null."""
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
        """Take a batch in."""
        if self._op == "count_star":
            self._rows += batch.num_rows
            return
        values = column_at(batch, self._path)
        if self._op == "count":
            self._rows += len(values) - values.null_count
            return
        import pyarrow.compute as pc

        # The kernels that compare two arrays know no time zones.
        chunks = [values] if self._best is None else [self._best, values]
        best = pc.min_max(pa.chunked_array(chunks, values.type))[self._op]
        self._best = pa.array([best], values.type)

    def value(self) -> pa.Array | None:
        """Return the aggregate as an array of one; None for the least, or greatest, of nothing."""
        if self._op in ("count_star", "count"):
            return pa.array([self._rows], pa.int64())
        return self._best

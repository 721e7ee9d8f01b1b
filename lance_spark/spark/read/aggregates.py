"""Aggregates that Spark pushes down: counts, sums, minima and maxima.

Each partition returns rows of aggregates (`group_by`), and Spark merges the rows.

| without filters | taken from |
| --- | --- |
| counts of rows, and of columns that are not nullable | the manifest |
| minima, maxima and other counts | indexes that know them exactly |

All others are computed from the values that Spark would get. Only the columns of the aggregates are
read, and for counts only their pages with nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as spark

from lance_spark.errors import LanceError, SchemaMismatchError
from lance_spark.spark.pushdown.request import Aggregate, PushedScan, refused
from lance_spark.spark.read.projection import find, missing_column
from lance_spark.spark.types.mapping import to_spark_type

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.scan.pruning.metadata_aggregates import MinMax
    from lance_spark.scan.task import ScanTask


def needed_columns(
    paths: Iterable[tuple[str, ...]], schema: pa.Schema, table: str
) -> spark.StructType:
    """Return the columns of aggregates. Structs have no other children than those.

    - `schema`: All columns that can be read.
    - `table`: What to call the table in errors.

    Raises SchemaMismatchError: the table has no such column any more. Raises UnsupportedError: a
    column is not a struct.
    """
    # Maps names to the tree of their children, or to None for a whole column.
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
            if node is None:
                break
        else:
            if path:
                node[path[-1]] = None
    return _narrowed(list(schema), tree, (), table)


def _narrowed(
    fields: Sequence[pa.Field], tree: dict[str, Any], parent: tuple[str, ...], table: str
) -> spark.StructType:
    narrowed = []
    for name, children in tree.items():
        names = [field.name for field in fields]
        index = find(names, name)
        path = (*parent, name)
        if index < 0:
            raise SchemaMismatchError(missing_column(".".join(path), name, names, table))
        dtype: Any = fields[index].type
        if children is not None and not pa.types.is_struct(dtype):
            raise refused("the column is not a struct", ".".join(path))
        data_type: spark.DataType = (
            to_spark_type(dtype, ".".join(path))
            if children is None
            else _narrowed([dtype.field(i) for i in range(dtype.num_fields)], children, path, table)
        )
        narrowed.append(spark.StructField(name, data_type, fields[index].nullable))
    return spark.StructType(narrowed)


def check_types(request: PushedScan, columns: spark.StructType, output: spark.StructType) -> None:
    """Refuse groups and aggregates whose columns have other types than Spark takes them for.

    A user's schema, or a DataFrame that was made before another client replaced a column, may name
    another type. The smallest string is not the smallest number.

    - `columns`: The result of `needed_columns`.
    - `output`: A field for each group and then for each aggregate.

    Raises SchemaMismatchError: as for rows with these types.
    """
    from lance_spark.spark.types.convert import check_conversion
    from lance_spark.spark.types.mapping import batch_schema

    known, wanted = batch_schema(columns), batch_schema(output)
    groups = [Aggregate("min", path) for path in request.groups]
    for aggregate, field in zip((*groups, *request.aggregates), wanted, strict=True):
        along_path = _fields_at(known, aggregate.path)
        if aggregate.op.startswith("count") or not along_path:
            continue
        dtype = along_path[-1].type
        if aggregate.op == "sum":
            dtype = _sum_type(dtype)
        name = ".".join(aggregate.path)
        source = pa.schema([pa.field(name, dtype)])
        check_conversion(source, pa.schema([pa.field(name, field.type)]), reading=True)


def _sum_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of Spark's sum of a type that `GroupedRows` adds up."""
    if pa.types.is_integer(dtype):
        return pa.int64()
    if pa.types.is_decimal128(dtype):
        return pa.decimal128(min(dtype.precision + 10, 38), dtype.scale)
    return dtype


def known_values(
    aggregates: Iterable[Aggregate], dataset: Dataset, schema: pa.Schema
) -> list[pa.Array] | None:
    """Return the values of aggregates over all rows from the manifest and from indexes.

    - `schema`: All columns that can be read.

    Returns an array of length 1 for each aggregate; None if a value is not known without reading
    rows.
    """
    values = []
    bounds: dict[tuple[str, ...], MinMax | None] = {}
    for aggregate in aggregates:
        value = _known_value(aggregate, dataset, schema, bounds)
        if value is None:
            return None
        values.append(value)
    return values


def _known_value(
    aggregate: Aggregate,
    dataset: Dataset,
    schema: pa.Schema,
    bounds: dict[tuple[str, ...], MinMax | None],
) -> pa.Array | None:
    if aggregate.op == "sum":
        return None
    if aggregate.op == "count_star":
        return pa.array([dataset.count_rows()], pa.int64())
    fields = _fields_at(schema, aggregate.path)
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
            # One call returns both the minimum and the maximum.
            bounds[path] = min_max_from_metadata(dataset._table, dataset.fragments, path)
    except LanceError:
        # The rows can be read without the index that cannot be read.
        return None
    min_max = bounds[path]
    return None if min_max is None else _for_spark(min_max[aggregate.op == "max"], fields[-1])


def _fields_at(schema: pa.Schema, path: Sequence[str]) -> list[pa.Field] | None:
    """Return the fields along a path, from the column to the last child; None if not found."""
    along_path: list[pa.Field] = []
    fields = list(schema)
    for name in path:
        index = find([field.name for field in fields], name)
        if index < 0:
            return None
        field = fields[index]
        along_path.append(field)
        dtype = field.type
        is_struct = pa.types.is_struct(dtype)
        fields = [dtype.field(i) for i in range(dtype.num_fields)] if is_struct else []
    return along_path


def _for_spark(value: pa.Scalar, field: pa.Field) -> pa.Array | None:
    """Return a value of a column as Spark gets it, in an array of length 1."""
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
    """Split a task without filters into rows that are counted without reading, and the others.

    Rows are counted only if all aggregates count them alike, as counts of one column do.

    Returns
    -------
    int
        The number of rows that need not be read.
    ScanTask
        The other rows, which may be none.
    """
    paths = {aggregate.path for aggregate in aggregates if aggregate.op != "count_star"}
    counts_only = all(aggregate.op in ("count_star", "count") for aggregate in aggregates)
    if len(paths) != 1 or not counts_only:
        return 0, task
    fields = _fields_at(task.schema, *paths)
    if fields is None:
        return 0, task
    from lance_spark.scan.pruning.null_counts import split_valid

    return split_valid(task, [field.name for field in fields])


def row_of(arrays: Sequence[pa.Array | None], output: pa.Schema) -> pa.RecordBatch:
    """Return a row of values, which are arrays of length 1, or None for null."""
    columns = [
        pa.nulls(1, field.type) if array is None else array.cast(field.type)
        for array, field in zip(arrays, output, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=output)

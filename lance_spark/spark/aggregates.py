"""Counts, minima and maxima that Spark leaves to a scan: each partition gives one row of them, and Spark puts the rows together.

Counts of all rows, and of columns that are never null, come out of the manifest if no rows are filtered. Everything else is
computed over the values as Spark would get them; only the columns that are asked about are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from lance_spark.scan.comparing import column_at
from lance_spark.spark.projection import find
from lance_spark.spark.request import Aggregate, refused
from lance_spark.spark.types import to_spark_type


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
    for one in aggregates:
        at = tree
        for name in one.path[:-1]:
            at = at.setdefault(name, {})
            if at is None:
                break
        else:
            if one.path:
                at[one.path[-1]] = None
    return _narrowed(list(schema), tree, ())


def _narrowed(
    fields: Sequence[pa.Field], tree: dict[str, Any], above: tuple[str, ...]
) -> spark.StructType:
    found = []
    for name, below in tree.items():
        at = find([field.name for field in fields], name)
        path = (*above, name)
        if at < 0:
            raise refused("there is no such column", ".".join(path))
        kind: Any = fields[at].type
        if below is not None and not pa.types.is_struct(kind):
            raise refused("it is no struct", ".".join(path))
        data_type: spark.DataType = (
            to_spark_type(kind, ".".join(path))
            if below is None
            else _narrowed([kind.field(i) for i in range(kind.num_fields)], below, path)
        )
        found.append(spark.StructField(name, data_type, fields[at].nullable))
    return spark.StructType(found)


def counts_rows(aggregate: Aggregate, schema: pa.Schema) -> bool:
    """Tell whether an aggregate is the number of rows, whatever their values are."""
    if aggregate.op == "count_star":
        return True
    if aggregate.op != "count":
        return False
    fields = list(schema)
    for name in aggregate.path:
        at = find([field.name for field in fields], name)
        if at < 0 or fields[at].nullable:
            return False
        kind = fields[at].type
        fields = [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    return True


def rows_alone(aggregates: Sequence[Aggregate], wanted: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return the row of aggregates that are all the number of rows."""
    return _batch([pa.array([rows], pa.int64()) for _ in aggregates], wanted)


def aggregated(
    aggregates: Sequence[Aggregate], wanted: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> pa.RecordBatch:
    """Return the row of aggregates over batches that have the columns of `needed`."""
    states = [_State(one) for one in aggregates]
    for batch in batches:
        for state in states:
            state.add(batch)
    return _batch([state.value() for state in states], wanted)


def merged(
    aggregates: Sequence[Aggregate], wanted: pa.Schema, rows: Sequence[pa.RecordBatch]
) -> pa.RecordBatch:
    """Return the row of aggregates over what several partitions gave a row of each."""
    import pyarrow.compute as pc

    table = pa.Table.from_batches(rows, wanted)
    arrays = []
    for one, column in zip(aggregates, table.columns, strict=True):
        value = pc.sum(column) if one.op in ("count_star", "count") else pc.min_max(column)[one.op]
        arrays.append(pa.array([value], column.type))
    return _batch(arrays, wanted)


def _batch(arrays: Sequence[pa.Array | None], wanted: pa.Schema) -> pa.RecordBatch:
    columns = [
        pa.nulls(1, field.type) if array is None else array.cast(field.type)
        for array, field in zip(arrays, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


class _State:
    """An aggregate of the batches so far."""

    def __init__(self, aggregate: Aggregate) -> None:
        self._op = aggregate.op
        self._path = aggregate.path
        self._rows = 0
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

"""Keys of partitions: columns, or buckets of a column, of which all rows of a partition have one
value.

Spark joins two tables, groups or windows rows without a shuffle if scans report such keys
(storage-partitioned joins), because it knows which partitions have the rows that meet. The rule
names the columns by which the query makes rows meet (`Request.clustering`). Of these, a scan
reports

| key | if each fragment with live rows has |
| --- | --- |
| the bucket of a column | one bucket, by the sharding of the table's MemWAL |
| columns | one value, or only nulls, by their zone maps |

Nothing is reported if this is not certain of one fragment. A task then has rows of one value only,
and tasks of one value are as large as other tasks. Runtime filters of joins leave fragments out,
but never change the keys: these depend on the version and the columns alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from lance_spark.errors import LanceError
from lance_spark.file.schema.field import Field
from lance_spark.indexes.aggregates import single_values
from lance_spark.scan.task import FragmentSlice
from lance_spark.spark.read.estimate import type_name
from lance_spark.spark.read.projection import find
from lance_spark.spark.types.convert import BatchConverter
from lance_spark.spark.types.mapping import batch_schema
from lance_spark.subjects import MEM_WAL_BUCKETS, load
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes.sections import has_mem_wal, read_section

if TYPE_CHECKING:
    from lance_spark.spark.read.planning import LancePartition, Plan

#: Spark's types whose equal values have the same bytes. Spark 4.0 and 4.1 compare binary keys of a
#: shuffle by identity.
_TYPES = {
    "bigint",
    "boolean",
    "date",
    "int",
    "smallint",
    "string",
    "timestamp",
    "timestamp_ntz",
    "tinyint",
}
#: Types as they are stored, for which the function in Spark gives the same bucket.
_BUCKETED = {
    pa.bool_(),
    pa.date32(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.large_string(),
    pa.string(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
}
#: There are partitions for this number of values, or for each so many rows: the start of a task
#: takes as long as a shuffle of its rows otherwise.
_FEW_VALUES = 256
_ROWS_OF_A_VALUE = 50_000


@dataclass(frozen=True, slots=True)
class _Keys:
    """Keys of the partitions of a scan.

    - `columns`: The keys, as the reply has them.
    - `values`: The distinct values, a column for each key, in the types that Spark has.
    - `number_of`: The number of the value of each fragment with live rows, by the fragment's id.
    """

    columns: list[dict[str, Any]]
    values: pa.RecordBatch
    number_of: dict[int, int]


def keyed_partitions(
    plan: Plan, partitions: list[LancePartition]
) -> tuple[list[LancePartition], list[dict[str, Any]] | None, bytes | None]:
    """Distribute the rows of a plan to partitions with keys, if the table has keys.

    Returns
    -------
    list of LancePartition
    list of dict or None
        The keys; None if there are none, and the partitions are as they were.
    bytes or None
        The values of the keys as an Arrow stream, a row for each partition.
    """
    keys = None
    if not plan.options.is_search and not plan.options.fresh:
        # The read does not need the statistics.
        with suppress(LanceError):
            keys = _keys(plan)
    if keys is None:
        return partitions, None, None
    numbered = list(_by_value(partitions, keys.number_of))
    if not numbered:
        # Spark asks each partition for its key, also after filters that leave no rows.
        numbered = [(0, partition) for partition in partitions[:1]]
    rows = keys.values.take(pa.array([number for number, _ in numbered]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return [partition for _, partition in numbered], keys.columns, sink.getvalue().to_pybytes()


def _keys(plan: Plan) -> _Keys | None:
    """Return the keys of the nearest columns that have keys; None if there are none."""
    table, fragments = plan.dataset._table, plan.dataset.fragments
    lower = [field.name.lower() for field in plan.wanted]
    # Spark would not know which column is meant, if two names are equal.
    if table.manifest.index_section is None or len(set(lower)) < len(lower):
        return None
    section = read_section(table.manifest)
    sharding = load(MEM_WAL_BUCKETS)(table) if has_mem_wal(section) else None
    known: dict[int, pa.Array | None] = {}
    for names in plan.request.clustering:
        columns = []
        for read, field in _columns(plan, names):
            if field.id not in known:
                known[field.id] = single_values(table, section, fragments, field)
            values = known[field.id]
            if values is None:
                continue
            is_sharded = sharding is not None and sharding.field_ids == (field.id,)
            if sharding is not None and is_sharded and values.type in _BUCKETED:
                key = {"column": read.name, "buckets": sharding.num_buckets}
                return _distinct(fragments, [key], [sharding.of(values)])
            columns.append((read, values))
        if columns:
            keys = [{"column": read.name} for read, _ in columns]
            return _distinct(fragments, keys, [_converted(*column) for column in columns])
    return None


def _columns(plan: Plan, names: Sequence[str]) -> Iterator[tuple[StructField, Field]]:
    """Yield the columns that can be keys: as the scan returns them, and as they are stored."""
    stored = plan.dataset._table.schema.fields
    scanned = {field.name: field for field in plan.wanted}
    for name in names:
        index = find([field.name for field in stored], name)
        read = scanned.get(name)
        if index < 0 or read is None:
            continue
        dtype = type_name(stored[index])
        # A user's schema may read values as another type.
        if dtype in _TYPES and read.dataType.simpleString() == dtype:
            yield read, stored[index]


def _converted(read: StructField, values: pa.Array) -> pa.Array:
    """Return values as Spark has them."""
    source = pa.RecordBatch.from_arrays([values], names=[read.name])
    nullable = StructField(read.name, read.dataType, True, read.metadata)
    target = batch_schema(StructType([nullable]))
    (batch,) = BatchConverter(source.schema, target, reading=True)(source)
    return batch.column(0)


def _distinct(
    fragments: Sequence[Fragment],
    keys: list[dict[str, Any]],
    columns: Sequence[pa.Array],
) -> _Keys | None:
    """Return keys by the values of each fragment; None if there are too many distinct values."""
    live = np.array([fragment.num_rows for fragment in fragments], np.int64)
    chosen = np.flatnonzero(live)
    names = [str(number) for number in range(len(columns))]
    rows = pa.table([*columns, pa.array(np.arange(len(live)))], [*names, "fragment"])
    groups = rows.take(pa.array(chosen)).group_by(names, use_threads=False)
    lists = groups.aggregate([("fragment", "list")])
    if not 0 < lists.num_rows <= max(_FEW_VALUES, int(live.sum()) // _ROWS_OF_A_VALUE):
        return None
    number_of = {
        fragments[index].id: number
        for number, indexes in enumerate(lists["fragment_list"].to_pylist())
        for index in indexes
    }
    (values,) = lists.select(names).combine_chunks().to_batches()
    return _Keys(keys, values, number_of)


def _by_value(
    partitions: Sequence[LancePartition], number_of: Mapping[int, int]
) -> Iterator[tuple[int, LancePartition]]:
    """Yield the rows of partitions by value: the number of the value, and a partition.

    Partitions of one value are joined up to the rows of the largest one.
    """
    most = max(
        (partition.task.num_rows for partition in partitions if partition.task is not None),
        default=0,
    )
    open_slices: dict[int, list[FragmentSlice]] = {}
    for partition in partitions:
        task = partition.task
        if task is None:
            continue
        parts: dict[int, list[FragmentSlice]] = {}
        for piece in task.slices:
            # Fragments without live rows have no value.
            number = number_of.get(piece.fragment.id)
            if number is not None:
                parts.setdefault(number, []).append(piece)
        for number, slices in parts.items():
            if task.index_search is not None:
                # The search is for the fragments of this task.
                yield number, _with_slices(partition, slices)
                continue
            waiting = open_slices.setdefault(number, [])
            size = sum(piece.num_rows for piece in (*waiting, *slices))
            if waiting and size > most:
                yield number, _with_slices(partition, waiting)
                waiting.clear()
            waiting += slices
    for number, slices in open_slices.items():
        if slices:
            yield number, _with_slices(partition, slices)


def _with_slices(partition: LancePartition, slices: Sequence[FragmentSlice]) -> LancePartition:
    assert partition.task is not None
    part = copy(partition)
    part.task = replace(partition.task, slices=tuple(slices))
    return part

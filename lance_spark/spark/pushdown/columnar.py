"""Columnar scans: Spark gets batches of columns in place of rows.

Spark takes each value out of the batches of a Python source, and writes it into a row. The rule of
Spark's optimizer asks for whole batches instead, and hands them to Spark's generated code as
columns (`java/columns`). A batch is an Arrow stream of its own, with its schema, its dictionaries,
and one record batch. Spark's worker sends a row for each. Either the row has the stream, or it says
where the stream is in memory that the worker shares with the JVM:

| column | value |
| --- | --- |
| `memory`, `id` | name and id of the worker's memory, also while it is only offered; null, 0 |
| `number`, `offset`, `length` | number, place and bytes of a stream in the memory; else 0 |
| `batch` | the stream; `_FILLER` if it is in shared memory |

Spark's worker collects 64 KiB before it sends. The last column has more bytes than that if a stream
is in shared memory, so that the row is sent at once.

| type of Spark | types in the stream |
| --- | --- |
| boolean, numbers, date, timestamps, time, day-time interval | as Spark has them in Arrow |
| decimal | decimal128, or int64 with the unscaled values if all of them fit, without nesting |
| string, char, varchar, binary | with offsets of 32 or 64 bits, or a dictionary of such values |
| array | list, large list, fixed-size list |
| map, struct, variant | map, struct, struct of two binary values |
| any | null, if all values are |
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import types as spark

from lance_spark.errors import UnsupportedTypeError
from lance_spark.spark.pushdown.request import set_fields
from lance_spark.spark.pushdown.shared_memory import PLACE_BYTES, SharedMemory, shared_memory
from lance_spark.spark.types.arrow_buffers import LONG_DIGITS, unscaled
from lance_spark.spark.types.mapping import batch_schema

#: What a scan answers that returns columns.
YES = "yes"
#: Bytes from which on a stream goes to shared memory.
SHARED_BYTES = 1 << 20
#: Maximum number of bytes of a stream that has more than one row.
_MAX_STREAM_BYTES = PLACE_BYTES
#: Bytes of the largest array of a JVM.
_MAX_ARRAY_BYTES = 2**31 - 64
#: The value `batch` of a stream in shared memory: more than Spark's worker collects before it
#: sends, by the most that Arrow writes after the last column.
_FILLER = pa.py_buffer(bytes(int(os.environ.get("SPARK_BUFFER_SIZE", "65536")) + 64))

#: The columns of rows that hold a batch each.
SENT = [
    spark.StructField("memory", spark.StringType(), True),
    spark.StructField("id", spark.LongType(), False),
    spark.StructField("number", spark.LongType(), False),
    spark.StructField("offset", spark.LongType(), False),
    spark.StructField("length", spark.IntegerType(), False),
    spark.StructField("batch", spark.BinaryType(), False),
]
_SCHEMA = batch_schema(spark.StructType(SENT))
#: Names of the classes of the types without children; pyspark 4.0 lacks some.
_TYPES = {
    "BinaryType",
    "BooleanType",
    "ByteType",
    "CharType",
    "DateType",
    "DayTimeIntervalType",
    "DecimalType",
    "DoubleType",
    "FloatType",
    "IntegerType",
    "LongType",
    "NullType",
    "ShortType",
    "StringType",
    "TimeType",
    "TimestampNTZType",
    "TimestampType",
    "VarcharType",
    "VariantType",
}


def to_streams(schema: spark.StructType) -> str:
    """Turn the schema of a scan into that of Arrow streams, in place, if all types allow it.

    Returns `YES`, or the column that does not allow it.
    """
    obstacle = _obstacle(schema)
    if obstacle is None:
        set_fields(schema, SENT)
    return obstacle or YES


def _obstacle(schema: spark.StructType) -> str | None:
    for field in schema:
        if not _is_columnar(field.dataType):
            return f"no:{field.name}:{field.dataType.simpleString()}"
    return None


def _is_columnar(data_type: spark.DataType) -> bool:
    if isinstance(data_type, spark.ArrayType):
        return _is_columnar(data_type.elementType)
    if isinstance(data_type, spark.MapType):
        return _is_columnar(data_type.keyType) and _is_columnar(data_type.valueType)
    if isinstance(data_type, spark.StructType):
        return _obstacle(data_type) is None
    return type(data_type).__name__ in _TYPES


def streams(batches: Iterator[pa.RecordBatch], may_share: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield a row of the columns `SENT` for each batch, or for each part of a large batch.

    - `may_share`: Whether batches may go to shared memory.

    Raises UnsupportedTypeError: one row has more bytes than an array of a JVM.
    """
    for batch in batches:
        for part, size in _parts(_compact(batch)):
            memory = shared_memory() if may_share and size >= SHARED_BYTES else None
            yield _shared(part, size, memory) or _sent(part, size, memory)


def _shared(batch: pa.RecordBatch, size: int, memory: SharedMemory | None) -> pa.RecordBatch | None:
    """Write a batch to shared memory, and return its row; None if it has to be sent."""
    if memory is None or not memory.is_mapped or size > PLACE_BYTES:
        return None
    place = memory.next_place()
    if place is None:
        return None
    offset, buffer = place
    _write(batch, pa.FixedSizeBufferWriter(buffer))
    return _row(_FILLER, memory, memory.number, offset, size)


def _sent(batch: pa.RecordBatch, size: int, memory: SharedMemory | None) -> pa.RecordBatch:
    if size > _MAX_ARRAY_BYTES:
        raise UnsupportedTypeError(
            "one row has more than 2 GiB, more than a batch of Spark can hold"
        )
    stream = pa.allocate_buffer(size)
    _write(batch, pa.FixedSizeBufferWriter(stream))
    return _row(stream, memory, 0, 0, 0)


def _row(
    stream: pa.Buffer, memory: SharedMemory | None, number: int, offset: int, length: int
) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, len(stream)], np.int32))
    values = [
        pa.array([memory and memory.name], pa.string()),
        pa.array([memory.id if memory else 0], pa.int64()),
        pa.array([number], pa.int64()),
        pa.array([offset], pa.int64()),
        pa.array([length], pa.int32()),
        pa.Array.from_buffers(pa.binary(), 1, [None, offsets, stream], 0),
    ]
    return pa.RecordBatch.from_arrays(values, schema=_SCHEMA)


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with columns that take fewer bytes.

    A column without values has the type null, and a decimal of at most 18 digits is its unscaled
    value.
    """
    # A batch without columns keeps its number of rows.
    if not (batch.num_rows and batch.num_columns):
        return batch
    columns = [_compact_column(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _compact_column(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column))
    if pat.is_decimal128(column.type) and column.type.precision <= LONG_DIGITS:
        return unscaled(column)
    return column


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield parts of a batch whose streams have at most `_MAX_STREAM_BYTES`, with their bytes."""
    counted = pa.MockOutputStream()
    _write(batch, counted)
    size = counted.size()
    if size > _MAX_STREAM_BYTES and batch.num_rows > 1:
        rows = max(1, batch.num_rows * _MAX_STREAM_BYTES // (2 * size))
        for start in range(0, batch.num_rows, rows):
            yield from _parts(batch.slice(start, rows))
        return
    yield batch, size


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)

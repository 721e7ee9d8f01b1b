"""Columnar scans: Spark gets batches of columns in place of rows.

Spark takes each value out of the batches of a Python source, and writes it into a row. The rule of
Spark's optimizer asks for whole batches instead, and hands them to Spark's generated code as
columns (`java/columns`). A batch travels as the only value of a row, of type binary: an Arrow
stream of its own, with its schema, its dictionaries, and one record batch.

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

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import types as spark

from lance_spark.errors import UnsupportedTypeError
from lance_spark.spark.pushdown.request import set_fields
from lance_spark.spark.types.arrow_buffers import LONG_DIGITS, unscaled

#: What a scan answers that returns columns.
YES = "yes"
#: Maximum number of bytes of a stream that has more than one row. The JVM copies each twice.
_MAX_STREAM_BYTES = 8 << 20
#: Bytes of the largest array of a JVM.
_MAX_ARRAY_BYTES = 2**31 - 64

#: The column of rows that hold a batch each.
BATCH = spark.StructField("batch", spark.BinaryType(), False)
_SCHEMA = pa.schema([pa.field(BATCH.name, pa.binary(), nullable=False)])
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

    Returns
    -------
    str
        `YES`, or the column that does not allow it.
    """
    obstacle = _obstacle(schema)
    if obstacle is None:
        set_fields(schema, [BATCH])
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


def streams(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row for each batch, whose value is an Arrow stream.

    Raises
    ------
    UnsupportedTypeError
        One row has more bytes than an array of a JVM.
    """
    for batch in batches:
        for stream in _streams(_compact(batch)):
            offsets = pa.py_buffer(np.array([0, len(stream)], np.int32))
            value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, stream], 0)
            yield pa.RecordBatch.from_arrays([value], schema=_SCHEMA)


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


def _streams(batch: pa.RecordBatch) -> Iterator[pa.Buffer]:
    counted = pa.MockOutputStream()
    _write(batch, counted)
    size = counted.size()
    if size > _MAX_STREAM_BYTES and batch.num_rows > 1:
        rows = max(1, batch.num_rows * _MAX_STREAM_BYTES // (2 * size))
        for start in range(0, batch.num_rows, rows):
            yield from _streams(batch.slice(start, rows))
        return
    if size > _MAX_ARRAY_BYTES:
        raise UnsupportedTypeError(
            "one row has more than 2 GiB, more than a batch of Spark can hold"
        )
    buffer = pa.allocate_buffer(size)
    _write(batch, pa.FixedSizeBufferWriter(buffer))
    yield buffer


def _write(batch: pa.RecordBatch, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)

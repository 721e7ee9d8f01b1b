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

import mmap
import os
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark

from lance_spark.encoding.blocks import is_short_decimal, unscaled, validity_bitmap
from lance_spark.errors import UnsupportedTypeError
from lance_spark.spark.pushdown.request import refused, set_fields
from lance_spark.spark.types.convert import (
    OffsetsTooLarge,
    list_window,
)
from lance_spark.spark.types.mapping import batch_schema

# --------------------------------------------------------------------------------------------------
# Memory that a worker of Spark shares with its JVM, for batches of columns.
#
# A batch that travels over a socket is copied into the kernel, out of it, and several times in the
# JVM. The JVM reads a batch in shared memory where the worker has written it. Only Linux has the
# file in memory that this needs; elsewhere all batches travel over the socket. A worker has one
# such file, which lives as long as the worker and every mapping of it.
#
# ```
# int64 at 0       id, chosen at random
# int64 at 8       1 when the JVM has mapped the memory
# int64 at 16      number of the last batch that the JVM has read
# from 4096 on     `PLACES` batches of at most `PLACE_BYTES`: batch `n` is in place `n % PLACES`
# ```
#
# The worker offers the memory with its first large batch. It uses the memory once the JVM has
# mapped it, which a setting may forbid. The worker writes to a place again when the JVM has read
# its batch. A worker that waits longer than `PATIENCE` seconds sends the batch over the socket,
# where Spark stops it if the JVM wants no more rows.

PLACES = 3
PLACE_BYTES = 4 << 20
#: Seconds that a worker waits for a place.
PATIENCE = 1.0
#: Seconds between two looks at the number of the last batch that the JVM has read: first, and at
#: most. Each pause is twice as long as the pause before it.
_PAUSE, _LONGEST_PAUSE = 0.0001, 0.002

_ID, _MAPPED, _READ = range(3)
_FIRST_PLACE = 4096


class SharedMemory:
    """The memory of a worker.

    - `name`: Name of the file, by which the JVM maps it.
    - `id`: Differs from the id of an earlier process whose memory had the same name.
    - `number`: Number of the last batch.

    Raises OSError: the system has no such memory.
    """

    def __init__(self) -> None:
        size = _FIRST_PLACE + PLACES * PLACE_BYTES
        self._file = os.memfd_create("lance_spark", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._file, size)
            _seal(self._file)
            self._bytes = memoryview(mmap.mmap(self._file, size))
        except BaseException:
            os.close(self._file)
            raise
        self._header = np.frombuffer(self._bytes, np.int64, 3)
        self.name = f"/proc/{os.getpid()}/fd/{self._file}"
        self.id = int.from_bytes(os.urandom(8), "little", signed=True)
        self._header[_ID] = self.id
        self.number = 0

    @property
    def is_mapped(self) -> bool:
        """Whether the JVM has mapped the memory."""
        return bool(self._header[_MAPPED])

    def next_place(self) -> tuple[int, pa.Buffer] | None:
        """Return the offset of the next batch, and the memory for it; None if none became free.

        `number` is the number of the batch then.
        """
        deadline, pause = time.monotonic() + PATIENCE, _PAUSE
        while self._header[_READ] < self.number + 1 - PLACES:
            if time.monotonic() > deadline:
                return None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self.number += 1
        offset = _FIRST_PLACE + self.number % PLACES * PLACE_BYTES
        return offset, pa.py_buffer(self._bytes[offset : offset + PLACE_BYTES])


def _seal(file: int) -> None:
    """Forbid all processes to change the size: a read past the end would end the JVM."""
    import fcntl

    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)


#: The memory of a process by its id: a forked process must not write into its parent's.
_memories: dict[int, SharedMemory | None] = {}


def shared_memory() -> SharedMemory | None:
    """Return the memory of this process, made by the first call; None if the system has none."""
    process = os.getpid()
    if process not in _memories:
        try:
            _memories[process] = SharedMemory()
        except (AttributeError, OSError):
            # Another system than Linux, or one that forbids such files.
            _memories[process] = None
    return _memories[process]


# --------------------------------------------------------------------------------------------------
# Packed arrays: arrays of numbers that travel to Spark as the bytes of their items.
#
# Spark reads the items of an array from Arrow's vectors one by one, but copies a binary value at
# once. The rule of Spark's optimizer asks for bytes and makes arrays of them (`Packing.java`). A
# packed column becomes two columns, of which the second follows after all others:
#
# | column | in batches without null items | in other batches |
# | --- | --- | --- |
# | the column's name | the items' bytes, little-endian; null for a null array | null |
# | `__lance_items_0`, `__lance_items_1`, ... | null | the array |
#
# The bytes are the bytes of Arrow's buffers. Only offsets are computed.

#: Prefix of the names of the columns that follow after all others.
ITEMS = "__lance_items_"

_INT32_MAX = 2**31 - 1
_NUMBERS = (
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.FloatType,
    spark.DoubleType,
)


def pack(schema: spark.StructType, names: Sequence[str]) -> None:
    """Pack columns of a schema in place.

    Raises UnsupportedError: a named column is not an array of numbers.
    """
    fields = list(schema.fields)
    items: list[spark.StructField] = []
    for name in names:
        index = schema.names.index(name) if name in schema.names else -1
        if index < 0 or not _is_packable(fields[index].dataType):
            raise refused("a packed column is not an array of numbers", name)
        items.append(spark.StructField(f"{ITEMS}{len(items)}", fields[index].dataType))
        fields[index] = spark.StructField(name, spark.BinaryType(), True, fields[index].metadata)
    set_fields(schema, [*fields, *items])


def packed(batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches with some of their columns packed.

    A batch whose bytes are more than 32-bit offsets can address is split.

    - `names`: Names of columns that are lists of numbers.
    """
    for batch in batches:
        yield from _packed(batch, names)


def _packed(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    columns, fields = list(batch.columns), list(batch.schema)
    try:
        for number, name in enumerate(names):
            index = batch.schema.get_field_index(name)
            array = columns[index]
            packed_array = _bytes_of(array)
            if packed_array is None:
                columns[index] = pa.nulls(len(array), pa.binary())
                columns.append(array)
            else:
                columns[index] = packed_array
                columns.append(pa.nulls(len(array), array.type))
            fields[index] = pa.field(name, pa.binary())
            fields.append(pa.field(f"{ITEMS}{number}", array.type))
    except OffsetsTooLarge:
        half = batch.num_rows // 2
        yield from _packed(batch.slice(0, half), names)
        yield from _packed(batch.slice(half), names)
        return
    # Spark refuses columns that may be null where the schema says that they are not.
    yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _bytes_of(array: pa.Array) -> pa.Array | None:
    """Return the bytes of each list; None if an item of any list is null."""
    offsets, first, last = list_window(array)
    items = array.values.slice(first, last - first)
    if items.null_count:
        return None
    width = items.type.bit_width // 8
    if (last - first) * width > _INT32_MAX:
        if len(array) > 1:
            raise OffsetsTooLarge
        return None
    data = items.buffers()[1]
    if data is not None:
        data = data.slice(items.offset * width, len(items) * width)
    ends = pa.py_buffer(np.frombuffer(offsets, np.int32, len(array) + 1) * np.int32(width))
    return pa.Array.from_buffers(
        pa.binary(), len(array), [validity_bitmap(array), ends, data], array.null_count
    )


def _is_packable(data_type: spark.DataType) -> bool:
    return isinstance(data_type, spark.ArrayType) and isinstance(data_type.elementType, _NUMBERS)


# --------------------------------------------------------------------------------------------------
# Columnar scans: Spark gets batches of columns in place of rows.

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
    if is_short_decimal(column.type):
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

"""Batches that the JVM puts together itself, in place of the rows that Spark would convert.

Each is the only value of a row, in a column of type binary (`BatchBuilder.java`):

======  ==========================================================================
int64   rows of the batch
int64   number of columns C, children included, depth first
int64   number of buffers B
int64   for each of C: its number of values, its number of nulls
int64   for each of B: where it begins in the value, its number of bytes
bytes   the buffers, each from a multiple of 64 bytes on
======  ==========================================================================

The buffers of a column are the buffers of an Arrow array: validity (empty without nulls), 32-bit
offsets, values. A map has its keys and its values as children. Arrays share the bytes of the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import LanceError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: The column that holds a batch.
BATCH = "__lance_batch"
_HEADER = 3


def received(
    batches: Iterator[pa.RecordBatch], schema: StructType | None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches that a task of a write receives.

    - `schema`: Columns of the rows; None if Spark has converted them.

    Raises LanceError: a batch is malformed.
    """
    types: pa.Schema | None = None
    for batch in batches:
        if schema is None or batch.schema.names != [BATCH]:
            yield batch
            continue
        if types is None:
            from lance_spark.spark.types.mapping import batch_schema

            types = batch_schema(schema)
        for value in batch.column(0):
            yield decode(value.as_buffer(), types)


def decode(value: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch of a value, which shares its bytes.

    Raises LanceError: the value is malformed.
    """
    words = np.frombuffer(value, np.int64, value.size // 8)
    if len(words) < _HEADER or words[:_HEADER].min() < 0:
        raise _malformed("it is shorter than its header")
    rows, columns, buffers = words[:_HEADER].tolist()
    header = words[_HEADER : _HEADER + 2 * (columns + buffers)]
    if len(header) != 2 * (columns + buffers):
        raise _malformed("it is shorter than its header")
    pairs = header.reshape(-1, 2)
    places = pairs[columns:]
    if places.size and (places.min() < 0 or (places[:, 0] + places[:, 1]).max() > value.size):
        raise _malformed("a buffer lies outside")
    parts = _ArrayParts(value, iter(pairs[:columns].tolist()), iter(places.tolist()))
    try:
        arrays = [parts.array(field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (StopIteration, pa.ArrowInvalid) as error:
        raise _malformed(str(error) or "it lacks a column") from error
    if any(len(array) != rows for array in arrays):
        raise _malformed(f"it has {rows} rows, and a column has another number of values")
    return batch


class _ArrayParts:
    """Makes arrays of the nodes and buffers of a value, in their order."""

    def __init__(
        self, value: pa.Buffer, nodes: Iterator[list[int]], buffers: Iterator[list[int]]
    ) -> None:
        self._value = value
        self._nodes = nodes
        self._buffers = buffers

    def array(self, dtype: pa.DataType) -> pa.Array:
        count, nulls = next(self._nodes)
        if pat.is_null(dtype):
            return pa.nulls(count)
        validity = self._buffer()
        buffers = [validity if nulls else None]
        if pat.is_struct(dtype):
            children = [self.array(field.type) for field in dtype]
        elif pat.is_map(dtype):
            buffers.append(self._buffer())
            children = [self._entries(dtype)]
        elif pat.is_list(dtype):
            buffers.append(self._buffer())
            children = [self.array(dtype.value_type)]
        else:
            if pat.is_string(dtype) or pat.is_binary(dtype):
                buffers.append(self._buffer())
            buffers.append(self._buffer())
            children = []
        return pa.Array.from_buffers(dtype, count, buffers, nulls, children=children)

    def _entries(self, dtype: pa.MapType) -> pa.Array:
        keys, values = self.array(dtype.key_type), self.array(dtype.item_type)
        entries = pa.struct([dtype.key_field, dtype.item_field])
        return pa.Array.from_buffers(entries, len(keys), [None], 0, children=[keys, values])

    def _buffer(self) -> pa.Buffer:
        start, size = next(self._buffers)
        return self._value.slice(start, size)


def _malformed(problem: str) -> LanceError:
    return LanceError(
        f"a batch that the JVM sent to a writer cannot be read: {problem}; set "
        "spark.lance.columnar.enabled to false, and check that the driver and the workers have the "
        "same release of lance-spark"
    )

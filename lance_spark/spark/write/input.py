"""The way of Spark's batches to a writer of the table: converted, and written on a second thread.

Names in Spark have the case of the query, timestamps have the zone of the session, and lists may
lack their offsets.

The second thread writes while the next batches arrive, and lives as long as the task. Waiting
batches are bounded in bytes, so a slow store slows Spark down instead of filling memory. The next
call of the task raises an error of the writer, once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import LanceError, SchemaMismatchError
from lance_spark.file.arrays import batch_with_offsets, with_offsets
from lance_spark.file.blobs.fields import with_blobs_as_in
from lance_spark.spark.types.convert import BatchConverter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


# --------------------------------------------------------------------------------------------------
# Batches that the JVM puts together itself, in place of the rows that Spark would convert.
#
# Each is the only value of a row, in a column of type binary (`BatchBuilder.java`):
#
# ======  ==========================================================================
# int64   rows of the batch
# int64   number of columns C, children included, depth first
# int64   number of buffers B
# int64   for each of C: its number of values, its number of nulls
# int64   for each of B: where it begins in the value, its number of bytes
# bytes   the buffers, each from a multiple of 64 bytes on
# ======  ==========================================================================
#
# The buffers of a column are the buffers of an Arrow array: validity (empty without nulls), 32-bit
# offsets, values. A map has its keys and its values as children. Arrays share the bytes of the
# value.

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


# --------------------------------------------------------------------------------------------------
# The way of Spark's batches to a writer of the table: converted, and written on a second thread.

#: Bound of the bytes of waiting batches: several batches of Spark arrive while a page is encoded.
MAX_WAITING_BYTES = 32 * 1024 * 1024


class InputConverter:
    """Converts the batches of one task.

    - `target`: Columns of the writer; columns that are not in `names` are left out.
    - `fill_children`: As of `BatchConverter`.

    Raises SchemaMismatchError: a target column does not exist.
    """

    def __init__(
        self, target: pa.Schema, names: Sequence[str], *, fill_children: bool = False
    ) -> None:
        known = set(target.names)
        missing = [name for name in names if name not in known]
        if missing:
            raise SchemaMismatchError(
                f"column {missing[0]!r} not found in the target, which has "
                f"{', '.join(target.names)}"
            )
        self._target = target
        self._names = list(names)
        self._fill_children = fill_children
        self._source: pa.Schema | None = None
        self._convert: BatchConverter | None = None

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch, as one or more batches.

        Raises SchemaMismatchError: the type of a column cannot be converted. Raises
        InvalidInputError: a value does not fit the type of the table.
        """
        if self._convert is None or self._source is None:
            self._source = pa.schema(
                field.with_name(name) for field, name in zip(batch.schema, self._names, strict=True)
            )
            wanted = set(self._names)
            target = pa.schema([item for item in self._target if item.name in wanted])
            target = with_blobs_as_in(target, self._source)
            self._convert = BatchConverter(
                self._source, target, reading=False, fill_children=self._fill_children
            )
        columns = [with_offsets(column) for column in batch.columns]
        yield from self._convert(pa.RecordBatch.from_arrays(columns, schema=self._source))


class BackgroundWriter:
    """Calls `write` for each batch on another thread, in order.

    A context manager: its exit without an error waits until all batches are written.

    - `write`: Writes a batch. Only the second thread calls it.
    - `max_waiting_bytes`: A batch is accepted as long as fewer bytes wait.
    """

    def __init__(
        self, write: Callable[[pa.RecordBatch], None], max_waiting_bytes: int = MAX_WAITING_BYTES
    ) -> None:
        self._write = write
        self._max_bytes = max_waiting_bytes
        self._waiting: deque[pa.RecordBatch] = deque()
        self._bytes = 0
        self._closed = False
        self._abandoned = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="lance-write", daemon=True)

    def __enter__(self) -> BackgroundWriter:
        self._thread.start()
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        with self._changed:
            self._closed = True
            self._abandoned = error is not None
            self._changed.notify_all()
        self._thread.join()
        if error is None:
            self._raise()

    def put(self, batch: pa.RecordBatch) -> None:
        """Queue a batch; waits while too many bytes wait.

        Raises Exception: the error of `write` for an earlier batch.
        """
        batch = batch_with_offsets(batch)
        with self._changed:
            while self._bytes >= self._max_bytes and self._error is None:
                self._changed.wait()
            self._raise()
            self._waiting.append(batch)
            self._bytes += batch.nbytes
            self._changed.notify_all()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._closed):
                    self._changed.wait()
                if self._abandoned or not self._waiting:
                    return
                batch = self._waiting.popleft()
            size = batch.nbytes
            try:
                self._write(batch)
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._waiting.clear()
                    self._changed.notify_all()
                return
            # The next batch may arrive, so this one must be gone.
            del batch
            with self._changed:
                self._bytes -= size
                self._changed.notify_all()

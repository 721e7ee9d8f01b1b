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

import pyarrow as pa

from lance_spark.errors import SchemaMismatchError
from lance_spark.file.blobs.fields import with_blobs_as_in
from lance_spark.file.offsets import batch_with_offsets, with_offsets
from lance_spark.spark.types.convert import BatchConverter

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
        missing = [name for name in names if name not in target.names]
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

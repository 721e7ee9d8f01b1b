"""Writes batches on a second thread, while the next batches arrive.

The thread lives as long as the task. Waiting batches are bounded in bytes, so a slow store slows
Spark down instead of filling memory. The next call of the task raises an error of the writer, once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

import pyarrow as pa

from lance_spark.file.offsets import batch_with_offsets

#: Bound of the bytes of waiting batches: several batches of Spark arrive while a page is encoded.
MAX_WAITING_BYTES = 32 * 1024 * 1024


class BackgroundWriter:
    """Calls `write` for each batch on another thread, in order.

    A context manager: its exit without an error waits until all batches are written.

    Parameters
    ----------
    write : callable
        Writes a batch. Only the second thread calls it.
    max_waiting_bytes : int
        A batch is accepted as long as fewer bytes wait.
    """

    def __init__(
        self,
        write: Callable[[pa.RecordBatch], None],
        max_waiting_bytes: int = MAX_WAITING_BYTES,
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

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._closed = True
            self._abandoned = error_type is not None
            self._changed.notify_all()
        self._thread.join()
        if error is None:
            self._raise()

    def put(self, batch: pa.RecordBatch) -> None:
        """Queue a batch; waits while too many bytes wait.

        Raises
        ------
        Exception
            The error of `write` for an earlier batch.
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
            try:
                self._write(batch)
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._waiting.clear()
                    self._changed.notify_all()
                return
            with self._changed:
                self._bytes -= batch.nbytes
                self._changed.notify_all()

"""Prefetch: bytes of the next windows, and the next piece of a scan by a thread.

`prefetched` requests the bytes of the next windows while one is decoded. `read_ahead` fetches and
decodes the next piece while the consumer is busy. Its thread starts once a piece took long to make,
as on a remote store. It makes at most one piece while another waits, so that a scan holds two
pieces besides those that the consumer keeps. From then on only the thread advances the iterator.
It ends when the iterator ends or fails, or when the consumer stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from threading import Condition, Thread
from time import perf_counter_ns
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.open import DataFileReader
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field

#: Bytes that are prefetched beyond the window in work, and one window more: as many requests as run
#: at the same time, of their usual length.
AHEAD_BYTES = 24 * 1024 * 1024
#: A window with a larger part of deleted rows is not read from end to end, and not prefetched.
_MAX_DELETED = 1 / 8
#: An item that takes less time is not worth a thread. Vectors of a local file are views of it, and
#: numbers are decoded as fast as they are written to a socket, which takes turns with the thread.
WORTH_NS = 20_000_000

T = TypeVar("T")


class StoredFields(NamedTuple):
    """Fields that a data file holds, and the column of each by the field's id."""

    file: DataFileReader
    fields: Sequence[Field]
    columns: Mapping[int, int]


def prefetched(
    windows: Iterable[range],
    stored: Iterable[StoredFields],
    deleted: RowNumbers,
    most_bytes: int = AHEAD_BYTES,
) -> Iterator[range]:
    """Yield windows; request the bytes of the following windows before each.

    - `windows`: In order, without overlap. The caller reads each before it asks for the next.
    - `stored`: The fields that are read of each window.
    - `deleted`: Deleted rows, increasing.
    - `most_bytes`: Bytes that are prefetched beyond the window in work, and one window more.
    """
    files = [(fields.file, fields) for fields in stored if isinstance(fields.file, FileReader)]
    waiting: deque[tuple[range, int]] = deque()
    prefetched_bytes = 0
    for window in windows:
        num_deleted = int(np.diff(np.searchsorted(deleted, [window.start, window.stop]))[0])
        rows = window if num_deleted <= len(window) * _MAX_DELETED else range(0)
        size = sum(
            file.expect(file_columns.fields, rows, file_columns.columns)
            for file, file_columns in files
        )
        prefetched_bytes += size if waiting else 0
        waiting.append((window, size))
        while len(waiting) > 1 and prefetched_bytes >= most_bytes:
            yield waiting.popleft()[0]
            prefetched_bytes -= waiting[0][1]
            for file, _ in files:
                file.finish()
    for window, _ in waiting:
        yield window
        for file, _ in files:
            file.finish()


def read_ahead(
    pieces: Generator[T, None, None], worth_ns: int = WORTH_NS
) -> Generator[T, None, None]:
    """Yield the items of a generator. After an item that took long, a thread makes the others.

    The calling thread makes the first item, so that a generator of one item starts no thread.

    - `pieces`: It is always closed. If this iterator is closed early, the item in work is finished
      first.
    - `worth_ns`: The time of one item, in nanoseconds, from which on a thread is used.

    Raises BaseException: the generator raised it; the items before it are yielded first.
    """
    maker: _Maker[T] | None = None
    try:
        while maker is None:
            begun = perf_counter_ns()
            item = next(pieces, None)
            if item is None:
                return
            if perf_counter_ns() - begun >= worth_ns:
                maker = _Maker(pieces)
                maker.start()
            yield item
            del item
        yield from maker.items()
    finally:
        if maker is None:
            pieces.close()
        else:
            maker.stop()


class _Maker(Thread, Generic[T]):
    """The thread that makes the next item."""

    def __init__(self, pieces: Generator[T, None, None]) -> None:
        super().__init__(name="lance-read-ahead", daemon=True)
        self._pieces = pieces
        self._changed = Condition()
        self._ready: list[T] = []
        self._ended = self._stopped = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make items until the generator ends or `stop` is called."""
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or not self._ready)
                    if self._stopped:
                        break
                item = next(self._pieces, None)
                if item is None:
                    break
                with self._changed:
                    self._ready.append(item)
                    self._changed.notify_all()
                del item
        except BaseException as error:
            self._error = error
        finally:
            try:
                self._pieces.close()
            except BaseException as error:
                self._error = self._error or error
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def items(self) -> Iterator[T]:
        """Yield the items, in the thread of the consumer."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._ready)
                if not self._ready:
                    break
                item = self._ready.pop()
                self._changed.notify_all()
            yield item
            del item
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Wait for the item in work, and for the generator to be closed."""
        with self._changed:
            self._stopped = True
            self._ready.clear()
            self._changed.notify_all()
        self.join()

"""Prefetch: bytes of the next windows, and the next piece of a scan by a thread.

`prefetched` requests the bytes of the next windows while one is decoded. `read_ahead` fetches and
decodes the next piece while the consumer is busy. Its thread starts once a piece took long to make,
as on a remote store. It makes at most one piece while another waits, so that a scan holds two
pieces besides those that the consumer keeps. From then on only the thread advances the iterator.
It ends when the iterator ends or fails, or when the consumer stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from threading import Condition, Thread
from time import perf_counter_ns
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.open import DataFileReader
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.storage.scheduler import Reader, reading_for

# --------------------------------------------------------------------------------------------------
# Parts of a scan that are read at the same time, and returned in order.
#
# The requests for one fragment wait for each other: its footer tells where the pages are, and its
# filters which rows are read. Requests for several fragments do not, so on a remote store each of
# the next fragments has a thread, which reads until it has one batch. It goes on when the consumer
# has taken the batch.
#
# Memory is bounded: before a thread reads values, it asks for their bytes. It waits while the parts
# after the one in turn have more than `most_bytes` together; the part in turn never waits.

#: Most parts that are read at the same time.
AT_ONCE = 16

T = TypeVar("T")

#: Asks for the bytes that a part will hold, and waits until they are free.
Admit = Callable[[int], None]
#: Reads a part.
PartReader = Callable[[Admit], Iterator[T]]


class _ConsumerStoppedError(Exception):
    """The consumer needs no more items."""


class _Slot(Generic[T]):
    """A part that is read, or has an item that the consumer has not taken."""

    def __init__(self, part: PartReader[T]) -> None:
        self.part = part
        self.items: list[T] = []
        self.num_bytes = 0
        self.is_ended = False
        self.error: BaseException | None = None


def in_order(
    parts: Iterable[PartReader[T]], most_bytes: int, at_once: int, nbytes: Callable[[T], int]
) -> Iterator[T]:
    """Yield the items of parts as `parts_ahead` does, or one part after the other without threads.

    - `at_once`: 1 for a store that is read without threads.
    """
    if at_once > 1:
        return parts_ahead(parts, most_bytes, at_once, nbytes)
    return (item for part in parts for item in part(_admit_all))


def _admit_all(_: int) -> None:
    """Admit any number of bytes."""


def parts_ahead(
    parts: Iterable[PartReader[T]],
    most_bytes: int,
    at_once: int = AT_ONCE,
    nbytes: Callable[[T], int] | None = None,
) -> Generator[T, None, None]:
    """Yield the items of parts in order; the next parts are read by threads meanwhile.

    - `parts`: Each makes an iterator, which one thread advances. Consumed one by one.
    - `most_bytes`: Bytes that the parts after the one in turn may hold together.
    - `at_once`: Most threads.
    - `nbytes`: Returns the bytes of an item; by default its `nbytes`.

    Raises BaseException: a part raised it; the items before it are yielded first. No further part
    begins.
    """
    reading = _Reading(iter(parts), most_bytes, nbytes or _nbytes)
    threads = [Thread(target=reading.work, name="lance-read-ahead", daemon=True)]
    threads[0].start()
    try:
        while (slot := reading.in_turn()) is not None:
            # A scan of one part has one thread.
            while len(threads) < at_once and reading.wants_threads:
                threads.append(Thread(target=reading.work, name="lance-read-ahead", daemon=True))
                threads[-1].start()
            while (item := reading.take(slot)) is not None:
                yield item
                del item
            reading.finish(slot)
    finally:
        reading.stop()
        for thread in threads:
            thread.join()


class _Reading(Generic[T]):
    """The state that the consumer and the threads share."""

    def __init__(
        self, parts: Iterator[PartReader[T]], most_bytes: int, nbytes: Callable[[T], int]
    ) -> None:
        self._parts = parts
        self._most_bytes = most_bytes
        self._nbytes = nbytes
        self._changed = Condition()
        self._slots: deque[_Slot[T]] = deque()
        self._next: PartReader[T] | None = None
        self._is_over = False
        self._is_stopped = False
        self._reader = Reader()
        self._error: BaseException | None = None

    @property
    def wants_threads(self) -> bool:
        """Whether a part waits for a thread."""
        with self._changed:
            return self._peek() is not None

    def in_turn(self) -> _Slot[T] | None:
        """Return the oldest part; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._slots or self._is_over)
            if self._slots:
                return self._slots[0]
            if self._error is not None:
                raise self._error
            return None

    def take(self, slot: _Slot[T]) -> T | None:
        """Return the next item of the part in turn; None after the last."""
        with self._changed:
            self._changed.wait_for(lambda: slot.items or slot.is_ended)
            if slot.items:
                item = slot.items.pop()
                self._changed.notify_all()
                return item
        if slot.error is not None:
            raise slot.error
        return None

    def finish(self, slot: _Slot[T]) -> None:
        """Go on to the next part."""
        with self._changed:
            self._slots.remove(slot)
            self._changed.notify_all()

    def stop(self) -> None:
        """Let the threads end."""
        self._reader.is_stopped = True
        with self._changed:
            self._is_stopped = self._is_over = True
            self._changed.notify_all()

    def work(self) -> None:
        """Read parts, in a thread of its own."""
        with reading_for(self._reader):
            while (slot := self._begin()) is not None:
                self._read(slot)

    def _peek(self) -> PartReader[T] | None:
        """Return the next part, which has no thread yet. The caller holds the lock."""
        if self._next is None and not self._is_over:
            try:
                self._next = next(self._parts, None)
            except BaseException as error:
                self._error = error
            if self._next is None:
                self._is_over = True
                self._changed.notify_all()
        return self._next

    def _begin(self) -> _Slot[T] | None:
        with self._changed:
            part = self._peek()
            if part is None or self._is_stopped:
                return None
            self._next = None
            slot = _Slot(part)
            self._slots.append(slot)
            self._changed.notify_all()
            return slot

    def _read(self, slot: _Slot[T]) -> None:
        items: Any = None
        try:
            items = iter(slot.part(lambda size: self._admit(slot, size)))
            for item in items:
                self._put(slot, item)
                del item
                self._wait_for_consumer(slot)
        except _ConsumerStoppedError:
            pass
        except BaseException as error:
            slot.error = error
        finally:
            try:
                if isinstance(items, Generator):
                    items.close()
            except BaseException as error:
                slot.error = slot.error or error
            with self._changed:
                slot.is_ended = True
                slot.num_bytes = sum(map(self._nbytes, slot.items))
                # The parts after an error would be read in vain.
                self._is_over = self._is_over or slot.error is not None
                self._changed.notify_all()

    def _put(self, slot: _Slot[T], item: T) -> None:
        with self._changed:
            slot.items.append(item)
            self._changed.notify_all()

    def _wait_for_consumer(self, slot: _Slot[T]) -> None:
        """Wait until the item is taken, before the part makes the next one."""
        with self._changed:
            # The part in turn makes an item while the consumer works on the one before.
            self._changed.wait_for(lambda: self._is_stopped or not slot.items)
            self._check_stopped()

    def _admit(self, slot: _Slot[T], size: int) -> None:
        with self._changed:
            slot.num_bytes += size
            self._changed.wait_for(lambda: self._is_stopped or self._fits(slot))
            self._check_stopped()

    def _fits(self, slot: _Slot[T]) -> bool:
        """Return whether the parts up to one, without the one in turn, have few enough bytes."""
        if slot is self._slots[0]:
            return True
        total = 0
        for other in self._slots:
            if other is not self._slots[0]:
                total += other.num_bytes
            if other is slot:
                break
        return total <= self._most_bytes

    def _check_stopped(self) -> None:
        if self._is_stopped:
            raise _ConsumerStoppedError


def _nbytes(item: Any) -> int:
    return int(item.nbytes)


# --------------------------------------------------------------------------------------------------
# Prefetch: bytes of the next windows, and the next piece of a scan by a thread.

#: Bytes that are prefetched beyond the window in work, and one window more: as many requests as run
#: at the same time, of their usual length.
AHEAD_BYTES = 24 * 1024 * 1024
#: A window with a larger part of deleted rows is not read from end to end, and not prefetched.
_MAX_DELETED = 1 / 8
#: An item that takes less time is not worth a thread. Vectors of a local file are views of it, and
#: numbers are decoded as fast as they are written to a socket, which takes turns with the thread.
WORTH_NS = 20_000_000


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

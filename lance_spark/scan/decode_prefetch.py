"""Prefetch by a thread: it fetches and decodes the next piece of a scan while the consumer is busy.

The thread starts once a piece took long to make, as on a remote store. It makes at most one piece
while another waits, so that a scan holds two pieces besides those that the consumer keeps. From
then on only the thread advances the iterator. It ends when the iterator ends or fails, or when the
consumer stops.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Condition, Thread
from time import perf_counter_ns
from typing import Generic, TypeVar

T = TypeVar("T")

#: An item that takes less time is not worth a thread. Vectors of a local file are views of it, and
#: numbers are decoded as fast as they are written to a socket, which takes turns with the thread.
WORTH_NS = 20_000_000


def read_ahead(
    pieces: Generator[T, None, None], worth_ns: int = WORTH_NS
) -> Generator[T, None, None]:
    """Yield the items of a generator. Once an item took long, a thread makes the next ones.

    The calling thread makes the first item, so that a generator of one item starts no thread.

    Parameters
    ----------
    pieces : generator
        It is always closed. If this iterator is closed early, the item in work is finished first.
    worth_ns : int
        The time of one item, in nanoseconds, from which on a thread is used.

    Raises
    ------
    BaseException
        The generator raised it; the items before it are yielded first.
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

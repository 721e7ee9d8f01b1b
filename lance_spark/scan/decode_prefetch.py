"""Reading ahead: the next piece of a scan is fetched and decoded by a thread while the consumer is busy with the one before.

The thread is started once a piece took long to make, as from a far store it does. It makes one piece at most while another waits to be
taken, so that a scan holds two besides what the consumer keeps. From then on it is the only one that works with the iterator, and ends
when that does, or fails, or the consumer stops.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Condition, Thread
from time import perf_counter_ns
from typing import Generic, TypeVar

T = TypeVar("T")

#: An item that is made in less time than this is not worth a thread: vectors of a local file are views of it, and numbers are decoded as
#: fast as they are written to a socket, which is done in turns with another thread.
WORTH_NS = 20_000_000


def read_ahead(
    pieces: Generator[T, None, None], worth_ns: int = WORTH_NS
) -> Generator[T, None, None]:
    """Yield what a generator yields, and let a thread make the next item meanwhile, once one took long.

    The first item is made by the caller, so that a generator of one item costs no waiting for a thread.

    Parameters
    ----------
    pieces : generator
        It is closed in any case; when this iterator is closed early, it is after the item in work.
    worth_ns : int
        How long.

    Raises
    ------
    BaseException
        Whatever the generator raises, after the items before it.
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
    """Makes items one ahead."""

    def __init__(self, pieces: Generator[T, None, None]) -> None:
        super().__init__(name="lance-read-ahead", daemon=True)
        self._pieces = pieces
        self._changed = Condition()
        self._ready: list[T] = []
        self._ended = self._stopped = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make items until there are no more, or nobody wants them."""
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
        """Yield the items."""
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

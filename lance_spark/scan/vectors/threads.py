"""Computations in some threads of this process. numpy releases the interpreter's lock."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: The most threads of a process, on machines with many processors.
_MAX_THREADS = 16
_LOCAL = threading.local()


def num_threads() -> int:
    """Return how many threads a computation takes.

    It is the number in the variable `OMP_NUM_THREADS`, which Spark sets in its workers, or else
    that of the processors.
    """
    # OpenMP takes a number for each level of nested loops.
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    number = int(first) if first.isdecimal() else num_processors()
    return max(1, min(number, _MAX_THREADS))


def each(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield the result of each item, in order. Items are taken while others are computed.

    At most one item more than there are threads is in memory. A function that is called by a
    thread of another such computation has this thread only.
    """
    count = num_threads()
    if count == 1 or getattr(_LOCAL, "is_busy", False):
        yield from map(function, items)
        return
    with ThreadPoolExecutor(count, initializer=_mark_busy) as pool:
        running: deque[Future[_Result]] = deque()
        try:
            for item in items:
                running.append(pool.submit(function, item))
                if len(running) > count:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _mark_busy() -> None:
    _LOCAL.is_busy = True


def num_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Makes a run of a seed equal each time: threads, clock and random bytes of the package come from
the schedule.

| in the package | in schedules |
| --- | --- |
| a pool of threads | workers that take turns; or, in some schedules, nothing but the thread that asks |
| coroutines of uploads, in the loop of s3fs | one such thread for each |
| the thread that reads ahead | one such thread, if what it makes takes long by the clock of the schedule |
| threads that read fragments at the same time | such threads, or none |
| requests for ranges of files | workers of such a pool, also of stores with an event loop |
| `Future.result`, `wait` | let others go on |

Locks stay real ones: none of the package's is held during a call to a store. Sets of strings have
an order of their own in each process, so that a schedule is the same only where PYTHONHASHSEED is.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar
from unittest import mock

from lance_spark.scan import prefetch
from lance_spark.scan import prefetch as ahead
from lance_spark.storage.kept_ranges import KEPT
from lance_spark.storage.scheduler import ReadRequest, Scheduler
from tests.faults.schedule import Schedule, StoppedError


class Turns:
    """The schedule of this process: pools live longer than schedules do, and threads are made by
    what knows of none.

    Attributes
    ----------
    schedule : Schedule
    threads : bool
        Whether threads of operations take turns.
    """

    schedule: ClassVar[Schedule] = Schedule(0)
    threads: ClassVar[bool] = False

    @classmethod
    def taken(cls) -> bool:
        """Return whether threads take turns: calls of the checker are not part of the schedule."""
        return cls.threads and cls.schedule.running is not None


class _Future(Future[Any]):
    """Lets other threads run while a thread waits for the result."""

    def result(self, timeout: float | None = None) -> Any:
        Turns.schedule.wait_for(self.done)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        Turns.schedule.wait_for(self.done)
        return super().exception(timeout)


def _fill(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except StoppedError:
        raise
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class Pool(Executor):
    """Threads that take turns. They end when they have nothing to do, and are started again
    later.
    """

    def __init__(self, max_workers: int | None = None, *_: object, **__: object) -> None:
        self._most = max_workers or 4
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._working = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = _Future()

        def work() -> Any:
            return fn(*args, **kwargs)

        if not Turns.taken():
            _fill(future, work)
            return future
        self._waiting.append((future, work))
        if self._working < self._most:
            self._working += 1
            Turns.schedule.spawn(self._work)
        return future

    def _work(self) -> None:
        try:
            while self._waiting:
                future, work = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    _fill(future, work)
        finally:
            self._working -= 1

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        if Turns.taken():
            return super().map(fn, *iterables)
        futures = [self.submit(fn, *args) for args in zip(*iterables, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        while cancel_futures and self._waiting:
            future, _ = self._waiting.popleft()
            future.cancel()
            future.set_running_or_notify_cancel()
        if wait:
            Turns.schedule.wait_for(lambda: not self._working)


_own_wait = concurrent.futures.wait


def _wait(futures: Any, timeout: float | None = None, return_when: str = "ALL_COMPLETED") -> Any:
    known = list(futures)
    enough = all if return_when == concurrent.futures.ALL_COMPLETED else any
    Turns.schedule.wait_for(lambda: not known or enough(future.done() for future in known))
    return _own_wait(known, timeout, return_when)


class _Asyncio:
    """Replaces the module asyncio: coroutines wait only for futures, the store and the clock."""

    @staticmethod
    def run_coroutine_threadsafe(coroutine: Coroutine[Any, Any, Any], _: object) -> Future[Any]:
        future = _Future()

        def run() -> Any:
            try:
                coroutine.send(None)
            except StopIteration as ended:
                return ended.value
            raise AssertionError("the coroutine waits for something unknown")

        if Turns.taken():
            Turns.schedule.spawn(lambda: _fill(future, run))
        else:
            _fill(future, run)
        return future

    @staticmethod
    async def wrap_future(future: Future[Any]) -> Any:
        return future.result()

    @staticmethod
    async def sleep(seconds: float) -> None:
        Turns.schedule.sleep(seconds)


class _Changed:
    """Replaces `Condition`: one thread runs at a time."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def wait_for(self, condition: Callable[[], Any]) -> None:
        Turns.schedule.wait_for(lambda: bool(condition()))

    def notify_all(self) -> None:
        pass


def _nanoseconds() -> int:
    return int(Turns.schedule.now * 1e9)


class _Thread:
    """Replaces `Thread`."""

    def __init__(self, target: Callable[[], None], **_: object) -> None:
        self._target = target
        self._is_ended = False

    def start(self) -> None:
        def run() -> None:
            try:
                self._target()
            finally:
                self._is_ended = True

        Turns.schedule.spawn(run)

    def join(self) -> None:
        Turns.schedule.wait_for(lambda: self._is_ended)


def _reads_at_once() -> list[Any]:
    """Return patches for the requests of ranges, and for threads that read fragments."""
    parts_ahead = ahead.parts_ahead
    result, exception = Future.result, Future.exception

    def in_order(parts: Any, *limits: Any) -> Any:
        if Turns.taken():
            return parts_ahead(parts, *limits)
        return (item for part in parts for item in part(lambda _: None))

    def waits(original: Any) -> Any:
        def wait_for(request: Any, timeout: float | None = None) -> Any:
            Turns.schedule.wait_for(request.done)
            return original(request, timeout)

        return wait_for

    return [
        mock.patch("lance_spark.scan.task.parts_ahead", in_order),
        mock.patch.object(ahead, "parts_ahead", in_order),
        mock.patch.object(ahead, "Thread", _Thread),
        mock.patch.object(ahead, "Condition", _Changed),
        mock.patch.object(Scheduler, "is_async", staticmethod(lambda _: False)),
        mock.patch.object(ReadRequest, "result", waits(result)),
        mock.patch.object(ReadRequest, "exception", waits(exception)),
    ]


def _read_ahead() -> list[Any]:
    """Return patches for the thread that reads ahead."""
    original = prefetch.read_ahead

    def read(pieces: Any, worth_ns: int = prefetch.WORTH_NS) -> Any:
        return original(pieces, worth_ns) if Turns.taken() else pieces

    def start(maker: Any) -> None:
        maker.ended = False

        def run() -> None:
            try:
                maker.run()
            finally:
                maker.ended = True

        Turns.schedule.spawn(run)

    def join(maker: Any) -> None:
        Turns.schedule.wait_for(lambda: bool(maker.ended))

    return [
        mock.patch("lance_spark.scan.task.read_ahead", read),
        mock.patch.object(prefetch._Maker, "start", start),
        mock.patch.object(prefetch._Maker, "join", join),
        mock.patch.object(prefetch, "Condition", _Changed),
        mock.patch.object(prefetch, "perf_counter_ns", _nanoseconds),
    ]


@contextmanager
def deterministic(seed: int, schedule: Schedule, *, threads: bool) -> Iterator[None]:
    """Remove what makes two runs of a seed differ.

    Parameters
    ----------
    seed : int
    schedule : Schedule
    threads : bool
        Whether threads of operations take turns; else what they would do is done by the thread that
        asks.
    """
    bytes_of = random.Random(f"bytes {seed}")
    Turns.schedule, Turns.threads = schedule, threads

    def urandom(count: int) -> bytes:
        return bytes_of.randbytes(count)

    def now() -> float:
        return schedule.now

    patches = [
        mock.patch.object(os, "urandom", urandom),
        mock.patch.object(random, "_urandom", urandom),
        mock.patch.object(time, "sleep", schedule.sleep),
        mock.patch.object(time, "time", now),
        mock.patch.object(time, "monotonic", now),
        mock.patch.object(time, "time_ns", _nanoseconds),
        # Patch modules that are imported late, too.
        mock.patch.object(concurrent.futures, "ThreadPoolExecutor", Pool),
        mock.patch.object(concurrent.futures, "wait", _wait),
        *_read_ahead(),
        *_reads_at_once(),
    ]
    modules = [
        module for name, module in list(sys.modules.items()) if name.startswith("lance_spark")
    ]
    stand_ins: list[tuple[str, object, object]] = [
        ("ThreadPoolExecutor", concurrent.futures.ThreadPoolExecutor, Pool),
        ("asyncio", asyncio, _Asyncio),
        ("wait", concurrent.futures.wait, _wait),
    ]
    for name, original, replacement in stand_ins:
        users = [module for module in modules if vars(module).get(name) is original]
        patches += [mock.patch.object(module, name, replacement) for module in users]
    random.seed(seed)
    KEPT.clear()
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield

"""The scheduler of reads: the requests for ranges of files that a process sends to a store.

A reader submits all ranges that it knows it will need, and waits later, when it needs the bytes. A
request is in one of two queues:

| queue | a request is there when |
| --- | --- |
| needed | a reader waits for it |
| ahead | a reader will need it later |

Requests of the first queue are sent first. In each queue, scans and other readers take turns, and
the requests of one reader keep their order. At most `at_once` requests of a file system are under
way at the same time.

File systems with an event loop, as those of S3, Google Cloud Storage and Azure, send the requests
as tasks of that loop, without threads. Other file systems get a thread for each request that is
under way.

A request is sent again after a transient error (`retry`), and once more if its answer is too short.
After a lasting error, the other requests of its group are not sent: they would fail as slowly,
while the reader waits. The same holds when the reader stops.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, ClassVar

from lance_spark._forks import after_fork
from lance_spark.storage.retry import LOOK_SECONDS, Retries, is_beyond_end


class Reader:
    """A scan or another reader with several threads, which share its turns.

    - `is_stopped`: Whether it needs no more bytes: its requests are not sent, nor repeated.
    """

    def __init__(self) -> None:
        self.is_stopped = False


class _Local(threading.local):
    def __init__(self) -> None:
        #: The reader that the requests of the thread belong to; by default one of its own.
        self.reader = Reader()


_LOCAL = _Local()


@contextmanager
def reading_for(reader: Reader) -> Iterator[None]:
    """Count the requests that a block submits as those of a reader."""
    before = _LOCAL.reader
    _LOCAL.reader = reader
    try:
        yield
    finally:
        _LOCAL.reader = before


class Group:
    """Requests that stop together.

    - `error`: The lasting error of one of them: those that are still waiting raise it, too.
    """

    __slots__ = ("_is_stopped", "error", "reader", "retries")

    def __init__(self, retries: Retries) -> None:
        self.retries = retries
        self.reader = _LOCAL.reader
        self.error: BaseException | None = None
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether nobody needs the bytes any more."""
        return self._is_stopped or self.reader.is_stopped

    def stop(self) -> None:
        """Send no more requests: neither waiting ones, nor failed ones again."""
        self._is_stopped = True


class ReadRequest(Future[Any]):
    """Bytes `start` to `stop` of a file; the result may be shorter if the file is.

    - `start`, `stop`: None for the beginning and the end of the file.
    - `is_taken`: Whether it left the queues.
    - `is_kept`: Whether the bytes were known, so that it was never sent.
    """

    is_kept = False

    def __init__(self, group: Group, path: str, start: int | None, stop: int | None) -> None:
        super().__init__()
        self.group = group
        self.path = path
        self.start = start
        self.stop = stop
        self.is_taken = False

    def answer(self, data: Any) -> None:
        """Complete the request without sending it."""
        self.is_taken = self.is_kept = True
        self.set_result(data)


class _Turns:
    """A queue of requests. Readers take turns; each has its requests in order."""

    def __init__(self) -> None:
        self._by_reader: dict[Reader, deque[ReadRequest]] = {}
        self._readers: deque[Reader] = deque()

    def add(self, requests: Iterable[ReadRequest]) -> None:
        for request in requests:
            reader = request.group.reader
            waiting = self._by_reader.get(reader)
            if waiting is None:
                waiting = self._by_reader[reader] = deque()
                self._readers.append(reader)
            waiting.append(request)

    def pop(self) -> ReadRequest | None:
        while self._readers:
            reader = self._readers[0]
            waiting = self._by_reader[reader]
            request = waiting.popleft()
            if waiting:
                self._readers.rotate(-1)
            else:
                self._readers.popleft()
                del self._by_reader[reader]
            # A request that became needed is in both queues.
            if not request.is_taken:
                request.is_taken = True
                return request
        return None


class Scheduler:
    """Sends the requests to one file system of fsspec. Threads share it.

    - `at_once`: Most requests that are under way at the same time.
    """

    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, fs: Any, at_once: int) -> None:
        self._fs = fs
        self._at_once = at_once
        self._process = os.getpid()
        self._is_async = self.is_async(fs)
        self._queues = threading.Lock()
        self._needed, self._ahead = _Turns(), _Turns()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._is_woken = False

    @classmethod
    def of(cls, fs: Any, at_once: int) -> Scheduler:
        """Return the scheduler of a file system in this process."""
        with cls._lock:
            # As an attribute, it is released together with the file system.
            known: dict[int, Scheduler] = vars(fs).setdefault("_lance_schedulers", {})
            scheduler = known.get(at_once)
            if scheduler is None or scheduler._process != os.getpid():
                scheduler = known[at_once] = Scheduler(fs, at_once)
            return scheduler

    @staticmethod
    def is_async(fs: Any) -> bool:
        """Return whether a file system has an event loop that runs in a thread of its own."""
        return bool(getattr(fs, "async_impl", False)) and getattr(fs, "_loop", None) is not None

    def submit(
        self,
        group: Group,
        path: str,
        parts: Sequence[tuple[int | None, int | None]],
        *,
        ahead: bool = False,
    ) -> list[ReadRequest]:
        """Queue requests for parts of a file, given by first byte and end.

        - `ahead`: Whether the parts are not needed yet.
        """
        requests = [ReadRequest(group, path, start, stop) for start, stop in parts]
        self.send(requests, ahead=ahead)
        return requests

    def send(self, requests: Sequence[ReadRequest], *, ahead: bool = False) -> None:
        """Queue requests; see `submit`."""
        with self._queues:
            (self._ahead if ahead else self._needed).add(requests)
        self._wake(len(requests))

    def need(self, requests: Iterable[ReadRequest]) -> None:
        """Send requests before those that nobody waits for."""
        with self._queues:
            self._needed.add([request for request in requests if not request.is_taken])

    def _next(self) -> ReadRequest | None:
        """Return the next request to send, unless enough are under way; it counts as sent."""
        while True:
            with self._queues:
                if self._running >= self._at_once:
                    return None
                request = self._needed.pop() or self._ahead.pop()
                if request is None:
                    return None
                self._running += 1
            group = request.group
            if request.set_running_or_notify_cancel():
                if not group.is_stopped and group.error is None:
                    return request
                # Not under the lock: this calls functions of the readers.
                request.set_exception(group.error or CancelledError())
            with self._queues:
                self._running -= 1

    def _wake(self, count: int) -> None:
        if not self._is_async:
            with self._queues:
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(self._at_once, "lance-io")
                threads, new = self._threads, min(count, self._at_once - self._running)
            for _ in range(new):
                threads.submit(self._run_in_thread)
            return
        with self._queues:
            if self._is_woken:
                return
            self._is_woken = True
        try:
            self._fs.loop.call_soon_threadsafe(self._start)
        except BaseException:
            # The loop was closed. The next reader gets the error, too, and does not wait.
            self._is_woken = False
            raise

    def _start(self) -> None:
        """Start tasks, in the event loop."""
        with self._queues:
            self._is_woken = False
        while (request := self._next()) is not None:
            task = asyncio.ensure_future(self._run(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, request: ReadRequest) -> None:
        try:
            data = await self._fetch_async(request)
        except BaseException as error:
            self._failed(request, error)
            if not isinstance(error, Exception):
                raise
        else:
            request.set_result(data)
        finally:
            with self._queues:
                self._running -= 1
            self._start()

    def _run_in_thread(self) -> None:
        while (request := self._next()) is not None:
            try:
                data = self._fetch(request)
            except BaseException as error:
                self._failed(request, error)
            else:
                request.set_result(data)
            finally:
                with self._queues:
                    self._running -= 1

    def _failed(self, request: ReadRequest, error: BaseException) -> None:
        group = request.group
        if group.error is None:
            group.error = error
        request.set_exception(error)

    async def _fetch_async(self, request: ReadRequest) -> Any:
        steps = _steps(request, may_be_cut=True)
        wait_seconds = next(steps)
        while True:
            if wait_seconds:
                await asyncio.sleep(wait_seconds)
            answer: Any = None
            if not wait_seconds:
                try:
                    answer = await self._fs._cat_file(
                        request.path, start=request.start, end=request.stop
                    )
                except Exception as error:
                    answer = error
            try:
                wait_seconds = steps.send(answer)
            except StopIteration as stop:
                return stop.value

    def _fetch(self, request: ReadRequest) -> Any:
        steps = _steps(request, may_be_cut=False)
        wait_seconds = next(steps)
        while True:
            answer: Any = None
            if wait_seconds:
                time.sleep(wait_seconds)
            else:
                try:
                    answer = self._fs.cat_file(request.path, start=request.start, end=request.stop)
                except Exception as error:
                    answer = error
            try:
                wait_seconds = steps.send(answer)
            except StopIteration as stop:
                return stop.value


def _steps(request: ReadRequest, *, may_be_cut: bool) -> Generator[float, Any, Any]:
    """Yield the seconds to wait, or 0 to send the request; take its answer, and return the last.

    Raises the error of the last answer.

    - `may_be_cut`: Whether an answer that is too short may be one that the network has cut.
    """
    tries = request.group.retries.tries()
    size = None if request.stop is None else request.stop - (request.start or 0)
    while True:
        answer = yield 0.0
        if is_beyond_end(answer):
            answer = b""
        if isinstance(answer, BaseException):
            seconds = tries.wait_after(answer)
            if seconds is None:
                raise answer
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                if request.group.is_stopped:
                    raise answer
                yield min(left, LOOK_SECONDS)
        elif size is not None and len(answer) != size and may_be_cut:
            may_be_cut = False
        else:
            return answer


def stop_all(requests: Sequence[ReadRequest]) -> None:
    """Stop requests and the others of their groups, and wait for those that are under way."""
    for request in requests:
        request.group.stop()
    wait([request for request in requests if not request.cancel()])


@after_fork
def _renew_lock() -> None:
    # Another thread of the parent may have held it.
    Scheduler._lock = threading.Lock()

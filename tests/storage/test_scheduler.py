"""The order of requests, their number at the same time, and requests that nobody needs any more."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from lance_spark.storage.retry import Retries
from lance_spark.storage.scheduler import Group, Reader, Scheduler, reading_for, stop_all

_SECONDS = 20


class Sync(LocalFileSystem):
    """Answers with the range, when it is allowed to."""

    protocol = "sync"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.open_gate = threading.Event()
        self.errors: dict[int, list[Exception]] = {}
        self.sent: list[int] = []
        self.most = self.under_way = 0

    def cat_file(self, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        self._begin(start)
        self.open_gate.wait(_SECONDS)
        return self._end(start, end)

    def _begin(self, start: int) -> None:
        self.sent.append(start)
        self.under_way += 1
        self.most = max(self.most, self.under_way)

    def _end(self, start: int, end: int) -> bytes:
        self.under_way -= 1
        if self.errors.get(start):
            raise self.errors[start].pop(0)
        return bytes(range(start, end))


class Async(AsyncFileSystem):  # type: ignore[misc]
    """The same in an event loop."""

    protocol = "async"
    cachable = False
    _begin, _end = Sync._begin, Sync._end

    def __init__(self) -> None:
        super().__init__()
        self.open_gate = threading.Event()
        self.errors: dict[int, list[Exception]] = {}
        self.sent: list[int] = []
        self.most = self.under_way = 0
        self.cut: set[int] = set()

    async def _cat_file(self, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        self._begin(start)
        while not self.open_gate.is_set():
            await asyncio.sleep(0.001)
        data = self._end(start, end)
        if start in self.cut:
            self.cut.discard(start)
            return data[:-1]
        return data


@pytest.fixture(params=[Sync, Async])
def fs(request: pytest.FixtureRequest) -> Any:
    return request.param()


def parts(*starts: int) -> list[tuple[int, int]]:
    return [(start, start + 1) for start in starts]


def wait_for(condition: Any) -> None:
    for _ in range(1000 * _SECONDS):
        if condition():
            return
        threading.Event().wait(0.001)
    pytest.fail("it takes too long")


def test_a_number_of_requests_in_the_order_of_need(fs: Any) -> None:
    scheduler = Scheduler.of(fs, 2)
    assert Scheduler.of(fs, 2) is scheduler
    group = Group(Retries())
    first = scheduler.submit(group, "f", parts(0, 1))
    wait_for(lambda: len(fs.sent) == 2)
    ahead = scheduler.submit(group, "f", parts(2, 3, 4), ahead=True)
    needed = scheduler.submit(group, "f", parts(5))
    # Its reader has come to it.
    scheduler.need(ahead[2:])
    fs.open_gate.set()
    requests = [*first, *ahead, *needed]
    assert [request.result(_SECONDS) for request in requests] == [bytes([n]) for n in range(6)]
    assert sorted(fs.sent[2:4]) == [4, 5]
    assert sorted(fs.sent[4:]) == [2, 3]
    assert fs.most == 2


def test_readers_take_turns(fs: Any) -> None:
    scheduler = Scheduler.of(fs, 1)
    scheduler.submit(Group(Retries()), "f", parts(0))
    wait_for(lambda: fs.sent == [0])
    requests = []
    for first in (10, 20):
        with reading_for(Reader()):
            requests += scheduler.submit(Group(Retries()), "f", parts(*range(first, first + 3)))
    fs.open_gate.set()
    for request in requests:
        request.result(_SECONDS)
    assert fs.sent == [0, 10, 20, 11, 21, 12, 22]


def test_requests_after_a_lasting_error_are_not_sent(fs: Any) -> None:
    scheduler = Scheduler.of(fs, 1)
    fs.errors[0] = [ConnectionResetError("once")]
    fs.errors[1] = [PermissionError("no")]
    fs.open_gate.set()
    group = Group(Retries())
    first, second, third = scheduler.submit(group, "f", parts(0, 1, 2))
    assert first.result(_SECONDS) == b"\0"
    for request in (second, third):
        with pytest.raises(PermissionError, match="no"):
            request.result(_SECONDS)
    assert fs.sent == [0, 0, 1]
    (other,) = scheduler.submit(Group(Retries()), "f", parts(2))
    assert other.result(_SECONDS) == b"\2"


def test_stopped_requests(fs: Any) -> None:
    """Waiting ones are not sent, and failed ones are not sent again."""
    scheduler = Scheduler.of(fs, 2)
    fs.errors[0] = [ConnectionResetError("again") for _ in range(20)]
    requests = scheduler.submit(Group(Retries()), "f", parts(0, 1, 2))
    wait_for(lambda: len(fs.sent) == 2)
    threading.Timer(0.05, fs.open_gate.set).start()
    stop_all(requests)
    assert sorted(fs.sent) == [0, 1]
    assert isinstance(requests[0].exception(), ConnectionResetError)
    assert requests[2].cancelled()
    stopped = Reader()
    stopped.is_stopped = True
    with reading_for(stopped):
        (request,) = scheduler.submit(Group(Retries()), "f", parts(3))
    with pytest.raises(CancelledError):
        request.result(_SECONDS)
    assert fs.under_way == 0


def test_an_answer_that_was_cut_is_requested_once_more() -> None:
    fs = Async()
    fs.open_gate.set()
    fs.cut = {5}
    (request,) = Scheduler.of(fs, 4).submit(Group(Retries()), "f", [(5, 9)])
    assert request.result(_SECONDS) == bytes([5, 6, 7, 8])
    assert fs.sent == [5, 5]

"""Threads that take turns by a seed, and a clock of their own: a schedule that fails once fails every time.

One thread runs at a time, up to its next call to the store; then the seed says who goes on. Nobody really sleeps: the clock goes on when
everybody waits. What would make a run another one is taken away: threads of the package run in place, random bytes come from the seed.
Sets of strings have an order of their own in each process, so that a schedule is the same only where PYTHONHASHSEED is.
"""

from __future__ import annotations

import concurrent.futures
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from unittest import mock

#: When a schedule starts: days before now, as files of local disks carry the time of the system.
START = time.time()
#: Seconds that a call takes: those of a network, and those of the longest.
_LATENCY = 0.03, 0.1
#: Seconds of real time that no schedule takes.
_LONGEST = 300


class StoppedError(BaseException):
    """The schedule is over; no operation may catch it."""


class Actor:
    """Somebody who runs operations.

    Attributes
    ----------
    faults : list of str
        What befell the operation that is under way.
    created : list of str
        The files that it has created.
    """

    def __init__(self, name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.body = body
        self.wakes = 0.0
        self.done = False
        self.error: BaseException | None = None
        self.faults: list[str] = []
        self.created: list[str] = []
        self.turn = threading.Lock()
        self.turn.acquire()


class Schedule:
    """Who runs when.

    Parameters
    ----------
    seed : int
    most_steps : int
        A schedule that takes more is one that hangs.

    Attributes
    ----------
    now : float
        Seconds since 1970 by the clock of the schedule.
    steps : int
    running : Actor or None
        None before the first turn and after the last: the calls of the checker.
    """

    def __init__(self, seed: int, most_steps: int = 20_000) -> None:
        self._random = random.Random(f"schedule {seed}")
        # Some seeds let one go on for long, others switch at each call.
        self._stays = self._random.choice([0.0, 0.3, 0.6, 0.9, 0.97])
        self._actors: list[Actor] = []
        self._back = threading.Lock()
        self._back.acquire()
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._most_steps = most_steps
        self._stopped = False
        self.now = START
        self.steps = 0
        self.hangs = False
        self.running: Actor | None = None

    def add(self, name: str, body: Callable[[], None]) -> None:
        self._actors.append(Actor(name, body))

    def run(self) -> None:
        """Run all actors to their end."""
        threads = [
            threading.Thread(target=self._run, args=(actor,), daemon=True) for actor in self._actors
        ]
        for thread in threads:
            thread.start()
        first = self._next(None)
        assert first is not None
        self.running = first
        first.turn.release()
        if not self._back.acquire(timeout=_LONGEST):
            raise RuntimeError(
                "a thread waits for another, by a lock that knows nothing of the schedule"
            )
        self.running = None
        for thread in threads:
            thread.join()
        for _, _, effect in sorted(self._later, key=lambda one: one[:2]):
            effect()
        self._later.clear()

    def errors(self) -> list[BaseException]:
        """Return what actors ended with, other than their own end."""
        found = [actor.error for actor in self._actors if actor.error is not None]
        return [error for error in found if not isinstance(error, StoppedError)]

    def step(self) -> None:
        """Let the seed say who goes on; a call to the store begins."""
        actor = self.running
        if actor is None:
            return
        self.steps += 1
        self.now += self._random.uniform(*_LATENCY)
        if self.steps > self._most_steps:
            self._stopped = self.hangs = True
        if self._stopped:
            raise StoppedError
        if self._random.random() >= self._stays:
            self._pass(actor)

    def sleep(self, seconds: float) -> None:
        """Wait, by the clock of the schedule."""
        actor = self.running
        if actor is None:
            self.now += seconds
            return
        actor.wakes = self.now + seconds
        self._pass(actor)

    def later(self, seconds: float, effect: Callable[[], object]) -> None:
        """Have something happen at some time."""
        self._later.append((self.now + seconds, len(self._later), effect))

    def _pass(self, actor: Actor) -> None:
        following = self._next(actor)
        if following is actor:
            return
        if following is None:
            self._back.release()
        else:
            self.running = following
            following.turn.release()
        if not actor.done:
            actor.turn.acquire()
            if self._stopped:
                raise StoppedError

    def _next(self, current: Actor | None) -> Actor | None:
        alive = [one for one in self._actors if not one.done]
        if not alive:
            return None
        ready = [one for one in alive if one.wakes <= self.now]
        if not ready:
            first = min(alive, key=lambda one: one.wakes)
            self.now = first.wakes
            ready = [first]
        due = [one for one in self._later if one[0] <= self.now]
        if due:
            self._later = [one for one in self._later if one[0] > self.now]
            for _, _, effect in due:
                effect()
        return self._random.choice(ready)

    def _run(self, actor: Actor) -> None:
        actor.turn.acquire()
        try:
            actor.body()
        except BaseException as error:
            actor.error = error
            self._stopped = True
        actor.done = True
        self._pass(actor)


class InPlace(concurrent.futures.Executor):
    """Runs what is submitted at once, in the thread that submits it."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except StoppedError:
            raise
        except BaseException as error:
            future.set_exception(error)
        return future

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        futures = [self.submit(fn, *args) for args in zip(*iterables, strict=False)]
        return (future.result() for future in futures)


@contextmanager
def deterministic(seed: int, schedule: Schedule) -> Iterator[None]:
    """Take away what makes two runs of a seed differ."""
    bytes_of = random.Random(f"bytes {seed}")

    def urandom(count: int) -> bytes:
        return bytes_of.randbytes(count)

    def now() -> float:
        return schedule.now

    def now_ns() -> int:
        return int(schedule.now * 1e9)

    patches = [
        mock.patch.object(os, "urandom", urandom),
        mock.patch.object(random, "_urandom", urandom),
        mock.patch.object(time, "sleep", schedule.sleep),
        mock.patch.object(time, "time", now),
        mock.patch.object(time, "monotonic", now),
        mock.patch.object(time, "time_ns", now_ns),
        mock.patch.object(concurrent.futures, "ThreadPoolExecutor", InPlace),
    ]
    patches += [
        mock.patch.object(module, "ThreadPoolExecutor", InPlace)
        for name, module in list(sys.modules.items())
        if name.startswith("lance_spark") and "ThreadPoolExecutor" in vars(module)
    ]
    random.seed(seed)
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()

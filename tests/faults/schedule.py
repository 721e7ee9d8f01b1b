"""Threads that take turns by a seed, with their own clock: a schedule that fails once fails every
time.

One thread runs at a time, up to its next call to the store, or until it waits for another; then the
seed says who goes on. Threads that an operation starts (`threads`) take turns like those of the
schedule itself. Nobody really sleeps: the clock goes on when everybody waits.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Start of a schedule: days before now, because files of local disks have the time of the system.
START = time.time()
#: Seconds of a call on a network, and seconds of the longest call.
_LATENCY = 0.03, 0.1
#: No schedule takes so many seconds of real time.
_LONGEST = 300


class StoppedError(BaseException):
    """The schedule is over. No operation may catch this error."""


class Actor:
    """A client that runs operations, or a thread of an operation.

    Parameters
    ----------
    name : str
    body : callable
    owner : Actor, optional
        Whose thread it is: what befalls it befalls the operation that was under way when it began.

    Attributes
    ----------
    faults : list of str
        What befell the operation that is under way.
    created : list of str
        The files that it has created.
    begun : list of str
        The files whose uploads in parts it has begun.
    """

    def __init__(self, name: str, body: Callable[[], None], owner: Actor | None = None) -> None:
        self.name = name
        self.body = body
        self.wakes = 0.0
        #: The condition that the actor waits for, other than a time.
        self.until: Callable[[], bool] | None = None
        self.done = False
        self.error: BaseException | None = None
        self.faults: list[str] = []
        self.created: list[str] = []
        self.begun: list[str] = []
        self.is_thread = owner is not None
        if owner is not None:
            self.faults, self.created, self.begun = owner.faults, owner.created, owner.begun
        self.turn = threading.Lock()
        self.turn.acquire()

    def begin(self) -> None:
        """Forget the faults of the operation before."""
        self.faults, self.created, self.begun = [], [], []

    def can_go_on(self, now: float) -> bool:
        return self.wakes <= now and (self.until is None or self.until())


class Schedule:
    """Decides which thread runs.

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
    spawned : int
        Threads of operations.
    hangs : bool
        Whether it took too many steps, or all wait for one another.
    running : Actor or None
        None before the first turn and after the last: the calls of the checker.
    """

    def __init__(self, seed: int, most_steps: int = 20_000) -> None:
        self.seed = seed
        self._random = random.Random(f"schedule {seed}")
        # Some seeds let one actor run for long, other seeds switch at each call.
        self._stays = self._random.choice([0.0, 0.3, 0.6, 0.9, 0.97])
        self._actors: list[Actor] = []
        self._threads: list[threading.Thread] = []
        self._back = threading.Lock()
        self._back.acquire()
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._most_steps = most_steps
        self._stopped = False
        self.now = START
        self.steps = 0
        self.spawned = 0
        self.hangs = False
        self.running: Actor | None = None

    def add(self, name: str, body: Callable[[], None]) -> None:
        self._actors.append(Actor(name, body))

    def run(self) -> None:
        """Run all actors to their end."""
        for actor in self._actors:
            self._start(actor)
        first = self._next()
        assert first is not None
        self.running = first
        first.turn.release()
        if not self._back.acquire(timeout=_LONGEST):
            raise RuntimeError(
                "a thread waits for another, by a lock that knows nothing of the schedule"
            )
        self.running = None
        for thread in self._threads:
            thread.join()
        for _, _, effect in sorted(self._later, key=lambda entry: entry[:2]):
            effect()
        self._later.clear()

    def spawn(self, body: Callable[[], None]) -> None:
        """Let a thread of the running operation take part."""
        owner = self.running
        assert owner is not None
        actor = Actor(owner.name, body, owner)
        self._actors.append(actor)
        self.spawned += 1
        self._start(actor)

    def _start(self, actor: Actor) -> None:
        thread = threading.Thread(target=self._run, args=(actor,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def errors(self) -> list[BaseException]:
        """Return the errors with which actors ended, other than the end of the schedule."""
        errors = [actor.error for actor in self._actors if actor.error is not None]
        return [error for error in errors if not isinstance(error, StoppedError)]

    def step(self) -> None:
        """Begin a call to the store: the seed chooses which actor continues."""
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

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Let other actors run until a condition holds."""
        actor = self.running
        if self._stopped:
            raise StoppedError
        if condition():
            return
        assert actor is not None, "nobody else goes on"
        actor.until = condition
        self._pass(actor)
        actor.until = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Make calls to the store that are not part of the schedule."""
        running, self.running = self.running, None
        try:
            yield
        finally:
            self.running = running

    def later(self, seconds: float, effect: Callable[[], object]) -> None:
        """Run a function at some later time."""
        self._later.append((self.now + seconds, len(self._later), effect))

    def _pass(self, actor: Actor) -> None:
        following = self._next()
        if following is None:
            self._back.release()
            return
        if following is not actor:
            self.running = following
            following.turn.release()
            if not actor.done:
                actor.turn.acquire()
        if self._stopped and not actor.done:
            raise StoppedError

    def _next(self) -> Actor | None:
        alive = [actor for actor in self._actors if not actor.done]
        if not alive:
            return None
        ready = [actor for actor in alive if actor.can_go_on(self.now)]
        if not ready:
            sleeping = [actor for actor in alive if actor.until is None]
            if not sleeping and not self._stopped:
                self._stopped = self.hangs = True
            first = min(sleeping or alive, key=lambda actor: actor.wakes)
            self.now = max(self.now, first.wakes)
            ready = [first]
        due = [entry for entry in self._later if entry[0] <= self.now]
        if due:
            self._later = [entry for entry in self._later if entry[0] > self.now]
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
        if actor.is_thread and actor.error is None:
            self._actors.remove(actor)
        self._pass(actor)

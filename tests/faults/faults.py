"""What befalls calls to a store, by a seed.

| fault | what happens |
| --- | --- |
| error | the call fails, and has no effect |
| lost answer | the call has its effect, and fails |
| time-out | the call fails by a time-out, with or without its effect |
| late effect | the call times out; its effect comes at some time, maybe after the operation is over |
| refused | the call is forbidden, and has no effect |
| truncated read | fewer bytes come than there are |
| short write | an upload breaks off; on local disks a part of the file is there |
| duplicate | the request arrives twice, the second time at once or at some time; the answer is that of the second, or of the first |
| delay | others go on meanwhile |
| outage | all calls of somebody fail for a while |
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from tests.faults.schedule import Schedule

T = TypeVar("T")
#: How many calls of a thousand fail. A schedule chooses one of these rates.
RATES = (0, 5, 20, 20, 50, 150)
_LONGEST_DELAY = 20.0
_LONGEST_LATE = 60.0
_OUTAGE = 12
#: Calls that some schedules choose to fail more often, and how many of a thousand of them fail.
_TARGETS = (
    frozenset[str](),
    frozenset[str](),
    frozenset({"create", "link"}),
    frozenset({"put", "replace", "finish"}),
    frozenset({"delete", "unlink"}),
    frozenset({"list"}),
    frozenset({"begin", "part", "complete", "abort"}),
)
_RATE_OF_TARGETS = 300
_SECOND = 0.2

READS = frozenset({"get", "list", "head", "uploads"})
_OF_READS = ("error", "error", "time-out", "refused", "delay", "outage")
_OF_WRITES = (
    *_OF_READS,
    "lost answer",
    "lost answer",
    "time-out",
    "late effect",
    "duplicate",
    "short write",
)


class ClientError(Exception):
    """An error as botocore raises it: not of a type that Python knows."""

    def __init__(self, code: str) -> None:
        self.response = {"Error": {"Code": code, "Message": "injected"}}
        super().__init__(f"An error occurred ({code}) when calling the operation: injected")


_REMOTE: tuple[Callable[[], Exception], ...] = (
    lambda: OSError(errno.EIO, "injected: internal error"),
    lambda: OSError(errno.EBUSY, "injected: slow down"),
    lambda: ConnectionResetError(errno.ECONNRESET, "injected: connection reset"),
    lambda: OSError("injected: unexpected end of the answer"),
    lambda: ClientError("InternalError"),
    lambda: ClientError("503"),
)
_LOCAL: tuple[Callable[[], Exception], ...] = (
    lambda: OSError(errno.EIO, "injected: input/output error"),
    lambda: OSError(errno.ENOSPC, "injected: no space left on device"),
    lambda: OSError(errno.ESTALE, "injected: stale file handle"),
    lambda: OSError(errno.EINTR, "injected: interrupted"),
    lambda: OSError(errno.EMFILE, "injected: too many open files"),
)


class Faults:
    """Decides which calls of one schedule fail, and how.

    Parameters
    ----------
    seed : int
    schedule : Schedule
    local : bool
        Whether errors are those of local disks.
    rate : int, optional
        Faults of a thousand calls; by the seed if it is not given.

    Attributes
    ----------
    tried : Counter
        How often each kind of fault befell each kind of call.
    """

    def __init__(
        self, seed: int, schedule: Schedule, *, local: bool, rate: int | None = None
    ) -> None:
        self._random = random.Random(f"faults {seed}")
        self._schedule = schedule
        self._local = local
        self.rate = self._random.choice(RATES) if rate is None else rate
        self._targets = self._random.choice(_TARGETS) if self.rate else frozenset()
        self.tried: Counter[tuple[str, str]] = Counter()
        self._outages: dict[str, int] = {}

    def call(self, call: str, path: str, effect: Callable[[], T]) -> T:
        """Make a call to the store, or let it fail.

        Parameters
        ----------
        call : str
            get, list, head, put, create, delete, copy; begin, part, complete, abort and uploads (a
            list of them) of uploads in parts; or a call of the operating system.
        path : str
        effect : callable
        """
        schedule = self._schedule
        if schedule.running is None:
            return effect()
        schedule.step()
        fault = self._kind(call)
        if fault is None:
            return effect()
        is_name = "_refs" in path
        if is_name and (fault == "late effect" or (fault == "duplicate" and call != "create")):
            # A client cannot detect that a request which replaces or recreates a file arrives late.
            fault = "lost answer"
        self.tried[fault, call] += 1
        actor = schedule.running
        if fault == "delay":
            schedule.sleep(self._random.uniform(0, _LONGEST_DELAY))
            return effect()
        actor.faults.append(f"{fault} of {call} {path}")
        return self._fail(fault, effect, late=not is_name)

    def _kind(self, call: str) -> str | None:
        actor = self._schedule.running
        assert actor is not None
        remaining = self._outages.get(actor.name, 0)
        if remaining:
            self._outages[actor.name] = remaining - 1
            return "outage"
        rate = _RATE_OF_TARGETS if call in self._targets else self.rate
        if self._random.randrange(1000) >= rate:
            return None
        fault = self._random.choice(_OF_READS if call in READS else _OF_WRITES)
        if call == "get" and self._random.random() < 0.3:
            fault = "truncated read"
        if fault == "refused" and self._random.random() < 0.7:
            fault = "error"
        if fault == "outage":
            # Some outages end before the client gives up repeating the request.
            self._outages[actor.name] = self._random.choice([1, 2, 4, _OUTAGE, 3 * _OUTAGE])
        elif fault != "delay" and self._random.random() < _SECOND:
            # A call that fails often fails twice: the check of its outcome fails too.
            self._outages[actor.name] = self._random.randint(1, 2)
        return fault

    def _fail(self, fault: str, effect: Callable[[], T], *, late: bool) -> T:
        if fault == "truncated read":
            data: Any = effect()
            cut: T = data[: self._random.randrange(len(data))] if len(data) else data
            return cut
        if fault == "refused":
            raise PermissionError(errno.EACCES, "injected: access denied")
        if fault == "lost answer" or (fault == "time-out" and self._random.random() < 0.5):
            effect()
        if fault == "late effect":
            self._later(effect)
        if fault == "duplicate":
            answer = effect()
            if late and self._random.random() < 0.5:
                self._later(effect)
                return answer
            return effect()
        if fault in ("time-out", "late effect"):
            self._schedule.sleep(self._random.uniform(1, _LONGEST_DELAY))
            raise TimeoutError(errno.ETIMEDOUT, "injected: timed out")
        raise self._random.choice(_LOCAL if self._local else _REMOTE)()

    def _later(self, effect: Callable[[], object]) -> None:
        def silent() -> None:
            try:
                effect()
            except (OSError, ValueError):
                # The file was closed: the request has no target.
                return

        self._schedule.later(self._random.uniform(0, _LONGEST_LATE), silent)

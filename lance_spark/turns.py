"""Turns of threads that do short work on local files.

A short read is some thousand steps of Python, and Arrow and the system release the interpreter's
lock in hundreds of them. Threads that do so at the same time take the lock from one another at each
step, and each change of the thread costs more than the step: four threads together would do half
of the work of one. So they take turns by a lock that is held for the whole call. A call that turns
out to be long goes on without the turn, because most of its steps do release the interpreter.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from lance_spark._forks import after_fork

#: A call that has taken so many seconds is long.
_SHORT_SECONDS = 0.02
#: The most seconds that a call waits for its turn. A call may wait for a disk that does not answer.
_MOST_SECONDS = 1.0


class _Turn(threading.local):
    """The turn of a thread: when it began, if the thread has it."""

    since: float | None = None


_TURN = _Turn()
_LOCK = threading.Lock()


@contextmanager
def turn(*, local: bool) -> Iterator[None]:
    """Wait for the turn of this thread, and end it afterwards, unless it was ended before.

    - `local`: Whether the files are on a local disk. Otherwise threads wait for the store at the
      same time, without turns.
    """
    has_turn = not local or _TURN.since is not None or _has_no_lock()
    if has_turn or not _LOCK.acquire(timeout=_MOST_SECONDS):
        yield
        return
    _TURN.since = perf_counter()
    try:
        yield
    finally:
        _end()


def end_if_long() -> None:
    """End the turn of this thread, if it has taken long."""
    since = _TURN.since
    if since is not None and perf_counter() - since > _SHORT_SECONDS:
        _end()


def _end() -> None:
    if _TURN.since is not None:
        _TURN.since = None
        _LOCK.release()


def _has_no_lock() -> bool:
    """Return whether this interpreter runs several threads at the same time."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is not None and not is_enabled()


@after_fork
def _renew() -> None:
    # Another thread of the parent may have held the lock.
    global _LOCK  # noqa: PLW0603
    _LOCK = threading.Lock()
    _TURN.since = None

"""What forked processes do first. Windows has none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import WeakSet


def after_fork(change: Callable[[], None]) -> Callable[[], None]:
    """Call a function at the start of each forked process, and return it; a decorator.

    Another thread of the parent may have held a lock at that time.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=change)
    return change


class ForkLock:
    """A lock that is free in a forked process, also if another thread of the parent held it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = self._lock
        _LOCKS.add(self)

    def __enter__(self) -> None:
        lock = self._lock
        lock.acquire()
        self._held = lock

    def __exit__(self, *_: object) -> None:
        # In a process that this thread has forked, it is the lock of the parent.
        self._held.release()

    def renew(self) -> None:
        """Replace the lock in a forked process."""
        self._lock = threading.Lock()


_LOCKS: WeakSet[ForkLock] = WeakSet()


@after_fork
def _renew_locks() -> None:
    for lock in list(_LOCKS):
        lock.renew()

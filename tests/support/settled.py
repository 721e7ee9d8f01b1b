"""Waits for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def settled(read: Callable[[], T], expected: T) -> T:
    """Return what `read` returns, as soon as it is the expected value, or after 30 seconds.

    For example, Spark reports that a job failed while the worker of the failed task may still be
    about to write, and then delete, its file.
    """
    deadline = time.monotonic() + 30
    value = read()
    while value != expected and time.monotonic() < deadline:
        time.sleep(0.05)
        value = read()
    return value

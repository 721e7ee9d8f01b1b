"""What forked processes do first. Windows has none."""

from __future__ import annotations

import os
from collections.abc import Callable


def after_fork(change: Callable[[], None]) -> Callable[[], None]:
    """Call a function at the start of each forked process, and return it; a decorator.

    Another thread of the parent may have held a lock at that time.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=change)
    return change

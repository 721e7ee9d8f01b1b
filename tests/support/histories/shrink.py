"""Shrinks a random history that fails.

python -m tests.support.histories.shrink SEED [vectors]
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.support.histories.plan import Plan
from tests.support.histories.run import run_plan


def failure(plan: Plan, folder: Path) -> BaseException | None:
    try:
        run_plan(plan, folder)
    except BaseException as error:  # pylance panics with a BaseException.
        if isinstance(error, KeyboardInterrupt):
            raise
        return error
    return None


def same_kind(first: BaseException, second: BaseException | None) -> bool:
    """Return whether two histories fail alike: in the same line of the checks or of the clients."""
    return second is not None and _place(first) == _place(second)


def _place(error: BaseException) -> tuple[str, str, int]:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return type(error).__name__, last.filename, last.lineno or 0


def shrink(plan: Plan, folder: Path, say: Callable[[str], object] = print) -> Plan:
    """Take steps out for as long as the history fails in the same way."""
    original = failure(plan, folder)
    if original is None:
        raise ValueError(f"history {plan.seed} does not fail")
    size = max(len(plan.steps) // 2, 1)
    while True:
        place, removed = 0, False
        while place < len(plan.steps):
            shorter = replace(plan, steps=plan.steps[:place] + plan.steps[place + size :])
            if same_kind(original, failure(shorter, folder)):
                plan, removed = shorter, True
            else:
                place += size
        say(f"{len(plan.steps)} steps")
        if size == 1 and not removed:
            return plan
        size = max(size // 2, 1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        short = shrink(
            Plan.of_seed(int(sys.argv[1]), has_vectors="vectors" in sys.argv), Path(name)
        )
        error = failure(short, Path(name))
        assert error is not None
        traceback.print_exception(error)

"""Measurements of time and of memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

ROOT = Path(__file__).parent.parent
Result = TypeVar("Result")


def seconds_of(action: Callable[[], object]) -> float:
    """Run an action, and return its seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def run_in_turns(
    actions: Mapping[str, Callable[[], Result]], rounds: int, *, warm_up: bool = True
) -> dict[str, list[Result]]:
    """Run each action once in every round, so that noise of the machine affects all actions alike.

    Every second round runs the actions in reverse order, because an action pays for what the action
    before it left behind, such as garbage in the JVM. Returns the results of each action. A warm-up
    round comes first; its results are left out.
    """
    results: dict[str, list[Result]] = {name: [] for name in actions}
    names = list(actions)
    for turn in range(rounds + warm_up):
        for name in reversed(names) if turn % 2 else names:
            result = actions[name]()
            if turn or not warm_up:
                results[name].append(result)
    return results


def median_seconds(actions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Run actions in turns after a warm-up round, and return the median seconds of each."""

    def timed(action: Callable[[], object]) -> Callable[[], float]:
        return lambda: seconds_of(action)

    seconds = run_in_turns({name: timed(action) for name, action in actions.items()}, rounds)
    return {name: statistics.median(values) for name, values in seconds.items()}


class Used(NamedTuple):
    """Seconds of the clock, and seconds of processors."""

    wall: float
    processor: float


def used_by(action: Callable[[], object]) -> Used:
    """Run an action in this process, and return the time that all its threads used."""
    wall, processor = time.perf_counter(), time.process_time()
    action()
    return Used(time.perf_counter() - wall, time.process_time() - processor)


def median_used(actions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Used]:
    """Run actions of this process in turns, and return the median times of each."""
    results = run_in_turns(
        {name: partial(used_by, action) for name, action in actions.items()}, rounds
    )
    return {
        name: Used(*(statistics.median(values) for values in zip(*used, strict=True)))
        for name, used in results.items()
    }


def run_python(code: str, *arguments: str, processor: int | None = None) -> str:
    """Run Python code in a new process, and return the last line of its output.

    With `processor`, the process and its threads run on this processor alone.
    """

    if processor is not None:
        code = f"import os; os.sched_setaffinity(0, {{{processor}}})\n{code}"
    completed = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        raise RuntimeError(completed.stderr[-3000:])
    return completed.stdout.strip().rpartition("\n")[2]


def memory_of(process: Path, field: str) -> int:
    """Return the bytes of a field of a process's file `status`; 0 if the process has ended.

    `process` is the process's folder in `/proc`. Field `VmRSS` is the resident memory. Field
    `RssAnon` is its part without mapped files.
    """
    try:
        status = (process / "status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def processes_below(root: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    below, pending = [], list(children.get(root, []))
    while pending:
        below.append(pending.pop())
        pending += children.get(below[-1], [])
    return below


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has taken; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

"""`make test-long`: tables of 100,000 versions and of 1 million fragments, which consist of metadata.

Ten times the versions or fragments take about ten times the processor time, with every operation
of `benchmarks/table.py`. The processor time is that of all threads of this process; the test prints
it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.table import Operation, fragment_operations, version_operations

COUNTS = {
    "versions": 100_000,
    "fragments": 1_000_000,
}
TIMES = 10
#: The noise of a busy machine. An operation that looks at each pair has a hundred times the time.
ALLOWED = 2.5
#: Seconds that every operation may take.
LEAST = 0.02


def processor_seconds(action: Callable[[], object]) -> float:
    """Return the shorter of two runs, or of one that takes seconds."""
    seconds: list[float] = []
    while len(seconds) < 2 and sum(seconds) < 1:
        gc.collect()
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return min(seconds)


@pytest.mark.parametrize(
    ("unit", "make"), [("versions", version_operations), ("fragments", fragment_operations)]
)
def test_time_grows_as_the_table(
    unit: str, make: Callable[[Path, int], dict[str, Operation]], tmp_path: Path
) -> None:
    large = COUNTS[unit]
    measured: dict[int, dict[str, float]] = {large // TIMES: {}, large: {}}
    for count, times in measured.items():
        for name, (own, _) in make(tmp_path / str(count), count).items():
            times[name] = processor_seconds(own)
            print(f"{count:,} {unit}, {name}: {times[name]:.3f} s", flush=True)
    few, many = measured.values()
    slow = {
        name: (few[name], many[name])
        for name in few
        if many[name] > ALLOWED * TIMES * max(few[name], LEAST)
    }
    assert slow == {}

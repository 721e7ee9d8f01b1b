"""Processes that write, read, compact and clean up one table, with their figures and errors."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance_spark
from tests.soak.worker import MILLION, Work, batches_of, rows, run
from tests.support.forking import CONTEXT

#: How much more memory (share and bytes), and how many more files, the last quarter may use than
#: the second quarter.
_GROWTH = 1.3
_SLACK_BYTES = 32 * 1024 * 1024
_SLACK_FILES = 16
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Figures:
    """The result of a load test.

    Attributes
    ----------
    where : str
    writers, readers : int
    seconds : float
    counts : Counter
        See `worker.Account`.
    times : dict of str to (float, float)
        Median and 99th percentile of commit and read, in seconds.
    memory : list of float
        Bytes of a process, mean of each quarter of the time.
    files : list of float
        Open files of a process, too.
    wrong : list of str
    """

    where: str
    writers: int
    readers: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    times: dict[str, tuple[float, float]] = field(default_factory=dict)
    memory: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def load(
    uri: str,
    seconds: float,
    *,
    writers: int = 16,
    readers: int = 16,
    options: dict[str, Any] | None = None,
    place: str = "local disk",
    age: float = 20,
) -> Figures:
    """Run a load test, and check that the table has all acknowledged changes.

    Parameters
    ----------
    uri : str
        Where there is nothing yet.
    seconds : float
        How long, after all processes have started.
    writers, readers : int
        A process each; one more compacts, and one cleans up.
    options : dict, optional
        Of the store.
    place : str
        What the figures call the store.
    age : float
        Seconds that old versions are kept for.
    """
    options = options or {}
    lance_spark.write_dataset(rows(0, 0), uri, storage_options=options)
    figures = Figures(place, writers, readers, seconds)
    roles = [("writer", n) for n in range(1, writers + 1)]
    roles += [("reader", n) for n in range(readers)] + [("compaction", 0), ("cleanup", 0)]
    with tempfile.TemporaryDirectory() as logs:
        ready = CONTEXT.Barrier(len(roles) + 1)
        work = [
            Work(role, number, uri, options, seconds, age, f"{logs}/{role}{number}")
            for role, number in roles
        ]
        processes = [CONTEXT.Process(target=run, args=(part, ready)) for part in work]
        for process in processes:
            process.start()
        ready.wait(120)
        samples = _watch(processes, time.monotonic() + seconds)
        for process in processes:
            process.join(120)
            if process.exitcode is None:
                process.kill()
                figures.wrong.append("a process did not end in two minutes")
        accounts = [
            json.loads(Path(part.log).read_text()) for part in work if Path(part.log).exists()
        ]
    if len(accounts) != len(work):
        figures.wrong.append(f"{len(work) - len(accounts)} processes left no account")
    _add_up(figures, accounts, samples)
    _check(figures, accounts, uri, options)
    return figures


def _watch(processes: Sequence[Any], until: float) -> list[tuple[float, float]]:
    """Sample the memory and open files of a process repeatedly."""
    samples = []
    while time.monotonic() < until:
        time.sleep(0.5)
        found_samples = [
            sample for process in processes if (sample := _sample(process.pid)) is not None
        ]
        if len(found_samples) == len(processes):
            samples.append(
                (
                    statistics.mean(sample[0] for sample in found_samples),
                    statistics.mean(sample[1] for sample in found_samples),
                )
            )
    return samples


def _sample(pid: int) -> tuple[int, int] | None:
    try:
        memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        return memory, len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        # The process has ended, or the system has no /proc.
        return None


def _add_up(
    figures: Figures, accounts: list[dict[str, Any]], samples: list[tuple[float, float]]
) -> None:
    for account in accounts:
        figures.counts.update(account["counts"])
        figures.wrong += account["wrong"][:3]
    for action in ("commit", "read"):
        durations = sorted(
            duration for account in accounts for duration in account["seconds"].get(action, ())
        )
        if durations:
            figures.times[action] = (
                durations[len(durations) // 2],
                durations[len(durations) * 99 // 100],
            )
    quarter = len(samples) // 4
    if not quarter:
        return
    for quarter_number in range(4):
        part = samples[quarter_number * quarter : (quarter_number + 1) * quarter]
        figures.memory.append(statistics.mean(sample[0] for sample in part))
        figures.files.append(statistics.mean(sample[1] for sample in part))
    if figures.memory[3] > figures.memory[1] * _GROWTH + _SLACK_BYTES:
        figures.wrong.append(f"memory grows: {figures.memory}")
    if figures.files[3] > figures.files[1] + _SLACK_FILES:
        figures.wrong.append(f"open files grow: {figures.files}")


def _check(
    figures: Figures, accounts: list[dict[str, Any]], uri: str, options: dict[str, Any]
) -> None:
    """Check that the table has the acknowledged changes of each writer."""
    table_batches, wrong = batches_of(
        lance_spark.open_dataset(uri, storage_options=options).to_table()
    )
    figures.wrong += wrong
    expected = {0: 0}
    unknown: dict[int, list[int | None]] = {}
    for account in accounts:
        expected.update({int(batch): value for batch, value in account["batches"].items()})
        unknown.update({int(batch): values for batch, values in account["unknown"].items()})
    for batch, values in unknown.items():
        if table_batches.pop(batch, None) not in values:
            figures.wrong.append(f"batch {batch} is none of what it may be: {values}")
    lost = {batch for batch, value in expected.items() if table_batches.get(batch) != value}
    surplus = table_batches.keys() - expected.keys()
    if lost:
        figures.wrong.append(f"{len(lost)} batches are lost or wrong: {sorted(lost)[:5]}")
    if surplus:
        writers = {batch // MILLION for batch in surplus}
        figures.wrong.append(
            f"{len(surplus)} batches that should not be there, of writers {writers}"
        )
    figures.counts["rows in the end"] = len(expected) * 20

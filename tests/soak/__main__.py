"""`python -m tests.soak`: thousands of faults, minutes of load, everything at once, hostile inputs. Exit status 1 on any error.

It prints the result of each step when the step ends.

| environment | default | what it says |
| --- | --- | --- |
| `SOAK_MINUTES` | 4 | minutes of load: half of them with everything at once, a third on a local disk, the rest on S3 |
| `SOAK_RELEASES` | three of them | releases of pylance that write, too, each by an interpreter of its own; the first run installs them. Empty: none |
| `SOAK_SCHEDULES` | 3000 | schedules of faults |
| `SOAK_FIRST` | 1000 | the first seed |
| `SOAK_PROCESSES` | number of cores | processes that run schedules |
| `SOAK_INPUT_MINUTES` | 1 | minutes of hostile inputs |
| `SOAK_KILL_ROUNDS` | 4 | times that Spark's executors are killed at random, and its driver in the end, besides those at chosen moments |
| `SOAK_INDEX_SECONDS` | 60 | seconds in which writers of this package and of pylance change a table and its indexes, once with row addresses and once with stable row ids |
| `SOAK_MEM_WAL_SECONDS` | 60 | seconds in which writers of both clients write to the shards of a MemWAL and are killed, beside compactions, cleanup and fresh reads |
| `SOAK_WRITERS`, `SOAK_READERS` | 16 | processes that write and read, on a local disk; on S3 half of them: the server is one process |
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any

from tests.faults.__main__ import run_all
from tests.soak.load import Figures, load
from tests.soak.releases import RELEASES

#: A planted mistake must be found within so many schedules.
_ENOUGH = 1_000
#: Seconds of a round of `mixed`, after which all rows are compared.
_ROUND = 100
_Rows = list[tuple[str, str, str]]


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def faults() -> tuple[_Rows, bool]:
    """Run schedules, and check that they detect planted mistakes."""
    from tests.faults.mutations import MUTATIONS

    first, count = _number("SOAK_FIRST", 1000), _number("SOAK_SCHEDULES", 3000)
    processes = _number("SOAK_PROCESSES", os.cpu_count() or 1)
    result = run_all(first, count, processes)
    fault_counts: Counter[str] = Counter()
    for name, number in result["faults"].items():
        fault_counts[name.partition(" of ")[0]] += number
    ends: Counter[str] = Counter()
    for name, number in result["outcomes"].items():
        ends[name.rpartition(", ")[2]] += number
    for seed, store_kind, wrong, _ in result["failed"]:
        print(f"seed {seed} on {store_kind}:", *wrong, sep="\n    ")
    rows = [
        (
            "schedules",
            f"{result['schedules']:,}",
            f"{result['schedules'] / result['seconds']:.1f}/s",
        ),
        ("calls to stores", f"{result['steps']:,}", ""),
        ("operations", f"{ends.total():,}", ", ".join(f"{n:,} {end}" for end, n in ends.items())),
        ("versions, each judged", f"{result['versions']:,}", ""),
        ("reads, each judged", f"{result['reads']:,}", ""),
        *((f"fault: {fault}", f"{number:,}", "") for fault, number in fault_counts.most_common()),
        ("schedules with something lost", str(len(result["failed"])), ""),
    ]
    missed = []
    for name in MUTATIONS:
        if not run_all(1, _ENOUGH, store_kind="s3", mutation=name)["failed"]:
            missed.append(name)
    rows.append(("mistakes made on purpose", f"{len(MUTATIONS)}", f"not found: {missed or 'none'}"))
    return rows, not result["failed"] and not missed


def loads() -> tuple[_Rows, bool]:
    """Put tables under load, on a local disk and on S3."""
    from tests.support.stores.aws import BUCKET, serving

    seconds = 60.0 * float(os.environ.get("SOAK_MINUTES", "4"))
    writers, readers = _number("SOAK_WRITERS", 16), _number("SOAK_READERS", 16)
    with tempfile.TemporaryDirectory() as folder:
        local = load(f"{folder}/table", seconds / 3, writers=writers, readers=readers)
    with serving() as aws:
        remote = load(
            f"s3://{BUCKET}/table",
            seconds / 6,
            writers=max(writers // 2, 1),
            readers=max(readers // 2, 1),
            options=aws.ours,
            place="S3 (moto)",
            age=60,
        )
    rows = [*_figures_text(local), *_figures_text(remote)]
    return rows, not (local.wrong or remote.wrong)


def _figures_text(figures: Figures) -> _Rows:
    label, counts = f"load, {figures.where}", figures.counts
    for text in figures.wrong:
        print(f"{label}: {text}")
    rows = [
        (
            f"{label}: processes",
            f"{figures.writers} + {figures.readers} + 2",
            f"{figures.seconds:.0f} s",
        ),
        (
            f"{label}: commits",
            f"{counts['commits']:,}",
            f"{counts['commits'] / figures.seconds:.1f}/s",
        ),
        (
            f"{label}: conflicts, retries",
            f"{counts['conflicts']:,}, {counts['retries']:,}",
            f"{counts['given up']} given up, {counts['uncertain']} uncertain",
        ),
        (f"{label}: reads", f"{counts['reads']:,}", f"{counts['rows']:,} rows checked"),
        (
            f"{label}: compactions",
            f"{counts['compactions']:,}",
            f"{counts['compactions given up']:,} given up, {counts['versions removed']:,} versions "
            "removed",
        ),
    ]
    for action, (median, slow) in figures.times.items():
        rows.append(
            (
                f"{label}: {action}",
                f"{median * 1000:.0f} ms",
                f"99th percentile {slow * 1000:.0f} ms",
            )
        )
    if figures.memory:
        memory = " ".join(f"{num_bytes / 1e6:.0f}" for num_bytes in figures.memory)
        files = " ".join(f"{num_files:.0f}" for num_files in figures.files)
        rows.append((f"{label}: memory by quarter", memory, "MB of a process"))
        rows.append((f"{label}: open files by quarter", files, "of a process"))
    rows.append((f"{label}: lost or wrong", str(len(figures.wrong)), ""))
    return rows


def kills() -> tuple[_Rows, bool]:
    """Kill executors and drivers of Spark while they change a table."""
    return _reported_by("tests.spark.kills", "--rounds", os.environ.get("SOAK_KILL_ROUNDS", "4"))


def mixed() -> tuple[_Rows, bool]:
    """Let SQL, streams and pylance change the same tables, then only this package."""
    seconds = 30.0 * float(os.environ.get("SOAK_MINUTES", "4"))
    releases = os.environ.get("SOAK_RELEASES", ",".join(RELEASES))
    rows: _Rows = []
    good = True
    others = ["--releases", releases]
    for name, share, arguments in (
        ("with pylance", 0.5, ["--sql", "4", "--own", "2", *others]),
        ("streams that end at any point", 0.25, ["--streams", "called", "--sql", "0", *others]),
        ("alone", 0.25, ["--alone", "--sql", "2", "--own", "2"]),
    ):
        rounds = str(max(round(seconds * share / _ROUND), 1))
        new, right = _reported_by(
            *("tests.soak.mixed", "--seconds", str(seconds * share), "--rounds", rounds),
            *("--seed", str(_number("SOAK_FIRST", 1000)), *arguments),
        )
        rows += [(f"{measure} ({name})", value, note) for measure, value, note in new]
        good = good and right
    return rows, good


def indexes() -> tuple[_Rows, bool]:
    """Let writers of this package and pylance change a table and its indexes."""
    seconds, first = os.environ.get("SOAK_INDEX_SECONDS", "60"), _number("SOAK_FIRST", 1000)
    rows: _Rows = []
    good = True
    for seed in (first, first + 1):
        name = "stable row ids" if seed % 2 else "row addresses"
        new, right = _reported_by("tests.soak.indexes", "--seconds", seconds, "--seed", str(seed))
        rows += [(f"{text} ({name})", value, note) for text, value, note in new]
        good = good and right
    return rows, good


def mem_wal() -> tuple[_Rows, bool]:
    """Let writers of both clients fight for the shards of a MemWAL, while others compact."""
    seconds = os.environ.get("SOAK_MEM_WAL_SECONDS", "60")
    return _reported_by("tests.soak.mem_wal", "--seconds", seconds)


def hostile() -> tuple[_Rows, bool]:
    """Run hostile inputs."""
    return _reported_by("tests.hostile", "--minutes", os.environ.get("SOAK_INPUT_MINUTES", "1"))


def _reported_by(module: str, *arguments: str) -> tuple[_Rows, bool]:
    """Run a module that prints its result as JSON in the last line."""
    name = module.rpartition(".")[2]
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    last = done.stdout.strip().rpartition("\n")[2]
    try:
        reported = json.loads(last)
    except ValueError:
        print(done.stdout)
        return [(name, "?", f"exit code {done.returncode}")], False
    if done.returncode:
        print(done.stdout)
    rows = [(f"{name}: {measure}", str(value), "") for measure, value in reported.items()]
    return rows, not done.returncode


def main() -> int:
    good = True
    for part in (faults, loads, mixed, indexes, mem_wal, kills, hostile):
        started = time.monotonic()
        rows, right = part()
        _print([*rows, (f"{part.__name__}: seconds", f"{time.monotonic() - started:.0f}", "")])
        good = good and right
    print("nothing lost" if good else "SOMETHING WAS LOST OR WRONG: see above")
    return 0 if good else 1


def _print(rows: Any) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, value, note in rows:
        print(f"{name:{widths[0]}}  {value:>{widths[1]}}  {note}".rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())

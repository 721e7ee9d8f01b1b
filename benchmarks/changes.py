"""Changes of tables without Spark: the time and the memory of this package, against pylance.

    python benchmarks/changes.py [--data DIR] [--scale 1.0] [--rounds 3] [--only WORD] [--update]

Each measurement is a new process of one client. The process first makes the change to a table of
few rows, so that all modules are loaded. Then the process opens a copy of the table and changes the
copy. The clients take turns. Seconds and ratios are medians of the rounds.

"MB at peak" is the growth of `ru_maxrss` during the change. It includes mapped data files. "without
mapped files" is the growth of the anonymous memory. Another process of the client measures it: a
thread reads the anonymous memory every two milliseconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import change_cases as cases
from benchmarks import change_tables, report
from benchmarks.measuring import memory_of, run_in_turns
from benchmarks.tables import copy_table

#: The folder of this process.
SELF = Path("/proc/self")
CLIENTS = ("lance_spark", "pylance")
#: The scale of the tables that a process changes first.
WARM_UP_SCALE = 0.001
HEADER = [
    "change",
    "seconds",
    "time / pylance",
    "processor time / pylance",
    "MB at peak",
    "pylance",
    "without mapped files",
    "pylance",
]


@dataclass(frozen=True, slots=True)
class Order:
    """A measurement for a new process.

    Attributes
    ----------
    title, suffix : str
        The change, and the suffix of the table's name.
    client : str
    tables : list of (str, float)
        The paths and scales of the tables to change. The last change is measured.
    read_memory : bool
        Whether a thread reads the anonymous memory.
    """

    title: str
    suffix: str
    client: str
    tables: list[tuple[str, float]]
    read_memory: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """The result of a measurement: times in seconds, memory in bytes."""

    seconds: float
    processor_seconds: float
    peak: int
    anonymous: int


@dataclass(frozen=True, slots=True)
class Tables:
    """The folders of the tables, and the scale of the tables that are measured."""

    folder: Path
    scale: float

    @property
    def folders(self) -> list[tuple[Path, float]]:
        """Return the folder of the tables of each scale; the scale of the warm-up comes first."""
        return [
            (self.folder / "warm", WARM_UP_SCALE),
            (self.folder / f"{self.scale:g}", self.scale),
        ]


def main() -> None:
    parser = report.argument_parser(__doc__, data="demo-data/changes", update=True)
    parser.add_argument("--only", default="", help="part of the title of a change")
    parser.add_argument("--order", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    tables = Tables(arguments.data.absolute(), arguments.scale)
    if arguments.order is not None:
        print(json.dumps(asdict(measure(Order(**json.loads(arguments.order))))))
        return
    if arguments.prepare:
        for folder, scale in tables.folders:
            change_tables.prepare(folder, scale)
        return
    # Another process writes the tables, so that this process does not load pylance.
    run_process("--prepare", "--data", str(tables.folder), "--scale", str(tables.scale))
    lines = []
    for case in cases.CASES:
        for suffix in case.suffixes:
            title = case.title + (", stable row ids" if suffix else "")
            if arguments.only in title:
                lines.append([title, *cells(case, suffix, tables, arguments.rounds)])
                print("| " + " | ".join(lines[-1]) + " |", flush=True)
    text = report.table(HEADER, lines)
    print(f"\n{text}")
    if arguments.update:
        report.put_into_readme("changes", text)


def cells(case: cases.Case, suffix: str, tables: Tables, rounds: int) -> list[str]:
    """Measure a change by each client in turns; return the cells of the table's line."""
    figures = run_in_turns(
        {client: partial(run_order, case, suffix, client, tables, False) for client in CLIENTS},
        rounds,
        warm_up=False,
    )
    anonymous = {
        client: run_order(case, suffix, client, tables, True).anonymous for client in CLIENTS
    }
    seconds, processor_seconds, peak = (
        {
            client: statistics.median(getattr(result, field) for result in figures[client])
            for client in CLIENTS
        }
        for field in ("seconds", "processor_seconds", "peak")
    )
    ratio = seconds["lance_spark"] / seconds["pylance"]
    processor_ratio = processor_seconds["lance_spark"] / processor_seconds["pylance"]
    return [
        f"{seconds['lance_spark']:.3f}",
        f"**{ratio:.2f}**" if ratio > 2 else f"{ratio:.2f}",
        f"{processor_ratio:.2f}",
        *(f"{memory[client] / 1e6:.0f}" for memory in (peak, anonymous) for client in CLIENTS),
    ]


def run_order(
    case: cases.Case, suffix: str, client: str, tables: Tables, read_memory: bool
) -> Figures:
    """Measure a change of a copy of its table in a new process."""
    copies = Path(tempfile.mkdtemp(prefix="run-", dir=tables.folder))
    try:
        paths = []
        for folder, scale in tables.folders:
            path = copies / f"table-{scale}.lance"
            copy_table(folder / case.table_name(suffix, scale), path)
            paths.append((str(path), scale))
        order = Order(case.title, suffix, client, paths, read_memory)
        return Figures(**json.loads(run_process("--order", json.dumps(asdict(order)))))
    finally:
        shutil.rmtree(copies)


def run_process(*arguments: str) -> str:
    """Run this program in a new process; return the last line of its output."""
    command = [sys.executable, __file__, *arguments]
    completed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return completed.stdout.strip().rpartition("\n")[2]


def measure(order: Order) -> Figures:
    """Change the tables of an order, and measure the last change."""
    (case,) = (
        case for case in cases.CASES if case.title == order.title and order.suffix in case.suffixes
    )
    change = case.by_lance_spark if order.client == "lance_spark" else case.by_pylance
    *warm_up_tables, (path, scale) = order.tables
    for warm_up_path, warm_up_scale in warm_up_tables:
        change(warm_up_path, warm_up_scale)
    with anonymous_memory(order.read_memory) as anonymous:
        before = resource.getrusage(resource.RUSAGE_SELF)
        resident = memory_of(SELF, "VmRSS")
        start = time.perf_counter()
        change(path, scale)
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_SELF)
    return Figures(
        seconds=seconds,
        processor_seconds=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        peak=max(after.ru_maxrss * 1024 - resident, 0),
        anonymous=max(anonymous) - anonymous[0],
    )


@contextmanager
def anonymous_memory(read_memory: bool) -> Iterator[list[int]]:
    """Yield the anonymous memory of this process: first now, then the most in the context.

    Without `read_memory`, the list has no second value.
    """
    values = [memory_of(SELF, "RssAnon")]
    stop = threading.Event()

    def watch() -> None:
        values.append(0)
        while not stop.wait(0.002):
            values[1] = max(values[1], memory_of(SELF, "RssAnon"))

    thread = threading.Thread(target=watch)
    if read_memory:
        thread.start()
    yield values
    stop.set()
    if read_memory:
        thread.join()


if __name__ == "__main__":
    main()

"""Changes of tables: this package against pylance, time and memory.

    python benchmarks/changes.py [--data DIR] [--scale 1.0] [--rounds 3] [--only WORD] [--update]

Each measurement is a process of its own, which first makes the same change to a table of the same
shape with few rows, so that modules are loaded, and then opens a copy of the table and changes it.
The clients take turns. Seconds and ratios are of the median round. Memory is what the process needs
more at its peak than before: `ru_maxrss`, which counts the pages of mapped data files too, and in
another process the anonymous memory alone, looked at every two milliseconds.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import change_cases as cases
from benchmarks import change_tables as tables

CLIENTS = ("lance_spark", "pylance")
MARKS = ("<!-- changes -->", "<!-- end of changes -->")
#: Tables of the warm-up have so many rows, compared with the others.
_WARM = 0.001
_HEADER = [
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
class Figures:
    """Of one measurement: wall and processor time in seconds, memory in bytes."""

    seconds: float
    cpu: float
    peak: int
    anonymous: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/changes"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--update", action="store_true", help="put the table into README.md")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        given = json.loads(arguments.run)
        print(json.dumps(_prepare(given) if "prepare" in given else _measure(**given)))
        return
    folder = arguments.data.absolute() / f"{arguments.scale:g}"
    warm = arguments.data.absolute() / "warm"
    _child({"prepare": [[str(folder), arguments.scale], [str(warm), _WARM]]})
    lines = []
    for case in cases.CASES:
        for kind in case.kinds:
            title = case.title + (", stable row ids" if kind else "")
            if arguments.only in title:
                line = _line(case, kind, folder, warm, arguments.scale, arguments.rounds)
                lines.append([title, *line])
                print("| " + " | ".join(lines[-1]) + " |", flush=True)
    rows = ["| " + " | ".join(line) + " |" for line in [_HEADER, ["---"] * len(_HEADER), *lines]]
    print("\n" + "\n".join(rows))
    if arguments.update:
        _update(Path(__file__).parent / "README.md", "\n".join(rows))


def _line(
    case: cases.Case, kind: str, folder: Path, warm: Path, scale: float, rounds: int
) -> list[str]:
    found: dict[str, list[Figures]] = {client: [] for client in CLIENTS}
    anonymous = {}
    for number in range(rounds + 1):
        for client in CLIENTS:
            figures = _in_process(case, kind, client, folder, warm, scale, number == rounds)
            if number == rounds:
                anonymous[client] = figures.anonymous
            else:
                found[client].append(figures)
    seconds = {client: statistics.median(f.seconds for f in found[client]) for client in CLIENTS}
    cpu = {client: statistics.median(f.cpu for f in found[client]) for client in CLIENTS}
    peak = {client: statistics.median(f.peak for f in found[client]) for client in CLIENTS}
    ours, theirs = (seconds[client] for client in CLIENTS)
    ratio, cpu_ratio = f"{ours / theirs:.2f}", f"{cpu['lance_spark'] / cpu['pylance']:.2f}"
    memory = [f"{figures[client] / 1e6:.0f}" for figures in (peak, anonymous) for client in CLIENTS]
    return [f"{ours:.3f}", f"**{ratio}**" if ours > 2 * theirs else ratio, cpu_ratio, *memory]


def _in_process(
    case: cases.Case,
    kind: str,
    client: str,
    folder: Path,
    warm: Path,
    scale: float,
    watched: bool,
) -> Figures:
    place = Path(tempfile.mkdtemp(prefix="run-", dir=folder.parent))
    try:
        paths = []
        for source, size in ((warm, _WARM), (folder, scale)):
            path = place / f"table-{size}.lance"
            tables.copied(source / case.table_name(kind, size), path)
            paths.append((str(path), size))
        given = {"title": case.title, "kind": kind, "client": client}
        given |= {"paths": paths, "watched": watched}
        return Figures(**_child(given))
    finally:
        shutil.rmtree(place)


def _child(given: dict[str, Any]) -> Any:
    command = [sys.executable, __file__, "--run", json.dumps(given)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _prepare(given: dict[str, Any]) -> None:
    for folder, scale in given["prepare"]:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tables.prepare(Path(folder), scale)


def _measure(
    title: str, kind: str, client: str, paths: list[tuple[str, float]], watched: bool
) -> dict[str, Any]:
    (case,) = (one for one in cases.CASES if one.title == title and kind in one.kinds)
    change = case.ours if client == "lance_spark" else case.theirs
    (warm, small), (path, scale) = paths
    change(warm, small)
    stop = threading.Event()
    highest = [0]
    if watched:
        watcher = threading.Thread(target=_watch, args=(stop, highest))
        watcher.start()
    before = resource.getrusage(resource.RUSAGE_SELF)
    resident, anonymous = _memory("VmRSS"), _memory("RssAnon")
    start = time.perf_counter()
    change(path, scale)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    if watched:
        stop.set()
        watcher.join()
    return {
        "seconds": seconds,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak": max(after.ru_maxrss * 1024 - resident, 0),
        "anonymous": max(highest[0] - anonymous, 0),
    }


def _watch(stop: threading.Event, highest: list[int]) -> None:
    while not stop.wait(0.002):
        highest[0] = max(highest[0], _memory("RssAnon"))


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def _update(path: Path, text: str) -> None:
    before, rest = path.read_text().split(MARKS[0])
    _, after = rest.split(MARKS[1])
    path.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()

"""Wide tables and tiny fragments: this package against pylance.

    python benchmarks/wide.py [--data DIR] [--rounds 3] [--columns 100,1000,10000] [--fragments
    500,10000]
                              [--only REGEX] [--update]

What such tables cost is what a column or a fragment costs, whatever it holds: set-up, descriptions,
requests. Each measurement runs in this process, on a new copy of the table if it changes one; one
run of each client goes before, and the clients take turns. Seconds and ratios are of the median
round. The last columns of the table are microseconds of processor time for each column or fragment:
they stay the same where the time grows in proportion.

Tables of columns have three rows of numbers in one data file; those that are compacted, updated or
lose rows have four files of one row. Tables of fragments have three columns and four rows in each
fragment; half of the fragments change, or half of the rows of each.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lance
import numpy as np
import pyarrow as pa

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import lance_spark
from benchmarks.spark import table as markdown

MARKS = ("<!-- wide -->", "<!-- end of wide -->")
_ROWS_OF_FRAGMENT = 4
_STRUCTS = 300
_HEADER = [
    "table",
    "change",
    "seconds",
    "time / pylance",
    "processor time / pylance",
    "µs each",
    "pylance, µs each",
]

Action = Callable[[str], object]


class Case(NamedTuple):
    """Something that both clients do with a table.

    Attributes
    ----------
    table, title : str
    size : int
        Columns or fragments.
    source : Path or None
        The table that is read or copied; None for one that is written.
    ours, theirs : callable
        Get the path of the table, or of that which they write.
    changes : bool
        Whether each run needs a table of its own.
    """

    table: str
    title: str
    size: int
    source: Path | None
    ours: Action
    theirs: Action
    changes: bool = True


class Figures(NamedTuple):
    """Wall and processor time of a run, in seconds."""

    seconds: float
    cpu: float


def numbers(columns: int, rows: int) -> pa.Table:
    """Return columns of numbers, different in each row."""
    rng = np.random.default_rng(5)
    return pa.table({f"c{at}": rng.integers(0, 1 << 30, rows) for at in range(columns)})


def structs(count: int, rows: int) -> pa.Table:
    """Return columns of structs of a number and a string."""
    values = [pa.array(np.arange(rows)), pa.array([str(row) for row in range(rows)])]
    struct = pa.StructArray.from_arrays(values, ["number", "text"])
    return pa.table({f"s{at}": struct for at in range(count)})


def fragments(count: int) -> pa.Table:
    """Return the rows of a table of some fragments; column `even` is 0 in every other fragment,
    `half` in half of the rows.
    """
    rows = np.arange(count * _ROWS_OF_FRAGMENT)
    return pa.table(
        {
            "even": rows // _ROWS_OF_FRAGMENT % 2,
            "half": rows % 2,
            "text": [str(row) for row in rows.tolist()],
        }
    )


def prepared(path: Path, rows: Callable[[], pa.Table], rows_per_file: int) -> Path:
    """Write a table by pylance, if it is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        lance.write_dataset(rows(), str(path), max_rows_per_file=rows_per_file)
    return path


def column_cases(
    folder: Path, name: str, rows: Callable[[int], pa.Table], size: int
) -> Iterator[Case]:
    """Yield what is done with a table of many columns."""
    data = rows(3)
    whole = prepared(folder / f"{name}-whole.lance", lambda: data, 1024)
    four = prepared(folder / f"{name}-four.lance", lambda: rows(4), 1)
    yield Case(
        name,
        "write",
        size,
        None,
        lambda path: lance_spark.write_dataset(data, path),
        lambda path: lance.write_dataset(data, path),
    )
    yield from read_cases(name, size, whole)
    yield compact_case(name, size, four)
    if name.endswith("columns"):
        yield Case(
            name,
            "update one row of four",
            size,
            four,
            lambda path: lance_spark.open_dataset(path).update({"c0": 1}, [("_rowid", "==", 0)]),
            lambda path: lance.dataset(path).update({"c0": "1"}, "_rowid = 0"),
        )
        yield delete_case(name, "delete one row of four", size, four, ("_rowid", 0))


def fragment_cases(folder: Path, size: int) -> Iterator[Case]:
    """Yield what is done with a table of many fragments."""
    name = f"{size:,} fragments"
    source = prepared(folder / f"{name}.lance", lambda: fragments(size), _ROWS_OF_FRAGMENT)
    yield from read_cases(name, size, source)
    for column, title in (("even", "half of the fragments"), ("half", "half of the rows of each")):
        yield Case(
            name,
            f"update {title}",
            size,
            source,
            lambda path, column=column: lance_spark.open_dataset(path).update(  # type: ignore[misc]
                {"text": "new"}, [(column, "==", 0)]
            ),
            lambda path, column=column: lance.dataset(path).update(  # type: ignore[misc]
                {"text": "'new'"}, f"{column} = 0"
            ),
        )
        yield delete_case(name, f"delete {title}", size, source, (column, 0))
    yield compact_case(name, size, source)


def read_cases(name: str, size: int, source: Path) -> Iterator[Case]:
    """Yield the reading and the planning of a table."""
    yield Case(
        name,
        "read",
        size,
        source,
        lambda path: lance_spark.open_dataset(path).to_table(),
        lambda path: lance.dataset(path).to_table(),
        changes=False,
    )
    yield Case(
        name,
        "open and plan",
        size,
        source,
        lambda path: lance_spark.open_dataset(path).plan(),
        lambda path: lance.dataset(path).scanner().explain_plan(),
        changes=False,
    )


def compact_case(name: str, size: int, source: Path) -> Case:
    """Return the compaction of a table to one fragment."""
    return Case(
        name,
        "compact",
        size,
        source,
        lambda path: lance_spark.open_dataset(path).compact_files(),
        lambda path: lance.dataset(path).optimize.compact_files(),
    )


def delete_case(name: str, title: str, size: int, source: Path, row: tuple[str, int]) -> Case:
    """Return a deletion of the rows in which a column has a value."""
    column, value = row
    return Case(
        name,
        title,
        size,
        source,
        lambda path: lance_spark.open_dataset(path).delete([(column, "==", value)]),
        lambda path: lance.dataset(path).delete(f"{column} = {value}"),
    )


def run(case: Case, action: Action, folder: Path) -> Figures:
    """Run a case once."""
    path = folder / "table.lance"
    if not case.changes and case.source is not None:
        path = case.source
    elif case.source is not None:
        shutil.copytree(case.source, path)
    try:
        start, cpu = time.perf_counter(), time.process_time()
        action(str(path))
        return Figures(time.perf_counter() - start, time.process_time() - cpu)
    finally:
        if case.changes:
            shutil.rmtree(path, ignore_errors=True)


def measure(case: Case, rounds: int, folder: Path) -> list[str]:
    """Return the line of a case."""
    found: dict[str, list[Figures]] = {"ours": [], "theirs": []}
    for number in range(rounds + 1):
        for client, action in (("ours", case.ours), ("theirs", case.theirs)):
            figures = run(case, action, folder)
            if number:
                found[client].append(figures)
    ours, theirs = (
        Figures(*(statistics.median(column) for column in zip(*one, strict=True)))
        for one in found.values()
    )
    ratio, cpu_ratio = ours.seconds / theirs.seconds, ours.cpu / theirs.cpu
    return [
        case.table,
        case.title,
        f"{ours.seconds:.3f}",
        f"**{ratio:.1f}**" if ratio > 3 else f"{ratio:.1f}",
        f"**{cpu_ratio:.1f}**" if cpu_ratio > 3 else f"{cpu_ratio:.1f}",
        f"{ours.cpu / case.size * 1e6:.0f}",
        f"{theirs.cpu / case.size * 1e6:.0f}",
    ]


def cases(folder: Path, columns: list[int], counts: list[int]) -> Iterator[Case]:
    """Yield all cases; the tables of one size are made when its first case is asked for."""
    for size in columns:
        yield from column_cases(folder, f"{size:,} columns", partial(numbers, size), size)
    yield from column_cases(folder, f"{_STRUCTS} structs", partial(structs, _STRUCTS), _STRUCTS)
    for size in counts:
        yield from fragment_cases(folder, size)


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",") if size]


def _update(path: Path, text: str) -> None:
    before, rest = path.read_text().split(MARKS[0])
    _, after = rest.split(MARKS[1])
    path.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}")


def main() -> None:
    parser: Any = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/wide"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--columns", type=_sizes, default=[100, 1_000, 10_000])
    parser.add_argument("--fragments", type=_sizes, default=[500, 10_000])
    parser.add_argument("--only", default="", help="cases whose table and change it is found in")
    parser.add_argument("--update", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    arguments.data.mkdir(parents=True, exist_ok=True)
    lines = []
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        for case in cases(arguments.data, arguments.columns, arguments.fragments):
            if re.search(arguments.only, f"{case.table} {case.title}"):
                lines.append(measure(case, arguments.rounds, Path(folder)))
                print(" | ".join(lines[-1]), flush=True)
    text = markdown(_HEADER, lines)
    print(f"\n{text}")
    if arguments.update:
        _update(Path(__file__).parent / "README.md", text)


if __name__ == "__main__":
    main()

"""Wide tables and tiny fragments: this package against pylance.

    python benchmarks/wide.py [--data DIR] [--rounds 3] [--columns 100,1000,10000]
    [--filled 100,1000,5000] [--fragments 500,10000] [--only REGEX] [--update]

The benchmark measures the cost of a column or of a fragment apart from its content: set-up,
descriptions, requests. Each measurement runs in this process. A change gets a new copy of the
table. The clients take turns, after a round that is not measured. Seconds and ratios are medians of
the rounds. The last two columns of the report are microseconds of processor time for each column or
fragment of the table.

Tables of many columns have three rows of numbers in one data file. If rows change, or if the table
is compacted, it has four files of one row. Filled tables have 4,000 rows in one file, or in four if
they are compacted: of numbers, of strings, or of vectors of eight floats. Tables of many fragments
have three columns, and four rows in each fragment. A change concerns half of the fragments, or half
of the rows of each.
"""

from __future__ import annotations

import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import lance
import numpy as np
import pyarrow as pa

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import lance_spark
from benchmarks import report
from benchmarks.measuring import run_in_turns
from benchmarks.tables import write_once

FRAGMENT_ROWS = 4
FILLED_ROWS = 4_000
#: Columns of a filled table that are read alone.
FEW_COLUMNS = 5
DIMENSION = 8
#: Columns of the table of structs.
STRUCTS = 300
HEADER = [
    "table",
    "change",
    "seconds",
    "time / pylance",
    "processor time / pylance",
    "µs each",
    "pylance, µs each",
]

#: An operation on the table at a path.
Action = Callable[[str], object]


class Case(NamedTuple):
    """An operation on a table.

    Attributes
    ----------
    table, title : str
        The names of the table and of the operation in the report.
    size : int
        The number of columns or of fragments.
    source : Path or None
        The table. None if the operation writes a new table.
    by_lance_spark, by_pylance : callable
        The operation by each client.
    changes : bool
        Whether the operation writes or changes the table, so that each run needs a new copy.
    """

    table: str
    title: str
    size: int
    source: Path | None
    by_lance_spark: Action
    by_pylance: Action
    changes: bool = True


class Figures(NamedTuple):
    """The wall time and the processor time of a run, in seconds."""

    wall: float
    processor: float


def numbers(columns: int, rows: int) -> pa.Table:
    """Return columns of random numbers."""
    rng = np.random.default_rng(5)
    return pa.table({f"c{number}": rng.integers(0, 1 << 30, rows) for number in range(columns)})


def strings(columns: int, rows: int) -> pa.Table:
    """Return columns of the digits of random numbers."""
    return pa.table(
        [column.cast(pa.string()) for column in numbers(columns, rows)], _names(columns)
    )


def vectors(columns: int, rows: int) -> pa.Table:
    """Return columns of random vectors."""
    rng = np.random.default_rng(5)
    arrays = [
        pa.FixedSizeListArray.from_arrays(rng.random(rows * DIMENSION, np.float32), DIMENSION)
        for _ in range(columns)
    ]
    return pa.table(arrays, _names(columns))


def _names(columns: int) -> list[str]:
    return [f"c{number}" for number in range(columns)]


def structs(count: int, rows: int) -> pa.Table:
    """Return columns of structs of a number and a string."""
    values = [pa.array(np.arange(rows)), pa.array([str(row) for row in range(rows)])]
    struct = pa.StructArray.from_arrays(values, ["number", "text"])
    return pa.table({f"s{number}": struct for number in range(count)})


def fragments(count: int) -> pa.Table:
    """Return the rows of a table of many fragments.

    Column `even` is 0 in every second fragment. Column `half` is 0 in every second row.
    """
    rows = np.arange(count * FRAGMENT_ROWS)
    return pa.table(
        {
            "even": rows // FRAGMENT_ROWS % 2,
            "half": rows % 2,
            "text": [str(row) for row in rows.tolist()],
        }
    )


def prepare(path: Path, rows: Callable[[], pa.Table], rows_per_file: int) -> Path:
    """Write a table by pylance, unless the table exists; return its path."""
    return write_once(
        path,
        lambda unfinished: lance.write_dataset(
            rows(), str(unfinished), max_rows_per_file=rows_per_file
        ),
    )


def column_cases(
    folder: Path, name: str, rows: Callable[[int], pa.Table], size: int
) -> Iterator[Case]:
    """Yield the operations on a table of many columns."""
    data = rows(3)
    one_file = prepare(folder / f"{name}-whole.lance", lambda: data, 1024)
    four_files = prepare(folder / f"{name}-four.lance", lambda: rows(4), 1)
    yield Case(
        name,
        "write",
        size,
        None,
        lambda path: lance_spark.write_dataset(data, path),
        lambda path: lance.write_dataset(data, path),
    )
    yield from read_cases(name, size, one_file)
    yield compact_case(name, size, four_files)
    if name.endswith("columns"):
        yield Case(
            name,
            "update one row of four",
            size,
            four_files,
            lambda path: lance_spark.open_dataset(path).update({"c0": 1}, [("_rowid", "==", 0)]),
            lambda path: lance.dataset(path).update({"c0": "1"}, "_rowid = 0"),
        )
        yield delete_case(name, "delete one row of four", size, four_files, ("_rowid", 0))


def filled_cases(
    folder: Path, kind: str, rows: Callable[[int, int], pa.Table], size: int
) -> Iterator[Case]:
    """Yield the operations on a table of many columns of some thousand rows."""
    name = f"{size:,} columns of {kind}"
    data = rows(size, FILLED_ROWS)
    one_file = prepare(folder / f"{name}.lance", lambda: data, FILLED_ROWS)
    four_files = prepare(folder / f"{name}-four.lance", lambda: data, FILLED_ROWS // 4)
    few = [f"c{number * (size // FEW_COLUMNS)}" for number in range(FEW_COLUMNS)]
    yield Case(
        name,
        "append",
        size,
        one_file,
        lambda path: lance_spark.write_dataset(data, path, mode="append"),
        lambda path: lance.write_dataset(data, path, mode="append"),
    )
    yield from read_cases(name, size, one_file)
    yield Case(
        name,
        f"read {FEW_COLUMNS} columns",
        size,
        one_file,
        lambda path: lance_spark.open_dataset(path).to_table(columns=few),
        lambda path: lance.dataset(path).to_table(columns=few),
        changes=False,
    )
    yield Case(
        name,
        "take one row",
        size,
        one_file,
        lambda path: lance_spark.open_dataset(path).take([FILLED_ROWS // 2]),
        lambda path: lance.dataset(path).take([FILLED_ROWS // 2]),
        changes=False,
    )
    yield compact_case(name, size, four_files)


def fragment_cases(folder: Path, size: int) -> Iterator[Case]:
    """Yield the operations on a table of many fragments."""
    name = f"{size:,} fragments"
    source = prepare(folder / f"{name}.lance", lambda: fragments(size), FRAGMENT_ROWS)
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
    """Yield a read of a table, and the planning of a read."""
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


def delete_case(name: str, title: str, size: int, source: Path, condition: tuple[str, int]) -> Case:
    """Return a deletion of the rows whose column has a value."""
    column, value = condition
    return Case(
        name,
        title,
        size,
        source,
        lambda path: lance_spark.open_dataset(path).delete([(column, "==", value)]),
        lambda path: lance.dataset(path).delete(f"{column} = {value}"),
    )


def run(case: Case, action: Action, folder: Path) -> Figures:
    """Run an operation once."""
    path = folder / "table.lance"
    if not case.changes and case.source is not None:
        path = case.source
    elif case.source is not None:
        shutil.copytree(case.source, path)
    try:
        wall, processor = time.perf_counter(), time.process_time()
        action(str(path))
        return Figures(time.perf_counter() - wall, time.process_time() - processor)
    finally:
        if case.changes:
            shutil.rmtree(path, ignore_errors=True)


def measure(case: Case, rounds: int, folder: Path) -> list[str]:
    """Run an operation by both clients in turns; return the cells of the report's line."""
    figures = run_in_turns(
        {
            "lance_spark": partial(run, case, case.by_lance_spark, folder),
            "pylance": partial(run, case, case.by_pylance, folder),
        },
        rounds,
    )
    by_lance_spark, by_pylance = (
        Figures(*map(statistics.median, zip(*figures[client], strict=True)))
        for client in ("lance_spark", "pylance")
    )
    return [
        case.table,
        case.title,
        f"{by_lance_spark.wall:.3f}",
        ratio_cell(by_lance_spark.wall, by_pylance.wall),
        ratio_cell(by_lance_spark.processor, by_pylance.processor),
        f"{by_lance_spark.processor / case.size * 1e6:.0f}",
        f"{by_pylance.processor / case.size * 1e6:.0f}",
    ]


def ratio_cell(by_lance_spark: float, by_pylance: float) -> str:
    """Return the ratio of two times, bold if this package needs more than three times as long."""
    ratio = by_lance_spark / by_pylance
    return f"**{ratio:.1f}**" if ratio > 3 else f"{ratio:.1f}"


def cases(folder: Path, columns: list[int], filled: list[int], counts: list[int]) -> Iterator[Case]:
    """Yield all cases. A table is written before its first case is yielded."""
    for size in columns:
        yield from column_cases(folder, f"{size:,} columns", partial(numbers, size), size)
    yield from column_cases(folder, f"{STRUCTS} structs", partial(structs, STRUCTS), STRUCTS)
    for size in filled:
        for rows in (numbers, strings, vectors):
            yield from filled_cases(folder, rows.__name__, rows, size)
    for size in counts:
        yield from fragment_cases(folder, size)


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",") if size]


def main() -> None:
    parser = report.argument_parser(__doc__, data="demo-data/wide", scale=False, update=True)
    parser.add_argument("--columns", type=_sizes, default=[100, 1_000, 10_000])
    parser.add_argument("--filled", type=_sizes, default=[100, 1_000, 5_000])
    parser.add_argument("--fragments", type=_sizes, default=[500, 10_000])
    parser.add_argument("--only", default="", help="a regular expression for table and change")
    arguments = parser.parse_args()
    arguments.data.mkdir(parents=True, exist_ok=True)
    lines = []
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder:
        for case in cases(arguments.data, arguments.columns, arguments.filled, arguments.fragments):
            if re.search(arguments.only, f"{case.table} {case.title}"):
                lines.append(measure(case, arguments.rounds, Path(folder)))
                print(" | ".join(lines[-1]), flush=True)
    text = report.table(HEADER, lines)
    print(f"\n{text}")
    if arguments.update:
        report.put_into_readme("wide", text)


if __name__ == "__main__":
    main()

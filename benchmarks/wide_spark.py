"""Wide tables through Spark: this package against Parquet.

    python benchmarks/wide_spark.py [--rounds 4] [--columns 5,1000,2000,5000] [--update]

A table has 4,000 rows of integers and doubles, in four files. The two formats take turns, and the
shortest time of an operation counts. A round before is not measured.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import run_in_turns, seconds_of
from benchmarks.tpc import FORMATS

ROWS = 4_000
FILES = 4
HEADER = ["columns", "operation", "Lance s", "Parquet s", "speed / Parquet"]


def write_tables(folder: Path, columns: int) -> None:
    """Write a table in both formats."""
    rng = np.random.default_rng(1)
    integers, floats = rng.integers(0, 1_000, ROWS), rng.random(ROWS)
    rows = pa.table(
        {f"c{number}": np.roll((integers, floats)[number % 2], number) for number in range(columns)}
    )
    lance_spark.write_dataset(rows, str(folder / "lance"), max_rows_per_file=ROWS // FILES)
    (folder / "parquet").mkdir()
    for number in range(FILES):
        part = rows.slice(number * ROWS // FILES, ROWS // FILES)
        pq.write_table(part, folder / "parquet" / f"{number}.parquet")


def plan_few(frame: Any) -> None:
    frame.select("c0", "c1", "c2", "c3", "c4").where("c0 >= 0")._jdf.queryExecution().executedPlan()


def read_few(frame: Any) -> None:
    frame.where("c0 >= 0").selectExpr("sum(c0 * c1 + c2 * c3 - c4)").collect()


def write(frame: Any, format_name: str, target: Path) -> None:
    frame.write.format(format_name).mode("overwrite").save(str(target))


def measured(spark: Any, folder: Path, columns: int, rounds: int) -> list[list[str]]:
    """Return the lines of the report for a table."""

    def load(format_name: str) -> Any:
        return spark.read.format(format_name).load(str(folder / format_name))

    def seconds(action: Callable[[Any], object], format_name: str) -> float:
        frame = load(format_name)
        return seconds_of(lambda: action(frame))

    def opened(format_name: str) -> float:
        return seconds_of(lambda: load(format_name).schema)

    def written(format_name: str) -> float:
        frame = load("parquet")
        return seconds_of(lambda: write(frame, format_name, folder / f"copy.{format_name}"))

    operations: dict[str, Callable[[str], float]] = {
        "open": opened,
        "plan a scan of five columns": partial(seconds, plan_few),
        "aggregate five columns": partial(seconds, read_few),
        "read": partial(seconds, bench.drain),
        "write the rows of Parquet": written,
    }
    lines = []
    for title, operation in operations.items():
        results = run_in_turns({name: partial(operation, name) for name in FORMATS}, rounds)
        own, other = (min(results[name]) for name in FORMATS)
        lines.append([f"{columns:,}", title, f"{own:.3f}", f"{other:.3f}", f"{other / own:.2f}"])
        print(" | ".join(lines[-1]), flush=True)
    return lines


def main() -> None:
    parser = report.argument_parser(__doc__, data=None, scale=False, rounds=4, update=True)
    parser.add_argument("--columns", default="5,1000,2000,5000", help="numbers of columns")
    arguments = parser.parse_args()
    spark = bench.session()
    lance_spark.enable(spark)
    lines = []
    for columns in map(int, arguments.columns.split(",")):
        folder = Path(tempfile.mkdtemp())
        try:
            write_tables(folder, columns)
            lines += measured(spark, folder, columns, arguments.rounds)
        finally:
            shutil.rmtree(folder)
    text = report.table(HEADER, lines)
    print(text)
    if arguments.update:
        report.put_into_readme("wide_spark", text)


if __name__ == "__main__":
    main()

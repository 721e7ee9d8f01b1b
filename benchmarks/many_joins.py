"""Plans of queries of many joins: this package beside Parquet.

    python benchmarks/many_joins.py [--rounds 4] [--joins 5,10,20,40] [--update]

A chain joins each table to the table before it. A star joins all tables to one. Every table but the
first has 20,000 rows and a filter, the first has 200,000 rows. The two formats take turns, and the
shortest time counts. A round before is not measured. "allowed" is 1.5 times Parquet's time of
planning, and 10 ms for each scan. "plans" counts the adaptive plans of a query: runtime filters and
subqueries have plans of their own.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import run_in_turns
from benchmarks.tpc import FORMATS

FACTS, ROWS = 200_000, 20_000
HEADER = ["query", "joins", "plan: Lance s", "Parquet s", "allowed s", "plans: Lance", "Parquet"]
HEADER += ["whole: Lance s", "Parquet s", "speed / Parquet"]


class Run(NamedTuple):
    """Seconds of a plan and of the whole query, the number of plans, and the answer."""

    plan: float
    whole: float
    plans: int
    answer: str


def write_tables(folder: Path, joins: int) -> None:
    """Write the tables of both formats: `t0`, which has a key for each other table, and `t1`, …."""
    rng = np.random.default_rng(1)
    keys = {f"k{number}": rng.integers(0, ROWS, FACTS) for number in range(1, joins + 1)}
    tables = {"t0": pa.table({**keys, "v": rng.integers(0, 1_000, FACTS)})}
    for number in range(1, joins + 1):
        columns = {"k": rng.permutation(ROWS), "next": rng.integers(0, ROWS, ROWS)}
        columns["v"] = rng.integers(0, 1_000, ROWS)
        tables[f"t{number}"] = pa.table(columns)
    for name, rows in tables.items():
        lance_spark.write_dataset(rows, str(folder / "lance" / name))
        (folder / "parquet" / name).mkdir(parents=True)
        pq.write_table(rows, folder / "parquet" / name / "0.parquet")


def query_of(shape: str, joins: int) -> str:
    """Return a query that joins the tables in a chain or in a star."""
    condition = {
        "chain": lambda number: "t0.k1" if number == 1 else f"t{number - 1}.next",
        "star": lambda number: f"t0.k{number}",
    }[shape]
    joined = [
        f"JOIN t{number} ON {condition(number)} = t{number}.k" for number in range(1, joins + 1)
    ]
    filters = [f"t{number}.v < 950" for number in range(1, joins + 1)]
    return f"SELECT sum(t0.v), count(*) FROM t0 {' '.join(joined)} WHERE {' AND '.join(filters)}"


def run(spark: Any, folder: Path, joins: int, query: str, format_name: str) -> Run:
    for number in range(joins + 1):
        frame = spark.read.format(format_name).load(str(folder / format_name / f"t{number}"))
        frame.createOrReplaceTempView(f"t{number}")
    start = time.perf_counter()
    frame = spark.sql(query)
    plan = frame._jdf.queryExecution().executedPlan()
    planned = time.perf_counter()
    plans = plan.toString().count("AdaptiveSparkPlan")
    begun = time.perf_counter()
    answer = repr(frame.collect())
    ended = time.perf_counter()
    return Run(planned - start, planned - start + ended - begun, plans, answer)


def measured(spark: Any, folder: Path, shape: str, joins: int, rounds: int) -> list[str]:
    """Return the line of the report for a query."""
    query = query_of(shape, joins)
    actions = {name: partial(run, spark, folder, joins, query, name) for name in FORMATS}
    results = run_in_turns(actions, rounds)
    if len({item.answer for items in results.values() for item in items}) != 1:
        sys.exit(f"answers of the {shape} of {joins} joins differ")
    plan, other_plan = (min(item.plan for item in results[name]) for name in FORMATS)
    whole, other_whole = (min(item.whole for item in results[name]) for name in FORMATS)
    plans, other_plans = (str(results[name][0].plans) for name in FORMATS)
    allowed = 1.5 * other_plan + 0.010 * (joins + 1)
    line = [shape, str(joins), f"{plan:.3f}", f"{other_plan:.3f}", f"{allowed:.3f}"]
    line += [plans, other_plans, f"{whole:.2f}", f"{other_whole:.2f}"]
    return [*line, f"{other_whole / whole:.2f}"]


def main() -> None:
    parser = report.argument_parser(__doc__, data=None, scale=False, rounds=4, update=True)
    parser.add_argument("--joins", default="5,10,20,40", help="numbers of joins")
    arguments = parser.parse_args()
    counts = [int(text) for text in arguments.joins.split(",")]
    spark = bench.session()
    lance_spark.enable(spark)
    folder = Path(tempfile.mkdtemp())
    lines = []
    try:
        write_tables(folder, max(counts))
        for shape in ("chain", "star"):
            for joins in counts:
                lines.append(measured(spark, folder, shape, joins, arguments.rounds))
                print(" | ".join(lines[-1]), flush=True)
    finally:
        shutil.rmtree(folder)
    text = report.table(HEADER, lines)
    print(text)
    if arguments.update:
        report.put_into_readme("many_joins", text)


if __name__ == "__main__":
    main()

"""Seconds of queries, by the number of a table's rows and by the number of its fragments.

    python benchmarks/growth.py [--data DIR] [--rows 1000000] [--rounds 3]

Three tables have 1, 4 and 16 times the rows, in four fragments each. Four tables have the same rows
in 1, 10, 1,000 and 10,000 fragments. The queries run in Spark with `lance_spark.enable(spark)`, two
tasks at a time. "start" reads a Python data source of ten rows: the least time of any query.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import median_seconds
from benchmarks.tables import write_once

TIMES = (1, 4, 16)
FRAGMENTS = (1, 10, 1_000, 10_000)
QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "all rows": bench.drain,
    "one column": lambda frame: bench.drain(frame.select("count")),
    "count(*)": lambda frame: frame.count(),
    "one row": lambda frame: frame.where("id = 123456").collect(),
    "ten rows": lambda frame: frame.limit(10).collect(),
}


def write(path: Path, rows: int, fragments: int) -> None:
    """Write a table of numbers by pylance."""
    import lance

    rng = np.random.default_rng(3)
    step = -(-rows // fragments)
    schema = pa.schema({"id": pa.int64(), "count": pa.int32(), "price": pa.float64()})
    written = []
    for start in range(0, rows, step):
        count = min(step, rows - start)
        table = pa.table(
            {
                "id": np.arange(start, start + count),
                "count": rng.integers(0, 1000, count).astype(np.int32),
                "price": rng.random(count),
            },
            schema,
        )
        written += lance.fragment.write_fragments(table, str(path), mode="append")
    lance.LanceDataset.commit(str(path), lance.LanceOperation.Overwrite(schema, written))


def main() -> None:
    parser = report.argument_parser(__doc__, scale=False)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the smallest table")
    arguments = parser.parse_args()
    cases = [(arguments.rows * times, 4) for times in TIMES]
    cases += [(arguments.rows, fragments) for fragments in FRAGMENTS]
    spark = bench.session()
    lance_spark.enable(spark)
    ten_rows = spark.read.format("nothing").load()
    lines = []
    for rows, fragments in cases:
        path = write_once(
            arguments.data / f"growth-{rows}-{fragments}.lance",
            partial(write, rows=rows, fragments=fragments),
        )
        frame = spark.read.format("lance").load(str(path))
        actions: dict[str, Callable[[], object]] = {"start": partial(bench.drain, ten_rows)}
        actions |= {name: partial(query, frame) for name, query in QUERIES.items()}
        seconds = median_seconds(actions, arguments.rounds)
        lines.append(
            [f"{rows / 1e6:g} M", f"{fragments:,}", f"{seconds['start']:.2f}"]
            + [f"{seconds[name]:.2f}" for name in QUERIES]
        )
        print(" | ".join(lines[-1]), flush=True)
    print()
    print(report.table(["rows", "fragments", "start", *QUERIES], lines))
    spark.stop()


if __name__ == "__main__":
    main()

"""How queries grow with the rows of a table, and with the number of its fragments.

    python benchmarks/growth.py [--data DIR] [--rows 1000000] [--rounds 3]

Rows: 1, 4 and 16 times as many, in four fragments each. Fragments: the same rows in 1, 10, 1,000
and 10,000 of them. The queries run in Spark, with the rule, two tasks at a time; "start" is the
same for a Python source of ten rows, and the least that any query takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame

import lance_spark
from benchmarks import spark as bench

TIMES = (1, 4, 16)
FRAGMENTS = (1, 10, 1_000, 10_000)
QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "all rows": bench.drain,
    "one column": lambda f: bench.drain(f.select("count")),
    "count(*)": lambda f: f.count(),
    "one row": lambda f: f.where("id = 123456").collect(),
    "ten rows": lambda f: f.limit(10).collect(),
}


def write(path: Path, rows: int, fragments: int) -> None:
    """Write a table of numbers by pylance."""
    import lance

    if path.exists():
        return
    rng = np.random.default_rng(3)
    step = -(-rows // fragments)
    schema = pa.schema({"id": pa.int64(), "count": pa.int32(), "price": pa.float64()})
    made = []
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
        made += lance.fragment.write_fragments(table, str(path), mode="append")
    lance.LanceDataset.commit(str(path), lance.LanceOperation.Overwrite(schema, made))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    cases = [(arguments.rows * times, 4) for times in TIMES]
    cases += [(arguments.rows, fragments) for fragments in FRAGMENTS]
    spark = bench.session()
    lance_spark.enable(spark)
    nothing = spark.read.format("nothing").load()
    lines = []
    for rows, fragments in cases:
        path = arguments.data / f"growth-{rows}-{fragments}.lance"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, rows, fragments)
        frame = spark.read.format("lance").load(str(path))
        actions = {name: (lambda q=query, f=frame: q(f)) for name, query in QUERIES.items()}
        seconds = bench.timed({"start": lambda: bench.drain(nothing), **actions}, arguments.rounds)
        lines.append(
            [f"{rows / 1e6:g} M", f"{fragments:,}", f"{seconds['start']:.2f}"]
            + [f"{seconds[name]:.2f}" for name in QUERIES]
        )
        print(" | ".join(lines[-1]), flush=True)
    print()
    print(bench.table(["rows", "fragments", "start, s", *QUERIES], lines))
    spark.stop()


if __name__ == "__main__":
    main()

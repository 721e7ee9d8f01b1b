"""Queries that need less than the whole table: this source with the rule and without it, pylance in
a Python source, Spark's Parquet.

    python benchmarks/queries.py [--data DIR] [--scale 1.0] [--rounds 5]

Each query runs in one session on copies of the same rows; the clients take turns. "rule off" is
this source as Spark sees it without `lance_spark.enable(spark)`. pylance gets no more of the query
than any Python source does: it is asked for whole rows.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame, SparkSession, functions

import lance_spark
from benchmarks import spark as bench
from benchmarks import tables

CLIENTS = ["lance_spark", "rule off", "pylance", "parquet"]
ENABLED = "spark.lance.pushdown.enabled"
WIDE_COLUMNS, WIDE_ROWS = 40, 2_000_000

Query = Callable[[DataFrame], object]


def _collect(frame: DataFrame) -> list[object]:
    return frame.collect()


#: Name, table, query.
QUERIES: list[tuple[str, str, Query]] = [
    ("count(*)", "ints+floats", lambda f: f.count()),
    ("count(*) where", "ints+floats", lambda f: f.where("count < 1000").count()),
    ("one row by its id", "ints+floats", lambda f: _collect(f.where("id = 5432123"))),
    ("1 in 100, one of four columns", "ints+floats", lambda f: bench.drain(f.where("count < 1000").select("price"))),
    ("OR and LIKE", "strings", lambda f: f.where("text LIKE 'alpha%' OR text LIKE '%77'").count()),
    ("ten rows", "ints+floats", lambda f: f.limit(10).collect()),
    ("ten rows", "vectors", lambda f: f.limit(10).collect()),
    ("sum of one of 40 columns", "wide", lambda f: _collect(f.agg(functions.sum("c7")))),
    ("one of 40 columns", "wide", lambda f: bench.drain(f.select("c7"))),
    ("child of a struct", "wide", lambda f: _collect(f.agg(functions.sum("s.b")))),
    ("ids of vectors", "vectors", lambda f: bench.drain(f.select("id"))),
    ("vectors", "vectors", lambda f: bench.drain(f.select("vector"))),
    ("min and max of ids", "ints+floats", lambda f: _collect(f.agg(functions.min("id"), functions.max("id")))),
    ("small side of a join", "ints+floats", lambda f: f.join(f.where("id < 1000").select("id", functions.col("price").alias("p")), "id").count()),
    ("all of it", "ints+floats", bench.drain),
]  # fmt: skip


def wide(scale: float) -> Iterator[pa.RecordBatch]:
    """Forty columns of doubles, and a struct of two."""
    rng = np.random.default_rng(7)
    rows = max(1, int(WIDE_ROWS * scale))
    for start in range(0, rows, 250_000):
        count = min(250_000, rows - start)
        columns = {f"c{i}": pa.array(rng.random(count)) for i in range(WIDE_COLUMNS)}
        pair = [pa.array(rng.integers(0, 1000, count)), pa.array(rng.random(count))]
        columns["s"] = pa.StructArray.from_arrays(pair, ["a", "b"])
        yield pa.record_batch(columns)


def prepare(folder: Path, scale: float) -> dict[str, Path]:
    """Write the tables as Lance tables, by pylance in four fragments."""
    import lance

    made = tables.prepare(folder, scale)
    root = made["wide"] = folder / f"wide-{scale:g}"
    if not (root / "done").exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        batches = wide(scale)
        first = next(batches)
        reader = pa.RecordBatchReader.from_batches(
            first.schema, (batch for part in ([first], batches) for batch in part)
        )
        rows = max(1, int(WIDE_ROWS * scale))
        lance.write_dataset(reader, str(root / "table.lance"), max_rows_per_file=-(-rows // 4))
        (root / "done").touch()
    return made


def frames_of(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """The same rows by each client."""
    ours = spark.read.format("lance").load(str(folder / "table.lance"))
    parquet = folder / "table.parquet"
    if not parquet.exists():
        ours.write.parquet(str(parquet))
    return {
        "lance_spark": ours,
        "rule off": ours,
        "pylance": spark.read.format("pylance").load(str(folder / "table.lance")),
        "parquet": spark.read.parquet(str(parquet)),
    }


def added_column(spark: SparkSession, folder: Path, rounds: int) -> dict[str, float]:
    """Seconds to add a column to the wide table; what has no way to do it writes the table anew."""
    import pyarrow.compute as pc

    copy, parquet = folder / "copy.lance", folder / "copy.parquet"

    def ours() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        # Hard links: nothing but the change is measured.
        shutil.copytree(
            folder / "table.lance", copy, copy_function=lambda a, b: Path(b).hardlink_to(a)
        )
        dataset = lance_spark.open_dataset(str(copy))
        dataset.add_columns(
            {"twice": lambda rows: pc.multiply(rows["c7"], 2.0)}, read_columns=["c7"]
        )

    def theirs() -> None:
        frame = spark.read.parquet(str(folder / "table.parquet"))
        frame.withColumn("twice", functions.col("c7") * 2).write.mode("overwrite").parquet(
            str(parquet)
        )

    return bench.timed({"lance_spark": ours, "parquet": theirs}, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    folders = prepare(arguments.data, arguments.scale)
    spark = bench.session()
    lance_spark.enable(spark)
    frames = {name: frames_of(spark, folder) for name, folder in folders.items()}
    lines = []
    for name, table, query in QUERIES:

        def action(client: str, query: Query = query, table: str = table) -> Callable[[], object]:
            def run() -> None:
                spark.conf.set(ENABLED, str(client != "rule off").lower())
                query(frames[table][client])

            return run

        seconds = bench.timed({client: action(client) for client in CLIENTS}, arguments.rounds)
        own = seconds["lance_spark"]
        ratios = [f"{seconds[other] / own:.2f}" for other in CLIENTS[1:]]
        lines.append([name, table, f"{own:.2f} s", *ratios])
        print(" | ".join(lines[-1]), flush=True)
    spark.conf.set(ENABLED, "true")
    seconds = added_column(spark, folders["wide"], arguments.rounds)
    own = seconds["lance_spark"]
    lines.append(
        ["adding a column", "wide", f"{own:.2f} s", "", "", f"{seconds['parquet'] / own:.2f}"]
    )
    print()
    header = ["query", "table", "seconds", "speed / rule off", "speed / pylance", "speed / Parquet"]
    print(bench.table(header, lines))
    spark.stop()


if __name__ == "__main__":
    main()

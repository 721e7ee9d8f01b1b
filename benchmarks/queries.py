"""Queries that need a part of a table: this package with the optimizer's rule and without the rule,
pylance in a Python data source, and Spark's Parquet.

    python benchmarks/queries.py [--data DIR] [--scale 1.0] [--rounds 5]

All queries run in one session, on copies of the same rows; the clients take turns. "rule off" is
this package without `lance_spark.enable(spark)`. Spark asks a Python data source for whole rows.
Therefore pylance reads whole rows.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame, SparkSession, functions

import lance_spark
from benchmarks import report, tables
from benchmarks import spark as bench
from benchmarks.measuring import median_seconds

CLIENTS = ["lance_spark", "rule off", "pylance", "parquet"]
ENABLED = "spark.lance.pushdown.enabled"
WIDE_COLUMNS, WIDE_ROWS = 40, 2_000_000

Query = Callable[[DataFrame], object]


def _collect(frame: DataFrame) -> list[object]:
    return frame.collect()


#: The name of each query in the report, its table, and the query.
QUERIES: list[tuple[str, str, Query]] = [
    ("count(*)", "ints+floats", lambda frame: frame.count()),
    ("count(*) where", "ints+floats", lambda frame: frame.where("count < 1000").count()),
    ("one row by its id", "ints+floats", lambda frame: _collect(frame.where("id = 5432123"))),
    ("1 in 100, one of four columns", "ints+floats", lambda frame: bench.drain(frame.where("count < 1000").select("price"))),
    ("OR and LIKE", "strings", lambda frame: frame.where("text LIKE 'alpha%' OR text LIKE '%77'").count()),
    ("ten rows", "ints+floats", lambda frame: frame.limit(10).collect()),
    ("ten rows", "vectors", lambda frame: frame.limit(10).collect()),
    ("sum of one of 40 columns", "wide", lambda frame: _collect(frame.agg(functions.sum("c7")))),
    ("one of 40 columns", "wide", lambda frame: bench.drain(frame.select("c7"))),
    ("child of a struct", "wide", lambda frame: _collect(frame.agg(functions.sum("s.b")))),
    ("ids of vectors", "vectors", lambda frame: bench.drain(frame.select("id"))),
    ("vectors", "vectors", lambda frame: bench.drain(frame.select("vector"))),
    ("min and max of ids", "ints+floats", lambda frame: _collect(frame.agg(functions.min("id"), functions.max("id")))),
    ("small side of a join", "ints+floats", lambda frame: frame.join(frame.where("id < 1000").select("id", functions.col("price").alias("p")), "id").count()),
    ("all rows and columns", "ints+floats", bench.drain),
]  # fmt: skip


def wide(scale: float) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table of forty columns of doubles, and a struct of two numbers."""
    rng = np.random.default_rng(7)
    rows = _wide_rows(scale)
    for start in range(0, rows, 250_000):
        count = min(250_000, rows - start)
        columns = {f"c{number}": pa.array(rng.random(count)) for number in range(WIDE_COLUMNS)}
        children = [pa.array(rng.integers(0, 1000, count)), pa.array(rng.random(count))]
        columns["s"] = pa.StructArray.from_arrays(children, ["a", "b"])
        yield pa.record_batch(columns)


def _wide_rows(scale: float) -> int:
    return max(1, int(WIDE_ROWS * scale))


def prepare(folder: Path, scale: float) -> dict[str, Path]:
    """Write the Lance tables that do not exist, and return the folder of each table."""
    folders = tables.prepare(folder, scale)
    folders["wide"] = folder / f"wide-{scale:g}"
    path = folders["wide"] / "table.lance"
    tables.write_four_fragments(path, wide(scale), _wide_rows(scale))
    return folders


def frames_of(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """Return a table's rows as each client reads them."""
    frame = spark.read.format("lance").load(str(folder / "table.lance"))
    parquet = folder / "table.parquet"
    if not parquet.exists():
        frame.write.parquet(str(parquet))
    return {
        "lance_spark": frame,
        "rule off": frame,
        "pylance": spark.read.format("pylance").load(str(folder / "table.lance")),
        "parquet": spark.read.parquet(str(parquet)),
    }


def seconds_of_new_column(spark: SparkSession, folder: Path, rounds: int) -> dict[str, float]:
    """Return the seconds of each client for a new column of the wide table.

    Spark cannot add a column to Parquet files. Therefore Spark writes the whole table again.
    """
    import pyarrow.compute as pc

    copy, parquet = folder / "copy.lance", folder / "copy.parquet"

    def add_lance_column() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        # Data files are linked, so that the copy takes little of the time.
        tables.copy_table(folder / "table.lance", copy)
        dataset = lance_spark.open_dataset(str(copy))
        dataset.add_columns(
            {"twice": lambda rows: pc.multiply(rows["c7"], 2.0)}, read_columns=["c7"]
        )

    def write_parquet() -> None:
        frame = spark.read.parquet(str(folder / "table.parquet"))
        frame.withColumn("twice", functions.col("c7") * 2).write.mode("overwrite").parquet(
            str(parquet)
        )

    return median_seconds({"lance_spark": add_lance_column, "parquet": write_parquet}, rounds)


def main() -> None:
    arguments = report.argument_parser(__doc__, rounds=5).parse_args()
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

        seconds = median_seconds({client: action(client) for client in CLIENTS}, arguments.rounds)
        lance_seconds = seconds["lance_spark"]
        ratios = [f"{seconds[client] / lance_seconds:.2f}" for client in CLIENTS[1:]]
        lines.append([name, table, f"{lance_seconds:.2f} s", *ratios])
        print(" | ".join(lines[-1]), flush=True)
    spark.conf.set(ENABLED, "true")
    seconds = seconds_of_new_column(spark, folders["wide"], arguments.rounds)
    lance_seconds = seconds["lance_spark"]
    ratio = f"{seconds['parquet'] / lance_seconds:.2f}"
    lines.append(["adding a column", "wide", f"{lance_seconds:.2f} s", "", "", ratio])
    print()
    header = ["query", "table", "seconds", "speed / rule off", "speed / pylance", "speed / Parquet"]
    print(report.table(header, lines))
    spark.stop()


if __name__ == "__main__":
    main()

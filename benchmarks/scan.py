"""Scans by Spark: this source, the transport ceiling, pylance in a Python source, and Spark's
Parquet.

    python benchmarks/scan.py [--data DIR] [--scale 1.0] [--rounds 3]

Every client reads every column of every row into Spark's `noop` sink, two tasks at a time. The
ceiling is a Python data source that yields the very batches this source yields, kept as an Arrow
file in the page cache, so that nothing is decoded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import spark as bench
from benchmarks import tables

CLIENTS = ["lance_spark", "ceiling", "pylance", "parquet"]


def prebuilt(path: Path, target: Path) -> None:
    """Keep the batches that this source hands to Spark in an Arrow file."""
    from lance_spark.scan.metrics import ScanMetrics
    from lance_spark.spark.read.reader import Scan
    from lance_spark.spark.types.mapping import batch_schema, to_spark_schema

    tasks = lance_spark.open_dataset(str(path)).plan()
    output = batch_schema(to_spark_schema(tasks[0].schema))
    batches = (batch for task in tasks for batch in Scan(task, ScanMetrics()).batches(output))
    first = next(batches)
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folders = tables.prepare(arguments.data, arguments.scale)
    spark = bench.session()
    lance_spark.enable(spark)
    rows_per_second: dict[str, dict[str, float]] = {}
    lines = []
    for name, folder in folders.items():
        lance_path, arrow_path = folder / "table.lance", folder / "prebuilt.arrow"
        parquet_path = folder / "table.parquet"
        if not arrow_path.exists():
            prebuilt(lance_path, arrow_path)
        ours = spark.read.format("lance").load(str(lance_path))
        if not parquet_path.exists():
            ours.write.parquet(str(parquet_path))
        frames = {
            "lance_spark": ours,
            "ceiling": spark.read.format("prebuilt")
            .option("tasks", ours.rdd.getNumPartitions())
            .load(str(arrow_path)),
            "pylance": spark.read.format("pylance").load(str(lance_path)),
            "parquet": spark.read.parquet(str(parquet_path)),
        }
        seconds = bench.timed(
            {client: (lambda f=frame: bench.drain(f)) for client, frame in frames.items()},
            arguments.rounds,
        )
        rows = max(1, int(tables.TABLES[name][1] * arguments.scale))
        rows_per_second[name] = {c: rows / seconds[c] / 1e6 for c in CLIENTS}
        own = seconds["lance_spark"]
        lines.append(
            [name, f"{own:.2f} s", f"{rows / own / 1e6:.2f}"]
            + [f"{seconds[other] / own:.2f}" for other in CLIENTS[1:]]
        )
        print(" | ".join(lines[-1]), flush=True)
    print()
    print(
        bench.table(
            [
                "table",
                "seconds",
                "M rows/s",
                "speed / ceiling",
                "speed / pylance",
                "speed / Parquet",
            ],
            lines,
        )
    )
    bench.plot(
        "Full scans into Spark, two tasks",
        "million rows per second",
        rows_per_second,
        Path(__file__).parent / "plots" / "scan.png",
    )
    spark.stop()


if __name__ == "__main__":
    main()

"""Scans in Spark: this package, the ceiling of transport, pylance in a Python data source, and
Spark's Parquet.

    python benchmarks/scan.py [--data DIR] [--scale 1.0] [--rounds 3]

Each client reads all columns of all rows into Spark's `noop` sink, two tasks at a time. The ceiling
is a Python data source that yields the same batches as this package. Its batches are in an Arrow
file in the page cache, so that the data source decodes nothing. A second table has the processor
time of a scan: of the JVM and of the Python workers with this package, and of the JVM with Parquet.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import report, tables
from benchmarks import spark as bench
from benchmarks.measuring import median_seconds

CLIENTS = ["lance_spark", "ceiling", "pylance", "parquet"]


def write_batches(path: Path, target: Path) -> None:
    """Write the batches that this package passes to Spark into an Arrow file."""
    from lance_spark.scan.metrics import ScanMetrics
    from lance_spark.spark.read.reader import Scan
    from lance_spark.spark.types.mapping import batch_schema, to_spark_schema

    tasks = lance_spark.open_dataset(str(path)).plan()
    output = batch_schema(to_spark_schema(tasks[0].schema))
    batches = (batch for task in tasks for batch in Scan(task, ScanMetrics()).batches(output))
    reader = tables.batch_reader(batches)
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def main() -> None:
    arguments = report.argument_parser(__doc__).parse_args()
    folders = tables.prepare(arguments.data, arguments.scale)
    spark = bench.session()
    lance_spark.enable(spark)
    rows_per_second: dict[str, dict[str, float]] = {}
    lines, processors = [], []
    for name, folder in folders.items():
        lance_path, arrow_path = folder / "table.lance", folder / "prebuilt.arrow"
        parquet_path = folder / "table.parquet"
        if not arrow_path.exists():
            write_batches(lance_path, arrow_path)
        frame = spark.read.format("lance").load(str(lance_path))
        if not parquet_path.exists():
            frame.write.parquet(str(parquet_path))
        frames = {
            "lance_spark": frame,
            "ceiling": spark.read.format("prebuilt")
            .option("tasks", frame.rdd.getNumPartitions())
            .load(str(arrow_path)),
            "pylance": spark.read.format("pylance").load(str(lance_path)),
            "parquet": spark.read.parquet(str(parquet_path)),
        }
        seconds = median_seconds(
            {client: partial(bench.drain, frame) for client, frame in frames.items()},
            arguments.rounds,
        )
        rows = tables.row_count(name, arguments.scale)
        rows_per_second[name] = {client: rows / seconds[client] / 1e6 for client in CLIENTS}
        lance_seconds = seconds["lance_spark"]
        lines.append(
            [name, f"{lance_seconds:.2f} s", f"{rows_per_second[name]['lance_spark']:.2f}"]
            + [f"{seconds[client] / lance_seconds:.2f}" for client in CLIENTS[1:]]
        )
        used = {
            client: bench.processor_seconds(partial(bench.drain, frames[client]), arguments.rounds)
            for client in ("lance_spark", "parquet")
        }
        (jvm, workers), (parquet, _) = used["lance_spark"], used["parquet"]
        ratio = parquet / (jvm + workers)
        processors.append([name, f"{jvm:.2f}", f"{workers:.2f}", f"{parquet:.2f}", f"{ratio:.2f}"])
        print(" | ".join([*lines[-1], *processors[-1]]), flush=True)
    print()
    print(
        report.table(
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
    print()
    header = ["table", "JVM, s", "workers, s", "Parquet's JVM, s", "Parquet / both"]
    print(report.table(header, processors))
    bench.plot(
        "Full scans into Spark, two tasks",
        "million rows per second",
        rows_per_second,
        Path(__file__).parent / "plots" / "scan.png",
    )
    spark.stop()


if __name__ == "__main__":
    main()

"""Writes from Spark: this package, a Python data source that drops all rows, pylance in a Python
data source, and Spark's Parquet.

    python benchmarks/write.py [--data DIR] [--scale 1.0] [--rounds 3]

The rows come from Spark's cache, so that reading the rows costs every client the same. "transport"
is a Python data source that drops all batches. Its time is the least time of any writer in Python.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame

import lance_spark
from benchmarks import report, tables
from benchmarks import spark as bench
from benchmarks.measuring import median_seconds

#: The name of the data source of each client.
CLIENTS = {
    "lance_spark": "lance",
    "transport": "nothing",
    "pylance": "pylance",
    "parquet": "parquet",
}


def write(frame: DataFrame, source: str, path: Path) -> None:
    """Write the rows by a data source into a new folder."""
    shutil.rmtree(path, ignore_errors=True)
    frame.write.format(source).mode("overwrite").save(str(path))


def main() -> None:
    arguments = report.argument_parser(__doc__).parse_args()
    folders = tables.prepare(arguments.data, arguments.scale)
    out = (arguments.data / "written").absolute()
    spark = bench.session()
    lance_spark.enable(spark)
    rows_per_second: dict[str, dict[str, float]] = {}
    lines = []
    for name, folder in folders.items():
        frame = spark.read.format("lance").load(str(folder / "table.lance")).cache()
        bench.drain(frame)
        seconds = median_seconds(
            {
                client: partial(write, frame, source, out / client)
                for client, source in CLIENTS.items()
            },
            arguments.rounds,
        )
        rows = tables.row_count(name, arguments.scale)
        rows_per_second[name] = {client: rows / seconds[client] / 1e6 for client in CLIENTS}
        lance_seconds = seconds["lance_spark"]
        lance_bytes, pylance_bytes, parquet_bytes = (
            tables.total_bytes(out / client) for client in ("lance_spark", "pylance", "parquet")
        )
        lines.append(
            [name, f"{lance_seconds:.2f} s", f"{rows_per_second[name]['lance_spark']:.2f}"]
            + [f"{seconds[client] / lance_seconds:.2f}" for client in list(CLIENTS)[1:]]
            + [
                f"{lance_bytes / 1e6:.1f}",
                f"{lance_bytes / pylance_bytes:.2f}",
                f"{lance_bytes / parquet_bytes:.2f}",
            ]
        )
        print(" | ".join(lines[-1]), flush=True)
        frame.unpersist()
    print()
    print(
        report.table(
            [
                "table",
                "seconds",
                "M rows/s",
                "speed / transport",
                "speed / pylance",
                "speed / Parquet",
                "MB",
                "size / pylance",
                "size / Parquet",
            ],
            lines,
        )
    )
    bench.plot(
        "Writes from Spark's cache, two tasks",
        "million rows per second",
        rows_per_second,
        Path(__file__).parent / "plots" / "write.png",
    )
    shutil.rmtree(out, ignore_errors=True)
    spark.stop()


if __name__ == "__main__":
    main()

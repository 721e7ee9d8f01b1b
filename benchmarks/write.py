"""Writes by Spark: this source, a Python source that keeps nothing, pylance in a Python source, and
Spark's Parquet.

    python benchmarks/write.py [--data DIR] [--scale 1.0] [--rounds 3]

The rows come out of Spark's own cache, so that reading them costs every client the same.
"transport" is a Python source that takes the batches and drops them: what any writer in Python
pays.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import spark as bench
from benchmarks import tables

CLIENTS = ["lance_spark", "transport", "pylance", "parquet"]


def size(path: Path) -> float:
    """Megabytes of all files below a folder."""
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folders = tables.prepare(arguments.data, arguments.scale)
    out = arguments.data / "written"
    spark = bench.session()
    lance_spark.enable(spark)
    rows_per_second: dict[str, dict[str, float]] = {}
    lines = []
    for name, folder in folders.items():
        frame = spark.read.format("lance").load(str(folder / "table.lance")).cache()
        bench.drain(frame)

        def writer(kind: str, place: Path, frame: object = frame) -> Callable[[], object]:
            def write() -> None:
                shutil.rmtree(place, ignore_errors=True)
                frame.write.format(kind).mode("overwrite").save(str(place))  # type: ignore[attr-defined]

            return write

        places = {client: (out / client).absolute() for client in CLIENTS}
        kinds = {
            "lance_spark": "lance",
            "transport": "nothing",
            "pylance": "pylance",
            "parquet": "parquet",
        }
        seconds = bench.timed(
            {client: writer(kinds[client], places[client]) for client in CLIENTS},
            arguments.rounds,
        )
        rows = max(1, int(tables.TABLES[name][1] * arguments.scale))
        rows_per_second[name] = {c: rows / seconds[c] / 1e6 for c in CLIENTS}
        own, weight = seconds["lance_spark"], size(places["lance_spark"])
        lines.append(
            [name, f"{own:.2f} s", f"{rows / own / 1e6:.2f}"]
            + [f"{seconds[other] / own:.2f}" for other in CLIENTS[1:]]
            + [
                f"{weight:.1f}",
                f"{weight / size(places['pylance']):.2f}",
                f"{weight / size(places['parquet']):.2f}",
            ]
        )
        print(" | ".join(lines[-1]), flush=True)
        frame.unpersist()
    print()
    print(
        bench.table(
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

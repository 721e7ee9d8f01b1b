"""Queries that an index answers: with the index and without, pylance alone, and Spark's Parquet.

    python benchmarks/indexes.py [--data DIR] [--scale 1.0] [--rounds 5]

The table has ten million rows in ten fragments, and the same rows are in Parquet. "index" and "no
index" are queries by Spark with `lance_spark.enable(spark)`; "in process" is `Dataset.to_table`, and
"pylance" the same query by pylance, both without Spark. All take turns. Indexes are built by both
clients, each in a process of its own that is bound to one processor.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import median_seconds, run_python

ROWS, FRAGMENTS = 10_000_000, 10
#: The indexed columns.
INDEXES = {"id": "BTREE", "word": "BTREE", "g": "BITMAP"}
#: The name of each query in the report, and its condition for a number of rows.
QUERIES: dict[str, Callable[[int], str]] = {
    "one integer": lambda rows: f"id = {rows // 3}",
    "one string": lambda rows: f"word = 'word {rows // 3:09}'",
    "a range of 0.1 %": lambda rows: f"id >= {rows // 2} AND id < {rows // 2 + rows // 1000}",
    "IN of 1,000": lambda rows: f"id IN ({', '.join(map(str, range(5, rows, rows // 1000)))})",
    "a prefix": lambda rows: f"word LIKE 'word {rows // 3000:06}%'",
    "one of 5,000 values": lambda rows: "g = 77",
}
BUILD = """
import sys, time
path, column, index_type = sys.argv[1:]
{open}
dataset.create_scalar_index(column, index_type, replace=True)
begun = time.process_time()
dataset.create_scalar_index(column, index_type, replace=True)
print(time.process_time() - begun)
"""
OPEN = {
    "lance_spark": "import lance_spark; dataset = lance_spark.open_dataset(path)",
    "pylance": "import lance; dataset = lance.dataset(path)",
}


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows whose columns are in no order."""
    rng = np.random.default_rng(11)
    ids = rng.permutation(rows)
    step = rows // FRAGMENTS
    for start in range(0, rows, step):
        part = ids[start : start + step]
        words = pa.array(np.char.mod("word %09d", part))
        columns = [part, words, rng.integers(0, 5_000, len(part)), rng.random(len(part))]
        yield pa.record_batch(list(map(pa.array, columns)), names=["id", "word", "g", "price"])


def prepare(folder: Path, rows: int) -> None:
    """Write the table in both formats, unless an earlier run wrote it."""
    done = folder / "done"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    parts = batches(rows)
    first = next(parts)
    reader = pa.RecordBatchReader.from_batches(
        first.schema, (batch for source in ([first], parts) for batch in source)
    )
    lance.write_dataset(reader, str(folder / "table.lance"), max_rows_per_file=rows // FRAGMENTS)
    spark = bench.session()
    frame = spark.read.format("lance").load(str(folder / "table.lance"))
    frame.repartition(FRAGMENTS).write.parquet(str(folder / "parquet"))
    done.touch()


def build(path: Path) -> list[list[str]]:
    """Build the indexes by both clients; the last stay."""
    lines = []
    for column, index_type in INDEXES.items():
        seconds = {
            client: float(
                run_python(
                    BUILD.format(open=OPEN[client]), str(path), column, index_type, processor=0
                )
            )
            for client in ("pylance", "lance_spark")
        }
        times = [f"{seconds[client]:.2f} s" for client in ("lance_spark", "pylance")]
        ratio = f"{seconds['lance_spark'] / seconds['pylance']:.2f}"
        lines.append([f"{index_type} of {column}", *times, ratio])
        print(" | ".join(lines[-1]), flush=True)
    return lines


def collect(frame: DataFrame, text: str) -> list[object]:
    """Run a query. A frame that was planned before would have its rows already."""
    return frame.where(text).collect()


def ten(frame: DataFrame) -> list[object]:
    """Run a query of ten rows."""
    return frame.limit(10).collect()


def main() -> None:
    arguments = report.argument_parser(__doc__, rounds=5).parse_args()
    rows = int(ROWS * arguments.scale)
    folder = arguments.data / f"indexes-{rows}"
    spark = bench.session()
    lance_spark.enable(spark)
    prepare(folder, rows)
    path = str(folder / "table.lance")
    built = build(folder / "table.lance")
    dataset, oracle = lance_spark.open_dataset(path), lance.dataset(path)
    frames = {
        "index": spark.read.format("lance").load(path),
        "no index": spark.read.format("lance").option("use_scalar_index", "false").load(path),
        "parquet": spark.read.parquet(str(folder / "parquet")),
    }
    ten_rows = partial(ten, frames["index"])
    seconds_of_ten = median_seconds({"ten": ten_rows}, arguments.rounds)["ten"]
    lines = []
    for name, condition in QUERIES.items():
        text = condition(rows)
        actions: dict[str, Callable[[], object]] = {
            client: partial(collect, frame, text) for client, frame in frames.items()
        }
        actions["in process"] = partial(dataset.to_table, filter=text)
        actions["pylance"] = partial(oracle.to_table, filter=text)
        counts = {len(action()) for action in actions.values()}  # type: ignore[arg-type]
        if len(counts) > 1:
            raise SystemExit(f"{text}: the clients find {counts} rows")
        seconds = median_seconds(actions, arguments.rounds)
        lines.append(
            [
                name,
                f"{counts.pop():,}",
                *(f"{seconds[client] * 1000:.1f}" for client in ("index", "in process", "pylance")),
                f"{seconds['no index'] / seconds['index']:.1f}",
                f"{seconds['parquet'] / seconds['index']:.1f}",
                f"{seconds['index'] / (3 * seconds['pylance'] + seconds_of_ten):.2f}",
            ]
        )
        print(" | ".join(lines[-1]), flush=True)
    print(f"\nA query of ten rows takes {seconds_of_ten * 1000:.0f} ms.\n")
    header = ["query", "rows", "index, ms", "in process, ms", "pylance, ms"]
    header += ["speed / no index", "speed / Parquet", "time / (3 pylance + ten rows)"]
    print(report.table(header, lines))
    print()
    print(report.table(["index", "lance_spark", "pylance", "time / pylance"], built))


if __name__ == "__main__":
    main()

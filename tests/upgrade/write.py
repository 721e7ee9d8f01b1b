"""Writes what the first release leaves behind, for the tests of this folder.

There is no earlier release. The oldest state with streams, of 22 November 2026, stands for it. Its
tasks name modules that have other names now, so that the tasks are of the state of 27 November:

    git worktree add /tmp/first cd1960fe
    PYTHONPATH=/tmp/first python tests/upgrade/write.py stream  # with pyspark 4.0
    python tests/upgrade/write.py plan

| in `first.tar.xz` | what it is |
| --- | --- |
| `source.lance` | a table of four fragments, one of which has deleted rows; a stream reads it |
| `target.lance` | the table that the stream writes |
| `checkpoint` | the checkpoint of the stream, which has read all but the last fragment |
| `plan.pickle` | the tasks of a scan of `source.lance` with a filter |
"""

from __future__ import annotations

import pickle
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa

import lance_spark

ARCHIVE = Path(__file__).with_name("first.tar.xz")
#: Tasks have the path of their table. A path of the same length can take its place.
LENGTH = 160
STEP = 10


def folder_in(parent: Path) -> Path:
    """Return a folder whose path has `LENGTH` characters."""
    return parent / ("x" * (LENGTH - len(str(parent)) - 1))


FOLDER = folder_in(Path(tempfile.gettempdir()))


def rows(part: int) -> pa.Table:
    """Return the rows of a fragment."""
    ids = range(STEP * part, STEP * (part + 1))
    texts = [f"text {number}" for number in ids]
    vectors = pa.array([[number, 0.5] for number in ids], pa.list_(pa.float32(), 2))
    return pa.table({"id": pa.array(ids, pa.int64()), "text": texts, "vector": vectors})


def write_stream() -> None:
    """Write the tables and the checkpoint."""
    from pyspark.sql import SparkSession

    shutil.rmtree(FOLDER, ignore_errors=True)
    source, target = str(FOLDER / "source.lance"), str(FOLDER / "target.lance")
    spark = SparkSession.builder.master("local[1]").getOrCreate()
    for part in range(3):
        lance_spark.write_dataset(rows(part), source, mode="append")
        if part:
            stream = spark.readStream.format("lance").load(source).writeStream.format("lance")
            stream = stream.option("checkpointLocation", str(FOLDER / "checkpoint"))
            stream.trigger(availableNow=True).start(target).awaitTermination()
    lance_spark.open_dataset(source).delete([("id", "==", 3)])
    lance_spark.write_dataset(rows(3), source, mode="append")


def write_plan() -> None:
    """Write the tasks, and the archive."""
    tasks = lance_spark.open_dataset(FOLDER / "source.lance").plan(
        filter="id > 1 AND text <> 'text 12'", rows_per_task=STEP
    )
    (FOLDER / "plan.pickle").write_bytes(pickle.dumps(tasks))
    with tarfile.open(ARCHIVE, "w:xz") as archive:
        for path in sorted(FOLDER.iterdir()):
            archive.add(
                path, path.name, filter=lambda entry: None if ".crc" in entry.name else entry
            )


if __name__ == "__main__":
    {"stream": write_stream, "plan": write_plan}[sys.argv[1]]()

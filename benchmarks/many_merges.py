"""Many small merges of one table, one after the other: by pylance, the local API and SQL.

    python benchmarks/many_merges.py [--data DIR] [--merges 1000] [--sql-merges 300] [--only WORD]
        [--update]

Each merge has 100 rows, half of them new, for a table of 500,000 rows in eight fragments: without an
index, with a B-tree of the key, and with a B-tree and an `OPTIMIZE` after each tenth of the merges.
SQL merges views of rows in memory; "stream" merges the batches of a stream by `foreachBatch`, with
one file in a batch. "MemWAL" puts the rows into the log of a writer, which takes no commit, and at
last compacts the log into the table.

The program shows the median seconds of a merge in the first and in the last tenth, how many files
and bytes a merge writes there, the seconds of the slowest `OPTIMIZE` or of the compaction, and what
the table consists of at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.measuring import seconds_of
from benchmarks.sql_changes import FRAGMENTS, MERGE, SMALL, rows_of
from benchmarks.tables import copy_table, write_once

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS = 500_000
TITLES = ("no index", "B-tree", "B-tree, OPTIMIZE")
#: Clients, and the tables that each of them changes.
CLIENTS: dict[str, tuple[str, ...]] = {
    "pylance": TITLES,
    "local": TITLES,
    "SQL": TITLES,
    "stream": ("B-tree",),
    "MemWAL": ("primary key",),
}


class Files(NamedTuple):
    """The files of a table: all, deletion files, and the bytes of all."""

    count: int
    deletions: int
    size: int

    @classmethod
    def of(cls, path: Path) -> Files:
        """Return the files of a table that exist."""
        files = [file for file in path.rglob("*") if file.is_file()]
        deletions = sum(file.parent.name == "_deletions" for file in files)
        return cls(len(files), deletions, sum(file.stat().st_size for file in files))

    def since(self, before: Files, merges: int) -> list[float]:
        """Return what a merge has added on average."""
        return [(now - then) / merges for now, then in zip(self, before, strict=True)]


class Run:
    """The measurements of one run.

    Parameters
    ----------
    path : Path
        The table.
    count : int
        Number of merges.
    """

    def __init__(self, path: Path, count: int) -> None:
        self._path, self.count = path, count
        self._tenth = max(count // 10, 1)
        self._files: list[Files] = []
        self._seconds: list[float] = []
        self._maintenance: list[float] = []

    def merge(self, action: Callable[[], object]) -> None:
        """Run a merge, and look at the files before and after a tenth of the merges."""
        number = len(self._seconds)
        if number in (0, self.count - self._tenth):
            self._files.append(Files.of(self._path))
        self._seconds.append(seconds_of(action))
        if number + 1 in (self._tenth, self.count):
            self._files.append(Files.of(self._path))

    def maintain(self, action: Callable[[], object]) -> None:
        """Run an `OPTIMIZE` or a compaction."""
        self._maintenance.append(seconds_of(action))

    def is_tenth(self, number: int) -> bool:
        """Return whether a tenth of the merges ends with this one."""
        return (number + 1) % self._tenth == 0

    def result(self) -> dict[str, Any]:
        """Return the measurements of the first and the last tenth, and the maintenance."""
        start, after_first, before_last, end = self._files
        return {
            "seconds": [
                statistics.median(part)
                for part in (self._seconds[: self._tenth], self._seconds[-self._tenth :])
            ],
            "files": [
                after_first.since(start, self._tenth),
                end.since(before_last, self._tenth),
            ],
            "maintenance": self._maintenance,
        }


def source_of(number: int) -> pa.Table:
    """Return the rows of one of many merges: half are old, half are new."""
    import numpy as np
    import pyarrow as pa

    half = SMALL // 2
    old = np.random.default_rng(number).choice(ROWS, half, replace=False)
    ids = np.concatenate([old, np.arange(ROWS + number * half, ROWS + (number + 1) * half)])
    return rows_of(SMALL, 0, number).set_column(0, "id", pa.array(ids))


def prepare(folder: Path) -> None:
    """Write the tables that do not exist."""
    import lance
    import pyarrow as pa

    rows = rows_of(ROWS, 0, 1)
    key = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    keyed = rows.cast(rows.schema.set(0, key))

    def write(path: Path, table: pa.Table = rows, with_index: bool = False) -> None:
        dataset = lance.write_dataset(
            table, path, max_rows_per_file=ROWS // FRAGMENTS, data_storage_version="2.1"
        )
        if with_index:
            dataset.create_scalar_index("id", "BTREE")

    write_once(folder / "no index.lance", write)
    write_once(folder / "B-tree.lance", partial(write, with_index=True))
    write_once(folder / "primary key.lance", partial(write, table=keyed))


def merges(client: str, path: Path, run: Run, optimizes: bool) -> None:
    """Make the merges without Spark."""
    if client == "pylance":
        import lance as module

        open_table: Callable[[str], Any] = module.dataset
    else:
        import lance_spark

        open_table = lance_spark.open_dataset

    def merge(source: pa.Table) -> None:
        builder = open_table(str(path)).merge_insert("id").when_matched_update_all()
        builder.when_not_matched_insert_all().execute(source)

    def optimize() -> None:
        open_table(str(path)).optimize.compact_files()
        open_table(str(path)).optimize.optimize_indices()

    for number in range(run.count):
        run.merge(partial(merge, source_of(number)))
        if optimizes and run.is_tenth(number):
            run.maintain(optimize)


def mem_wal_puts(path: Path, run: Run) -> None:
    """Put the rows into a log, durably, and compact it at last."""
    import lance_spark

    dataset = lance_spark.open_dataset(str(path)).initialize_mem_wal(unsharded=True)
    schema = dataset.schema
    with dataset.mem_wal_writer() as writer:
        for number in range(run.count):
            source = source_of(number).cast(schema)
            run.merge(partial(writer.put, source))
    run.maintain(dataset.compact_mem_wal)


def merges_by_sql(path: Path, run: Run, optimizes: bool) -> None:
    """Make the merges by SQL."""
    spark = session_of(path)
    text = f"MERGE INTO lance.{path.stem} t {MERGE}"
    for number in range(run.count):
        spark.createDataFrame(source_of(number)).createOrReplaceTempView("source")
        run.merge(partial(spark.sql, text))
        if optimizes and run.is_tenth(number):
            run.maintain(partial(spark.sql, f"OPTIMIZE lance.{path.stem}"))
    spark.stop()


def merges_of_stream(path: Path, run: Run) -> None:
    """Merge the batches of a stream of files."""
    import pyarrow.parquet as pq

    folder = path.with_name("source")
    folder.mkdir()
    for number in range(run.count):
        pq.write_table(source_of(number), folder / f"{number:05}.parquet")
    spark = session_of(path)

    def merge(batch: DataFrame, number: int) -> None:
        batch.createOrReplaceTempView("source")
        statement = f"MERGE INTO lance.{path.stem} t {MERGE}"
        run.merge(lambda: batch.sparkSession.sql(statement))

    stream = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    writer = stream.option("maxFilesPerTrigger", 1).parquet(str(folder)).writeStream
    writer = writer.foreachBatch(merge).trigger(availableNow=True)
    writer.option(
        "checkpointLocation", str(path.with_name("checkpoint"))
    ).start().awaitTermination()
    spark.stop()


def session_of(path: Path) -> SparkSession:
    """Return a session whose catalog has the table."""
    import lance_spark
    from benchmarks.spark import session

    spark = session()
    lance_spark.enable(spark, "lance", root=str(path.parent))
    return spark


def measure(client: str, title: str, path: Path, count: int) -> dict[str, Any]:
    """Make the merges of a case in this process; return the measurements."""
    run = Run(path, count)
    if client == "MemWAL":
        mem_wal_puts(path, run)
    elif client == "SQL":
        merges_by_sql(path, run, "OPTIMIZE" in title)
    elif client == "stream":
        merges_of_stream(path, run)
    else:
        merges(client, path, run, "OPTIMIZE" in title)
    return run.result()


def contents(path: Path) -> list[str]:
    """Return the fragments of a table, and how many of them have deleted rows."""
    import lance_spark

    fragments = lance_spark.open_dataset(str(path)).get_fragments()
    return [str(len(fragments)), str(sum(part.num_deletions > 0 for part in fragments))]


def line_of(client: str, title: str, result: dict[str, Any], path: Path) -> list[str]:
    """Return a row of the table of results."""
    first, last = result["files"]
    return [
        client,
        title,
        *(f"{seconds * 1000:.0f}" for seconds in result["seconds"]),
        f"{first[0]:.0f}; {last[0]:.0f}",
        f"{first[1]:.0f}; {last[1]:.0f}",
        f"{first[2] / 1000:.0f}; {last[2] / 1000:.0f}",
        f"{max(result['maintenance']):.1f}" if result["maintenance"] else "",
        *contents(path),
    ]


def main() -> None:
    parser = report.argument_parser(
        __doc__, data="demo-data/many-merges", scale=False, rounds=None, update=True
    )
    parser.add_argument("--merges", type=int, default=1000)
    parser.add_argument("--sql-merges", type=int, default=300, help="of SQL, which takes longer")
    parser.add_argument("--only", default="", help="part of the client and the table")
    parser.add_argument("--run", nargs=4, help="only for this program: a case")
    arguments: argparse.Namespace = parser.parse_args()
    if arguments.run is not None:
        client, title, path, count = arguments.run
        print(json.dumps(measure(client, title, Path(path), int(count))), flush=True)
        return
    folder = arguments.data.absolute()
    prepare(folder)
    lines = []
    for client, titles in CLIENTS.items():
        for title in titles:
            if arguments.only not in f"{client} {title}":
                continue
            root = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
            path = root / "t.lance"
            copy_table(folder / f"{title.partition(',')[0]}.lance", path)
            is_spark = client in ("SQL", "stream")
            count = arguments.sql_merges if is_spark else arguments.merges
            command = [sys.executable, __file__, "--run", client, title, str(path), str(count)]
            reply = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            result = json.loads(reply.strip().rpartition("\n")[2])
            lines.append(line_of(client, title, result, path))
            print("| " + " | ".join(lines[-1]) + " |", flush=True)
            shutil.rmtree(root)
    header = ["client", "table", "first tenth, ms", "last tenth, ms", "files of a merge"]
    header += ["deletion files", "KB", "OPTIMIZE, s", "fragments", "with deleted rows"]
    text = report.table(header, lines)
    print(f"\n{text}")
    if arguments.update:
        report.put_into_readme("many_merges", text)


if __name__ == "__main__":
    main()

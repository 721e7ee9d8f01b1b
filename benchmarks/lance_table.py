"""Changes of tables by `LanceTable`, and the same changes of Parquet files.

    python benchmarks/lance_table.py [--data DIR] [--scale 1.0] [--rounds 3] [--only WORD]
    [--update]

Spark cannot change Parquet files. Therefore Spark reads all rows and writes all rows to a new
folder. pylance makes the same change without Spark, in this process; the rows of an upsert are in
memory. The Lance table and the Parquet files of a case have the same rows. The clients take turns
in one session. Each turn changes a new copy of the table. The copy is no part of the time.

The first round is not measured. In the first round, the benchmark compares the resulting tables,
and reads the memory of the Python workers.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from benchmarks import report, tables
from benchmarks import spark as bench
from benchmarks.change_tables import BUCKETS, row_batches
from benchmarks.measuring import seconds_of
from benchmarks.memory import WorkerMemory
from lance_spark import LanceTable

#: Rows of each table.
ROWS = {"rows": 5_000_000, "vectors": 1_000_000, "small": 1_000_000}
#: Fragments of each table.
FRAGMENTS = {"rows": 4, "vectors": 4, "small": 1_000}
DIMENSIONS = 256
#: Rows of a batch.
STEP = 50_000
SCHEMA = pa.schema(
    [
        pa.field(
            "id",
            pa.int64(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        ("bucket", pa.int32()),
        ("price", pa.float64()),
        ("name", pa.string()),
        ("text", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Case:
    """A change of a table.

    Attributes
    ----------
    title : str
    table : str
        "rows", "vectors" or "small".
    by_lance_table : callable
        Changes a table. Gets the table, and the rows of an upsert.
    by_parquet : callable
        Returns the changed rows. Gets the rows of the table, and the rows of an upsert.
    by_pylance : callable
        Changes a dataset of pylance. Gets the dataset, and the rows of an upsert.
    """

    title: str
    table: str
    by_lance_table: Callable[[LanceTable, DataFrame], object]
    by_parquet: Callable[[DataFrame, DataFrame], DataFrame]
    by_pylance: Callable[[Any, pa.Table], object]


def _upsert_by_parquet(frame: DataFrame, rows: DataFrame) -> DataFrame:
    return frame.join(rows, "id", "left_anti").unionByName(rows)


def _upsert_by_pylance(dataset: Any, rows: pa.Table) -> None:
    merge = dataset.merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)


CASES = [
    Case(
        "add a column",
        "vectors",
        lambda table, _: table.add_columns({"label": "concat('item ', id % 1000)"}),
        lambda frame, _: frame.withColumn("label", F.expr("concat('item ', id % 1000)")),
        lambda dataset, _: dataset.add_columns(
            {"label": "'item ' || CAST(id % 1000 AS STRING)"}, read_columns=["id"]
        ),
    ),
    Case(
        "delete 0.1 %",
        "rows",
        lambda table, _: table.delete("bucket = 7"),
        lambda frame, _: frame.where("NOT bucket = 7"),
        lambda dataset, _: dataset.delete("bucket = 7"),
    ),
    Case(
        "upsert 1 %",
        "rows",
        lambda table, rows: table.upsert(rows),
        _upsert_by_parquet,
        _upsert_by_pylance,
    ),
    Case(
        "update 1 %",
        "rows",
        lambda table, _: table.update("bucket >= 500 AND bucket < 510", {"price": "price + 1"}),
        lambda frame, _: frame.withColumn(
            "price", F.expr("IF(bucket >= 500 AND bucket < 510, price + 1, price)")
        ),
        lambda dataset, _: dataset.update({"price": "price + 1"}, "bucket >= 500 AND bucket < 510"),
    ),
    Case(
        "update a column everywhere",
        "rows",
        lambda table, _: table.update_columns({"price": "price * 1.25D"}),
        lambda frame, _: frame.withColumn("price", F.expr("price * 1.25D")),
        lambda dataset, _: dataset.update({"price": "price * 1.25"}),
    ),
    Case(
        "compact 1,000 fragments",
        "small",
        lambda table, _: table.optimize().executeCompaction(),
        lambda frame, _: frame,
        lambda dataset, _: dataset.optimize.compact_files(),
    ),
]


def _keyed_rows(count: int) -> Iterator[pa.RecordBatch]:
    for batch in row_batches(count, seed=11, step=STEP):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=SCHEMA)


def _vectors(count: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(12)
    for start in range(0, count, STEP):
        rows = min(STEP, count - start)
        values = pa.array(rng.random(rows * DIMENSIONS, dtype=np.float32))
        vectors = pa.FixedSizeListArray.from_arrays(values, DIMENSIONS)
        yield pa.record_batch({"id": np.arange(start, start + rows), "vector": vectors})


def prepare(spark: SparkSession, folder: Path, table: str, scale: float) -> int:
    """Write a table and its rows as Parquet, unless both exist; return the number of rows."""
    rows = max(int(ROWS[table] * scale), 1)
    path, parquet = folder / f"{table}.lance", folder / f"{table}.parquet"
    tables.write_once(path, partial(_write, table, rows))
    if not (parquet / "_SUCCESS").exists():
        frame = spark.read.format("lance").load(str(path))
        if table == "small":
            frame = frame.repartitionByRange(FRAGMENTS[table], "id")
        frame.write.mode("overwrite").parquet(str(parquet))
    return rows


def _write(table: str, rows: int, path: Path) -> None:
    import lance

    batches = _vectors(rows) if table == "vectors" else _keyed_rows(rows)
    lance.write_dataset(
        tables.batch_reader(batches),
        path,
        max_rows_per_file=-(-rows // FRAGMENTS[table]),
        data_storage_version="2.2",
    )


def upsert_rows(spark: SparkSession, rows: int) -> DataFrame:
    """Return one row for each hundred rows of a table. Nine of ten rows have an existing key."""
    count = max(rows // 100, 10)
    existing = count * 9 // 10
    return spark.range(0, count, 1, 2).select(
        F.expr(f"IF(id < {existing}, id * 100 + 7, {rows} + id)").alias("id"),
        (F.col("id") % BUCKETS).cast("int").alias("bucket"),
        (F.col("id") / 7).alias("price"),
        F.col("id").cast("string").alias("name"),
        F.concat_ws(" ", F.lit("new"), F.col("id")).alias("text"),
    )


@dataclass(slots=True)
class Figures:
    """The figures of a client's turns.

    Attributes
    ----------
    seconds : list of float
        The seconds of each turn but the first.
    written : int
        The bytes of new files.
    worker_memory : int
        The most bytes of a Python worker without mapped files.
    """

    seconds: list[float]
    written: int = 0
    worker_memory: int = 0


class Runner:
    """Runs the cases of one table.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        The folder of the tables.
    table : str
    rows : int
        The number of rows of the table.
    """

    def __init__(self, spark: SparkSession, folder: Path, table: str, rows: int) -> None:
        self.spark = spark
        self.source = folder / f"{table}.lance"
        self.parquet = folder / f"{table}.parquet"
        self.target = folder / "changed"
        self.upsert_frame = upsert_rows(spark, rows)
        self.upsert_table = self.upsert_frame.toArrow()

    def actions(self) -> dict[str, Callable[[Case], float]]:
        """Return the function of each client that makes a change and returns its seconds."""
        return {
            "lance_spark": self.by_lance_table,
            "parquet": self.by_parquet,
            "pylance": self.by_pylance,
        }

    def run(self, case: Case, rounds: int) -> dict[str, Figures]:
        """Make a change by each client in turns."""
        actions = self.actions()
        figures = {client: Figures([]) for client in actions}
        sums: dict[str, object] = {}
        for client, action in actions.items():
            shutil.rmtree(self.target, ignore_errors=True)
            with WorkerMemory() as memory:
                action(case)
            figures[client].worker_memory = memory.anonymous
            source = "parquet" if client == "parquet" else "lance"
            sums[client] = self._sum(self.spark.read.format(source).load(str(self.target)))
        for _ in range(rounds):
            for client, action in actions.items():
                shutil.rmtree(self.target, ignore_errors=True)
                figures[client].seconds.append(action(case))
                figures[client].written = self._written_bytes()
        shutil.rmtree(self.target, ignore_errors=True)
        if len(set(sums.values())) != 1:
            raise AssertionError(f"{case.title}: the results differ: {sums}")
        return figures

    def by_lance_table(self, case: Case) -> float:
        """Change a copy of the table by `LanceTable`; return the seconds."""
        tables.copy_table(self.source, self.target)
        table = LanceTable.forPath(self.spark, str(self.target))
        return seconds_of(lambda: case.by_lance_table(table, self.upsert_frame))

    def by_parquet(self, case: Case) -> float:
        """Write the changed rows as Parquet; return the seconds."""
        frame = case.by_parquet(self.spark.read.parquet(str(self.parquet)), self.upsert_frame)
        return seconds_of(lambda: frame.write.parquet(str(self.target)))

    def by_pylance(self, case: Case) -> float:
        """Change a copy of the table by pylance; return the seconds."""
        import lance

        tables.copy_table(self.source, self.target)
        dataset = lance.dataset(self.target)
        upsert = case.title.startswith("upsert")
        rows = self.upsert_table.cast(dataset.schema) if upsert else None
        return seconds_of(lambda: case.by_pylance(dataset, rows))

    def _written_bytes(self) -> int:
        """Return the bytes of the files that the change wrote."""
        # Data files of the original table have two links.
        files = (path.stat() for path in self.target.rglob("*") if path.is_file())
        total = sum(file.st_size for file in files if file.st_nlink == 1)
        if (self.target / "_SUCCESS").exists():
            return total
        return total - sum(
            path.stat().st_size
            for path in self.source.rglob("*")
            if path.is_file() and path.parent.name != "data"
        )

    def _sum(self, frame: DataFrame) -> object:
        """Return a value that is equal for equal rows in any order."""
        columns = [F.col(name) for name in sorted(frame.columns)]
        hashed = F.xxhash64(*columns).cast("decimal(38, 0)")
        return tuple(frame.agg(F.count(F.lit(1)), F.sum(hashed)).collect()[0])


def cells(case: Case, figures: dict[str, Figures]) -> list[str]:
    """Return the cells of the table's line."""
    seconds = {client: statistics.median(result.seconds) for client, result in figures.items()}
    written = [f"{figures[client].written / 1e6:,.1f}" for client in ("lance_spark", "parquet")]
    return [
        case.title,
        case.table,
        f"{seconds['lance_spark']:.2f} s",
        f"{seconds['parquet']:.2f} s",
        f"{seconds['parquet'] / seconds['lance_spark']:.1f}",
        f"{seconds['pylance']:.2f} s",
        *written,
        f"{figures['lance_spark'].worker_memory >> 20}",
    ]


HEADER = [
    "change",
    "table",
    "seconds",
    "Parquet",
    "speed / Parquet",
    "pylance alone",
    "MB written",
    "Parquet",
    "MiB of a worker",
]


def main() -> None:
    parser = report.argument_parser(__doc__, update=True)
    parser.add_argument("--only", default="", help="part of the title of a change")
    arguments = parser.parse_args()
    folder = arguments.data.absolute() / f"lance-table-{arguments.scale:g}"
    folder.mkdir(parents=True, exist_ok=True)
    spark = bench.session()
    lines = []
    for table in ("vectors", "rows", "small"):
        cases = [case for case in CASES if case.table == table and arguments.only in case.title]
        if not cases:
            continue
        rows = prepare(spark, folder, table, arguments.scale)
        runner = Runner(spark, folder, table, rows)
        for case in cases:
            lines.append(cells(case, runner.run(case, arguments.rounds)))
            print(" | ".join(lines[-1]), flush=True)
    text = report.table(HEADER, lines)
    print(f"\n{text}")
    if arguments.update:
        report.put_into_readme("lance_table", text)
    spark.stop()


if __name__ == "__main__":
    main()

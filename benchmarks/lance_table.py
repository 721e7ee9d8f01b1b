"""Changes of tables by `LanceTable`, and the same changes of Parquet files, which Spark writes
anew.

    python benchmarks/lance_table.py [--data DIR] [--scale 1.0] [--rounds 3] [--only WORD]
    [--update]

Both have the same rows and run in one session, in turns, after a round that is not counted: in that
one, what comes out is compared, and the memory of the Python workers is looked at. Each turn begins
with a table that nobody has changed: a copy whose data files are linked, which takes no part of the
time. Parquet is written to a new folder. pylance makes the same change in a process of its own
threads, without Spark; its rows for an upsert are in memory.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from benchmarks import change_tables
from benchmarks import spark as bench
from benchmarks.memory import Watched
from lance_spark import LanceTable

MARKS = ("<!-- lance_table -->", "<!-- end of lance_table -->")
ROWS, VECTORS, DIMENSIONS, FRAGMENTS, BUCKETS = 5_000_000, 1_000_000, 256, 1_000, 1_000
_KEY = {"lance-schema:unenforced-primary-key": "true"}
_STEP = 50_000


@dataclass(frozen=True, slots=True)
class Case:
    """A change of a table: by `LanceTable`, of a frame of Parquet files, and of a dataset of
    pylance.

    Attributes
    ----------
    title : str
    table : str
        "rows", "vectors" or "small".
    ours, parquet, pylance : callable
        The first and the last get the table, and the rows that an upsert brings.
    """

    title: str
    table: str
    ours: Callable[[LanceTable, DataFrame], object]
    parquet: Callable[[DataFrame, DataFrame], DataFrame]
    pylance: Callable[[Any, pa.Table], object]


def _upsert_parquet(frame: DataFrame, new: DataFrame) -> DataFrame:
    return frame.join(new, "id", "left_anti").unionByName(new)


def _upsert_pylance(dataset: Any, new: pa.Table) -> None:
    merge = dataset.merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(new)


CASES = [
    Case(
        "add a column",
        "vectors",
        lambda table, _: table.addColumns({"label": "concat('item ', id % 1000)"}),
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
        lambda table, new: table.upsert(new),
        _upsert_parquet,
        _upsert_pylance,
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
        lambda table, _: table.updateColumns({"price": "price * 1.25D"}),
        lambda frame, _: frame.withColumn("price", F.expr("price * 1.25D")),
        lambda dataset, _: dataset.update({"price": "price * 1.25"}),
    ),
    Case(
        "compact 1,000 fragments",
        "small",
        lambda table, _: table.optimize(),
        lambda frame, _: frame,
        lambda dataset, _: dataset.optimize.compact_files(),
    ),
]


def _rows(count: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(11)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata=_KEY),
            ("bucket", pa.int32()),
            ("price", pa.float64()),
            ("name", pa.string()),
            ("text", pa.string()),
        ]
    )
    for start in range(0, count, _STEP):
        rows = min(_STEP, count - start)
        words = [pa.array(rng.integers(0, 1 << 48, rows)).cast(pa.string()) for _ in range(3)]
        columns = [
            np.arange(start, start + rows),
            rng.integers(0, BUCKETS, rows).astype(np.int32),
            rng.random(rows) * 1000,
            words[0],
            pc.binary_join_element_wise(*words, " "),
        ]
        yield pa.record_batch(columns, schema=schema)


def _vectors(count: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(12)
    for start in range(0, count, _STEP):
        rows = min(_STEP, count - start)
        values = pa.array(rng.random(rows * DIMENSIONS, dtype=np.float32))
        vectors = pa.FixedSizeListArray.from_arrays(values, DIMENSIONS)
        yield pa.record_batch({"id": np.arange(start, start + rows), "vector": vectors})


def prepare(spark: SparkSession, folder: Path, table: str, scale: float) -> int:
    """Write a table and its rows as Parquet, if they are not there yet; return the number of its
    rows.
    """
    import lance

    total = {"rows": ROWS, "vectors": VECTORS, "small": ROWS // 5}[table]
    rows = max(int(total * scale), 1)
    files = FRAGMENTS if table == "small" else 4
    path, parquet = folder / f"{table}.lance", folder / f"{table}.parquet"
    if not path.exists():
        unfinished = folder / f"{table}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        batches = _vectors(rows) if table == "vectors" else _rows(rows)
        first = next(batches)

        def every() -> Iterator[pa.RecordBatch]:
            yield first
            yield from batches

        reader = pa.RecordBatchReader.from_batches(first.schema, every())
        lance.write_dataset(
            reader, unfinished, max_rows_per_file=-(-rows // files), data_storage_version="2.2"
        )
        unfinished.rename(path)
    if not (parquet / "_SUCCESS").exists():
        frame = spark.read.format("lance").load(str(path))
        if table == "small":
            frame = frame.repartitionByRange(files, "id")
        frame.write.mode("overwrite").parquet(str(parquet))
    return rows


def new_rows(spark: SparkSession, rows: int) -> DataFrame:
    """One row for each hundred of a table: nine of ten have the key of one."""
    count = max(rows // 100, 10)
    old = count * 9 // 10
    return spark.range(0, count, 1, 2).select(
        F.expr(f"IF(id < {old}, id * 100 + 7, {rows} + id)").alias("id"),
        (F.col("id") % BUCKETS).cast("int").alias("bucket"),
        (F.col("id") / 7).alias("price"),
        F.col("id").cast("string").alias("name"),
        F.concat_ws(" ", F.lit("new"), F.col("id")).alias("text"),
    )


@dataclass(slots=True)
class Measured:
    """What the turns of one client took and wrote, the first left out."""

    seconds: list[float]
    written: int = 0
    memory: int = 0


class Runner:
    """Runs the cases of one table.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        Of the tables.
    table : str
    rows : int
    """

    def __init__(self, spark: SparkSession, folder: Path, table: str, rows: int) -> None:
        self.spark = spark
        self.source = folder / f"{table}.lance"
        self.parquet = folder / f"{table}.parquet"
        self.place = folder / "changed"
        self.new = new_rows(spark, rows)
        self.new_table = self.new.toArrow()

    def actions(self) -> dict[str, Callable[[Case], float]]:
        """Return how each client makes a change; each returns its seconds."""
        return {
            "lance_spark": self.by_lance_table,
            "parquet": self.by_parquet,
            "pylance": self._pylance,
        }

    def run(self, case: Case, rounds: int) -> dict[str, Measured]:
        """Make a change by each client in turns."""
        actions = self.actions()
        found = {client: Measured([]) for client in actions}
        sums: dict[str, object] = {}
        for number in range(rounds + 1):
            for client, action in actions.items():
                shutil.rmtree(self.place, ignore_errors=True)
                if number:
                    found[client].seconds.append(action(case))
                    found[client].written = self._written()
                    continue
                with Watched() as seen:
                    action(case)
                found[client].memory = seen.own
                kind = "parquet" if client == "parquet" else "lance"
                sums[client] = self._sum(self.spark.read.format(kind).load(str(self.place)))
        shutil.rmtree(self.place, ignore_errors=True)
        if len(set(sums.values())) != 1:
            raise AssertionError(f"{case.title}: the results differ: {sums}")
        return found

    def by_lance_table(self, case: Case) -> float:
        change_tables.copied(self.source, self.place)
        table = LanceTable.forPath(self.spark, str(self.place))
        return _seconds(lambda: case.ours(table, self.new))

    def by_parquet(self, case: Case) -> float:
        frame = case.parquet(self.spark.read.parquet(str(self.parquet)), self.new)
        return _seconds(lambda: frame.write.parquet(str(self.place)))

    def _pylance(self, case: Case) -> float:
        import lance

        change_tables.copied(self.source, self.place)
        dataset = lance.dataset(self.place)
        new = self.new_table.cast(dataset.schema) if case.title.startswith("upsert") else None
        return _seconds(lambda: case.pylance(dataset, new))

    def _written(self) -> int:
        """Return the bytes of the files that are no links to those of the original."""
        files = (one.stat() for one in self.place.rglob("*") if one.is_file())
        copied = sum(
            one.stat().st_size
            for one in self.source.rglob("*")
            if one.is_file() and one.parent.name != "data"
        )
        total = sum(one.st_size for one in files if one.st_nlink == 1)
        return total if (self.place / "_SUCCESS").exists() else total - copied

    def _sum(self, frame: DataFrame) -> object:
        columns = [F.col(name) for name in sorted(frame.columns)]
        hashed = F.xxhash64(*columns).cast("decimal(38, 0)")
        return tuple(frame.agg(F.count(F.lit(1)), F.sum(hashed)).collect()[0])


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def line(case: Case, found: dict[str, Measured]) -> list[str]:
    """Return the cells of a case."""
    seconds = {client: statistics.median(one.seconds) for client, one in found.items()}
    own = seconds["lance_spark"]
    written = [f"{found[client].written / 1e6:,.1f}" for client in ("lance_spark", "parquet")]
    return [
        case.title,
        case.table,
        f"{own:.2f} s",
        f"{seconds['parquet']:.2f} s",
        f"{seconds['parquet'] / own:.1f}",
        f"{seconds['pylance']:.2f} s",
        *written,
        f"{found['lance_spark'].memory >> 20}",
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the title of a change")
    parser.add_argument("--update", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    folder = arguments.data.absolute() / f"lance-table-{arguments.scale:g}"
    folder.mkdir(parents=True, exist_ok=True)
    spark = bench.session()
    lines = []
    for table in ("vectors", "rows", "small"):
        cases = [one for one in CASES if one.table == table and arguments.only in one.title]
        if not cases:
            continue
        rows = prepare(spark, folder, table, arguments.scale)
        runner = Runner(spark, folder, table, rows)
        for case in cases:
            lines.append(line(case, runner.run(case, arguments.rounds)))
            print(" | ".join(lines[-1]), flush=True)
    text = bench.table(HEADER, lines)
    print(f"\n{text}")
    if arguments.update:
        path = Path(__file__).parent / "README.md"
        before, rest = path.read_text().split(MARKS[0])
        _, after = rest.split(MARKS[1])
        path.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}")
    spark.stop()


if __name__ == "__main__":
    main()

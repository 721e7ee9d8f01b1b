"""The program of the driver: it does the named parts, and prints how long each step took.

    spark-submit job.py PARTS ROOT SHARED [PYTHON]

ROOT is a folder of the S3 server, SHARED a folder that all machines see. With PYTHON, the tasks of
Spark must have run with that program.

Functions of tasks stand in this module: Spark sends them by value, because no executor can import a
module of the tests.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import lance_spark
from tests.support import pages

ROWS = 20_000
ITEMS = 16
#: Slow writes: partitions, batches of each, rows of a batch, and seconds before a batch.
PARTITIONS, BATCHES, BATCH, WAIT = 4, 16, 500, 1.0


@contextmanager
def step(name: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    print(f"    {name}: {time.monotonic() - start:.1f} s", flush=True)


def made(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Return rows that are computed from their numbers."""
    return spark.range(first, first + count, 1, 8).selectExpr(
        "id",
        "id % 10 AS g",
        "concat('word', id % 97, ' text') AS text",
        f"transform(sequence(1, {ITEMS}), i -> cast(sin(id * i) AS float)) AS vector",
    )


def check(found: DataFrame, expected: DataFrame) -> None:
    """Check that two frames have the same rows."""

    def summary(frame: DataFrame) -> Any:
        row_hash = fn.xxhash64("id", "g", "text", "vector").cast("decimal(38, 0)")
        return frame.agg(fn.count("*"), fn.sum(row_hash)).head()

    assert summary(found) == summary(expected), (summary(found), summary(expected))


def checked(uri: str) -> Any:
    """Return a table as pylance opens it, after pylance has validated it."""
    dataset: Any = lance.dataset(uri, storage_options=storage_options())
    dataset.validate()
    return dataset


def storage_options() -> dict[str, str]:
    return {
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "aws_region": os.environ["AWS_REGION"],
        "aws_endpoint": os.environ["AWS_ENDPOINT_URL"],
        "allow_http": "true",
    }


def plain(spark: SparkSession, root: str, shared: Path) -> None:
    """Read and write without `enable`: Spark's own classes start all processes."""
    uri = f"{root}/plain.lance"
    with step("write without enable"):
        made(spark, 0, ROWS).write.format("lance").mode("append").save(uri)
    with step("read without enable"):
        check(spark.read.format("lance").load(uri), made(spark, 0, ROWS))


def page(spark: SparkSession, root: str, shared: Path) -> None:
    """Run all blocks of the page of SQL."""
    namespace = {"__name__": "page", "spark": spark, "lance_spark": lance_spark}
    with step("the page of SQL"):
        pages.run_page(
            pages.SQL_PAGE, namespace, root, checkpoints=shared / "page" / root.rpartition("/")[2]
        )


def changes(spark: SparkSession, root: str, shared: Path) -> None:
    """Write, change, search and compact a table."""
    uri = f"{root}/t.lance"
    expected = made(spark, 0, ROWS)
    with step("create"):
        writer = expected.writeTo("lance.t")
        writer.tableProperty("vector.arrow.fixed-size-list.size", str(ITEMS)).create()
    with step("append by path"):
        made(spark, ROWS, 1_000).write.format("lance").mode("append").save(uri)
        expected = made(spark, 0, ROWS + 1_000)
        check(spark.table("lance.t"), expected)
    with step("UPDATE"):
        spark.sql("UPDATE lance.t SET text = upper(text) WHERE g = 3")
        upper = fn.when(fn.col("g") == 3, fn.upper("text")).otherwise(fn.col("text"))
        expected = expected.withColumn("text", upper)
    with step("DELETE"):
        spark.sql("DELETE FROM lance.t WHERE id % 7 = 0")
        expected = expected.where("id % 7 != 0")
        check(spark.table("lance.t"), expected)
    with step("MERGE"):
        source = made(spark, ROWS - 500, 2_000)
        source.createOrReplaceTempView("source")
        spark.sql(
            "MERGE INTO lance.t AS t USING source AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET g = -1 WHEN NOT MATCHED THEN INSERT *"
        )
        replaced = (fn.col("id") >= ROWS - 500) & (fn.col("id") < ROWS + 1_000)
        g = fn.when(replaced, fn.lit(-1)).otherwise(fn.col("g"))
        new = source.join(expected, "id", "left_anti")
        expected = expected.withColumn("g", g).unionByName(new)
        check(spark.table("lance.t"), expected)
    with step("stream"):
        rows = spark.readStream.format("lance").load(uri)
        stream = rows.writeStream.format("lance").trigger(availableNow=True)
        stream = stream.option("vector.arrow.fixed-size-list.size", ITEMS)
        stream = stream.option("checkpointLocation", str(shared / root.rpartition("/")[2]))
        stream.start(f"{root}/copy.lance").awaitTermination()
        check(spark.read.format("lance").load(f"{root}/copy.lance"), expected)
    with step("index builds"):
        spark.sql("CREATE INDEX by_id ON lance.t (id)")
        spark.sql("CREATE INDEX words ON lance.t USING inverted (text) OPTIONS (stem = false)")
        spark.sql(
            "CREATE INDEX near ON lance.t USING ivf_pq (vector) "
            "OPTIONS (num_partitions = 4, num_sub_vectors = 8, metric = 'l2')"
        )
    with step("searches"):
        assert spark.sql("SELECT g FROM lance.t WHERE id = 4321").collect() == [(1,)]
        vector = spark.sql("SELECT vector FROM lance.t WHERE id = 4321").collect()[0][0]
        table = lance_spark.LanceTable.forName(spark, "lance.t")
        near = table.nearest("vector", vector, k=5, nprobes=4, refine_factor=10)
        assert near.orderBy("_distance").select("id").first() == (4321,)
        found = spark.sql("SELECT id FROM lance_search('lance.t', 'word11', 100000)").count()
        assert found == expected.where("lower(text) = 'word11 text'").count()
    with step("methods of LanceTable"):
        table.delete("id IN (SELECT id FROM source WHERE id < 19600)")
        expected = expected.where(f"NOT (id >= {ROWS - 500} AND id < 19600)")
        table.update("id < 100", {"g": "g + 1"})
        g = fn.when(fn.col("id") < 100, fn.col("g") + 1).otherwise(fn.col("g"))
        expected = expected.withColumn("g", g)
        check(table.toDF(), expected)
    with step("change feed"):
        version = checked(uri).version
        feed = spark.sql(f"SELECT * FROM lance_changes('lance.t', {version}, {version})")
        assert feed.count() > 0
    with step("OPTIMIZE and VACUUM"):
        spark.sql("OPTIMIZE lance.t")
        spark.sql("VACUUM lance.t RETAIN 0 HOURS")
        check(spark.table("lance.t"), expected)
    assert checked(uri).count_rows() == expected.count()


def programs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the programs of the Python processes of this executor."""
    for _ in batches:
        pass

    def parent(process: str) -> str:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]

    executor = parent(parent("self"))
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().decode().split("\0")
            if parent(path.name) == executor and "-m" in command:
                found.append(command[0])
        except OSError:
            continue
    yield pa.record_batch({"program": found})


def check_programs(spark: SparkSession, python: str) -> None:
    rows = spark.range(0, 8, 1, 8).mapInArrow(programs, "program string").distinct().collect()
    assert {row.program for row in rows} == {python}, rows


def slow(shared: str) -> Any:
    """Return a function of tasks that passes batches on slowly, and says when it begins."""

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number, attempt = context.partitionId(), context.attemptNumber()
        Path(shared, f"begun-{number}-{attempt}").touch()
        for batch in batches:
            for start in range(0, batch.num_rows, BATCH):
                yield batch.slice(start, BATCH)
                time.sleep(WAIT)

    return passed


def late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on; the first attempt of the first task waits before it ends."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    if context is not None and context.partitionId() == 0 and context.attemptNumber() == 0:
        time.sleep(60)


def append(spark: SparkSession, root: str, shared: Path) -> None:
    """Append rows slowly to a table with one row."""
    uri = f"{root}/slow.lance"
    if not spark.catalog.tableExists("lance.slow"):
        spark.sql("CREATE TABLE lance.slow AS SELECT -1L AS id")
    count = PARTITIONS * BATCHES * BATCH
    rows = spark.range(0, count, 1, PARTITIONS).mapInArrow(slow(str(shared)), "id long")
    with step("a slow write"):
        rows.write.format("lance").mode("append").save(uri)
    check_once(uri, count)


def speculated(spark: SparkSession, root: str, shared: Path) -> None:
    """Append, update and compact with tasks that run twice."""
    spark.sql("CREATE TABLE lance.twice AS SELECT -1L AS id")
    count = 8 * 1_000
    with step("a write with a slow task"):
        rows = spark.range(0, count, 1, 8).mapInArrow(late, "id long")
        start = time.monotonic()
        rows.writeTo("lance.twice").append()
        assert time.monotonic() - start < 60, "no task ran a second time"
    check_once(f"{root}/twice.lance", count)
    with step("a MERGE with a slow task"):
        source = spark.range(0, count, 1, 8).mapInArrow(late, "id long")
        source.createOrReplaceTempView("late")
        start = time.monotonic()
        spark.sql(
            "MERGE INTO lance.twice AS t USING (SELECT id + 4000 AS id FROM late) AS s "
            "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
        )
        assert time.monotonic() - start < 120
    check_once(f"{root}/twice.lance", count + 4_000)


def check_once(uri: str, count: int) -> None:
    """Check that a table has the row -1, and each row below a number once."""
    ids = checked(uri).to_table(["id"])["id"].to_pylist()
    assert sorted(ids) == list(range(-1, count)), (len(ids), len(set(ids)))


PARTS = {part.__name__: part for part in (plain, page, changes, append, speculated)}


def main() -> None:
    names, root, shared = sys.argv[1].split(","), sys.argv[2], Path(sys.argv[3])
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if names != ["plain"]:
        lance_spark.enable(spark, root=root)
    print(f"    the driver has {lance_spark.__file__}", flush=True)
    for name in names:
        PARTS[name](spark, root, shared)
    if len(sys.argv) > 4:
        check_programs(spark, sys.argv[4])
    print("    done", flush=True)


if __name__ == "__main__":
    main()

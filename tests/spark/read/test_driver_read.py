"""Small queries are answered while they are planned, with the same rows as by tasks, and within
bounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from lance_spark.scan.task import ScanTask
from tests.support.spark.query_tables import write_tables
from tests.support.spark.requests import aggregates, ask, col, lit, op

Switch = Callable[..., None]


@pytest.fixture
def local(pushdown: Switch) -> Iterator[Switch]:
    """Turn answers of small queries on or off."""

    def switch(on: bool) -> None:
        pushdown(True, on)

    switch(True)
    yield switch
    switch(False)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table of 40,000 rows in four fragments, with deleted rows in each."""
    path = str(tmp_path / "t.lance")
    ids = np.arange(40_000)
    rows = pa.table({"id": ids, "g": ids % 100, "text": [f"text {i % 7}" for i in ids]})
    lance.write_dataset(rows, path, max_rows_per_file=10_000).delete("g = 3")
    return path


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def is_found(frame: Any) -> bool:
    """Return whether no task reads the table."""
    plan = plan_of(frame)
    assert ("BatchScan lance" in plan) != ("LocalTableScan" in plan)
    return "LocalTableScan" in plan


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (lambda f: f.groupBy().count(), True),
        (lambda f: f.agg(sf.min("id"), sf.max("text"), sf.count("g")), True),
        (lambda f: f.agg(sf.min("id"), sf.max("g"), sf.count("g")), True),
        (lambda f: f.where("g >= 50").agg(sf.count("text"), sf.max("id")), True),
        (lambda f: f.where("id < 0").agg(sf.count("*"), sf.max("id")), True),
        (lambda f: f.where("id % 2 = 0").groupBy().count(), False),
        (lambda f: f.where("id in (5, 777, 39999)"), True),
        (lambda f: f.where("text = 'text 3' and g in (4, 3)").select("id"), True),
        (lambda f: f.where("id < 10000").select("id"), True),
        (lambda f: f.where("id < 10200").select("id"), False),
        (lambda f: f.where("id < 10000").groupBy("id").agg(sf.count("text")), True),
        (lambda f: f.where("id >= 0").orderBy("text", "id").limit(30), True),
        (lambda f: f.limit(25), True),
        (lambda f: f.limit(25).offset(5), True),
        (lambda f: f.limit(9000).where("g = 4"), True),
        (lambda f: f.limit(25_000), False),
        (lambda f: f, False),
    ],
)
def test_small_queries_start_no_task(
    read: Callable[..., Any], local: Switch, table: str, query: Callable[[Any], Any], expected: bool
) -> None:
    assert is_found(query(read())) == expected
    result = query(read()).collect()
    local(False)
    assert not is_found(query(read()))
    assert sorted(query(read()).collect()) == sorted(result)


def test_all_types_equal_the_values_of_tasks(
    spark: Any, local: Switch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name, path in write_tables(tmp_path_factory.mktemp("shop")).items():
        frame = spark.read.format("lance").load(path)
        assert is_found(frame)
        result = [repr(row) for row in frame.collect()]
        assert bool(result) == (name != "nothing")
        local(False)
        again = spark.read.format("lance").load(path)
        assert not is_found(again)
        assert [repr(row) for row in again.collect()] == result
        local(True)


def test_tables_without_rows_and_without_columns(
    read: Callable[..., Any], local: Switch, tmp_path: Path
) -> None:
    lance.write_dataset(pa.table({"id": pa.array([], pa.int64())}), str(tmp_path / "t.lance"))
    assert is_found(read())
    assert read().collect() == []
    assert read().count() == 0
    assert read().agg(sf.max("id")).collect()[0][0] is None
    lance.write_dataset(pa.table({"id": range(7)}), str(tmp_path / "t.lance"), mode="overwrite")
    assert len(read().select(sf.lit(1)).collect()) == 7


def test_showing_a_table_starts_no_task(
    spark: Any, read: Callable[..., Any], local: Switch, table: str
) -> None:
    frame = read()
    spark.sparkContext.setJobGroup("found", "found")
    try:
        assert frame.head(3) == frame.take(3) == frame.limit(3).collect()
        assert frame.first().id == 0
        assert frame.where("id = 77").collect()[0].g == 77
        assert spark.sparkContext.statusTracker().getJobIdsForGroup("found") == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_options_that_disable_reads_on_the_driver(
    spark: Any, read: Callable[..., Any], local: Switch, table: str
) -> None:
    assert not is_found(read(driver_read_bytes=0).limit(3))
    assert not is_found(read(driver_read_bytes=100_000).where("id = 3"))
    assert is_found(read(driver_read_bytes=10_000_000).where("id = 3"))
    assert is_found(read(filter="id = 3").limit(5))
    assert read(filter="id > 20").limit(5).count() == 5
    spark.conf.set("spark.lance.pushdown.local", "false")
    assert not is_found(read().limit(3))
    with pytest.raises(Exception, match="driver_read_bytes"):
        read(driver_read_bytes=-1)


def test_the_scans_of_a_query_share_the_bytes(
    read: Callable[..., Any], local: Switch, table: str
) -> None:
    def counts(driver_read_bytes: int) -> tuple[int, int]:
        """Return how many scans the driver reads, and how many tasks read."""
        frame = read(driver_read_bytes=driver_read_bytes)
        first, second, third = (frame.where(f"id = {number}") for number in (5, 77, 999))
        plan = plan_of(first.union(second).union(third))
        return plan.count("LocalTableScan"), plan.count("BatchScan lance")

    # The column has 0.6 MB in Spark, and each query has its own bytes: at most 1 MiB.
    assert counts(500_000) == (0, 3)
    assert counts(1_000_000) == counts(1_000_000) == (1, 2)
    assert counts(2_000_000) == (1, 2)


def test_tasks_read_the_table_of_a_subquery(
    spark: Any, read: Callable[..., Any], local: Switch, table: str, tmp_path: Path
) -> None:
    """The columns of the subquery have more than 1 MiB, and a query without others reads them."""
    spark.range(400_000).selectExpr("id AS k").coalesce(1).write.format("lance").save(
        f"{tmp_path}/o"
    )
    spark.read.format("lance").load(f"{tmp_path}/o").createOrReplaceTempView("of_subquery")
    read().createOrReplaceTempView("of_query")
    subquery = "SELECT max(k) FROM of_subquery WHERE k > 7"
    assert is_found(spark.sql(subquery))
    frame = spark.sql(f"SELECT id FROM of_query WHERE id = 5 AND id < ({subquery})")
    assert re.search("BatchScan lance.*table=\\S*/o", plan_of(frame))
    assert [tuple(row) for row in frame.collect()] == [(5,)]


def test_tasks_read_the_large_tables_of_a_query(
    spark: Any, read: Callable[..., Any], local: Switch, table: str, tmp_path: Path
) -> None:
    """A column of each of these tables has 0.6 MB in Spark, and the driver reads 1 MiB."""
    spark.range(40_000).selectExpr("id AS k").coalesce(1).write.format("lance").save(
        f"{tmp_path}/o"
    )
    spark.range(40).selectExpr("id AS s").coalesce(1).write.format("lance").save(f"{tmp_path}/s")
    other, small = (spark.read.format("lance").load(f"{tmp_path}/{name}") for name in "os")
    filtered, few = read().where("id = 5"), other.where("k = 5")

    def readers(frame: Any) -> list[str]:
        """Return the operators that read the tables, in their order."""
        scans = re.findall(r"(LocalTable|Batch)Scan.* table=\S*/(\w+)", plan_of(frame))
        return sorted({f"{name}: {operator}" for operator, name in scans})

    joined = filtered.join(few, filtered.id == few.k)
    assert readers(joined) == ["o: Batch", "t: LocalTable"]
    joined = joined.join(small, filtered.id == small.s)
    assert readers(joined) == ["o: Batch", "s: LocalTable", "t: LocalTable"]
    assert [tuple(row) for row in joined.select("id", "k", "s").collect()] == [(5, 5, 5)]
    alone = filtered.join(small.where("s = 5"), filtered.id == small.s)
    assert readers(alone) == ["s: LocalTable", "t: LocalTable"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("limit", [1, 9_899, 9_900, 9_901, 30_000, 39_600, 39_601, 100_000])
def test_a_limit_is_exact_without_spark(
    read: Callable[..., Any], local: Switch, table: str, limit: int
) -> None:
    local(False)
    query = read().limit(limit)
    assert "Limit" not in plan_of(query)
    assert query._jdf.queryExecution().toRdd().getNumPartitions() == 1
    expected = [row for row in range(40_000) if row % 100 != 3][:limit]
    assert [row.id for row in query.collect()] == expected


def test_a_limit_below_another_operator(
    read: Callable[..., Any], local: Switch, table: str
) -> None:
    for on in (True, False):
        local(on)
        frame = read()
        assert frame.limit(11).union(frame.limit(7)).count() == 18
        assert frame.limit(11).join(frame.limit(7), "id").count() == 7
        assert frame.limit(11).limit(5).count() == 5
        assert frame.limit(5).limit(11).count() == 5
        assert frame.orderBy(sf.desc("id")).limit(2).collect()[0].id == 39_999
        assert frame.select((sf.col("id") + 1).alias("n")).limit(4).collect()[3].n == 5
        assert len(frame.where("id % 2 = 1").limit(6).collect()) == 6
        assert frame.limit(6).where("id % 2 = 1").count() == 2
        assert frame.limit(300).repartition(3).count() == 300
        cached = frame.limit(20).cache()
        assert cached.count() == cached.count() == 20
        cached.unpersist()


def test_tasks_report_read_errors(read: Callable[..., Any], local: Switch, table: str) -> None:
    assert is_found(read().limit(3))
    for file in Path(table, "data").iterdir():
        file.write_bytes(file.read_bytes()[:-40] + b"\0" * 40)
    query = read().limit(3)
    assert not is_found(query)
    with pytest.raises(Exception, match="CorruptFileError"):
        query.collect()
    # The manifest alone answers this query.
    assert read().count() == 39_600


def test_every_query_reads_the_newest_rows(
    read: Callable[..., Any], local: Switch, tmp_path: Path
) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1]}), path)
    frame = read()
    assert frame.count() == 1
    lance.write_dataset(pa.table({"id": [2]}), path, mode="append")
    assert frame.count() == 2
    assert sorted(row.id for row in frame.collect()) == [1, 2]
    assert frame.join(frame.select(sf.max("id").alias("id")), "id").collect()[0].id == 2


def test_aggregates_of_several_partitions_are_one_row(table: str) -> None:
    from pyspark.sql.types import LongType

    functions = (("count_star", None), ("count", ["id"]), ("min", ["id"]), ("max", ["g"]))
    schema, request = aggregates(*((name, path, LongType()) for name, path in functions))
    request["filters"] = [op(">", col("id"), lit(9, "bigint"))]
    answer = ask(table, schema, request, target_rows_per_partition="10000")
    assert len(answer.batches) == 4
    assert answer.local_rows is not None
    assert answer.local_rows.to_pylist() == [
        {"agg0": 39_591, "agg1": 39_591, "agg2": 10, "agg3": 99}
    ]


def test_wide_rows_lower_the_bound(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    vectors = pa.FixedSizeListArray.from_arrays(np.zeros(2_000 * 1_024, np.float32), 1_024)
    lance.write_dataset(pa.table({"id": range(2_000), "vector": vectors}), path)
    few, many = ({"limit": limit, "exact": True} for limit in (900, 1_100))
    assert ask(path, ["id", "vector"], few).local_rows.num_rows == 900  # type: ignore[union-attr]
    assert ask(path, ["id", "vector"], many).local_rows is None
    assert ask(path, ["id"], {}).local_rows is not None
    # The number of rows after a filter is known only after the read.
    wide = {"filters": [op("<", col("id"), lit(1_100, "bigint"))]}
    assert ask(path, ["id", "vector"], wide).local_rows is None
    assert ask(path, ["id"], wide).local_rows is not None
    pieces = [pa.table({"id": [row], "vector": vectors[row : row + 1]}) for row in range(17)]
    for row, piece in enumerate(pieces):
        lance.write_dataset(piece, path, mode="overwrite" if row == 0 else "append")
    assert ask(path, ["id"], {}).local_rows is None
    assert ask(path, ["id"], {"limit": 16, "exact": True}).local_rows is not None


def test_exact_searches_of_local_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t.lance")
    values = pa.FixedSizeListArray.from_arrays(np.arange(1_000 * 16, dtype=np.float32), 16)
    lance.write_dataset(pa.table({"id": range(1_000), "v": values}), path, max_rows_per_file=250)
    nearest = json.dumps({"column": "v", "q": [0.0] * 16, "k": 3})

    def is_found(driver_read_bytes: int, tasks: int | None) -> bool:
        request = {"parallelism": tasks} if tasks else {}
        options = {"nearest": nearest, "driver_read_bytes": str(driver_read_bytes)}
        return ask(path, ["id"], request, **options).local_rows is not None

    size = 1_000 * 16 * 4
    monkeypatch.setattr("lance_spark.spark.read.searches.num_processors", lambda: 4)
    assert is_found(size // 8, 4)
    assert not is_found(size // 8 - 1, 4)
    # Tasks on several machines share the work.
    assert not is_found(size - 1, 5)
    assert not is_found(size - 1, None)
    assert is_found(size, 5)


def test_slow_reads_are_for_tasks(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(table, ["id"], {"limit": 5}).local_rows is not None
    monkeypatch.setattr("lance_spark.spark.read.driver_read._SECONDS", -1.0)
    assert ask(table, ["id"], {"limit": 5}).local_rows is None


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the rows of all reads, of samples and of tasks."""
    reads: list[int] = []
    task_batches = ScanTask.batches

    def batches(task: ScanTask, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        reads.append(task.num_rows)
        return task_batches(task, *args, **options)

    monkeypatch.setattr(ScanTask, "batches", batches)
    return reads


@pytest.mark.parametrize(("remainder", "samples"), [(50, 4), (10, 8)])
def test_half_of_a_sample_shows_that_rows_are_too_many_for_a_broadcast(
    tmp_path: Path, reads: list[int], remainder: int, samples: int
) -> None:
    path = str(tmp_path / "t.lance")
    ids = np.arange(100_000)
    lance.write_dataset(pa.table({"id": ids, "g": ids % 100}), path)
    conditions = [op("is_not_null", col("g")), op("<", col("g"), lit(remainder, "bigint"))]
    # A row has 16 bytes in Spark: a quarter of the rows would be broadcast.
    request = {"filters": conditions, "broadcast": 400_000, "other_scans": True}
    assert ask(path, ["id"], request).local_rows is None
    assert reads.count(512) == samples


def test_no_sample_of_nulls_is_read_beside_other_scans(tmp_path: Path, reads: list[int]) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": np.arange(20_000)}), path)
    request = {"filters": [op("is_not_null", col("id"))]}
    ask(path, ["id"], request)
    assert 1_024 in reads
    reads.clear()
    assert ask(path, ["id"], request | {"other_scans": True}).local_rows is None
    assert sum(reads) == 20_000


def test_a_sample_shows_that_a_filter_leaves_many_rows(tmp_path: Path, reads: list[int]) -> None:
    path = str(tmp_path / "t.lance")
    ids = np.arange(100_000)
    # A sample would begin at the last row of the first fragment.
    rows = pa.table({"id": ids, "g": ids % 100})
    lance.write_dataset(rows, path, max_rows_per_file=12_501)

    def num_local_rows(condition: dict[str, Any], limit: int | None = None) -> int | None:
        reads.clear()
        request = {"filters": [condition]} | ({"limit": limit} if limit else {})
        # Tasks read the rest; `ask` runs them after the driver has answered.
        rows = ask(path, ["id"], request).local_rows
        return None if rows is None else rows.num_rows

    assert num_local_rows(op("<", col("g"), lit(50, "bigint"))) is None
    assert sum(reads) < 2 * 100_000
    # Samples are from the whole table: the first rows do not decide.
    assert num_local_rows(op("<", col("id"), lit(1_500, "bigint"))) == 1_500
    assert num_local_rows(op("=", col("g"), lit(7, "bigint"))) == 1_000
    assert num_local_rows(op("<", col("g"), lit(50, "bigint")), limit=20) == 20
    # An index shows how many rows are left, so that no sample is needed.
    lance.dataset(path).create_scalar_index("g", "BITMAP")
    for count, expected in ((9, 9_000), (11, None)):
        some = [lit(number, "bigint") for number in range(count)]
        assert num_local_rows(op("in", col("g"), *some)) == expected
        assert sum(reads) == count * 1_000 * (1 if expected is None else 2)

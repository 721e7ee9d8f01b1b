"""Tables that `optimize` has sorted: Spark does not sort rows again that a scan returns in order.

Spark's answers over Parquet, and over a version that is not sorted, decide.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from lance_spark import LanceTable, open_dataset
from tests.spark.pushdown.test_top_rows import part_of
from tests.support.spark.metrics import counted
from tests.support.spark.sorted_tables import order_in, plan_of
from tests.support.tables.beside_parquet import write_beside_parquet

PARTS = 3
#: Sorts of a table. The first columns have few values, so that the others decide too.
SORTS = [
    ["small", "word", "ratio", "id"],
    ["flag", "half", "day", "cents", "id"],
    ["raw", "clock", "at", "id"],
    ["whole", "count", "id"],
]


@pytest.fixture(scope="module", autouse=True)
def with_tasks(pushdown: Callable[..., None]) -> None:
    """Scans are pushed down, and read by tasks."""
    pushdown(True)


@pytest.fixture
def path(sorted_copy: Path) -> Path:
    return sorted_copy


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same rows as a Lance table, from which rows were deleted, and as Parquet."""
    folder = tmp_path_factory.mktemp("ordering")
    dtypes = {"whole": pa.int64(), "clock": pa.timestamp("us")}
    return write_beside_parquet(folder, [part_of(number) for number in range(PARTS)], dtypes)


def normalized(frame: Any, keys: list[str]) -> list[str]:
    """Return the keys of all rows; both zeros as one, and both NaN."""
    floats = {"ratio", "half"}
    columns = [(sf.col(key) + sf.lit(0.0)) if key in floats else sf.col(key) for key in keys]
    return [repr(row) for row in frame.select(*columns).collect()]


@pytest.mark.sample(3)
@pytest.mark.parametrize("keys", SORTS, ids=lambda keys: keys[0])
def test_partitions_are_in_sparks_order(
    spark: Any,
    paths: tuple[str, str],
    keys: list[str],
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "t.lance")
    shutil.copytree(paths[0], path)
    LanceTable.forPath(spark, path).optimize(sort_by=keys, target_rows_per_fragment=2_000)
    reader = spark.read.format("lance").option("target_rows_per_partition", 700)
    table = reader.load(path)
    assert order_in(table) == ", ".join(f"{key} ASC" for key in keys)
    assert order_in(table.select(*keys[:2], "text")) == f"{keys[0]} ASC, {keys[1]} ASC"
    assert order_in(table.select(*keys[1:])) is None
    other = spark.read.schema(table.schema).parquet(paths[1])
    assert re.search(r" partitions=(8|9|1\d) ", plan_of(table))
    assert normalized(table, keys) == normalized(other.orderBy(*keys), keys)


QUERIES: list[tuple[str, Callable[[Any], Any], int]] = [
    ("in partitions", lambda t: t.sortWithinPartitions("id", "word"), 1),
    ("in another order", lambda t: t.sortWithinPartitions("word"), 0),
    ("descending", lambda t: t.sortWithinPartitions(sf.desc("id")), 0),
    ("nulls last", lambda t: t.sortWithinPartitions(sf.asc_nulls_last("id")), 0),
    ("groups", lambda t: t.groupBy("id").agg(sf.max(sf.upper("word")), sf.count("*")), 1),
    (
        "filtered groups",
        lambda t: t.where("value > 0.5").groupBy("id").agg(sf.max(sf.upper("word"))),
        1,
    ),
    (
        "first rows of groups",
        lambda t: t.selectExpr(
            "*", "row_number() over (partition by id order by word, value) as n"
        ).where("n <= 2"),
        0,
    ),
    (
        "first words of groups",
        lambda t: (
            t.select("id", "word")
            .selectExpr("*", "rank() over (partition by id order by word) as n")
            .where("n = 1")
        ),
        1,
    ),
    ("all rows", lambda t: t.orderBy("id", "word", "value"), 0),
    (
        "broadcast",
        lambda t: (
            t.join(
                sf.broadcast(t.where("value < 0.003").select(sf.col("value").alias("v"))),
                sf.expr("value * value < v"),
            )
            .groupBy("id")
            .agg(sf.max(sf.upper("word")))
        ),
        1,
    ),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("query", "saved"), [query[1:] for query in QUERIES], ids=[query[0] for query in QUERIES]
)
def test_queries_without_a_sort(
    spark: Any, sorted_table: Path, query: Callable[[Any], Any], saved: int
) -> None:
    """The same plan, but for a sort, over a version that is sorted and over one that is not."""
    reader = spark.read.format("lance").option("target_rows_per_partition", 900)
    ordered = query(reader.load(str(sorted_table)))
    other = query(reader.option("version", 1).load(str(sorted_table)))
    with_sort, without = plan_of(other), plan_of(ordered)
    assert with_sort.count("Sort [") - without.count("Sort [") == saved
    assert with_sort.count("Exchange") == without.count("Exchange")
    if saved:
        assert sorted(map(repr, ordered.collect())) == sorted(map(repr, other.collect()))


def test_the_plan_of_groups(spark: Any, sorted_table: Path) -> None:
    """Tasks aggregate the rows as they read them; only the groups are sorted, after a shuffle."""
    reader = spark.read.format("lance")
    plans = [
        plan_of(frame.groupBy("id").agg(sf.max(sf.upper("word"))))
        for frame in (
            reader.option("version", 1).load(str(sorted_table)),
            spark.read.format("lance").load(str(sorted_table)),
        )
    ]
    nodes = [[line.split("+- ")[-1].split(" ")[0] for line in plan.splitlines()] for plan in plans]
    names = [[name.partition("(")[0] for name in plan if name] for plan in nodes]
    final = ["AdaptiveSparkPlan", "SortAggregate", "Sort", "Exchange", "SortAggregate"]
    assert names == [[*final, "Sort", "BatchScan"], [*final, "BatchScan"]]


TOPS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda f: f.orderBy("id", "word").limit(700).select("id", "word"), "partitions=2 fragments=1"),
    (lambda f: f.where("value > 0.9").orderBy("id").limit(20).select("id"), "partitions=8"),
    (lambda f: f.orderBy(sf.desc("id"), sf.desc("word")).limit(9).select("id"), "partitions=1 "),
    (lambda f: f.where("id > 9").orderBy(sf.desc("id")).limit(9).select("id"), "partitions=8 "),
    (lambda f: f.orderBy("id", "word", "value").limit(700), "partitions=8 "),
    (lambda f: f.orderBy(sf.desc_nulls_first("id")).limit(90).select("id"), "partitions=8 "),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("query", "scan"), TOPS)
def test_first_rows(
    spark: Any,
    pushdown: Callable[..., None],
    sorted_table: Path,
    query: Callable[[Any], Any],
    scan: str,
) -> None:
    reader = spark.read.format("lance").option("target_rows_per_partition", 500)
    first = query(reader.load(str(sorted_table)))
    expected = query(reader.option("version", 1).load(str(sorted_table))).collect()
    assert scan in plan_of(first)
    assert first.collect() == expected
    pushdown(True, True)
    try:
        assert query(reader.option("version", 3).load(str(sorted_table))).collect() == expected
    finally:
        pushdown(True)


def test_few_rows_are_read(spark: Any, path: Path) -> None:
    """Rows of the first fragment are deleted, so that its first slice does not have enough."""
    table = LanceTable.forPath(spark, str(path))
    table.delete("id is null or id < 300 or id > 1500 and id % 2 = 0")
    reader = spark.read.format("lance").option("target_rows_per_partition", 250)
    rows = reader.load(str(path))
    ids = sorted(row.id for row in rows.select("id").collect())
    first, last = rows.orderBy("id").limit(10), rows.orderBy(sf.desc("id")).limit(300)
    assert [row.id for row in first.collect()] == ids[:10]
    assert [row.id for row in last.collect()] == ids[::-1][:300]
    assert sum(counted(first)) < 700
    # The first rows of some partitions, and not of all.
    assert 300 < sum(counted(last)) < len(ids) / 2


SCANS: dict[str, Callable[[Any], Any]] = {
    "all rows": lambda f: f,
    "a filter": lambda f: f.where("value > 0.3 and word <> 'w5'"),
    "few rows": lambda f: f.where("word in ('w5', 'w7')"),
    "other units of time": lambda f: f.where("clock > timestamp_ntz '1970-01-01 00:10:00'"),
    "an expression": lambda f: f.where("length(word) = 2"),
    "limit": lambda f: f.where("value > 0.3").limit(2_000),
    "broadcast": lambda f: f.join(sf.broadcast(f.sparkSession.range(30, 1000, 7)), "id"),
}


@pytest.fixture(scope="module")
def changed_table(spark: Any, sorted_table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sorted table with deleted rows, columns in files of their own, and a zone map."""
    path = Path(shutil.copytree(sorted_table, tmp_path_factory.mktemp("changed") / "t.lance"))

    def clock(batch: pa.RecordBatch) -> pa.Array:
        return pa.array(range(batch.num_rows), pa.int64()).cast(pa.timestamp("s"))

    dataset = open_dataset(str(path)).add_columns({"clock": clock}, batch_size=1_500)
    dataset = dataset.alter_columns({"path": "clock", "data_type": pa.timestamp("ns")})
    table = LanceTable.forPath(spark, str(path))
    table.update("id % 2 = 1", {"value": "value / 2"}, mode="columns")
    table.delete("id between 200 and 300 or value between 0.5 and 0.6")
    lance.dataset(path).create_scalar_index("value", "ZONEMAP")
    return path


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SCANS)
def test_scans_return_rows_in_order(spark: Any, changed_table: Path, name: str) -> None:
    reader = spark.read.format("lance").option("target_rows_per_partition", 300)
    frame = SCANS[name](reader.load(str(changed_table))).select("id", "word")
    assert (order_in(frame) or "").startswith("id ASC")
    rows = [(-1 if row.id is None else row.id, row.word) for row in frame.collect()]
    assert len(rows) > 20
    # One partition after the other, and within each of them by both columns.
    assert rows == sorted(rows)


@pytest.mark.parametrize("setting", ["spark.lance.columnar.enabled", "spark.lance.pushdown.arrays"])
def test_rows_and_packed_arrays(spark: Any, path: Path, setting: str) -> None:
    def items(batch: pa.RecordBatch) -> pa.Array:
        return pa.array([[value] for value in batch["id"].to_pylist()], pa.list_(pa.int32()))

    open_dataset(str(path)).add_columns({"items": items})
    rows = spark.read.format("lance").load(str(path)).sortWithinPartitions("id")
    stored = open_dataset(str(path)).to_table(["id", "items"]).to_pylist()
    expected = [(row["id"], row["items"]) for row in stored]
    for value in ("true", "false"):
        spark.conf.set(setting, value)
        try:
            frame = rows.select("id", "items")
            assert order_in(frame) == "id ASC"
            assert "Sort [" not in plan_of(frame)
            assert [tuple(row) for row in frame.collect()] == expected
        finally:
            spark.conf.unset(setting)


def test_only_columns_as_they_were_sorted(spark: Any, path: Path) -> None:
    def shown(schema: str, **options: str) -> str | None:
        reader = spark.read.format("lance").schema(schema).options(**options)
        return order_in(reader.load(str(path)))

    assert shown("word string, id int") == "id ASC, word ASC"
    assert shown("ID int, value double") == "ID ASC"
    assert shown("id long, word string") is None
    assert shown("value double, word string") is None
    assert shown("id int", version="1") is None
    assert shown("id int, value double", filter="value > 0.3") == "id ASC"
    lance.dataset(path).alter_columns({"path": "word", "name": "Id"})
    # Spark would not know which column is meant.
    case = "spark.sql.caseSensitive"
    spark.conf.set(case, "true")
    try:
        assert shown("id int, Id string") is None
    finally:
        spark.conf.unset(case)


def test_a_name_with_any_characters(spark: Any, path: Path) -> None:
    name = "a:b,;% +`é"
    lance.dataset(path).alter_columns({"path": "id", "name": name})
    rows = spark.read.format("lance").load(str(path)).sortWithinPartitions(sf.col("`a:b,;% +``é`"))
    assert order_in(rows) == "`a:b,;% +``é` ASC, word ASC"
    assert "Sort [" not in plan_of(rows)

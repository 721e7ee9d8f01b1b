"""What push-down requests from a table, and what it leaves to Spark. It never changes the rows of a
query.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader

import lance_spark
from lance_spark.spark.datasource import LanceDataSource
from lance_spark.spark.jvm import classes
from lance_spark.spark.jvm.shims import pyspark_names
from tests.support.spark.query_tables import write_tables
from tests.support.spark.versions import HAS_TIME, SPARK

CONF = "spark.lance.pushdown.enabled"
LOCAL = "spark.lance.pushdown.local"


@pytest.fixture(scope="module")
def shop(
    spark: Any, pushdown: Callable[[bool], None], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Return the paths of the tables. Each table is a view of the same name."""
    paths = write_tables(tmp_path_factory.mktemp("shop"))
    for name, path in paths.items():
        spark.read.format("lance").load(path).createOrReplaceTempView(name)
    return paths


@pytest.fixture
def table(pushdown: Callable[[bool], None], tmp_path: Path) -> str:
    """A table of a hundred rows in four fragments."""
    path = str(tmp_path / "t.lance")
    rows = pa.table({"id": range(100), "g": [row % 4 for row in range(100)]})
    lance.write_dataset(rows, path, max_rows_per_file=25)
    return path


def scans(frame: Any) -> list[str]:
    """Return the descriptions of the scans in the executed plan of a query."""
    plan = str(frame._jdf.queryExecution().executedPlan().toString())
    result = re.findall(r"BatchScan (?i:lance)\[.*?\] (.*?) RuntimeFilters", plan)
    assert result
    return [text.removeprefix("lance pushdown ") for text in result]


def request_of(frame: Any) -> dict[str, str]:
    """Return the request of the only scan of a query."""
    (text,) = scans(frame)
    assert "=[" in text, f"not pushed down: {text}"
    return {
        name: value.strip()
        for name, value in re.findall(
            r"(columns|filters|aggregates|limit|partitions)=(.*?)(?= \w+=|$)", text
        )
    }


def checks_filters(frame: Any) -> bool:
    """Return whether Spark evaluates a filter itself."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return re.search(r"\bFilter\b", plan) is not None


def rows_of(frame: Any) -> list[str]:
    return sorted(repr(row) for row in frame.collect())


def test_columns_and_nested_fields_are_pruned(spark: Any, shop: dict[str, str]) -> None:
    assert request_of(spark.sql("select id from items"))["columns"] == "[id:bigint]"
    nested = request_of(spark.sql("select s.c.u + 1, parts.n from items"))["columns"]
    assert nested == "[s:struct<c:struct<u:bigint>>,parts:array<struct<n:string>>]"


@pytest.mark.skipif(SPARK < (4, 1), reason="Spark 4.0 asks for one column")
def test_no_column_is_requested_if_none_is_needed(spark: Any, shop: dict[str, str]) -> None:
    query = spark.sql("select 1 from items")
    assert request_of(query)["columns"] == "[]"
    assert query.count() == len(query.collect()) == spark.sql("select id from items").count()


@pytest.mark.parametrize(
    "condition",
    [
        "g = 1 or x > 20.0D",
        "not (g <=> 1 or g = 2)",
        "g in (1, null)",
        "id not in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12)",
        "name like 'a%b_'",
        "s.c.v = double('nan')",
        "s.c is not null",
        "ok",
        "day > date'2024-01-01' and at < timestamp'2024-02-01 00:00:00'",
        "clock < timestamp_ntz'2024-02-01 00:00:00'",
        "price >= 10.25 or bin = X'80'",
        "g < `odd-name` or s.a = g",
        "`odd-name` = 3 and `Upper Case` <> 'a'",
    ],
)
def test_the_reader_evaluates_filters(spark: Any, shop: dict[str, str], condition: str) -> None:
    if SPARK < (4, 1) and "_'" in condition:
        pytest.skip("Spark 4.0 does not hand over such a pattern")
    query = spark.sql(f"select id from items where {condition}")
    assert request_of(query)["filters"] != "[]"
    assert not checks_filters(query)


@pytest.mark.skipif(not HAS_TIME, reason="Spark 4.0 has no TIME")
@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("t < time'12:00:00'", [0]),
        ("t in (time'00:00:00', time'23:59:59.999999')", [0, 2]),
        ("not (t <=> time'00:00:00')", [1, 2, 3]),
        ("d > interval '1' day", [1]),
        ("d <=> interval '26' hour or d < interval '0' second", [1, 2]),
        ("d = d_ns and t is not null", [0, 1, 2]),
    ],
)
def test_filters_on_times_of_day_and_intervals(
    spark: Any, pushdown: Callable[[bool], None], tmp_path: Path, condition: str, rows: list[int]
) -> None:
    hours = [dt.time(0), dt.time(12, 34, 56), dt.time(23, 59, 59, 999999), None]
    spans = [dt.timedelta(1), dt.timedelta(hours=26), -dt.timedelta(microseconds=1), None]
    columns = {
        "id": range(4),
        "t": pa.array(hours, pa.time64("ns")),
        "d": pa.array(spans, pa.duration("us")),
        "d_ns": pa.array(spans, pa.duration("ns")),
    }
    path = str(tmp_path / "clocks.lance")
    lance.write_dataset(pa.table(columns), path)
    query = spark.read.format("lance").load(path).where(condition).select("id")
    assert request_of(query)["filters"] != "[]"
    assert not checks_filters(query)
    assert sorted(row.id for row in query.collect()) == rows


@pytest.mark.parametrize(
    ("condition", "sign"),
    [
        ("id % 3 = 1", "%"),
        ("name rlike '^a'", "RLIKE"),
        ("upper(name) = 'A'", "UPPER"),
        ("rand() < 0.5", "RAND"),
        ("g * 2 > 3", "*"),
    ],
)
def test_other_filters_stay_with_spark(
    spark: Any, shop: dict[str, str], condition: str, sign: str
) -> None:
    # The other one is first: it would stay with Spark too after one that may raise an error.
    query = spark.sql(f"select id from items where small > 1 and {condition}")
    pushed = request_of(query)["filters"].upper()
    assert "SMALL > " in pushed
    assert sign not in pushed
    assert checks_filters(query)


def test_long_lists_and_deep_trees_run(spark: Any, shop: dict[str, str]) -> None:
    long = ", ".join(str(number) for number in range(0, 24_000, 2))
    frame = spark.sql(f"select id from items where id in ({long})")
    assert request_of(frame)["filters"] == "[]" or "INSET" not in request_of(frame)["filters"]
    kept = {row.id for row in spark.sql("select id from items").collect()}
    assert {row.id for row in frame.collect()} == {number for number in kept if number % 2 == 0}
    deep = "id = 1"
    for number in range(150):
        deep = f"({deep} {'and' if number % 2 else 'or'} x <> {number}.25D)"
    chain = " or ".join(f"(id = {number} and g >= 0)" for number in range(300))
    for condition in (deep, chain):
        query = f"select count(*) from items where {condition}"
        spark.conf.set(CONF, "false")
        expected = spark.sql(query).collect()
        spark.conf.set(CONF, "true")
        assert spark.sql(query).collect() == expected


def test_counts_and_bounds_are_requested(spark: Any, shop: dict[str, str]) -> None:
    query = spark.sql("select count(*), count(s.a), min(day), max(price) from items")
    assert request_of(query)["aggregates"] == (
        '[{"op":"count_star"},{"op":"count","col":["s","a"]},{"op":"min","col":["day"]},'
        '{"op":"max","col":["price"]}]'
    )
    assert spark.sql("select count(*), count(g), min(id) from nothing").first() == (0, 0, None)


@pytest.mark.parametrize(
    "query",
    [
        "select price, count(*) from items group by price / 2, price",
        "select count(*) filter (where abs(g) = 1) from items",
        "select avg(x) from items",
        "select stddev(g) from items",
        "select sum(x) from items",
        "select count(*) from items where id % 2 = 0",
        "select count(g + 1) from items",
    ],
)
def test_other_aggregates_stay_with_spark(spark: Any, shop: dict[str, str], query: str) -> None:
    assert "aggregates" not in request_of(spark.sql(query))


def test_limits_plan_fewer_partitions(spark: Any, table: str) -> None:
    frame = spark.read.format("lance").option("target_rows_per_partition", 25).load(table)
    query = frame.limit(3)
    assert request_of(query)["limit"] == "3"
    assert query._jdf.queryExecution().toRdd().getNumPartitions() == 1
    assert len(query.collect()) == 3
    assert len(frame.limit(60).collect()) == 60
    assert len(frame.where("g = 1").limit(20).collect()) == 20
    assert len(frame.limit(1000).collect()) == 100
    assert frame.limit(0).count() == 0
    assert [row.id for row in frame.orderBy("id").offset(95).collect()] == list(range(95, 100))
    assert [row.id for row in frame.orderBy(frame.id.desc()).limit(2).collect()] == [99, 98]
    assert frame.offset(90).count() == 10
    assert frame.limit(10).where("g = 1").count() <= 10


def test_samples_are_the_same(spark: Any, table: str) -> None:
    spark.read.format("lance").load(table).createOrReplaceTempView("sampled")
    for query in (
        "select id from sampled tablesample (30 percent) repeatable (7) where g = 1",
        "select count(*) from sampled tablesample (30 percent) repeatable (7)",
    ):
        spark.conf.set(CONF, "false")
        expected = rows_of(spark.sql(query))
        spark.conf.set(CONF, "true")
        assert rows_of(spark.sql(query)) == expected


def test_small_tables_are_broadcast(spark: Any, shop: dict[str, str]) -> None:
    query = spark.sql("select i.id from items i join orders o on i.order_id = o.id")
    assert "BroadcastHashJoin" in query._jdf.queryExecution().executedPlan().toString()


def test_the_switch_works_at_any_time(spark: Any, shop: dict[str, str]) -> None:
    frame = spark.read.format("lance").load(shop["items"])
    try:
        assert lance_spark.is_enabled(spark)
        assert request_of(frame.select("id"))["columns"] == "[id:bigint]"
        spark.conf.set(CONF, "false")
        assert not lance_spark.is_enabled(spark)
        assert scans(frame.select("id"))[0].startswith("(Python)")
        second_session = spark.newSession()
        second_session.conf.set(LOCAL, "false")
        assert lance_spark.is_enabled(second_session)
        assert request_of(second_session.read.format("lance").load(shop["items"]).select("id"))
    finally:
        spark.conf.set(CONF, "true")
    lance_spark.enable(spark)
    assert request_of(frame.select("id"))["columns"] == "[id:bigint]"


def test_names_of_the_format_and_schemas_of_users(spark: Any, shop: dict[str, str]) -> None:
    upper = spark.read.format("LANCE").load(shop["items"]).select("ID").where("G = 1")
    assert request_of(upper)["columns"] == "[id:bigint]"
    user_reader = spark.read.format("lance").schema(
        "id bigint, g bigint, s struct<c: struct<u: bigint>>"
    )
    frame = user_reader.load(shop["items"]).where("g < 3000000000 and s.c.u > 7")
    assert request_of(frame)["filters"].count("<") >= 1
    spark.conf.set(CONF, "false")
    expected = rows_of(frame.select("id", "g"))
    spark.conf.set(CONF, "true")
    assert rows_of(frame.select("id", "g")) == expected
    assert expected
    hidden = spark.read.format("lance").schema("_rowid bigint, id bigint").load(shop["items"])
    assert request_of(hidden.where("_rowid = 5"))["filters"] != "[]"
    assert [row.id for row in hidden.where("_rowid = 5").collect()] == [5]
    assert hidden.selectExpr("max(_rowid)").first() == hidden.agg({"_rowid": "max"}).first()


def test_push_down_keeps_the_options_of_the_read(spark: Any, table: str) -> None:
    lance.write_dataset(pa.table({"id": [100], "g": [9]}), table, mode="append")
    read = spark.read.format("lance")
    assert read.option("version", 1).load(table).count() == 100
    assert read.option("version", 2).load(table).count() == 101
    lance.dataset(table).create_branch("trial", 1)
    assert spark.read.format("lance").option("branch", "trial").load(table).count() == 100
    narrow = spark.read.format("lance").option("columns", "g").load(table)
    assert narrow.columns == ["g"]
    assert narrow.where("g = 9").count() == 1
    chosen = spark.read.format("lance").option("filter", "id >= 90").load(table)
    assert chosen.count() == 11
    assert chosen.where("g = 1").count() == 2
    assert len(chosen.limit(5).collect()) == 5
    assert chosen.selectExpr("min(id)").first()[0] == 90


def test_each_query_reads_the_newest_version(spark: Any, table: str) -> None:
    frame = spark.read.format("lance").load(table)
    frame.createOrReplaceTempView("growing")
    assert frame.count() == 100
    lance.write_dataset(pa.table({"id": [100], "g": [9]}), table, mode="append")
    assert frame.count() == 101
    assert spark.sql("select max(id) from growing").first()[0] == 100


def test_one_query_reads_one_version(spark: Any, table: str) -> None:
    frame = spark.read.format("lance").load(table)
    frame.createOrReplaceTempView("moving")
    spark.read.format("lance").load(table).createOrReplaceTempView("moving_again")
    differing = "select id from moving union all select id from moving_again"
    for text, all_rows in (
        (
            "select count(*) from moving a full join moving b on a.id = b.id "
            "where a.id is null or b.id is null",
            False,
        ),
        ("select count(*) from moving where (select count(*) from moving_again) = {}", True),
        (
            f"select count(*) from (select id from ({differing}) group by id having count(*) = 1)",
            False,
        ),
    ):
        before = frame.count()
        query = spark.sql(text.format(before))
        _first_scan(query._jdf.queryExecution().optimizedPlan()).planInputPartitions()
        lance.write_dataset(pa.table({"id": [before], "g": [9]}), table, mode="append")
        assert query.collect()[0][0] == (before if all_rows else 0), text


def _first_scan(plan: Any) -> Any:
    """Return a scan of an optimized plan."""
    leaves = plan.collectLeaves()
    return leaves.apply(0).scan()


def test_equal_scans_of_a_query_are_planned_once(spark: Any, shop: dict[str, str]) -> None:
    query = spark.sql(
        "with kept as (select g, count(*) n from items where id > 1 group by g) "
        "select a.n, b.n from kept a join kept b on a.g = b.g join items c on a.g = c.id"
    )
    leaves = query._jdf.queryExecution().optimizedPlan().collectLeaves()
    planned = [leaves.apply(i).scan().planInputPartitions() for i in range(leaves.size())]
    identity = spark._jvm.java.lang.System.identityHashCode
    first, second, other = map(identity, planned)
    assert first == second != other


def test_equal_scans_of_a_query_run_once(spark: Any, shop: dict[str, str]) -> None:
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        query = spark.sql(
            "select a.n, b.n from (select g, count(*) n from items group by g) a "
            "join (select g, count(*) n from items group by g) b on a.g = b.g"
        )
        query.collect()
        final = query._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert "Reused" in final


def test_cached_frames_stay_cached(spark: Any, table: str) -> None:
    frame = spark.read.format("lance").load(table)
    spark.conf.set(CONF, "false")
    before = frame.where("g = 1").cache()
    before.count()
    spark.conf.set(CONF, "true")
    after = frame.where("g = 2").select("id").cache()
    after.count()
    try:
        lance.write_dataset(pa.table({"id": [100, 101], "g": [1, 2]}), table, mode="append")
        for condition, cached in (("g = 1", before), ("g = 2", after)):
            again = frame.where(condition)
            again = again.select("id") if cached is after else again
            for on in ("true", "false"):
                spark.conf.set(CONF, on)
                plan = again.where("id > 10")._jdf.queryExecution().executedPlan().toString()
                assert "InMemoryTableScan" in plan
                assert again.count() == 25
        assert frame.where("g = 3").count() == 25
    finally:
        spark.conf.set(CONF, "true")
        before.unpersist()
        after.unpersist()


def test_writes_that_read_the_same_table(spark: Any, table: str) -> None:
    frame = spark.read.format("lance").load(table)
    frame.where("g = 1").write.format("lance").mode("append").save(table)
    assert frame.count() == 125
    spark.sql(f"create or replace temp view itself using lance options (path '{table}')")
    spark.sql("insert into itself select id + 1000, g from itself where id < 10 and g = 1")
    assert spark.sql("select count(*) from itself where id >= 1000").first()[0] == 6
    frame.where("g = 1 and id > 50").write.format("lance").mode("overwrite").save(table)
    assert {row.g for row in spark.read.format("lance").load(table).collect()} == {1}
    lance.dataset(table).validate()


def test_commands(spark: Any, shop: dict[str, str]) -> None:
    assert spark.sql("describe items").count() == len(spark.table("items").columns)
    text = spark.sql("explain select id from items where g = 1").first()[0]
    assert "lance pushdown columns=[id:bigint] filters=[" in text
    for mode in ("extended", "cost", "formatted", "codegen"):
        spark.sql(f"explain {mode} select count(*) from items where g = 1").collect()
    spark.sql(
        "create or replace temp view view_of_items as select id, s.c as c from items where g = 1"
    )
    query = spark.sql("select c.u from view_of_items where c.u > 3")
    assert request_of(query)["columns"] == "[s:struct<c:struct<u:bigint>>]"


def test_a_stream_joined_with_a_table(spark: Any, table: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    spark.range(10).write.json(str(source))
    stream = spark.readStream.schema("id bigint").json(str(source))
    joined = stream.join(spark.read.format("lance").load(table), "id").where("g = 1")
    query = (
        joined.writeStream.format("memory")
        .queryName("joined")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert {row.id for row in spark.table("joined").collect()} == {1, 5, 9}


class Other(DataSource):
    """Another data source."""

    @classmethod
    def name(cls) -> str:
        return "other"

    def schema(self) -> str:
        return "a int, b int"

    def reader(self, schema: Any) -> DataSourceReader:
        assert schema.names == ["a", "b"]

        class Reader(DataSourceReader):
            def read(self, partition: Any) -> Any:
                yield (1, 2)

        return Reader()


def test_other_sources_are_unchanged(spark: Any, shop: dict[str, str]) -> None:
    spark.dataSource.register(Other)
    assert spark.read.format("other").load().select("b").collect() == [(2,)]
    joined = (
        spark.read.format("other").load().join(spark.table("items"), on=sf.col("id") == sf.col("a"))
    )
    assert joined.select("b", "id").collect() == [(2, 1)]


def test_together_with_the_filter_push_down_of_spark(spark: Any, shop: dict[str, str]) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        items = spark.read.format("lance").load(shop["items"])
        assert "g = 3" in request_of(items.where("g = 3"))["filters"]
        two = items.where("g = 1").union(items.where("g = 2"))
        assert {row.g for row in two.collect()} == {1, 2}
        assert items.count() == items.where("g = 1 or g <> 1 or g is null").count()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_errors_of_the_reader_reach_the_user(spark: Any, table: str) -> None:
    frame = spark.read.format("lance").load(table)
    lance.dataset(table).drop_columns(["g"])
    with pytest.raises(Exception, match="g"):
        frame.select("g").collect()
    assert frame.select("id").count() == 100


@pytest.mark.parametrize("version", ["3.5.1", "4.4.0", "5.0.0"])
def test_other_versions_of_spark_are_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        """A scan that has only a version."""

    session: Any = Session()
    session.version = version
    refused = f"does not support Spark {re.escape(version)}: it supports Spark 4.0 to 4.3"
    with pytest.raises(lance_spark.LanceError, match=refused):
        lance_spark.enable(session)
    assert not lance_spark.is_enabled(session)
    monkeypatch.setattr(pyspark_names.check_supported, "__defaults__", (version,))
    with pytest.raises(lance_spark.LanceError, match=refused):
        LanceDataSource({"path": "t.lance"})


def test_sources_that_do_not_compile_are_an_error(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lance_spark.spark.jvm import enable

    (tmp_path / "Extension.java").write_text("package org.lancespark; class Extension { int }")
    monkeypatch.setattr(classes, "_FOLDER", tmp_path)
    monkeypatch.setattr(classes, "_extensions", {})
    with pytest.raises(lance_spark.LanceError, match="cannot compile the rule") as caught:
        enable.enable(spark)
    assert "\n" not in str(caught.value)

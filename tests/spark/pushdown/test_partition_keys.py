"""Partitions by key: joins, aggregates and windows without a shuffle, with the rows of a shuffle."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from tests.proto.tables import column_file
from tests.support.spark.settings import restored

BUCKETING = "spark.sql.sources.v2.bucketing"
ENABLED = f"{BUCKETING}.enabled"
SHUFFLE = f"{BUCKETING}.shuffle.enabled"
PARTIAL = f"{BUCKETING}.partiallyClusteredDistribution.enabled"
PUSHED = f"{BUCKETING}.pushPartValues.enabled"
#: The name in Spark 4.3, and the one before.
SUBSET = f"{BUCKETING}.allowKeysSubsetOfPartitionKeys.enabled"
OLD_SUBSET = f"{BUCKETING}.allowJoinKeysSubsetOfPartitionKeys.enabled"
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
SETTINGS = (ENABLED, SHUFFLE, PARTIAL, PUSHED, SUBSET, OLD_SUBSET, BROADCAST)
ROWS = 60


def rows_of(day: int | None, start: int = 0, rows: int = ROWS) -> pa.Table:
    """Rows with one day and one word."""
    ids = np.arange(start, start + rows)
    word = None if day is None else f"w{day % 2}"
    return pa.table(
        {
            "id": ids,
            "day": pa.array([day] * rows, pa.int32()),
            "date": pa.array([None if day is None else dt.date(2024, 1, day)] * rows, pa.date32()),
            "word": pa.array([word] * rows, pa.string()),
            "value": ids * 0.5,
            "vector": pa.array([[float(row), 1.0] for row in ids], pa.list_(pa.float32(), 2)),
        }
    )


def write(path: Path, days: Sequence[int | None], indexes: Sequence[str] = ("day", "word")) -> None:
    """Write a fragment for each day."""
    for number, day in enumerate(days):
        lance.write_dataset(rows_of(day, number * ROWS), path, mode="append")
    for column in indexes:
        lance.dataset(path).create_scalar_index(column, "ZONEMAP")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the queries, which no test changes."""
    folder = tmp_path_factory.mktemp("keys")
    write(folder / "left", [1, 2, 3, 2, None, 3], ["day", "word", "date"])
    write(folder / "right", [2, 3, 4, 2], ["day", "word", "date"])
    write(folder / "unindexed", [4, 2, 1], [])
    return folder


@pytest.fixture(autouse=True)
def _settings(spark: Any, pushdown: Callable[..., None]) -> Iterator[None]:
    with restored(spark, *SETTINGS):
        pushdown(True)
        spark.conf.set(ENABLED, "true")
        spark.conf.set(BROADCAST, "-1")
        yield


@pytest.fixture
def load(spark: Any, tables: Path) -> Callable[..., Any]:
    def load(name: str | Path, **options: object) -> Any:
        return spark.read.format("lance").options(**options).load(str(tables / name))

    return load


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def shuffles(frame: Any) -> int:
    return len(re.findall(r"Exchange (?:hash|key|range|single)", plan_of(frame)))


def reported(frame: Any) -> list[str]:
    """Return the keys of each scan."""
    return re.findall(r"partitioned=\[(.*?)\] version", plan_of(frame))


def collected(frame: Any) -> list[str]:
    return sorted(map(repr, frame.collect()))


def check(spark: Any, query: Callable[[], Any], expected: int = 0) -> None:
    """Check that a query has a number of shuffles, and the rows that it has without keys."""
    frame = query()
    assert shuffles(frame) == expected, plan_of(frame)
    collected_rows = collected(frame)
    spark.conf.set(ENABLED, "false")
    frame = query()
    assert reported(frame) == []
    assert shuffles(frame) > expected
    assert collected_rows == collected(frame)
    spark.conf.set(ENABLED, "true")


def _keeps_rows(spark: Any) -> bool:
    """Return whether Spark has the right rows with all settings."""
    return str(spark.version) >= "4.3"


def _skip_before_4_3(spark: Any) -> None:
    if not _keeps_rows(spark):
        pytest.skip("scans report no keys with this setting")


@pytest.mark.sample(3)
@pytest.mark.parametrize("how", ["inner", "left", "full", "left_anti"])
def test_joins(spark: Any, load: Callable[..., Any], how: str) -> None:
    def query() -> Any:
        return load("left").join(load("right"), "day", how).drop("vector", "date", "word")

    check(spark, query)


@pytest.mark.sample(3)
@pytest.mark.parametrize("key", ["word", "date", "day"])
def test_types(spark: Any, load: Callable[..., Any], key: str) -> None:
    def query() -> Any:
        right = load("right").select(key, sf.col("value").alias("other"))
        return load("left").join(right, key).groupBy(key).agg(sf.avg("value"), sf.sum("other"))

    check(spark, query)


def test_several_columns_in_the_order_of_the_condition(
    spark: Any, load: Callable[..., Any]
) -> None:
    def query() -> Any:
        left = load("left").select("value", "day", "word")
        right = load("right").select(sf.col("word").alias("w"), "id", sf.col("day").alias("d"))
        condition = (left.word == right.w) & (left.day == right.d)
        return left.join(right, condition)

    assert sorted(reported(query())) == ["word, day", "word, day"]
    check(spark, query)


def test_aggregates_and_windows(spark: Any, load: Callable[..., Any]) -> None:
    def grouped() -> Any:
        return load("left").groupBy("day").agg(sf.avg("value"), sf.count("vector"))

    def of_more_columns() -> Any:
        return load("left").groupBy("day", "id").agg(sf.avg("value"))

    def ranked() -> Any:
        frame = load("left").select("id", sf.col("day").alias("d"))
        return frame.selectExpr("*", "sum(id) over (partition by d order by id) total")

    check(spark, grouped)
    check(spark, of_more_columns)
    check(spark, ranked)


def test_the_nearest_columns_are_the_keys(spark: Any, load: Callable[..., Any]) -> None:
    def query() -> Any:
        days = load("left").groupBy("day", "word").agg(sf.avg("value").alias("mean"))
        words = load("right").groupBy("word").agg(sf.stddev("id").alias("id"))
        return days.join(words, "word")

    assert sorted(reported(query())) == ["day, word", "word"]
    check(spark, query, expected=2)


def test_arrays_and_rows(spark: Any, load: Callable[..., Any]) -> None:
    def query() -> Any:
        right = load("right").select("day", sf.col("vector").alias("other"))
        return load("left").select("day", "vector").join(right, "day")

    check(spark, query)
    with restored(spark, "spark.lance.columnar.enabled"):
        spark.conf.set("spark.lance.columnar.enabled", "false")
        check(spark, query)


@pytest.mark.sample(3)
@pytest.mark.parametrize("key", ["day", "word", "date"])
def test_one_side_is_shuffled(spark: Any, load: Callable[..., Any], key: str) -> None:
    _skip_before_4_3(spark)

    def query() -> Any:
        other = load("unindexed").select(key, sf.col("value").alias("other"))
        return load("left").join(other, key).drop("vector")

    assert shuffles(query()) == 2
    spark.conf.set(SHUFFLE, "true")
    check(spark, query, expected=1)


def test_settings_of_spark(spark: Any, load: Callable[..., Any]) -> None:
    def query() -> Any:
        return load("left", target_rows_per_partition=30).join(load("right").drop("vector"), "day")

    if _keeps_rows(spark):
        spark.conf.set(PARTIAL, "true")
        check(spark, query)
        spark.conf.set(PARTIAL, "false")
    spark.conf.set(PUSHED, "false")
    # The tables have other days.
    assert shuffles(query()) > 0
    assert len(query().collect()) == 2 * 2 * ROWS**2 + 2 * ROWS**2


@pytest.mark.parametrize("setting", [SHUFFLE, PARTIAL, OLD_SUBSET])
def test_settings_with_wrong_rows_before_spark_4_3(
    spark: Any, load: Callable[..., Any], setting: str
) -> None:
    def query() -> Any:
        return load("left").join(load("right").drop("vector"), "day")

    assert reported(query()) == ["day", "day"]
    spark.conf.set(setting, "true")
    assert reported(query()) == (["day", "day"] if _keeps_rows(spark) else [])
    spark.conf.unset(setting)


@pytest.mark.parametrize("partial", [False, True])
def test_windows_by_some_of_the_keys(spark: Any, load: Callable[..., Any], partial: bool) -> None:
    """Before a fix of Spark, each partition of the join had windows of its own."""
    _skip_before_4_3(spark)
    spark.conf.set(SUBSET, "true")
    spark.conf.set(PARTIAL, str(partial).lower())

    def query() -> Any:
        left = load("left", target_rows_per_partition=30).select("day", "word", "id")
        joined = left.join(load("right").select("day", "word").distinct(), ["day", "word"])
        joined.createOrReplaceTempView("joined_days")
        return spark.sql("SELECT word, id, sum(id) OVER (PARTITION BY word) AS n FROM joined_days")

    rows = collected(query())
    spark.conf.set(ENABLED, "false")
    assert rows == collected(query())


def test_filters(spark: Any, load: Callable[..., Any]) -> None:
    def of_some() -> Any:
        return load("left").where("day >= 2 and id < 300").join(load("right"), "day").select("day")

    def of_none() -> Any:
        return load("left").where("day = 77").join(load("right"), "day").select("day")

    check(spark, of_some)
    assert of_none().collect() == []


def test_filters_by_keys_of_another_join(spark: Any, load: Callable[..., Any]) -> None:
    spark.conf.set(BROADCAST, str(10 << 20))

    def query() -> Any:
        left = load("left").hint("merge").select("day", "value")
        right = load("right").hint("merge").select("day", sf.col("id").alias("other"))
        some = load("unindexed").where("id = 70 and value > 1").select(sf.col("day").alias("key"))
        joined = left.join(right, "day").join(some.hint("broadcast"), sf.col("day") == some["key"])
        return joined.groupBy("day").agg(sf.avg("value"))

    with restored(spark, "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly"):
        frame = query()
        collected_rows = collected(frame)
        assert len(collected_rows) == 1
        spark.conf.set(ENABLED, "false")
        assert collected(query()) == collected_rows


def test_a_scan_that_needs_no_keys(load: Callable[..., Any]) -> None:
    assert reported(load("left").select("day")) == []
    assert reported(load("left").orderBy("day").limit(3)) == []
    assert reported(load("left").join(load("right"), "value")) == []
    assert reported(load("left").groupBy("day").count()) == []


def test_exchanges_are_reused(spark: Any, load: Callable[..., Any]) -> None:
    """The columns by which rows meet further up make no difference to scans without keys."""
    with restored(spark, "spark.sql.adaptive.enabled"):
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        means = load("unindexed").groupBy("word", "day").agg(sf.avg("value").alias("mean"))
        right = load("right").select(sf.col("day").alias("d"), sf.col("word").alias("w"))
        by_day = means.join(right, means.day == right.d, "left")
        by_word = means.join(right, means.word == right.w, "left")
        frame = by_day.union(by_word)
        assert plan_of(frame).count("ReusedExchange [word") == 1
        assert len(frame.collect()) > 0


def joined(load: Callable[..., Any], path: Path) -> Any:
    return load(path).select("day", "value").join(load("right").select("day"), "day")


def test_too_many_values(load: Callable[..., Any], tmp_path: Path) -> None:
    days = pa.table({"day": pa.array(range(300), pa.int32()), "value": np.arange(300)})
    lance.write_dataset(days, tmp_path / "t", max_rows_per_file=1)
    lance.dataset(tmp_path / "t").create_scalar_index("day", "ZONEMAP")
    assert reported(joined(load, tmp_path / "t")) == ["day"]


def _append(path: Path) -> None:
    lance.write_dataset(rows_of(3, 1000), path, mode="append")


def _mixed(path: Path) -> None:
    lance.write_dataset(pa.concat_tables([rows_of(3), rows_of(4)]), path, mode="append")
    lance.dataset(path).optimize.optimize_indices()


def _some_nulls(path: Path) -> None:
    rows = pa.concat_tables([rows_of(3), rows_of(None)])
    lance.write_dataset(rows, path, mode="append")
    lance.dataset(path).optimize.optimize_indices()


def _update(path: Path) -> None:
    lance.dataset(path).update({"day": "3"}, where="id < 3")


def _overlay(path: Path) -> None:
    dataset = lance.dataset(path)
    field = dataset.lance_schema.field("day").id()
    file = column_file(dataset, "day", pa.array([99], pa.int32()), field)
    overlay = lance.LanceOperation.DataOverlayFile(file, [10])
    group = lance.LanceOperation.DataOverlayGroup(0, [overlay])
    operation = lance.LanceOperation.DataOverlay([group])
    lance.LanceDataset.commit(path, operation, read_version=dataset.version)


def _update_column(path: Path) -> None:
    dataset = lance.dataset(path)
    fragment = dataset.get_fragments()[0]
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "day": pa.array([8, 9], pa.int32())})
    updated, fields = fragment.update_columns(rows, left_on="id")
    operation = lance.LanceOperation.Update(
        [], [updated], [], fields, update_mode="rewrite_columns"
    )
    lance.LanceDataset.commit(path, operation, read_version=dataset.version)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "change", [_append, _mixed, _some_nulls, _update, _overlay, _update_column]
)
def test_changes_that_make_values_uncertain(
    spark: Any,
    load: Callable[..., Any],
    tmp_path: Path,
    change: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    write(tmp_path / "t", [1, 2])
    change(tmp_path / "t")
    frame = joined(load, tmp_path / "t")
    assert reported(frame) == ["day"]
    assert shuffles(frame) == 2
    spark.conf.set(ENABLED, "false")
    assert collected(frame) == collected(joined(load, tmp_path / "t"))


def test_changes_that_leave_one_value(spark: Any, load: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "t"

    def query() -> Any:
        return joined(load, path)

    write(path, [1, 2, 3])
    lance.dataset(path).delete("id < 5 or day = 3 or id = 70")
    check(spark, query)
    _append(path)
    assert shuffles(query()) == 2
    lance.dataset(path).optimize.optimize_indices()
    check(spark, query)
    # Rows of one day move to a fragment of their own.
    lance.dataset(path).update({"value": "-1.0"}, where="id = 71")
    assert shuffles(query()) == 2
    lance.dataset(path).optimize.optimize_indices()
    check(spark, query)
    lance.dataset(path).add_columns({"late": "cast(null as int)"})
    check(spark, query)
    lance.dataset(path).alter_columns({"path": "day", "name": "Day of"})
    frame = load(path).withColumnRenamed("Day of", "day").join(load("right"), "day")
    assert sorted(reported(frame)) == ["`Day of`", "day"]
    assert shuffles(frame) == 0
    lance.dataset(path).delete("true")
    assert collected(load(path).withColumnRenamed("Day of", "day").join(load("right"), "day")) == []


def test_a_column_without_files_has_only_nulls(load: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path, [1, 2])
    lance.dataset(path).add_columns(pa.schema([pa.field("late", pa.int32())]))
    lance.write_dataset(
        rows_of(7).append_column("late", pa.array([5] * ROWS, pa.int32())), path, mode="append"
    )
    lance.dataset(path).create_scalar_index("late", "ZONEMAP")
    frame = load(path).groupBy("late").agg(sf.avg("value"))
    assert shuffles(frame) == 0
    assert {row.late for row in frame.collect()} == {None, 5}


def bucketed(path: Path, ids: Sequence[int], buckets: int = 4) -> None:
    """Write a table with a fragment for each id, and with a MemWAL by buckets of the id."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"}),
            pa.field("value", pa.float64()),
        ]
    )
    for number in ids:
        rows = pa.table([[number] * ROWS, np.arange(ROWS) * 1.0], schema=schema)
        lance.write_dataset(rows, path, mode="append")
    dataset = lance.dataset(path)
    dataset.create_scalar_index("id", "ZONEMAP")
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=buckets)


def test_buckets(spark: Any, load: Callable[..., Any], tmp_path: Path) -> None:
    bucketed(tmp_path / "a.lance", [1, 2, 3, 5, 8])
    bucketed(tmp_path / "b.lance", [3, 8, 9, 100])

    def query() -> Any:
        right = load(tmp_path / "b.lance").withColumnRenamed("value", "other")
        return load(tmp_path / "a.lance").join(right, "id")

    assert sorted(reported(query())) == ["bucket(4, id)", "bucket(4, id)"]
    check(spark, query)
    spark.conf.set("spark.sql.catalog.keys", "org.lancespark.LanceCatalog")
    spark.conf.set("spark.sql.catalog.keys.root", str(tmp_path))

    def by_name() -> Any:
        text = "SELECT id, avg(a.value) FROM keys.a JOIN keys.b USING (id) GROUP BY id"
        return spark.sql(text)

    check(spark, by_name)
    if _keeps_rows(spark):
        # Rows of the other side go to the partition of their bucket.
        spark.conf.set(SHUFFLE, "true")
        unindexed = load("unindexed").select("id")
        check(spark, lambda: load(tmp_path / "a.lance").join(unindexed, "id"), expected=1)
    other = tmp_path / "c.lance"
    bucketed(other, [3, 8], buckets=3)
    spark.conf.set(SHUFFLE, "false")
    assert shuffles(load(tmp_path / "a.lance").join(load(other), "id")) == 2


def test_fresh_reads_have_no_keys(load: Callable[..., Any], tmp_path: Path) -> None:
    bucketed(tmp_path / "t", [1, 2])
    frame = load(tmp_path / "t", fresh="true").groupBy("id").agg(sf.avg("value"))
    assert reported(frame) == []
    assert len(frame.collect()) == 2

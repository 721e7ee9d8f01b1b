"""Tables of version 0.1 through Spark: every change keeps the version, and none loses a value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.spark.table import LanceTable

ROWS = 3_000


def frame(spark: Any, first: int = 0, count: int = ROWS) -> Any:
    """Rows of many types; only strings are null."""
    ids = F.col("id")
    return spark.range(first, first + count, 1, 3).select(
        ids,
        F.when(ids % 5 != 0, F.concat(F.lit("name "), ids)).alias("name"),
        F.struct(
            F.expr("if(id >= 0, cast(id * 2 as int), null)").alias("a"),
            F.expr("if(id >= 0, date'2020-01-01', null)").alias("b"),
        ).alias("s"),
        F.array(ids, ids + 1).alias("l"),
        (ids / 4).cast("decimal(20, 2)").alias("d"),
        (ids % 2 == 0).alias("even"),
    )


def make(spark: Any, path: Path, version: str) -> LanceTable:
    frame(spark).write.format("lance").mode("append").option("data_storage_version", version).save(
        str(path)
    )
    frame(spark, ROWS, 500).write.format("lance").mode("append").save(str(path))
    return LanceTable.forPath(spark, str(path))


def update(table: LanceTable, spark: Any) -> None:
    table.update("id % 7 = 0", {"name": "concat('new ', id)", "even": "true"})


def update_columns(table: LanceTable, spark: Any) -> None:
    table.updateColumns({"d": "d + 1"})


def merge(table: LanceTable, spark: Any) -> None:
    source = frame(spark, ROWS, 700).withColumn("name", F.lit("merged"))
    (
        table.alias("t")
        .merge(source.alias("u"), "t.id = u.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )


def replace_where(table: LanceTable, spark: Any) -> None:
    table.replaceWhere(frame(spark, 50, 10), "id >= 50 and id < 100")


def optimize(table: LanceTable, spark: Any) -> None:
    table.delete("id % 10 = 3")
    table.optimize()


def sort(table: LanceTable, spark: Any) -> None:
    table.optimize(zOrderBy=["id", "d"])


def columns(table: LanceTable, spark: Any) -> None:
    table.addColumns({"twice": "id * 2"})
    table.dropColumns("even")
    table.alterColumn("twice", dataType="int")


CHANGES = [update, update_columns, merge, replace_where, optimize, sort, columns]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes(spark: Any, tmp_path: Path, change: Callable[[LanceTable, Any], None]) -> None:
    found = []
    for version in ("0.1", "2.2"):
        path = tmp_path / version
        change(make(spark, path, version), spark)
        dataset = lance.dataset(str(path))
        dataset.validate()
        assert dataset.data_storage_version == version
        found.append(dataset.to_table().sort_by("id").to_pylist())
        rows = spark.read.format("lance").load(str(path)).where("d > 40 or name = 'name 7'")
        found.append(sorted(row.id for row in rows.select("id").collect()))
    assert found[:2] == found[2:]


def test_a_null_stops_the_job_and_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    make(spark, path, "legacy")
    files = sorted(path.rglob("*"))
    bad = frame(spark, 10_000, 2_000).withColumn("d", F.when(F.col("id") != 11_700, F.col("d")))
    with pytest.raises(Exception, match=r"column .d., row .*null would come back as 0"):
        bad.write.format("lance").mode("append").save(str(path))
    table = LanceTable.forPath(spark, str(path))
    with pytest.raises(Exception, match=r"column .s.a., row .*null would come back as 0"):
        table.update("id = 5", {"s": "named_struct('a', cast(null as int), 'b', s.b)"})
    with pytest.raises(UnsupportedFeatureError, match=r"the first column of data files"):
        table.updateColumns({"id": "id + 1"})
    assert sorted(path.rglob("*")) == files
    assert lance.dataset(str(path)).count_rows() == ROWS + 500


def test_values_of_old_files_are_kept(spark: Any, tmp_path: Path) -> None:
    # Empty strings and null numbers as pylance reads them back: null, and 0.
    path = str(tmp_path / "t")
    table = pa.table({"id": [1, 2, 3], "s": ["", None, "x"], "n": [None, 5, None]})
    lance.write_dataset(table, path, data_storage_version="0.1")
    before = lance.dataset(path).to_table().to_pylist()
    assert before[0] == {"id": 1, "s": None, "n": 0}
    target = LanceTable.forPath(spark, path)
    target.update("id < 3", {"id": "id + 10"})
    target.optimize()
    rows = lance.dataset(path).to_table().sort_by("id").to_pylist()
    assert [(row["s"], row["n"]) for row in rows] == [("x", 0), (None, 0), (None, 5)]

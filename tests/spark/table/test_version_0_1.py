"""Tables of version 0.1 through Spark: every change keeps the file version, and loses no value."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import lance_spark
from lance_spark.errors import UnsupportedFeatureError
from lance_spark.spark.table import LanceTable
from lance_spark.table.operations.columns import DataReplacement

ROWS = 3_000


def frame(spark: Any, first: int = 0, count: int = ROWS) -> Any:
    """Return rows of many types; only strings are null."""
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
    table.update_columns({"d": "d + 1"})


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
    table.replace_where(frame(spark, 50, 10), "id >= 50 and id < 100")


def optimize(table: LanceTable, spark: Any) -> None:
    table.delete("id % 10 = 3")
    table.optimize().executeCompaction()


def sort(table: LanceTable, spark: Any) -> None:
    table.optimize(z_order_by=["id", "d"])


def columns(table: LanceTable, spark: Any) -> None:
    table.add_columns({"twice": "id * 2"})
    table.drop_columns("even")
    table.alter_column("twice", data_type="int")


CHANGES = [update, update_columns, merge, replace_where, optimize, sort, columns]


@pytest.mark.sample(3)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes(spark: Any, tmp_path: Path, change: Callable[[LanceTable, Any], None]) -> None:
    results = []
    for version in ("0.1", "2.2"):
        path = tmp_path / version
        change(make(spark, path, version), spark)
        dataset = lance.dataset(str(path))
        dataset.validate()
        assert dataset.data_storage_version == version
        results.append(dataset.to_table().sort_by("id").to_pylist())
        rows = spark.read.format("lance").load(str(path)).where("d > 40 or name = 'name 7'")
        results.append(sorted(row.id for row in rows.select("id").collect()))
    assert results[:2] == results[2:]


def test_a_null_fails_the_job_and_changes_nothing(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    make(spark, path, "legacy")
    files = sorted(path.rglob("*"))
    bad = frame(spark, 10_000, 2_000).withColumn("d", F.when(F.col("id") != 11_700, F.col("d")))
    with pytest.raises(Exception, match=r"column .d., row .*null would be read as 0"):
        bad.write.format("lance").mode("append").save(str(path))
    table = LanceTable.forPath(spark, str(path))
    with pytest.raises(Exception, match=r"column .s.a., row .*null would be read as 0"):
        table.update("id = 5", {"s": "named_struct('a', cast(null as int), 'b', s.b)"})
    with pytest.raises(UnsupportedFeatureError, match=r"the first column of data files"):
        table.update_columns({"id": "id + 1"})
    assert sorted(path.rglob("*")) == files
    assert lance.dataset(str(path)).count_rows() == ROWS + 500


def test_values_of_old_files_are_kept(spark: Any, tmp_path: Path) -> None:
    # pylance reads empty strings as null, and null numbers as 0.
    path = str(tmp_path / "t")
    table = pa.table({"id": [1, 2, 3], "s": ["", None, "x"], "n": [None, 5, None]})
    lance.write_dataset(table, path, data_storage_version="0.1")
    before = lance.dataset(path).to_table().to_pylist()
    assert before[0] == {"id": 1, "s": None, "n": 0}
    target = LanceTable.forPath(spark, path)
    target.update("id < 3", {"id": "id + 10"})
    target.optimize().executeCompaction()
    rows = lance.dataset(path).to_table().sort_by("id").to_pylist()
    assert [(row["s"], row["n"]) for row in rows] == [("x", 0), (None, 0), (None, 5)]


def stream(spark: Any, source: Path, table: Path, checkpoint: Path, **options: str) -> None:
    """Write each Parquet file of a folder as a batch of a stream."""
    frame = spark.readStream.schema("id bigint, name string, d decimal(20, 2)")
    frame = frame.option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = frame.writeStream.format("lance").option("checkpointLocation", str(checkpoint))
    query = writer.options(**options).trigger(availableNow=True).start(str(table))
    try:
        assert query.awaitTermination(300)
    finally:
        query.stop()


@pytest.mark.sample(3)
@pytest.mark.parametrize("existing", [False, True])
def test_streams(spark: Any, tmp_path: Path, existing: bool) -> None:
    source, table, checkpoint = tmp_path / "s", tmp_path / "t", tmp_path / "c"
    source.mkdir()
    batches = [
        frame(spark, first, 700).select("id", "name", "d").toArrow() for first in (0, 700, 1400)
    ]
    for number, rows in enumerate(batches):
        pq.write_table(rows, source / f"{number}.parquet")
    # pylance panics on decimals that Spark's Arrow stream has not aligned.
    batches = [pq.read_table(source / f"{number}.parquet") for number in range(3)]
    if existing:
        # An old table keeps its file version if no write names a version.
        lance.write_dataset(batches[0], str(table), data_storage_version="0.1")
        stream(spark, source, table, checkpoint)
    else:
        stream(spark, source, table, checkpoint, data_storage_version="0.1")
    theirs = lance.dataset(str(table))
    theirs.validate()
    assert theirs.data_storage_version == "0.1"
    expected = pa.concat_tables([*batches[: int(existing)], *batches]).sort_by("id")
    assert theirs.to_table().sort_by("id").to_pylist() == expected.to_pylist()
    # A batch with a null that would be read as 0 stops the stream, also after a restart.
    before, versions = sorted((table / "data").iterdir()), len(theirs.versions())
    bad = batches[0].set_column(2, "d", pa.nulls(700, pa.decimal128(20, 2)))
    pq.write_table(bad, source / "bad.parquet")
    for _ in range(2):
        with pytest.raises(Exception, match=r"column .d., row 0 .*null would be read as 0"):
            stream(spark, source, table, checkpoint)
    assert sorted((table / "data").iterdir()) == before
    assert len(lance.dataset(str(table)).versions()) == versions


KEY = {"lance-schema:unenforced-primary-key": "true"}


def test_upsert(spark: Any, tmp_path: Path) -> None:
    results = []
    for version in ("0.1", "2.2"):
        path = str(tmp_path / version)
        schema = pa.schema(
            [pa.field("id", pa.int64(), False, KEY), ("name", pa.string()), ("n", pa.int32())]
        )
        rows = pa.table({"id": range(3_000), "name": ["old"] * 3_000, "n": range(3_000)}, schema)
        lance.write_dataset(rows, path, data_storage_version=version, max_rows_per_file=1_100)
        source = spark.range(2_500, 3_500).selectExpr(
            "id", "if(id % 3 = 0, null, 'new') AS name", "cast(-id as int) AS n"
        )
        result = LanceTable.forPath(spark, path).upsert(source)
        assert (result.num_updated_rows, result.num_inserted_rows) == (500, 500)
        dataset = lance.dataset(path)
        dataset.validate()
        assert dataset.data_storage_version == version
        results.append(dataset.to_table().sort_by("id").to_pylist())
    assert results[0] == results[1]


def test_overwrites(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path)
    rows = frame(spark, 0, 100).select("id", "name")
    nulls = spark.sql("SELECT cast(null AS bigint) AS id, 'x' AS name")

    def overwrite(source: Any, **options: str) -> str:
        source.write.format("lance").options(**options).mode("overwrite").save(path)
        return str(lance.dataset(path).data_storage_version)

    assert overwrite(rows, data_storage_version="0.1") == "0.1"
    # As in pylance, an overwrite that names no version keeps the file version of the table.
    expected = lance.write_dataset(
        pa.table({"id": [1]}), str(tmp_path / "model"), data_storage_version="0.1"
    )
    expected = lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "model"), mode="overwrite")
    assert overwrite(rows) == expected.data_storage_version
    assert overwrite(nulls, data_storage_version="2.1") == "2.1"
    with pytest.raises(Exception, match=r"column .id., row 0 .*null would be read as 0"):
        overwrite(nulls, data_storage_version="legacy")
    assert lance.dataset(path).to_table()["id"].to_pylist() == [None]
    assert overwrite(rows, data_storage_version="legacy") == "0.1"


def test_a_first_column_alone_is_not_replaced(tmp_path: Path) -> None:
    # pylance misreads a file of version 0.1 whose first column was replaced by another file.
    rows = pa.table({"a": range(10), "b": range(10)})
    ours = lance_spark.write_dataset(rows, str(tmp_path), data_storage_version="0.1")
    (fragment,) = ours.fragments
    lance_spark.write_dataset(rows.select(["a"]), str(tmp_path / "x"), data_storage_version="0.1")
    (file,) = lance_spark.open_dataset(str(tmp_path / "x")).fragments[0].files
    shutil.copy(tmp_path / "x" / "data" / file.path, tmp_path / "data" / file.path)
    change = DataReplacement(((fragment.id, file),))
    with pytest.raises(UnsupportedFeatureError, match="first column") as caught:
        lance_spark.Dataset.commit(ours, change, ours.version)
    assert str(tmp_path) in str(caught.value)
    assert lance.dataset(str(tmp_path)).to_table() == rows

"""All save modes of `df.write.format("lance")` with the Java classes. Spark over Parquet decides what
a mode means; pylance reads the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from tests.support.spark.messages import refusal

MODES = [None, "error", "errorifexists", "ignore", "append", "overwrite"]


@pytest.fixture(scope="module", autouse=True)
def _enabled(spark: Any) -> None:
    lance_spark.enable(spark, "modes")


def save(frame: Any, path: Path, mode: str | None, source: str, **options: str) -> str:
    """Write a frame, and return the condition of the error, or an empty text."""
    from pyspark.errors import AnalysisException

    writer = frame.write.format(source).options(**options)
    try:
        (writer if mode is None else writer.mode(mode)).save(str(path))
    except AnalysisException as error:
        return f"{error.getCondition()}: {str(path) in str(error)}"
    return ""


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", MODES)
def test_modes_mean_what_they_mean_for_parquet(
    spark: Any, tmp_path: Path, mode: str | None
) -> None:
    results = {}
    for source in ("parquet", "lance"):
        path = tmp_path / source
        results[source] = [
            save(spark.range(3), path, mode, source),
            save(spark.range(3, 5), path, mode, source),
            sorted(row.id for row in spark.read.format(source).load(str(path)).collect()),
        ]
    assert results["lance"] == results["parquet"]
    versions = lance.dataset(str(tmp_path / "lance")).version
    assert versions == (2 if mode in ("append", "overwrite") else 1)


def test_options_reach_the_writer_as_they_were_given(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = spark.sql("SELECT array(1f, 2f) AS Vec, 1L AS id")
    writer = frame.write.format("LANCE").option("Vec.arrow.fixed-size-list.size", 2)
    writer.option("enable_stable_row_ids", True).option("commit_message", "A").save(path)
    table = lance.dataset(path)
    assert table.schema.field("Vec").type == pa.list_(pa.float32(), 2)
    assert table.has_stable_row_ids
    for mode, word in [("errorifexists", "versoin"), ("append", "versoin"), ("ignore", "versoin")]:
        wrong = frame.write.format("lance").mode(mode).option("versoin", 1)
        assert word in refusal(lambda wrong=wrong: wrong.save(str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


def test_types_that_only_this_source_writes(spark: Any, tmp_path: Path) -> None:
    spark.sql("SELECT INTERVAL '1' DAY AS d").write.format("lance").save(str(tmp_path / "t"))
    assert lance.dataset(str(tmp_path / "t")).schema.field("d").type == pa.duration("us")
    refused = spark.sql("SELECT INTERVAL '1' YEAR AS v").write.format("lance")
    assert "column v: interval year" in refusal(lambda: refused.save(str(tmp_path / "v")))


def test_partitions_are_refused_in_all_modes(spark: Any, tmp_path: Path) -> None:
    for mode in MODES[1:]:
        writer = spark.range(3).write.format("lance").mode(mode).partitionBy("id")
        with pytest.raises(Exception, match="have no partitions"):
            writer.save(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("mode", ["errorifexists", "ignore"])
def test_another_client_creates_the_table_meanwhile(spark: Any, tmp_path: Path, mode: str) -> None:
    path = str(tmp_path / "t")

    def create(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from lance_spark import write_dataset

        for batch in batches:
            write_dataset(pa.table({"id": [77]}), path, mode="create")
            yield batch

    frame = spark.range(1, numPartitions=1).mapInArrow(create, "id bigint")
    outcome = save(frame, Path(path), mode, "lance")
    assert outcome == ("PATH_ALREADY_EXISTS: True" if mode == "errorifexists" else "")
    table = lance.dataset(path)
    assert table.to_table().to_pydict() == {"id": [77]}
    # The files of the other write are gone.
    assert len(list(Path(path, "data").iterdir())) == 1


def test_views_take_inserts(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.range(1).write.format("lance").save(path)
    reader = spark.read.format("lance")
    reader.load(path).createOrReplaceTempView("modes_a")
    reader.schema("id bigint").load(path).createOrReplaceTempView("modes_b")
    using = f"USING lance OPTIONS (path '{path}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW modes_c {using}")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW modes_d (id BIGINT) {using}")
    for number, view in enumerate(["modes_a", "modes_b", "modes_c", "modes_d"], 1):
        spark.sql(f"INSERT INTO {view} VALUES ({number}L)")
        assert spark.table(view).count() == number + 1
        spark.catalog.dropTempView(view)
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [0, 1, 2, 3, 4]


def test_a_write_reads_the_table_that_it_overwrites(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.range(4).write.format("lance").save(path)
    doubled = spark.read.format("lance").load(path).selectExpr("id * 2 AS id")
    doubled.write.format("lance").mode("overwrite").save(path)
    assert sorted(lance.dataset(path).to_table()["id"].to_pylist()) == [0, 2, 4, 6]


def test_streams_write_and_read(spark: Any, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema("id bigint").parquet(str(tmp_path / "source"))
    for name in ("t", "u"):
        writer = stream.writeStream.format("lance").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint_{name}"))
        assert writer.start(str(tmp_path / name)).awaitTermination(60)
        assert lance.dataset(str(tmp_path / name)).count_rows() == 3
        stream = spark.readStream.format("lance").load(str(tmp_path / name))

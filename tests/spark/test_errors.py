"""Errors in Spark name the path of the table. Errors about unsupported calls name a way that
works.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

from lance_spark.errors import CorruptTableError
from lance_spark.spark.jvm.classes import loaded_extension
from lance_spark.spark.table import LanceTable
from tests.support.spark.messages import refusal
from tests.support.tables.damaged import rewrite_manifest
from tests.support.tables.pylance_written import new_table
from tests.table.test_paths_in_errors import Damage, data_files, in_manifest, set_rows, set_type

Write = Callable[..., None]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (in_manifest(set_rows), "the file has 3 rows"),
        (in_manifest(set_type), "'no_such_type' is unknown"),
        (lambda path: data_files(path)[0].unlink(), "file not found"),
    ],
)
def test_reads(spark: Any, tmp_path: Path, damage: Damage, message: str) -> None:
    new_table(tmp_path)
    damage(tmp_path)
    read = spark.read.format("lance")
    line = refusal(lambda: read.load(str(tmp_path)).where("length(word) > 1").collect())
    assert message in line
    assert str(tmp_path) in line


def test_writes(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = spark.sql("SELECT if(id = 1, null, id) AS n FROM range(3)")
    write = frame.write.format("lance").option("data_storage_version", "0.1").mode("append")
    line = refusal(lambda: write.save(path))
    assert "'n'" in line
    assert path in line


def test_changes(spark: Any, tmp_path: Path) -> None:
    new_table(tmp_path)
    rewrite_manifest(tmp_path, set_rows)
    with pytest.raises(CorruptTableError, match="the file has 3 rows") as caught:
        LanceTable.forPath(spark, str(tmp_path)).update("id < 2", {"word": "upper(word)"})
    assert str(tmp_path) in str(caught.value)
    assert lance.dataset(str(tmp_path)).version == 1


def test_streams_in_update_mode_are_refused_and_foreach_batch_works(
    spark: Any, tmp_path: Path
) -> None:
    path = str(tmp_path / "t.lance")
    source = str(tmp_path / "source")
    spark.range(10).write.parquet(source)
    stream = spark.readStream.schema("id bigint").parquet(source)
    options = {"path": path, "checkpointLocation": str(tmp_path / "refused")}
    writer = stream.writeStream.format("lance").outputMode("update")
    with pytest.raises(Exception, match="does not support Update mode"):
        writer.options(**options).start().awaitTermination(60)
    assert not Path(path).exists()

    def append(frame: Any, _: int) -> None:
        frame.write.format("lance").mode("append").save(path)

    writer = stream.writeStream.foreachBatch(append).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "taken")).start()
    assert query.awaitTermination(60)
    assert lance.dataset(path).count_rows() == 10


@pytest.mark.parametrize("mode", ["ignore", "error"])
def test_spark_refuses_modes_that_depend_on_the_existence_of_a_table(
    spark: Any, write: Write, tmp_path: Path, mode: str
) -> None:
    if loaded_extension(spark) is not None:
        pytest.skip("the session has the Java classes, which know all modes")
    with pytest.raises(Exception, match='"Append" or "Overwrite"'):
        write(spark.range(3), mode)
    assert not (tmp_path / "t.lance").exists()


def test_partitions_of_a_table_are_refused(spark: Any, tmp_path: Path) -> None:
    writer = spark.range(3).write.format("lance").mode("append").partitionBy("id")
    with pytest.raises(Exception, match="partitioning"):
        writer.save(str(tmp_path / "t.lance"))
    assert not (tmp_path / "t.lance").exists()

"""What the source does not do is refused, with the way that works instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

Write = Callable[..., None]


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
    with pytest.raises(Exception, match='"Append" or "Overwrite"'):
        write(spark.range(3), mode)
    assert not (tmp_path / "t.lance").exists()


def test_partitions_of_a_table_are_refused(spark: Any, tmp_path: Path) -> None:
    writer = spark.range(3).write.format("lance").mode("append").partitionBy("id")
    with pytest.raises(Exception, match="partitioning"):
        writer.save(str(tmp_path / "t.lance"))
    assert not (tmp_path / "t.lance").exists()

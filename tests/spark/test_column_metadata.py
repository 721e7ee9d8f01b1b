"""Metadata of columns through reads and writes of Spark, by path and by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from pyspark.sql import functions as F

from lance_spark import LanceTable, enable

METADATA = {
    "comment": "height",
    "unit": "m",
    # As Spark ML describes a column of labels.
    "ml_attr": {"type": "nominal", "vals": ["a", "b"]},
}


def test_writes_keep_the_metadata_of_columns(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(2).select(F.col("id").alias("k", metadata=METADATA), "id")
    rows.write.parquet(f"{tmp_path}/parquet")
    assert spark.read.parquet(f"{tmp_path}/parquet").schema["k"].metadata == METADATA
    path = f"{tmp_path}/t.lance"

    def written(name: str, of: str = path) -> Any:
        return spark.read.format("lance").load(of).schema[name].metadata

    rows.write.format("lance").mode("append").save(path)
    assert (lance.dataset(path).schema.field("k").metadata or {})[b"unit"] == b"m"
    spark.range(1).selectExpr("id AS k", "id").write.format("lance").mode("append").save(path)
    assert written("k") == METADATA
    more = spark.range(1).selectExpr("id AS k", "id", "id AS new")
    more = more.withMetadata("new", METADATA)
    more.write.format("lance").mode("append").option("mergeSchema", True).save(path)
    table = LanceTable.forPath(spark, path)
    table.add_columns({"computed": F.col("id").alias("computed", metadata=METADATA)})
    source = spark.range(1).withColumn("joined", F.lit(1)).withMetadata("joined", METADATA)
    table.add_columns_from(source, "id")
    source.withColumnRenamed("joined", "by_sql").createOrReplaceTempView("metadata_source")
    enable(spark)
    procedure = "CALL lance.system.add_columns_from"
    spark.sql(f"{procedure}(table => '{path}', source => 'metadata_source', key => array('id'))")
    for name in ("k", "new", "computed", "joined", "by_sql"):
        assert written(name) == METADATA
        assert table.toDF().schema[name].metadata == METADATA
    spark.read.format("lance").load(path).localCheckpoint().write.format("lance").mode(
        "overwrite"
    ).save(path)
    stream = spark.readStream.format("lance").load(path).writeStream.format("lance")
    stream.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start(
        f"{tmp_path}/stream.lance"
    ).awaitTermination()
    for name in ("k", "new", "computed"):
        assert written(name) == written(name, f"{tmp_path}/stream.lance") == METADATA


def test_copies_have_the_extension_types_and_metadata_of_other_clients(
    spark: Any, tmp_path: Path
) -> None:
    tensors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2, 3, 4], pa.float32()), 4)
    tensor = pa.fixed_shape_tensor(pa.float32(), (2, 2))
    schema = pa.schema(
        [
            pa.field("tensor", tensor, metadata={"scale": "2"}),
            pa.field("uuid", pa.uuid()),
            pa.field("uuids", pa.list_(pa.field("item", pa.uuid(), metadata={"of": "items"}))),
        ],
        {"huggingface": "{}"},
    )
    uuids = pa.array([b"0" * 16], pa.uuid())
    arrays = [
        pa.ExtensionArray.from_storage(tensor, tensors),
        uuids,
        pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), uuids).cast(schema.field(2).type),
    ]
    source = lance.write_dataset(pa.table(arrays, schema), f"{tmp_path}/t.lance")
    rows = spark.read.format("lance").load(source.uri)
    rows.write.format("lance").mode("append").save(f"{tmp_path}/c.lance")
    copy = lance.dataset(f"{tmp_path}/c.lance")
    assert copy.schema.equals(source.schema, check_metadata=True)
    assert copy.to_table() == source.to_table()
    rows.drop("tensor").write.format("lance").mode("append").save(f"{tmp_path}/part.lance")
    part = lance.dataset(f"{tmp_path}/part.lance").schema
    assert part.metadata == {b"huggingface": b"{}"}

"""Tables that builders make, as pylance reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from lance_spark.errors import (
    InvalidInputError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from lance_spark.spark.table import LanceTable


def test_a_table_with_everything(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    table = (
        LanceTable.create(spark)
        .location(path)
        .addColumn("id", "bigint", nullable=False, comment="who", primary_key=True)
        .addColumn("vector", "array<float>", vector_dimension=16)
        .addColumn("text", "string", large=True, compression="zstd", compression_level=3)
        .addColumn("image", "binary", blob=True, large=True)
        .addColumns(
            StructType().add("when", "timestamp").add("p", StructType().add("x", "integer"))
        )
        .property("enable_stable_row_ids", True)
        .property("data_storage_version", "2.1")
        .property("lance.auto_cleanup.interval", 20)
        .property("team", "search")
        .comment("everything")
        .execute()
    )
    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.version == 1
    assert dataset.count_rows() == 0
    schema = dataset.schema
    assert schema.names == ["id", "vector", "text", "image", "when", "p"]
    assert not schema.field("id").nullable
    assert schema.field("id").metadata == {
        b"comment": b"who",
        b"lance-schema:unenforced-primary-key": b"true",
    }
    assert schema.field("vector").type == pa.list_(pa.float32(), 16)
    assert schema.field("text").type == pa.large_string()
    assert schema.field("text").metadata[b"lance-encoding:compression"] == b"zstd"
    assert schema.field("text").metadata[b"lance-encoding:compression-level"] == b"3"
    assert schema.field("image").metadata[b"lance-encoding:blob"] == b"true"
    assert schema.field("when").type == pa.timestamp("us", "UTC")
    assert dataset.data_storage_version == "2.1"
    assert dataset.has_stable_row_ids
    assert dataset.config()["lance.auto_cleanup.interval"] == "20"
    assert dataset.metadata == {"team": "search", "comment": "everything"}
    assert isinstance(table, LanceTable)
    frame = spark.createDataFrame(
        [(1, [0.5] * 16, "a")], "id bigint, vector array<float>, text string"
    )
    frame.write.format("lance").mode("append").save(path)
    assert [row.text for row in table.toDF().collect()] == ["a"]


def test_modes_with_and_without_an_existing_table(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")

    def builder(create: Any, column: str) -> Any:
        return create(spark).location(path).addColumn(column, "int")

    with pytest.raises(TableNotFoundError):
        builder(LanceTable.replace, "a").execute()
    builder(LanceTable.createIfNotExists, "a").execute()
    builder(LanceTable.createIfNotExists, "b").execute()
    assert (lance.dataset(path).version, lance.dataset(path).schema.names) == (1, ["a"])
    with pytest.raises(TableExistsError):
        builder(LanceTable.create, "b").execute()
    builder(LanceTable.replace, "b").execute()
    builder(LanceTable.createOrReplace, "c").execute()
    assert (lance.dataset(path).version, lance.dataset(path).schema.names) == (3, ["c"])
    assert lance.dataset(path, version=2).schema.names == ["b"]
    assert LanceTable.isLanceTable(spark, path)


def test_wrong_arguments_create_no_table(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    with pytest.raises(InvalidInputError, match="location"):
        LanceTable.create(spark).addColumn("a", "int").execute()
    with pytest.raises(InvalidInputError, match="at least one column"):
        LanceTable.create(spark).location(path).execute()
    with pytest.raises(InvalidInputError, match=r"'a': 'no type' is not a type: .+"):
        LanceTable.create(spark).addColumn("a", "no type")
    with pytest.raises(UnsupportedError, match="generated"):
        LanceTable.create(spark).addColumn("a", "int", generatedAlwaysAs="b + 1")
    assert not Path(path).exists()

"""Hugging Face `datasets`: `Dataset` and `IterableDataset` are written, and tables are read as both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lance_spark

datasets = pytest.importorskip("datasets")

from lance_spark.loaders.huggingface import to_iterable_dataset  # noqa: E402

EXAMPLES = {"id": list(range(50)), "text": [f"text {n}" for n in range(50)], "label": [0, 1] * 25}
FEATURES = {
    "id": datasets.Value("int64"),
    "text": datasets.Value("string"),
    "label": datasets.ClassLabel(names=["no", "yes"]),
}


def examples() -> Any:
    return datasets.Dataset.from_dict(EXAMPLES, features=datasets.Features(FEATURES))


def test_datasets_are_written(spark: Any, folder: Path) -> None:
    """`lance_spark.write_dataset(data, PATH)` writes a `Dataset` with the rows that it selects, and
    SQL merges into the table.
    """
    chosen = examples().filter(lambda example: example["id"] % 2 == 0).shuffle(seed=1)
    dataset = lance_spark.write_dataset(chosen, folder / "lake" / "written.lance")
    assert dataset.to_table()["id"].to_pylist() == chosen["id"][:]
    spark.sql(
        "MERGE INTO lance.written t USING (SELECT id, 'new' AS text FROM range(48, 52)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET text = s.text "
        "WHEN NOT MATCHED THEN INSERT (id, text) VALUES (s.id, s.text)"
    )
    found = spark.sql("SELECT count(*), count_if(text = 'new') FROM lance.written").head()
    assert tuple(found) == (28, 4)


def test_streams_are_written(folder: Path) -> None:
    """An `IterableDataset` is written as it is read, also after `map`, if its features are known."""
    stream = examples().to_iterable_dataset(num_shards=2)
    dataset = lance_spark.write_dataset(stream, folder / "stream.lance")
    assert dataset.count_rows() == 50
    assert dataset.to_table()["text"].to_pylist() == EXAMPLES["text"]


def test_tables_are_streams(spark: Any, folder: Path) -> None:
    """`to_iterable_dataset(PATH, columns, filter)` of `lance_spark.loaders.huggingface` streams a
    table of Spark; it shuffles, shards and continues.
    """
    frame = spark.range(100).selectExpr("id", "concat('text ', id) AS text")
    frame.repartition(3).writeTo("lance.streamed").create()
    spark.sql("DELETE FROM lance.streamed WHERE id = 7")
    path = folder / "lake" / "streamed.lance"
    stream = to_iterable_dataset(path, ["text", "id"], "id < 50")
    found = list(stream)
    assert sorted(row["id"] for row in found) == [n for n in range(50) if n != 7]
    assert {row["text"] for row in found} == {f"text {n}" for n in range(50) if n != 7}
    shuffled = to_iterable_dataset(path).shuffle(seed=3, buffer_size=20)
    assert len(list(shuffled)) == 99


def test_tables_are_datasets(spark: Any, folder: Path) -> None:
    """`datasets.Dataset(open_dataset(PATH).to_table())` has all rows of a table in memory."""
    spark.range(20).selectExpr("id", "id % 2 AS label").writeTo("lance.whole").create()
    table = lance_spark.open_dataset(folder / "lake" / "whole.lance").to_table()
    data = datasets.Dataset(table)
    assert sorted(data["id"][:]) == list(range(20))
    assert data.filter(lambda example: example["label"] == 1).num_rows == 10


def test_features_come_back(folder: Path) -> None:
    """`datasets.Dataset(open_dataset(PATH).to_table())` has the features of the data that was
    written, such as `ClassLabel`.
    """
    dataset = lance_spark.write_dataset(examples(), folder / "features.lance")
    assert datasets.Dataset(dataset.to_table()).features == examples().features

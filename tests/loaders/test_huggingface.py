"""A table as a stream of Hugging Face's datasets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError

datasets = pytest.importorskip("datasets")

from datasets.distributed import split_dataset_by_node  # noqa: E402

from lance_spark.loaders.huggingface import to_iterable_dataset  # noqa: E402


@pytest.fixture
def dataset(tmp_path: Path) -> lance_spark.Dataset:
    rows = pa.table({"id": list(range(100)), "text": [f"t{i}" for i in range(100)]})
    return lance_spark.write_dataset(rows, tmp_path / "t", max_rows_per_file=30).delete("id = 5")


def test_examples(dataset: lance_spark.Dataset) -> None:
    stream = to_iterable_dataset(dataset, ["text", "id"], "id < 50")
    assert list(stream) == [{"text": f"t{i}", "id": i} for i in range(50) if i != 5]
    assert stream.features == datasets.Features(
        {"text": datasets.Value("string"), "id": datasets.Value("int64")}
    )


def test_shards_and_order(dataset: lance_spark.Dataset) -> None:
    stream = to_iterable_dataset(dataset.uri)
    assert stream.num_shards == 4
    parts = [[row["id"] for row in split_dataset_by_node(stream, n, 2)] for n in range(2)]
    assert sorted(parts[0] + parts[1]) == [i for i in range(100) if i != 5]
    shuffled = [row["id"] for row in stream.shuffle(seed=3, buffer_size=20)]
    assert sorted(shuffled) == sorted(parts[0] + parts[1]) != shuffled


def test_a_state_continues(dataset: lance_spark.Dataset) -> None:
    stream = to_iterable_dataset(dataset)
    iterator = iter(stream)
    before = [next(iterator)["id"] for _ in range(42)]
    state = stream.state_dict()
    resumed = to_iterable_dataset(dataset)
    resumed.load_state_dict(state)
    assert before + [row["id"] for row in resumed] == [i for i in range(100) if i != 5]


def test_arguments_are_checked(dataset: lance_spark.Dataset) -> None:
    with pytest.raises(InvalidInputError, match="batch_size"):
        to_iterable_dataset(dataset, batch_size=0)
    with pytest.raises(InvalidInputError):
        to_iterable_dataset(dataset, ["nothing"])


def test_datasets_are_written(tmp_path: Path) -> None:
    """With the rows that they select, in their order; other clients find their features."""
    rows = datasets.Dataset.from_dict({"id": list(range(2500)), "text": [None, "a"] * 1250})
    chosen = rows.filter(lambda row: row["id"] % 2).sort("id", reverse=True)
    for data in (chosen, chosen.to_iterable_dataset()):
        table = lance_spark.write_dataset(data, tmp_path / "t", mode="overwrite").to_table()
        assert table["id"].to_pylist() == list(range(2499, 0, -2))
        assert set(table["text"].to_pylist()) == {"a"}
        assert datasets.Features.from_arrow_schema(table.schema) == rows.features

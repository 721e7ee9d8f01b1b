"""`Dataset.prewarm_index`: the files of an index are not needed afterwards."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lance_spark import Dataset, open_dataset, write_dataset
from lance_spark.errors import InvalidInputError
from lance_spark.indexes.cache import CACHE

ROWS = 3000


def made(path: Path) -> Dataset:
    vectors = np.random.default_rng(5).random((ROWS, 8), np.float32)
    array = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8)
    words = [f"word{i % 7} other{i % 50}" for i in range(ROWS)]
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "text": words, "vector": array})
    return write_dataset(rows, path)


def find_id(dataset: Dataset) -> Any:
    return dataset.to_table(["id"], filter="id in (17, 2900)", with_row_id=True)


def find_text(dataset: Dataset) -> Any:
    return dataset.to_table(["id"], full_text_query="word3", limit=20)


def find_vector(dataset: Dataset) -> Any:
    return dataset.to_table(["id"], nearest={"column": "vector", "q": [0.5] * 8, "k": 5})


def find_zone(dataset: Dataset) -> Any:
    return dataset.to_table(["id"], filter="id > 2990")


@pytest.mark.parametrize(
    ("column", "kind", "options", "find"),
    [
        ("id", "BTREE", {}, find_id),
        ("id", "ZONEMAP", {}, find_zone),
        ("id", "BLOOMFILTER", {}, find_id),
        ("text", "INVERTED", {}, find_text),
        ("vector", "IVF_PQ", {"num_partitions": 4, "num_sub_vectors": 4}, find_vector),
        ("vector", "IVF_HNSW_SQ", {"num_partitions": 4}, find_vector),
    ],
)
def test_the_index_is_searched_without_its_files(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    column: str,
    kind: str,
    options: dict[str, Any],
    find: Any,
) -> None:
    dataset = made(tmp_path / "t.lance")
    create = dataset.create_index if column == "vector" else dataset.create_scalar_index
    dataset = create(column, kind, name="own", **options)
    expected = find(dataset)
    CACHE.clear()
    dataset = open_dataset(tmp_path / "t.lance")
    before = dataset.session().index_cache_size_bytes()
    dataset.prewarm_index("own")
    assert dataset.session().index_cache_size_bytes() > before
    CACHE.open_files.clear()
    shutil.rmtree(tmp_path / "t.lance" / "_indices")
    with caplog.at_level(logging.WARNING):
        assert find(dataset).equals(expected)
    assert not caplog.records


def test_segments_are_chosen(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t.lance").create_scalar_index("id", "BTREE", name="own")
    dataset.insert(dataset.to_table().slice(0, 10))
    dataset = dataset.checkout_latest().optimize_indices(num_indices_to_merge=0)
    first, second = (segment.uuid for segment in dataset.describe_indices()[0].segments)
    CACHE.clear()
    dataset.prewarm_index("own", index_segments=[first])
    alone = dataset.session().index_cache_size_bytes()
    dataset.prewarm_index("own", index_segments=[second])
    assert dataset.session().index_cache_size_bytes() > alone > 0


def test_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t.lance")
    with pytest.raises(InvalidInputError, match="index 'own' not found"):
        dataset.prewarm_index("own")

"""`Dataset.index_recall`, compared with what pylance's searches find."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset.recall import plan_recall
from lance_spark.errors import InvalidInputError


def written(path: Path, vectors: np.ndarray) -> lance_spark.Dataset:
    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
    table = pa.table({"id": range(len(vectors)), "vector": column})
    return lance_spark.write_dataset(table, str(path))


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_recall_is_that_of_sets(tmp_path: Path, metric: str) -> None:
    vectors = np.random.default_rng(1).normal(size=(2000, 16)).astype(np.float32)
    dataset = written(tmp_path / "t", vectors).create_index(
        "vector", "IVF_PQ", metric=metric, num_partitions=8, num_sub_vectors=4
    )
    plan = plan_recall(dataset, "vector_idx", 30, 10, seed=5)
    other = lance.dataset(str(tmp_path / "t"))
    hits = total = 0
    for own, query in zip(plan.ids, plan.vectors, strict=True):
        sets = []
        for options in ({"nprobes": 2}, {"use_index": False}):
            nearest = {"column": "vector", "q": query, "k": 11, "metric": metric, **options}
            rows = other.to_table(["id"], nearest=nearest)["id"].to_pylist()
            sets.append([row for row in rows if row != own])
        exact = sets[1][:10]
        hits += len(set(sets[0]) & set(exact))
        total += len(exact)
    measured = dataset.index_recall("vector_idx", 30, 10, seed=5, nprobes=2)
    assert measured.num_queries == 30
    assert 0.1 < measured.recall < 0.95
    assert measured.recall == pytest.approx(hits / total, abs=0.01)
    assert measured.lowest <= measured.recall


def test_other_rows_of_equal_distances_count(tmp_path: Path) -> None:
    dataset = written(tmp_path / "t", np.ones((500, 8), np.float32))
    dataset = dataset.create_index("vector", "IVF_FLAT", metric="l2", num_partitions=2)
    assert dataset.index_recall("vector_idx", 10, 5).recall == 1


def test_rows_without_a_distance_are_no_queries(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32)
    vectors[:10] = np.nan
    vectors[10:20] = 0
    dataset = written(tmp_path / "t", vectors)
    dataset = dataset.create_index("vector", "IVF_FLAT", metric="cosine", num_partitions=1)
    result = dataset.index_recall("vector_idx", 100, 30)
    assert (result.num_queries, result.recall, result.lowest) == (20, 1, 1)


def test_a_column_of_a_struct(tmp_path: Path) -> None:
    vectors = np.random.default_rng(2).normal(size=(300, 8)).astype(np.float32)
    dataset = written(tmp_path / "flat", vectors)
    table = dataset.to_table(["id", "vector"])
    structs = pa.StructArray.from_arrays([table["vector"].combine_chunks()], names=["vector"])
    nested = lance_spark.write_dataset(
        pa.table({"id": table["id"], "s": structs}), str(tmp_path / "nested")
    )
    nested = nested.create_index("s.vector", "IVF_FLAT", name="own", num_partitions=4)
    assert nested.index_recall("own", 20, 5, nprobes=4).recall == 1


def test_the_index_is_the_one_that_is_searched(tmp_path: Path) -> None:
    vectors = np.random.default_rng(3).normal(size=(400, 8)).astype(np.float32)
    dataset = written(tmp_path / "t", vectors)
    dataset = dataset.create_index("vector", "IVF_FLAT", name="first", num_partitions=2)
    dataset = dataset.create_index("vector", "IVF_FLAT", name="second", num_partitions=2)
    dataset = dataset.create_index(
        "vector", "IVF_FLAT", name="other", num_partitions=2, metric="dot"
    )
    for name in ("first", "other"):
        assert dataset.index_recall(name, 20, 5, nprobes=2).recall == 1
    with pytest.raises(InvalidInputError, match="'second' is not searched: index 'first'"):
        dataset.index_recall("second")


def test_wrong_arguments(tmp_path: Path) -> None:
    dataset = written(tmp_path / "t", np.ones((5, 8), np.float32))
    dataset = dataset.create_scalar_index("id", "BTREE")
    with pytest.raises(InvalidInputError, match="'absent' not found; the indexes are id_idx"):
        dataset.index_recall("absent")
    with pytest.raises(InvalidInputError, match="not an index of vectors"):
        dataset.index_recall("id_idx")
    with pytest.raises(InvalidInputError, match="sample"):
        dataset.index_recall("id_idx", 0)


def test_numbers_beyond_the_table(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(300, 8)).astype(np.float32)
    dataset = written(tmp_path / "t", vectors)
    dataset = dataset.create_index("vector", "IVF_FLAT", metric="l2", num_partitions=1)
    result = dataset.index_recall("vector_idx", 10**9, 10**9)
    assert (result.k, result.num_queries, result.recall) == (299, 300, 1)

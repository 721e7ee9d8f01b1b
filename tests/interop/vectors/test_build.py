"""Vector indexes that are built here: pylance searches them as well as its own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.indexes.vectors import build
from tests.support.cells import cells, every_other

ROWS, DIMENSION, QUERIES, K = 2500, 16, 10, 10
TYPES = {
    "IVF_FLAT": {},
    "IVF_SQ": {},
    "IVF_PQ": {"num_sub_vectors": 8},
    "IVF_RQ": {},
    "IVF_HNSW_FLAT": {},
    "IVF_HNSW_SQ": {},
    "IVF_HNSW_PQ": {"num_sub_vectors": 8},
}


def vectors(rows: int = ROWS, seed: int = 0, dimension: int = DIMENSION) -> np.ndarray:
    centers = np.random.default_rng(9).normal(size=(30, dimension)) * 1.5
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(rows, dimension))
    return (centers[rng.integers(0, 30, rows)] + noise).astype(np.float32)


def lists(matrix: np.ndarray, dtype: pa.DataType | None = None) -> pa.FixedSizeListArray:
    values = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(
        values if dtype is None else values.cast(dtype), matrix.shape[1]
    )


def table(matrix: np.ndarray, first: int = 0, dtype: pa.DataType | None = None) -> pa.Table:
    ids = np.arange(first, first + len(matrix))
    return pa.table({"v": lists(matrix, dtype), "id": ids})


def nearest_ids(path: Path, query: Any, **options: Any) -> list[int]:
    nearest = {"column": "v", "q": query, "k": K, **options}
    result = lance.dataset(path).to_table(["id", "_distance"], nearest=nearest)
    ids: list[int] = result["id"].to_pylist()
    return ids


def recall(
    path: Path, metric: str = "l2", queries: np.ndarray | None = None, **options: Any
) -> float:
    """Return the part of the nearest rows that pylance finds by an index."""
    queries = vectors(QUERIES, seed=77) if queries is None else queries
    hits = 0
    for query in queries:
        exact = nearest_ids(path, query, metric=metric, use_index=False)
        hits += len(set(exact) & set(nearest_ids(path, query, metric=metric, **options)))
    return hits / (K * len(queries))


def assert_used(path: Path, metric: str = "l2", query: Any = None, segments: int = 1) -> None:
    query = vectors(1, seed=77)[0] if query is None else query
    nearest = {"column": "v", "q": query, "k": K, "metric": metric}
    plan = lance.dataset(path).scanner(nearest=nearest).explain_plan()
    assert "ANNSubIndex" in plan
    assert len(lance.dataset(path).stats.index_stats("v_idx")["indices"]) == segments


def assert_valid(dataset: Dataset, name: str = "v_idx") -> None:
    result = dataset.check_index(name)
    assert result.is_valid, result


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("index_type", "metric"), every_other(itertools.product(TYPES, ["l2", "cosine", "dot"]), 0)
)
def test_recall_is_that_of_pylance(tmp_path: Path, index_type: str, metric: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    options = {"metric": metric, "num_partitions": 8, **TYPES[index_type]}
    for path in (ours, theirs):
        lance.write_dataset(table(vectors()), path, max_rows_per_file=900)
    dataset = lance_spark.open_dataset(str(ours)).create_index("v", index_type, **options)
    lance.dataset(theirs).create_index("v", index_type, **options)
    assert_used(ours, metric)
    assert_valid(dataset)
    (described,) = dataset.describe_indices()
    assert (described.index_type, described.num_rows_indexed) == (index_type, ROWS)
    stats = [lance.dataset(path).stats.index_stats("v_idx") for path in (ours, theirs)]
    for key in ("index_type", "num_indexed_rows", "num_unindexed_rows"):
        assert stats[0][key] == stats[1][key]
    mine, other = (item["indices"][0] for item in stats)
    reported = dataset.index_statistics("v_idx")
    for key in ("num_indices", "num_indexed_rows", "num_unindexed_fragments"):
        assert reported[key] == stats[0][key]
    (part,) = reported["indices"]
    for key in ("index_type", "metric_type", "num_partitions", "partitions", "loss", "uuid"):
        assert part[key] == mine[key]
    assert part["sub_index"].items() >= {"index_type": index_type.rpartition("_")[2]}.items()
    assert mine["metric_type"] == metric
    assert len(mine["partitions"]) == len(other["partitions"]) == 8
    assert sum(part["size"] for part in mine["partitions"]) == ROWS
    assert mine["loss"] == pytest.approx(other["loss"], rel=0.1)
    if "HNSW" not in index_type:
        # The search of a graph of few rows is a matter of luck, as are few partitions.
        assert recall(ours, metric, nprobes=8) > recall(theirs, metric, nprobes=8) - 0.1
    assert recall(ours, metric, nprobes=8, refine_factor=10, ef=200) > 0.97


@pytest.mark.parametrize(
    ("dtype", "index_type", "version"),
    cells([pa.float16(), pa.float64()], ["IVF_FLAT", "IVF_PQ"], ["2.0", "2.1", "2.2"]),
)
def test_floats_and_versions(
    tmp_path: Path, index_type: str, dtype: pa.DataType, version: str
) -> None:
    matrix = vectors(1000).astype(dtype.to_pandas_dtype())
    lance.write_dataset(table(matrix), tmp_path, data_storage_version=version)
    dataset = lance_spark.open_dataset(str(tmp_path))
    dataset = dataset.create_index("v", index_type, num_partitions=3, **TYPES[index_type])
    query = matrix[5]
    assert_used(tmp_path, query=query)
    assert_valid(dataset)
    assert recall(tmp_path, queries=matrix[:9], nprobes=3, refine_factor=20) == 1


@pytest.mark.parametrize("index_type", ["IVF_FLAT", "IVF_HNSW_FLAT"])
def test_bits(tmp_path: Path, index_type: str) -> None:
    rng = np.random.default_rng(1)
    matrix = rng.integers(0, 256, (1000, 16), dtype=np.uint8)
    lance.write_dataset(table(matrix), tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    with pytest.raises(UnsupportedTypeError, match="hamming is the metric of uint8 only"):
        dataset.create_index("v", index_type)
    dataset = dataset.create_index("v", index_type, metric="hamming", num_partitions=4)
    assert_used(tmp_path, "hamming", matrix[0])
    assert_valid(dataset)
    for query in matrix[:5]:
        exact = lance.dataset(tmp_path).to_table(
            nearest={"column": "v", "q": query, "k": K, "use_index": False, "metric": "hamming"}
        )
        by_index = lance.dataset(tmp_path).to_table(
            nearest={
                "column": "v",
                "q": query,
                "k": K,
                "nprobes": 4,
                "metric": "hamming",
                "ef": 500,
            }
        )
        assert by_index["_distance"].equals(exact["_distance"])


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_rows_without_a_vector_are_left_out(tmp_path: Path, metric: str) -> None:
    matrix = vectors(1000)
    matrix[0, 3], matrix[1, 2], matrix[3, 1], matrix[2] = np.nan, np.inf, -np.inf, 0
    mask = np.zeros(matrix.size, np.bool_)
    mask[70] = True
    items = pa.array(matrix.reshape(-1), mask=mask)
    column = pa.FixedSizeListArray.from_arrays(
        items, DIMENSION, mask=pa.array(np.arange(1000) > 990)
    )
    lance.write_dataset(pa.table({"v": column}), tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    for index_type in ("IVF_FLAT", "IVF_PQ"):
        options: dict[str, Any] = {"num_partitions": 3, "metric": metric, **TYPES[index_type]}
        dataset = dataset.create_index("v", index_type, replace=True, **options)
        assert_valid(dataset)
        sizes = []
        for _ in range(2):
            stats = lance.dataset(tmp_path).stats.index_stats("v_idx")["indices"][0]
            sizes.append(sum(part["size"] for part in stats["partitions"]))
            lance.dataset(tmp_path).create_index("v", index_type, replace=True, **options)
        assert sizes[0] == 1000 - 9 - 4 - (metric == "cosine")
        # pylance takes a vector with a null item as one without nulls if it makes it longer.
        assert sizes[1] == sizes[0] + (metric == "cosine")
        dataset = lance_spark.open_dataset(str(tmp_path))


def test_lists_of_vectors(tmp_path: Path) -> None:
    inner = lists(vectors(3000))
    ends = np.append(0, np.sort(np.random.default_rng(0).integers(0, 3001, 700)))
    column = pa.ListArray.from_arrays(pa.array(np.append(ends, 3000), pa.int32()), inner)
    lance.write_dataset(pa.table({"v": column, "id": np.arange(len(column))}), tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    with pytest.raises(InvalidInputError, match="measured by cosine only"):
        dataset.create_index("v", "IVF_FLAT")
    query = vectors(2, seed=5)
    for index_type in ("IVF_FLAT", "IVF_PQ"):
        dataset = dataset.create_index(
            "v", index_type, metric="cosine", num_partitions=3, replace=True, **TYPES[index_type]
        )
        assert_valid(dataset)
        stats = lance.dataset(tmp_path).stats.index_stats("v_idx")["indices"][0]
        assert sum(part["size"] for part in stats["partitions"]) == 3000
        exact = nearest_ids(tmp_path, query, metric="cosine", use_index=False)
        by_index = nearest_ids(tmp_path, query, metric="cosine", nprobes=3, refine_factor=10)
        assert len(set(exact) & set(by_index)) >= K - 2


def test_few_rows(tmp_path: Path) -> None:
    dataset = lance_spark.write_dataset(table(vectors(3)), str(tmp_path))
    dataset = dataset.create_index("v", "IVF_FLAT", num_partitions=8)
    stats = lance.dataset(tmp_path).stats.index_stats("v_idx")
    assert [len(item["partitions"]) for item in stats["indices"]] == [3]
    # Too few rows for codewords: the index is empty, as in pylance.
    dataset = dataset.create_index("v", "IVF_PQ", "pq", num_sub_vectors=4)
    dataset = dataset.create_index("v", "IVF_FLAT", "untrained", train=False)
    for name in ("pq", "untrained"):
        assert lance.dataset(tmp_path).stats.index_stats(name)["num_indexed_rows"] == 0
        assert_valid(dataset, name)
    assert dataset.optimize_indices(["pq"]).version == dataset.version
    lance.write_dataset(table(vectors(400)), tmp_path, mode="append")
    dataset = lance_spark.open_dataset(str(tmp_path)).optimize_indices()
    for name in ("v_idx", "pq", "untrained"):
        stats = lance.dataset(tmp_path).stats.index_stats(name)
        assert (stats["num_indexed_rows"], stats["num_unindexed_rows"]) == (403, 0)
        assert_valid(dataset, name)


def test_no_vectors(tmp_path: Path) -> None:
    empty = pa.array([None] * 5, pa.list_(pa.float32(), DIMENSION))
    for name, rows in (
        ("none", pa.table({"v": empty.slice(0, 0)})),
        ("null", pa.table({"v": empty})),
    ):
        path = str(tmp_path / name)
        dataset = lance_spark.write_dataset(rows, path).create_index("v", "IVF_FLAT")
        assert lance.dataset(path).stats.index_stats("v_idx")["num_indexed_rows"] == 0
        assert_valid(dataset)


def test_a_given_model(tmp_path: Path) -> None:
    matrix = vectors(1000)
    dataset = lance_spark.write_dataset(table(matrix), str(tmp_path))
    centroids, book = matrix[:5], vectors(8 * 256, 3, 2).reshape(8, 256, 2)
    dataset = dataset.create_index(
        "v", "IVF_PQ", ivf_centroids=centroids, pq_codebook=book, num_sub_vectors=8
    )
    stats = lance.dataset(tmp_path).stats.index_stats("v_idx")["indices"][0]
    np.testing.assert_array_equal(np.array(stats["centroids"], np.float32), centroids)
    assert_used(tmp_path)
    assert_valid(dataset)
    with pytest.raises(InvalidInputError, match="ivf_centroids must have vectors of 16 items"):
        dataset.create_index("v", "IVF_FLAT", "x", ivf_centroids=matrix[:, :8])
    with pytest.raises(InvalidInputError, match="num_sub_vectors must divide the dimension"):
        dataset.create_index("v", "IVF_PQ", "x", num_sub_vectors=5)
    with pytest.raises(InvalidInputError, match="index 'v_idx' exists"):
        dataset.create_index("v", "IVF_FLAT")


def test_nested_columns(tmp_path: Path) -> None:
    nested = pa.StructArray.from_arrays([lists(vectors(500))], ["v"])
    dataset = lance_spark.write_dataset(pa.table({"s": nested}), str(tmp_path))
    dataset = dataset.create_index("s.v", "IVF_FLAT", num_partitions=3)
    assert_valid(dataset, "s.v_idx")
    stats = lance.dataset(tmp_path).stats.index_stats("s.v_idx")
    assert stats["num_indexed_rows"] == 500


@pytest.mark.parametrize("items", [pa.int8(), pa.int32()])
def test_other_types_are_refused(tmp_path: Path, items: pa.DataType) -> None:
    column = pa.array([[1] * 8] * 9, pa.list_(items, 8))
    dataset = lance_spark.write_dataset(pa.table({"v": column, "x": range(9)}), str(tmp_path))
    for name in ("v", "x"):
        with pytest.raises(UnsupportedTypeError, match="IVF_FLAT index does not take column"):
            dataset.create_index(name, "IVF_FLAT")


@pytest.mark.parametrize(
    ("stable_row_ids", "index_type"),
    every_other(itertools.product([False, True], ["IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ"]), 0),
)
def test_keep_up(
    tmp_path: Path, index_type: str, stable_row_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small runs are on the disk.
    monkeypatch.setattr(build, "_RUN_BYTES", 20_000)
    data = vectors(2500)
    lance.write_dataset(
        table(data[:1000]), tmp_path, max_rows_per_file=350, enable_stable_row_ids=stable_row_ids
    )
    options = {"num_partitions": 3, **TYPES[index_type]}
    dataset = lance_spark.open_dataset(str(tmp_path))
    dataset = dataset.create_index("v", index_type, num_segments=2, **options)
    assert_used(tmp_path, segments=2)

    def assert_right(segments: int) -> Dataset:
        dataset = lance_spark.open_dataset(str(tmp_path))
        assert_valid(dataset)
        assert_used(tmp_path, segments=segments)
        stats = lance.dataset(tmp_path).stats.index_stats("v_idx")
        assert stats["num_unindexed_rows"] == 0
        assert recall(tmp_path, nprobes=3, refine_factor=15, ef=300) > 0.97
        return dataset

    lance.write_dataset(table(data[1000:1500], 1000), tmp_path, mode="append")
    dataset = lance_spark.open_dataset(str(tmp_path)).delete("id % 10 = 3")
    dataset.optimize_indices()
    dataset = assert_right(2)
    lance.write_dataset(table(data[1500:2000], 1500), tmp_path, mode="append")
    dataset = lance_spark.open_dataset(str(tmp_path)).optimize_indices(num_indices_to_merge=0)
    dataset = assert_right(3)
    dataset.compact_files()
    dataset = assert_right(3)
    lance.dataset(tmp_path).update({"id": "id + 10000"}, "id % 10 = 5")
    lance_spark.open_dataset(str(tmp_path)).optimize_indices()
    dataset = assert_right(3)
    dataset.optimize_indices(num_indices_to_merge=9)
    assert_right(1)
    lance.write_dataset(table(data[2000:], 2000), tmp_path, mode="append")
    lance.dataset(tmp_path).optimize.optimize_indices()
    dataset = assert_right(1)
    dataset.optimize_indices(retrain=True)
    dataset = assert_right(1)
    names = [index.name for index in dataset.drop_index("v_idx").describe_indices()]
    assert "v_idx" not in names


def test_segments_of_other_models_are_encoded_again(tmp_path: Path) -> None:
    data = vectors(2000)
    lance.write_dataset(table(data), tmp_path, max_rows_per_file=1000)
    source = lance.dataset(tmp_path)
    segments = [
        source.create_index_uncommitted(
            "v", "IVF_PQ", "v_idx", num_partitions=3, num_sub_vectors=8, fragment_ids=[number]
        )
        for number in (0, 1)
    ]
    source.commit_existing_index_segments("v_idx", "v", segments)
    dataset = lance_spark.open_dataset(str(tmp_path))
    assert_valid(dataset)
    dataset = dataset.optimize_indices(num_indices_to_merge=2)
    assert_used(tmp_path)
    assert_valid(dataset)
    assert recall(tmp_path, nprobes=3, refine_factor=15) > 0.97


def test_a_check_finds_what_is_wrong(tmp_path: Path) -> None:
    data = vectors(1000)
    paths = [tmp_path / name for name in ("first", "second")]
    for path, matrix in zip(paths, (data, data[::-1]), strict=True):
        dataset = lance_spark.write_dataset(table(matrix), str(path))
        dataset.create_index("v", "IVF_PQ", num_partitions=3, num_sub_vectors=8)
    (mine,), (other,) = ([*path.glob("_indices/*")] for path in paths)
    for name in ("index.idx", "auxiliary.idx"):
        (mine / name).write_bytes((other / name).read_bytes())
    result = lance_spark.open_dataset(str(paths[0])).check_index("v_idx")
    assert not result.is_valid
    assert result.wrong > 900
    assert "the index has another vector of the row" in result.problems[0]
    lance_spark.open_dataset(str(paths[1])).delete("id < 100")
    lance.write_dataset(table(data[:10]), paths[1], mode="append")
    result = lance_spark.open_dataset(str(paths[1])).check_index("v_idx")
    assert (result.is_valid, result.stale, result.num_rows) == (True, 100, 900)
    (other / "auxiliary.idx").unlink()
    result = lance_spark.open_dataset(str(paths[1])).check_index("v_idx")
    assert (result.missing, result.is_valid) == (900, False)

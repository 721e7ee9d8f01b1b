"""Many queries at once find the rows that each of them finds alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.indexes.vectors.quantizers import quantizer
from lance_spark.spark.table.jobs import nearest_join

ROWS, QUERIES, DIMENSION, K = 9_000, 300, 16, 7


def vectors(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Return vectors of clusters; a third of them are in one."""
    shape = np.random.default_rng(0)
    centers = shape.standard_normal((40, DIMENSION)) * 2
    random = np.random.default_rng(seed)
    chosen = np.where(random.random(count) < 0.33, 0, random.integers(0, 40, count))
    return (centers[chosen] + random.standard_normal((count, DIMENSION))).astype(np.float32)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("index_type", "metric"),
    [
        *(("IVF_PQ", metric) for metric in ("l2", "cosine", "dot")),
        *(("IVF_FLAT", metric) for metric in ("l2", "cosine", "dot")),
    ],
)
def test_many_queries(
    tmp_path: Path, index_type: str, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t.lance")
    column = pa.FixedSizeListArray.from_arrays(vectors(ROWS, 1).ravel(), DIMENSION)
    lance.write_dataset(pa.table({"id": pa.array(range(ROWS), pa.int64()), "v": column}), path)
    options = {"num_sub_vectors": 4} if index_type == "IVF_PQ" else {}
    lance.dataset(path).create_index("v", index_type, num_partitions=6, metric=metric, **options)
    projected = []
    whole = quantizer.Decoded.groups

    def groups(self: quantizer.Decoded, limits: Any) -> Any:
        result = whole(self, limits)
        projected.extend(result[0])
        return result

    monkeypatch.setattr(quantizer.Decoded, "groups", groups)
    # All partitions are large enough.
    monkeypatch.setattr("lance_spark.indexes.vectors.index_search.LEAST_PAIRS", 1)
    queries = vectors(QUERIES, 2)
    for deleted, condition in ((False, None), (False, "id % 3 = 1"), (True, None)):
        if deleted:
            lance.dataset(path).delete("id % 5 = 2")
        dataset = lance_spark.open_dataset(path)

        def search(q: Any, dataset: Any = dataset, condition: Any = condition) -> pa.Table:
            nearest = {"column": "v", "q": q, "k": K, "nprobes": 4, "metric": metric}
            return dataset.to_table(
                columns=["id"], nearest=nearest, filter=condition, prefilter=bool(condition)
            )

        neighbors = search(queries)
        number = neighbors["query_index"].to_numpy()
        for query in range(0, QUERIES, 23):
            alone, own = search(queries[query]), neighbors.filter(pa.array(number == query))
            distances = [part["_distance"].to_numpy() for part in (own, alone)]
            np.testing.assert_allclose(*distances, rtol=1e-4, atol=2e-4)
            # Rows in other places have about equal distances.
            ids = [part["id"].to_numpy() for part in (own, alone)]
            last = distances[1][-1]
            sure = distances[1] < last - 1e-3 * abs(last)
            assert set(ids[1][sure].tolist()) <= set(ids[0].tolist())
    assert projected or metric != "l2"


def test_queries_of_one_partition_are_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks have equal shares of queries, all of which search the same partition."""
    from lance_spark.indexes.vectors.query import parse_nearest

    monkeypatch.setattr(nearest_join, "_LEAST_SLOT_ROWS", 100)
    path = str(tmp_path / "t.lance")
    column = pa.FixedSizeListArray.from_arrays(vectors(2000, 1).ravel(), DIMENSION)
    lance.write_dataset(pa.table({"v": column}), path)
    lance.dataset(path).create_index("v", "IVF_FLAT", num_partitions=8, metric="l2")
    dataset = lance_spark.open_dataset(path)
    nearest = {"column": "v", "q": [[0.0] * DIMENSION], "k": K, "nprobes": 1}
    search = dataset._reader.plan_nearest(parse_nearest(nearest), fast_search=False)
    near = np.full((4000, DIMENSION), 3, np.float32)
    near += np.random.default_rng(1).standard_normal(near.shape).astype(np.float32) / 100
    keys = np.random.default_rng(2).integers(-(2**63), 2**63, len(near))
    for most_rows, num_shares in ((1 << 20, 1), (1000, 2)):
        monkeypatch.setattr(nearest_join, "_SLOT_ROWS", most_rows)
        slots = nearest_join.Slots.of(search, dataset.fragments, 8, None)
        assert slots.count == 8
        pairs = list(slots.assigned(dataset, near, keys))
        query = np.concatenate([own for own, _ in pairs])
        slot = np.concatenate([own for _, own in pairs])
        assert np.bincount(query).tolist() == [1] * len(near)
        counts = np.bincount(slot, minlength=8)
        counts = counts[counts > 0]
        assert len(counts) == 8 // num_shares
        assert counts.max() < 1.2 * len(near) / len(counts)


@pytest.mark.parametrize("bounds", [(0.5, 0.9), (None, 0.4)], ids=str)
def test_bounds_of_candidates(tmp_path: Path, bounds: tuple[float | None, float | None]) -> None:
    """Rows of a join are within the bounds by their vectors, whatever their codes say."""
    from lance_spark.indexes.vectors.neighbors import merged
    from lance_spark.indexes.vectors.query import parse_nearest

    path = str(tmp_path / "t.lance")
    column = pa.FixedSizeListArray.from_arrays(vectors(2_000, 1).ravel(), DIMENSION)
    table = pa.table({"id": range(2_000), "v": column})
    lance.write_dataset(table[:1_600], path)
    lance.dataset(path).create_index("v", "IVF_SQ", num_partitions=2, metric="cosine")
    # Rows without an index.
    lance.write_dataset(table[1_600:], path, mode="append")
    dataset = lance_spark.open_dataset(path)
    nearest = {"column": "v", "q": vectors(8, 2), "k": K, "nprobes": 2, "metric": "cosine"}
    nearest |= {"distance_range": bounds, "refine_factor": 3}
    expected = dataset.to_table(["id"], nearest={**nearest, "use_index": False})
    search = dataset._reader.plan_nearest(parse_nearest(nearest))
    slots = nearest_join.Slots.of(search, dataset.fragments, 4, None)
    searcher, queries = slots.searcher(dataset), search.dtype.query(nearest["q"], search.metric)
    candidates = [searcher.neighbors(number, queries) for number in range(slots.count)]
    neighbors = searcher.measured(queries, merged(candidates, slots.num_candidates)).best(K)
    assert len(neighbors) == expected.num_rows > 0
    np.testing.assert_allclose(
        neighbors.distances, expected["_distance"].to_numpy(), rtol=0.02, atol=1e-3
    )

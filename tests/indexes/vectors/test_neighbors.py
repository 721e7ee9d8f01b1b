"""How the nearest rows of queries are collected."""

from __future__ import annotations

import numpy as np
import pytest

from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.distances import DistanceBounds
from lance_spark.indexes.vectors.neighbors import Neighbors, NeighborsCollector


@pytest.mark.parametrize("k", [1, 3, 40, 1000])
@pytest.mark.parametrize("num_queries", [1, 5])
def test_the_nearest_rows_in_order(k: int, num_queries: int) -> None:
    rng = np.random.default_rng(k + num_queries)
    # There are equal distances, and pairs without one.
    distances = rng.integers(-20, 20, (num_queries, 600)).astype(np.float32)
    distances[rng.random(distances.shape) < 0.1] = np.nan
    ids = rng.permutation(600).astype(np.uint64)
    collector = NeighborsCollector(num_queries, k)
    for first in range(0, 600, 50):
        rows = slice(first, first + 50)
        collector.add(distances[:, rows], np.arange(num_queries), ids[rows], ids[rows])
    neighbors = collector.neighbors()
    for number, own in enumerate(distances):
        order = np.lexsort((ids, own))[: min(k, int((~np.isnan(own)).sum()))]
        rows = neighbors.at(neighbors.queries == number)
        np.testing.assert_array_equal(rows.ids, ids[order])
        np.testing.assert_array_equal(rows.distances, own[order])


def test_all_rows_are_sorted_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """If as many rows are wanted as there are, each part does not sort those before it again."""
    best, sorted_rows = Neighbors.best, []

    def counted(rows: Neighbors, k: int) -> Neighbors:
        sorted_rows.append(len(rows))
        return best(rows, k)

    monkeypatch.setattr(Neighbors, "best", counted)
    count = 20_000
    ids = np.arange(count, dtype=np.uint64)
    distances = np.random.default_rng(3).random((2, count), np.float32)
    collector = NeighborsCollector(2, count)
    for first in range(0, count, 100):
        rows = slice(first, first + 100)
        collector.add(distances[:, rows], np.arange(2), ids[rows], ids[rows])
    assert len(collector.neighbors()) == 2 * count
    assert sum(sorted_rows) <= 8 * count


@pytest.mark.parametrize("centre", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("num_queries", [1, 3])
def test_bounds_of_blocks_are_below_the_distances(centre: float, num_queries: int) -> None:
    """Bounds are computed block by block, and with the mean taken from vectors that are near it."""
    rng = np.random.default_rng(7)
    vectors = (rng.random((3_000, 64)) + centre).astype(np.float32)
    queries = vectors[:num_queries] + np.float32(0.1)
    bounds = DistanceBounds(Metric.L2, queries, vectors)
    least = bounds.least(vectors)
    exact = ((vectors[:, None].astype(np.float64) - queries.astype(np.float64)) ** 2).sum(axis=2)
    nearest = np.sort(exact, axis=0)[9]
    chosen = least <= bounds.limits(nearest)
    assert chosen[exact <= nearest].all()
    # Bounds are tight enough to rule out nearly all others.
    assert chosen.sum() <= 12 * num_queries

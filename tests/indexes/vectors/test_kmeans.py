"""K-means against a slow model: no cluster is left empty, and the loss is about as small."""

from __future__ import annotations

import numpy as np
import pytest

from lance_spark.indexes.vectors import kmeans
from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.distances import CentroidAssignment, nearest_codewords
from lance_spark.indexes.vectors.kmeans import cluster, codebook


def clustered(rows: int, dimension: int, clusters: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(clusters, dimension)) * 4
    noise = rng.normal(size=(rows, dimension))
    return (centers[rng.integers(0, clusters, rows)] + noise).astype(np.float32)


def distances(vectors: np.ndarray, centroids: np.ndarray, metric: Metric) -> np.ndarray:
    first, second = vectors.astype(np.float64), centroids.astype(np.float64)
    if metric is Metric.DOT:
        return 1 - first @ second.T
    if metric is Metric.HAMMING:
        bits = np.unpackbits(vectors, axis=1), np.unpackbits(centroids, axis=1)
        return (bits[0][:, None] != bits[1][None]).sum(axis=2)
    return ((first[:, None] - second[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize(("rows", "dimension", "count"), [(3000, 4, 7), (900, 70, 33), (5, 8, 5)])
def test_the_nearest_centroid_is_found(
    metric: Metric, rows: int, dimension: int, count: int
) -> None:
    vectors, centroids = clustered(rows, dimension, 9) + 30, clustered(count, dimension, 9, 1) + 30
    if metric is Metric.HAMMING:
        vectors, centroids = (np.abs(item * 6).astype(np.uint8) for item in (vectors, centroids))
    numbers, table = CentroidAssignment(centroids, metric).nearest(vectors)
    expected = distances(vectors, centroids, metric)
    # Another centroid is as near, but for rounding.
    chosen = expected[np.arange(rows), numbers]
    np.testing.assert_allclose(chosen, expected.min(axis=1), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(table, chosen, rtol=1e-3, atol=1e-2)
    assert np.array_equal(CentroidAssignment(centroids, metric).numbers(vectors), numbers)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_vectors_far_from_zero_keep_their_digits(dtype: type) -> None:
    vectors = clustered(500, 8, 5).astype(dtype)
    offset = dtype(1000 if dtype is np.float16 else 1e6 if dtype is np.float32 else 1e12)
    moved = vectors + offset
    centroids = moved[:40]
    numbers = CentroidAssignment(centroids, Metric.L2).numbers(moved)
    expected = distances(moved, centroids, Metric.L2)
    chosen = expected[np.arange(len(moved)), numbers]
    np.testing.assert_allclose(chosen, expected.min(axis=1), rtol=1e-3)


def test_codewords_are_the_nearest_ones() -> None:
    vectors, book = clustered(2000, 12, 30), clustered(256 * 3, 4, 30).reshape(3, 256, 4)
    codes = nearest_codewords(vectors, book)
    for number in range(3):
        expected = distances(vectors[:, 4 * number : 4 * number + 4], book[number], Metric.L2)
        chosen = expected[np.arange(2000), codes[:, number]]
        np.testing.assert_allclose(chosen, expected.min(axis=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("metric", [Metric.L2, Metric.COSINE, Metric.DOT])
def test_clusters_that_lie_apart_are_found(metric: Metric) -> None:
    vectors = clustered(4000, 16, 12)
    if metric is Metric.COSINE:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    results = [cluster(vectors, 24, metric, seed=seed) for seed in range(3)]
    losses = [result.loss for result in results]
    for result in results:
        assert result.centroids.shape == (24, 16)
        total = distances(vectors, result.centroids, metric).min(axis=1).sum()
        assert result.loss == pytest.approx(total, rel=1e-3)
        if metric is Metric.DOT:
            np.testing.assert_allclose(np.linalg.norm(result.centroids, axis=1), 1, rtol=1e-5)
    # Each run ends near the best one.
    assert max(losses) - min(losses) < 0.3 * abs(min(losses))
    if metric is Metric.L2:
        assert min(losses) < 1.3 * len(vectors) * 16


def test_bits_are_those_of_most_vectors() -> None:
    rng = np.random.default_rng(3)
    centers = rng.integers(0, 256, (4, 16), dtype=np.uint8)
    flips = np.packbits(rng.random((800, 128)) < 0.05, axis=1)
    vectors = centers[rng.integers(0, 4, 800)] ^ flips
    result = min(
        (cluster(vectors, 4, Metric.HAMMING, seed=s) for s in range(5)), key=lambda c: c.loss
    )
    assert sorted(result.centroids.tolist()) == sorted(centers.tolist())
    assert result.loss == np.unpackbits(flips).sum()


@pytest.mark.parametrize("metric", [Metric.L2, Metric.DOT])
def test_equal_vectors_have_clusters_too(metric: Metric) -> None:
    same = np.tile(np.arange(8, dtype=np.float32), (1000, 1))
    few = np.repeat(clustered(5, 8, 5), 100, axis=0)
    for vectors, count in ((same, 10), (same, 300), (few, 16), (np.zeros_like(same), 300)):
        result = cluster(vectors, count, metric)
        assert result.centroids.shape == (count, 8)
        assert np.isfinite(result.centroids).all()
    assert cluster(few, 16, Metric.L2).loss == pytest.approx(0, abs=1e-3)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("rows", "count"), [(300, 300), (1000, 999), (20_000, 300), (2, 2)])
def test_many_clusters(rows: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = clustered(rows, 8, 50)
    levels = cluster(vectors, count, Metric.L2)
    assert levels.centroids.shape == (count, 8)
    monkeypatch.setattr(kmeans, "_MAX_FLAT", count)
    flat = cluster(vectors, count, Metric.L2)
    measured = [
        distances(vectors, r.centroids, Metric.L2).min(axis=1).sum() for r in (levels, flat)
    ]
    assert measured[0] <= 1.05 * measured[1] + 1e-2 * rows


def test_shares_are_in_proportion() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes = rng.integers(0, 50, rng.integers(1, 20)) ** 2
        if not sizes.sum():
            continue
        count = int(rng.integers(1, sizes.sum() + 1))
        if count < np.count_nonzero(sizes):
            continue
        shares = kmeans._shares(sizes, count)
        assert shares.sum() == count
        assert ((shares <= sizes) & ((shares > 0) | (sizes == 0))).all()


def test_codebooks_are_clusters_of_sub_vectors() -> None:
    vectors = clustered(3000, 12, 40)
    book = codebook(vectors, 3, 4, max_iters=50)
    assert book.shape == (3, 16, 4)
    codes = nearest_codewords(vectors, book)
    decoded = np.concatenate([book[i][codes[:, i]] for i in range(3)], axis=1)
    assert ((vectors - decoded) ** 2).sum() < 0.3 * ((vectors - vectors.mean(axis=0)) ** 2).sum()

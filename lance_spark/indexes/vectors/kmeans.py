"""K-means clustering of vectors.

| metric | clusters | centroid |
| --- | --- | --- |
| `l2`, `cosine` | least sum of squared distances | mean |
| `dot` | greatest sum of products | mean, made as long as 1 |
| `hamming` | least number of different bits | each bit as in most vectors |

A part of the vectors is clustered first, because most steps move the centroids far. Few steps with
all vectors follow. Many clusters are made in two levels: vectors are clustered, each cluster gets
its share of the centroids, and these then move in steps with vectors of all clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from lance_spark import progress
from lance_spark.indexes.vectors.columns import Metric, Vectors
from lance_spark.indexes.vectors.distances import (
    CentroidAssignment,
    Floats,
    Numbers,
    as_signs,
    each,
)

DEFAULT_MAX_ITERS = 50

#: Steps end when the loss falls by less than this part of it.
_TOLERANCE = 1e-3
#: More clusters are made in two levels; in three, if a cluster gets a share of more.
_MAX_FLAT, _MAX_LEVELS = 256, 3
#: Vectors for each cluster in the first steps, and least number of vectors.
_FIRST_VECTORS, _LEAST_VECTORS = 32, 8192
#: Vectors for each cluster, and steps, that move the centroids of all levels.
_LAST_VECTORS, _LAST_STEPS = 64, 2
#: Two halves of a cluster differ by this part of the centroid.
_HALVES = 1 / 1024
#: Vectors of fewer items are added by their columns.
_FEW_ITEMS = 64
#: Rows that are assigned at once.
_PIECE_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Clusters:
    """The result of a clustering.

    - `centroids` (array of shape (clusters, dimension)): float32; uint8 for `hamming`.
    - `loss`: Sum of the distances of the vectors from their centroids.
    """

    centroids: Vectors
    loss: float


def cluster(
    vectors: Vectors,
    count: int,
    metric: Metric,
    *,
    max_iters: int = DEFAULT_MAX_ITERS,
    seed: int = 0,
) -> Clusters:
    """Cluster vectors.

    Parameters
    ----------
    vectors : array of shape (rows, dimension)
        Without NaN; of length 1 for `cosine`; uint8 for `hamming`. There are `count` rows or more.
    count : int
        Number of clusters.
    metric : Metric
    max_iters : int
        Most steps.
    seed : int
        Of the choice of the first centroids.

    Examples
    --------
    >>> vectors = np.array([[0.0], [0.1], [5.0], [5.1]], np.float32)
    >>> sorted(cluster(vectors, 2, Metric.L2).centroids.ravel().round(2).tolist())
    [0.05, 5.05]
    """
    assert len(vectors) >= count > 0, "there are more clusters than vectors"
    return _clustered(vectors, count, metric, max_iters, seed, _MAX_LEVELS)


def _clustered(
    vectors: Vectors, count: int, metric: Metric, max_iters: int, seed: int, levels: int
) -> Clusters:
    """Return clusters that are made in at most some levels."""
    # A part of shuffled vectors is a sample.
    shuffled = vectors[np.random.default_rng(seed).permutation(len(vectors))]
    if count > _MAX_FLAT and levels > 1:
        centroids = _divided(shuffled, count, metric, max_iters, seed, levels - 1)
        last = shuffled[: _LAST_VECTORS * count]
        return _steps(last, centroids, metric, min(_LAST_STEPS, max_iters))
    first = shuffled[: max(_FIRST_VECTORS * count, _LEAST_VECTORS)]
    result = _steps(first, first[:count], metric, max_iters)
    if len(first) < len(shuffled):
        result = _steps(shuffled, result.centroids, metric, max_iters)
    return result


def _divided(
    vectors: Vectors, count: int, metric: Metric, max_iters: int, seed: int, levels: int
) -> Vectors:
    """Return the centroids of the clusters of clusters."""
    groups = _clustered(vectors, math.isqrt(count), metric, max_iters, seed, 1)
    numbers, _ = _assigned(vectors, groups.centroids, metric)
    order, bounds = _by_cluster(numbers, len(groups.centroids))
    shares = _shares(np.diff(bounds), count)

    def centroids(number: int) -> Vectors:
        members = vectors[order[bounds[number] : bounds[number + 1]]]
        return _clustered(members, int(shares[number]), metric, max_iters, seed, levels).centroids

    parts = each(progress.bound(centroids), np.flatnonzero(shares).tolist())
    return np.concatenate(list(parts))


def _shares(sizes: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return numbers that are in proportion to sizes, at most as large, with a certain sum."""
    shares: npt.NDArray[np.int64] = np.minimum(np.maximum(sizes * count // sizes.sum(), 1), sizes)
    while (missing := count - int(shares.sum())) > 0:
        # The clusters with the most vectors for each share get one more.
        crowd = np.where(shares < sizes, sizes / np.maximum(shares, 1), 0)
        most = np.argsort(-crowd, kind="stable")[: min(missing, int((crowd > 0).sum()))]
        shares[most] += 1
    while (surplus := -missing) > 0:
        crowd = np.where(shares > 1, sizes / np.maximum(shares, 1), np.inf)
        least = np.argsort(crowd, kind="stable")[: min(surplus, int((crowd < np.inf).sum()))]
        shares[least] -= 1
        missing = count - int(shares.sum())
    return shares


def _steps(vectors: Vectors, centroids: Vectors, metric: Metric, max_iters: int) -> Clusters:
    """Move centroids until they are good, or as many times as allowed."""
    summed = as_signs(vectors) if metric is Metric.HAMMING else vectors
    # Columns of 64-bit numbers are added without another copy.
    columns = summed.T.astype(np.float64) if summed.shape[1] <= _FEW_ITEMS else None
    loss, centroids = math.inf, _of_metric(centroids, metric)
    for _ in range(max_iters):
        numbers, distances = _assigned(vectors, centroids, metric)
        new_loss = float(distances.sum(dtype=np.float64))
        if abs(loss - new_loss) <= _TOLERANCE * abs(new_loss):
            return Clusters(centroids, new_loss)
        loss = new_loss
        sums, sizes = _sums(summed, columns, numbers, len(centroids))
        centroids = _moved(sums, sizes, metric)
        progress.advance(unit="iterations")
    _, distances = _assigned(vectors, centroids, metric)
    return Clusters(centroids, float(distances.sum(dtype=np.float64)))


def _assigned(vectors: Vectors, centroids: Vectors, metric: Metric) -> tuple[Numbers, Floats]:
    assignment = CentroidAssignment(centroids, metric)
    starts = range(0, len(vectors), _PIECE_ROWS)
    pieces = each(lambda start: assignment.nearest(vectors[start : start + _PIECE_ROWS]), starts)
    numbers, distances = zip(*pieces, strict=True)
    return np.concatenate(numbers), np.concatenate(distances)


def _sums(
    vectors: Vectors, columns: Vectors | None, numbers: Numbers, count: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the sum of the vectors of each cluster, and their number."""
    if columns is not None:
        sums = [np.bincount(numbers, weights=column, minlength=count) for column in columns]
        return np.stack(sums, axis=1), np.bincount(numbers, minlength=count)
    order, bounds = _by_cluster(numbers, count)
    result = np.zeros((count, vectors.shape[1]))
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        members = vectors[order[bounds[number] : bounds[number + 1]]]
        # Without a copy in 64 bits.
        result[number] = members.mean(axis=0, dtype=np.float32) * np.float64(len(members))
    return result, np.diff(bounds)


def _moved(
    sums: npt.NDArray[np.float64],
    sizes: npt.NDArray[np.int64],
    metric: Metric,
) -> Vectors:
    """Return the centroids of clusters. An empty cluster takes half of the largest."""
    means = sums / np.maximum(sizes, 1)[:, None]
    sizes = sizes.copy()
    for empty in np.flatnonzero(sizes == 0).tolist():
        largest = int(sizes.argmax())
        sizes[empty] = sizes[largest] // 2
        sizes[largest] -= sizes[empty]
        means[empty] = means[largest] * (1 + _HALVES)
        means[largest] *= 1 - _HALVES
    if metric is Metric.HAMMING:
        return np.packbits(means >= 0, axis=1)
    return _of_metric(means.astype(np.float32), metric)


def _of_metric(centroids: Vectors, metric: Metric) -> Vectors:
    if metric is Metric.HAMMING:
        return centroids
    centroids = centroids.astype(np.float32)
    if metric is Metric.DOT:
        lengths = np.linalg.norm(centroids, axis=1, keepdims=True)
        np.divide(centroids, lengths, out=centroids, where=lengths > 0)
    return centroids


def _by_cluster(numbers: Numbers, count: int) -> tuple[npt.NDArray[np.int64], Vectors]:
    """Return the order of rows by their clusters, and where each cluster begins and ends."""
    narrow = numbers.astype(np.uint16) if count <= 1 << 16 else numbers
    order = np.argsort(narrow, kind="stable")
    return order, np.append(0, np.cumsum(np.bincount(numbers, minlength=count)))


# --------------------------------------------------------------------------------------------------
# Codebooks of PQ: the codewords of each sub-vector are the centroids of its clusters.


def codebook(vectors: Vectors, num_sub_vectors: int, num_bits: int, *, max_iters: int) -> Vectors:
    """Return the codebook of vectors.

    Parameters
    ----------
    vectors : array of shape (rows, dimension)
        As they are encoded: the differences from centroids for `l2` and `cosine`. There are as
        many as codewords, or more.
    num_sub_vectors : int
        Divides the dimension.
    num_bits : int
        4 or 8.
    max_iters : int

    Returns
    -------
    float32 array of shape (sub-vectors, 2 ** num_bits, dimension / sub-vectors)
    """
    parts = np.split(vectors, num_sub_vectors, axis=1)
    train = partial(_train, count=1 << num_bits, max_iters=max_iters)
    trained = progress.counted(
        each(train, parts), "train_quantizer", num_sub_vectors, "sub_vectors"
    )
    return np.stack([clusters.centroids for clusters in trained])


def _train(part: Vectors, count: int, max_iters: int) -> Clusters:
    return cluster(np.ascontiguousarray(part), count, Metric.L2, max_iters=max_iters)

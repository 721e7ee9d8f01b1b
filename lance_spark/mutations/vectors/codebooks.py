"""Codebooks of PQ: the codewords of each sub-vector are the centroids of its clusters."""

from __future__ import annotations

from functools import partial

import numpy as np

from lance_spark import progress
from lance_spark.mutations.vectors.kmeans import Clusters, cluster
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.threads import each


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

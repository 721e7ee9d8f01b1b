"""Which partitions of a segment are searched: those whose centroids are nearest to a query.

The least number of partitions is `minimum_nprobes`. By default it grows to the number of centroids
that are about as near as the nearest one, as in pylance: their distances are within a margin of the
least distance, and at least and at most some number of partitions is searched. These numbers depend
on the metric and on `k`. With `hamming`, all partitions are searched by default.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.scan.vectors.distances import measured
from lance_spark.scan.vectors.ivf import Int64Array, Ivf, Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.query import NearestQuery

_Floats = npt.NDArray[np.float32]

#: The greatest `k` of each column of the tables below.
_MARGIN_KS = (1, 10, 100, 200, 500, 1000, 1 << 62)
#: For a metric and `k`: margin as a part of the least distance, and least and most partitions.
_MARGINS = {
    Metric.L2: (
        (0.2175, 0.265, 0.33, 0.375, 0.3725, 0.4175, 0.4175),
        (5, 6, 11, 15, 22, 29, 98),
        (19, 24, 38, 56, 81, 93, 238),
    ),
    Metric.COSINE: (
        (0.235, 0.2875, 0.38, 0.415, 0.45, 0.47, 0.47),
        (3, 8, 7, 18, 28, 34, 104),
        (50, 77, 106, 156, 192, 248, 447),
    ),
    Metric.DOT: (
        (0.14, 0.055, 0.0625, 0.0675, 0.07, 0.0725, 0.0725),
        (56, 144, 200, 211, 244, 279, 517),
        (112, 432, 768, 833, 971, 1092, 1500),
    ),
}
#: The part of the partitions that a search has by default.
_DEFAULT_EFFORT = 0.5
_ROUNDING = 1e-9


def ranked(ivf: Ivf, metric: Metric, queries: Vectors) -> tuple[Int64Array, _Floats]:
    """Return the partitions in the order of their distances from each query.

    Parameters
    ----------
    ivf : Ivf
    metric : Metric
    queries : array of shape (queries, dimension)
        With `cosine`, of length 1.

    Returns
    -------
    int64 array of shape (queries, partitions)
        Numbers of the partitions.
    float32 array of the same shape
        Distances of their centroids, increasing.
    """
    routed = Metric.L2 if metric is Metric.COSINE else metric
    distances = measured(routed, queries, ivf.centroids)
    order = np.argsort(distances, axis=1, kind="stable")
    return order, np.take_along_axis(distances, order, axis=1)


def first_probes(query: NearestQuery, metric: Metric, distances: _Floats) -> Int64Array:
    """Return how many partitions are searched first, for each query.

    Parameters
    ----------
    query : NearestQuery
    metric : Metric
    distances : float32 array of shape (queries, partitions)
        As `ranked` returns them.
    """
    count = distances.shape[1]
    maximum = count if query.maximum_nprobes is None else min(count, query.maximum_nprobes)
    least = min(query.minimum_nprobes, maximum)
    if query.maximum_nprobes == query.minimum_nprobes and query.search_effort is None:
        return np.full(len(distances), least, np.int64)
    auto = _automatic(query.k, metric, distances)
    auto = np.clip(auto, least, maximum)
    effort = query.search_effort
    if effort is None or effort == _DEFAULT_EFFORT:
        return auto
    # The default is half way between the least and all, as powers.
    low = max(1, least)
    if effort < _DEFAULT_EFFORT:
        start, end, part = low, np.maximum(auto, low), effort / _DEFAULT_EFFORT
    else:
        start, end, part = np.maximum(auto, low), maximum, effort / _DEFAULT_EFFORT - 1
    between = np.ceil(start * (end / np.maximum(start, 1)) ** part - _ROUNDING)
    first: Int64Array = np.clip(between.astype(np.int64), min(low, maximum), maximum)
    return first


def probed(ivf: Ivf, metric: Metric, query: NearestQuery, vectors: Vectors) -> Int64Array:
    """Return the numbers of the partitions that any of the queries searches first.

    Parameters
    ----------
    ivf : Ivf
    metric : Metric
    query : NearestQuery
    vectors : array of shape (queries, dimension)
        With `cosine`, of length 1.
    """
    order, distances = ranked(ivf, metric, vectors)
    first = first_probes(query, metric, distances)
    return np.unique(order[np.arange(order.shape[1]) < first[:, None]])


def probes_of_shares(
    query: NearestQuery, first: Int64Array, order: Int64Array, lengths: Int64Array, k: int
) -> Int64Array:
    """Return how many partitions are searched first, by all shares of a segment together.

    A share does not know how many rows others find, so the partitions have at least `k` rows.

    Parameters
    ----------
    query : NearestQuery
    first : int64 array
        As `first_probes` returns them.
    order : int64 array of shape (queries, partitions)
        As `ranked` returns it.
    lengths : int64 array
        Rows of each partition.
    k : int
    """
    rows = np.cumsum(lengths[order], axis=1)
    result: Int64Array = np.maximum(first, (rows < k).sum(axis=1) + 1)
    most = len(lengths) if query.maximum_nprobes is None else query.maximum_nprobes
    return np.minimum(result, most)


def _automatic(k: int, metric: Metric, distances: _Floats) -> Int64Array:
    """Return how many partitions are about as near as the nearest one."""
    if metric not in _MARGINS:
        return np.full(len(distances), distances.shape[1], np.int64)
    margins, least, most = _MARGINS[metric]
    place = int(np.searchsorted(_MARGIN_KS, min(k, _MARGIN_KS[-1])))
    wide = distances.astype(np.float64)
    nearest = wide[:, :1]
    scale = np.abs(1 - nearest) if metric is Metric.DOT else nearest
    with np.errstate(invalid="ignore"):
        counts = (wide - nearest <= np.float32(margins[place]) * scale).sum(axis=1)
    result: Int64Array = np.clip(counts, least[place], most[place])
    return result

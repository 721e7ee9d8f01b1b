"""The partitions of a vector index (inverted file): each vector is in one of them.

A partition has a centroid. A vector is in the partition of the centroid that is nearest to it; with
`dot`, of the centroid that has the greatest product with it. With `cosine`, vectors and centroids
have the length 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: Vectors in the rows of a matrix; float16, float32, float64 or uint8.
Vectors = npt.NDArray[Any]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ivf:
    """The partitions of one segment.

    Attributes
    ----------
    centroids : array of shape (partitions, dimension)
        In the type of the column.
    offsets, lengths : int64 arrays
        First row, and number of rows, of each partition in the file of codes.
    loss : float or None
        Sum of the distances of vectors from their centroids.
    """

    centroids: Vectors
    offsets: Int64Array
    lengths: Int64Array
    loss: float | None = None

    @classmethod
    def without_rows(cls, centroids: Vectors) -> Ivf:
        """Return partitions that have no rows yet."""
        zeros = np.zeros(len(centroids), np.int64)
        return cls(centroids, zeros, zeros)

    @property
    def num_partitions(self) -> int:
        """Number of partitions, empty ones included."""
        return len(self.lengths)

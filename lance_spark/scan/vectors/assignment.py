"""The nearest centroid of each vector.

The squared distance of a vector from a centroid is the squared length of the vector, which is the
same for all centroids, and a number that is the product of two longer vectors:

| metric | of the vector | of the centroid | product |
| --- | --- | --- | --- |
| `l2`, `cosine` | v, 1 | -2 c, c * c | c * c - 2 v * c |
| `dot` | v, 1 | -c, 0 | - v * c |
| `hamming` | bits as -1 and 1, and 1 | as `l2` | as `l2` |

So one product of matrices has the numbers of all vectors and centroids. With `l2`, the mean of the
centroids is taken from both sides first: far from 0, the numbers would lose their digits. Pieces of
the product stay in the caches until their smallest numbers are found.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.scan.vectors.distances import Factor
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.uint32]

#: Numbers of a piece of the product, and the most numbers: many centroids need some rows, too.
_PIECE_NUMBERS, _MAX_NUMBERS = 1 << 18, 1 << 22
#: Least number of rows of a piece, if these have not too many numbers.
_LEAST_ROWS = 1 << 8


class CentroidAssignment:
    """Finds the nearest of some centroids.

    Parameters
    ----------
    centroids : array of shape (centroids, dimension)
        float16, float32, float64, or uint8 for `hamming`.
    metric : Metric

    Examples
    --------
    >>> assignment = CentroidAssignment(np.array([[0.0, 0.0], [3.0, 4.0]]), Metric.L2)
    >>> assignment.nearest(np.array([[2.0, 4.0]]))
    (array([1], dtype=uint32), array([1.], dtype=float32))
    """

    def __init__(self, centroids: Vectors, metric: Metric) -> None:
        self.metric = metric
        self._center: Vectors | None = None
        if metric is Metric.HAMMING:
            matrix = as_signs(centroids)
        elif metric is Metric.DOT:
            matrix = centroids.astype(np.float32)
        else:
            # Of 64-bit vectors, the difference has more digits in 32 bits than the vector.
            self._center = centroids.mean(axis=0, dtype=np.float64).astype(_wide(centroids.dtype))
            matrix = (centroids - self._center).astype(np.float32)
        if metric is Metric.DOT:
            columns = [-matrix, np.zeros((len(matrix), 1), np.float32)]
        else:
            lengths = np.einsum("ij,ij->i", matrix, matrix)[:, None]
            columns = [-2 * matrix, lengths]
        self._factors = Factor(np.ascontiguousarray(np.concatenate(columns, axis=1).T))

    def nearest(self, vectors: Vectors) -> tuple[Numbers, Floats]:
        """Return the number of the nearest centroid of each vector, and the distance from it.

        For `l2` and `cosine` the distance is squared; for `cosine`, vectors must have the length 1.

        Parameters
        ----------
        vectors : array of shape (rows, dimension)
            Without NaN.
        """
        numbers, distances, lengths = self._smallest(vectors, True)
        if self.metric is Metric.DOT:
            return numbers, 1 + distances
        distances = np.maximum(distances + lengths, 0)
        return numbers, distances / 4 if self.metric is Metric.HAMMING else distances

    def numbers(self, vectors: Vectors) -> Numbers:
        """Return the number of the nearest centroid of each vector; see `nearest`."""
        return self._smallest(vectors, False)[0]

    def _smallest(self, vectors: Vectors, measures: bool) -> tuple[Numbers, Floats, Floats]:
        """Return the place and value of the smallest product, and the squared lengths."""
        count = len(vectors)
        numbers = np.empty(count, np.uint32)
        smallest = np.empty(count if measures else 0, np.float32)
        lengths = np.empty(count if measures else 0, np.float32)
        width, num_centroids = self._factors.shape
        least = min(_LEAST_ROWS, _MAX_NUMBERS // num_centroids)
        rows = max(_PIECE_NUMBERS // num_centroids, least, 1)
        # Without a rest that is multiplied apart.
        rows = rows // self._factors.stack_rows * self._factors.stack_rows or rows
        factors = np.empty((rows, width), np.float32)
        factors[:, -1] = 1
        numbers_of_piece = np.empty((rows, num_centroids), np.float32)
        for start in range(0, count, rows):
            part = vectors[start : start + rows]
            used, result = factors[: len(part)], numbers_of_piece[: len(part)]
            self._fill(used[:, :-1], part)
            self._factors.products(used, result)
            places = result.argmin(axis=1)
            numbers[start : start + rows] = places
            if measures:
                smallest[start : start + rows] = result[np.arange(len(part)), places]
                plain = used[:, :-1]
                lengths[start : start + rows] = np.einsum("ij,ij->i", plain, plain)
        return numbers, smallest, lengths

    def _fill(self, target: Floats, vectors: Vectors) -> None:
        if self._center is not None:
            np.subtract(vectors, self._center, out=target, casting="same_kind")
        else:
            target[:] = as_signs(vectors) if self.metric is Metric.HAMMING else vectors


def nearest_codewords(vectors: Vectors, codebook: Vectors) -> npt.NDArray[np.uint8]:
    """Return the number of the nearest codeword of each sub-vector, by the L2 distance.

    Parameters
    ----------
    vectors : array of shape (rows, dimension)
        Without NaN.
    codebook : array of shape (sub-vectors, codewords, dimension / sub-vectors)
        At most 256 codewords.

    Returns
    -------
    uint8 array of shape (rows, sub-vectors)
    """
    count, _, width = codebook.shape
    codes = np.empty((len(vectors), count), np.uint8)

    for number in range(count):
        part = vectors[:, number * width : (number + 1) * width]
        codes[:, number] = CentroidAssignment(codebook[number], Metric.L2).numbers(part)
    return codes


def as_signs(vectors: Vectors) -> Floats:
    """Return the bits of vectors of bytes, as -1 and 1: products show how many of them differ."""
    return np.unpackbits(vectors, axis=1).astype(np.float32) * 2 - 1


def _wide(dtype: np.dtype[np.generic]) -> type[np.float32] | type[np.float64]:
    return np.float64 if dtype == np.float64 else np.float32

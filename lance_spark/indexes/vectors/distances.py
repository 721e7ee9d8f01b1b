"""Distances of vectors from query vectors: many at once with a known error, or exactly.

A matrix product measures all pairs, but its rounding hides small distances: |v|² - 2qv + |q|² of
near vectors is a difference of large numbers. So `DistanceBounds` gives numbers that are certainly
not greater than the distances, by which most vectors are left out, and `exact` measures the others.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lance_spark.indexes.vectors.columns import Int64Array, Metric, Vectors, as_floats

# --------------------------------------------------------------------------------------------------
# Computations in some threads of this process. numpy releases the interpreter's lock.

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: The most threads of a process, on machines with many processors.
_MAX_THREADS = 16
_LOCAL = threading.local()


def num_threads() -> int:
    """Return how many threads a computation takes.

    It is the number in the variable `OMP_NUM_THREADS`, which Spark sets in its workers, or else
    that of the processors.
    """
    # OpenMP takes a number for each level of nested loops.
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    number = int(first) if first.isdecimal() else num_processors()
    return max(1, min(number, _MAX_THREADS))


def each(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield the result of each item, in order. Items are taken while others are computed.

    At most one item more than there are threads is in memory. A function that is called by a
    thread of another such computation has this thread only.
    """
    count = num_threads()
    if count == 1 or getattr(_LOCAL, "is_busy", False):
        yield from map(function, items)
        return
    with ThreadPoolExecutor(count, initializer=_mark_busy) as pool:
        running: deque[Future[_Result]] = deque()
        try:
            for item in items:
                running.append(pool.submit(function, item))
                if len(running) > count:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _mark_busy() -> None:
    _LOCAL.is_busy = True


def num_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# --------------------------------------------------------------------------------------------------
# Distances of vectors from query vectors: many at once with a known error, or exactly.

Distances = npt.NDArray[np.float32]
_Floats = npt.NDArray[Any]

#: Bytes of the numbers that are computed at once.
_STEP_BYTES = 1 << 22
#: Part of the squares of vectors that their mean must have to be taken from them.
_CENTRED = 0.9
#: Bytes of vectors that stay in the cache of a core while they are measured.
_BLOCK_BYTES = 1 << 18
#: Least number of vectors that are measured at once.
_LEAST_ROWS = 64
#: Bytes of vectors whose products with few queries are computed at once: they are in a cache that
#: processors share. Of fewer vectors, the calls would take as long as the products.
_CACHED_BYTES = 1 << 23
#: Squared lengths between these numbers have all their digits, by the size of the items.
_EXACT = {4: (1e-30, 1e30), 8: (1e-290, 1e290)}
#: The least positive number of 32 bits: smaller parts of distances and products are lost.
_LEAST = float(np.finfo(np.float32).smallest_subnormal)
#: Distances by products that are a smaller part of the squared lengths are measured again.
_CANCELLED = 0.02
#: Most of the pairs that are measured again one by one, as a divisor.
_FEW = 8
#: Products that OpenBLAS computes in one thread have at most so many multiplications. Its threads
#: wait for each other: small products are quicker, above all on a busy machine.
_SINGLE_THREAD = 1 << 18
#: Columns of such a product, more only of short vectors, and fewer only down to a number; and rows
#: that the loops of OpenBLAS take at once.
_COLUMNS, _LEAST_COLUMNS, _ROWS_OF_LOOP = 64, 16, 8
#: Least number of items for which a product with many columns is quicker where there is one thread
#: anyway.
_WIDE = 256
_BITS = np.array([bin(number).count("1") for number in range(256)], np.uint8)


def normalized(vectors: Vectors) -> Vectors:
    """Return vectors with the length 1; those of length 0 have NaN.

    Parameters
    ----------
    vectors : array of shape (vectors, dimension)

    Returns
    -------
    array
        Of float64 for float64, else of float32.
    """
    floats = as_floats(vectors)
    doubles = np.sqrt(np.einsum("ij,ij->i", floats, floats, dtype=np.float64))
    with np.errstate(all="ignore"):
        lengths = np.where(doubles == 0, np.nan, doubles).astype(floats.dtype)
        result: Vectors = floats / lengths[:, None]
    return result


def measured(metric: Metric, queries: Vectors, vectors: Vectors) -> Distances:
    """Return the distance of each vector from each query.

    Parameters
    ----------
    metric : Metric
    queries : array of shape (queries, dimension)
    vectors : array of shape (vectors, dimension)

    Returns
    -------
    float32 array of shape (queries, vectors)
        NaN if there is no distance.
    """
    if metric is Metric.HAMMING:
        return np.stack([_different_bits(query, vectors) for query in queries])
    floats, others = as_floats(vectors), as_floats(queries)
    if metric is Metric.COSINE:
        with np.errstate(all="ignore"):
            near: Distances = 1 - products(normalized(floats), normalized(others).T).T
        return near.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        if metric is Metric.DOT:
            return (1 - products(floats, others.T).T).astype(np.float32, copy=False)
        if len(others) == 1:
            return _squares(floats, others[0])[None].astype(np.float32, copy=False)
        return _squared_differences(others, floats)


def exact(
    metric: Metric, queries: Vectors, vectors: Vectors, pairs: tuple[Int64Array, Int64Array]
) -> Distances:
    """Return the distances of pairs of a query and a vector, computed in float64.

    Parameters
    ----------
    metric : Metric
    queries : array of shape (queries, dimension)
    vectors : array of shape (vectors, dimension)
    pairs : tuple of int64 arrays
        Numbers of the queries, and of the vectors.

    Returns
    -------
    float32 array
        NaN if there is no distance.
    """
    result = np.empty(len(pairs[0]), np.float32)
    step = max(1, _STEP_BYTES // (8 * vectors.shape[1]))
    with np.errstate(all="ignore"):
        for first in range(0, len(result), step):
            rows = slice(first, first + step)
            query, vector = queries[pairs[0][rows]], vectors[pairs[1][rows]]
            if metric is Metric.HAMMING:
                result[rows] = _BITS[query ^ vector].sum(axis=1)
                continue
            left, right = query.astype(np.float64), as_floats(vector).astype(np.float64)
            if metric is Metric.L2:
                left -= right
                result[rows] = _dots(left, left)
                continue
            products = _dots(left, right)
            if metric is Metric.COSINE:
                products /= np.sqrt(_dots(left, left)) * np.sqrt(_dots(right, right))
            result[rows] = 1 - products
    return result


def products(vectors: Vectors, factor: Vectors) -> _Floats:
    """Return a product of matrices, computed in one thread; see `Factor`.

    - `vectors`: Array of shape (vectors, dimension).
    - `factor`: Array of shape (dimension, columns).
    """
    return Factor(factor).products(vectors)


class Factor:
    """The right side of products of matrices that are computed in one thread.

    - `matrix`: Array of shape (dimension, columns).
    - `shape`: Of the matrix.
    - `stack_rows`: Vectors are multiplied so many at a time: a multiple of this number is quickest.
    """

    def __init__(self, matrix: Vectors) -> None:
        dimension, num_columns = self.shape = matrix.shape
        self._matrix = matrix
        rows, columns = _single_thread_shape(dimension, max(1, num_columns))
        self.stack_rows = max(1, rows)
        #: Each part with its columns.
        self._parts: list[tuple[slice, Vectors]] = []
        if num_columns != 1 and not self._is_wide:
            # The rows of a wide matrix lie on as many pages of memory.
            self._parts = [
                (own, np.ascontiguousarray(matrix[:, own]))
                for first in range(0, num_columns, columns)
                for own in [slice(first, first + columns)]
            ]

    def products(self, vectors: Vectors, out: _Floats | None = None) -> _Floats:
        """Return the products of vectors.

        - `vectors`: Array of shape (vectors, dimension).
        - `out` (array of shape (vectors, columns)): Gets the products. Its rows are contiguous.
        """
        matrix, num_rows = self._matrix, len(vectors)
        dimension, num_columns = self.shape
        result: _Floats = np.empty((num_rows, num_columns), matrix.dtype) if out is None else out
        if num_columns == 1:
            np.einsum("ij,j->i", vectors, matrix[:, 0], out=result[:, 0])
            return result
        if self._is_wide:
            return np.matmul(vectors, matrix, out=result)
        rows = max(1, min(num_rows, self.stack_rows))
        whole = num_rows // rows * rows
        stack = vectors[:whole].reshape(-1, rows, dimension)
        stacked = result[:whole].reshape(-1, rows, num_columns)
        for own, part in self._parts:
            np.matmul(stack, part, out=stacked[:, :, own])
            if whole < num_rows:
                np.matmul(vectors[whole:], part, out=result[whole:, own])
        return result

    @property
    def _is_wide(self) -> bool:
        """Whether one product is quicker than many: other threads do not wait for it."""
        dimension, num_columns = self.shape
        return dimension >= _WIDE and num_columns >= _COLUMNS and num_threads() == 1


def _single_thread_shape(dimension: int, num_columns: int) -> tuple[int, int]:
    """Return the rows and columns of a product that OpenBLAS computes in one thread."""
    most = max(_SINGLE_THREAD // dimension, 1)
    columns = max(_COLUMNS, most // _COLUMNS)
    while columns > _LEAST_COLUMNS and most // columns < _ROWS_OF_LOOP:
        columns //= 2
    columns = min(columns, num_columns, most)
    rows = most // columns
    return (rows // _ROWS_OF_LOOP * _ROWS_OF_LOOP or rows), columns


class DistanceBounds:
    """Numbers that show which vectors can be within a distance of queries.

    - `metric`: Not `hamming`.
    - `queries` (array of shape (queries, dimension)): float32 or float64.
    - `vectors` (array of shape (vectors, dimension)): Some of the vectors: their mean is taken from
      all vectors, which makes the products small.
    """

    def __init__(self, metric: Metric, queries: Vectors, vectors: Vectors) -> None:
        self._metric = metric
        dtype = queries.dtype
        eps = float(np.finfo(dtype).eps)
        # A sum of so many products, in any order, twice.
        self._error = 2 * (queries.shape[1] + 8) * eps
        self._lost = 2 * (queries.shape[1] + 8) * _LEAST
        self._smallest, self._largest = _EXACT[dtype.itemsize]
        self._centre: Vectors | None = None
        with np.errstate(all="ignore"):
            if metric is Metric.COSINE:
                factor, self._offsets = -normalized(queries), np.full(len(queries), 1.0)
            elif metric is Metric.DOT:
                factor = -queries
                lengths = _dots(queries, queries)
                self._offsets = 1 - self._error * lengths
            else:
                self._centre = self._find_centre(vectors)
                # A difference from the centre is rounded by a part of itself.
                self._error += 0.0 if self._centre is None else 8 * eps
                moved = queries if self._centre is None else queries - self._centre
                factor = -2 * moved
                lengths = _dots(moved, moved)
                self._offsets = lengths * (1 - self._error)
            is_known = _dots(queries, queries) < self._largest
        self._factor = Factor(np.ascontiguousarray(factor.T))
        self._dtype = dtype
        # Queries of which nothing is known: their squares are not finite.
        self._unknown = np.flatnonzero(~is_known)

    def least(self, vectors: Vectors) -> _Floats:
        """Return numbers of vectors and queries, which `limits` makes comparable.

        Parameters
        ----------
        vectors : array of shape (vectors, dimension)
            float32 or float64, as the queries.

        Returns
        -------
        array of shape (vectors, queries)
            NaN if there is no distance. Minus infinity if nothing is known.
        """
        with np.errstate(all="ignore"):
            squares, values = self._squares_and_products(vectors)
            if self._metric is Metric.COSINE:
                values /= np.sqrt(squares)[:, None]
                values -= np.float32(self._error)
                unknown = ~((squares > self._smallest) & (squares < self._largest))
            else:
                sign = -self._error if self._metric is Metric.DOT else 1 - self._error
                values += (squares * squares.dtype.type(sign))[:, None]
                unknown = ~(squares < self._largest)
            if unknown.any():
                # A vector with NaN has no distance from any query, nor has 0 with `cosine`.
                rows = np.flatnonzero(unknown & ~np.isnan(squares))
                if self._metric is Metric.COSINE:
                    rows = rows[vectors[rows].any(axis=1)]
                values[rows] = -np.inf
            if len(self._unknown):
                values[:, self._unknown] = -np.inf
        return values

    def _squares_and_products(self, vectors: Vectors) -> tuple[_Floats, _Floats]:
        """Return the squares of vectors, seen from the centre, and their products with queries.

        All is computed of some vectors while the processor has them in its cache.
        """
        num_rows, dimension = vectors.shape
        stack = self._factor.stack_rows
        rows = max(stack, _BLOCK_BYTES // max(1, vectors.itemsize * dimension) // stack * stack)
        squares = np.empty(num_rows, vectors.dtype)
        values = np.empty((num_rows, self._factor.shape[1]), vectors.dtype)
        centre = self._centre
        moved = np.empty((0 if centre is None else min(rows, num_rows), dimension), vectors.dtype)
        for first in range(0, num_rows, rows):
            own = slice(first, first + rows)
            part = vectors[own]
            if centre is not None:
                part = np.subtract(part, centre, out=moved[: len(part)])
            np.einsum("ij,ij->i", part, part, out=squares[own])
            self._factor.products(part, values[own])
        return squares, values

    def limits(self, distances: _Floats) -> _Floats:
        """Return for a distance of each query the limit that `least` has to keep."""
        with np.errstate(all="ignore"):
            limits = distances.astype(np.float64) + self._lost - self._offsets
            # Distances are rounded to 32 bits, and so may be the limits.
            limits += (np.abs(limits) + np.abs(self._offsets)) * 1e-6
            rounded: _Floats = limits.astype(self._dtype)
        return np.where(np.isnan(rounded), rounded.dtype.type(np.inf), rounded)

    def _find_centre(self, vectors: Vectors) -> Vectors | None:
        """Return the mean of vectors, if they differ little from it beside their lengths.

        The differences cost a pass over all vectors. Without them, the bounds are wider by the part
        of the squares that the mean has, which matters if it has nearly all.
        """
        squares = _dots(vectors, vectors)
        known = np.flatnonzero(squares < self._largest)
        if not len(known):
            return None
        centre = vectors[known].mean(axis=0, dtype=np.float64)
        if float(centre @ centre) < float(squares[known].mean()) * _CENTRED:
            return None
        result: Vectors = centre.astype(vectors.dtype)
        return result


def step_rows(vectors: Vectors, num_queries: int) -> int:
    """Return the number of vectors that are measured at once."""
    cached = _CACHED_BYTES // max(1, vectors.shape[1] * 4)
    rows = min(max(cached, 4 * num_queries), _STEP_BYTES // max(1, num_queries))
    return int(max(_LEAST_ROWS, rows))


def _dots(left: Vectors, right: Vectors) -> _Floats:
    """Return the products of vectors with the same number, in float64."""
    products: _Floats = np.einsum("ij,ij->i", left, right).astype(np.float64)
    return products


def _squares(vectors: Vectors, query: Vectors) -> _Floats:
    """Return the squared distances of vectors from one query, by their differences."""
    result = np.empty(len(vectors), vectors.dtype)
    rows = step_rows(vectors, 1)
    for first in range(0, len(vectors), rows):
        differences = vectors[first : first + rows] - query
        np.einsum("ij,ij->i", differences, differences, out=result[first : first + rows])
    return result


def _squared_differences(queries: Vectors, vectors: Vectors) -> Distances:
    """Return squared distances by products, and those that are small by differences."""
    squares = [np.einsum("ij,ij->i", items, items) for items in (queries, vectors)]
    sums = squares[0][:, None] + squares[1]
    values = sums - 2 * products(vectors, queries.T).T
    again = ~(values > _CANCELLED * sums)
    for number in np.flatnonzero(again.any(axis=1)).tolist():
        rows = np.flatnonzero(again[number])
        if len(rows) * _FEW > len(vectors):
            values[number] = _squares(vectors, queries[number])
        else:
            values[number, rows] = _squares(vectors[rows], queries[number])
    result: Distances = values.astype(np.float32, copy=False)
    return result


def _different_bits(query: Vectors, vectors: Vectors) -> Distances:
    result = np.empty(len(vectors), np.float32)
    rows = step_rows(vectors, 1)
    for first in range(0, len(vectors), rows):
        differences = vectors[first : first + rows] ^ query
        result[first : first + rows] = _BITS[differences].sum(axis=1, dtype=np.int64)
    return result


# --------------------------------------------------------------------------------------------------
# The nearest centroid of each vector.
#
# The squared distance of a vector from a centroid is the squared length of the vector, which is the
# same for all centroids, and a number that is the product of two longer vectors:
#
# | metric | of the vector | of the centroid | product |
# | --- | --- | --- | --- |
# | `l2`, `cosine` | v, 1 | -2 c, c * c | c * c - 2 v * c |
# | `dot` | v, 1 | -c, 0 | - v * c |
# | `hamming` | bits as -1 and 1, and 1 | as `l2` | as `l2` |
#
# So one product of matrices has the numbers of all vectors and centroids. With `l2`, the mean of
# the centroids is taken from both sides first: far from 0, the numbers would lose their digits.
# Pieces of the product stay in the caches until their smallest numbers are found.

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.uint32]

#: Numbers of a piece of the product, and the most numbers: many centroids need some rows, too.
_PIECE_NUMBERS, _MAX_NUMBERS = 1 << 18, 1 << 22
#: Least number of rows of a piece, if these have not too many numbers.
_LEAST_ROWS_OF_STEP = 1 << 8


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

        - `vectors` (array of shape (rows, dimension)): Without NaN.
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
        least = min(_LEAST_ROWS_OF_STEP, _MAX_NUMBERS // num_centroids)
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

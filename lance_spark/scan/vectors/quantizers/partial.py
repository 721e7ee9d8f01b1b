"""Leaves out most vectors of a partition for many queries, by a few numbers of each vector.

Let p be the projection of a vector on some directions, and r the length of the rest. Then

| distance | is at least |
| --- | --- |
| squared L2 | v * v + q * q - 2 (p(v) * p(q) + r(v) r(q)) |
| 1 - product | 1 - (p(v) * p(q) + r(v) r(q)) |

So one product of narrow matrices shows which vectors can be nearer to a query than its nearest rows
so far. Only these are measured. The directions are the first axes, or those in which a sample of
the vectors differs most. The sample also shows which directions are
worthwhile for a query. Numbers are
compared with a margin for their rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lance_spark.scan.vectors.distances import products
from lance_spark.scan.vectors.ivf import Int64Array

_Floats = npt.NDArray[np.float32]
#: Pairs of a query and a row, and their distances.
Pairs = tuple[Int64Array, Int64Array, _Floats]

#: Least pairs of a query and a vector of a partition for which a sample is worthwhile.
LEAST_PAIRS = 1 << 17
#: Least queries for which vectors are projected.
_LEAST_QUERIES = 64
#: Vectors of each of two samples, and most directions in which those of the first differ.
_SAMPLE, _DIRECTIONS = 128, 64
#: Parts of the items that are tried, too.
_PARTS = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
#: The time to measure a pair alone, in that of a pair of a product of matrices of all items.
_ALONE = 24
#: The time to copy the items of a vector, in the same unit; it does not depend on the queries.
_COPY = 32
#: The time to collect all distances of a query, in the same unit.
_ALL = 1.25
#: Vectors, and numbers of a product, of one step: they stay in the caches.
_STEP_ITEMS, _STEP_NUMBERS = 1 << 20, 1 << 20
#: Items of pairs that are measured in one step.
_PAIR_ITEMS = 1 << 18
_ROUNDING = np.float32(1e-6)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Vectors of a partition, and queries, that are compared item by item.

    Attributes
    ----------
    vectors : callable
        Returns some of the vectors, by their numbers.
    rows : int64 array
        Numbers of the vectors that are compared.
    queries : float32 array of shape (queries, dimension)
    is_product : bool
        Whether the distance is 1 - product; it is the squared L2 distance otherwise.
    """

    vectors: Callable[[Int64Array], _Floats]
    rows: Int64Array
    queries: _Floats
    is_product: bool

    def groups(self, limits: _Floats) -> tuple[list[Projection], Int64Array]:
        """Return queries with the directions that are worthwhile for them, and other queries.

        Parameters
        ----------
        limits : float32 array
            The greatest distance of each query that is of interest.
        """
        num_queries, dimension = self.queries.shape
        if len(self.rows) < 2 * _SAMPLE or num_queries < _LEAST_QUERIES:
            return [], np.arange(num_queries)
        sample = self.vectors(self.rows[:: len(self.rows) // (2 * _SAMPLE)])
        # Directions fit the vectors too well that they were made from: others judge them.
        vectors = sample[1::2]
        directions: list[_Floats | int] = [max(1, int(dimension * part)) for part in _PARTS]
        basis = _basis(sample[::2], max(1, min(_DIRECTIONS, dimension // 8)))
        if basis is not None:
            directions.insert(0, basis)
        chosen = np.full(num_queries, -1)
        costs = np.full(num_queries, _ALL)
        left = np.arange(num_queries)
        for number, direction in enumerate(directions):
            if not len(left):
                break
            tried = Projection(self, left, direction)
            near = tried.rates(vectors, limits[left])
            cost = tried.width / dimension + _ALONE * near + tried.preparation / len(left)
            is_less = cost < costs[left]
            chosen[left[is_less]] = number
            costs[left[is_less]] = cost[is_less]
            # More directions cannot cost less.
            if number + 1 < len(directions):
                following = directions[number + 1]
                least = (following if isinstance(following, int) else 0) / dimension
                left = left[costs[left] > least]
        groups = [
            Projection(self, np.flatnonzero(chosen == number), directions[number])
            for number in np.unique(chosen[chosen >= 0]).tolist()
        ]
        return groups, np.flatnonzero(chosen < 0)

    def near(
        self, groups: list[Projection], limits: Callable[[Int64Array], _Floats]
    ) -> Iterator[Pairs]:
        """Yield the vectors that are within the limits of queries, and some others.

        Parameters
        ----------
        groups : list of Projection
        limits : callable
            Returns the limits of some of the queries, by their numbers. They may decrease.
        """
        step = max(1, _STEP_ITEMS // self.queries.shape[1])
        for first in range(0, len(self.rows) if groups else 0, step):
            rows = self.rows[first : first + step]
            vectors = self.vectors(rows)
            squares = np.einsum("ij,ij->i", vectors, vectors)
            for group in groups:
                for query, row in group.near(vectors, squares, limits):
                    yield query, rows[row], self._measured(query, vectors, row)

    def _measured(self, query: Int64Array, vectors: _Floats, row: Int64Array) -> _Floats:
        """Return the distances of pairs."""
        result = np.empty(len(query), np.float32)
        step = max(1, _PAIR_ITEMS // vectors.shape[1])
        for first in range(0, len(query), step):
            own = slice(first, first + step)
            left, right = self.queries.take(query[own], axis=0), vectors.take(row[own], axis=0)
            if self.is_product:
                result[own] = 1 - np.einsum("ij,ij->i", left, right)
            else:
                left -= right
                np.einsum("ij,ij->i", left, left, out=result[own])
        return result


class Projection:
    """The projections of some queries, and the lengths of the rest.

    Parameters
    ----------
    decoded : Decoded
    numbers : int64 array
        Of the queries.
    directions : int, or float32 array of shape (dimension, directions)
        Number of axes, or orthonormal directions.

    Attributes
    ----------
    width : int
        Number of directions.
    """

    def __init__(self, decoded: Decoded, numbers: Int64Array, directions: _Floats | int) -> None:
        self._numbers, self._directions = numbers, directions
        self._is_product = decoded.is_product
        self.width = directions if isinstance(directions, int) else directions.shape[1]
        queries = decoded.queries[numbers]
        self._dimension: int = queries.shape[1]
        # A sum of so many products, in any order, twice; and that of a projection.
        self._error = np.float32(8 * (queries.shape[1] + 8) * np.finfo(np.float32).eps)
        with np.errstate(all="ignore"):
            squares = np.einsum("ij,ij->i", queries, queries)
            factor = self._projected(queries, squares)
            if self._is_product:
                factor[:, -1] = np.sqrt(squares)
                self._offsets = np.ones(len(queries), np.float32)
            else:
                factor[:, -1] = 1
                self._offsets = squares * (1 - self._error)
        self._factor = np.ascontiguousarray(factor.T)

    @property
    def preparation(self) -> float:
        """The time to project a vector, in that of a pair of a product of all items."""
        width = float(self.width)
        if isinstance(self._directions, int):
            width *= _COPY / self._dimension
        return width

    def rates(self, vectors: _Floats, limits: _Floats) -> npt.NDArray[np.float64]:
        """Return the part of vectors that can be within the limit of each query."""
        factor = self._of_vectors(vectors, np.einsum("ij,ij->i", vectors, vectors))
        step = _STEP_NUMBERS // len(vectors)
        parts = [
            self._can_be_near(factor, own, limits[own]).mean(axis=0)
            for first in range(0, len(self._numbers), step)
            for own in [slice(first, first + step)]
        ]
        return np.concatenate([np.empty(0), *parts])

    def near(
        self, vectors: _Floats, squares: _Floats, limits: Callable[[Int64Array], _Floats]
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Yield numbers of queries, and of vectors that can be within their limits."""
        factor = self._of_vectors(vectors, squares)
        step = max(1, _STEP_NUMBERS // max(1, len(vectors)))
        for first in range(0, len(self._numbers), step):
            own = slice(first, first + step)
            numbers = self._numbers[own]
            near = np.flatnonzero(self._can_be_near(factor, own, limits(numbers)))
            if len(near):
                row, query = np.divmod(near, len(numbers))
                yield numbers[query], row

    def _of_vectors(self, vectors: _Floats, squares: _Floats) -> _Floats:
        """Return what is multiplied with the queries."""
        with np.errstate(all="ignore"):
            factor = self._projected(vectors, squares)
            if self._is_product:
                factor[:, -1] = np.sqrt(squares) * self._error
            else:
                factor[:, -1] = squares * (self._error - 1) / 2
        return factor

    def _can_be_near(self, vectors: _Floats, own: slice, limits: _Floats) -> npt.NDArray[np.bool_]:
        """Return which vectors can be within the limits of some queries.

        Returns
        -------
        bool array of shape (vectors, queries)
        """
        with np.errstate(all="ignore"):
            least = self._offsets[own] - limits
            # Limits are rounded to 32 bits.
            least -= (np.abs(limits) + self._offsets[own]) * _ROUNDING
            if not self._is_product:
                least /= 2
            # Nothing is known of a number that is not finite.
            result: npt.NDArray[np.bool_] = ~(products(vectors, self._factor[:, own]) < least)
        return result

    def _projected(self, vectors: _Floats, squares: _Floats) -> _Floats:
        """Return projections, the length of the rest, and one more number that is not set."""
        width = self.width
        result = np.empty((len(vectors), width + 2), np.float32)
        if isinstance(self._directions, int):
            tail = vectors[:, width:]
            result[:, :width] = vectors[:, :width]
            rest = np.einsum("ij,ij->i", tail, tail) * (1 + self._error)
        else:
            head = products(vectors, self._directions)
            result[:, :width] = head
            # A difference of large numbers.
            rest = squares - np.einsum("ij,ij->i", head, head)
            rest = np.maximum(rest, 0) + self._error * squares
        result[:, width] = np.sqrt(rest)
        return result


def _basis(vectors: _Floats, count: int) -> _Floats | None:
    """Return orthonormal directions in which vectors differ most from 0; None if there are none."""
    wide = vectors.astype(np.float64)
    if not np.isfinite(wide).all():
        return None
    values, turned = np.linalg.eigh(wide @ wide.T)
    largest = np.argsort(-values)[:count]
    largest = largest[values[largest] > values[-1] * 1e-6]
    if not len(largest):
        return None
    # Directions of small values lose their digits.
    basis, _ = np.linalg.qr(wide.T @ turned[:, largest])
    return np.ascontiguousarray(basis.astype(np.float32))

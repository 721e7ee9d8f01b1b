"""Distances of stored vectors from one vector, as intervals that hold the exact distances.

The numbers are computed with the precision of the stored items. `intervals` adds what rounding, and
another order of the additions, can change: a sum of n products is exact to about n units in the
last place of the sum of their magnitudes. Another computation of the same distance, such as that of
the JVM, gives a number inside the interval. So these numbers leave a row out only if its whole
interval is out of range.

| function | value | null if |
| --- | --- | --- |
| `l2_distance` | Euclidean distance | |
| `cosine_distance` | 1 - cosine of the angle | a vector has the length 0 |
| `dot_product` | sum of the products | |

Each is null if a vector or an item is null, and NaN if an item is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

Function = Literal["l2_distance", "cosine_distance", "dot_product"]
FUNCTIONS: tuple[Function, ...] = get_args(Function)

_Vectors = npt.NDArray[Any]
_Floats = npt.NDArray[np.float64]

#: Bytes of the rows that one step computes, with what is derived from them in the caches.
_STEP_BYTES = 1 << 20
#: With more items, the intervals of 32-bit floats are too wide to leave out rows.
MAX_DIMENSION = 1 << 16
#: Squared lengths between these numbers have all their digits, by the size of the items.
_EXACT = {4: (1e-20, 1e30), 8: (1e-290, 1e290)}
#: A relative error that others make, who compute in 64 bits.
_OTHERS = 1e-9


@dataclass(frozen=True, slots=True)
class Distance:
    """A function of stored vectors and one other vector.

    - `function`: One of `FUNCTIONS`.
    - `vector`: Finite numbers, from one to `MAX_DIMENSION`; not all of them 0 for
      "cosine_distance".
    """

    function: Function
    vector: tuple[float, ...]

    def intervals(self, vectors: _Vectors) -> tuple[_Floats, _Floats]:
        """Return the least and the greatest distance that each vector can have.

        - `vectors`: Floats of 32 or 64 bits, of the shape (rows, items); contiguous.

        Returns two NaN for null. Two times plus infinity for NaN, which Spark orders after all
        numbers. From minus to plus infinity if the distance may be anything.
        """
        low = np.empty(len(vectors), np.float64)
        high = np.empty(len(vectors), np.float64)
        other = np.array(self.vector, np.float64)
        rows = max(1, _STEP_BYTES // (vectors.itemsize * vectors.shape[1]))
        with np.errstate(all="ignore"):
            for first in range(0, len(vectors), rows):
                step = slice(first, first + rows)
                low[step], high[step] = self._step(vectors[step], other)
        return low, high

    def _step(self, vectors: _Vectors, other: _Floats) -> tuple[_Floats, _Floats]:
        value, error = self._computed(vectors, other)
        unknown = np.flatnonzero(~np.isfinite(error))
        if len(unknown) and vectors.dtype != np.float64:
            # Squares of 32-bit floats have all their digits in 64 bits.
            wider = vectors[unknown].astype(np.float64)
            value[unknown], error[unknown] = self._computed(wider, other)
            unknown = unknown[~np.isfinite(error[unknown])]
        low, high = value - error, value + error
        if len(unknown):
            remaining = vectors[unknown]
            is_nan = np.isnan(remaining).any(axis=1)
            low[unknown], high[unknown] = np.where(is_nan, np.inf, -np.inf), np.inf
            if self.function == "cosine_distance":
                doubles = remaining.astype(np.float64)
                zeros = unknown[_dots(doubles, doubles) == 0]
                low[zeros] = high[zeros] = np.nan
        return low, high

    def _computed(self, vectors: _Vectors, other: _Floats) -> tuple[_Floats, _Floats]:
        """Return distances and the greatest error of each, which is not finite if it is unknown."""
        limits = np.finfo(vectors.dtype)
        # Twice what a sum of as many products of differences can have.
        relative = (vectors.shape[1] + 4) * float(limits.eps) + _OTHERS
        # Products of small numbers may be rounded to 0.
        vanished = vectors.shape[1] * float(limits.tiny)
        near = other.astype(vectors.dtype)
        # What the other vector loses if the stored items are shorter.
        lost = _length(other - near) * (1 + _OTHERS)
        if self.function == "l2_distance":
            differences = vectors - near
            distances = np.sqrt(_dots(differences, differences))
            return distances, distances * relative + lost + np.sqrt(vanished)
        products = _dots(vectors, near)
        squares = _dots(vectors, vectors)
        length = _length(other)
        if self.function == "dot_product":
            # The magnitudes of the products add up to the product of the lengths, or less.
            lengths = np.sqrt(squares * (1 + relative) + vanished)
            return products, lengths * (length * relative + lost) + vanished
        lengths = np.sqrt(squares) * length
        error = np.full(len(squares), 3 * relative + 2 * lost / length)
        smallest, largest = _EXACT[vectors.itemsize]
        error[(squares < smallest) | ~(squares < largest)] = np.nan
        if not smallest < length * length < largest:
            error[:] = np.nan
        return 1 - products / lengths, error


def _dots(left: _Vectors, right: _Vectors) -> _Floats:
    """Return the product of each row with another row, or with one vector."""
    other = "ij" if right.ndim == 2 else "j"
    products: _Floats = np.einsum(f"ij,{other}->i", left, right).astype(np.float64)
    return products


def _length(vector: _Floats) -> np.float64:
    length: np.float64 = np.sqrt(np.sum(vector * vector))
    return length

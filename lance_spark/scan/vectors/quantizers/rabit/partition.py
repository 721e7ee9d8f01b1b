"""Distances of the vectors of a partition that is stored by RQ, by the formulas of `quantizer`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lance_spark.scan.vectors import distances
from lance_spark.scan.vectors.ivf import Int64Array, Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.lookup import Positions, summed
from lance_spark.scan.vectors.quantizers.quantizer import Distances
from lance_spark.scan.vectors.quantizers.rabit.codes import Factors, Levels, level_center
from lance_spark.scan.vectors.quantizers.rabit.products import level_products, steps
from lance_spark.scan.vectors.quantizers.rabit.rotation import Floats, Rotation

#: Up to this number of queries, sums of 8 dimensions are looked up, not computed.
_FEW_QUERIES = 2
#: The bits of each byte, the least one first.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[None], axis=0, bitorder="little").astype("f4")


@dataclass(frozen=True, slots=True)
class SignCodes:
    """Codes of one bit.

    Attributes
    ----------
    positions : integer array of shape (dimension / 8, rows)
        Where sums of 8 dimensions are (`lookup`). The low byte of each is that of the code.
    """

    positions: Positions

    center = level_center(1)

    @property
    def num_rows(self) -> int:
        """Number of vectors."""
        return len(self.positions[0])

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.positions.nbytes

    def taken(self, rows: Int64Array) -> SignCodes:
        """Return the codes of some rows."""
        return SignCodes(self.positions[:, rows])

    def values(self) -> Floats:
        """Return the value of each dimension, shape (rows, dimension)."""
        return self._levels(slice(None)) - np.float32(self.center)

    def products(self, queries: Floats) -> Floats:
        """Return the product of each query with the levels of each row."""
        result = np.empty((len(queries), self.num_rows), np.float32)
        if len(queries) <= _FEW_QUERIES:
            for number, query in enumerate(queries):
                summed(query.reshape(-1, 8) @ _BITS, self.positions, result[number])
            return result
        factor = np.ascontiguousarray(queries.T)
        for step in steps(self.num_rows, 8 * len(self.positions)):
            result[:, step] = distances.products(self._levels(step), factor).T
        return result

    def _levels(self, step: slice) -> Floats:
        """Return the levels of some rows, shape (rows, dimension)."""
        codes = np.ascontiguousarray(self.positions[:, step].T.astype(np.uint8))
        return np.unpackbits(codes, axis=1, bitorder="little").astype(np.float32)


@dataclass(frozen=True, slots=True)
class LevelCodes:
    """Codes of several bits.

    Attributes
    ----------
    levels : integer array of shape (dimension, rows)
    center : float
        The level that stands for 0.
    """

    levels: Levels
    center: float

    @property
    def num_rows(self) -> int:
        """Number of vectors."""
        return len(self.levels[0])

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.levels.nbytes

    def taken(self, rows: Int64Array) -> LevelCodes:
        """Return the codes of some rows."""
        return LevelCodes(self.levels[:, rows], self.center)

    def values(self) -> Floats:
        """Return the value of each dimension, shape (rows, dimension)."""
        return np.subtract(self.levels.T, self.center, dtype=np.float32)

    def products(self, queries: Floats) -> Floats:
        """Return the product of each query with the levels of each row."""
        return level_products(self.levels, queries)


@dataclass(frozen=True, slots=True)
class RabitPartition:
    """The vectors of one partition, ready to be measured.

    Attributes
    ----------
    metric : Metric
    rotation : Rotation
    codes : SignCodes or LevelCodes
    factors : Factors
    centroid : array of shape (dimension,)
    is_projected : bool
        Whether the add factors of `dot` are scaled by the projection of the query.
    """

    metric: Metric
    rotation: Rotation
    codes: SignCodes | LevelCodes
    factors: Factors
    centroid: Vectors
    is_projected: bool = True

    @property
    def num_rows(self) -> int:
        """Number of vectors."""
        return self.codes.num_rows

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        factors = self.factors
        return self.codes.nbytes + factors.add.nbytes + factors.scale.nbytes + self.centroid.nbytes

    def distances(self, queries: Vectors, rows: Int64Array | None = None) -> Distances:
        """Return the distances of vectors from each query; see `Partition`."""
        codes, add, scale = self.codes, self.factors.add, self.factors.scale
        if rows is not None:
            codes, add, scale = codes.taken(rows), add[rows], scale[rows]
        result = products(codes, self.rotation.rotated(queries))
        result *= scale
        vectors = np.asarray(queries, np.float32)
        centroid = np.asarray(self.centroid, np.float32)
        if self.metric is not Metric.DOT:
            result += add
            result += np.square(vectors - centroid).sum(axis=1, dtype=np.float32)[:, None]
            return result
        product = vectors @ centroid
        if self.is_projected:
            with np.errstate(divide="ignore", invalid="ignore"):
                parts = product / (centroid @ centroid)
            result += np.where(np.isfinite(parts), parts, 0)[:, None] * (add - 1)
        else:
            result += add - 1
        result += (1 - product)[:, None]
        return result

    def decoded(self, queries: Vectors, rows: Int64Array) -> None:
        """Return nothing: distances are estimates; see `Partition`."""

    def measure(self, query: Vectors) -> Callable[[Int64Array], Distances]:
        """Return a function that measures rows; see `Partition`."""
        queries = query[None]
        return lambda rows: self.distances(queries, rows)[0]

    def vectors(self) -> Vectors:
        """Return the decoded differences from the centroid, after the rotation."""
        part = -self.factors.scale if self.metric is Metric.DOT else self.factors.scale / -2
        return self.codes.values() * part[:, None]


def products(codes: SignCodes | LevelCodes, queries: Floats) -> Floats:
    """Return the product of each rotated query with the value of each code."""
    result = codes.products(queries)
    result -= (queries.sum(axis=1, dtype=np.float32) * np.float32(codes.center))[:, None]
    return result

"""The codes and factors of RQ: residuals of vectors, after the random rotation.

| name | what it is |
| --- | --- |
| r, c, q | rotated residual, centroid and query |
| s | sum of the squares of r |
| level | ``2 ** e`` where r >= 0, and the extra code: with `e` = 0, the sign |
| b | level of the sign alone, as -0.5 or 0.5 |
| g | level - 2 ** e + 0.5; the extra code is complemented where r < 0, so g has the sign of r |

The extra code is the size of r, scaled by `t` and rounded down. Any `t` gives right factors; the
best one of a few makes the angle of r and g small.

| factor | `l2`, `cosine` | `dot` |
| --- | --- | --- |
| add | s + 2 s <c,v> / <r,v> | 1 - <r,c> + s <c,v> / <r,v> |
| scale | - 2 s / <r,v> | - s / <r,v> |
| error | 3.8 w | 1.9 w |

v is b, or g for factors of extra codes, and
``w = sqrt(s) * sqrt(max(0, s * dimension / 4 / <r,b>**2 - 1) / (dimension - 1))``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.rabit.rotation import Floats

#: Levels of dimensions: uint8, or uint16 for 9 bits.
Levels = npt.NDArray[Any]

_EPSILON = np.float32(1e-5)
_ERROR = 1.9
#: Where the search of `t` starts, as a part of its end, by number of extra bits.
_STARTS = (0.0, 0.15, 0.20, 0.52, 0.59, 0.71, 0.75, 0.77, 0.81)
#: Values of `t` that are tried.
_TRIALS = 16
#: Items of a chunk that stays in the cache of a processor core.
_CHUNK_ITEMS = 1 << 15


@dataclass(frozen=True, slots=True)
class Factors:
    """Numbers of each row that estimates are made of.

    Attributes
    ----------
    add, scale : float32 arrays
    """

    add: Floats
    scale: Floats


def level_type(num_bits: int) -> npt.DTypeLike:
    """Return the type of levels."""
    return np.uint8 if num_bits <= 8 else np.uint16


def level_center(num_bits: int) -> float:
    """Return the level that stands for 0."""
    return float((1 << (num_bits - 1)) - 0.5)


def levels(rotated: Floats, num_bits: int) -> Levels:
    """Return the level of each dimension of rotated residuals."""
    extra_bits = num_bits - 1
    signs = ~np.signbit(rotated)
    result = np.empty(rotated.shape, level_type(num_bits))
    if not extra_bits:
        result[...] = signs
        return result
    chunk = max(1, _CHUNK_ITEMS // rotated.shape[1])
    for start in range(0, len(rotated), chunk):
        sizes = _rounded(np.abs(rotated[start : start + chunk]), extra_bits)
        result[start : start + chunk] = sizes
    highest = (1 << extra_bits) - 1
    # The complement of a size: what is left to the highest one.
    np.subtract(highest, result, out=result, where=~signs)
    result += signs.astype(result.dtype) << extra_bits
    return result


def factors(
    rotated: Floats, centroids: Floats, level: Levels, num_bits: int, metric: Metric
) -> Factors:
    """Return the factors of levels.

    Parameters
    ----------
    rotated, centroids : float32 arrays of shape (rows, dimension)
        Rotated residuals, and the rotated centroid of each row.
    level : integer array of shape (rows, dimension)
        Levels; for the factors of signs alone, with `num_bits` 1.
    num_bits : int
    metric : Metric
    """
    values = _values(level, num_bits)
    squares = _products(rotated, rotated)
    part = _ratio(squares, _products(rotated, values))
    correction = part * _products(centroids, values)
    if metric is Metric.DOT:
        return Factors(1 - _products(rotated, centroids) + correction, -part)
    return Factors(squares + 2 * correction, -2 * part)


def as_residual(factors: Factors, centroids: Floats, level: Levels) -> Factors:
    """Return factors for the difference of a query from the centroid, as old files have them."""
    added = factors.scale * _products(centroids, _values(level, 1))
    return Factors(factors.add + added, factors.scale * _residual_scale(level.shape[1]))


def from_residual(factors: Factors, products: Floats, dimension: int) -> Factors:
    """Return factors for a query.

    Parameters
    ----------
    factors : Factors
        For the difference of a query from the centroid.
    products : float32 array
        <c,b> of each row.
    dimension : int
    """
    scale = factors.scale / _residual_scale(dimension)
    return Factors(factors.add - scale * products, scale)


def error_factors(rotated: Floats, metric: Metric) -> Floats:
    """Return what lower bounds of estimates by signs are made of."""
    dimension = rotated.shape[1]
    squares = _products(rotated, rotated)
    alignment = np.abs(rotated).sum(axis=1, dtype=np.float32) / 2
    excess = _ratio(squares * np.float32(dimension / 4), alignment * alignment) - 1
    angles = np.sqrt(np.maximum(excess, 0) / (dimension - 1))
    factor = _ERROR if metric is Metric.DOT else 2 * _ERROR
    result: Floats = (np.sqrt(squares) * angles * factor).astype(np.float32)
    return result


def _values(level: Levels, num_bits: int) -> Floats:
    """Return b or g."""
    values: Floats = np.subtract(level, level_center(num_bits), dtype=np.float32)
    return values


def _residual_scale(dimension: int) -> np.float32:
    return np.float32(math.sqrt(dimension) / 2)


def _rounded(sizes: Floats, bits: int) -> Floats:
    """Return the extra codes of sizes of one chunk, as floats."""
    greatest = sizes.max(axis=1, keepdims=True)
    greatest[greatest == 0] = 1
    ratios: Floats = sizes / greatest
    highest = (1 << bits) - 1
    end = highest + 10
    best = np.full(len(sizes), -1, np.float32)
    scales = np.zeros(len(sizes), np.float32)
    for scale in np.linspace(_STARTS[bits] * end, end, _TRIALS, dtype=np.float32):
        codes = _floors(ratios, scale, highest)
        codes += np.float32(0.5)
        score = _products(ratios, codes)
        score /= np.sqrt(_products(codes, codes))
        better = score > best
        best[better], scales[better] = score[better], scale
    return _floors(ratios, scales[:, None], highest)


def _floors(ratios: Floats, scale: Any, highest: int) -> Floats:
    codes: Floats = ratios * scale
    codes += _EPSILON
    np.floor(codes, out=codes)
    np.minimum(codes, np.float32(highest), out=codes)
    return codes


def _products(first: Floats, second: Floats) -> Floats:
    """Return the product of each row with a row."""
    result: Floats = np.einsum("ij,ij->i", first, second)
    return result


def _ratio(numerators: Floats, denominators: Floats) -> Floats:
    """Return quotients, and 0 for a denominator of 0."""
    quotients = np.zeros(len(numerators), np.float32)
    np.divide(numerators, denominators, out=quotients, where=denominators != 0)
    return quotients

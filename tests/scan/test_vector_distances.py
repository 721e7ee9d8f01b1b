"""Intervals of distances hold the exact distances, which decimal numbers of 80 digits compute."""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from lance_spark.scan.vector_distances import FUNCTIONS, Distance, Function

_CONTEXT = decimal.Context(prec=80, Emin=-999_999, Emax=999_999)


def exact(function: Function, left: Any, right: Any) -> Decimal | None:
    """Return a distance; None for null."""
    pairs = [(Decimal(float(a)), Decimal(float(b))) for a, b in zip(left, right, strict=True)]
    with decimal.localcontext(_CONTEXT):
        if function == "l2_distance":
            return sum(((a - b) ** 2 for a, b in pairs), Decimal()).sqrt()
        product = sum((a * b for a, b in pairs), Decimal())
        if function == "dot_product":
            return product
        squares = [sum((pair[side] ** 2 for pair in pairs), Decimal()) for side in (0, 1)]
        if not all(squares):
            return None
        return 1 - product / (squares[0] * squares[1]).sqrt()


def draw(rng: np.random.Generator, dtype: Any) -> tuple[Any, Any]:
    """Return vectors of any magnitude, among them zeros and the other vector itself, and that."""
    # Squares of larger 64-bit floats overflow, of which nothing is known.
    limit = 37 if dtype is np.float32 else 138
    scale = 10.0 ** rng.integers(-limit - 3, limit)
    num_items = int(rng.integers(1, 40))
    vectors = rng.normal(size=(12, num_items)) * scale * 10.0 ** rng.integers(-3, 2, size=(12, 1))
    other = np.clip(rng.normal(size=num_items) * scale * 10.0 ** rng.integers(-5, 5), -1e140, 1e140)
    vectors[0] = 0
    vectors[1] = other
    with np.errstate(over="ignore"):
        return np.nan_to_num(vectors.astype(dtype)), other


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_intervals_hold_the_exact_distances(dtype: Any, function: Function) -> None:
    rng = np.random.default_rng(7)
    num_wide = num_rows = 0
    for _ in range(150):
        vectors, other = draw(rng, dtype)
        low, high = Distance(function, tuple(map(float, other))).intervals(vectors)
        for row, left in enumerate(vectors):
            distance = exact(function, left, other)
            if distance is None:
                assert np.isnan([low[row], high[row]]).all()
                continue
            if np.isinf(low[row]):
                num_wide += 1
            else:
                assert Decimal(low[row]) <= distance <= Decimal(high[row]), (vectors, other)
            num_rows += 1
    assert num_wide < num_rows * 0.05


@pytest.mark.parametrize("function", FUNCTIONS)
def test_intervals_are_narrow(function: Function) -> None:
    rng = np.random.default_rng(3)
    other = rng.normal(size=256)
    for dtype, width in ((np.float32, 1e-3), (np.float64, 1e-7)):
        vectors = rng.normal(size=(9_000, 256)).astype(dtype)
        low, high = Distance(function, tuple(map(float, other))).intervals(vectors)
        scale = 1 if function == "cosine_distance" else 256
        assert ((high - low) < width * scale).all()
        assert len(np.unique(low)) > 8_900


def test_nan_is_after_all_numbers() -> None:
    vectors = np.array([[np.nan, 1], [np.inf, 1], [1, 1]], np.float32)
    for function in FUNCTIONS:
        low, high = Distance(function, (1.0, 2.0)).intervals(vectors)
        assert (low[0], high[0]) == (np.inf, np.inf)
        # An infinite item makes any value, even NaN.
        assert (low[1], high[1]) == (-np.inf, np.inf)
        assert np.isfinite([low[2], high[2]]).all()

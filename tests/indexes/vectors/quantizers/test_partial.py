"""Rows that are left out by projections: never one that is within the limit of a query."""

from __future__ import annotations

import numpy as np
import pytest

from lance_spark.indexes.vectors.quantizers.quantizer import Decoded

ROWS, QUERIES, DIMENSION = 2000, 100, 24


def made(shape: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors and queries."""
    count = ROWS + QUERIES
    values = random.standard_normal((count, DIMENSION))
    if shape == "clusters":
        values = (
            values * 0.2 + random.standard_normal((100, DIMENSION))[random.integers(0, 100, count)]
        )
    elif shape == "far from zero":
        values = values * 0.01 + 100
    elif shape == "flat":
        values[:, 3:] *= 1e-3
    elif shape == "equal":
        values = np.round(values[random.integers(0, 20, count)])
    elif shape == "zeros":
        values[random.random(count) < 0.5] = 0
    elif shape == "huge":
        values *= 1e19
    elif shape == "not finite":
        values[::50, 2] = np.inf
        values[1::50, 4] = np.nan
    elif shape == "tiny":
        values *= 1e-22
    vectors = values.astype(np.float32)
    return vectors[:ROWS], vectors[ROWS:]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "shape",
    [
        *("normal", "clusters", "far from zero", "flat", "equal", "zeros", "huge", "not finite"),
        "tiny",
    ],
)
@pytest.mark.parametrize("is_product", [False, True])
def test_no_near_row_is_left_out(shape: str, is_product: bool) -> None:
    vectors, queries = made(shape, np.random.default_rng(5))
    with np.errstate(all="ignore"):
        if is_product:
            distances = 1 - np.einsum("ij,kj->ik", queries, vectors)
        else:
            differences = queries[:, None] - vectors
            distances = np.einsum("ikj,ikj->ik", differences, differences)
    rows = np.arange(1, ROWS, 2)
    limits = np.sort(np.nan_to_num(distances[:, rows], nan=np.inf), axis=1)[:, 9].astype(np.float32)
    decoded = Decoded(lambda some: vectors[some], rows, queries, is_product)
    groups, others = decoded.groups(limits)
    near_pairs = {(query, row) for query in others.tolist() for row in rows.tolist()}
    num_measured = 0
    for query, row, measured in decoded.near(groups, lambda some: limits[some]):
        num_measured += len(query)
        pairs = list(zip(query.tolist(), row.tolist(), strict=True))
        assert not near_pairs & set(pairs)
        near_pairs |= set(pairs)
        np.testing.assert_allclose(measured, distances[query, row], rtol=1e-5, atol=1e-5)
    query, place = np.nonzero(distances[:, rows] <= limits[:, None])
    missing = set(zip(query.tolist(), rows[place].tolist(), strict=True)) - near_pairs
    assert not missing
    if shape in ("clusters", "flat") and not is_product:
        assert len(others) < QUERIES / 2
        assert num_measured < QUERIES * len(rows) / 10

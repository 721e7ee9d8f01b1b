"""Exact search of vectors of any kind: the rows that distances in float64 choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from lance_spark.indexes.vectors.columns import Metric, VectorType
from lance_spark.indexes.vectors.distances import measured, normalized, products
from lance_spark.indexes.vectors.neighbors import FlatSearch, Neighbors, merged
from lance_spark.indexes.vectors.quantizers.quantizer import vector_list

Vectors = npt.NDArray[Any]
METRICS = (Metric.L2, Metric.DOT, Metric.COSINE)
ROWS, DIMENSION, K = 5000, 24, 7


def exact(metric: Metric, queries: Vectors, vectors: Vectors) -> npt.NDArray[np.float32]:
    left, right = queries.astype(np.float64), vectors.astype(np.float64)
    with np.errstate(all="ignore"):
        if metric is Metric.L2:
            squares: npt.NDArray[np.float64] = ((left[:, None] - right) ** 2).sum(axis=2)
            return squares.astype(np.float32)
        if metric is Metric.COSINE:
            left /= np.sqrt((left**2).sum(axis=1))[:, None]
            right /= np.sqrt((right**2).sum(axis=1))[:, None]
        result: npt.NDArray[np.float32] = (1 - left @ right.T).astype(np.float32)
        return result


def drawn(shape: str, rng: np.random.Generator) -> Vectors:
    """Return vectors of a shape that are hard to measure by products."""
    vectors = rng.normal(size=(ROWS, DIMENSION))
    if shape == "far from 0":
        vectors += 1000
    elif shape == "repeated":
        vectors = vectors[rng.integers(0, 50, ROWS)]
    elif shape == "not finite":
        vectors[::3, 2] = np.nan
        vectors[1::9] = np.inf
        vectors[4::90] = 1e25
    elif shape == "near":
        vectors = vectors[:1] + vectors * 1e-4
    elif shape == "zeros":
        vectors[::2] = 0
    elif shape == "large":
        vectors *= 1e20
    elif shape == "small":
        vectors *= 1e-22
    types = {"float64": np.float64, "float16": np.float16}
    return vectors.astype(types.get(shape, np.float32))


SHAPES = (
    "plain",
    "far from 0",
    "repeated",
    "not finite",
    "near",
    "zeros",
    "large",
    "small",
    "float64",
    "float16",
)


@pytest.mark.sample(5)
@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_an_exact_search(shape: str, metric: Metric) -> None:
    rng = np.random.default_rng(1)
    vectors = drawn(shape, rng)
    dtype = VectorType(vectors.dtype.name, DIMENSION)
    for num_queries in (1, 3, 40):
        noise = rng.normal(size=(num_queries, DIMENSION)) * rng.choice([0, 1e-3, 1])
        queries = vectors[rng.integers(0, ROWS, num_queries)].astype(np.float64) + noise
        queries = dtype.query(queries, metric)
        search = FlatSearch(dtype, metric, queries, K)
        for first in range(0, ROWS, 1234):
            part = vectors[first : first + 1234]
            ids = np.arange(first, first + len(part), dtype=np.uint64)
            items = pa.array(part.reshape(-1))
            search.add(pa.FixedSizeListArray.from_arrays(items, DIMENSION), ids, ids)
        neighbors = search.neighbors()
        distances = exact(metric, queries, vectors)
        for number, own in enumerate(distances):
            order = np.lexsort((np.arange(ROWS), own))
            order = order[~np.isnan(own[order])][:K]
            rows = neighbors.at(neighbors.queries == number)
            np.testing.assert_allclose(rows.distances, own[order], rtol=1e-6, atol=1e-6)
            if metric is not Metric.COSINE:
                assert np.array_equal(rows.ids, order.astype(np.uint64))


@pytest.mark.parametrize("metric", METRICS)
def test_measured_distances(metric: Metric) -> None:
    rng = np.random.default_rng(2)
    vectors = np.concatenate([rng.normal(size=(300, 40)), rng.normal(size=(300, 40)) * 1e-3 + 5])
    queries = np.concatenate([vectors[:4], vectors[300:304] + 1e-4])
    for dtype in (np.float32, np.float64):
        left, right = queries.astype(dtype), vectors.astype(dtype)
        for rows in (left, left[:1]):
            expected = exact(metric, rows, right)
            np.testing.assert_allclose(
                measured(metric, rows, right), expected, rtol=2e-5, atol=2e-6
            )


def test_bits_are_counted() -> None:
    rng = np.random.default_rng(3)
    queries, vectors = (rng.integers(0, 256, (count, 9)).astype(np.uint8) for count in (3, 50))
    expected = np.unpackbits(queries[:, None] ^ vectors, axis=2).sum(axis=2)
    assert np.array_equal(measured(Metric.HAMMING, queries, vectors), expected)


def test_vectors_of_length_0_have_no_direction() -> None:
    result = normalized(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    np.testing.assert_allclose(result, [[0.6, 0.8], [np.nan, np.nan]])


@pytest.mark.parametrize("shape", [(1, 3, 1), (100, 7, 5), (1000, 130, 70), (3, 300_000, 2)])
def test_products_in_pieces(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(4)
    num_rows, dimension, num_columns = shape
    left, right = rng.normal(size=(num_rows, dimension)), rng.normal(size=(dimension, num_columns))
    np.testing.assert_allclose(products(left, right), left @ right, rtol=1e-9, atol=1e-9)


def test_results_are_merged() -> None:
    def rows(ids: list[int], distances: list[float], queries: list[int]) -> Neighbors:
        words = np.array(ids, np.uint64)
        numbers = np.array(queries, np.int32)
        return Neighbors(numbers, np.array(distances, np.float32), words, words)

    parts = [rows([4, 9, 1], [2, 1, 1], [0, 0, 1]), Neighbors.none(), rows([3, 2], [1, 1], [0, 1])]
    best = merged(parts, 2)
    assert best.queries.tolist() == [0, 0, 1, 1]
    assert best.ids.tolist() == [3, 9, 1, 2]
    assert merged([], 3).ids.tolist() == []


@pytest.mark.parametrize("items", ["float32", "float64"])
def test_distances_that_32_bits_round(items: str) -> None:
    """Vectors so near to each other that distances lose digits, or all of them, in 32 bits."""
    rng = np.random.default_rng(21)
    for scale in (1e-18, 1e-20, 1e-30):
        vectors = (rng.normal(size=(2000, 3)) * scale).astype(items)
        queries = (rng.normal(size=(5, 3)) * scale).astype(items)
        search = FlatSearch(VectorType(items, 3), Metric.L2, queries, 4)
        ids = np.arange(2000, dtype=np.uint64)
        for first in (0, 700):
            rows = slice(first, 700 if first == 0 else 2000)
            search.add(vector_list(vectors[rows]), ids[rows], ids[rows])
        neighbors = search.neighbors()
        for number, distances in enumerate(exact(Metric.L2, queries, vectors)):
            order = np.lexsort((ids, distances))[:4]
            own = neighbors.at(neighbors.queries == number)
            np.testing.assert_array_equal(own.ids, ids[order])

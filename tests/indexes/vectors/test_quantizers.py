"""Codes and distances of quantizers, compared with a slow model of the documented layout."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.quantizers import quantizer as lookup
from lance_spark.indexes.vectors.quantizers import scalar
from lance_spark.indexes.vectors.quantizers.flat import FlatQuantizer
from lance_spark.indexes.vectors.quantizers.product import ProductQuantizer
from lance_spark.indexes.vectors.quantizers.quantizer import (
    Quantizer,
    positions_of,
    squared_differences,
    summed,
)
from lance_spark.indexes.vectors.quantizers.scalar import ScalarQuantizer

Array = npt.NDArray[Any]
FLOATS = (Metric.L2, Metric.COSINE, Metric.DOT)
DTYPES = (np.float16, np.float32, np.float64)
QUANTIZER_TYPES = ("FLAT", "SQ", "PQ8", "PQ4", "PQ8 rows")


def quantizer_of(
    quantizer_type: str, metric: Metric, dtype: Any, rng: np.random.Generator
) -> Quantizer:
    """Return a quantizer of vectors of 8 to 24 items."""
    dimension = 8 * int(rng.integers(1, 4))
    if quantizer_type == "FLAT":
        return FlatQuantizer(dimension, metric, np.dtype(dtype))
    if quantizer_type == "SQ":
        return ScalarQuantizer(dimension, metric, -float(rng.random()), float(rng.random()))
    bits = 4 if quantizer_type == "PQ4" else 8
    count = int(rng.choice([2, 4, 8]))
    codebook = rng.normal(size=(count, 2**bits, dimension // count)).astype(dtype)
    return ProductQuantizer(metric, codebook, transposed=quantizer_type != "PQ8 rows")


def vectors_of(
    quantizer: Quantizer, metric: Metric, dtype: Any, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Return vectors, a centroid and queries."""
    count = int(rng.integers(0, 70))
    vectors, centroid, queries = (
        rng.normal(size=(size, quantizer.dimension)) for size in (count, 1, 20)
    )
    if metric is Metric.COSINE:
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return vectors.astype(dtype), centroid[0].astype(dtype), queries.astype(dtype)


def decoded(quantizer: Quantizer, codes: list[Any], centroid: Array) -> Array:
    """Return the vector that a row of codes stands for, item by item."""
    if isinstance(quantizer, FlatQuantizer):
        return np.array(codes, np.float64)
    if isinstance(quantizer, ScalarQuantizer):
        width = (quantizer.end - quantizer.start) / 255
        return np.array([quantizer.start + code * width for code in codes])
    assert isinstance(quantizer, ProductQuantizer)
    if quantizer.num_bits == 4:
        codes = [half for code in codes for half in (code & 15, code >> 4)]
    words = [quantizer.codebook[place][code] for place, code in enumerate(codes)]
    vector: Array = np.concatenate(words).astype(np.float64)
    return vector + centroid if quantizer.encodes_residuals else vector


def expected_distance(quantizer: Quantizer, metric: Metric, query: Array, vector: Array) -> float:
    if metric is Metric.DOT:
        return float(1 - query @ vector)
    if metric is Metric.COSINE and isinstance(quantizer, FlatQuantizer):
        lengths = np.linalg.norm(query) * np.linalg.norm(vector)
        return float(1 - query @ vector / lengths)
    if isinstance(quantizer, ScalarQuantizer):
        # The query is coded, too.
        codes = coded(quantizer, query)
        query = decoded(quantizer, codes, query)
    return float(((query - vector) ** 2).sum())


def coded(quantizer: ScalarQuantizer, vector: Array) -> list[int]:
    width = quantizer.end - quantizer.start
    scaled = [(float(item) - quantizer.start) * 255 / width for item in vector]
    return [min(max(int(item), 0), 255) for item in scaled]


@pytest.mark.sample(8)
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("metric", FLOATS)
@pytest.mark.parametrize("quantizer_type", QUANTIZER_TYPES)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), dtype=st.sampled_from(DTYPES))
def test_distances_are_those_of_the_decoded_vectors(
    quantizer_type: str, metric: Metric, seed: int, dtype: Any
) -> None:
    rng = np.random.default_rng(seed)
    quantizer = quantizer_of(quantizer_type, metric, dtype, rng)
    vectors, centroid, queries = vectors_of(quantizer, metric, dtype, rng)
    codes = quantizer.encode(vectors, np.broadcast_to(centroid, vectors.shape))
    stored = quantizer.stored(codes)
    assert stored.schema == codes.schema == quantizer.fields
    assert quantizer.unstored(stored).equals(codes)
    partition = quantizer.open_partition(stored, centroid)
    assert partition.num_rows == len(vectors)
    assert partition.nbytes >= stored.num_rows
    distances = partition.distances(queries)
    rows = [decoded(quantizer, row, centroid) for row in codes.column(0).to_pylist()]
    expected = np.array(
        [
            [expected_distance(quantizer, metric, query.astype(np.float64), row) for row in rows]
            for query in queries
        ]
    ).reshape(len(queries), len(rows))
    # The differences from a centroid are rounded to the type of the column.
    tolerance = 2e-2 if dtype is np.float16 else 2e-5
    np.testing.assert_allclose(distances, expected, rtol=tolerance, atol=tolerance)
    assert distances.dtype == np.float32
    # A query alone, some of the rows, and a measure of a query give the same.
    part = rng.permutation(len(vectors))[: len(vectors) // 2]
    measure = partition.measure(queries[3])
    for alone in (partition.distances(queries[3:4], part)[0], measure(part)):
        np.testing.assert_allclose(alone, distances[3, part], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("quantizer_type", QUANTIZER_TYPES)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), metric=st.sampled_from(FLOATS), dtype=st.sampled_from(DTYPES))
def test_codes_are_the_nearest(quantizer_type: str, seed: int, metric: Metric, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    quantizer = pickle.loads(pickle.dumps(quantizer_of(quantizer_type, metric, dtype, rng)))
    vectors, centroid, _ = vectors_of(quantizer, metric, dtype, rng)
    codes = quantizer.encode(vectors, np.broadcast_to(centroid, vectors.shape))
    lists = codes.column(0).to_pylist()
    if isinstance(quantizer, FlatQuantizer):
        assert np.array_equal(np.array(lists, dtype).reshape(vectors.shape), vectors)
    elif isinstance(quantizer, ScalarQuantizer):
        assert lists == [coded(quantizer, vector) for vector in vectors]
    else:
        assert isinstance(quantizer, ProductQuantizer)
        book = quantizer.codebook.astype(np.float64)
        moved = vectors - centroid if quantizer.encodes_residuals else vectors
        parts = moved.astype(np.float64).reshape(len(vectors), len(book), 1, book.shape[2])
        distances = ((parts - book) ** 2).sum(axis=3)
        for row, numbers in enumerate(lists):
            halves = [half for code in numbers for half in (code & 15, code >> 4)]
            chosen_words = halves if quantizer.num_bits == 4 else numbers
            chosen = distances[row][np.arange(len(book)), chosen_words]
            np.testing.assert_allclose(chosen, distances[row].min(axis=1), rtol=1e-4, atol=1e-5)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_rows_of_codes_are_independent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    quantizer_type = str(rng.choice(QUANTIZER_TYPES))
    quantizer = quantizer_of(quantizer_type, Metric.L2, np.float32, rng)
    vectors, centroid, _ = vectors_of(quantizer, Metric.L2, np.float32, rng)
    codes = quantizer.encode(vectors, np.broadcast_to(centroid, vectors.shape))
    order = rng.permutation(len(vectors))
    again = quantizer.encode(vectors[order], np.broadcast_to(centroid, vectors.shape))
    assert again.equals(codes.take(order)) or codes.num_rows == 0


def test_bits_that_differ() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.integers(0, 256, (40, 8)).astype(np.uint8)
    quantizer = FlatQuantizer(8, Metric.HAMMING, np.dtype(np.uint8))
    codes = quantizer.encode(vectors, vectors)
    partition = quantizer.open_partition(quantizer.stored(codes), vectors[0])
    expected = [[bin(int.from_bytes(a ^ b)).count("1") for b in vectors] for a in vectors[:3]]
    assert partition.distances(vectors[:3]).tolist() == expected
    assert partition.vectors().dtype == np.uint8


@pytest.mark.parametrize("quantizer_type", QUANTIZER_TYPES)
def test_decoded_vectors_have_distances_in_the_same_order(quantizer_type: str) -> None:
    rng = np.random.default_rng(2)
    quantizer = quantizer_of(quantizer_type, Metric.L2, np.float32, rng)
    vectors = rng.normal(size=(50, quantizer.dimension)).astype(np.float32)
    centroid = vectors[7]
    codes = quantizer.encode(vectors, np.broadcast_to(centroid, vectors.shape))
    partition = quantizer.open_partition(quantizer.stored(codes), centroid)
    decoded_vectors = partition.vectors()
    origin = centroid if isinstance(quantizer, ProductQuantizer) else 0
    from_first = ((decoded_vectors - decoded_vectors[0]) ** 2).sum(axis=1)
    distances = partition.distances((decoded_vectors[0] + origin)[None])[0]
    # A lower end of an interval can have the code before.
    tolerance = 0.1 if quantizer_type == "SQ" else 1e-3
    np.testing.assert_allclose(distances, from_first, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=[False, True], ids=["numpy", "numba"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look up items by numpy, and by the loop that numba compiles."""
    if request.param:
        pytest.importorskip("numba")
        assert lookup.LOOP.loop is not None
        assert scalar.LOOP.loop is not None
    for module in (lookup, scalar):
        monkeypatch.setattr(module.LOOP, "min_items", -1 if request.param else 1 << 62)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("count", [1, 6, 16, 256, 257, 600])
def test_any_number_of_bytes_is_looked_up(count: int) -> None:
    rng = np.random.default_rng(3)
    columns = rng.integers(0, 256, (count, 1_000)).astype(np.uint8)
    tables = rng.random((count, 256), np.float32)
    distances = np.empty(1_000, np.float32)
    summed(tables, positions_of(columns), distances)
    expected = tables[np.arange(count)[:, None], columns].sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(distances, expected, rtol=1e-5)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("count", "items"), [(1, 1), (16, 8), (48, 16), (5, 7)])
def test_tables_have_the_same_bits(count: int, items: int) -> None:
    rng = np.random.default_rng(count)
    columns = rng.standard_normal((count, items, 256)).astype(np.float32)
    query = rng.standard_normal(count * items).astype(np.float32)
    expected = np.zeros((count, 256), np.float32)
    for item in range(items):
        expected += (columns[:, item] - query.reshape(count, items)[:, item, None]) ** 2
    assert np.array_equal(squared_differences(query, columns), expected)


def test_bounds_that_are_equal_and_numbers_that_are_not_finite() -> None:
    quantizer = ScalarQuantizer(4, Metric.L2, 1.0, 1.0)
    rows = np.array([[1.0, 0.0, 2.0, 1e300], [np.inf, -np.inf, np.nan, 1.0]])
    codes = quantizer.encode(rows, rows).column(0).to_pylist()
    assert codes == [[0, 0, 255, 255], [255, 0, 0, 0]]
    partition = quantizer.open_partition(quantizer.encode(rows, rows), rows[0])
    assert partition.distances(rows[:1]).tolist() == [[0.0, 0.0]]

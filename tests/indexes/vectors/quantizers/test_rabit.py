"""RQ: rotations, levels, factors and estimates."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.indexes.vectors.columns import Metric, Vectors
from lance_spark.indexes.vectors.quantizers import quantizer as lookup
from lance_spark.indexes.vectors.quantizers import rabit, rabit_codes
from lance_spark.indexes.vectors.quantizers.quantizer import StoredModel
from lance_spark.indexes.vectors.quantizers.rabit import RabitQuantizer
from lance_spark.indexes.vectors.quantizers.rabit_codes import FastRotation, MatrixRotation

METRICS = [Metric.L2, Metric.COSINE, Metric.DOT]


def _vectors(rows: int, dimension: int, seed: int = 0) -> Vectors:
    return np.random.default_rng(seed).standard_normal((rows, dimension)).astype(np.float32)


def _fast(dimension: int) -> FastRotation:
    rotation = RabitQuantizer.new(Metric.L2, dimension, seed=dimension).rotation
    assert isinstance(rotation, FastRotation)
    return rotation


def _slow_rotation(vector: Vectors, signs: bytes) -> Vectors:
    """The documented rounds, a value at a time."""
    values, dimension = vector.astype(float), len(vector)
    length = 2 ** int(math.log2(dimension))
    for number in range(4):
        for place in range(dimension):
            byte = signs[number * dimension // 8 + place // 8]
            if byte >> place % 8 & 1:
                values[place] = -values[place]
        first = dimension - length if number % 2 else 0
        part, half = values[first : first + length].copy(), 1
        while half < length:
            for place in range(length):
                if not place & half:
                    x, y = part[place], part[place + half]
                    part[place], part[place + half] = x + y, x - y
            half *= 2
        values[first : first + length] = part / math.sqrt(length)
        if length != dimension:
            left, right = values[: dimension // 2].copy(), values[dimension // 2 :].copy()
            values = np.concatenate([left + right, left - right])
    return values if length == dimension else values / 4


@pytest.mark.parametrize("dimension", [8, 16, 24, 64, 136, 256, 264, 768])
def test_fast_rotation(dimension: int) -> None:
    rotation, vectors = _fast(dimension), _vectors(5, dimension)
    rotated = rotation.rotated(vectors)
    assert rotated.dtype == np.float32
    np.testing.assert_allclose(rotated[2], _slow_rotation(vectors[2], rotation.signs), atol=1e-4)
    np.testing.assert_allclose(rotation.in_rounds(vectors), rotated, atol=1e-4)
    # Products and lengths stay as they are.
    np.testing.assert_allclose(rotated @ rotated.T, vectors @ vectors.T, atol=1e-2)


def test_rotation_leaves_its_input_as_it_is() -> None:
    for dimension in (64, 264):
        vectors = _vectors(3, dimension)
        _fast(dimension).rotated(vectors)
        np.testing.assert_array_equal(vectors, _vectors(3, dimension))


def _opened(
    quantizer: RabitQuantizer, vectors: Vectors, centroid: Vectors
) -> tuple[pa.RecordBatch, Any]:
    encoded = quantizer.encode(vectors, np.broadcast_to(centroid, vectors.shape))
    assert encoded.schema.equals(quantizer.fields)
    stored = quantizer.stored(encoded)
    assert quantizer.unstored(stored).equals(encoded)
    return stored, quantizer.open_partition(stored, centroid)


def _exact(metric: Metric, queries: Vectors, vectors: Vectors) -> Vectors:
    distances: Vectors = 1 - queries @ vectors.T
    if metric is not Metric.DOT:
        distances = np.square(queries[:, None] - vectors).sum(axis=2)
    return distances


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("num_bits", range(1, 10))
def test_estimates(metric: Metric, num_bits: int) -> None:
    dimension = 72
    quantizer = RabitQuantizer.new(metric, dimension, num_bits, seed=num_bits)
    centroid = _vectors(1, dimension, 7)[0]
    vectors, queries = centroid + _vectors(150, dimension, 1) / 2, _vectors(4, dimension, 2)
    queries[0] = vectors[0]
    _, partition = _opened(quantizer, vectors, centroid)
    estimates = partition.distances(queries)
    assert estimates.dtype == np.float32
    errors = np.abs(estimates - _exact(metric, queries, vectors))
    # The error of an angle: half of it for each bit.
    spread = np.linalg.norm(queries - centroid, axis=1)[:, None] * np.linalg.norm(
        vectors - centroid, axis=1
    )
    assert (errors / spread).max() < 2 / 2**num_bits
    one_by_one = [partition.distances(query[None])[0] for query in queries]
    np.testing.assert_allclose(one_by_one, estimates, atol=1e-3)
    rows = np.array([149, 3, 3, 40])
    np.testing.assert_allclose(partition.distances(queries, rows), estimates[:, rows], atol=1e-3)
    np.testing.assert_allclose(partition.measure(queries[1])(rows), estimates[1, rows], atol=1e-3)
    # Decoded vectors are rotated differences from the centroid.
    rotated = quantizer.rotation.rotated(vectors - centroid)
    lengths = np.linalg.norm(rotated, axis=1)
    distances = np.linalg.norm(partition.vectors() - rotated, axis=1) / lengths
    assert distances.max() < 3 / 2**num_bits
    assert partition.num_rows == 150
    assert 0 < partition.nbytes < 150 * (dimension * 2 + 8) + 4 * dimension + 1


@pytest.mark.parametrize("num_bits", [2, 5, 9])
def test_levels_are_near_the_best(num_bits: int) -> None:
    """Against all levels that a scale of the residual can give."""
    rotated = _vectors(20, 48)
    center = rabit_codes.level_center(num_bits)
    values = rabit_codes.levels(rotated, num_bits) - center
    np.testing.assert_array_equal(np.sign(values), np.sign(rotated))
    cosines = (rotated * values).sum(axis=1) / np.linalg.norm(values, axis=1)
    highest = (1 << num_bits - 1) - 1
    scales = np.linspace(0.05, 1, 3000)[:, None] * (highest + 10)
    for row, cosine in zip(np.abs(rotated), cosines, strict=True):
        tried = np.minimum(np.floor(row / row.max() * scales + 1e-5), highest) + 0.5
        best = ((tried @ row) / np.linalg.norm(tried, axis=1)).max()
        length = np.linalg.norm(row)
        assert 1 - cosine / length <= (1 - best / length) * 1.6 + 1e-7


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("num_bits", [1, 5])
def test_vectors_that_are_their_centroid(metric: Metric, num_bits: int) -> None:
    centroid, queries = _vectors(1, 16)[0], _vectors(2, 16, 1)
    vectors = np.stack([centroid, centroid])
    _, partition = _opened(RabitQuantizer.new(metric, 16, num_bits), vectors, centroid)
    np.testing.assert_allclose(
        partition.distances(queries), _exact(metric, queries, vectors), rtol=1e-5
    )


def test_centroid_of_zeros() -> None:
    vectors = _vectors(40, 16)
    quantizer = RabitQuantizer.new(Metric.DOT, 16, 9, seed=1)
    _, partition = _opened(quantizer, vectors, np.zeros(16, np.float32))
    distances = partition.distances(vectors[:3])
    np.testing.assert_allclose(distances, _exact(Metric.DOT, vectors[:3], vectors), atol=0.2)


@pytest.mark.parametrize("metric", METRICS)
def test_old_factors(metric: Metric) -> None:
    centroid = _vectors(1, 24, 7)[0]
    vectors, queries = _vectors(70, 24, 1), _vectors(3, 24, 2)
    new = RabitQuantizer.new(metric, 24, 1, seed=1)
    old = RabitQuantizer(metric, 1, new.rotation, has_residual_factors=True)
    batch, partition = _opened(old, vectors, centroid)
    assert "__error_factors" not in batch.schema.names
    if metric is not Metric.DOT:
        expected = _opened(new, vectors, centroid)[1].distances(queries)
        np.testing.assert_allclose(partition.distances(queries), expected, atol=1e-3)
    else:
        shift = queries @ centroid
        residuals = RabitQuantizer.new(Metric.DOT, 24, 1, seed=1)
        zero = np.zeros(24, np.float32)
        expected = _opened(residuals, vectors - centroid, zero)[1].distances(queries - centroid)
        base = (centroid * vectors).sum(axis=1) - centroid @ centroid
        expected = expected - shift[:, None] - base
        np.testing.assert_allclose(partition.distances(queries), expected, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_types(dtype: type) -> None:
    vectors: Vectors = _vectors(50, 32).astype(dtype)
    _, partition = _opened(RabitQuantizer.new(Metric.L2, 32, 9), vectors, vectors[3])
    assert partition.distances(vectors[:1]).argmin() == 0


@pytest.mark.parametrize("num_bits", [1, 5, 9])
def test_compiled_loops(num_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    vectors, queries = _vectors(70, 48), _vectors(1, 48, 1)
    quantizer = RabitQuantizer.new(Metric.L2, 48, num_bits, seed=1)
    result = []
    for least in (1 << 62, -1):
        for loop in (rabit.LOOP, lookup.LOOP):
            monkeypatch.setattr(loop, "min_items", least)
        result.append(_opened(quantizer, vectors, vectors[0])[1].distances(queries))
    assert rabit.LOOP.loop is not None
    np.testing.assert_allclose(result[0], result[1], rtol=1e-4)


def test_no_rows() -> None:
    for num_bits in (1, 3):
        quantizer = RabitQuantizer.new(Metric.L2, 16, num_bits)
        none = np.empty((0, 16), np.float32)
        stored, partition = _opened(quantizer, none, _vectors(1, 16)[0])
        assert stored.num_rows == 0
        assert partition.distances(_vectors(3, 16)).shape == (3, 0)


def test_many_rows_are_encoded_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, centroids = _vectors(100, 16), _vectors(100, 16, 1)
    quantizer = RabitQuantizer.new(Metric.DOT, 16, 3)
    whole = quantizer.encode(vectors, centroids)
    module = "lance_spark.indexes.vectors.quantizers.rabit"
    monkeypatch.setattr(f"{module}._STEP_ITEMS", 16 * 30)
    parts = quantizer.encode(vectors, centroids)
    for name in ("_rabit_codes", "__blocked_ex_codes"):
        assert parts.column(name).equals(whole.column(name))


def _stored(metadata: Any, buffers: Sequence[bytes] = ()) -> StoredModel:
    centroids = np.zeros((2, 16), np.float32)
    return StoredModel(metadata, Metric.L2, centroids, buffers.__getitem__, (), "file")


def test_metadata() -> None:
    quantizer = RabitQuantizer.new(Metric.L2, 16, 3)
    metadata = json.loads(json.dumps(quantizer.metadata(())))
    assert RabitQuantizer.open(_stored(metadata)) == quantizer
    assert pickle.loads(pickle.dumps(quantizer)) == quantizer
    matrix = np.linalg.qr(_vectors(16, 16))[0]
    turned = RabitQuantizer(Metric.L2, 1, MatrixRotation(matrix))
    (buffer,) = turned.buffers()
    opened = RabitQuantizer.open(_stored(turned.metadata([0]), [buffer]))
    assert isinstance(opened.rotation, MatrixRotation)
    np.testing.assert_array_equal(opened.rotation.matrix, matrix)
    vectors = _vectors(30, 16)
    distances = _opened(opened, vectors, vectors[0])[1].distances(vectors)
    np.testing.assert_allclose(
        distances, _opened(turned, vectors, vectors[0])[1].distances(vectors)
    )
    with pytest.raises(UnsupportedFeatureError, match="no model"):
        turned.model()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_bits": 0}, "num_bits must be an integer from 1 to 9"),
        ({"num_bits": 10}, "num_bits"),
        ({"num_bits": True}, "num_bits"),
        ({"code_dim": 24}, "code_dim"),
        ({"packed": None}, "packed must be true or false"),
        ({"fast_rotation_signs": None}, "fast_rotation_signs must have 8 bytes"),
        ({"fast_rotation_signs": [1] * 7}, "fast_rotation_signs"),
        ({"fast_rotation_signs": [256] * 8}, "fast_rotation_signs"),
        ({"fast_rotation_signs": ["a"] * 8}, "fast_rotation_signs"),
        ({"rotation_type": "matrix"}, "rotate_mat_position"),
    ],
)
def test_damaged_metadata(changes: dict[str, Any], message: str) -> None:
    metadata = {**RabitQuantizer.new(Metric.L2, 16).metadata(()), **changes}
    with pytest.raises(CorruptFileError, match=message):
        RabitQuantizer.open(_stored(metadata))


@pytest.mark.parametrize(
    "changes",
    [{"layout": "layered"}, {"query_estimator": "other"}, {"rotation_type": "other"}],
)
def test_unknown_forms(changes: dict[str, Any]) -> None:
    metadata = {**RabitQuantizer.new(Metric.L2, 16).metadata(()), **changes}
    with pytest.raises(UnsupportedFeatureError, match=r"known"):
        RabitQuantizer.open(_stored(metadata))


@pytest.mark.parametrize("column", ["__ex_codes", "__rq_bounds_hi"])
def test_unknown_columns(column: str) -> None:
    metadata = RabitQuantizer.new(Metric.L2, 16).metadata(())
    stored = replace(_stored(metadata), columns=("_rowid", "_rabit_codes", column))
    with pytest.raises(UnsupportedFeatureError, match=f"'{column}' are not known"):
        RabitQuantizer.open(stored)


def test_several_bits_of_old_releases() -> None:
    metadata = dict(RabitQuantizer.new(Metric.L2, 16).metadata(()))
    del metadata["query_estimator"]
    with pytest.raises(UnsupportedFeatureError, match="5 bits"):
        RabitQuantizer.open(_stored(metadata))


def test_matrix_of_another_shape() -> None:
    turned = RabitQuantizer(Metric.L2, 1, MatrixRotation(np.eye(8, dtype=np.float32)))
    buffer = turned.buffers()[0]
    metadata = {**turned.metadata([0]), "code_dim": 0}
    with pytest.raises(CorruptFileError, match="shape"):
        RabitQuantizer.open(_stored(metadata, [buffer]))


def test_given_model() -> None:
    quantizer = RabitQuantizer.new(Metric.L2, 16, 3)
    assert RabitQuantizer.of_model(Metric.L2, 16, 3, quantizer.model()) == quantizer
    for model, dimension, num_bits, message in [
        ("no JSON", 16, 3, "must be the JSON"),
        ("[]", 16, 3, "must be the JSON"),
        (quantizer.model(), 24, 3, "not a model for this column"),
        (quantizer.model(), 16, 4, "num_bits is 4"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            RabitQuantizer.of_model(Metric.L2, dimension, num_bits, model)


@pytest.mark.parametrize(
    ("metric", "dimension", "num_bits", "message"),
    [
        (Metric.HAMMING, 16, 1, "metric"),
        (Metric.L2, 12, 1, "multiple of 8"),
        (Metric.L2, 0, 1, "multiple of 8"),
        (Metric.L2, 16, 10, "from 1 to 9"),
    ],
)
def test_refused(metric: Metric, dimension: int, num_bits: int, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        RabitQuantizer.new(metric, dimension, num_bits)


def test_seeds() -> None:
    def signs(seed: int | None) -> bytes:
        rotation = RabitQuantizer.new(Metric.L2, 64, seed=seed).rotation
        assert isinstance(rotation, FastRotation)
        return rotation.signs

    assert signs(1) == signs(1) != signs(2)
    assert signs(None) != signs(None)

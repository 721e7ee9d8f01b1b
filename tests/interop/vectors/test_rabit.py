"""IVF_RQ beside pylance: codes, factors, estimates and rows, in both directions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.lance import indices

import lance_spark
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.vectors.columns import Metric, Vectors
from lance_spark.indexes.vectors.quantizers import rabit_codes
from lance_spark.indexes.vectors.quantizers.quantizer import matrix
from lance_spark.indexes.vectors.quantizers.rabit import RabitQuantizer
from lance_spark.indexes.vectors.segment import VectorSegment, open_segment
from lance_spark.table.indexes.sections import read_section
from tests.support.cells import every_other

ROWS, PARTITIONS = 900, 3
METRICS = ["l2", "cosine", "dot"]


def _write(path: Path, dimension: int, dtype: Any = np.float32, rows: int = ROWS) -> Vectors:
    """Write a table of clustered vectors, and return them."""
    random = np.random.default_rng(dimension)
    centers = random.standard_normal((12, dimension))
    noise = random.standard_normal((rows, dimension)) / 2
    vectors: Vectors = (centers[random.integers(0, 12, rows)] + noise).astype(dtype)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), dimension)
    lance.write_dataset(pa.table({"id": range(rows), "v": column}), str(path))
    return vectors


def _segment(path: Path) -> VectorSegment:
    table = lance_spark.open_dataset(str(path))._table
    (metadata,) = read_section(table.manifest).indices
    segment = open_segment(IndexFiles(table.paths, metadata))
    assert segment is not None
    return segment


def _answer(dataset: Any, query: Vectors, **keys: Any) -> dict[int, float]:
    """Return ids and distances of one query."""
    nearest = {"column": "v", "q": query, "nprobes": PARTITIONS, **keys}
    if isinstance(dataset, lance.LanceDataset):
        nearest["approx_mode"] = "accurate"
    table = dataset.to_table(columns=["id", "_distance"], nearest=nearest)
    return dict(zip(table["id"].to_pylist(), table["_distance"].to_pylist(), strict=True))


def _check_equal(own: Mapping[int, float], other: Mapping[int, float]) -> None:
    """Check that two clients have the same rows, but for distances that are nearly equal.

    pylance rounds its tables to 16 bits. It skips rows by their signs alone, and now and then one
    that is near.
    """
    assert len(own) == len(other)
    scale = max(map(abs, other.values()))
    worst = max(own.values()) - 1e-3 * scale
    assert len({row for row in own if own[row] < worst} - set(other)) <= 1
    for row in set(own) & set(other):
        assert abs(own[row] - other[row]) < 1e-3 * scale


CASES = [
    *((metric, bits, 72, np.float32) for metric in METRICS for bits in (1, 5)),
    *(("l2", bits, 64, np.float32) for bits in (2, 3, 4, 6, 7, 8, 9)),
    *((metric, 5, 16, dtype) for metric in METRICS for dtype in (np.float16, np.float64)),
    ("l2", 5, 520, np.float32),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("metric", "num_bits", "dimension", "dtype"), CASES)
def test_codes_of_pylance(
    metric: str, num_bits: int, dimension: int, dtype: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t.lance"
    vectors = _write(path, dimension, dtype)
    theirs = lance.dataset(str(path)).create_index(
        "v", "IVF_RQ", metric=metric, num_partitions=PARTITIONS, num_bits=num_bits
    )
    segment = _segment(path)
    quantizer = segment.quantizer
    assert isinstance(quantizer, RabitQuantizer)
    assert quantizer.num_bits == num_bits
    encoded = vectors
    if metric == "cosine":
        lengths = np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
        encoded = (vectors / lengths).astype(dtype)
    tolerance = 2e-3 if dtype is np.float16 else 2e-4
    for number, centroid in enumerate(segment.ivf.centroids):
        ids, stored = segment.stored(number)
        rows = quantizer.unstored(stored)
        assert quantizer.stored(rows).equals(stored)
        centroids = np.broadcast_to(centroid, (len(ids), dimension))
        own = quantizer.encode(encoded[ids], centroids)
        bits = [
            np.unpackbits(matrix(batch.column(0)), axis=1, bitorder="little")
            for batch in (own, rows)
        ]
        # A value that rounds to either side of 0 has another sign, and its row other factors.
        rotated = np.abs(quantizer.rotation.rotated(encoded[ids] - centroids))
        assert rotated[bits[0] != bits[1]].max(initial=0) < tolerance * rotated.max()
        equal = pa.array((bits[0] == bits[1]).all(axis=1))
        for name in ("__add_factors", "__scale_factors", "__error_factors"):
            _check_close(own.column(name).filter(equal), rows.column(name).filter(equal), tolerance)
        if num_bits > 1:
            _check_extra(quantizer, rows, encoded[ids], centroids, tolerance)
    own_dataset = lance_spark.open_dataset(str(path))
    for row in (0, 5):
        query = vectors[row] + np.asarray(0.1, dtype)
        for keys in ({"k": ROWS}, {"k": 10}, {"k": 10, "nprobes": 1}):
            _check_equal(_answer(own_dataset, query, **keys), _answer(theirs, query, **keys))


def _check_close(own: pa.Array, other: pa.Array, tolerance: float) -> None:
    scale = np.abs(other.to_numpy()).max()
    np.testing.assert_allclose(own.to_numpy(), other.to_numpy(), tolerance, tolerance * scale)


def _check_extra(
    quantizer: RabitQuantizer,
    rows: pa.RecordBatch,
    vectors: Vectors,
    centroids: Vectors,
    tolerance: float,
) -> None:
    """Factors of the levels of pylance are right; levels of this package are about as good."""
    rotated = quantizer.rotation.rotated(vectors - centroids)
    extra = rabit_codes.unpack_extra(
        matrix(rows.column("__blocked_ex_codes")), quantizer.extra_bits, quantizer.dimension
    )
    signs = np.unpackbits(matrix(rows.column(0)), axis=1, bitorder="little")
    level = extra.astype(np.uint16) | signs.astype(np.uint16) << quantizer.extra_bits
    factors = rabit_codes.factors(
        rotated, quantizer.rotation.rotated(centroids), level, quantizer.num_bits, quantizer.metric
    )
    _check_close(pa.array(factors.add), rows.column("__add_factors_ex"), tolerance)
    _check_close(pa.array(factors.scale), rows.column("__scale_factors_ex"), tolerance)

    def angles(level: Any) -> float:
        values = level - rabit_codes.level_center(quantizer.num_bits)
        products = (values * rotated).sum(axis=1)
        lengths = np.linalg.norm(values, axis=1) * np.linalg.norm(rotated, axis=1)
        return float((1 - products / lengths).mean())

    own = angles(rabit_codes.levels(rotated, quantizer.num_bits))
    assert own < angles(level) * (1.05 if quantizer.num_bits < 7 else 1.25) + 1e-6


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("metric", "num_bits"), every_other(itertools.product(METRICS, [1, 5, 9]), 0)
)
def test_index_for_pylance(metric: str, num_bits: int, tmp_path: Path) -> None:
    """pylance searches an index of this package, and finds as much as in its own of this model."""
    path, copy = tmp_path / "t.lance", tmp_path / "copy.lance"
    vectors, _ = _write(path, 40, rows=3000), _write(copy, 40, rows=3000)
    own = lance_spark.open_dataset(str(path)).create_index(
        "v", "IVF_RQ", metric=metric, num_partitions=PARTITIONS, num_bits=num_bits
    )
    theirs = lance.dataset(str(path))
    plan = theirs.scanner(nearest={"column": "v", "q": vectors[0], "k": 3}).explain_plan()
    assert "ANNSubIndex" in plan
    segment = _segment(path)
    assert isinstance(segment.quantizer, RabitQuantizer)
    built = lance.dataset(str(copy)).create_index(
        "v",
        "IVF_RQ",
        metric=metric,
        num_partitions=PARTITIONS,
        num_bits=num_bits,
        ivf_centroids=segment.ivf.centroids,
        rabitq_model=segment.quantizer.model(),
    )
    hits, both = np.zeros(2, int), 0
    queries = vectors[:40] + np.float32(0.2)
    for query in queries:
        answer, own_answer = _answer(theirs, query, k=10), _answer(own, query, k=10)
        scale = max(map(abs, answer.values()))
        shared = set(answer) & set(own_answer)
        assert all(abs(answer[row] - own_answer[row]) < 1e-3 * scale for row in shared)
        both += len(shared)
        exact = _answer(theirs, query, k=10, use_index=False, metric=metric)
        hits += [len(set(answer) & set(exact)), len(set(_answer(built, query, k=10)) & set(exact))]
    # pylance skips rows by the signs alone, and loses some near ones.
    assert both >= 0.99 * 10 * len(queries)
    ours, other = hits / (10 * len(queries))
    assert ours >= other - 0.01


def test_models(tmp_path: Path) -> None:
    """Both clients take the rotations of the other one."""
    path = tmp_path / "t.lance"
    _write(path, 24)
    model = indices.build_rq_model(24, 3)
    lance_spark.open_dataset(str(path)).create_index(
        "v", "IVF_RQ", num_partitions=PARTITIONS, num_bits=3, rabitq_model=model
    )
    quantizer = _segment(path).quantizer
    assert isinstance(quantizer, RabitQuantizer)
    assert json.loads(quantizer.model()) == json.loads(model)
    own = RabitQuantizer.new(Metric.L2, 24, 3, seed=4)
    lance.dataset(str(path)).create_index(
        "v",
        "IVF_RQ",
        num_partitions=PARTITIONS,
        num_bits=3,
        rabitq_model=own.model(),
        replace=True,
    )
    assert _segment(path).quantizer == own


def test_recall_with_few_bytes(tmp_path: Path) -> None:
    """Estimates find the rows of pylance's exact estimates, and as many as its rounded ones.

    The rounded estimates are its default. Their luck is the standard error of the sum over all
    queries.
    """
    path = tmp_path / "t.lance"
    vectors = _write(path, 64, rows=3000)
    theirs = lance.dataset(str(path)).create_index(
        "v", "IVF_RQ", num_partitions=PARTITIONS, num_bits=5
    )
    own = lance_spark.open_dataset(str(path))
    hits = []
    for query in vectors[:60] + np.float32(0.2):
        nearest = {"column": "v", "q": query, "k": 10, "nprobes": PARTITIONS}
        exact, rounded = (
            set(theirs.to_table(columns=["id"], nearest={**nearest, **keys})["id"].to_pylist())
            for keys in ({"use_index": False}, {})
        )
        rows = (set(_answer(dataset, query, k=10)) for dataset in (own, theirs))
        hits.append([len(exact & ids) for ids in (*rows, rounded)])
    ours, accurate, default = np.array(hits).T
    assert abs(ours.sum() - accurate.sum()) <= 4
    more = ours - default
    assert more.sum() >= -4 * more.std() * len(more) ** 0.5

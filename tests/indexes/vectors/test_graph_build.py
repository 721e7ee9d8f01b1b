"""Graphs built by faiss: all rows are reached, whatever the vectors are."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.indexes.vectors import hnsw as graph_module
from lance_spark.indexes.vectors import hnsw_build
from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.distances import exact
from lance_spark.indexes.vectors.hnsw import Graph, GraphParameters, graph_of
from lance_spark.indexes.vectors.hnsw_build import GRAPH_SCHEMA, BuiltGraph, build_graph
from lance_spark.indexes.vectors.quantizers.flat import FlatQuantizer
from tests.indexes.vectors.graphs.made import Array, partition_of

ROWS, DIMENSION = 1_200, 8


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "_FEW_ROWS", 0)
    monkeypatch.setattr(graph_module, "_MOST_SEEN", 1)


def vectors_of(name: str) -> Array:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(ROWS, DIMENSION)).astype(np.float32)
    if name == "equal":
        vectors[:] = 1
    elif name == "half equal":
        vectors[::2] = 1
    elif name == "duplicates":
        vectors = vectors[rng.integers(0, 60, ROWS)]
    elif name == "far clusters":
        vectors[: ROWS // 3] += 1_000
        vectors[-ROWS // 3 :] -= 5_000
    elif name == "zeros of both signs":
        vectors[:] = 0
        vectors[::2] = -0.0
    return vectors


def built(
    vectors: Array, metric: Metric = Metric.L2, parameters: GraphParameters | None = None
) -> BuiltGraph:
    pytest.importorskip("faiss")
    quantizer = FlatQuantizer(vectors.shape[1], metric, vectors.dtype)
    partition = partition_of(vectors, metric)
    return build_graph(partition, quantizer, metric, parameters or GraphParameters(), threads=1)


def opened(built: BuiltGraph, num_rows: int) -> Graph:
    columns = [
        pa.concat_arrays([level.column(number) for level in built.levels]) for number in (0, 1)
    ]
    return graph_of(*columns, num_rows, built.entry_point, "graph 0")


def reached(graph: Graph, entry_point: int) -> int:
    """Return how many rows level 0 leads to."""
    level = graph.levels[0]
    reached = {entry_point}
    todo = [entry_point]
    while todo:
        new = set(level.neighbors_of([todo.pop()]).tolist()) - reached
        reached |= new
        todo += new
    return len(reached)


@pytest.mark.parametrize("metric", [Metric.L2, Metric.COSINE, Metric.DOT])
@pytest.mark.parametrize(
    "name", ["normal", "equal", "half equal", "duplicates", "far clusters", "zeros of both signs"]
)
def test_rows_are_reached(name: str, metric: Metric) -> None:
    if metric is Metric.COSINE and name.startswith("zeros"):
        pytest.skip("vectors of length 0 are not in the index")
    vectors = vectors_of(name)
    result = built(vectors, metric)
    graph = opened(result, ROWS)
    assert reached(graph, result.entry_point) == ROWS
    assert max(np.diff(graph.levels[0].bounds)) <= 2 * 20 + 2 * hnsw_build._LINKS + 2
    partition = partition_of(vectors, metric)
    good = 0
    for query in vectors[:30] + np.float32(0.01):
        distances = np.sort(partition.distances(query[None])[0])[:10]
        _, neighbors = graph.search(partition, query, 10, 40)
        good += int((neighbors[:10] <= distances[-1] + 1e-4 * abs(distances[-1]) + 1e-6).sum())
    assert good > 0.97 * 300


def test_columns() -> None:
    vectors = vectors_of("duplicates")
    result = built(vectors, Metric.DOT)
    for level in result.levels:
        assert level.schema.equals(GRAPH_SCHEMA)
        nodes, neighbors, distances = (column.to_pylist() for column in level.columns)
        assert nodes == sorted(nodes)
        starts = np.repeat(nodes, [len(ends) for ends in neighbors]).astype(np.int64)
        ends = np.array([end for row in neighbors for end in row], np.int64)
        expected = exact(Metric.DOT, vectors, vectors, (starts, ends))
        assert [item for row in distances for item in row] == expected.tolist()
    assert result.entry_point in result.levels[-1].column(0).to_pylist()


def test_equal_inputs_give_equal_graphs() -> None:
    vectors = vectors_of("normal")
    first, second = built(vectors), built(vectors)
    assert first.entry_point == second.entry_point
    assert all(a.equals(b) for a, b in zip(first.levels, second.levels, strict=True))


@pytest.mark.parametrize("count", [1, 2, 5, 41])
def test_few_rows(count: int) -> None:
    vectors = vectors_of("normal")[:count]
    result = built(vectors)
    graph = opened(result, count)
    assert reached(graph, result.entry_point) == count
    rows, _ = graph.search(partition_of(vectors), vectors[count - 1], 3, 50)
    assert rows[0] == count - 1
    assert len(rows) == count


def test_levels() -> None:
    vectors = vectors_of("normal")
    many = built(vectors, parameters=GraphParameters(4, 40, 7))
    assert len(many.levels) > 3
    few = built(vectors, parameters=GraphParameters(4, 40, 2))
    assert len(few.levels) == 2
    assert few.entry_point in few.levels[1].column(0).to_pylist()
    only = built(vectors, parameters=GraphParameters(4, 40, 1))
    assert len(only.levels) == 1
    for result in (many, few, only):
        graph = opened(result, ROWS)
        assert all(max(np.diff(level.bounds)) <= 4 for level in graph.levels[1:])
        rows, _ = graph.search(partition_of(vectors), vectors[9], 5, 60)
        assert rows[0] == 9


def test_rows_that_faiss_leads_nowhere_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are linked to near ones: here most edges are taken away."""
    vectors = vectors_of("normal")
    levels = hnsw_build._levels

    def fewer(*given: Any) -> Any:
        for number, level in enumerate(levels(*given)):
            if number == 0:
                level.counts[::3] = 0
                kept = np.repeat(level.counts > 0, np.diff(level.bounds))
                lost = np.isin(level.neighbors, np.arange(0, ROWS, 2))
                starts = np.repeat(level.rows, np.diff(level.bounds))
                kept &= ~lost
                counts = np.bincount(starts[kept], minlength=ROWS)
                yield hnsw_build._Edges(level.rows, counts, level.neighbors[kept])
            else:
                yield level

    monkeypatch.setattr(hnsw_build, "_levels", fewer)
    result = built(vectors)
    graph = opened(result, ROWS)
    assert reached(graph, result.entry_point) == ROWS
    assert max(np.diff(graph.levels[0].bounds)) <= 60


def test_sums_that_are_equal_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of equal sums are compared."""

    class Zeros:
        def integers(self, low: int, high: int, size: int, dtype: Any) -> Array:
            return np.zeros(size, dtype) * 2

    monkeypatch.setattr(hnsw_build.np.random, "default_rng", lambda seed: Zeros())
    rows = np.array([[1, 2], [2, 1], [1, 2], [3, 0]], np.float32)
    vectors = np.concatenate([rows, rows[::-1]]).view(np.float32)
    first = hnsw_build._first_rows(vectors)
    for row, other in enumerate(first.tolist()):
        assert (vectors[row] == vectors[other]).all()
        assert other <= row


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = vectors_of("normal")
    with pytest.raises(InvalidInputError, match="m must be 4 to"):
        built(vectors, parameters=GraphParameters(m=2))
    monkeypatch.setitem(sys.modules, "faiss", None)
    quantizer = FlatQuantizer(DIMENSION, Metric.L2, vectors.dtype)
    with pytest.raises(UnsupportedFeatureError, match=r"lance-spark\[vectors\]"):
        build_graph(partition_of(vectors), quantizer, Metric.L2, GraphParameters())

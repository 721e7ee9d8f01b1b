"""Searches in graphs, compared with the distances of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lance_spark.errors import InvalidInputError
from lance_spark.indexes.vectors import hnsw as module
from lance_spark.indexes.vectors.hnsw import Graph, GraphParameters
from tests.indexes.vectors.graphs.made import Array, made_columns, partition_of

pytestmark = pytest.mark.usefixtures("_follows_graphs")

ROWS, DIMENSION = 1_500, 6


@pytest.fixture(scope="module")
def vectors() -> Array:
    return np.random.default_rng(5).normal(size=(ROWS, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def graph(vectors: Array) -> Graph:
    return made_columns(vectors).graph(ROWS)


def queries() -> Array:
    return np.random.default_rng(6).normal(size=(40, DIMENSION)).astype(np.float32)


def recall(
    graph: Graph, partition: Any, k: int, is_result: Array | None = None, **given: Any
) -> float:
    """Return the part of the nearest rows that are found; check what is found."""
    num_hits = 0
    wanted = 0
    for query in queries():
        distances = partition.distances(query[None])[0]
        allowed = np.ones(ROWS, bool) if is_result is None else is_result.copy()
        if given.get("lower") is not None:
            allowed &= distances >= given["lower"]
        if given.get("upper") is not None:
            allowed &= distances < given["upper"]
        rows, measured = graph.search(partition, query, k, passing=is_result, **given)
        assert len(rows) == len(set(rows.tolist()))
        assert len(rows) <= (given.get("ef") or k + k // 2)
        assert allowed[rows].all()
        np.testing.assert_allclose(measured, distances[rows], rtol=1e-5)
        assert (np.diff(measured) >= 0).all()
        expected = np.flatnonzero(allowed)
        expected = expected[distances[expected].argsort(kind="stable")[:k]]
        num_hits += len(set(expected.tolist()) & set(rows[:k].tolist()))
        wanted += len(expected)
    return num_hits / wanted if wanted else 1.0


class Counting:
    """A partition that counts the rows that are measured."""

    def __init__(self, partition: Any) -> None:
        self.partition = partition
        self.all, self.some = 0, 0

    def distances(self, queries: Array, rows: Array | None = None) -> Array:
        self.all += 1
        return self.partition.distances(queries, rows)

    def measure(self, query: Array) -> Any:
        measure = self.partition.measure(query)

        def counted(rows: Array) -> Array:
            self.some += len(rows)
            return measure(rows)

        return counted


def test_nearest_rows(graph: Graph, vectors: Array) -> None:
    partition = partition_of(vectors)
    assert [level.num_nodes for level in graph.levels] == [1_500, 187, 23, 2]
    assert graph.num_rows == ROWS
    assert recall(graph, partition, 10) > 0.97
    assert recall(graph, partition, 10, ef=60) == 1.0
    assert recall(graph, partition, 1, ef=20) > 0.97
    counting = Counting(partition)
    for query in queries():
        graph.search(counting, query, 10)
    assert counting.all == 0
    assert counting.some < 400 * 40


@pytest.mark.parametrize("part", [0.9, 0.4, 0.11, 0.05, 0.0])
def test_rows_that_pass(graph: Graph, vectors: Array, part: float, monkeypatch: Any) -> None:
    passing = np.random.default_rng(7).random(ROWS) < part
    partition = partition_of(vectors)
    monkeypatch.setattr(module, "_MOST_SEEN", 64)
    assert recall(graph, partition, 10, passing, ef=15) > 0.97
    monkeypatch.setattr(module, "_MOST_SEEN", 1)
    assert recall(graph, partition, 10, passing, ef=15) > 0.97
    counting = Counting(partition)
    graph.search(counting, queries()[0], 10, passing=passing)
    if 0 < part < 0.1:
        assert (counting.all, counting.some) == (1, 0)
    assert recall(graph, partition, 10, np.ones(ROWS, bool)) > 0.97


def test_rows_that_are_far_pass(graph: Graph, vectors: Array) -> None:
    """A search that sees too many other rows measures all that pass."""
    passing = vectors[:, 0] > 1
    query = np.full(DIMENSION, -3, np.float32)
    counting = Counting(partition_of(vectors))
    rows, _ = graph.search(counting, query, 10, passing=passing)
    assert counting.all == 1
    assert counting.some < ROWS / 2
    distances = counting.partition.distances(query[None])[0]
    expected = np.flatnonzero(passing)
    expected = expected[distances[expected].argsort()[:10]]
    assert rows[:10].tolist() == expected.tolist()


def test_bounds(graph: Graph, vectors: Array) -> None:
    partition = partition_of(vectors)
    assert recall(graph, partition, 10, lower=1.0) > 0.97
    assert recall(graph, partition, 10, upper=1.0) > 0.97
    assert recall(graph, partition, 10, lower=0.5, upper=2.0) > 0.97
    assert recall(graph, partition, 10, lower=1e9) == 1.0
    passing = np.arange(ROWS) % 2 == 0
    assert recall(graph, partition, 10, passing, lower=0.5, upper=3.0) > 0.97


def test_small_partitions_are_measured(vectors: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW_ROWS", 4_096)
    graph = made_columns(vectors[:200]).graph(200)
    small = Counting(partition_of(vectors[:200]))
    graph.search(small, queries()[0], 10)
    assert (small.all, small.some) == (1, 0)
    empty = Graph((), 0)
    assert empty.num_rows == empty.nbytes == 0
    rows, distances = empty.search(partition_of(vectors[:0]), queries()[0], 10)
    assert (len(rows), len(distances)) == (0, 0)


def test_rows_that_no_edges_lead_to(vectors: Array) -> None:
    columns = made_columns(vectors)
    columns.neighbors = [[end for end in ends if end != 77] for ends in columns.neighbors]
    graph = columns.graph(ROWS)
    partition = partition_of(vectors)
    rows, _ = graph.search(partition, vectors[77], 5)
    assert len(rows) == 7
    assert 77 not in rows
    columns.neighbors = [[] for _ in columns.neighbors]
    rows, _ = columns.graph(ROWS).search(partition, vectors[77], 5)
    assert len(rows) == 1


def test_equal_distances(vectors: Array) -> None:
    """Equal rows come in their order, however they are found."""
    same = np.repeat(vectors[:100], 15, axis=0)
    graph = made_columns(vectors).graph(ROWS)
    rows, distances = graph.search(partition_of(same), same[30], 10, ef=300)
    assert (np.lexsort((rows, distances)) == np.arange(len(rows))).all()


def test_distances_that_are_no_numbers(vectors: Array, graph: Graph) -> None:
    query = np.full(DIMENSION, np.nan, np.float32)
    rows, distances = graph.search(partition_of(vectors), query, 10)
    assert len(rows) <= 15
    assert np.isnan(distances).all()


def test_parameters(vectors: Array, graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match=r"ef must be at least the 10 rows .*, not 9"):
        graph.search(partition_of(vectors), queries()[0], 10, ef=9)
    GraphParameters().check()
    for wrong, message in (
        (GraphParameters(m=3), "m must be 4 to 1024, not 3"),
        (GraphParameters(m=30, ef_construction=29), "ef_construction must be 30 to"),
        (GraphParameters(max_level=0), "max_level must be 1 to"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            wrong.check()

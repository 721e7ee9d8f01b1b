"""Graphs in columns of a file: their levels, and damage."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import CorruptFileError
from lance_spark.indexes.vectors.hnsw import graph_of
from tests.indexes.vectors.graphs.made import Columns, made_columns, partition_of


def made() -> tuple[Columns, int]:
    vectors = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)
    return made_columns(vectors), len(vectors)


def test_levels() -> None:
    columns, count = made()
    graph = columns.graph(count)
    sizes = [level.num_nodes for level in graph.levels]
    assert sizes == [300, 37, 4]
    assert graph.nbytes > 4 * sum(map(len, columns.neighbors))
    first = 0
    for number, level in enumerate(graph.levels):
        rows = np.arange(count) if number == 0 else level.rows
        assert rows.tolist() == columns.nodes[first : first + len(rows)]
        if number > 1:
            assert (graph.levels[number - 1].rows[level.below] == rows).all()
        for node in (0, len(rows) - 1):
            ends = rows[level.neighbors_of([node])].tolist()
            assert ends == columns.neighbors[first + node]
        both = rows[level.neighbors_of([0, len(rows) - 1])].tolist()
        assert both == columns.neighbors[first] + columns.neighbors[first + len(rows) - 1]
        first += len(rows)
    assert graph.levels[-1].rows[graph.entry_point] == columns.entry_point


def test_slices_of_columns() -> None:
    """The rows of a partition are a part of what is read."""
    columns, count = made()
    nodes = pa.array([9, 9, *columns.nodes, 9], pa.uint32())
    lists = pa.array([[1], [2, 3], *columns.neighbors, [4]], pa.list_(pa.uint32()))
    size = len(columns.nodes)
    graph = graph_of(nodes.slice(2, size), lists.slice(2, size), count, columns.entry_point, "g")
    expected = columns.graph(count)
    for level, other in zip(graph.levels, expected.levels, strict=True):
        for name in ("rows", "below", "bounds", "neighbors"):
            assert np.array_equal(getattr(level, name), getattr(other, name))


def test_entry_points_below_the_last_level() -> None:
    columns, count = made()
    on_first = next(row for row in range(count) if row not in columns.nodes[count:])
    columns.entry_point = on_first
    graph = columns.graph(count)
    assert (len(graph.levels), graph.entry_point) == (1, on_first)


def test_neighbors_on_lower_levels_only() -> None:
    columns, count = made()
    columns.neighbors[count] = [0, 1, 2, *columns.neighbors[count]]
    graph = columns.graph(count)
    rows = graph.levels[1].rows
    ends = rows[graph.levels[1].neighbors_of([0])].tolist()
    assert ends == [end for end in columns.neighbors[count] if end in rows]


def test_damage() -> None:
    columns, count = made()
    nodes, lists = columns.nodes, columns.neighbors
    with pytest.raises(CorruptFileError, match="graph 0: level 0 must have the 301 rows"):
        columns.graph(count + 1)
    for changed in (
        [1, *nodes[1:]],
        [*nodes[:5], 4, *nodes[6:]],
        [0, 2, *nodes[2:]],
        nodes[: count - 1],
    ):
        with pytest.raises(CorruptFileError, match="level 0 must have the 300 rows"):
            Columns(changed, lists[: len(changed)], 0).graph(count)
    on_first = next(row for row in range(1, count) if row not in nodes[count:])
    changed = [*nodes]
    changed[-4:] = sorted([on_first, *nodes[-3:]])
    with pytest.raises(CorruptFileError, match="a level has nodes that the level below"):
        Columns(changed, lists, nodes[-1]).graph(count)
    with pytest.raises(CorruptFileError, match="neighbors must be less than its 300 rows"):
        Columns(nodes, [[300], *lists[1:]], 0).graph(count)
    nulls = pa.array([None, *nodes[1:]], pa.uint32())
    with pytest.raises(CorruptFileError, match="must not be null"):
        graph_of(nulls, pa.array(lists, pa.list_(pa.uint32())), count, 0, "g")
    with pytest.raises(CorruptFileError, match="must not be null"):
        graph_of(
            pa.array(nodes, pa.uint32()),
            pa.array([[None], *lists[1:]], pa.list_(pa.uint32())),
            count,
            0,
            "g",
        )


@pytest.mark.usefixtures("_follows_graphs")
@pytest.mark.parametrize("seed", range(5))
def test_random_damage(seed: int) -> None:
    """A damaged graph is an error, or a search in it ends with rows of the partition."""
    rng = random.Random(seed)
    vectors = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)
    partition = partition_of(vectors)
    errors = 0
    for _ in range(60):
        columns, count = made_columns(vectors), len(vectors)
        for _ in range(rng.choice((1, 3, 30))):
            number = rng.choice((0, 1, rng.randrange(count), count, 2**32 - 1))
            place = rng.randrange(len(columns.nodes))
            draw = rng.random()
            if draw < 0.2:
                columns.nodes[place] = number
            elif draw < 0.6:
                columns.neighbors[place] = [number] * rng.randrange(3)
            elif draw < 0.9:
                columns.neighbors[place] = columns.neighbors[place] + [rng.randrange(count)] * 3
            else:
                columns.entry_point = min(number, count - 1)
        try:
            graph = columns.graph(count)
        except CorruptFileError:
            errors += 1
            continue
        for query in vectors[:3]:
            passing = np.arange(count) % 2 == 0 if rng.random() < 0.5 else None
            rows, distances = graph.search(partition, query, 10, passing=passing)
            assert len(rows) == len(set(rows.tolist())) <= 15
            np.testing.assert_allclose(
                distances, partition.distances(query[None], rows)[0], rtol=1e-5
            )
    assert 5 < errors < 55

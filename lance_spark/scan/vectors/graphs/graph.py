"""The graph of one partition (HNSW), and the search in it.

Each row of the partition is a node of level 0. A level has a part of the nodes of the level below
it, and edges from each to near nodes. A search goes from the entry point to the nearest neighbor as
long as there is a nearer one, level by level down. On level 0 it keeps the `ef` nearest rows that
it has seen, and follows the edges of the nearest ones whose edges it has not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lance_spark.errors import InvalidInputError
from lance_spark.scan.vectors.ivf import Int64Array, Vectors
from lance_spark.scan.vectors.quantizers.quantizer import Distances, Partition

Int32Array = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

#: Nodes whose edges are followed in one step. A single node makes many small steps; more than these
#: measure rows in vain.
_NODES = 8
#: Partitions of at most so many rows, or `_MOST_SEEN` for each that a search keeps, are measured
#: whole, which takes no more time.
_FEW_ROWS = 4_096
#: Where less than this part of the rows pass, these are measured. pylance has the same rule.
_FEW_PASS = 0.1
#: All rows that pass are measured if too many of the nearest rows do not pass: when a search has
#: seen this part of all rows, and so many rows for each that it keeps. It takes less time then.
_PART_SEEN = 1 / 32
_MOST_SEEN = 64


@dataclass(frozen=True, slots=True)
class GraphParameters:
    """How a graph is built. The names and defaults are those of pylance.

    Attributes
    ----------
    m : int
        Edges that a new node gets. A node has at most `m` edges, and at most 2 * `m` on level 0.
    ef_construction : int
        Nodes that a search for the neighbors of a new node keeps.
    max_level : int
        Most levels.
    """

    m: int = 20
    ef_construction: int = 150
    max_level: int = 7

    def check(self) -> None:
        """Raise an error if no graph can be built.

        Raises
        ------
        InvalidInputError
            A number is out of range.
        """
        # With fewer edges, pylance says, the graph would fall apart.
        _check("m", self.m, 4, 1 << 10)
        _check("ef_construction", self.ef_construction, self.m, 1 << 20)
        _check("max_level", self.max_level, 1, 1 << 10)


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a graph. Its nodes are numbered from 0 in the order of their rows.

    Attributes
    ----------
    rows, below : int64 array
        The row of each node in the partition, and its number on the level below. Without items on
        level 0, where the nodes are the rows.
    bounds : int64 array
        First edge of each node, and the number of edges.
    neighbors : int32 array
        The node at the end of each edge.
    """

    rows: Int64Array
    below: Int64Array
    bounds: Int64Array
    neighbors: Int32Array

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.bounds) - 1

    def neighbors_of(self, nodes: Sequence[int]) -> Int64Array:
        """Return the neighbors of some nodes, some more than once."""
        neighbors, bounds = self.neighbors, self.bounds
        if len(nodes) == 1:
            result = neighbors[bounds[nodes[0]] : bounds[nodes[0] + 1]]
        else:
            result = np.concatenate([neighbors[bounds[node] : bounds[node + 1]] for node in nodes])
        return result.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Graph:
    """The graph of one partition.

    Attributes
    ----------
    levels : sequence of Level
        Level 0 first; none for a partition without rows.
    entry_point : int
        Where a search begins: the number of a node of the last level.
    """

    levels: Sequence[Level]
    entry_point: int

    @property
    def num_rows(self) -> int:
        """Rows of the partition."""
        return self.levels[0].num_nodes if self.levels else 0

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(
            level.rows.nbytes + level.below.nbytes + level.bounds.nbytes + level.neighbors.nbytes
            for level in self.levels
        )

    def search(
        self,
        partition: Partition,
        query: Vectors,
        k: int,
        ef: int | None = None,
        passing: BoolArray | None = None,
        lower: float | None = None,
        upper: float | None = None,
    ) -> tuple[Int64Array, Distances]:
        """Return rows that are near a query, and their distances.

        Parameters
        ----------
        partition : Partition
            Measures the rows of the graph.
        query : array of shape (dimension,)
        k : int
            Number of rows that are wanted.
        ef : int, optional
            Rows that the search keeps; `k` and half of it by default.
        passing : bool array, optional
            Whether each row of the partition can be a result.
        lower, upper : float, optional
            Only rows with `lower` <= distance < `upper` are results.

        Returns
        -------
        rows : int64 array
            At most `ef` rows, or fewer if the edges lead to no more.
        distances : float32 array
            They increase.

        Raises
        ------
        InvalidInputError
            `ef` is less than `k`.
        """
        if ef is None:
            ef = k + k // 2
        if ef < k:
            raise InvalidInputError(f"ef must be at least the {k} rows that are wanted, not {ef}")
        num_rows = self.num_rows
        num_passing = num_rows if passing is None else int(np.count_nonzero(passing))
        if num_passing == num_rows:
            passing = None
        elif not num_passing:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        neighbors = None
        if num_rows > max(_FEW_ROWS, _MOST_SEEN * ef) and num_passing >= int(num_rows * _FEW_PASS):
            neighbors = self._near(partition.measure(query), ef, passing, lower)
        if neighbors is None:
            rows: Int64Array = np.arange(num_rows) if passing is None else passing.nonzero()[0]
            distances = partition.distances(query[None], None if passing is None else rows)[0]
        else:
            rows, distances = neighbors
        if lower is not None or upper is not None:
            low = -np.inf if lower is None else lower
            high = np.inf if upper is None else upper
            is_within = (distances >= low) & (distances < high)
            rows, distances = rows[is_within], distances[is_within]
        if len(rows) > ef:
            best = distances.argpartition(ef - 1)[:ef]
            rows, distances = rows[best], distances[best]
        order = np.lexsort((rows, distances))
        return rows[order], distances[order]

    def _near(
        self,
        measure: Callable[[Int64Array], Distances],
        ef: int,
        passing: BoolArray | None,
        lower: float | None,
    ) -> tuple[Int64Array, Distances] | None:
        """Return the nearest rows on level 0; None if it is better to measure all rows.

        Rows that do not pass, or are nearer than `lower`, lead to others, but are no results.
        """
        row, distance = self._descend(measure)
        level = self.levels[0]
        is_measured = np.zeros(level.num_nodes, np.bool_)
        is_measured[row] = True
        # In the order of distances: all rows whose edges can be followed yet (open), and results.
        rows, distances = np.array([row]), np.array([distance], np.float32)
        is_open = np.ones(1, np.bool_)
        selects = passing is not None or lower is not None
        num_measured, limit = 1, level.num_nodes
        if selects:
            limit = max(int(level.num_nodes * _PART_SEEN), _MOST_SEEN * ef)
        worst = np.inf
        while True:
            opened = is_open.nonzero()[0][:_NODES]
            if not len(opened):
                break
            if num_measured > limit:
                return None
            is_open[opened] = False
            new = level.neighbors_of(rows[opened].tolist())
            new = new[~is_measured[new]]
            if len(opened) > 1:
                new = _distinct(new)
            if not len(new):
                continue
            is_measured[new] = True
            num_measured += len(new)
            measured = measure(new)
            if worst < np.inf:
                nearer = (measured < worst).nonzero()[0]
                if not len(nearer):
                    continue
                new, measured = new[nearer], measured[nearer]
            distances = np.concatenate([distances, measured])
            order = distances.argsort()
            if not selects:
                order = order[:ef]
            rows = np.concatenate([rows, new])[order]
            distances = distances[order]
            is_open = np.concatenate([is_open, np.ones(len(new), np.bool_)])[order]
            num_results = len(rows)
            if selects:
                is_result = _selected(rows, distances, passing, lower)
                stays, num_results = _remaining(is_open, is_result, ef)
                rows, distances, is_open = rows[stays], distances[stays], is_open[stays]
            if num_results >= ef:
                worst = distances[-1]
        if selects:
            is_result = _selected(rows, distances, passing, lower)
            rows, distances = rows[is_result], distances[is_result]
        return rows, distances

    def _descend(self, measure: Callable[[Int64Array], Distances]) -> tuple[int, float]:
        """Return the row on level 0 that the levels above lead to, and its distance."""
        node = self.entry_point
        nearest = None
        for number in range(len(self.levels) - 1, 0, -1):
            level, rows = self.levels[number], self.levels[number].rows
            if nearest is None:
                nearest = float(measure(rows[node : node + 1])[0])
            while True:
                neighbors = level.neighbors_of([node])
                if not len(neighbors):
                    break
                distances = measure(rows[neighbors])
                best = int(distances.argmin())
                if not distances[best] < nearest:
                    break
                node, nearest = int(neighbors[best]), float(distances[best])
            node = int(level.below[node])
        if nearest is None:
            nearest = float(measure(np.array([node]))[0])
        return node, nearest


def _distinct(rows: Int64Array) -> Int64Array:
    ordered = np.sort(rows)
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def _remaining(is_open: BoolArray, is_result: BoolArray, ef: int) -> tuple[BoolArray, int]:
    """Return which rows a search keeps, and how many results there are among all rows.

    The rows are in the order of distances. Those behind `ef` results lead to no nearer result.
    """
    results = is_result.nonzero()[0]
    stays = is_open | is_result
    if len(results) >= ef:
        stays[results[ef - 1] + 1 :] = False
    return stays, len(results)


def _selected(
    rows: Int64Array, distances: Distances, passing: BoolArray | None, lower: float | None
) -> BoolArray:
    """Return which rows can be results."""
    selected = np.ones(len(rows), np.bool_) if passing is None else passing[rows]
    return selected if lower is None else selected & (distances >= lower)


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidInputError(f"{name} must be {least} to {most}, not {value}")

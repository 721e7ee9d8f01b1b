"""The graphs of vector indexes (HNSW): their search, their files, and the package faiss."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.indexes.cache import all_rows
from lance_spark.indexes.files import IndexFiles, buffer_in, named
from lance_spark.indexes.vectors.columns import Int64Array, Vectors
from lance_spark.indexes.vectors.distances import num_threads
from lance_spark.indexes.vectors.files import (
    GRAPHS_KEY,
    INDEX,
    IVF_KEY,
    decode_ivf,
    json_in,
    parsed_json,
)
from lance_spark.indexes.vectors.quantizers.quantizer import Distances, Partition

# --------------------------------------------------------------------------------------------------
# The package faiss (`lance-spark[vectors]`), which is loaded when it is needed.
#
# The package works without it, but for the construction of graphs. It computes in threads of
# OpenMP, which do not survive a fork. A process that was forked after its parent loaded the package
# would wait for them without end: it computes in one thread.

#: The process that imported this module. A worker of Spark is forked from it, or is it.
_PROCESS = os.getpid()


def faiss_library(threads: int | None = None) -> Any | None:
    """Return the package faiss, or None if it is missing.

    Parameters
    ----------
    threads : int, optional
        The most threads that functions of the package take when the calling thread calls them,
        until it calls this function again; `threads.num_threads` by default.

    Examples
    --------
    >>> faiss = faiss_library()
    >>> faiss.omp_get_max_threads() if faiss else 1
    2
    """
    try:
        import faiss
    except ImportError:
        return None
    # The number is an attribute of the calling thread.
    faiss.omp_set_num_threads(_num_threads(threads))
    return faiss


def required_faiss(purpose: str, threads: int | None = None) -> Any:
    """Return the package faiss, as `faiss_library` does.

    - `purpose`: What needs the package, in the plural: the subject of the error.

    Raises UnsupportedFeatureError: it is missing.
    """
    faiss = faiss_library(threads)
    if faiss is None:
        raise UnsupportedFeatureError(
            f"{purpose} need the package faiss: pip install 'lance-spark[vectors]'"
        )
    return faiss


def _num_threads(threads: int | None) -> int:
    if os.getpid() != _PROCESS:
        return 1
    return num_threads() if threads is None else max(1, threads)


# --------------------------------------------------------------------------------------------------
# The graph of one partition (HNSW), and the search in it.
#
# Each row of the partition is a node of level 0. A level has a part of the nodes of the level below
# it, and edges from each to near nodes. A search goes from the entry point to the nearest neighbor
# as long as there is a nearer one, level by level down. On level 0 it keeps the `ef` nearest rows
# that it has seen, and follows the edges of the nearest ones whose edges it has not followed.

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

    - `m`: Edges that a new node gets. A node has at most `m` edges, and at most 2 * `m` on level 0.
    - `ef_construction`: Nodes that a search for the neighbors of a new node keeps.
    - `max_level`: Most levels.
    """

    m: int = 20
    ef_construction: int = 150
    max_level: int = 7

    def check(self) -> None:
        """Raise an error if no graph can be built.

        Raises InvalidInputError: a number is out of range.
        """
        # With fewer edges, pylance says, the graph would fall apart.
        _check("m", self.m, 4, 1 << 10)
        _check("ef_construction", self.ef_construction, self.m, 1 << 20)
        _check("max_level", self.max_level, 1, 1 << 10)


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a graph. Its nodes are numbered from 0 in the order of their rows.

    - `rows`, `below` (int64 array): The row of each node in the partition, and its number on the
      level below. Without items on level 0, where the nodes are the rows.
    - `bounds` (int64 array): First edge of each node, and the number of edges.
    - `neighbors` (int32 array): The node at the end of each edge.
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

    - `levels`: Level 0 first; none for a partition without rows.
    - `entry_point`: Where a search begins: the number of a node of the last level.
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


# --------------------------------------------------------------------------------------------------
# Reads the graphs in `index.idx` of a segment (HNSW).
#
# | column | type | content |
# | --- | --- | --- |
# | `__vector_id` | uint32 | row of the partition |
# | `__neighbors` | list of uint32 | its neighbors: rows of the partition |
# | `_distance` | list of float32 | their distances; a search does not need them |
#
# The rows of a partition are those of level 0, of level 1 and so on. Each level has its nodes in
# increasing order; level 0 has all rows of the partition. The schema has the metadata `lance:hnsw`:
# a JSON list with a string for each partition, which is empty for one without rows, and else JSON:
#
# | key | content |
# | --- | --- |
# | `entry_point` | row where a search begins, on the last level |
# | `params` | `m`, `ef_construction`, `max_level`, `prefetch_distance` |
# | `level_offsets` | first row of each level, and the number of rows; `max_level` + 1 numbers |
#
# Old releases of pylance counted a row too few for each level above 0. So levels are recognised by
# their nodes: the first node of a level is never greater than the last one of the level below.

NODE, NEIGHBORS, DISTANCES = "__vector_id", "__neighbors", "_distance"
NEIGHBORS_TYPE = pa.list_(pa.uint32())

#: The cached content of `index.idx` that has no graphs. Others have the number of their partition.
_HEADER = -1
#: Most bytes of metadata for each partition.
_TEXT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Header:
    """Where the graphs of a segment are.

    - `offsets`, `lengths` (int64 arrays): First row of each partition in the file, and number of
      rows.
    - `entry_points` (int64 array): 0 for partitions without rows.
    - `parameters`: Those of the first graph.
    """

    offsets: Int64Array
    lengths: Int64Array
    entry_points: Int64Array
    parameters: GraphParameters

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.offsets.nbytes + self.lengths.nbytes + self.entry_points.nbytes


@dataclass(frozen=True, slots=True)
class Graphs:
    """The graphs of a segment.

    - `num_rows` (int64 array): Rows of each partition in the file of codes.
    """

    files: IndexFiles
    num_rows: Int64Array

    @property
    def parameters(self) -> GraphParameters:
        """How the graphs were built; the defaults if no partition has rows.

        Raises CorruptFileError, MissingFileError, StorageError.
        """
        return self._header().parameters

    def open(self, numbers: Sequence[int]) -> list[Graph]:
        """Return the graphs of partitions; those not in the cache in one read.

        - `numbers`: Distinct.

        Raises MissingFileError, UnsupportedEncodingError, StorageError. Raises CorruptFileError: a
        graph does not belong to its partition.
        """
        return self.files.cached_parts(INDEX, numbers, self._read, lambda graph: graph.nbytes)

    def _header(self) -> _Header:
        (header,) = self.files.cached_parts(
            INDEX, [_HEADER], lambda _: [self._read_header()], lambda content: content.nbytes
        )
        return header

    def _read_header(self) -> _Header:
        with self.files.opened(INDEX) as file:
            name = file.source.name
            all_rows(file)
            ivf = decode_ivf(buffer_in(file, IVF_KEY), file.num_rows, name)
            texts = json_in(file, GRAPHS_KEY, _TEXT_BYTES * (1 + len(self.num_rows)))
        if not isinstance(texts, list) or not (
            len(texts) == ivf.num_partitions == len(self.num_rows)
        ):
            raise CorruptFileError(
                f"{name}: {GRAPHS_KEY} must be a list of {len(self.num_rows)} graphs, one for each "
                "partition; rebuild the index"
            )
        entry_points = np.zeros(len(texts), np.int64)
        parameters: GraphParameters | None = None
        for number, text in enumerate(texts):
            if not self.num_rows[number]:
                continue
            graph_name = f"{name}: graph {number}"
            content = parsed_json(text, GRAPHS_KEY, graph_name) if isinstance(text, str) else None
            if not isinstance(content, dict):
                raise CorruptFileError(f"{graph_name} has no metadata; rebuild the index")
            entry_points[number] = _entry_point(content, int(self.num_rows[number]), graph_name)
            if parameters is None:
                parameters = _parameters(content.get("params"), graph_name)
        return _Header(ivf.offsets, ivf.lengths, entry_points, parameters or GraphParameters())

    def _read(self, numbers: Sequence[int]) -> list[Graph]:
        header = self._header()
        graphs: dict[int, Graph] = {}
        filled = [number for number in numbers if self.num_rows[number]]
        filled.sort(key=lambda number: header.offsets[number])
        lengths = header.lengths[filled]
        rows = [
            np.arange(offset, offset + length)
            for offset, length in zip(header.offsets[filled], lengths, strict=True)
        ]
        with self.files.opened(INDEX) as file:
            name = file.source.name
            nodes, neighbors = file.read(
                [named(file, NODE, pa.uint32()), named(file, NEIGHBORS, NEIGHBORS_TYPE)],
                np.concatenate(rows) if rows else np.empty(0, np.int64),
            )
        first = 0
        for number, length in zip(filled, lengths.tolist(), strict=True):
            graphs[number] = graph_of(
                nodes.slice(first, length),
                neighbors.slice(first, length),
                int(self.num_rows[number]),
                int(header.entry_points[number]),
                f"{name}: graph {number}",
            )
            first += length
        return [graphs.get(number) or Graph((), 0) for number in numbers]


def graph_of(
    nodes: pa.Array, neighbors: pa.Array, num_rows: int, entry_point: int, name: str
) -> Graph:
    """Return the graph that columns of a file have.

    - `nodes`: uint32.
    - `neighbors`: Lists of uint32.
    - `num_rows`: Rows of the partition; at least 1.
    - `entry_point`: A row.
    - `name`: Of the graph, for errors.

    Raises CorruptFileError: a level lacks nodes, or a node is out of range.
    """
    targets = neighbors.flatten()
    if nodes.null_count or neighbors.null_count or targets.null_count:
        raise CorruptFileError(f"{name}: nodes and neighbors must not be null; rebuild the index")
    rows = nodes.to_numpy().astype(np.int64)
    ends = neighbors.offsets.to_numpy().astype(np.int64)
    ends -= ends[0]
    ids = targets.to_numpy()
    starts = np.concatenate([[0], np.flatnonzero(rows[1:] <= rows[:-1]) + 1, [len(rows)]])
    if starts[1] != num_rows or rows[0] != 0 or rows[num_rows - 1] != num_rows - 1:
        raise CorruptFileError(
            f"{name}: level 0 must have the {num_rows} rows of the partition; rebuild the index"
        )
    if len(ids) and ids.max() >= num_rows:
        raise CorruptFileError(
            f"{name}: neighbors must be less than its {num_rows} rows; rebuild the index"
        )
    none = np.empty(0, np.int64)
    edges = ids[: ends[num_rows]].astype(np.int32)
    levels = [Level(none, none, ends[: num_rows + 1].copy(), edges)]
    node = entry_point
    for first, stop in zip(starts[1:-1].tolist(), starts[2:].tolist(), strict=True):
        below = levels[-1].rows if len(levels) > 1 else np.arange(num_rows)
        level = _level(below, rows[first:stop], ends[first : stop + 1], ids, name)
        place = int(np.searchsorted(level.rows, entry_point))
        if place == len(level.rows) or level.rows[place] != entry_point:
            # Levels above that of the entry point lead nowhere.
            break
        levels.append(level)
        node = place
    return Graph(tuple(levels), node)


def _level(
    below: Int64Array, rows: Int64Array, ends: Int64Array, ids: npt.NDArray[np.uint32], name: str
) -> Level:
    """Return a level above 0.

    - `below` (int64 array): The rows of the nodes of the level below.
    - `rows` (int64 array): The rows of the nodes.
    - `ends` (int64 array): First neighbor of each node in `ids`, and the end of the last.
    - `ids` (uint32 array): Rows.
    """
    places = np.searchsorted(below, rows)
    places[places == len(below)] = 0
    if (below[places] != rows).any():
        raise CorruptFileError(
            f"{name}: a level has nodes that the level below does not have; rebuild the index"
        )
    targets = ids[ends[0] : ends[-1]]
    nodes = np.searchsorted(rows, targets)
    nodes[nodes == len(rows)] = 0
    # Neighbors that the level does not have lead nowhere.
    exists = rows[nodes] == targets
    counts = np.concatenate([[0], np.cumsum(exists)])
    return Level(rows, places, counts[ends - ends[0]], nodes[exists].astype(np.int32))


def _entry_point(content: Mapping[str, object], num_rows: int, name: str) -> int:
    entry_point = content.get("entry_point")
    if type(entry_point) is not int or not 0 <= entry_point < num_rows:
        raise CorruptFileError(
            f"{name}: entry_point must be one of its {num_rows} rows, not "
            f"{str(entry_point)[:40]}; rebuild the index"
        )
    return entry_point


def _parameters(content: object, name: str) -> GraphParameters:
    numbers = content if isinstance(content, dict) else {}
    keys = ("m", "ef_construction", "max_level")
    values = [numbers.get(key) for key in keys]
    integers = [value for value in values if type(value) is int and 0 < value < 1 << 31]
    if len(integers) < len(keys):
        raise CorruptFileError(f"{name}: params must have the numbers {keys}; rebuild the index")
    return GraphParameters(*integers)

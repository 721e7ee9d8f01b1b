"""Builds and writes the graphs of vector indexes (HNSW), by the package faiss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.indexes.files import SegmentWriter
from lance_spark.indexes.vectors.columns import Int64Array, Metric, Vectors
from lance_spark.indexes.vectors.distances import exact
from lance_spark.indexes.vectors.files import GRAPHS_KEY, INDEX, json_text
from lance_spark.indexes.vectors.hnsw import (
    DISTANCES,
    NEIGHBORS,
    NEIGHBORS_TYPE,
    NODE,
    GraphParameters,
    required_faiss,
)
from lance_spark.indexes.vectors.quantizers.quantizer import Distances, Partition, Quantizer
from lance_spark.indexes.vectors.segment import VectorModel, set_index_metadata

# --------------------------------------------------------------------------------------------------
# Writes the `index.idx` of an index with graphs (HNSW); `stored` has its layout.

#: The columns of the file.
GRAPH_SCHEMA = pa.schema(
    [(NODE, pa.uint32()), (NEIGHBORS, NEIGHBORS_TYPE), (DISTANCES, pa.list_(pa.float32()))]
)
#: How far pylance loads vectors ahead while it builds a graph. Searches do not need it.
_PREFETCH_DISTANCE = 2


@dataclass(frozen=True, slots=True)
class BuiltGraph:
    """The graph of a partition with rows.

    - `levels`: Nodes of each level with their neighbors: columns of `GRAPH_SCHEMA`. Level 0 first.
    - `entry_point`: A row on the last level.
    """

    levels: tuple[pa.RecordBatch, ...]
    entry_point: int


@dataclass(frozen=True, slots=True)
class GraphContent:
    """What a file says of its graphs.

    - `lengths` (int64 array): Rows of each partition in the file.
    - `texts`: The metadata of each partition.
    """

    lengths: Int64Array
    texts: tuple[str, ...]


class GraphWriter:
    """Writes the graphs of a segment, partition after partition.

    - `segment`: Completes the file.
    - `loss`: As of `VectorWriter`.
    """

    def __init__(
        self,
        segment: SegmentWriter,
        model: VectorModel,
        parameters: GraphParameters,
        loss: float | None = None,
    ) -> None:
        self._segment = segment
        self._model = model
        self._parameters = parameters
        self._loss = loss
        self._lengths: Int64Array = np.zeros(len(model.centroids), np.int64)
        self._texts = [""] * len(model.centroids)
        self._next = 0
        self._writer = segment.create(INDEX, GRAPH_SCHEMA)

    def write(self, number: int, graph: BuiltGraph) -> None:
        """Add the graph of a partition with rows.

        - `number`: Greater than that of the partition before.
        """
        assert number >= self._next, f"partition {number} must not follow {self._next - 1}"
        self._next = number + 1
        for level in graph.levels:
            self._writer.write(level)
        parameters = self._parameters
        ends = np.cumsum([level.num_rows for level in graph.levels]).tolist()
        missing = parameters.max_level - len(graph.levels)
        self._lengths[number] = ends[-1]
        self._texts[number] = json_text(
            {
                "entry_point": graph.entry_point,
                "params": {
                    "max_level": parameters.max_level,
                    "m": parameters.m,
                    "ef_construction": parameters.ef_construction,
                    "prefetch_distance": _PREFETCH_DISTANCE,
                },
                "level_offsets": [0, *ends, *[ends[-1]] * missing],
            }
        )

    @property
    def content(self) -> GraphContent:
        """What the graphs so far have in common."""
        return GraphContent(self._lengths, tuple(self._texts))

    def copy(self, rows: Iterable[pa.RecordBatch], content: GraphContent) -> None:
        """Add graphs that another writer wrote.

        - `rows`: All rows of its file.
        - `content`: Of partitions that follow those before.
        """
        has_rows = np.flatnonzero(content.lengths)
        assert not len(has_rows) or has_rows[0] >= self._next
        for batch in rows:
            self._writer.write(batch)
        for number in has_rows.tolist():
            self._lengths[number] = content.lengths[number]
            self._texts[number] = content.texts[number]
            self._next = number + 1

    def finish(self) -> None:
        """Write what the graphs have in common, and complete the file."""
        self._writer.set_metadata(GRAPHS_KEY, json_text(self._texts))
        set_index_metadata(self._writer, self._model, self._lengths, self._loss)
        self._segment.complete(INDEX)


# --------------------------------------------------------------------------------------------------
# Builds the graph of a partition (HNSW) by the package faiss, from the codes.
#
# Equal vectors are one node for faiss: among as many equal ones as it has edges, a node would lead
# to no others. They are linked to that node afterwards, in a tree. So are nodes that no edges lead
# to.

#: Most nodes that are linked to one node afterwards.
_LINKS = 8
#: Near nodes of which one gets the edge to a node that no edges lead to.
_NEAR = 16
#: Nodes, and vectors, that are looked at in one step.
_STEP = 1 << 14
_SEED = 7

_Int32Array = npt.NDArray[np.int32]


class _Edges:
    """The edges of one level, in the order of the nodes that they begin at.

    - `rows` (int64 array): The row of each node.
    - `counts` (int64 array): Number of edges of each node.
    - `neighbors` (int32 array): The row at the end of each edge.
    - `bounds` (int64 array): First edge of each node, and the number of edges.
    """

    def __init__(self, rows: Int64Array, counts: Int64Array, neighbors: _Int32Array) -> None:
        self.rows = rows
        self.counts = counts
        self.neighbors = neighbors
        self.bounds = _bounds(counts)

    def add(self, starts: Int64Array, ends: Int64Array) -> None:
        """Add edges on level 0, from and to rows."""
        order = np.argsort(starts, kind="stable")
        places = self.bounds[starts[order] + 1]
        self.neighbors = np.insert(self.neighbors, places, ends[order])
        self.counts = self.counts + np.bincount(starts, minlength=len(self.counts))
        self.bounds = _bounds(self.counts)

    def reach(self, first: Int64Array, reached: npt.NDArray[np.bool_]) -> None:
        """Mark the rows that the edges of level 0 lead to."""
        while len(first):
            reached[first] = True
            counts = self.counts[first]
            begins = self.bounds[first] - (np.cumsum(counts) - counts)
            places = np.repeat(begins, counts) + np.arange(counts.sum())
            first = np.unique(self.neighbors[places])
            first = first[~reached[first]]


def build_graph(
    partition: Partition,
    quantizer: Quantizer,
    metric: Metric,
    parameters: GraphParameters,
    threads: int | None = None,
) -> BuiltGraph:
    """Return the graph of a partition with rows.

    - `quantizer`: Of the partition.
    - `metric`: Of the index.
    - `threads`: Threads of faiss; see `faiss_library`. With one thread, equal inputs give equal
      graphs.

    Raises InvalidInputError: a parameter is out of range. Raises UnsupportedFeatureError: the
    package faiss is missing.
    """
    parameters.check()
    faiss = required_faiss("graphs of vector indexes", threads)
    vectors = np.ascontiguousarray(partition.vectors())
    first = _first_rows(vectors)
    distinct = np.unique(first)
    index = _index(faiss, vectors.shape[1], metric, parameters)
    index.add(vectors if len(distinct) == len(vectors) else vectors[distinct])
    levels = list(_levels(faiss, index.hnsw, distinct, parameters.max_level))
    base = levels[0]
    if len(distinct) < len(vectors):
        counts = np.zeros(len(vectors), np.int64)
        counts[distinct] = base.counts
        levels[0] = base = _Edges(np.arange(len(vectors)), counts, base.neighbors)
        children, parents = _trees(first)
        base.add(np.concatenate([parents, children]), np.concatenate([children, parents]))
    entry_point = int(distinct[index.hnsw.entry_point])
    _link(index, base, vectors, distinct, entry_point)
    # Codes of vectors of length 1 have distances of L2.
    if metric is Metric.COSINE and quantizer.name != "FLAT":
        metric = Metric.L2
    return BuiltGraph(tuple(_batch(level, vectors, metric) for level in levels), entry_point)


def _index(faiss: Any, dimension: int, metric: Metric, parameters: GraphParameters) -> Any:
    if metric is Metric.HAMMING:
        index = faiss.IndexBinaryHNSW(8 * dimension, parameters.m)
    elif metric is Metric.DOT:
        # The near ones by L2 are others.
        index = faiss.IndexHNSWFlat(dimension, parameters.m, faiss.METRIC_INNER_PRODUCT)
    else:
        index = faiss.IndexHNSWFlat(dimension, parameters.m)
    index.hnsw.efConstruction = parameters.ef_construction
    # Level 0 gets all the edges that it can have: searches measure fewer rows and find more.
    index.keep_max_size_level0 = True
    return index


def _first_rows(vectors: Vectors) -> Int64Array:
    """Return the first row with the vector of each row."""
    words = vectors.view(np.uint32 if vectors.itemsize == 4 else np.uint8)
    # Odd factors: sums of 64 bits are equal for equal vectors, and seldom for others.
    factors = np.random.default_rng(_SEED).integers(0, 1 << 63, words.shape[1], np.uint64) | 1
    sums = np.empty(len(words), np.uint64)
    for start in range(0, len(words), _STEP):
        step = slice(start, start + _STEP)
        np.einsum("ij,j->i", words[step].astype(np.uint64), factors, out=sums[step])
    _, first, groups = np.unique(sums, return_index=True, return_inverse=True)
    rows: Int64Array = first[groups]
    for start in range(0, len(words), _STEP):
        step = slice(start, start + _STEP)
        different = (words[step] != words[rows[step]]).any(axis=1).nonzero()[0] + start
        rows[different] = different
    return rows


def _trees(first: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the rows that are not the first with their vector, and the row that each hangs on."""
    order = np.argsort(first, kind="stable")
    starts = np.flatnonzero(np.diff(first[order], prepend=-1))
    lengths = np.diff(starts, append=len(order))
    begins = np.repeat(starts, lengths)
    places = np.arange(len(order)) - begins
    parents = order[begins + (places - 1) // _LINKS]
    is_child = places > 0
    return order[is_child], parents[is_child]


def _levels(faiss: Any, hnsw: Any, rows: Int64Array, max_level: int) -> Iterator[_Edges]:
    """Yield the levels of a graph of faiss. Its nodes are the numbers of `rows`."""
    num_levels = faiss.vector_to_array(hnsw.levels)
    offsets = faiss.vector_to_array(hnsw.offsets).astype(np.int64)
    neighbors = faiss.vector_to_array(hnsw.neighbors)
    begins = faiss.vector_to_array(hnsw.cum_nneighbor_per_level).tolist()
    for level in range(min(max_level, int(num_levels.max()))):
        nodes = np.flatnonzero(num_levels > level)
        counts, ends = [], []
        for start in range(0, len(nodes), _STEP):
            # Places of edges that do not exist have -1.
            places = offsets[nodes[start : start + _STEP], None]
            block = neighbors[places + np.arange(begins[level], begins[level + 1])]
            counts.append((block >= 0).sum(axis=1))
            ends.append(rows[block[block >= 0]].astype(np.int32))
        yield _Edges(rows[nodes], np.concatenate(counts), np.concatenate(ends))


def _link(index: Any, base: _Edges, vectors: Vectors, distinct: Int64Array, entry: int) -> None:
    """Add edges to level 0, so that it leads from the entry point to each row."""
    reached = np.zeros(len(vectors), np.bool_)
    base.reach(np.array([entry]), reached)
    missing = distinct[~reached[distinct]]
    if not len(missing):
        return
    _, numbers = index.search(vectors[missing], min(_NEAR, len(distinct)))
    candidates = distinct[np.maximum(numbers, 0)]
    is_known = (numbers >= 0) & reached[candidates]
    origins = np.where(
        is_known.any(axis=1), candidates[np.arange(len(candidates)), is_known.argmax(axis=1)], entry
    )
    starts: list[int] = []
    ends: list[int] = []
    linked: dict[int, list[int]] = {}
    for row, origin in zip(missing.tolist(), origins.tolist(), strict=True):
        if reached[row]:
            continue
        # Many at one node hang on it as a tree.
        chain = linked.setdefault(origin, [origin])
        parent = chain[(len(chain) - 1) // _LINKS]
        chain.append(row)
        starts += [parent, row]
        ends += [row, parent]
        base.reach(np.array([row]), reached)
    base.add(np.array(starts), np.array(ends))


def _batch(level: _Edges, vectors: Vectors, metric: Metric) -> pa.RecordBatch:
    starts, ends = np.repeat(level.rows, level.counts), level.neighbors.astype(np.int64)
    distances: Distances = exact(metric, vectors, vectors, (starts, ends))
    offsets = pa.array(level.bounds, pa.int32())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(level.rows, pa.uint32()),
            pa.ListArray.from_arrays(offsets, pa.array(level.neighbors.astype(np.uint32))),
            pa.ListArray.from_arrays(offsets, pa.array(distances)),
        ],
        schema=GRAPH_SCHEMA,
    )


def _bounds(counts: Int64Array) -> Int64Array:
    return np.concatenate([[0], np.cumsum(counts)])

"""Writes the `index.idx` of an index with graphs (HNSW); `stored` has its layout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lance_spark.scan.indexes.files import SegmentWriter
from lance_spark.scan.vectors.files.layout import GRAPHS_KEY, INDEX, json_text
from lance_spark.scan.vectors.files.model import VectorModel
from lance_spark.scan.vectors.files.writer import set_index_metadata
from lance_spark.scan.vectors.graphs.graph import GraphParameters
from lance_spark.scan.vectors.graphs.stored import DISTANCES, NEIGHBORS, NEIGHBORS_TYPE, NODE
from lance_spark.scan.vectors.ivf import Int64Array

#: The columns of the file.
GRAPH_SCHEMA = pa.schema(
    [(NODE, pa.uint32()), (NEIGHBORS, NEIGHBORS_TYPE), (DISTANCES, pa.list_(pa.float32()))]
)
#: How far pylance loads vectors ahead while it builds a graph. Searches do not need it.
_PREFETCH_DISTANCE = 2


@dataclass(frozen=True, slots=True)
class BuiltGraph:
    """The graph of a partition with rows.

    Attributes
    ----------
    levels : sequence of pa.RecordBatch
        Nodes of each level with their neighbors: columns of `GRAPH_SCHEMA`. Level 0 first.
    entry_point : int
        A row on the last level.
    """

    levels: tuple[pa.RecordBatch, ...]
    entry_point: int


@dataclass(frozen=True, slots=True)
class GraphContent:
    """What a file says of its graphs.

    Attributes
    ----------
    lengths : int64 array
        Rows of each partition in the file.
    texts : tuple of str
        The metadata of each partition.
    """

    lengths: Int64Array
    texts: tuple[str, ...]


class GraphWriter:
    """Writes the graphs of a segment, partition after partition.

    Parameters
    ----------
    segment : SegmentWriter
        Completes the file.
    model : VectorModel
    parameters : GraphParameters
    loss : float, optional
        As of `VectorWriter`.
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

        Parameters
        ----------
        number : int
            Greater than that of the partition before.
        graph : BuiltGraph
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

        Parameters
        ----------
        rows : iterable of pa.RecordBatch
            All rows of its file.
        content : GraphContent
            Of partitions that follow those before.
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

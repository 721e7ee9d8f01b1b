"""Graphs that are made by a slow method, without faiss: every node has its nearest ones."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.hnsw import Graph, graph_of
from lance_spark.indexes.vectors.quantizers.flat import FlatQuantizer

Array = npt.NDArray[Any]
NEIGHBORS = 10


@dataclass
class Columns:
    """The rows of one graph in a file."""

    nodes: list[int]
    neighbors: list[list[int]]
    entry_point: int

    def graph(self, num_rows: int) -> Graph:
        nodes = pa.array(self.nodes, pa.uint32())
        neighbors = pa.array(self.neighbors, pa.list_(pa.uint32()))
        return graph_of(nodes, neighbors, num_rows, self.entry_point, "graph 0")


def partition_of(vectors: Array, metric: Metric = Metric.L2) -> Any:
    quantizer = FlatQuantizer(vectors.shape[1], metric, vectors.dtype)
    return quantizer.open_partition(quantizer.encode(vectors, vectors), np.zeros(0))


def made_columns(vectors: Array) -> Columns:
    """Return a graph with several levels. Edges go both ways."""
    return copy.deepcopy(_made(vectors.tobytes(), vectors.shape[1]))


@cache
def _made(data: bytes, dimension: int) -> Columns:
    vectors = np.frombuffer(data, np.float32).reshape(-1, dimension)
    rng = np.random.default_rng(1)
    nodes: list[int] = []
    lists: list[list[int]] = []
    members = np.arange(len(vectors))
    while True:
        distances = ((vectors[members, None] - vectors[None, members]) ** 2).sum(axis=2)
        near = distances.argsort(axis=1, kind="stable")[:, 1 : NEIGHBORS + 1]
        links: list[set[int]] = [set(row) for row in near.tolist()]
        for start, row in enumerate(near.tolist()):
            for end in row:
                links[end].add(start)
        nodes += members.tolist()
        lists += [members[sorted(link)].tolist() for link in links]
        if len(members) < 12:
            return Columns(nodes, lists, int(members[-1]))
        members = np.sort(rng.choice(members, len(members) // 8, replace=False))

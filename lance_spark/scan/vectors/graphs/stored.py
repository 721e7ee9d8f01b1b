"""Reads the graphs in `index.idx` of a segment (HNSW).

| column | type | content |
| --- | --- | --- |
| `__vector_id` | uint32 | row of the partition |
| `__neighbors` | list of uint32 | its neighbors: rows of the partition |
| `_distance` | list of float32 | their distances; a search does not need them |

The rows of a partition are those of level 0, of level 1 and so on. Each level has its nodes in
increasing order; level 0 has all rows of the partition. The schema has the metadata `lance:hnsw`: a
JSON list with a string for each partition, which is empty for one without rows, and else JSON:

| key | content |
| --- | --- |
| `entry_point` | row where a search begins, on the last level |
| `params` | `m`, `ef_construction`, `max_level`, `prefetch_distance` |
| `level_offsets` | first row of each level, and the number of rows; `max_level` + 1 numbers |

Old releases of pylance counted a row too few for each level above 0. So levels are recognised by
their nodes: the first node of a level is never greater than the last one of the level below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.scan.indexes.cache import all_rows
from lance_spark.scan.indexes.files import IndexFiles, buffer_in, named
from lance_spark.scan.vectors.files.layout import GRAPHS_KEY, INDEX, IVF_KEY, json_in, parsed_json
from lance_spark.scan.vectors.graphs.graph import Graph, GraphParameters, Level
from lance_spark.scan.vectors.ivf import Int64Array
from lance_spark.scan.vectors.tensors import decode_ivf

NODE, NEIGHBORS, DISTANCES = "__vector_id", "__neighbors", "_distance"
NEIGHBORS_TYPE = pa.list_(pa.uint32())

#: The cached content of `index.idx` that has no graphs. Others have the number of their partition.
_HEADER = -1
#: Most bytes of metadata for each partition.
_TEXT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Header:
    """Where the graphs of a segment are.

    Attributes
    ----------
    offsets, lengths : int64 arrays
        First row of each partition in the file, and number of rows.
    entry_points : int64 array
        0 for partitions without rows.
    parameters : GraphParameters
        Those of the first graph.
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

    Attributes
    ----------
    files : IndexFiles
    num_rows : int64 array
        Rows of each partition in the file of codes.
    """

    files: IndexFiles
    num_rows: Int64Array

    @property
    def parameters(self) -> GraphParameters:
        """How the graphs were built; the defaults if no partition has rows.

        Raises
        ------
        CorruptFileError, MissingFileError, StorageError
        """
        return self._header().parameters

    def open(self, numbers: Sequence[int]) -> list[Graph]:
        """Return the graphs of partitions; those not in the cache in one read.

        Parameters
        ----------
        numbers : sequence of int
            Distinct.

        Raises
        ------
        CorruptFileError
            A graph does not belong to its partition.
        MissingFileError, UnsupportedEncodingError, StorageError
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

    Parameters
    ----------
    nodes : pa.Array
        uint32.
    neighbors : pa.Array
        Lists of uint32.
    num_rows : int
        Rows of the partition; at least 1.
    entry_point : int
        A row.
    name : str
        Of the graph, for errors.

    Raises
    ------
    CorruptFileError
        A level lacks nodes, or a node is out of range.
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

    Parameters
    ----------
    below : int64 array
        The rows of the nodes of the level below.
    rows : int64 array
        The rows of the nodes.
    ends : int64 array
        First neighbor of each node in `ids`, and the end of the last.
    ids : uint32 array
        Rows.
    name : str
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

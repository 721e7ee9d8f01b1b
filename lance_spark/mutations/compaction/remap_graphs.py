"""Vector indexes with graphs rewritten with the row addresses after a compaction.

A graph has a node for each row. pylance cannot search it if rows of its partition are left out, as
the fragment reuse index would do with deleted rows. So these indexes are written again: codes are
copied, and graphs are built from them. On a cluster, tasks build the graphs of groups of partitions
(`write_part`), each in a file, which are put together when the codes are copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lance_spark.mutations.compaction.address_map import AddressMap, Remapping, rewritten
from lance_spark.mutations.vectors.writing import GraphPart, write_graph_part, write_remapped
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.vectors import details
from lance_spark.scan.vectors.files.segment import open_segment
from lance_spark.scan.vectors.graphs.faiss_library import faiss_library
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths


def has_graphs(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment has graphs that can be built again."""
    return (
        indexes.type_of_index(index) == details.VECTOR
        and details.details_of(index).HasField("hnsw_index_config")
        and faiss_library() is not None
    )


def groups_of(
    paths: TablePaths, index: table_pb2.IndexMetadata, rows: int
) -> list[tuple[int, ...]]:
    """Return the partitions of a segment in groups of about some number of rows.

    Raises
    ------
    CorruptFileError, StorageError
    """
    opened = open_segment(IndexFiles(paths, index))
    if opened is None:
        return []
    lengths = opened.ivf.lengths
    numbers = np.arange(len(lengths))
    places = (np.cumsum(lengths) - lengths) // rows
    groups = np.split(numbers, np.flatnonzero(np.diff(places)) + 1)
    return [tuple(group.tolist()) for group in groups]


def write_part(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    address_map: AddressMap,
    version: tuple[int, int],
    numbers: Sequence[int],
) -> GraphPart:
    """Build the graphs of some partitions of a segment, and write them to a file.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
    """
    with SegmentWriter(paths, version) as segment:
        files = IndexFiles(paths, index)
        content = write_graph_part(segment, files, address_map.new_addresses, numbers)
        written = table_pb2.IndexMetadata(name=index.name, files=segment.finish())
    written.uuid.uuid = segment.id.bytes
    return GraphPart(written, content)


def remap_graphs(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    address_map: AddressMap,
    version: tuple[int, int],
    parts: Sequence[GraphPart] = (),
) -> RewrittenIndex:
    """Write the files of a segment with new row addresses.

    Parameters
    ----------
    paths : TablePaths
    index : table_pb2.IndexMetadata
        A segment with graphs.
    address_map : AddressMap
    version : tuple of int
        File version of the table.
    parts : sequence of GraphPart
        All graphs, if they are built already.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
    """
    with SegmentWriter(paths, version) as segment:
        write_remapped(segment, IndexFiles(paths, index), address_map.new_addresses, parts)
        written = segment.finish()
    return rewritten(index, segment, written)


REMAPPING = Remapping(
    remap_graphs,
    has_graphs,
    groups_of,
    write_part,
    # pylance cannot search a segment that lacks rows of its graphs.
    ignores_damage=False,
)

"""What vector indexes tell of themselves, their checks, and their rewrite after a compaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.indexes.address_map import AddressMap, Remapping, rewritten
from lance_spark.indexes.checks import MAX_PROBLEMS, ColumnCheck, CoveredRows, Findings, Flags
from lance_spark.indexes.details import Described
from lance_spark.indexes.files import IndexFiles, SegmentWriter
from lance_spark.indexes.vectors import files as details
from lance_spark.indexes.vectors.build import GraphPart, write_graph_part, write_remapped
from lance_spark.indexes.vectors.columns import Int64Array, Metric, Vectors
from lance_spark.indexes.vectors.distances import CentroidAssignment
from lance_spark.indexes.vectors.files import details_of, index_type_of
from lance_spark.indexes.vectors.hnsw import faiss_library
from lance_spark.indexes.vectors.quantizers.quantizer import matrix
from lance_spark.indexes.vectors.segment import VectorSegment, open_segment
from lance_spark.indexes.vectors.training import METRICS, indexed_vectors, is_multi, items_of
from lance_spark.proto import index_pb2, table_pb2
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths

# --------------------------------------------------------------------------------------------------
# What vector indexes tell of themselves: type, numbers, and what their segments have in common.

#: Partitions that are read at once.
_PARTITIONS = 64


def _statistics(files: IndexFiles) -> dict[str, Any]:
    opened = open_segment(files)
    if opened is None:
        return {}
    buffers = opened.quantizer.buffers()
    return {
        "index_type": opened.index_type,
        "metric_type": opened.metric.value,
        "num_partitions": opened.ivf.num_partitions,
        "partitions": [{"size": size} for size in opened.ivf.lengths.tolist()],
        "loss": opened.ivf.loss,
        "sub_index": {
            "index_type": opened.quantizer.name,
            **opened.quantizer.metadata(range(1, len(buffers) + 1)),
        },
    }


def _meaning(files: IndexFiles) -> dict[str, Any]:
    # The distances of quantizers have different scales.
    details, dtype = details_of(files.segment), index_type_of(files.segment)
    metric = details.metric_type
    if details.WhichOneof("compression") is None:
        # Early releases of pylance recorded both in the files only.
        opened = open_segment(files)
        if opened is not None:
            metric, dtype = METRICS[opened.metric], opened.index_type
    return {"type": dtype, "metric": index_pb2.VectorMetricType.Name(metric)}


def prewarm(files: IndexFiles) -> None:
    """Read the partitions of a segment into the cache."""
    segment = open_segment(files)
    if segment is None:
        return
    count = len(segment.ivf.lengths)
    for start in range(0, count, _PARTITIONS):
        numbers = range(start, min(start + _PARTITIONS, count))
        segment.partitions(numbers)
        if segment.graphs is not None:
            segment.graphs.open(numbers)


DESCRIBED = Described(type_of=index_type_of, statistics=_statistics, meaning=_meaning)


# --------------------------------------------------------------------------------------------------
# Checks of vector indexes: each vector is in one partition, with the code that it must have.
#
# Codes that are not those of this package are measured: another client may round in another way, so
# a code is right if the distance of the vector from it is about that from the own code.

#: Vectors that are measured together, each by its own code.
_BLOCK_ROWS = 64
#: Most codes of a partition that are measured.
_MAX_MEASURED = 4096
#: How much farther a code or a centroid may be, as a part of the distance from the centroid.
_TOLERANCE, _RABIT_TOLERANCE = 0.02, 0.5


def check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment of a vector index with its rows.

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
    """
    if not files.segment.files and not len(rows):
        return
    segment = open_segment(files)
    if segment is None:
        raise CorruptFileError(
            f"index {files.segment.name!r}: a file is missing or unknown; create the index again"
        )
    centroids = segment.ivf.centroids
    if items_of(rows.values.type) != centroids.dtype:
        raise CorruptFileError(
            f"index {files.segment.name!r}: its vectors are of {centroids.dtype}, those of the "
            f"column of type {rows.values.type}; create the index again"
        )
    numbers = np.arange(len(rows), dtype=np.uint64)
    vectors, ids = indexed_vectors(rows.values, numbers, segment.metric)
    positions = ids.astype(np.int64)
    if vectors.shape[1] != centroids.shape[1]:
        raise CorruptFileError(
            f"index {files.segment.name!r}: its vectors have {centroids.shape[1]} items, those of "
            f"the column {vectors.shape[1]}; create the index again"
        )
    expected = np.bincount(positions, minlength=len(rows))
    counts = np.zeros(len(rows), np.int64)
    wrong = np.zeros(len(rows), np.bool_)
    compared = None
    if not is_multi(rows.values.type):
        # The place of the vector of each row.
        places = np.full(len(rows), -1, np.int64)
        places[positions] = np.arange(len(positions))
        nearest = CentroidAssignment(centroids, segment.metric).nearest(vectors)[1]
        compared = _Compared(segment, vectors, places, nearest)
    for number in range(segment.ivf.num_partitions):
        row_keys, stored = segment.stored(number)
        row_numbers, is_live = rows.find(row_keys)
        findings.stale += int(np.count_nonzero(~is_live))
        row_numbers = row_numbers[is_live].astype(np.int64)
        counts += np.bincount(row_numbers, minlength=len(rows))
        if compared is not None and len(row_numbers):
            is_wrong = compared.wrong(number, stored, row_numbers, np.flatnonzero(is_live))
            wrong[row_numbers[is_wrong]] = True
    repeated, missing = counts > expected, counts < expected
    findings.wrong += int(np.count_nonzero(wrong | repeated))
    findings.missing += int(np.count_nonzero(missing))
    for flags, text in (
        (missing, "the index does not have the row"),
        (repeated, "the index has the row too often"),
        (wrong & ~repeated, "the index has another vector of the row"),
    ):
        findings.add(rows.problem(position, text) for position in _first(flags))


class _Compared:
    """Compares the codes of partitions with those that the vectors must have.

    - `vectors`: Array of shape (vectors, dimension).
    - `places` (int64 array): The vector of each row; -1 for none.
    - `nearest` (float32 array): The distance of each vector from the nearest centroid.
    """

    def __init__(
        self,
        segment: VectorSegment,
        vectors: Vectors,
        places: Int64Array,
        nearest: npt.NDArray[np.float32],
    ) -> None:
        self._segment, self._vectors, self._places = segment, vectors, places
        self._nearest = nearest

    def wrong(
        self, number: int, stored: pa.RecordBatch, where: Int64Array, rows: Int64Array
    ) -> Flags:
        """Return which rows of a partition are wrong.

        - `stored`: The partition.
        - `where` (int64 array): Positions of the rows to compare.
        - `rows` (int64 array): Their places in the partition.
        """
        segment, centroid = self._segment, self._segment.ivf.centroids[number]
        places = self._places[where]
        is_wrong = places < 0
        vectors = self._vectors[np.maximum(places, 0)]
        distances = CentroidAssignment(centroid[None], segment.metric).nearest(vectors)[1]
        # The scale of a rounding: products of vectors have no least distance.
        scale = np.abs(distances) + (segment.metric is Metric.DOT)
        is_wrong |= distances > self._nearest[np.maximum(places, 0)] + _TOLERANCE * scale
        expected_codes = segment.quantizer.encode(vectors, np.broadcast_to(centroid, vectors.shape))
        codes = segment.quantizer.unstored(stored).take(pa.array(rows))
        differs = _differ(codes, expected_codes) & ~is_wrong
        doubtful = np.flatnonzero(differs)[:_MAX_MEASURED]
        if len(doubtful):
            partition = segment.quantizer.open_partition(stored, centroid)
            of_expected = segment.quantizer.open_partition(
                segment.quantizer.stored(expected_codes), centroid
            )
            tolerance = _RABIT_TOLERANCE if segment.quantizer.name == "RQ" else _TOLERANCE
            for start in range(0, len(doubtful), _BLOCK_ROWS):
                block = doubtful[start : start + _BLOCK_ROWS]
                stored_distances = partition.distances(vectors[block], rows[block]).diagonal()
                expected_distances = of_expected.distances(vectors[block], block).diagonal()
                is_wrong[block] = np.abs(
                    stored_distances - expected_distances
                ) > tolerance * np.abs(scale[block])
        return is_wrong


def _differ(first: pa.RecordBatch, second: pa.RecordBatch) -> Flags:
    """Return which rows of two batches of codes differ."""
    differs = np.zeros(first.num_rows, np.bool_)
    for left, right in zip(first.columns, second.columns, strict=True):
        if pa.types.is_fixed_size_list(left.type):
            differs |= (matrix(left) != matrix(right)).any(axis=1)
    return differs


def _first(flags: Flags) -> list[int]:
    positions: list[int] = np.flatnonzero(flags)[:MAX_PROBLEMS].tolist()
    return positions


CHECK = ColumnCheck(check)


# --------------------------------------------------------------------------------------------------
# Vector indexes rewritten with the row addresses after a compaction: codes are copied, and graphs
# are built from them.
#
# A graph has a node for each row. pylance cannot search it if rows of its partition are left out,
# as a fragment reuse index would do with deleted rows. On a cluster, tasks build the graphs of
# groups of partitions (`write_part`), each in a file, which are put together when the codes are
# copied.


def has_graphs(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment has graphs, as far as its details say.

    Early releases of pylance, such as that in DuckDB's extension, recorded it in the files only.
    """
    return details.details_of(index).HasField("hnsw_index_config")


def can_remap(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment has no graphs, or they can be built again."""
    return not has_graphs(index) or faiss_library() is not None


def groups_of(
    paths: TablePaths, index: table_pb2.IndexMetadata, rows: int
) -> list[tuple[int, ...]]:
    """Return the partitions of a segment in groups of about some number of rows; none without
    graphs.

    Raises CorruptFileError, StorageError.
    """
    opened = open_segment(IndexFiles(paths, index)) if has_graphs(index) else None
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

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
    """
    with SegmentWriter(paths, version) as segment:
        files = IndexFiles(paths, index)
        content = write_graph_part(segment, files, address_map.new_addresses, numbers)
        written = table_pb2.IndexMetadata(name=index.name, files=segment.finish())
    written.uuid.uuid = segment.id.bytes
    return GraphPart(written, content)


def remap_vectors(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    address_map: AddressMap,
    version: tuple[int, int],
    parts: Sequence[GraphPart] = (),
) -> RewrittenIndex | None:
    """Write the files of a segment with new row addresses.

    - `version`: File version of the table.
    - `parts`: All graphs, if they are built already.

    Returns None if it has graphs that cannot be built again. Raises CorruptFileError,
    MissingFileError, UnsupportedFeatureError, StorageError.
    """
    files = IndexFiles(paths, index)
    opened = open_segment(files)
    if opened is not None and opened.has_graphs and faiss_library() is None:
        return None
    with SegmentWriter(paths, version) as segment:
        write_remapped(segment, files, address_map.new_addresses, parts)
        written = segment.finish()
    return rewritten(index, segment, written)


REMAPPING = Remapping(
    remap_vectors,
    can_remap,
    groups_of,
    write_part,
)

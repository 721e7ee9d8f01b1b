"""The segments of a vector index that a search uses."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from lance_spark.errors import MissingFileError
from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import INDEX_ERRORS, IndexFiles
from lance_spark.scan.vectors.columns import VectorType
from lance_spark.scan.vectors.details import VECTOR
from lance_spark.scan.vectors.files.segment import VectorSegment, open_segment
from lance_spark.scan.vectors.metric import Metric
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths

_LOG = logging.getLogger(__name__)

#: Versions of segments that are searched.


@dataclass(frozen=True, slots=True)
class SearchedSegment:
    """A segment of an index that a search uses, or a share of its partitions.

    Attributes
    ----------
    metadata : table_pb2.IndexMetadata
    fragments : BitMap
        The fragments that its rows had when it was built.
    num_rows : int
        Vectors in all partitions.
    num_partitions : int
    share : tuple of int
        Number of the share, and how many shares there are: every so many partitions are searched.
    """

    metadata: table_pb2.IndexMetadata
    fragments: BitMap
    num_rows: int
    num_partitions: int
    share: tuple[int, int] = (0, 1)

    def open(self, paths: TablePaths) -> VectorSegment:
        """Open the files of the segment.

        Raises
        ------
        CorruptFileError, MissingFileError, StorageError
        """
        opened = open_segment(IndexFiles(paths, self.metadata))
        if opened is None:
            raise MissingFileError(
                f"{paths.store.display}: the files of index {self.metadata.name!r} cannot be read "
                "any more; run the query again"
            )
        return opened


def open_segments(
    paths: TablePaths,
    path: tuple[Field, ...],
    dtype: VectorType,
    segments: Iterable[table_pb2.IndexMetadata],
    metric: Metric | None,
) -> list[tuple[SearchedSegment, VectorSegment]]:
    """Return the segments of the first index of a column that measures by a metric.

    A segment that cannot be read is left out with a warning.

    Parameters
    ----------
    paths : TablePaths
    path : tuple of Field
        The fields from the top-level field to the column.
    dtype : VectorType
        Of the column. Segments with other vectors are left out.
    segments : iterable of IndexMetadata
        Those of all indexes of the version, in its order.
    metric : Metric or None
        None for that of the first segment.
    """
    built_on: dict[str, BitMap] = {}
    by_name: dict[str, list[tuple[SearchedSegment, VectorSegment]]] = {}
    for segment in segments:
        if list(segment.fields) != [path[-1].id] or indexes.type_of_index(segment) != VECTOR:
            continue
        before = built_on.setdefault(segment.name, BitMap())
        bitmap = indexes.fragment_bitmap(segment) or BitMap()
        fragments = bitmap - before
        if not fragments:
            continue
        if not indexes.has_known_version(segment):
            _LOG.warning(
                "index %r is ignored: it has version %d, which this release does not read",
                segment.name,
                segment.index_version,
            )
            continue
        try:
            files = open_segment(IndexFiles(paths, segment))
        except INDEX_ERRORS as error:
            _LOG.warning("index %r is ignored: %s", segment.name, error)
            continue
        if files is None or (metric is not None and files.metric is not metric):
            continue
        if not _fits(files, dtype):
            _LOG.warning(
                "index %r is ignored: its %s vectors of %d items are not those of the column; "
                "create it again",
                segment.name,
                files.metric.value,
                files.quantizer.dimension,
            )
            continue
        before |= fragments
        lengths = files.ivf.lengths
        searched = SearchedSegment(segment, fragments, int(lengths.sum()), len(lengths))
        by_name.setdefault(segment.name, []).append((searched, files))
    first = next(iter(by_name.values()), [])
    # All distances of a search have one metric.
    return [pair for pair in first if pair[1].metric is first[0][1].metric]


def _fits(segment: VectorSegment, dtype: VectorType) -> bool:
    """Return whether a segment has vectors of a type."""
    has_bits = segment.ivf.centroids.dtype == np.uint8
    return (
        segment.quantizer.dimension == dtype.dimension
        and has_bits is (segment.metric is Metric.HAMMING)
        and (not has_bits or dtype.items == "uint8")
    )

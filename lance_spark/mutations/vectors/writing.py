"""Writes the files of a segment of a vector index, from vectors and from other segments.

Each vector is assigned to a partition and encoded, in some threads. The codes of a partition are
written together (`runs`); those of other segments with the same model follow from their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark import progress
from lance_spark.errors import CorruptFileError
from lance_spark.mutations.indexes.builder import MODEL
from lance_spark.mutations.vectors.graph_build import build_graph
from lance_spark.mutations.vectors.parameters import VectorParameters, of_details
from lance_spark.mutations.vectors.rows import indexed_vectors
from lance_spark.mutations.vectors.runs import CodeRuns, EncodedVectors
from lance_spark.mutations.vectors.training import PARAMETERS, with_partitions
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter, named
from lance_spark.scan.vectors import details
from lance_spark.scan.vectors.assignment import CentroidAssignment
from lance_spark.scan.vectors.files.layout import INDEX
from lance_spark.scan.vectors.files.model import VectorModel
from lance_spark.scan.vectors.files.segment import VectorSegment, open_segment
from lance_spark.scan.vectors.files.writer import VectorWriter
from lance_spark.scan.vectors.graphs.graph import GraphParameters
from lance_spark.scan.vectors.graphs.writer import (
    GRAPH_SCHEMA,
    BuiltGraph,
    GraphContent,
    GraphWriter,
)
from lance_spark.scan.vectors.threads import each
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

#: Rows of an existing segment that are read at once, if partitions are not larger.
_GROUP_ROWS = 1 << 14
#: Returns the new ids of rows, and which of the rows stay.
NewRows = Callable[[UInt64Array], tuple[UInt64Array, npt.NDArray[np.bool_]]]


def write(
    segment: SegmentWriter,
    batches: Iterable[tuple[pa.Array, UInt64Array]],
    parameters: Mapping[str, Any],
    sources: Iterable[Any],
) -> None:
    """Write the files of a segment; none without a model. See `Builder.write_batches`.

    Parameters
    ----------
    segment : SegmentWriter
    batches : iterable of (pa.Array, uint64 array)
        Vectors and row ids.
    parameters : mapping of str to object
        As `training.train` returns them.
    sources : iterable of Source
        Segments with the same model.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    model: VectorModel | None = parameters[MODEL]
    if model is None:
        return
    assignment = CentroidAssignment(model.centroids, model.metric)

    def encoded(batch: tuple[pa.Array, UInt64Array]) -> EncodedVectors:
        vectors, ids = indexed_vectors(*batch, model.metric)
        numbers, distances = assignment.nearest(vectors)
        codes = model.quantizer.encode(vectors, model.centroids[numbers])
        return EncodedVectors(numbers, ids, codes, float(distances.sum(dtype=np.float64)))

    existing = []
    for source in sources:
        rows = None if source.kept is None else source.kept.rows
        existing.append(_Existing(_opened(source.files), rows))
    loss = sum(item.segment.ivf.loss or 0 for item in existing)
    with CodeRuns(len(model.centroids), model.quantizer.fields) as runs:
        for part in each(encoded, batches):
            if len(part.ids):
                runs.add(part)
                loss += part.loss
        runs.finish()
        _write_files(segment, model, parameters[PARAMETERS], existing, runs, loss)


def write_remapped(
    segment: SegmentWriter,
    files: IndexFiles,
    new_rows: NewRows,
    parts: Sequence[GraphPart] = (),
) -> None:
    """Write the files of an existing segment with other row ids.

    Parameters
    ----------
    segment : SegmentWriter
    files : IndexFiles
        Of the existing segment.
    new_rows : callable
    parts : sequence of GraphPart
        The graphs of all partitions, if they are built already.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
    """
    existing = _opened(files)
    model = existing.model
    parameters = of_details(model.index_type, details.details_of(files.segment))
    with CodeRuns(len(model.centroids), model.quantizer.fields) as none:
        moved = [_Existing(existing, new_rows)]
        loss = existing.ivf.loss or 0
        _write_files(segment, model, parameters, moved, none, loss, parts)


def write_graph_part(
    segment: SegmentWriter, files: IndexFiles, new_rows: NewRows, numbers: Sequence[int]
) -> GraphContent:
    """Write the graphs of some partitions of an existing segment.

    Parameters
    ----------
    segment : SegmentWriter
        Gets one file.
    files : IndexFiles
        Of the existing segment.
    new_rows : callable
    numbers : sequence of int
        Of the partitions, increasing.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
    """
    existing = _opened(files)
    model = existing.model
    parameters = of_details(model.index_type, details.details_of(files.segment))
    assert parameters.graphs is not None, "the caller has asked for it"
    rows = zip(numbers, _Existing(existing, new_rows).partitions(numbers), strict=True)
    stored = ((number, model.quantizer.stored(codes)) for number, (ids, codes) in rows if len(ids))
    total = int(existing.ivf.lengths[list(numbers)].sum())
    return _write_graphs(segment, model, parameters.graphs, existing.ivf.loss or 0, stored, total)


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Graphs of some partitions, in a file of their own. Can be pickled.

    Attributes
    ----------
    segment : table_pb2.IndexMetadata
        Its folder and its file.
    content : GraphContent
    """

    segment: table_pb2.IndexMetadata
    content: GraphContent

    def rows(self, paths: TablePaths) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file.

        Raises
        ------
        CorruptFileError, MissingFileError, StorageError
        """
        with IndexFiles(paths, self.segment, keeps=False).opened(INDEX) as file:
            fields = [named(file, field.name, field.type) for field in GRAPH_SCHEMA]
            for start in range(0, file.num_rows, _GROUP_ROWS):
                rows = range(start, min(start + _GROUP_ROWS, file.num_rows))
                yield pa.RecordBatch.from_arrays(file.read(fields, rows), schema=GRAPH_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Existing:
    """A segment whose rows a new one gets; all of them, if `new_rows` is None."""

    segment: VectorSegment
    new_rows: NewRows | None

    def partitions(
        self, numbers: Sequence[int] | None = None
    ) -> Iterator[tuple[UInt64Array, pa.RecordBatch]]:
        """Yield the rows of each partition, or of some partitions, that stay."""
        lengths = self.segment.ivf.lengths
        chosen = np.arange(len(lengths)) if numbers is None else np.array(numbers, np.int64)
        # A read costs a request, which small partitions share.
        starts = np.cumsum(lengths[chosen]) - lengths[chosen]
        groups = np.split(chosen, np.flatnonzero(np.diff(starts // _GROUP_ROWS)) + 1)
        for group in groups:
            for ids, stored in self.segment.all_stored(group.tolist()):
                yield self._kept(ids, self.segment.quantizer.unstored(stored))

    def _kept(self, ids: UInt64Array, codes: pa.RecordBatch) -> tuple[UInt64Array, pa.RecordBatch]:
        if self.new_rows is None or not len(ids):
            return ids, codes
        new_ids, stays = self.new_rows(ids)
        if stays.all():
            return new_ids, codes
        return new_ids[stays], codes.take(pa.array(np.flatnonzero(stays)))


def _write_files(
    segment: SegmentWriter,
    model: VectorModel,
    parameters: VectorParameters,
    existing: Sequence[_Existing],
    runs: CodeRuns,
    loss: float,
    parts: Sequence[GraphPart] = (),
) -> None:
    writer = VectorWriter(segment, model, loss)
    stored = _written(writer, existing, runs, len(model.centroids))
    if parameters.graphs is not None and not parts:
        total = runs.num_rows + sum(int(item.segment.ivf.lengths.sum()) for item in existing)
        _write_graphs(segment, model, parameters.graphs, loss, stored, total)
    for _ in stored:
        pass
    if parameters.graphs is not None and parts:
        graphs = GraphWriter(segment, model, parameters.graphs, loss)
        for part in parts:
            graphs.copy(part.rows(existing[0].segment.files.paths), part.content)
        graphs.finish()
    writer.finish()


def _written(
    writer: VectorWriter, existing: Sequence[_Existing], runs: CodeRuns, num_partitions: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Write the codes of one partition after the other; yield them as they are stored."""
    sources = [item.partitions() for item in existing]
    numbers = range(num_partitions)
    for number in progress.counted(numbers, "merge_partitions", num_partitions, "partitions"):
        pieces = [next(source) for source in sources] + runs.partition(number)
        pieces = [piece for piece in pieces if len(piece[0])]
        if pieces:
            ids = np.concatenate([ids for ids, _ in pieces])
            codes = pa.concat_batches([codes for _, codes in pieces])
            yield number, writer.write(number, ids, codes)


def _write_graphs(
    segment: SegmentWriter,
    model: VectorModel,
    parameters: GraphParameters,
    loss: float,
    stored: Iterator[tuple[int, pa.RecordBatch]],
    total: int,
) -> GraphContent:
    """Write a graph of each partition, which have at most `total` rows together."""
    # Partitions have a thread each; if there is only one, its graph has several.
    threads = None if len(model.centroids) == 1 else 1

    def built(partition: tuple[int, pa.RecordBatch]) -> tuple[int, BuiltGraph]:
        number, codes = partition
        opened = model.quantizer.open_partition(codes, model.centroids[number])
        return number, build_graph(opened, model.quantizer, model.metric, parameters, threads)

    graphs = GraphWriter(segment, model, parameters, loss)
    with progress.stage("build_graphs", total, "rows") as counter:
        for number, graph in each(built, stored):
            graphs.write(number, graph)
            counter.advance(graph.levels[0].num_rows)
        graphs.finish()
    return graphs.content


def can_merge(files: IndexFiles, parameters: Mapping[str, Any]) -> bool:
    """Return whether a segment has the model of a new one; see `Builder.can_merge`."""
    if not files.segment.files and parameters[MODEL] is not None:
        return False
    segment = open_segment(files)
    return segment is not None and segment.model.is_same(parameters[MODEL])


def parameters_of(index_type: str, files: IndexFiles) -> dict[str, Any]:
    """Return the parameters and the model of an existing segment.

    Raises
    ------
    CorruptFileError, CorruptTableError, MissingFileError, StorageError
    """
    parameters = of_details(index_type, details.details_of(files.segment))
    if not files.segment.files:
        return {PARAMETERS: parameters, MODEL: None}
    segment = _opened(files)
    parameters = with_partitions(parameters, segment.ivf.num_partitions)
    return {PARAMETERS: parameters, MODEL: segment.model}


def details_value(dtype: pa.DataType, parameters: Mapping[str, Any]) -> bytes:
    """Return the message in the manifest; see `Builder.details`."""
    chosen: VectorParameters = parameters[PARAMETERS]
    return chosen.details()


def _opened(files: IndexFiles) -> VectorSegment:
    segment = open_segment(files)
    if segment is None:
        raise CorruptFileError(
            f"index {files.segment.name!r}: a file is missing or unknown; create the index again"
        )
    return segment

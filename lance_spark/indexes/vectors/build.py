"""Writes the segments of vector indexes, from vectors and from other segments."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark import progress
from lance_spark.errors import CorruptFileError
from lance_spark.indexes.builds import MODEL, Builder, local_folder
from lance_spark.indexes.files import IndexFiles, SegmentWriter, named
from lance_spark.indexes.vectors import files as details
from lance_spark.indexes.vectors.distances import CentroidAssignment, Numbers, each
from lance_spark.indexes.vectors.files import INDEX
from lance_spark.indexes.vectors.hnsw import GraphParameters
from lance_spark.indexes.vectors.hnsw_build import (
    GRAPH_SCHEMA,
    BuiltGraph,
    GraphContent,
    GraphWriter,
    build_graph,
)
from lance_spark.indexes.vectors.segment import (
    VectorModel,
    VectorSegment,
    VectorWriter,
    open_segment,
)
from lance_spark.indexes.vectors.training import (
    PARAMETERS,
    VectorParameters,
    indexed_vectors,
    items_of,
    of_details,
    parse,
    train,
    with_partitions,
)
from lance_spark.proto import table_pb2
from lance_spark.storage.errors import translated
from lance_spark.storage.local import LocalSource
from lance_spark.storage.source import ByteRange
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Codes of vectors in the order of partitions, on the local disk if they are many.
#
# Codes are collected until they have some bytes. Then they are sorted by their partitions, and
# become a *run*: a file in a temporary folder, which has one row of bytes for each vector, its id
# and its codes. The rows of a partition are in one place of each run, and are read without the rest
# of the file. So the memory does not grow with the number of runs.

#: Bytes of a run. The memory has it three times, while it is sorted.
_RUN_BYTES = 32 * 1024 * 1024
_ID = "_rowid"
#: Rows of bytes: ids and codes.
_Rows: TypeAlias = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class EncodedVectors:
    """Codes of vectors, with their partitions and row ids.

    - `numbers` (uint32 array): Partition of each vector.
    - `ids`: Uint64 array.
    - `loss`: Sum of the distances of the vectors from the centroids.
    """

    numbers: Numbers
    ids: UInt64Array
    codes: pa.RecordBatch
    loss: float


class CodeRuns:
    """Collects codes, and returns them partition after partition.

    - `schema`: Of the codes: numbers, and lists of numbers of a fixed size, without nulls.
    """

    def __init__(self, num_partitions: int, schema: pa.Schema) -> None:
        self._num_partitions = num_partitions
        self._schema = schema
        self._parts: list[EncodedVectors] = []
        self._size = 0
        self._row = np.dtype([(_ID, np.uint64), *(_member(field) for field in schema)])
        self._runs: list[tuple[LocalSource | _Rows, npt.NDArray[np.int64]]] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> CodeRuns:
        return self

    def __exit__(
        self,
        error: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for run, _ in self._runs:
            if isinstance(run, LocalSource):
                run.close()
        self._runs.clear()
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, part: EncodedVectors) -> None:
        """Add vectors."""
        if self._size and self._size + part.codes.nbytes > _RUN_BYTES:
            self._spill()
        self._parts.append(part)
        self._size += part.codes.nbytes + part.ids.nbytes + part.numbers.nbytes

    def finish(self) -> None:
        """Sort the last run: no more vectors are added."""
        if self._parts:
            self._runs.append(self._sorted())

    @property
    def num_rows(self) -> int:
        """Number of vectors, after `finish`."""
        return sum(int(bounds[-1]) for _, bounds in self._runs)

    def partition(self, number: int) -> list[tuple[UInt64Array, pa.RecordBatch]]:
        """Return the row ids and the codes of one partition, in pieces.

        Raises CorruptFileError, StorageError: a file of the temporary folder cannot be read.
        """
        pieces = []
        for run, bounds in self._runs:
            start, stop = int(bounds[number]), int(bounds[number + 1])
            if start < stop:
                rows = self._rows(run, start, stop)
                pieces.append((np.ascontiguousarray(rows[_ID]), self._codes(rows)))
        return pieces

    def _rows(self, run: LocalSource | _Rows, start: int, stop: int) -> _Rows:
        if not isinstance(run, LocalSource):
            return run[start:stop]
        width = self._row.itemsize
        (data,) = run.read([ByteRange(start * width, (stop - start) * width)])
        return data.view(self._row)

    def _codes(self, rows: _Rows) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            values = pa.array(np.ascontiguousarray(rows[field.name]).reshape(-1))
            if pa.types.is_fixed_size_list(field.type):
                values = pa.FixedSizeListArray.from_arrays(values, type=field.type)
            columns.append(values)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _sorted(self) -> tuple[_Rows, npt.NDArray[np.int64]]:
        """Return the collected vectors sorted by partition, and the first row of each partition."""
        numbers = np.concatenate([part.numbers for part in self._parts])
        rows = np.empty(len(numbers), self._row)
        first = 0
        for part in self._parts:
            some = rows[first : first + len(part.ids)]
            some[_ID] = part.ids
            for field, column in zip(self._schema, part.codes.columns, strict=True):
                values = column.flatten() if pa.types.is_fixed_size_list(field.type) else column
                some[field.name] = values.to_numpy().reshape(some[field.name].shape)
            first += len(some)
        self._parts.clear()
        self._size = 0
        narrow = numbers.astype(np.uint16) if self._num_partitions <= 1 << 16 else numbers
        order = np.argsort(narrow, kind="stable")
        sizes = np.bincount(numbers, minlength=self._num_partitions)
        # The rows as bytes: numpy moves those of several columns by one column after the other.
        whole = rows.view(np.dtype((np.void, self._row.itemsize)))
        return whole[order].view(self._row), np.append(0, np.cumsum(sizes))

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="lance-index-", dir=local_folder())
        rows, bounds = self._sorted()
        path = os.path.join(self._folder.name, str(len(self._runs)))
        with translated(path):
            rows.tofile(path)
        self._runs.append((LocalSource(path, rows.nbytes), bounds))


def _member(field: pa.Field) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    """Return the name, type and shape of a column in the rows of a run."""
    if pa.types.is_fixed_size_list(field.type):
        item = np.dtype(field.type.value_type.to_pandas_dtype())
        return field.name, item, (field.type.list_size,)
    return field.name, np.dtype(field.type.to_pandas_dtype()), ()


# --------------------------------------------------------------------------------------------------
# Writes the files of a segment of a vector index, from vectors and from other segments.
#
# Each vector is assigned to a partition and encoded, in some threads. The codes of a partition are
# written together (`runs`); those of other segments with the same model follow from their files.

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

    - `batches` (iterable of (pa.Array, uint64 array)): Vectors and row ids.
    - `parameters`: As `training.train` returns them.
    - `sources`: Segments with the same model.

    Raises CorruptFileError, MissingFileError, StorageError.
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

    - `files`: Of the existing segment.
    - `parts`: The graphs of all partitions, if they are built already.

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
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

    - `segment`: Gets one file.
    - `files`: Of the existing segment.
    - `numbers`: Of the partitions, increasing.

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
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

    - `segment`: Its folder and its file.
    """

    segment: table_pb2.IndexMetadata
    content: GraphContent

    def rows(self, paths: TablePaths) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file.

        Raises CorruptFileError, MissingFileError, StorageError.
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

    Raises CorruptFileError, CorruptTableError, MissingFileError, StorageError.
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


# --------------------------------------------------------------------------------------------------
# The types of vector indexes that can be created.


def _parse(options: Mapping[str, Any], index_type: str) -> dict[str, Any]:
    return {PARAMETERS: parse(index_type, options)}


def _supports(dtype: pa.DataType, index_type: str) -> bool:
    items = items_of(dtype)
    return items is not None and (items != np.uint8 or index_type.endswith("FLAT"))


def _builder(index_type: str, version: int = 1) -> Builder:
    return Builder(
        index_type,
        None,
        partial(_supports, index_type=index_type),
        version=version,
        parse=partial(_parse, index_type=index_type),
        details=details_value,
        existing=partial(parameters_of, index_type),
        write_batches=write,
        stage="shuffle",
        train=train,
        can_merge=can_merge,
    )


IVF_FLAT = _builder("IVF_FLAT")
IVF_SQ = _builder("IVF_SQ")
IVF_PQ = _builder("IVF_PQ")
IVF_RQ = _builder("IVF_RQ", version=2)
IVF_HNSW_FLAT = _builder("IVF_HNSW_FLAT")
IVF_HNSW_SQ = _builder("IVF_HNSW_SQ")
IVF_HNSW_PQ = _builder("IVF_HNSW_PQ")

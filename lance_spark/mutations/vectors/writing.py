"""Writes the files of a segment of a vector index, from vectors and from other segments.

Each vector is assigned to a partition and encoded, in some threads. The codes of a partition are
written together (`runs`); those of other segments with the same model follow from their files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.mutations.indexes.builder import MODEL
from lance_spark.mutations.indexes.merging.sources import Source
from lance_spark.mutations.vectors.model import VectorModel
from lance_spark.mutations.vectors.parameters import VectorParameters, of_details
from lance_spark.mutations.vectors.rows import indexed_vectors
from lance_spark.mutations.vectors.runs import Part, Runs
from lance_spark.mutations.vectors.training import PARAMETERS, with_partitions
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.vectors import details
from lance_spark.scan.vectors.assignment import Assignment
from lance_spark.scan.vectors.files.segment import VectorSegment, open_segment
from lance_spark.scan.vectors.files.writer import VectorWriter
from lance_spark.scan.vectors.threads import each
from lance_spark.table.rows.u64_segments import UInt64Array


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
    assignment = Assignment(model.centroids, model.metric)

    def encoded(batch: tuple[pa.Array, UInt64Array]) -> Part:
        vectors, ids = indexed_vectors(*batch, model.metric)
        numbers, distances = assignment.nearest(vectors)
        codes = model.quantizer.encode(vectors, model.centroids[numbers])
        return Part(numbers, ids, codes, float(distances.sum(dtype=np.float64)))

    existing = [(source, _opened(source.files)) for source in sources]
    loss = sum(segment.ivf.loss or 0 for _, segment in existing)
    with Runs(len(model.centroids), model.quantizer.fields) as runs:
        for part in each(encoded, batches):
            if len(part.ids):
                runs.add(part)
                loss += part.loss
        runs.finish()
        writer = VectorWriter(
            segment,
            model.index_type,
            model.metric,
            model.centroids,
            model.quantizer,
            loss,
        )
        for number in range(len(model.centroids)):
            pieces = [_kept(number, *item) for item in existing] + runs.partition(number)
            _write_partition(writer, number, [piece for piece in pieces if len(piece[0])])
        writer.finish()


def can_merge(files: IndexFiles, parameters: Mapping[str, Any]) -> bool:
    """Return whether a segment has the model of a new one; see `Builder.can_merge`."""
    if not files.segment.files and parameters[MODEL] is not None:
        return False
    segment = open_segment(files)
    return segment is not None and VectorModel.of(segment).is_same(parameters[MODEL])


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
    return {PARAMETERS: parameters, MODEL: VectorModel.of(segment)}


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


def _kept(
    number: int, source: Source, segment: VectorSegment
) -> tuple[UInt64Array, pa.RecordBatch]:
    """Return the rows of a partition of another segment that stay."""
    ids, stored = segment.stored(number)
    codes = segment.quantizer.unstored(stored)
    if source.kept is None or not len(ids):
        return ids, codes
    ids, stays = source.kept.rows(ids)
    if stays.all():
        return ids, codes
    return ids[stays], codes.take(pa.array(np.flatnonzero(stays)))


def _write_partition(
    writer: VectorWriter, number: int, pieces: Sequence[tuple[UInt64Array, pa.RecordBatch]]
) -> None:
    if pieces:
        ids = np.concatenate([ids for ids, _ in pieces])
        writer.write(number, ids, pa.concat_batches([codes for _, codes in pieces]))

"""Writes the files of a vector index; `segment` has their layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.file.writer import FileWriter
from lance_spark.scan.indexes.files import SegmentWriter
from lance_spark.scan.vectors.files.layout import (
    CODES,
    FLAT_KEY,
    GRAPHS,
    INDEX,
    IVF_KEY,
    METRIC_KEY,
    ROW_ID,
    STORAGE_KEY,
    TYPE_KEY,
    json_text,
)
from lance_spark.scan.vectors.files.model import VectorModel
from lance_spark.scan.vectors.tensors import encode_ivf
from lance_spark.table.rows.u64_segments import UInt64Array

_MARKER = pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)])


class VectorWriter:
    """Writes the codes of a segment, partition after partition.

    Parameters
    ----------
    segment : SegmentWriter
        Completes the files.
    model : VectorModel
        For a type with graphs, the caller writes `index.idx`.
    loss : float, optional
        Sum of the distances of vectors from their centroids.
    """

    def __init__(
        self, segment: SegmentWriter, model: VectorModel, loss: float | None = None
    ) -> None:
        self._segment = segment
        self._model = model
        self._loss = loss
        self._lengths = np.zeros(len(model.centroids), np.int64)
        self._next = 0
        self._schema = pa.schema([pa.field(ROW_ID, pa.uint64()), *model.quantizer.fields])
        self._codes: FileWriter = segment.create(CODES, self._schema)

    def write(self, number: int, ids: UInt64Array, codes: pa.RecordBatch) -> pa.RecordBatch:
        """Add all rows of one partition.

        Parameters
        ----------
        number : int
            Greater than that of the partition before.
        ids : uint64 array
            Row ids.
        codes : pa.RecordBatch
            As `Quantizer.encode` returns them.

        Returns
        -------
        pa.RecordBatch
            The codes in the order of bytes of the file.
        """
        assert number >= self._next, f"partition {number} must not follow {self._next - 1}"
        self._next = number + 1
        self._lengths[number] = len(ids)
        stored = self._model.quantizer.stored(codes)
        columns = [pa.array(ids, pa.uint64()), *stored.columns]
        self._codes.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return stored

    def finish(self) -> None:
        """Write the partitions and the quantizer."""
        offsets = np.cumsum(self._lengths) - self._lengths
        codes, quantizer = self._codes, self._model.quantizer
        places = encode_ivf(offsets.tolist(), self._lengths.tolist(), loss=self._loss)
        codes.set_metadata(IVF_KEY, str(codes.add_global_buffer(places)))
        buffers = [codes.add_global_buffer(data) for data in quantizer.buffers()]
        codes.set_metadata(METRIC_KEY, self._model.metric.value)
        codes.set_metadata(STORAGE_KEY, json_text([json_text(quantizer.metadata(buffers))]))
        self._segment.complete(CODES)
        if GRAPHS not in self._model.index_type:
            index = self._segment.create(INDEX, _MARKER)
            index.set_metadata(FLAT_KEY, json_text([""] * len(self._model.centroids)))
            set_index_metadata(index, self._model, loss=self._loss)
            self._segment.complete(INDEX)


def set_index_metadata(
    writer: FileWriter,
    model: VectorModel,
    lengths: npt.NDArray[np.int64] | None = None,
    loss: float | None = None,
) -> None:
    """Write the metadata of `index.idx` that all types have.

    Parameters
    ----------
    writer : FileWriter
    model : VectorModel
    lengths : int64 array, optional
        Rows of each partition in the file; 0 by default.
    loss : float, optional
    """
    if lengths is None:
        lengths = np.zeros(len(model.centroids), np.int64)
    offsets = np.cumsum(lengths) - lengths
    ivf = encode_ivf(offsets.tolist(), lengths.tolist(), model.centroids, loss)
    types = {"type": model.index_type, "distance_type": model.metric.value}
    writer.set_metadata(TYPE_KEY, json_text(types))
    writer.set_metadata(IVF_KEY, str(writer.add_global_buffer(ivf)))

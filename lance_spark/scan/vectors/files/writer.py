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
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.quantizer import Quantizer
from lance_spark.scan.vectors.tensors import encode_ivf
from lance_spark.table.rows.u64_segments import UInt64Array

_MARKER = pa.schema([pa.field("__flat_marker", pa.uint64(), nullable=False)])


class VectorWriter:
    """Writes the codes of a segment, partition after partition.

    Parameters
    ----------
    segment : SegmentWriter
        Completes the files.
    index_type : str
        Such as IVF_PQ. For a type with graphs, the caller writes `index.idx`.
    metric : Metric
    centroids : array of shape (partitions, dimension)
        In the type of the column.
    quantizer : Quantizer
    loss : float, optional
        Sum of the distances of the trained vectors from their centroids.
    """

    def __init__(
        self,
        segment: SegmentWriter,
        index_type: str,
        metric: Metric,
        centroids: Vectors,
        quantizer: Quantizer,
        loss: float | None = None,
    ) -> None:
        self._segment = segment
        self._index_type = index_type
        self._metric = metric
        self._centroids = centroids
        self._quantizer = quantizer
        self._loss = loss
        self._lengths = np.zeros(len(centroids), np.int64)
        self._next = 0
        self._schema = pa.schema([pa.field(ROW_ID, pa.uint64()), *quantizer.fields])
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
        stored = self._quantizer.stored(codes)
        columns = [pa.array(ids, pa.uint64()), *stored.columns]
        self._codes.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return stored

    def finish(self) -> None:
        """Write the partitions and the quantizer."""
        offsets = np.cumsum(self._lengths) - self._lengths
        codes = self._codes
        places = encode_ivf(offsets.tolist(), self._lengths.tolist(), loss=self._loss)
        codes.set_metadata(IVF_KEY, str(codes.add_global_buffer(places)))
        buffers = [codes.add_global_buffer(data) for data in self._quantizer.buffers()]
        codes.set_metadata(METRIC_KEY, self._metric.value)
        codes.set_metadata(STORAGE_KEY, json_text([json_text(self._quantizer.metadata(buffers))]))
        self._segment.complete(CODES)
        if GRAPHS not in self._index_type:
            index = self._segment.create(INDEX, _MARKER)
            index.set_metadata(FLAT_KEY, json_text([""] * len(self._centroids)))
            set_index_metadata(
                index, self._index_type, self._metric, self._centroids, loss=self._loss
            )
            self._segment.complete(INDEX)


def set_index_metadata(
    writer: FileWriter,
    index_type: str,
    metric: Metric,
    centroids: Vectors,
    lengths: npt.NDArray[np.int64] | None = None,
    loss: float | None = None,
) -> None:
    """Write the metadata of `index.idx` that all types have.

    Parameters
    ----------
    writer : FileWriter
    index_type : str
    metric : Metric
    centroids : array of shape (partitions, dimension)
    lengths : int64 array, optional
        Rows of each partition in the file; 0 by default.
    loss : float, optional
    """
    if lengths is None:
        lengths = np.zeros(len(centroids), np.int64)
    offsets = np.cumsum(lengths) - lengths
    ivf = encode_ivf(offsets.tolist(), lengths.tolist(), centroids, loss)
    writer.set_metadata(TYPE_KEY, json_text({"type": index_type, "distance_type": metric.value}))
    writer.set_metadata(IVF_KEY, str(writer.add_global_buffer(ivf)))

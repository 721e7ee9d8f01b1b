"""IVF_PQ indexes in one file, as pylance up to 0.24 writes them.

Later releases still write it with `index_file_version="LEGACY"`. `index.idx` has, in this order:

| part | content |
| --- | --- |
| of each partition | the codes of its rows, row after row, then the row ids as u64 |
| u32, message | length of the `Index` message of `protos/index.proto`, and the message |
| u64 | position of that length |
| u16, u16, `LANC` | version 0.0 or 0.1 |

The stages of the message are the partitions, whose offsets are positions in the file, and the
codebook. There are 8 bits for each code.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.file.footer import Tail
from lance_spark.proto import index_pb2 as pb
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.vectors.files.layout import INDEX
from lance_spark.scan.vectors.files.model import VectorModel
from lance_spark.scan.vectors.ivf import Int64Array, Ivf, Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.columns import vector_list
from lance_spark.scan.vectors.quantizers.product import ProductQuantizer
from lance_spark.scan.vectors.tensors import decode_tensor
from lance_spark.storage.source import ByteRange
from lance_spark.table.rows.u64_segments import UInt64Array

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_ID_BYTES = 8
_NUM_BITS = 8
_METRICS = {
    pb.L2: Metric.L2,
    pb.Cosine: Metric.COSINE,
    pb.Dot: Metric.DOT,
}


def read_legacy(tail: Tail) -> VectorModel:
    """Return what the file has beside rows.

    Raises
    ------
    CorruptFileError
    UnsupportedFeatureError
        The index has another type, or its vectors are rotated.
    """
    name = tail.name
    end = tail.size - _FOOTER.size
    if end < _LENGTH.size:
        raise CorruptFileError(f"{name}: {tail.size} bytes are too few; rebuild the index")
    start = _FOOTER.unpack(tail.read([ByteRange(end, _FOOTER.size)])[0].tobytes())[0]
    if start > end - _LENGTH.size:
        raise CorruptFileError(f"{name}: its metadata start after its end; rebuild the index")
    (size,) = _LENGTH.unpack(tail.read([ByteRange(start, _LENGTH.size)])[0].tobytes())
    first = start + _LENGTH.size
    if first + size != end:
        raise CorruptFileError(f"{name}: its metadata do not end at its footer; rebuild the index")
    (data,) = tail.read([ByteRange(first, size)])
    try:
        message = pb.Index.FromString(data.tobytes())
    except DecodeError as error:
        raise CorruptFileError(f"{name}: its metadata are damaged: {error}") from None
    index = message.vector_index
    metric = _METRICS.get(index.metric_type)
    names = [stage.WhichOneof("stage") for stage in index.stages]
    if names != ["ivf", "pq"] or metric is None or index.stages[1].pq.num_bits != _NUM_BITS:
        raise UnsupportedFeatureError(
            f"{name}: an index of an old release must be an IVF_PQ index of 8 bits and without a "
            "rotation; rebuild it"
        )
    stages = list(index.stages)
    centroids, lengths = _centroids(stages[0].ivf, name)
    quantizer = ProductQuantizer(metric, _codebook(stages[1].pq, name), transposed=False)
    if quantizer.dimension != centroids.shape[1]:
        raise CorruptFileError(
            f"{name}: codes of {quantizer.dimension} items do not belong to centroids of "
            f"{centroids.shape[1]}; rebuild the index"
        )
    positions = _positions(stages[0].ivf, lengths * (quantizer.code_bytes + _ID_BYTES), start, name)
    ivf = Ivf(centroids, np.cumsum(lengths) - lengths, lengths)
    return VectorModel("IVF_PQ", metric, ivf, quantizer, positions)


def read_legacy_rows(
    files: IndexFiles, model: VectorModel, numbers: Sequence[int]
) -> list[tuple[UInt64Array, pa.RecordBatch]]:
    """Return the row ids and the codes of partitions.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    assert model.positions is not None
    assert isinstance(model.quantizer, ProductQuantizer)
    width = model.quantizer.code_bytes
    ranges = []
    for number in numbers:
        start, count = int(model.positions[number]), int(model.ivf.lengths[number])
        ranges.append(ByteRange(start, count * (width + _ID_BYTES)))
    with closing(files.source(INDEX)) as source:
        parts = source.read(ranges)
    partitions = []
    for part in parts:
        count = len(part) // (width + _ID_BYTES)
        codes, ids = part[: count * width], part[count * width :]
        batch = pa.RecordBatch.from_arrays(
            [vector_list(codes.reshape(count, width))], schema=model.quantizer.fields
        )
        partitions.append((np.frombuffer(ids.tobytes(), "<u8"), batch))
    return partitions


def _centroids(message: pb.IVF, name: str) -> tuple[Vectors, Int64Array]:
    """Return the centroids, and the number of rows of each partition."""
    count = len(message.lengths)
    if message.HasField("centroids_tensor"):
        centroids = decode_tensor(message.centroids_tensor, 2, name)
    else:
        centroids = _rows(np.array(message.centroids, np.float32), count, name)
    if not count or len(centroids) != count or not centroids.shape[1]:
        raise CorruptFileError(
            f"{name}: {len(centroids)} centroids do not belong to {count} partitions; rebuild the "
            "index"
        )
    return centroids, np.fromiter(message.lengths, np.int64, count)


def _codebook(message: pb.PQ, name: str) -> Vectors:
    codewords = 1 << _NUM_BITS
    if message.HasField("codebook_tensor"):
        flat = decode_tensor(message.codebook_tensor, 2, name).reshape(-1)
    else:
        flat = np.array(message.codebook, np.float32)
    count = message.num_sub_vectors
    rows = _rows(flat, codewords * count, name)
    if flat.dtype.kind != "f" or not rows.shape[1] or message.dimension != count * rows.shape[1]:
        raise CorruptFileError(
            f"{name}: a codebook of {len(flat)} numbers does not belong to {count} sub-vectors of "
            f"{message.dimension} items; rebuild the index"
        )
    return rows.reshape(count, codewords, rows.shape[1])


def _rows(items: npt.NDArray[np.float32], count: int, name: str) -> Vectors:
    if not count or len(items) % count:
        raise CorruptFileError(
            f"{name}: {len(items)} numbers are not {count} vectors; rebuild the index"
        )
    return items.reshape(count, len(items) // count)


def _positions(message: pb.IVF, sizes: Int64Array, end: int, name: str) -> Int64Array:
    """Return the positions of partitions, which do not overlap."""
    positions = np.fromiter(message.offsets, np.uint64, len(message.offsets))
    if len(positions) == len(sizes):
        order = np.argsort(positions, kind="stable")
        starts = np.append(positions[order], np.uint64(end))
        # Both are less than 2**63 if the positions are inside the file.
        if (
            starts.max() == end
            and (starts[:-1].astype(np.int64) + sizes[order] <= starts[1:]).all()
        ):
            return positions.astype(np.int64)
    raise CorruptFileError(
        f"{name}: its {len(sizes)} partitions overlap, or lie outside the file; rebuild the index"
    )

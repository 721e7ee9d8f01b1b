"""What the files of vector indexes are made of: names, JSON, tensors, details in manifests."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptFileError, CorruptTableError
from lance_spark.file.open import DataFileReader
from lance_spark.indexes.vectors.columns import Int64Array, Ivf, Vectors
from lance_spark.proto import index_pb2, table_pb2
from lance_spark.proto import index_pb2 as pb

# --------------------------------------------------------------------------------------------------
# The details of a vector index in the manifest: its type, and parameters of its build.
#
# | field | content |
# | --- | --- |
# | `metric_type` | |
# | `target_partition_size` | rows of a partition; 0 if the caller gave none |
# | `hnsw_index_config` | parameters of graphs, for types with HNSW |
# | `flat`, `sq`, `pq`, `rq` | the quantizer; none in indexes of early releases |
# | `runtime_hints` | texts, such as `lance.ivf.sample_rate` |

#: The type of all vector indexes in the manifest.
VECTOR = "VECTOR"


def details_of(index: table_pb2.IndexMetadata) -> index_pb2.VectorIndexDetails:
    """Return the details of a segment.

    Raises CorruptTableError: they cannot be decoded.
    """
    details = index_pb2.VectorIndexDetails()
    try:
        details.ParseFromString(index.index_details.value)
    except DecodeError as error:
        raise CorruptTableError(
            f"index {index.name!r}: its details cannot be decoded: {error}"
        ) from None
    return details


def index_type_of(index: table_pb2.IndexMetadata) -> str:
    """Return the type of a segment, such as IVF_PQ.

    Raises CorruptTableError: the details of the segment cannot be decoded.
    """
    details = details_of(index)
    compression = details.WhichOneof("compression")
    if compression is None and not index.index_details.value:
        # Early writers recorded the type only in the files of the index.
        return "Vector"
    hnsw = "HNSW_" if details.HasField("hnsw_index_config") else ""
    return f"IVF_{hnsw}{(compression or 'flat').upper()}"


# --------------------------------------------------------------------------------------------------
# Names in the files of vector indexes, and JSON in their metadata; `segment` has the layout.

INDEX, CODES = "index.idx", "auxiliary.idx"
ROW_ID = "_rowid"
TYPE_KEY, IVF_KEY, FLAT_KEY, GRAPHS_KEY = "lance:index", "lance:ivf", "lance:flat", "lance:hnsw"
METRIC_KEY, STORAGE_KEY = "distance_type", "storage_metadata"
#: Part of the names of index types with graphs.
GRAPHS = "HNSW"
#: Most bytes of a text in the metadata of a file.
_MAX_TEXT = 1 << 20


def json_in(file: DataFileReader, key: str, max_bytes: int = _MAX_TEXT) -> object:
    """Return the JSON in the metadata of an index file.

    Raises CorruptFileError: the entry is missing, too long, or no JSON.
    """
    return parsed_json(text_in(file, key, max_bytes), key, file.source.name)


def parsed_json(text: str, key: str, name: str) -> object:
    """Return the JSON of a text.

    Raises CorruptFileError: it is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{name}: {key} is no JSON: {error}; rebuild the index") from None


def text_in(file: DataFileReader, key: str, max_bytes: int = _MAX_TEXT) -> str:
    """Return a text in the metadata of an index file.

    Raises CorruptFileError: the entry is missing or too long.
    """
    data = file.schema.metadata.get(key, b"")
    if not data or len(data) > max_bytes:
        raise CorruptFileError(
            f"{file.source.name}: {key} must have 1 to {max_bytes} bytes, not {len(data)}; rebuild "
            "the index"
        )
    return data.decode("utf-8", "replace")


def json_text(content: Any) -> str:
    """Return JSON as pylance writes it."""
    return json.dumps(content, separators=(",", ":"))


# --------------------------------------------------------------------------------------------------
# Arrays as messages of index files: tensors, and the partitions of a vector index.
#
# A `Tensor` has a type, a shape, and the items in little-endian order, row after row. An `IVF` is
# global buffer `lance:ivf` of both files of a vector index:
#
# | field | `index.idx` | `auxiliary.idx` |
# | --- | --- | --- |
# | centroids_tensor | shape (partitions, dimension) | absent |
# | offsets, lengths | rows of each partition in this file; 0 without graphs | the same |
# | loss | optional | optional |
#
# Specification: `protos/index.proto`.

_DTYPES: dict[pb.Tensor.DataType, np.dtype[Any]] = {
    pb.Tensor.FLOAT16: np.dtype("<f2"),
    pb.Tensor.FLOAT32: np.dtype("<f4"),
    pb.Tensor.FLOAT64: np.dtype("<f8"),
    pb.Tensor.UINT8: np.dtype("u1"),
}
_TYPES = {dtype: number for number, dtype in _DTYPES.items()}
_MAX_ROWS = 2**63 - 1


def encode_tensor(array: npt.NDArray[Any]) -> pb.Tensor:
    """Return an array of float16, float32, float64 or uint8 as a message."""
    dtype = array.dtype.newbyteorder("<")
    data = np.ascontiguousarray(array, dtype).tobytes()
    return pb.Tensor(data_type=_TYPES[dtype], shape=array.shape, data=data)


def decode_tensor(tensor: pb.Tensor, num_axes: int, name: str) -> npt.NDArray[Any]:
    """Return the array of a message; errors call the file `name`.

    Raises CorruptFileError: it has another number of axes, another type, or not the items that its
    shape promises.
    """
    shape = tuple(tensor.shape)
    dtype = _DTYPES.get(tensor.data_type)
    if dtype is None:
        raise CorruptFileError(
            f"{name}: a tensor of type {tensor.data_type} is not an array of floats or bytes; "
            "rebuild the index"
        )
    if len(shape) != num_axes or math.prod(shape) * dtype.itemsize != len(tensor.data):
        raise CorruptFileError(
            f"{name}: a tensor of {len(tensor.data)} bytes does not have the shape {shape[:8]} "
            f"with {num_axes} axes; rebuild the index"
        )
    items: npt.NDArray[Any] = np.frombuffer(tensor.data, dtype)
    return items.reshape(shape)


def parse_tensor(data: bytes, num_axes: int, name: str) -> npt.NDArray[Any]:
    """Return the array of a serialised message; see `decode_tensor`.

    Raises CorruptFileError.
    """
    try:
        return decode_tensor(pb.Tensor.FromString(data), num_axes, name)
    except DecodeError as error:
        raise CorruptFileError(f"{name}: a tensor is damaged: {error}") from None


def encode_ivf(
    offsets: Sequence[int],
    lengths: Sequence[int],
    centroids: Vectors | None = None,
    loss: float | None = None,
) -> bytes:
    """Return the partitions of a file as a global buffer.

    - `offsets`, `lengths`: First row, and number of rows, of each partition in the file.
    - `centroids` (array of shape (partitions, dimension)): For `index.idx`.
    - `loss`: Sum of the distances of vectors from their centroids.
    """
    message = pb.IVF(offsets=offsets, lengths=lengths, loss=loss)
    if centroids is not None:
        message.centroids_tensor.CopyFrom(encode_tensor(centroids))
    return message.SerializeToString()


def decode_ivf(data: bytes, num_rows: int, name: str) -> Ivf:
    """Return the partitions of a file.

    - `data`: A global buffer.
    - `num_rows`: Rows of the file.
    - `name`: What errors call the file.

    Returns its centroids have the shape (0, 0) if the buffer has none. Raises CorruptFileError:
    partitions overlap, or are outside the file; or there are more or fewer than centroids.
    """
    try:
        message = pb.IVF.FromString(data)
    except DecodeError as error:
        raise CorruptFileError(f"{name}: its partitions are damaged: {error}") from None
    count = len(message.lengths)
    lengths = np.fromiter(message.lengths, np.int64, count)
    if not message.offsets:
        # The first releases left out the offsets.
        message.offsets.extend((np.cumsum(lengths) - lengths).tolist())
    if len(message.offsets) != count:
        raise CorruptFileError(
            f"{name}: {len(message.offsets)} offsets and {count} lengths of partitions must be "
            "equally many; rebuild the index"
        )
    starts = np.fromiter(message.offsets, np.uint64, count)
    if count and int(starts.max()) > _MAX_ROWS:
        raise CorruptFileError(f"{name}: a partition starts after the last row; rebuild the index")
    offsets = starts.astype(np.int64)
    _check_rows(offsets, lengths, num_rows, name)
    centroids = np.empty((0, 0), np.float32)
    if message.HasField("centroids_tensor"):
        centroids = decode_tensor(message.centroids_tensor, 2, name)
        if len(centroids) != count or not centroids.shape[1]:
            raise CorruptFileError(
                f"{name}: {len(centroids)} centroids of {centroids.shape[1]} items do not belong "
                f"to {count} partitions; rebuild the index"
            )
    return Ivf(centroids, offsets, lengths, message.loss if message.HasField("loss") else None)


def _check_rows(offsets: Int64Array, lengths: Int64Array, num_rows: int, name: str) -> None:
    """Raise an error if partitions overlap, or do not have all rows of their file."""
    filled = np.flatnonzero(lengths)
    order = filled[np.argsort(offsets[filled], kind="stable")]
    starts = np.append(offsets[order], num_rows)
    # A sum of lengths that are less than 2**32 each.
    ends = np.concatenate([[0], np.cumsum(lengths[order])])
    if (starts != ends).any():
        raise CorruptFileError(
            f"{name}: the partitions do not have each of its {num_rows} rows once; rebuild the "
            "index"
        )

"""The details of a vector index in the manifest: its type, and parameters of its build.

| field | content |
| --- | --- |
| `metric_type` | |
| `target_partition_size` | rows of a partition; 0 if the caller gave none |
| `hnsw_index_config` | parameters of graphs, for types with HNSW |
| `flat`, `sq`, `pq`, `rq` | the quantizer; none in indexes of early releases |
| `runtime_hints` | texts, such as `lance.ivf.sample_rate` |
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError
from lance_spark.proto import index_pb2, table_pb2

#: The type of all vector indexes in the manifest.
VECTOR = "VECTOR"


def details_of(index: table_pb2.IndexMetadata) -> index_pb2.VectorIndexDetails:
    """Return the details of a segment.

    Raises
    ------
    CorruptTableError
        They cannot be decoded.
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

    Raises
    ------
    CorruptTableError
        The details of the segment cannot be decoded.
    """
    details = details_of(index)
    compression = details.WhichOneof("compression")
    if compression is None and not index.index_details.value:
        # Early writers recorded the type only in the files of the index.
        return "Vector"
    hnsw = "HNSW_" if details.HasField("hnsw_index_config") else ""
    return f"IVF_{hnsw}{(compression or 'flat').upper()}"

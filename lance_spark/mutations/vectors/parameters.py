"""The parameters of vector indexes. Names, defaults and limits are those of pylance.

| parameter | index types | default |
| --- | --- | --- |
| `metric`, `distance_type`, `metric_type` | all | `l2` |
| `num_partitions` | all | rows / `target_partition_size`, from 1 to 4,096 |
| `target_partition_size` | all | 4,096 for FLAT and RQ, 8,192 for SQ and PQ, 1,048,576 for HNSW |
| `ivf_centroids` | all | trained |
| `sample_rate` | all | 256 rows for each partition and codeword |
| `max_iters` | all | 50 |
| `num_sub_vectors` | PQ | dimension / 16, or dimension / 8; pylance requires it |
| `num_bits` | PQ: 4 or 8; RQ: 1 to 9; SQ: 8 | 8; RQ: 5 |
| `pq_codebook` | PQ, with `ivf_centroids` | trained |
| `skip_transpose` | PQ | false |
| `rabitq_model` | RQ | random rotation |
| `m`, `ef_construction`, `max_level` | HNSW | 20, 150, 7 |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import InvalidOptionError
from lance_spark.mutations.vectors.kmeans import DEFAULT_MAX_ITERS
from lance_spark.proto import index_pb2
from lance_spark.scan.vectors.graphs.graph import GraphParameters
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import METRIC_KEYS, Metric, given_metric

HNSW = "HNSW"
#: Options of pylance that have no effect on the index here.
_IGNORED = frozenset(
    {
        "accelerator",
        "filter_nan",
        "index_cache_size",
        "index_file_version",
        "prefetch_distance",
        "progress_callback",
        "shuffle_partition_batches",
        "shuffle_partition_concurrency",
        "storage_options",
        "streaming_coreset_rate",
        "streaming_refine_passes",
        "streaming_sample_rate",
    }
)
_DEFAULT_BITS = {"PQ": 8, "RQ": 5, "SQ": 8}
_BITS = {"PQ": (4, 8), "RQ": tuple(range(1, 10)), "SQ": (8,)}
_PARTITION_ROWS = {"FLAT": 4096, "RQ": 4096, "SQ": 8192, "PQ": 8192}
#: Items of a sub-vector by default, the first that divides the dimension.
_SUB_VECTOR_ITEMS = (16, 8)
_GRAPH_ROWS = 1 << 20
_MAX_DEFAULT_PARTITIONS = 4096
_MAX_NUMBER = 1 << 31
#: Options of some quantizers and of graphs only.
_OF_TYPES = {
    "num_sub_vectors": "PQ",
    "pq_codebook": "PQ",
    "skip_transpose": "PQ",
    "rabitq_model": "RQ",
    "m": HNSW,
    "ef_construction": HNSW,
    "max_level": HNSW,
}
#: The number of each metric in the manifest.
METRICS = {
    Metric.L2: index_pb2.L2,
    Metric.COSINE: index_pb2.Cosine,
    Metric.DOT: index_pb2.Dot,
    Metric.HAMMING: index_pb2.Hamming,
}
_SAMPLE_RATE, _MAX_ITERS = "lance.ivf.sample_rate", "lance.ivf.max_iters"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorParameters:
    """Parameters of a vector index; the module docstring has their meaning.

    Attributes
    ----------
    index_type : str
        Such as IVF_PQ.
    """

    index_type: str
    metric: Metric = Metric.L2
    num_partitions: int | None = None
    target_partition_size: int | None = None
    ivf_centroids: Vectors | None = None
    sample_rate: int = 256
    max_iters: int = DEFAULT_MAX_ITERS
    num_sub_vectors: int | None = None
    num_bits: int = 8
    pq_codebook: Vectors | None = None
    skip_transpose: bool = False
    rabitq_model: str | None = None
    m: int = 20
    ef_construction: int = 150
    max_level: int = 7

    @property
    def graphs(self) -> GraphParameters | None:
        """How graphs are built; None for types without graphs."""
        if not self.has_graphs:
            return None
        return GraphParameters(self.m, self.ef_construction, self.max_level)

    @property
    def quantizer(self) -> str:
        """FLAT, SQ, PQ or RQ."""
        return self.index_type.rpartition("_")[2]

    @property
    def has_graphs(self) -> bool:
        """Whether partitions have graphs."""
        return HNSW in self.index_type

    def partitions_of(self, num_rows: int) -> int:
        """Return the number of partitions of a table, at least 1."""
        if self.num_partitions is not None:
            count = self.num_partitions
            if self.quantizer == "PQ":
                # pylance trains codebooks and partitions by one sample.
                count = min(count, max(num_rows // self.sample_rate, 1))
            return count
        size = self.target_partition_size
        if size is None:
            size = _GRAPH_ROWS if self.has_graphs else _PARTITION_ROWS[self.quantizer]
        return max(1, min(num_rows // size, _MAX_DEFAULT_PARTITIONS))

    def with_sub_vectors(self, dimension: int) -> VectorParameters:
        """Return the parameters with a number of sub-vectors for `PQ`."""
        if self.quantizer != "PQ" or self.num_sub_vectors is not None:
            return self
        for items in _SUB_VECTOR_ITEMS:
            count, remainder = divmod(dimension, items)
            if not remainder and not count * self.num_bits % 8:
                return replace(self, num_sub_vectors=count)
        raise InvalidOptionError(
            f"{self.index_type} index: num_sub_vectors is required, because the dimension, "
            f"{dimension}, is not a multiple of {_SUB_VECTOR_ITEMS[-1]}: give a number that "
            "divides it"
        )

    def without_arrays(self) -> VectorParameters:
        """Return the parameters that tasks and the manifest need."""
        return replace(self, ivf_centroids=None, pq_codebook=None)

    def details(self) -> bytes:
        """Return the message in the manifest; see `lance_spark.scan.vectors.details`."""
        details = index_pb2.VectorIndexDetails(
            metric_type=METRICS[self.metric],
            target_partition_size=self.target_partition_size or 0,
            runtime_hints={_SAMPLE_RATE: str(self.sample_rate), _MAX_ITERS: str(self.max_iters)},
        )
        if self.has_graphs:
            details.hnsw_index_config.max_connections = self.m
            details.hnsw_index_config.construction_ef = self.ef_construction
            details.hnsw_index_config.max_level = self.max_level
        if self.quantizer == "PQ":
            details.pq.num_bits = self.num_bits
            details.pq.num_sub_vectors = self.num_sub_vectors or 0
        elif self.quantizer == "FLAT":
            details.flat.SetInParent()
        else:
            part = details.sq if self.quantizer == "SQ" else details.rq
            part.num_bits = self.num_bits
        return details.SerializeToString(deterministic=True)


def parse(index_type: str, options: Mapping[str, Any]) -> VectorParameters:
    """Return the parameters for the options of a caller.

    Raises
    ------
    InvalidOptionError, InvalidInputError
        An option is unknown, or has a wrong value.
    """
    values = {
        key.lower(): number
        for key, number in options.items()
        if number is not None and key.lower() not in _IGNORED
    }
    metric = given_metric(values) or Metric.L2
    values = {key: value for key, value in values.items() if key not in METRIC_KEYS}
    names = [field.name for field in fields(VectorParameters)][1:]
    for key in values:
        if key not in names or _OF_TYPES.get(key, "") not in index_type:
            allowed = [item for item in names if _OF_TYPES.get(item, "") in index_type]
            raise InvalidOptionError(
                f"{index_type} index: option {key!r} is unknown; the options are "
                f"{', '.join(allowed)}"
            )
    quantizer = index_type.rpartition("_")[2]
    numbers = {
        field.name: values[field.name]
        for field in fields(VectorParameters)
        if field.name in values and field.type in ("int", "int | None")
    }
    for key, number in numbers.items():
        values[key] = _number(index_type, key, number)
    values.setdefault("num_bits", _DEFAULT_BITS.get(quantizer, 8))
    _check_bits(index_type, quantizer, values["num_bits"])
    for key in ("ivf_centroids", "pq_codebook"):
        if key in values:
            values[key] = _array(index_type, key, values[key])
    parameters = VectorParameters(index_type=index_type, metric=metric, **values)
    _check_centroids(parameters)
    if quantizer == "PQ":
        parameters = _checked_product(parameters)
    if parameters.graphs is not None:
        parameters.graphs.check()
    if metric is Metric.HAMMING and quantizer != "FLAT":
        raise InvalidOptionError(
            f"{index_type} index: metric hamming needs vectors of uint8, which only IVF_FLAT and "
            "IVF_HNSW_FLAT store"
        )
    if parameters.ivf_centroids is not None:
        return replace(parameters, num_partitions=len(parameters.ivf_centroids))
    return parameters


def of_details(index_type: str, details: index_pb2.VectorIndexDetails) -> VectorParameters:
    """Return the parameters in the manifest; numbers that are out of range have their defaults."""
    options: dict[str, Any] = {
        "metric": next((m for m, number in METRICS.items() if number == details.metric_type), "l2"),
        "target_partition_size": details.target_partition_size or None,
    }
    if isinstance(options["metric"], Metric):
        options["metric"] = options["metric"].value
    for name, key in (("sample_rate", _SAMPLE_RATE), ("max_iters", _MAX_ITERS)):
        text = details.runtime_hints.get(key, "")
        if text.isdigit() and 0 < len(text) < 9 and int(text):
            options[name] = int(text)
    if details.HasField("pq"):
        options["num_sub_vectors"] = details.pq.num_sub_vectors or None
        options["num_bits"] = details.pq.num_bits or None
    elif details.HasField("rq"):
        options["num_bits"] = details.rq.num_bits or None
    if details.HasField("hnsw_index_config"):
        graphs = details.hnsw_index_config
        options["m"] = graphs.max_connections or None
        options["ef_construction"] = graphs.construction_ef or None
        options["max_level"] = graphs.max_level or None
    return parse(index_type, options)


def _number(index_type: str, name: str, value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidOptionError(
            f"{index_type} index: {name} must be a whole number, not {value!r}"
        )
    if not 0 < value < _MAX_NUMBER:
        raise InvalidOptionError(f"{index_type} index: {name} must be at least 1, not {value}")
    return int(value)


def _check_bits(index_type: str, quantizer: str, num_bits: int) -> None:
    allowed = _BITS.get(quantizer)
    if allowed is not None and num_bits not in allowed:
        raise InvalidOptionError(
            f"{index_type} index: num_bits must be one of {', '.join(map(str, allowed))}, not "
            f"{num_bits}"
        )


def _array(index_type: str, name: str, value: Any) -> Vectors:
    """Return centroids or a codebook, which may be an array of Arrow."""
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if isinstance(value, pa.ExtensionArray):
        value = value.storage
    if isinstance(value, pa.FixedSizeListArray) and not value.null_count:
        array = np.asarray(value.flatten()).reshape(len(value), value.type.list_size)
    else:
        array = np.asarray(value)
    if array.dtype.kind != "f" and array.dtype != np.uint8:
        raise InvalidOptionError(
            f"{index_type} index: {name} must have floating-point numbers, not {array.dtype}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidOptionError(f"{index_type} index: {name} must have finite numbers only")
    return array


def _check_centroids(parameters: VectorParameters) -> None:
    centroids, count = parameters.ivf_centroids, parameters.num_partitions
    if centroids is None:
        return
    if centroids.ndim != 2 or not len(centroids):
        raise InvalidOptionError(
            f"{parameters.index_type} index: ivf_centroids must have the shape (partitions, "
            f"dimension), not {centroids.shape}"
        )
    if count is not None and count != len(centroids):
        raise InvalidOptionError(
            f"{parameters.index_type} index: ivf_centroids has {len(centroids)} centroids, but "
            f"num_partitions is {count}"
        )


def _checked_product(parameters: VectorParameters) -> VectorParameters:
    index_type, count = parameters.index_type, parameters.num_sub_vectors
    if count is not None and count * parameters.num_bits % 8:
        raise InvalidOptionError(
            f"{index_type} index: num_sub_vectors must be even with num_bits=4, not {count}"
        )
    codebook = parameters.pq_codebook
    if codebook is None:
        return parameters
    if count is None:
        raise InvalidOptionError(f"{index_type} index: pq_codebook needs num_sub_vectors, too")
    if parameters.ivf_centroids is None:
        raise InvalidOptionError(f"{index_type} index: pq_codebook needs ivf_centroids, too")
    words = 1 << parameters.num_bits
    if codebook.ndim == 2 and len(codebook) == count * words:
        # Arrow has no other form.
        codebook = codebook.reshape(count, words, -1)
    if codebook.ndim != 3 or codebook.shape[:2] != (count, words):
        raise InvalidOptionError(
            f"{index_type} index: pq_codebook must have the shape ({count}, {words}, dimension / "
            f"{count}), not {codebook.shape}"
        )
    return replace(parameters, pq_codebook=codebook)

"""Learns the model of a vector index from a sample of the rows.

The sample has blocks of consecutive rows at even distances, so that a part of a large table is read
only. If many rows have no vector, more blocks are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark import progress
from lance_spark.encoding.rows import RowRanges
from lance_spark.errors import InvalidInputError, InvalidOptionError, UnsupportedTypeError
from lance_spark.file.schema.field import Field
from lance_spark.indexes.builds import MODEL, column_batches, value_type
from lance_spark.indexes.vectors.columns import (
    METRIC_KEYS,
    ColumnVectors,
    Ivf,
    Metric,
    Vectors,
    VectorType,
    given_metric,
)
from lance_spark.indexes.vectors.distances import CentroidAssignment, normalized
from lance_spark.indexes.vectors.hnsw import GraphParameters, required_faiss
from lance_spark.indexes.vectors.kmeans import DEFAULT_MAX_ITERS, cluster, codebook
from lance_spark.indexes.vectors.quantizers.flat import FlatQuantizer
from lance_spark.indexes.vectors.quantizers.product import ProductQuantizer
from lance_spark.indexes.vectors.quantizers.quantizer import Quantizer
from lance_spark.indexes.vectors.quantizers.rabit import RabitQuantizer
from lance_spark.indexes.vectors.quantizers.scalar import ScalarQuantizer
from lance_spark.indexes.vectors.segment import VectorModel
from lance_spark.proto import index_pb2
from lance_spark.runner import FragmentTask
from lance_spark.scan.fragment.row_meta import ROW_ID
from lance_spark.scan.task import FragmentSlice
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# The parameters of vector indexes. Names, defaults and limits are those of pylance.
#
# | parameter | index types | default |
# | --- | --- | --- |
# | `metric`, `distance_type`, `metric_type` | all | `l2` |
# | `num_partitions` | all | rows / `target_partition_size`, from 1 to 4,096 |
# | `target_partition_size` | all | 4,096 for FLAT and RQ, 8,192 for SQ and PQ, 1,048,576 for HNSW |
# | `ivf_centroids` | all | trained |
# | `sample_rate` | all | 256 rows for each partition and codeword |
# | `max_iters` | all | 50 |
# | `num_sub_vectors` | PQ | dimension / 16, or dimension / 8; pylance requires it |
# | `num_bits` | PQ: 4 or 8; RQ: 1 to 9; SQ: 8 | 8; RQ: 5 |
# | `pq_codebook` | PQ, with `ivf_centroids` | trained |
# | `skip_transpose` | PQ | false |
# | `rabitq_model` | RQ | random rotation |
# | `m`, `ef_construction`, `max_level` | HNSW | 20, 150, 7 |

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

    - `index_type`: Such as IVF_PQ.
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
        """Return the message in the manifest; see `lance_spark.indexes.vectors.files`."""
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

    Raises InvalidOptionError, InvalidInputError: an option is unknown, or has a wrong value.
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


# --------------------------------------------------------------------------------------------------
# The vectors of a batch that an index has.


def is_multi(dtype: pa.DataType) -> bool:
    """Return whether a value is a list of vectors."""
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype))


def items_of(dtype: pa.DataType) -> np.dtype[Any] | None:
    """Return the type of the items of vectors that indexes take; None for other types."""
    vector = dtype.value_type if is_multi(dtype) else dtype
    if not pat.is_fixed_size_list(vector) or not vector.list_size:
        return None
    items = vector.value_type
    if not (pat.is_floating(items) or (pat.is_uint8(items) and not is_multi(dtype))):
        return None
    result: np.dtype[Any] = np.dtype(items.to_pandas_dtype())
    return result


def dimension_of(dtype: pa.DataType) -> int:
    """Return the number of items of a vector."""
    return int((dtype.value_type if is_multi(dtype) else dtype).list_size)


def indexed_vectors(
    values: pa.Array, ids: UInt64Array, metric: Metric
) -> tuple[Vectors, UInt64Array]:
    """Return the vectors that an index has, and the row id of each.

    Null vectors are left out, and those with a null, infinite or NaN item; for `cosine`, vectors of
    length 0. For `cosine`, the others get the length 1.

    - `values`: Vectors or lists of vectors, of a type with `items_of`.
    - `ids` (uint64 array): Row id of each value.
    """
    dtype = items_of(values.type)
    assert dtype is not None, "the caller has checked the type"
    column = ColumnVectors.of(
        values, VectorType(dtype.name, dimension_of(values.type), is_multi(values.type))
    )
    vectors = column.values
    present = np.ones(len(ids), np.bool_) if column.missing is None else ~column.missing
    if column.starts is not None:
        counts = np.diff(column.starts)
        ids, present = np.repeat(ids, counts), np.repeat(present, counts)
    if metric is Metric.COSINE:
        with np.errstate(invalid="ignore"):
            vectors = normalized(vectors).astype(dtype, copy=False)
    if dtype.kind == "f":
        # A sum is finite if all items are, but for an overflow.
        with np.errstate(all="ignore"):
            sums = vectors.sum(axis=1, dtype=max(dtype, np.dtype(np.float32)))
        doubtful = np.flatnonzero(~np.isfinite(sums))
        present[doubtful] &= np.isfinite(vectors[doubtful]).all(axis=1)
    if not present.all():
        vectors, ids = vectors[present], ids[present]
    return vectors, ids


# --------------------------------------------------------------------------------------------------
# Learns the model of a vector index from a sample of the rows.

#: The parameter with the `VectorParameters`.
PARAMETERS = "vectors"
#: Bytes of the vectors of a block.
_BLOCK_BYTES = 32 * 1024
_LEAST_BLOCK_ROWS = 8
#: More rows are read than a sample needs, because some may be deleted.
_SPARE = 1.02
#: Most bytes of a sample: more rows hardly change the model.
_MAX_SAMPLE_BYTES = 1 << 30
#: Rows by which bounds of SQ and codewords are found.
_QUANTIZER_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class _Sampler:
    """Reads samples of a column."""

    task: FragmentTask
    path: tuple[Field, ...]
    metric: Metric

    def sample(self, count: int, random: np.random.Generator) -> Vectors:
        """Return `count` vectors, or all if there are fewer."""
        dtype = value_type(self.path[-1])
        items, dimension = items_of(dtype), dimension_of(dtype)
        assert items is not None, "the caller has checked the type"
        count = max(min(count, _MAX_SAMPLE_BYTES // (dimension * items.itemsize)), 1)
        block = max(_BLOCK_BYTES // (dimension * items.itemsize), _LEAST_BLOCK_ROWS)
        total = sum(fragment.physical_rows for fragment in self.task.fragments)
        num_rows = float(count)
        while True:
            slices = self._slices(int(num_rows * _SPARE) + block, block, random)
            parts = [
                indexed_vectors(values, ids, self.metric)[0]
                for values, ids in column_batches(
                    self.task, self.path, ROW_ID, slices, stage="sample"
                )
            ]
            parts = [part for part in parts if len(part)]
            num_vectors = sum(map(len, parts))
            if num_vectors >= count or slices is None:
                break
            # Many rows have no vector.
            num_rows = min(num_rows * max(count / max(num_vectors, 1), 2.0), float(total))
        if not parts:
            return np.empty((0, dimension), items)
        vectors = np.concatenate(parts)
        if len(vectors) > count:
            vectors = vectors[np.sort(random.choice(len(vectors), count, replace=False))]
        return vectors

    def _slices(
        self, count: int, block: int, random: np.random.Generator
    ) -> list[FragmentSlice] | None:
        """Return blocks of about `count` rows together; None for all rows."""
        rows = np.array([fragment.physical_rows for fragment in self.task.fragments], np.int64)
        ends = np.cumsum(rows)
        total = int(ends[-1]) if len(ends) else 0
        num_blocks = -(-count // block)
        # A block with the distance from the next.
        stride = total / num_blocks
        if stride < 2 * block:
            return None
        places = np.arange(num_blocks) + random.random(num_blocks)
        starts = np.minimum((places * stride).astype(np.int64), total - block)
        numbers = np.searchsorted(ends, starts, side="right")
        slices = []
        for number in np.unique(numbers).tolist():
            first = int(ends[number] - rows[number])
            block_starts = np.unique(starts[numbers == number]) - first
            ranges = RowRanges.of(
                range(start, min(start + block, int(rows[number])))
                for start in block_starts.tolist()
            )
            fragment = self.task.fragments[number]
            bounds = int(ranges.starts[0]), int(ranges.stops[-1])
            slices.append(FragmentSlice(fragment, *bounds, rows=ranges))
        return slices


def train(
    table: OpenTable,
    path: tuple[Field, ...],
    fragments: Sequence[Fragment],
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the parameters with a model; see `Builder.train`.

    Raises CorruptFileError, CorruptTableError, StorageError. Raises InvalidInputError,
    UnsupportedTypeError: the parameters do not belong to the column.
    """
    chosen: VectorParameters = parameters[PARAMETERS]
    if chosen.has_graphs:
        # A missing package is found before rows are read.
        required_faiss("graphs of vector indexes")
    chosen = chosen.with_sub_vectors(dimension_of(value_type(path[-1])))
    _check_column(table, path, chosen)
    task = FragmentTask(
        uri=table.store.uri,
        fragments=tuple(fragments),
        base_paths=table.manifest.base_paths,
        storage_options=table.store.options or {},
    )
    model = _learned(_Sampler(task, path, chosen.metric), chosen)
    return {PARAMETERS: chosen.without_arrays(), MODEL: model}


def _learned(sampler: _Sampler, parameters: VectorParameters) -> VectorModel | None:
    """Return the model of an index; None if no row has a vector, or too few for codewords."""
    random = np.random.default_rng(0)
    num_rows = sum(fragment.num_rows for fragment in sampler.task.fragments)
    if not num_rows:
        return None
    count = parameters.partitions_of(num_rows)
    rows = parameters.sample_rate * count if parameters.ivf_centroids is None else 0
    sample = sampler.sample(max(rows, _least_rows(parameters)), random)
    words = 1 << parameters.num_bits if parameters.quantizer == "PQ" else 1
    if not len(sample) or (len(sample) < words and parameters.pq_codebook is None):
        return None
    if parameters.ivf_centroids is not None:
        centroids = parameters.ivf_centroids.astype(sample.dtype)
    else:
        with progress.stage("train_ivf", unit="iterations"):
            clusters = cluster(
                sample, min(count, len(sample)), parameters.metric, max_iters=parameters.max_iters
            )
        centroids = clusters.centroids.astype(sample.dtype)
    quantizer = _quantizer(sample, centroids, parameters, random)
    ivf = Ivf.without_rows(centroids)
    return VectorModel(parameters.index_type, parameters.metric, ivf, quantizer)


def _least_rows(parameters: VectorParameters) -> int:
    """Return the rows that a quantizer needs."""
    if parameters.quantizer == "PQ" and parameters.pq_codebook is None:
        return parameters.sample_rate << parameters.num_bits
    return _QUANTIZER_ROWS if parameters.quantizer == "SQ" else 1


def _quantizer(
    sample: Vectors,
    centroids: Vectors,
    parameters: VectorParameters,
    random: np.random.Generator,
) -> Quantizer:
    dimension, metric = sample.shape[1], parameters.metric
    if parameters.quantizer == "FLAT":
        return FlatQuantizer(dimension, metric, sample.dtype)
    if parameters.quantizer == "SQ":
        return ScalarQuantizer(dimension, metric, float(sample.min()), float(sample.max()))
    if parameters.quantizer == "RQ":
        if parameters.rabitq_model is not None:
            return RabitQuantizer.of_model(
                metric, dimension, parameters.num_bits, parameters.rabitq_model
            )
        return RabitQuantizer.new(metric, dimension, parameters.num_bits, seed=0)
    words = parameters.pq_codebook
    if words is None:
        assert parameters.num_sub_vectors is not None
        count = parameters.sample_rate << parameters.num_bits
        if len(sample) > count:
            sample = sample[random.choice(len(sample), count, replace=False)]
        if metric in (Metric.L2, Metric.COSINE):
            sample = sample - centroids[CentroidAssignment(centroids, metric).numbers(sample)]
        words = codebook(
            sample,
            parameters.num_sub_vectors,
            parameters.num_bits,
            max_iters=parameters.max_iters,
        )
    words = words.astype(centroids.dtype)
    return ProductQuantizer(metric, words, transposed=not parameters.skip_transpose)


def _check_column(table: OpenTable, path: tuple[Field, ...], parameters: VectorParameters) -> None:
    """Raise an error if parameters do not belong to a column."""
    dtype = value_type(path[-1])
    items, dimension = items_of(dtype), dimension_of(dtype)
    column = ".".join(node.name for node in path)
    prefix = f"{table.store.display}: {parameters.index_type} index of column {column!r}"
    if (items == np.uint8) is not (parameters.metric is Metric.HAMMING):
        raise UnsupportedTypeError(
            f"{prefix}: metric {parameters.metric.value} does not measure vectors of {items}; "
            "hamming is the metric of uint8 only"
        )
    if is_multi(dtype) and parameters.metric is not Metric.COSINE:
        raise InvalidInputError(
            f"{prefix}: lists of vectors are measured by cosine only, not {parameters.metric.value}"
        )
    count = parameters.num_sub_vectors
    if count is not None and dimension % count:
        raise InvalidInputError(
            f"{prefix}: num_sub_vectors must divide the dimension, {dimension}, which {count} does "
            "not"
        )
    for name, array in (
        ("ivf_centroids", parameters.ivf_centroids),
        ("pq_codebook", parameters.pq_codebook),
    ):
        width = dimension // (count or 1) if name == "pq_codebook" else dimension
        if array is not None and array.shape[-1] != width:
            raise InvalidInputError(
                f"{prefix}: {name} must have vectors of {width} items, not {array.shape[-1]}"
            )
        if array is not None and (array.dtype == np.uint8) is not (items == np.uint8):
            raise InvalidInputError(f"{prefix}: {name} must have {items}, not {array.dtype}")


def with_partitions(parameters: VectorParameters, count: int) -> VectorParameters:
    """Return the parameters by which an index is trained again."""
    if parameters.target_partition_size is not None:
        return parameters
    return replace(parameters, num_partitions=count)

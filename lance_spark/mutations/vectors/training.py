"""Learns the model of a vector index from a sample of the rows.

The sample has blocks of consecutive rows at even distances, so that a part of a large table is read
only. If many rows have no vector, more blocks are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lance_spark import progress
from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.file.schema.field import Field
from lance_spark.mutations.indexes.builder import MODEL
from lance_spark.mutations.indexes.column import column_batches, value_type
from lance_spark.mutations.runner import FragmentTask
from lance_spark.mutations.vectors.codebooks import codebook
from lance_spark.mutations.vectors.kmeans import cluster
from lance_spark.mutations.vectors.parameters import VectorParameters
from lance_spark.mutations.vectors.rows import dimension_of, indexed_vectors, is_multi, items_of
from lance_spark.scan.fragment.row_meta import ROW_ID
from lance_spark.scan.task import FragmentSlice
from lance_spark.scan.vectors.assignment import CentroidAssignment
from lance_spark.scan.vectors.files.model import VectorModel
from lance_spark.scan.vectors.graphs.faiss_library import required_faiss
from lance_spark.scan.vectors.ivf import Ivf, Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.flat import FlatQuantizer
from lance_spark.scan.vectors.quantizers.product import ProductQuantizer
from lance_spark.scan.vectors.quantizers.quantizer import Quantizer
from lance_spark.scan.vectors.quantizers.rabit.quantizer import RabitQuantizer
from lance_spark.scan.vectors.quantizers.scalar import ScalarQuantizer
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable

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
    """Reads samples of a column.

    Attributes
    ----------
    task : FragmentTask
    path : tuple of Field
    metric : Metric
    """

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

    Raises
    ------
    InvalidInputError, UnsupportedTypeError
        The parameters do not belong to the column.
    CorruptFileError, CorruptTableError, StorageError
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

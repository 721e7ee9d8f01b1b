"""FLAT: vectors as they are; with `cosine`, of length 1.

| column | type |
| --- | --- |
| `flat` | fixed_size_list of the column's type, not null |

`storage_metadata` is ``{"dim": 128}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.indexes.vectors.columns import Int64Array, Metric, Vectors, as_floats
from lance_spark.indexes.vectors.distances import measured, normalized
from lance_spark.indexes.vectors.quantizers.quantizer import (
    Decoded,
    Distances,
    StoredModel,
    list_field,
    matrix,
    vector_list,
)

_COLUMN = "flat"


@dataclass(frozen=True, slots=True)
class FlatQuantizer:
    """Stores vectors as they are.

    - `dtype`: Type of items: float16, float32, float64, or uint8 for `hamming`.
    """

    dimension: int
    metric: Metric
    dtype: np.dtype[Any]

    name = "FLAT"

    @classmethod
    def open(cls, stored: StoredModel) -> FlatQuantizer:
        """Return the quantizer of a file.

        Raises CorruptFileError.
        """
        stored.check_dimension("dim")
        dtype = stored.centroids.dtype
        if (dtype == np.uint8) is not (stored.metric is Metric.HAMMING):
            raise CorruptFileError(
                f"{stored.name}: vectors of {dtype} have no {stored.metric.value} distance; "
                "rebuild the index"
            )
        return cls(stored.dimension, stored.metric, dtype)

    @property
    def fields(self) -> pa.Schema:
        """The columns of codes in the file, without `_rowid`."""
        return pa.schema([list_field(_COLUMN, self.dtype, self.dimension, nullable=False)])

    def metadata(self, buffers: Sequence[int]) -> Mapping[str, Any]:
        """Return the object in `storage_metadata` of the file."""
        return {"dim": self.dimension}

    def buffers(self) -> Sequence[bytes]:
        """Return no global buffers."""
        return ()

    def encode(self, vectors: Vectors, centroids: Vectors) -> pa.RecordBatch:
        """Return the codes of vectors."""
        return pa.RecordBatch.from_arrays(
            [vector_list(vectors.astype(self.dtype, copy=False))], schema=self.fields
        )

    def stored(self, codes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of one partition in the order of bytes that files have."""
        return codes

    def unstored(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of a partition of a file, with rows that are independent again."""
        return stored

    def open_partition(self, stored: pa.RecordBatch, centroid: Vectors) -> _FlatPartition:
        """Return a partition of a file."""
        return _FlatPartition(matrix(stored.column(0)), self.metric)


@dataclass(frozen=True, slots=True)
class _FlatPartition:
    items: Vectors
    metric: Metric

    @property
    def num_rows(self) -> int:
        return len(self.items)

    @property
    def nbytes(self) -> int:
        return self.items.nbytes

    def distances(self, queries: Vectors, rows: Int64Array | None = None) -> Distances:
        return measured(self.metric, queries, self.items if rows is None else self.items[rows])

    def decoded(self, queries: Vectors, rows: Int64Array) -> Decoded | None:
        items = self.items
        if self.metric not in (Metric.L2, Metric.DOT) or items.dtype == np.float64:
            return None
        return Decoded(
            lambda some: as_floats(items[some]),
            rows,
            as_floats(queries).astype(np.float32, copy=False),
            self.metric is Metric.DOT,
        )

    def measure(self, query: Vectors) -> Callable[[Int64Array], Distances]:
        if self.metric is Metric.HAMMING:
            return lambda rows: self.distances(query[None], rows)[0]
        items, metric = self.items, self.metric
        factors = normalized(query[None])[0] if metric is Metric.COSINE else as_floats(query)

        def distances(rows: Int64Array) -> Distances:
            vectors = as_floats(items[rows])
            if metric is Metric.L2:
                vectors = vectors - factors
                squares: Distances = np.einsum("ij,ij->i", vectors, vectors)
                return squares.astype(np.float32, copy=False)
            products: Distances = np.einsum("ij,j->i", vectors, factors)
            if metric is Metric.COSINE:
                # Their lengths are 1 but for the last digits.
                products /= np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
            return (1 - products).astype(np.float32, copy=False)

        return distances

    def vectors(self) -> Vectors:
        if self.metric is Metric.HAMMING:
            return self.items
        return self.items.astype(np.float32, copy=False)

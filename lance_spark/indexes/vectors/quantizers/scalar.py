"""SQ: each item of a vector as a byte, between two bounds that all vectors of a segment share.

| column | type |
| --- | --- |
| `__sq_code` | fixed_size_list of uint8 |

`storage_metadata` is ``{"dim": 128, "num_bits": 8, "bounds": {"start": -1.0, "end": 1.0}}``.
An item has the code floor((item - start) * 255 / (end - start)), from 0 to 255.

| metric | distance |
| --- | --- |
| `l2`, `cosine` | a query is coded, too; the l2 distance of the codes, scaled to the bounds |
| `dot` | 1 - product of the query and the lower ends of the codes' intervals |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.compiled import CompiledLoop, sums_of
from lance_spark.errors import CorruptFileError
from lance_spark.indexes.vectors.columns import Int64Array, Metric, Vectors
from lance_spark.indexes.vectors.distances import products
from lance_spark.indexes.vectors.quantizers.quantizer import (
    Distances,
    StoredModel,
    list_field,
    matrix,
    vector_list,
)

_COLUMN = "__sq_code"
_NUM_BITS = 8
_MAX_CODE = 255
_HALF = np.float32(128)
#: Most items of a vector whose squared differences have a sum in 32 bits.
_MAX_ITEMS = 1 << 15
#: Codes that are measured in one step, so that they stay in the caches.
_STEP_CODES = 1 << 18

_Codes = npt.NDArray[np.uint8]
_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ScalarQuantizer:
    """Stores each item of a vector as a byte.

    - `start`, `end`: Items outside these bounds have the code 0 or 255.
    """

    dimension: int
    metric: Metric
    start: float
    end: float

    name = "SQ"

    @classmethod
    def open(cls, stored: StoredModel) -> ScalarQuantizer:
        """Return the quantizer of a file.

        Raises CorruptFileError.
        """
        stored.check_dimension("dim")
        stored.number("num_bits", _NUM_BITS, _NUM_BITS)
        bounds = stored.metadata.get("bounds")
        pair = [bounds.get("start"), bounds.get("end")] if isinstance(bounds, dict) else []
        numbers: list[float] = []
        # A whole number can be too large for a float.
        with suppress(OverflowError):
            numbers = [float(item) for item in pair if isinstance(item, (int, float))]
        if len(numbers) != 2 or not all(map(math.isfinite, numbers)) or numbers[0] > numbers[1]:
            raise CorruptFileError(
                f"{stored.name}: bounds must be two increasing numbers, not {str(bounds)[:80]}; "
                "rebuild the index"
            )
        return cls(stored.dimension, stored.metric, *numbers)

    @property
    def fields(self) -> pa.Schema:
        """The columns of codes in the file, without `_rowid`."""
        return pa.schema([list_field(_COLUMN, np.uint8, self.dimension)])

    def metadata(self, buffers: Sequence[int]) -> Mapping[str, Any]:
        """Return the object in `storage_metadata` of the file."""
        bounds = {"start": self.start, "end": self.end}
        return {"dim": self.dimension, "num_bits": _NUM_BITS, "bounds": bounds}

    def buffers(self) -> Sequence[bytes]:
        """Return no global buffers."""
        return ()

    def encode(self, vectors: Vectors, centroids: Vectors) -> pa.RecordBatch:
        """Return the codes of vectors."""
        return pa.RecordBatch.from_arrays([vector_list(self._codes(vectors))], schema=self.fields)

    def stored(self, codes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of one partition in the order of bytes that files have."""
        return codes

    def unstored(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of a partition of a file, with rows that are independent again."""
        return stored

    def open_partition(self, stored: pa.RecordBatch, centroid: Vectors) -> _ScalarPartition:
        """Return a partition of a file."""
        around = _around(matrix(stored.column(0)))
        squares = np.empty(len(around), np.float32)
        step = max(1, _STEP_CODES // self.dimension)
        for first in range(0, len(around), step):
            part = around[first : first + step].astype(np.float32)
            np.einsum("ij,ij->i", part, part, out=squares[first : first + step])
        return _ScalarPartition(around, squares, self)

    def _codes(self, vectors: Vectors) -> _Codes:
        """Return the code of each item."""
        codes = np.empty(vectors.shape, np.uint8)
        width = self.end - self.start
        step = max(1, _STEP_CODES // self.dimension)
        for first in range(0, len(vectors), step):
            # Bounds that are equal have no codes but the first and the last.
            with np.errstate(divide="ignore", invalid="ignore"):
                scaled = (vectors[first : first + step].astype(np.float64) - self.start) * _MAX_CODE
                scaled /= width
            np.nan_to_num(scaled, copy=False, nan=0.0)
            np.clip(scaled, 0, _MAX_CODE, out=scaled)
            codes[first : first + step] = scaled
        return codes


@dataclass(frozen=True, slots=True)
class _ScalarPartition:
    """Codes less 128, and the squared lengths of these vectors.

    Numbers around zero have squares of few digits: sums of 1024 of them are exact in 32 bits.
    """

    around: npt.NDArray[np.int8]
    squares: _Floats
    quantizer: ScalarQuantizer

    @property
    def num_rows(self) -> int:
        return len(self.around)

    @property
    def nbytes(self) -> int:
        return self.around.nbytes + self.squares.nbytes

    def distances(self, queries: Vectors, rows: Int64Array | None = None) -> Distances:
        alone = self._alone(queries) if rows is None else None
        if alone is not None:
            return alone
        measure = self._measure(queries)
        count = self.num_rows if rows is None else len(rows)
        distances = np.empty((len(queries), count), np.float32)
        step = max(1, _STEP_CODES // max(self.quantizer.dimension, len(queries)))
        for first in range(0, count, step):
            part = slice(first, min(first + step, count))
            distances[:, part] = measure(part if rows is None else rows[part]).T
        return distances

    def _alone(self, queries: Vectors) -> Distances | None:
        """Return the distances of one query by the compiled loop; None without it."""
        quantizer = self.quantizer
        is_simple = len(queries) == 1 and quantizer.metric is not Metric.DOT
        if not is_simple or quantizer.dimension > _MAX_ITEMS or not self.around.flags.c_contiguous:
            return None
        loop = LOOP.after(self.around.size)
        if loop is None:
            return None
        distances = np.empty((1, self.num_rows), np.float32)
        loop(self.around, _around(quantizer._codes(queries))[0], distances[0])
        distances *= np.float32(((quantizer.end - quantizer.start) / _MAX_CODE) ** 2)
        return distances

    def decoded(self, queries: Vectors, rows: Int64Array) -> None:
        return None

    def measure(self, query: Vectors) -> Callable[[Int64Array], Distances]:
        measure = self._measure(query[None])
        return lambda rows: measure(rows)[:, 0]

    def vectors(self) -> Vectors:
        quantizer = self.quantizer
        vectors = self.around.astype(np.float32)
        vectors += _HALF
        vectors *= np.float32((quantizer.end - quantizer.start) / _MAX_CODE)
        vectors += np.float32(quantizer.start)
        return vectors

    def _measure(self, queries: Vectors) -> Callable[[slice | Int64Array], Distances]:
        """Return a function of rows, whose result has a column for each query."""
        quantizer = self.quantizer
        width = (quantizer.end - quantizer.start) / _MAX_CODE
        if quantizer.metric is Metric.DOT:
            factor = np.ascontiguousarray(queries.T, np.float32)
            offsets = 1 - factor.sum(axis=0) * np.float32(quantizer.start + _HALF * width)
            factor = factor * np.float32(-width)
            return lambda rows: self._products(rows, factor) + offsets
        coded = quantizer._codes(queries).astype(np.float32) - _HALF
        offsets = np.einsum("ij,ij->i", coded, coded)
        factor = np.ascontiguousarray(coded.T) * -2
        scale = np.float32(width**2)

        def measured(rows: slice | Int64Array) -> Distances:
            distances = self._products(rows, factor)
            distances += self.squares[rows, None]
            distances += offsets
            np.maximum(distances, 0, out=distances)
            distances *= scale
            return distances

        return measured

    def _products(self, rows: slice | Int64Array, factor: _Floats) -> Distances:
        distances: Distances = products(self.around[rows].astype(np.float32), factor)
        return distances


def _around(codes: _Codes) -> npt.NDArray[np.int8]:
    """Return codes less 128."""
    return (codes ^ int(_HALF)).view(np.int8)


def _squares(around: Any, query: Any, out: Any) -> None:
    """Write the squared differences of vectors of numbers of 8 bits from one."""
    for row in range(len(out)):
        total = np.int32(0)
        for item in range(len(query)):
            difference = np.int32(around[row, item]) - np.int32(query[item])
            total += difference * difference
        out[row] = np.float32(total)


#: It compiles `_squares`: it takes a third of the time of products.
LOOP = CompiledLoop(_squares, sums_of(("int8", 2), ("int8", 1)), 1 << 28)

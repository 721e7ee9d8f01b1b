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

from lance_spark.errors import CorruptFileError
from lance_spark.scan.vectors.ivf import Int64Array, Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.columns import list_field, matrix, vector_list
from lance_spark.scan.vectors.quantizers.quantizer import Distances
from lance_spark.scan.vectors.quantizers.stored_model import StoredModel

_COLUMN = "__sq_code"
_NUM_BITS = 8
_MAX_CODE = 255
#: Codes that are measured in one step, so that they stay in the caches.
_STEP_CODES = 1 << 18

_Codes = npt.NDArray[np.uint8]
_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ScalarQuantizer:
    """Stores each item of a vector as a byte.

    Attributes
    ----------
    dimension : int
    metric : Metric
    start, end : float
        Items outside these bounds have the code 0 or 255.
    """

    dimension: int
    metric: Metric
    start: float
    end: float

    name = "SQ"

    @classmethod
    def open(cls, stored: StoredModel) -> ScalarQuantizer:
        """Return the quantizer of a file.

        Raises
        ------
        CorruptFileError
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
        return _ScalarPartition(matrix(stored.column(0)), self)

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
    codes: _Codes
    quantizer: ScalarQuantizer

    @property
    def num_rows(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes

    def distances(self, queries: Vectors, rows: Int64Array | None = None) -> Distances:
        codes = self.codes if rows is None else self.codes[rows]
        measure = self._measure(queries)
        found = np.empty((len(queries), len(codes)), np.float32)
        step = max(1, _STEP_CODES // self.quantizer.dimension)
        for first in range(0, len(codes), step):
            found[:, first : first + step] = measure(codes[first : first + step])
        return found

    def measure(self, query: Vectors) -> Callable[[Int64Array], Distances]:
        measure = self._measure(query[None])
        return lambda rows: measure(self.codes[rows])[0]

    def vectors(self) -> Vectors:
        quantizer = self.quantizer
        vectors = self.codes.astype(np.float32)
        vectors *= np.float32((quantizer.end - quantizer.start) / _MAX_CODE)
        vectors += np.float32(quantizer.start)
        return vectors

    def _measure(self, queries: Vectors) -> Callable[[_Codes], Distances]:
        """Return a function that measures codes."""
        quantizer = self.quantizer
        width = (quantizer.end - quantizer.start) / _MAX_CODE
        if quantizer.metric is Metric.DOT:
            factors = np.asarray(queries, np.float32)
            offsets = 1 - np.float32(quantizer.start) * factors.sum(axis=1, keepdims=True)
            factors = factors * np.float32(-width)
            return lambda codes: factors @ codes.T.astype(np.float32) + offsets
        coded = quantizer._codes(queries).astype(np.float32)
        scale = np.float32(width**2)
        measure = _differences if len(coded) == 1 else _products
        return lambda codes: measure(coded, codes) * scale


def _differences(query: _Floats, codes: _Codes) -> Distances:
    """Return the squared differences of codes from those of one query."""
    difference = codes - query
    found: Distances = np.einsum("ij,ij->i", difference, difference)
    return found[None]


def _products(queries: _Floats, codes: _Codes) -> Distances:
    """Return the squared differences of codes from those of queries."""
    # Numbers around zero have squares of fewer digits.
    half = np.float32(_MAX_CODE // 2 + 1)
    around, query_around = codes - half, queries - half
    found: Distances = query_around @ around.T
    found *= -2
    found += np.einsum("ij,ij->i", around, around)
    found += np.einsum("ij,ij->i", query_around, query_around)[:, None]
    return np.maximum(found, 0, out=found)

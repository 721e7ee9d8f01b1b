"""PQ: a vector is cut into sub-vectors, and each has the number of the nearest codeword.

| column | type |
| --- | --- |
| `__pq_code` | fixed_size_list of uint8: num_sub_vectors * num_bits / 8 items |

| `storage_metadata` | content |
| --- | --- |
| `codebook_position` | number of the global buffer with the codebook |
| `nbits` | 8 or 4 |
| `num_sub_vectors`, `dimension` | |
| `codebook_tensor` | empty; in files of old releases, the bytes of the codebook |
| `transposed` | whether the bytes of a partition are stored column after column |

The codebook is a tensor of shape (2 ** nbits, dimension). Its items are in the order of
sub-vectors, then codewords, then items of a sub-vector. With 4 bits, a byte has two codes, the
first one in its low bits. With `l2` and `cosine`, the code is that of the difference from the
centroid.

A byte with two codes is read as one code of a sub-vector of twice the length. So there are always
256 codewords for each byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.indexes.vectors.columns import Int64Array, Metric, Vectors
from lance_spark.indexes.vectors.distances import nearest_codewords, products
from lance_spark.indexes.vectors.files import encode_tensor, parse_tensor
from lance_spark.indexes.vectors.quantizers.quantizer import (
    Decoded,
    Distances,
    Positions,
    StoredModel,
    list_field,
    matrix,
    positions_of,
    squared_differences,
    summed,
    vector_list,
)

_COLUMN = "__pq_code"
_BITS = (4, 8)
#: Values of a byte.
_BYTES = 256
#: Items of decoded vectors, and distances, of one step: they stay in the caches.
_STEP_ITEMS = 1 << 18
#: With more queries than this number, vectors are decoded.
_FEW_QUERIES = 16

_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ProductQuantizer:
    """Stores the number of the nearest codeword for each sub-vector.

    - `codebook` (array of shape (sub-vectors, 2 ** num_bits, items of a sub-vector)): float16,
      float32 or float64.
    - `transposed`: Whether the bytes of a partition are stored column after column.
    """

    metric: Metric
    codebook: Vectors
    transposed: bool = True

    name = "PQ"

    @classmethod
    def open(cls, stored: StoredModel) -> ProductQuantizer:
        """Return the quantizer of a file.

        Raises CorruptFileError, UnsupportedFeatureError.
        """
        stored.check_dimension("dimension")
        if "num_bits" in stored.metadata:
            # Only IVF_HNSW_PQ of pylance up to 0.24. Newer releases find no rows in them.
            raise UnsupportedFeatureError(
                f"{stored.name}: codes with num_bits in place of nbits are those of an old release "
                "of pylance; rebuild the index"
            )
        num_bits = stored.number("nbits", min(_BITS), max(_BITS))
        count = stored.number("num_sub_vectors", 1, stored.dimension)
        if num_bits not in _BITS or stored.dimension % count or count * num_bits % 8:
            raise CorruptFileError(
                f"{stored.name}: {count} sub-vectors of {num_bits} bits do not divide vectors of "
                f"{stored.dimension} items; rebuild the index"
            )
        flat = parse_tensor(_codebook(stored), 2, stored.name)
        if flat.shape != (2**num_bits, stored.dimension) or flat.dtype.kind != "f":
            raise CorruptFileError(
                f"{stored.name}: a codebook of {flat.dtype} and shape {flat.shape} does not belong "
                f"to {num_bits} bits and {stored.dimension} items; rebuild the index"
            )
        codebook = flat.reshape(count, 2**num_bits, stored.dimension // count)
        return cls(stored.metric, codebook, stored.metadata.get("transposed") is True)

    @property
    def num_bits(self) -> int:
        """Bits of a code: 8 or 4."""
        return int(self.codebook.shape[1]).bit_length() - 1

    @property
    def num_sub_vectors(self) -> int:
        """Sub-vectors of a vector."""
        return len(self.codebook)

    @property
    def dimension(self) -> int:
        """Items of a vector."""
        return int(self.codebook.shape[0] * self.codebook.shape[2])

    @property
    def code_bytes(self) -> int:
        """Bytes of a vector's codes."""
        return self.num_sub_vectors * self.num_bits // 8

    @property
    def encodes_residuals(self) -> bool:
        """Whether codes are those of the differences from centroids."""
        return self.metric in (Metric.L2, Metric.COSINE)

    @property
    def fields(self) -> pa.Schema:
        """The columns of codes in the file, without `_rowid`."""
        return pa.schema([list_field(_COLUMN, np.uint8, self.code_bytes)])

    def metadata(self, buffers: Sequence[int]) -> Mapping[str, Any]:
        """Return the object in `storage_metadata` of the file."""
        return {
            "codebook_position": buffers[0],
            "nbits": self.num_bits,
            "num_sub_vectors": self.num_sub_vectors,
            "dimension": self.dimension,
            "codebook_tensor": [],
            "transposed": self.transposed,
        }

    def buffers(self) -> Sequence[bytes]:
        """Return the codebook."""
        flat = self.codebook.reshape(1 << self.num_bits, self.dimension)
        return (encode_tensor(flat).SerializeToString(),)

    def encode(self, vectors: Vectors, centroids: Vectors) -> pa.RecordBatch:
        """Return the codes of vectors."""
        items = vectors - centroids if self.encodes_residuals else vectors
        codes = nearest_codewords(items, self.codebook)
        if self.num_bits == min(_BITS):
            codes = codes[:, 0::2] | np.left_shift(codes[:, 1::2], 4, dtype=np.uint8)
        return self._batch(codes)

    def stored(self, codes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of one partition in the order of bytes that files have."""
        rows = matrix(codes.column(0))
        return self._batch(rows.T.reshape(rows.shape)) if self.transposed else codes

    def unstored(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of a partition of a file, with rows that are independent again."""
        rows = matrix(stored.column(0))
        return self._batch(rows.reshape(rows.shape[::-1]).T) if self.transposed else stored

    def open_partition(self, stored: pa.RecordBatch, centroid: Vectors) -> _ProductPartition:
        """Return a partition of a file."""
        rows = matrix(stored.column(0))
        columns = rows.reshape(rows.shape[::-1]) if self.transposed else rows.T
        origin = centroid if self.encodes_residuals else None
        return _ProductPartition(self, positions_of(columns), origin)

    @cached_property
    def words(self) -> _Floats:
        """The codewords of each byte: shape (bytes, 256, items)."""
        book = np.asarray(self.codebook, np.float32)
        if self.num_bits != min(_BITS):
            return np.ascontiguousarray(book)
        low, high = book[0::2], book[1::2]
        count, size, items = low.shape
        shape = (count, size, size, items)
        # The first code is in the low bits: it changes fastest.
        halves = [np.broadcast_to(low[:, None], shape), np.broadcast_to(high[:, :, None], shape)]
        return np.concatenate(halves, axis=-1).reshape(count, _BYTES, 2 * items)

    @cached_property
    def _columns(self) -> _Floats:
        """`words` with the codewords in the last axis."""
        return np.ascontiguousarray(self.words.transpose(0, 2, 1))

    def tables(self, query: _Floats) -> _Floats:
        """Return what each codeword adds to the distance of a query: shape (bytes, 256)."""
        columns = self._columns
        if self.encodes_residuals:
            squares: _Floats = squared_differences(query, columns)
            return squares
        products: _Floats = np.add.reduce(columns * query.reshape(len(columns), -1, 1), axis=1)
        return 1 / np.float32(len(columns)) - products

    def _batch(self, codes: npt.NDArray[np.uint8]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([vector_list(codes)], schema=self.fields)


@dataclass(frozen=True, slots=True, eq=False)
class _ProductPartition:
    quantizer: ProductQuantizer
    positions: Positions
    #: In the type of the column, so that differences are rounded as by pylance.
    centroid: Vectors | None

    @property
    def num_rows(self) -> int:
        return int(self.positions.shape[1])

    @property
    def nbytes(self) -> int:
        return self.positions.nbytes

    def distances(self, queries: Vectors, rows: Int64Array | None = None) -> Distances:
        positions = self.positions if rows is None else self.positions[:, rows]
        moved = self._moved(queries)
        if len(moved) > _FEW_QUERIES:
            return self._by_vectors(moved, positions)
        result = np.empty((len(moved), positions.shape[1]), np.float32)
        for query, distances in zip(moved, result, strict=True):
            summed(self.quantizer.tables(query), positions, distances)
        return result

    def decoded(self, queries: Vectors, rows: Int64Array) -> Decoded:
        positions = self.positions
        return Decoded(
            lambda some: self._decoded(positions[:, some]),
            rows,
            self._moved(queries),
            self.centroid is None,
        )

    def measure(self, query: Vectors) -> Callable[[Int64Array], Distances]:
        tables = self.quantizer.tables(self._moved(query[None])[0]).reshape(-1)
        rows_first = self.positions.T

        def measured(rows: Int64Array) -> Distances:
            items = tables.take(rows_first[rows], mode="wrap")
            sums: Distances = np.add.reduce(items, axis=1)
            return sums

        return measured

    def vectors(self) -> Vectors:
        return self._decoded(self.positions)

    def _moved(self, queries: Vectors) -> _Floats:
        """Return queries, or their differences from the centroid."""
        moved = queries.astype(self.quantizer.codebook.dtype, copy=False)
        if self.centroid is not None:
            moved = moved - self.centroid
        return moved.astype(np.float32, copy=False)

    def _decoded(self, positions: Positions) -> _Floats:
        words = self.quantizer.words
        vectors: _Floats = words.reshape(-1, words.shape[2]).take(positions.T, axis=0)
        return vectors.reshape(positions.shape[1], self.quantizer.dimension)

    def _by_vectors(self, queries: _Floats, positions: Positions) -> Distances:
        """Return the distances of decoded vectors."""
        count, dimension = positions.shape[1], self.quantizer.dimension
        is_product = self.centroid is None
        # The lengths are two more items of both sides.
        left = np.empty((len(queries), dimension + 2), np.float32)
        np.multiply(queries, -1 if is_product else -2, out=left[:, :dimension])
        left[:, -2] = 1 if is_product else np.einsum("ij,ij->i", queries, queries)
        left[:, -1] = 1
        result = np.empty((len(queries), count), np.float32)
        step = max(1, min(_STEP_ITEMS // dimension, _STEP_ITEMS // len(queries)))
        for first in range(0, count, step):
            vectors = self._decoded(positions[:, first : first + step])
            right = np.empty((len(vectors), dimension + 2), np.float32)
            right[:, :dimension] = vectors
            right[:, -2] = 1
            right[:, -1] = 0 if is_product else np.einsum("ij,ij->i", vectors, vectors)
            result[:, first : first + step] = products(left, right.T)
        return result if is_product else np.maximum(result, 0, out=result)


def _codebook(stored: StoredModel) -> bytes:
    """Return the tensor of the codebook."""
    inline = stored.metadata.get("codebook_tensor")
    if not inline:
        return stored.buffer(stored.number("codebook_position", 1, 2**31))
    with suppress(TypeError, ValueError):
        if isinstance(inline, list):
            return bytes(inline)
    raise CorruptFileError(
        f"{stored.name}: codebook_tensor must be a list of bytes; rebuild the index"
    )

"""What all quantizers have in common.

| quantizer | module | index types |
| --- | --- | --- |
| FLAT | `flat` | IVF_FLAT, IVF_HNSW_FLAT |
| SQ | `scalar` | IVF_SQ, IVF_HNSW_SQ |
| PQ | `product` | IVF_PQ, IVF_HNSW_PQ |
| RQ | `rabit.quantizer` | IVF_RQ |

A quantizer turns vectors into codes, which are columns of a file with a row for each vector. It is
the same for all partitions of a segment. With `cosine` it gets vectors and queries of length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.compiled import CompiledLoop, sums_of
from lance_spark.errors import CorruptFileError
from lance_spark.indexes.vectors.columns import Int64Array, Metric, Vectors
from lance_spark.indexes.vectors.distances import products

# --------------------------------------------------------------------------------------------------
# Columns of codes: fixed-size lists as the rows of a matrix.


def list_field(name: str, dtype: npt.DTypeLike, width: int, *, nullable: bool = True) -> pa.Field:
    """Return the field of a column with `width` items in each row."""
    return pa.field(name, pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), width), nullable=nullable)


def vector_list(rows: npt.NDArray[Any]) -> pa.FixedSizeListArray:
    """Return the rows of a matrix as fixed-size lists."""
    values = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(values, rows.shape[1])


def has_nulls(column: pa.Array) -> bool:
    """Return whether a column has nulls, or lists with nulls."""
    is_list = pa.types.is_fixed_size_list(column.type)
    return bool(column.null_count or (is_list and column.values.null_count))


def matrix(column: pa.FixedSizeListArray) -> npt.NDArray[Any]:
    """Return fixed-size lists without nulls as the rows of a matrix."""
    width = column.type.list_size
    values = column.values.slice(column.offset * width, len(column) * width)
    rows: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return rows.reshape(len(column), width)


# --------------------------------------------------------------------------------------------------
# What index files have of a quantizer.


@dataclass(frozen=True, slots=True)
class StoredModel:
    """What a quantizer is opened from.

    - `metadata`: The object in `storage_metadata`.
    - `centroids`: Array of shape (partitions, dimension).
    - `buffer`: Returns the global buffer of a number.
    - `columns`: Names of the columns of the file.
    - `name`: What errors call the file.
    """

    metadata: Mapping[str, Any]
    metric: Metric
    centroids: Vectors
    buffer: Callable[[int], bytes]
    columns: Collection[str]
    name: str

    @property
    def dimension(self) -> int:
        """Items of a vector."""
        return int(self.centroids.shape[1])

    def number(self, key: str, least: int, most: int) -> int:
        """Return an integer of the metadata.

        Raises CorruptFileError: it is missing, or out of range.
        """
        value = self.metadata.get(key)
        if type(value) is not int or not least <= value <= most:
            raise CorruptFileError(
                f"{self.name}: {key} must be an integer from {least} to {most}, not "
                f"{str(value)[:40]}; rebuild the index"
            )
        return value

    def check_dimension(self, key: str) -> None:
        """Raise an error if the metadata have another dimension than the centroids.

        Raises CorruptFileError.
        """
        self.number(key, self.dimension, self.dimension)


# --------------------------------------------------------------------------------------------------
# Leaves out most vectors of a partition for many queries, by a few numbers of each vector.
#
# Let p be the projection of a vector on some directions, and r the length of the rest. Then
#
# | distance | is at least |
# | --- | --- |
# | squared L2 | v * v + q * q - 2 (p(v) * p(q) + r(v) r(q)) |
# | 1 - product | 1 - (p(v) * p(q) + r(v) r(q)) |
#
# So one product of narrow matrices shows which vectors can be nearer to a query than its nearest
# rows so far. Only these are measured. The directions are the first axes, or those in which a
# sample of the vectors differs most. The sample also shows which directions are worthwhile for a
# query. Numbers are compared with a margin for their rounding.

_Floats = npt.NDArray[np.float32]
#: Pairs of a query and a row, and their distances.
Pairs = tuple[Int64Array, Int64Array, _Floats]

#: Least pairs of a query and a vector of a partition for which a sample is worthwhile.
LEAST_PAIRS = 1 << 17
#: Least queries for which vectors are projected.
_LEAST_QUERIES = 64
#: Vectors of each of two samples, and most directions in which those of the first differ.
_SAMPLE, _DIRECTIONS = 128, 64
#: Parts of the items that are tried, too.
_PARTS = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
#: The time to measure a pair alone, in that of a pair of a product of matrices of all items.
_ALONE = 24
#: The time to copy the items of a vector, in the same unit; it does not depend on the queries.
_COPY = 32
#: The time to collect all distances of a query, in the same unit.
_ALL = 1.25
#: Vectors, and numbers of a product, of one step: they stay in the caches.
_STEP_ITEMS, _STEP_NUMBERS = 1 << 20, 1 << 20
#: Items of pairs that are measured in one step.
_PAIR_ITEMS = 1 << 18
_ROUNDING = np.float32(1e-6)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Vectors of a partition, and queries, that are compared item by item.

    - `vectors`: Returns some of the vectors, by their numbers.
    - `rows` (int64 array): Numbers of the vectors that are compared.
    - `queries`: Float32 array of shape (queries, dimension).
    - `is_product`: Whether the distance is 1 - product; it is the squared L2 distance otherwise.
    """

    vectors: Callable[[Int64Array], _Floats]
    rows: Int64Array
    queries: _Floats
    is_product: bool

    def groups(self, limits: _Floats) -> tuple[list[Projection], Int64Array]:
        """Return queries with the directions that are worthwhile for them, and other queries.

        - `limits` (float32 array): The greatest distance of each query that is of interest.
        """
        num_queries, dimension = self.queries.shape
        if len(self.rows) < 2 * _SAMPLE or num_queries < _LEAST_QUERIES:
            return [], np.arange(num_queries)
        sample = self.vectors(self.rows[:: len(self.rows) // (2 * _SAMPLE)])
        # Directions fit the vectors too well that they were made from: others judge them.
        vectors = sample[1::2]
        directions: list[_Floats | int] = [max(1, int(dimension * part)) for part in _PARTS]
        basis = _basis(sample[::2], max(1, min(_DIRECTIONS, dimension // 8)))
        if basis is not None:
            directions.insert(0, basis)
        chosen = np.full(num_queries, -1)
        costs = np.full(num_queries, _ALL)
        left = np.arange(num_queries)
        for number, direction in enumerate(directions):
            if not len(left):
                break
            tried = Projection(self, left, direction)
            near = tried.rates(vectors, limits[left])
            cost = tried.width / dimension + _ALONE * near + tried.preparation / len(left)
            is_less = cost < costs[left]
            chosen[left[is_less]] = number
            costs[left[is_less]] = cost[is_less]
            # More directions cannot cost less.
            if number + 1 < len(directions):
                following = directions[number + 1]
                least = (following if isinstance(following, int) else 0) / dimension
                left = left[costs[left] > least]
        groups = [
            Projection(self, np.flatnonzero(chosen == number), directions[number])
            for number in np.unique(chosen[chosen >= 0]).tolist()
        ]
        return groups, np.flatnonzero(chosen < 0)

    def near(
        self, groups: list[Projection], limits: Callable[[Int64Array], _Floats]
    ) -> Iterator[Pairs]:
        """Yield the vectors that are within the limits of queries, and some others.

        - `limits`: Returns the limits of some of the queries, by their numbers. They may decrease.
        """
        step = max(1, _STEP_ITEMS // self.queries.shape[1])
        for first in range(0, len(self.rows) if groups else 0, step):
            rows = self.rows[first : first + step]
            vectors = self.vectors(rows)
            squares = np.einsum("ij,ij->i", vectors, vectors)
            for group in groups:
                for query, row in group.near(vectors, squares, limits):
                    yield query, rows[row], self._measured(query, vectors, row)

    def _measured(self, query: Int64Array, vectors: _Floats, row: Int64Array) -> _Floats:
        """Return the distances of pairs."""
        result = np.empty(len(query), np.float32)
        step = max(1, _PAIR_ITEMS // vectors.shape[1])
        for first in range(0, len(query), step):
            own = slice(first, first + step)
            left, right = self.queries.take(query[own], axis=0), vectors.take(row[own], axis=0)
            if self.is_product:
                result[own] = 1 - np.einsum("ij,ij->i", left, right)
            else:
                left -= right
                np.einsum("ij,ij->i", left, left, out=result[own])
        return result


class Projection:
    """The projections of some queries, and the lengths of the rest.

    - `numbers` (int64 array): Of the queries.
    - `directions` (int, or float32 array of shape (dimension, directions)): Number of axes, or
      orthonormal directions.
    - `width`: Number of directions.
    """

    def __init__(self, decoded: Decoded, numbers: Int64Array, directions: _Floats | int) -> None:
        self._numbers, self._directions = numbers, directions
        self._is_product = decoded.is_product
        self.width = directions if isinstance(directions, int) else directions.shape[1]
        queries = decoded.queries[numbers]
        self._dimension: int = queries.shape[1]
        # A sum of so many products, in any order, twice; and that of a projection.
        self._error = np.float32(8 * (queries.shape[1] + 8) * np.finfo(np.float32).eps)
        with np.errstate(all="ignore"):
            squares = np.einsum("ij,ij->i", queries, queries)
            factor = self._projected(queries, squares)
            if self._is_product:
                factor[:, -1] = np.sqrt(squares)
                self._offsets = np.ones(len(queries), np.float32)
            else:
                factor[:, -1] = 1
                self._offsets = squares * (1 - self._error)
        self._factor = np.ascontiguousarray(factor.T)

    @property
    def preparation(self) -> float:
        """The time to project a vector, in that of a pair of a product of all items."""
        width = float(self.width)
        if isinstance(self._directions, int):
            width *= _COPY / self._dimension
        return width

    def rates(self, vectors: _Floats, limits: _Floats) -> npt.NDArray[np.float64]:
        """Return the part of vectors that can be within the limit of each query."""
        factor = self._of_vectors(vectors, np.einsum("ij,ij->i", vectors, vectors))
        step = _STEP_NUMBERS // len(vectors)
        parts = [
            self._can_be_near(factor, own, limits[own]).mean(axis=0)
            for first in range(0, len(self._numbers), step)
            for own in [slice(first, first + step)]
        ]
        return np.concatenate([np.empty(0), *parts])

    def near(
        self, vectors: _Floats, squares: _Floats, limits: Callable[[Int64Array], _Floats]
    ) -> Iterator[tuple[Int64Array, Int64Array]]:
        """Yield numbers of queries, and of vectors that can be within their limits."""
        factor = self._of_vectors(vectors, squares)
        step = max(1, _STEP_NUMBERS // max(1, len(vectors)))
        for first in range(0, len(self._numbers), step):
            own = slice(first, first + step)
            numbers = self._numbers[own]
            near = np.flatnonzero(self._can_be_near(factor, own, limits(numbers)))
            if len(near):
                row, query = np.divmod(near, len(numbers))
                yield numbers[query], row

    def _of_vectors(self, vectors: _Floats, squares: _Floats) -> _Floats:
        """Return what is multiplied with the queries."""
        with np.errstate(all="ignore"):
            factor = self._projected(vectors, squares)
            if self._is_product:
                factor[:, -1] = np.sqrt(squares) * self._error
            else:
                factor[:, -1] = squares * (self._error - 1) / 2
        return factor

    def _can_be_near(self, vectors: _Floats, own: slice, limits: _Floats) -> npt.NDArray[np.bool_]:
        """Return which vectors can be within the limits of some queries.

        Returns
        -------
        bool array of shape (vectors, queries)
        """
        with np.errstate(all="ignore"):
            least = self._offsets[own] - limits
            # Limits are rounded to 32 bits.
            least -= (np.abs(limits) + self._offsets[own]) * _ROUNDING
            if not self._is_product:
                least /= 2
            # Nothing is known of a number that is not finite.
            result: npt.NDArray[np.bool_] = ~(products(vectors, self._factor[:, own]) < least)
        return result

    def _projected(self, vectors: _Floats, squares: _Floats) -> _Floats:
        """Return projections, the length of the rest, and one more number that is not set."""
        width = self.width
        result = np.empty((len(vectors), width + 2), np.float32)
        if isinstance(self._directions, int):
            tail = vectors[:, width:]
            result[:, :width] = vectors[:, :width]
            rest = np.einsum("ij,ij->i", tail, tail) * (1 + self._error)
        else:
            head = products(vectors, self._directions)
            result[:, :width] = head
            # A difference of large numbers.
            rest = squares - np.einsum("ij,ij->i", head, head)
            rest = np.maximum(rest, 0) + self._error * squares
        result[:, width] = np.sqrt(rest)
        return result


def _basis(vectors: _Floats, count: int) -> _Floats | None:
    """Return orthonormal directions in which vectors differ most from 0; None if there are none."""
    wide = vectors.astype(np.float64)
    if not np.isfinite(wide).all():
        return None
    values, turned = np.linalg.eigh(wide @ wide.T)
    largest = np.argsort(-values)[:count]
    largest = largest[values[largest] > values[-1] * 1e-6]
    if not len(largest):
        return None
    # Directions of small values lose their digits.
    basis, _ = np.linalg.qr(wide.T @ turned[:, largest])
    return np.ascontiguousarray(basis.astype(np.float32))


# --------------------------------------------------------------------------------------------------
# What all quantizers have in common.

Distances = npt.NDArray[np.float32]


class Partition(Protocol):
    """The decoded vectors of one partition, ready to be measured. It is kept in the cache.

    - `nbytes`: Bytes in memory.
    """

    @property
    def num_rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def distances(self, queries: Vectors, rows: Int64Array | None = None) -> Distances:
        """Return the distances of vectors from each query.

        Parameters
        ----------
        queries : array of shape (queries, dimension)
        rows : int64 array, optional
            Rows of the partition to measure; all by default.

        Returns
        -------
        float32 array of shape (queries, rows)
            As pylance has them in `_distance` without refinement: for `cosine`, FLAT gives
            1 - cosine, and others give the squared L2 distance of vectors of length 1.
        """

    def decoded(self, queries: Vectors, rows: Int64Array) -> Decoded | None:
        """Return what `distances` compares, if it is vectors; None otherwise.

        - `queries`: Array of shape (queries, dimension).
        - `rows` (int64 array): Rows of the partition.
        """

    def measure(self, query: Vectors) -> Callable[[Int64Array], Distances]:
        """Return a function that measures rows, which is called often with few rows.

        - `query`: Array of shape (dimension,).
        """

    def vectors(self) -> Vectors:
        """Return the decoded vectors, from which a graph is built: their distances are in order.

        Returns
        -------
        float32 array of shape (rows, dimension); uint8 for `hamming`
            The differences from the centroid, if these have codes.
        """


class Quantizer(Protocol):
    """Stores the vectors of a segment as codes. Can be pickled.

    - `name`: FLAT, SQ, PQ or RQ.
    - `dimension`: Items of a vector.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def fields(self) -> pa.Schema:
        """The columns of codes in the file, without `_rowid`."""

    def metadata(self, buffers: Sequence[int]) -> Mapping[str, Any]:
        """Return the object in `storage_metadata` of the file.

        - `buffers`: Numbers of the global buffers that have `buffers()`.
        """

    def buffers(self) -> Sequence[bytes]:
        """Return the contents of global buffers, such as a codebook."""

    def encode(self, vectors: Vectors, centroids: Vectors) -> pa.RecordBatch:
        """Return the codes of vectors.

        Rows are independent of each other: they can be sorted, concatenated and sent between tasks.

        - `vectors` (array of shape (rows, dimension)): Without NaN.
        - `centroids` (array of shape (rows, dimension)): The centroid of the partition of each
          vector.
        """

    def stored(self, codes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of all rows of one partition in the order of bytes that files have."""

    def unstored(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of a partition of a file, with rows that are independent again."""

    def open_partition(self, stored: pa.RecordBatch, centroid: Vectors) -> Partition:
        """Return a partition of a file.

        - `stored`: The columns `fields`, as the file has them.
        - `centroid`: Array of shape (dimension,).

        Raises CorruptFileError: the columns do not have the form that the metadata promise.
        """


# --------------------------------------------------------------------------------------------------
# Tables of distances of codewords, and sums of the items that the codes of vectors choose.
#
# A table has 256 items for each byte of a vector's codes. A position is the place of an item among
# those of all tables: 256 * number of the byte + byte.
#
# If numba is installed, a compiled loop adds them up in a third of the time of numpy, and another
# one makes the tables in a sixth. A process loads numba after it has looked up 256 million items.

#: Positions of shape (bytes of a vector, vectors).
Positions = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

_BYTES = 256
#: Positions that are looked up in one step, so that they stay in the caches.
_STEP = 1 << 16


def positions_of(columns: npt.NDArray[np.uint8]) -> Positions:
    """Return the positions of codes, given the bytes of all vectors column after column."""
    count = len(columns)
    starts = np.arange(0, count * _BYTES, _BYTES)[:, None]
    dtype: type[Any] = np.uint16 if count <= _BYTES else np.uint32
    positions: Positions = np.add(columns, starts, dtype=dtype, casting="unsafe")
    return positions


def summed(tables: npt.NDArray[np.float32], positions: Positions, out: Any) -> None:
    """Add up the items of tables for each vector.

    - `tables`: Float32 array of shape (bytes, 256).
    - `positions`: Array of shape (bytes, vectors).
    - `out` (float32 array): Gets a sum for each vector.
    """
    flat = np.ascontiguousarray(tables.reshape(-1))
    count, num_rows = positions.shape
    is_simple = positions.dtype == np.uint16 and positions.flags.c_contiguous
    loop = LOOP.after(positions.size) if is_simple else None
    if loop is not None:
        loop(flat, positions, out)
        return
    step = max(1, _STEP // count)
    for first in range(0, num_rows, step):
        # Positions are in range, so that "wrap" only saves their check.
        items = flat.take(positions[:, first : first + step], mode="wrap")
        np.add.reduce(items, axis=0, out=out[first : first + step])


def squared_differences(query: npt.NDArray[np.float32], columns: npt.NDArray[np.float32]) -> Any:
    """Return the squared distance of each codeword from its part of a query.

    Parameters
    ----------
    query : float32 array of shape (dimension,)
    columns : float32 array of shape (bytes, items, 256)
        The codewords of each byte.

    Returns
    -------
    float32 array of shape (bytes, 256)
    """
    count, _, words = columns.shape
    loop = SQUARES.loop if LOOP.is_used else None
    if loop is not None:
        table = np.empty(count * words, np.float32)
        loop(np.ascontiguousarray(query), columns, table)
        return table.reshape(count, words)
    difference = columns - query.reshape(count, -1, 1)
    difference *= difference
    return np.add.reduce(difference, axis=1)


def _sum(flat: Any, positions: Any, out: Any) -> None:
    """Do the same for all positions, eight bytes of a vector at a time."""
    count = positions.shape[0]
    even = count - count % 8
    out[:] = 0
    for byte in range(0, even, 8):
        first, second = positions[byte], positions[byte + 1]
        third, fourth = positions[byte + 2], positions[byte + 3]
        fifth, sixth = positions[byte + 4], positions[byte + 5]
        seventh, eighth = positions[byte + 6], positions[byte + 7]
        for row in range(len(out)):
            near = (flat[first[row]] + flat[second[row]]) + (flat[third[row]] + flat[fourth[row]])
            far = (flat[fifth[row]] + flat[sixth[row]]) + (flat[seventh[row]] + flat[eighth[row]])
            out[row] += near + far
    for byte in range(even, count):
        last = positions[byte]
        for row in range(len(out)):
            out[row] += flat[last[row]]


def _square(query: Any, columns: Any, out: Any) -> None:
    """Write the squared differences of the parts of a query from the codewords of each byte."""
    count, items, words = columns.shape
    for byte in range(count):
        table = out[byte * words : (byte + 1) * words]
        table[:] = 0
        for item in range(items):
            value = query[byte * items + item]
            for word in range(words):
                difference = columns[byte, item, word] - value
                table[word] += difference * difference


#: It compiles `_sum`.
LOOP = CompiledLoop(_sum, sums_of(("float32", 1), ("uint16", 2)), 1 << 28)
#: It compiles `_square`, and is used as soon as `LOOP` is.
SQUARES = CompiledLoop(_square, sums_of(("float32", 1), ("float32", 3)), 0)

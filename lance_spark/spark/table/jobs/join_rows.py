"""Rows that travel between the steps of a nearest-neighbour join.

| column | probe | partial result | query |
| --- | --- | --- | --- |
| `first`, `second` | key of the vector | same | same; any without a vector |
| `slot` | key (`partition_keys`) of the slot | 0 | any of these |
| `vector` | its items | null | its items |
| `found` | null | rows with distances | null |
| `row` | null | null | the columns of the query |

A key is a hash of 128 bits of the items, so that a step that Spark runs again makes the same keys,
in any order of the rows. Equal vectors have the same key: they are searched once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.neighbors import Neighbors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.scan.vectors.ivf import Int64Array

Keys = npt.NDArray[np.int64]
FIRST, SECOND, SLOT = "first", "second", "slot"
VECTOR, NEIGHBORS, ROW = "vector", "neighbors", "row"
NAMES = (FIRST, SECOND, SLOT, VECTOR, NEIGHBORS, ROW)
_TYPES: dict[str, pa.DataType] = {
    FIRST: pa.int64(),
    SECOND: pa.int64(),
    SLOT: pa.int32(),
    VECTOR: pa.binary(),
    NEIGHBORS: pa.binary(),
}
#: A found row.
_NEIGHBOR = np.dtype([("distance", "<f4"), ("id", "<u8"), ("address", "<u8")])
NEIGHBOR_BYTES = _NEIGHBOR.itemsize
#: Odd numbers of 64 bits, from a fixed seed: tasks make the same keys.
_SEED = 20_011
#: Bytes of products that are computed at once.
_STEP_BYTES = 1 << 24


def joined_schema(queries: StructType) -> StructType:
    """Return the schema of the rows, for queries of a schema."""
    from pyspark.sql import types as spark

    binary, long = spark.BinaryType(), spark.LongType()
    dtypes = (long, long, spark.IntegerType(), binary, binary, queries)
    fields = [spark.StructField(name, dtype) for name, dtype in zip(NAMES, dtypes, strict=True)]
    return spark.StructType(fields)


def batch_of(columns: dict[str, pa.Array], num_rows: int, row: pa.DataType) -> pa.RecordBatch:
    """Return a batch of rows, with nulls in the columns that are not given."""
    arrays = [
        columns[name] if name in columns else pa.nulls(num_rows, _TYPES.get(name, row))
        for name in NAMES
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(NAMES))


def keys_of(vectors: Vectors) -> Keys:
    """Return the keys of vectors.

    Returns
    -------
    int64 array of shape (vectors, 2)
    """
    data = np.ascontiguousarray(vectors).view(np.uint8)
    if padding := -data.shape[1] % 4:
        data = np.pad(data, ((0, 0), (0, padding)))
    words = np.ascontiguousarray(data).view("<u4")
    rng = np.random.default_rng(_SEED)
    factors = rng.integers(0, 2**63, (2, words.shape[1]), np.uint64) * np.uint64(2) + np.uint64(1)
    keys = np.empty((len(vectors), 2), np.uint64)
    step = max(1, _STEP_BYTES // (8 * max(1, words.shape[1])))
    for first in range(0, len(words), step):
        part = words[first : first + step].astype(np.uint64)
        for number in range(2):
            keys[first : first + step, number] = (part * factors[number]).sum(axis=1)
    # The upper bits depend on all bits of the items.
    keys ^= keys >> np.uint64(32)
    return keys.view(np.int64)


def binaries(values: npt.NDArray[Any], counts: Int64Array) -> pa.Array:
    """Return values as binary values, each of some items.

    Parameters
    ----------
    values : array
        Of one dimension; contiguous.
    counts : int64 array
        Number of items of each binary value.
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    ends = (offsets * values.dtype.itemsize).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers)


def vectors_as_binaries(vectors: Vectors) -> pa.Array:
    """Return vectors as binary values."""
    counts = np.full(len(vectors), vectors.shape[1], np.int64)
    return binaries(np.ascontiguousarray(vectors).reshape(-1), counts)


def matrix_of(array: pa.Array, vectors: Vectors) -> Vectors:
    """Return binary values without nulls as vectors of the shape and type of others."""
    values, counts = _items_of(array, vectors.dtype)
    return values.reshape(len(counts), vectors.shape[1])


def _items_of(array: pa.Array, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], Int64Array]:
    """Return the items of binary values without nulls, and how many each has."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    start, stop = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    values = np.frombuffer(data or b"", np.uint8, stop - start, start)
    counts = np.diff(offsets).astype(np.int64) // np.dtype(dtype).itemsize
    return values.view(dtype), counts


def neighbors_as_binaries(neighbors: Neighbors, num_queries: int) -> pa.Array:
    """Return the rows that each query has found, ordered by query, as binary values."""
    rows = np.empty(len(neighbors), _NEIGHBOR)
    rows["distance"], rows["id"] = neighbors.distances, neighbors.ids
    rows["address"] = neighbors.addresses
    return binaries(rows, np.bincount(neighbors.queries, minlength=num_queries))


def neighbors_of(array: pa.Array, numbers: Int64Array) -> Neighbors:
    """Return the found rows of partial results; a row that is there twice once.

    Parameters
    ----------
    numbers : int64 array
        The number of the query of each partial result.
    """
    rows, counts = _items_of(array, _NEIGHBOR)
    queries = np.repeat(numbers, counts)
    order = np.lexsort((rows["id"], queries))
    queries, rows = queries[order], rows[order]
    # Equal vectors can have been searched twice.
    first = np.ones(len(rows), np.bool_)
    first[1:] = (queries[1:] != queries[:-1]) | (rows["id"][1:] != rows["id"][:-1])
    queries, rows = queries[first], rows[first]
    return Neighbors(
        queries.astype(np.int32),
        np.ascontiguousarray(rows["distance"]),
        np.ascontiguousarray(rows["id"]),
        np.ascontiguousarray(rows["address"]),
    )


class Runs:
    """Collects probes that are sorted by their slots.

    Parameters
    ----------
    rows : int
        Most probes of a slot that are collected.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._slot = self._num_collected = 0
        self._collected: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Table]]:
        """Add probes; yield slots of which there are no more probes, or as many as are wanted."""
        slots = batch.column(SLOT).to_numpy()
        starts = np.flatnonzero(np.diff(slots, prepend=slots[:1] - 1)).tolist()
        for first, stop in zip(starts, [*starts[1:], len(slots)], strict=False):
            start = first
            while start < stop:
                if slots[start] != self._slot or self._num_collected >= self._rows:
                    yield from self.finish()
                    self._slot = int(slots[start])
                end = min(stop, start + self._rows - self._num_collected)
                self._collected.append(batch.slice(start, end - start))
                self._num_collected += end - start
                start = end

    def finish(self) -> Iterator[tuple[int, pa.Table]]:
        """Yield the probes that are left."""
        if self._collected:
            yield self._slot, pa.Table.from_batches(self._collected)
        self._collected, self._num_collected = [], 0


def groups(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield partial results and queries that are sorted by key, partial results first.

    The partial results of a key are in each table that has a query of this key.

    Parameters
    ----------
    rows : int
        About how many rows a table has.
    """
    collected: list[pa.RecordBatch] = []
    for next_batch in batches:
        batch = next_batch
        if not batch.num_rows:
            continue
        if sum(part.num_rows for part in collected) >= rows:
            last = collected[-1].slice(collected[-1].num_rows - 1)
            stop = _end_of_results(last, batch)
            if stop:
                collected.append(batch.slice(0, stop))
                batch = batch.slice(stop)
            if batch.num_rows:
                yield pa.Table.from_batches(collected)
                collected = [part for part in _results_of(collected, batch) if part.num_rows]
        if batch.num_rows:
            collected.append(batch)
    if collected:
        yield pa.Table.from_batches(collected)


def _has_key(batch: pa.RecordBatch, row: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which rows of a batch have the key of the first row of another batch."""
    same = np.ones(batch.num_rows, np.bool_)
    for name in (FIRST, SECOND):
        same &= batch.column(name).to_numpy() == row.column(name)[0].as_py()
    return same


def _end_of_results(last: pa.RecordBatch, batch: pa.RecordBatch) -> int:
    """Return the first row of a batch that is not a partial result of the key of a row."""
    is_result = batch.column(NEIGHBORS).is_valid().to_numpy(zero_copy_only=False)
    own = is_result & _has_key(batch, last)
    return batch.num_rows if own.all() else int(np.argmin(own))


def _results_of(collected: list[pa.RecordBatch], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the partial results that have the key of the first row of a batch."""
    for part in collected:
        is_result = part.column(NEIGHBORS).is_valid().to_numpy(zero_copy_only=False)
        yield part.filter(pa.array(is_result & _has_key(part, batch)))

"""The vectors of a batch that an index has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.vectors.columns import ColumnVectors, VectorType
from lance_spark.scan.vectors.distances import normalized
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.table.rows.u64_segments import UInt64Array


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

    Parameters
    ----------
    values : pa.Array
        Vectors or lists of vectors, of a type with `items_of`.
    ids : uint64 array
        Row id of each value.
    metric : Metric
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

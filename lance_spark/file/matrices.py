"""Copies of matrices that are slices, because Arrow takes wrong items of these.

A matrix is a fixed-size list of fixed-size lists. `take` and `filter` of pyarrow (26 and before)
compute a wrong offset if the matrices, or the lists in them, begin after the first value of their
buffer.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import with_each_column
from lance_spark.file.schema.logical_types import storage_type


def without_sliced_matrices(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose sliced matrices are copies; the argument if it has none."""
    return with_each_column(batch, without_slices)


def without_slices(array: pa.Array) -> pa.Array:
    """Return a copy of an array with sliced matrices; other arrays unchanged."""
    if not holds_matrices(array.type) or not _is_sliced(array):
        return array
    return pa.concat_arrays([array])


def holds_matrices(dtype: pa.DataType) -> bool:
    """Return whether values of a type have matrices, at any depth."""
    # Extension types of users can have no hash.
    return _holds_matrices(storage_type(dtype))


@lru_cache(maxsize=256)
def _holds_matrices(dtype: pa.DataType) -> bool:
    if not dtype.num_fields:
        return False
    if pat.is_struct(dtype):
        return any(holds_matrices(dtype.field(place).type) for place in range(dtype.num_fields))
    if pat.is_map(dtype):
        return holds_matrices(dtype.key_type) or holds_matrices(dtype.item_type)
    item = storage_type(dtype.value_type) if hasattr(dtype, "value_type") else pa.null()
    return holds_matrices(item) or (pat.is_fixed_size_list(dtype) and pat.is_fixed_size_list(item))


def _is_sliced(array: pa.Array) -> bool:
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = array.type
    if array.offset or not dtype.num_fields:
        return bool(array.offset)
    if pat.is_struct(dtype):
        return any(_is_sliced(array.field(place)) for place in range(dtype.num_fields))
    if pat.is_map(dtype):
        return _is_sliced(array.keys) or _is_sliced(array.items)
    return _is_sliced(array.values)

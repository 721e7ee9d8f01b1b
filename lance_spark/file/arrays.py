"""Repairs of Arrow arrays that Arrow's own kernels or other readers take wrongly."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import is_variable, with_each_column
from lance_spark.file.schema.types import storage_type

# --------------------------------------------------------------------------------------------------
# Copies of matrices that are slices, because Arrow takes wrong items of these.
#
# A matrix is a fixed-size list of fixed-size lists. `take` and `filter` of pyarrow (26 and before)
# compute a wrong offset if the matrices, or the lists in them, begin after the first value of their
# buffer.


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


# --------------------------------------------------------------------------------------------------
# Adds the missing first offset to arrays without rows.
#
# A list, string or binary array has one more offset than rows, so at least one. The Arrow format
# allows an empty offsets buffer for an array without rows. Arrow Java writes it so before release
# 18.2, and so does Spark 4.0, at any depth. pyarrow reads the missing offset when it measures such
# an array, and the process crashes.

#: Types whose `num_fields` does not count the arrays below them.
_HOLDS_ARRAYS = (pa.BaseExtensionType, pa.DictionaryType)


def with_offsets(array: pa.Array) -> pa.Array:
    """Return the array with a first offset in every list, string or binary array inside it.

    Returns an equal array of the same type. The argument itself if it and all arrays below have
    rows.
    """
    dtype = array.type
    if len(array) and _has_rows_below(dtype):
        return array
    if isinstance(array, pa.ExtensionArray):
        old = array.storage
        new = with_offsets(old)
        return array if new is old else pa.ExtensionArray.from_storage(dtype, new)
    if pat.is_dictionary(dtype):
        old = array.dictionary
        new = with_offsets(old)
        if new is old:
            return array
        return pa.DictionaryArray.from_arrays(array.indices, new, ordered=dtype.ordered)
    if len(array) == 0:
        return pa.nulls(0, dtype) if dtype.num_fields or is_variable(dtype) else array
    if pat.is_struct(dtype):
        return _with_children(array)
    if not _is_list(dtype) and not pat.is_fixed_size_list(dtype):
        return array
    old = array.values
    new = with_offsets(old)
    if new is old:
        return array
    own_buffers = array.buffers()[: 2 if _is_list(dtype) else 1]
    return pa.Array.from_buffers(
        dtype, len(array), own_buffers, array.null_count, array.offset, [new]
    )


def _has_rows_below(dtype: pa.DataType) -> bool:
    """Return whether all arrays below an array with rows have rows, as in structs."""
    # Extension types of other packages may have no hash.
    if isinstance(dtype, _HOLDS_ARRAYS):
        return False
    return not dtype.num_fields or _is_struct_with_rows_below(dtype)


@lru_cache(maxsize=256)
def _is_struct_with_rows_below(dtype: pa.DataType) -> bool:
    return pat.is_struct(dtype) and all(_has_rows_below(child.type) for child in dtype)


def batch_with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with `with_offsets` of each column."""
    return with_each_column(batch, with_offsets)


def _with_children(array: pa.StructArray) -> pa.Array:
    # Where the struct is null, a child may have an index outside of its dictionary. `flatten` makes
    # it null.
    old_children = array.flatten()
    children = [with_offsets(child) for child in old_children]
    if all(new is old for new, old in zip(children, old_children, strict=True)):
        return array
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_map(dtype))

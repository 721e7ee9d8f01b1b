"""Rebuilds Arrow arrays of other types over the same buffers.

Arrays may be slices: each function reads only the window of its argument and returns arrays without
an offset. So validity bitmaps start at bit 0, and 32-bit offsets cover only the window. A function
raises OffsetsTooLarge if they cannot.

    list             validity bitmap | offsets, length + 1 | values
    fixed-size list  validity bitmap | values, length * size
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import InvalidInputError

_INT32_MAX = 2**31 - 1
#: Digits of the decimals that 64 bits hold.
LONG_DIGITS = 18

Child = Callable[[Any], Any] | None


class OffsetsTooLarge(Exception):  # noqa: N818 - a signal to the caller, who halves the batch
    """The window is too large for 32-bit offsets."""


def validity(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap of an array, starting at bit 0; None without nulls."""
    bitmap = array.buffers()[0]
    if bitmap is None or array.null_count == 0:
        return None
    start, bit = divmod(array.offset, 8)
    if bit == 0:
        return bitmap.slice(start) if start else bitmap
    stop = -(-(array.offset + len(array)) // 8)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8)[start:stop], bitorder="little")
    return pa.py_buffer(np.packbits(bits[bit : bit + len(array)], bitorder="little"))


def unscaled(array: pa.Array) -> pa.Array:
    """Return the unscaled values of decimals of at most 18 digits, as int64.

    decimal128       validity bitmap | low half, high half of each value
    """
    data = array.buffers()[1]
    words = np.frombuffer(data, np.int64, 2 * (array.offset + len(array)))
    # The high half repeats the sign of the low half.
    low = np.ascontiguousarray(words[2 * array.offset :: 2])
    return pa.Array.from_buffers(pa.int64(), len(array), [validity(array), pa.py_buffer(low)])


def from_unscaled(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return decimals of at most 18 digits, from their unscaled values as int64."""
    low = array.fill_null(0).to_numpy()
    words = np.stack([low, low >> 63], axis=1)
    return pa.Array.from_buffers(dtype, len(array), [validity(array), pa.py_buffer(words)])


def list_window(array: pa.Array) -> tuple[pa.Buffer, int, int]:
    """Return 32-bit offsets from 0, and the start and end of the values of the window."""
    width = np.int64 if _has_long_offsets(array.type) else np.int32
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return pa.py_buffer(np.zeros(len(array) + 1, np.int32)), 0, 0
    offsets = np.frombuffer(buffer, width, len(array) + 1, array.offset * np.dtype(width).itemsize)
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first > _INT32_MAX:
        raise OffsetsTooLarge
    if first or width is np.int64:
        return pa.py_buffer(np.subtract(offsets, first).astype(np.int32)), first, last
    return pa.py_buffer(offsets), first, last


def relabel_list(array: pa.Array, target: pa.DataType, child: Child) -> pa.Array:
    """Change the type of a list; the offsets stay."""
    if _has_long_offsets(target):
        return _relabel_long(array, target, child)
    return narrow_list(array, target, child)


def narrow_list(array: pa.Array, target: pa.DataType, child: Child) -> pa.Array:
    """Change the type of a list, with offsets of 32 or 64 bits on either side."""
    offsets, first, last = list_window(array)
    values = array.values.slice(first, last - first)
    return _list_of(array, target, [_as_wide(offsets, target)], values, child)


def _relabel_long(array: pa.Array, target: pa.DataType, child: Child) -> pa.Array:
    if len(array) == 0:
        return pa.array([], target)
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.values.slice(first, last - first)
    return _list_of(array, target, [pa.py_buffer(offsets - first)], values, child)


def vectors_to_list(array: pa.Array, target: pa.DataType, child: Child) -> pa.Array:
    """Convert a fixed-size list to a list with offsets."""
    size = array.type.list_size
    values = array.values.slice(array.offset * size, len(array) * size)
    offsets = _as_wide(even_offsets(len(array), size), target)
    return _list_of(array, target, [offsets], values, child)


def to_vectors(array: pa.Array, target: pa.DataType, child: Child, column: str) -> pa.Array:
    """Convert lists of equal size to a fixed-size list; null slots get arbitrary values.

    Raises InvalidInputError: a list has another length.
    """
    size = target.list_size
    if pa.types.is_fixed_size_list(array.type):
        values = array.values.slice(array.offset * size, len(array) * size)
    else:
        values = _dense_values(array, size, column)
    return _list_of(array, target, [], values, child)


def _list_of(
    array: pa.Array, target: pa.DataType, offsets: list[pa.Buffer], values: pa.Array, child: Child
) -> pa.Array:
    """Return lists with other offsets and values, and the nulls of an array."""
    values = values if child is None else child(values)
    buffers = [validity(array), *offsets]
    return pa.Array.from_buffers(target, len(array), buffers, array.null_count, children=[values])


def _as_wide(offsets: pa.Buffer, target: pa.DataType) -> pa.Buffer:
    """Return 32-bit offsets in the width that a type has."""
    if not _has_long_offsets(target):
        return offsets
    return pa.py_buffer(np.frombuffer(offsets, np.int32).astype(np.int64))


def _dense_values(array: pa.Array, size: int, column: str) -> pa.Array:
    if len(array) == 0:
        return array.values.slice(0, 0)
    width = np.int64 if _has_long_offsets(array.type) else np.int32
    offsets = np.frombuffer(
        array.buffers()[1], width, len(array) + 1, array.offset * np.dtype(width).itemsize
    )
    lengths = np.diff(offsets)
    wrong = lengths != size
    first = int(offsets[0])
    if not wrong.any():
        return array.values.slice(first, len(array) * size)
    present = array.is_valid().to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(wrong & present)
    if bad.size:
        raise InvalidInputError(
            f"column {column} has vectors of {size} values, but a row has a vector of "
            f"{int(lengths[bad[0]])} values"
        )
    if not present.any():
        return pa.nulls(len(array) * size, array.type.value_type)
    # A null slot needs the values of a vector: it repeats the first valid one.
    starts = np.where(present, offsets[:-1], offsets[:-1][present][0]).astype(np.int64)
    return array.values.take(pa.array((starts[:, None] + np.arange(size)).reshape(-1)))


def narrow_variable(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert strings or binary values from 64-bit to 32-bit offsets, over the same bytes."""
    offsets, first, last = list_window(array)
    data = array.buffers()[2]
    if data is not None:
        data = data.slice(first, last - first)
    return pa.Array.from_buffers(
        target, len(array), [validity(array), offsets, data], array.null_count
    )


def to_variable(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert fixed-size binary values to binary values with offsets, over the same bytes."""
    width = array.type.byte_width
    data = array.buffers()[1]
    if data is not None:
        data = data.slice(array.offset * width, len(array) * width)
    offsets = _as_wide(even_offsets(len(array), width), target)
    return pa.Array.from_buffers(
        target, len(array), [validity(array), offsets, data], array.null_count
    )


def struct_children(array: pa.Array) -> list[pa.Array]:
    """Return the children of a struct, reduced to its window."""
    return [array.field(i) for i in range(array.type.num_fields)]


@lru_cache(maxsize=8)
def even_offsets(length: int, size: int) -> pa.Buffer:
    """Return offsets of `length` lists of `size` values each."""
    if length * size > _INT32_MAX:
        raise OffsetsTooLarge
    return pa.py_buffer(np.arange(length + 1, dtype=np.int32) * np.int32(size))


def _has_long_offsets(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_large_list(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_large_binary(data_type)
    )

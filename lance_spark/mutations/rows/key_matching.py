"""Matching of rows by equal keys, in memory.

The values of each column are numbered over both sides together. The numbers of several columns
become one number, so that two rows match if their numbers are equal.

| value | equals |
| --- | --- |
| null | nothing |
| NaN | NaN |
| 0.0 | 0.0, not -0.0 |
| a struct | a struct with equal fields |
| a list, a map | one with as many equal items, in the same order |

Within structs and lists, a null equals a null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import vector_items
from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.file.schema.nested import as_list, list_lengths

_Indexes = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.int64]
_NULL = -1
_BYTES = pa.large_binary()
_EMPTY = pa.scalar(b"", _BYTES)
_BITS = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """The pairs of rows of a target and of a source whose keys are equal.

    Attributes
    ----------
    target, source : int64 array
        Rows of each pair, in the order of the rows of the target. A row of the target is in several
        pairs if the source has its key several times.
    unmatched : int64 array
        Rows of the source in no pair, in order.
    """

    target: _Indexes
    source: _Indexes
    unmatched: _Indexes

    def repeated(self) -> int | None:
        """Return a row of the target that is in several pairs; None if there is none."""
        same = np.flatnonzero(self.target[1:] == self.target[:-1])
        return int(self.target[same[0]]) if len(same) else None


def match_keys(target: Sequence[pa.ChunkedArray], source: Sequence[pa.ChunkedArray]) -> KeyMatch:
    """Return the pairs of rows with equal keys.

    Parameters
    ----------
    target, source : sequence of pa.ChunkedArray
        The columns of the key, of the same types on both sides.
    """
    rows = len(target[0])
    codes = np.zeros(rows + len(source[0]), np.int64)
    for left, right in zip(target, source, strict=True):
        codes = _combined(codes, _numbered(left, right))
    return _match(codes[:rows], codes[rows:])


def _numbered(left: pa.ChunkedArray, right: pa.ChunkedArray) -> _Codes:
    """Return numbers of the values of both sides; equal for equal values, `_NULL` for nulls."""
    chunks = [comparable(chunk) for chunk in (*left.chunks, *right.chunks)]
    if not chunks:
        return np.zeros(0, np.int64)
    encoded = pa.chunked_array(chunks).dictionary_encode().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    numbers: _Codes = encoded.indices.fill_null(_NULL).to_numpy().astype(np.int64)
    return numbers


def comparable(array: pa.Array) -> pa.Array:
    """Return values that are equal in a hash table of Arrow if the values of a key are equal.

    They have no extension type or dictionary. Floats are bits, structs and lists are bytes.
    """
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = array.type
    if pat.is_dictionary(dtype):
        return comparable(array.dictionary_decode())
    if pat.is_floating(dtype):
        # By bits, so that a hash table distinguishes zeros on every path, and all NaN are the same.
        is_nan = pc.fill_null(pc.is_nan(array), False)
        canonical = pc.if_else(is_nan, pa.scalar(float("nan"), dtype), array)
        return canonical.view(_BITS[dtype.bit_width])
    if not pat.is_nested(dtype):
        return array
    if pat.is_struct(dtype):
        children = [_delimited(child) for child in array.flatten()]
        content = _joined(pa.repeat(_EMPTY, len(array)), *children)
    else:
        content = _of_lists(array)
    return pc.if_else(array.is_valid(), content, None)


def _of_lists(array: pa.Array) -> pa.Array:
    """Return the bytes of the items of each list."""
    if pat.is_map(array.type):
        array = as_list(array)
    if pat.is_fixed_size_list(array.type):
        items, lengths = vector_items(array), np.full(len(array), array.type.list_size)
    else:
        items, lengths = array.flatten(), list_lengths(array)
    content = _delimited(items)
    _, offsets, data = content.buffers()
    bounds_of_items = np.frombuffer(offsets, np.int64)[content.offset :]
    bounds_of_lists = np.ascontiguousarray(bounds_of_items[bounds(lengths)])
    return pa.Array.from_buffers(_BYTES, len(array), [None, pa.py_buffer(bounds_of_lists), data])


def _delimited(array: pa.Array) -> pa.Array:
    """Return bytes of values that differ for other values, also if others follow them."""
    values = comparable(array)
    if pat.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if pat.is_primitive(values.type) or pat.is_decimal(values.type):
        values = values.view(pa.binary(values.type.bit_width // 8))
    values = values.cast(_BYTES)
    lengths = pc.binary_length(values).view(pa.binary(8)).cast(_BYTES)
    return _joined(pa.scalar(b"\1", _BYTES), lengths, values).fill_null(b"\0")


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Return the bytes of each row, one part after another; null if a part is null."""
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _combined(codes: _Codes, numbers: _Codes) -> _Codes:
    """Return numbers of pairs of numbers."""
    is_null = (codes == _NULL) | (numbers == _NULL)
    width = int(numbers.max(initial=0)) + 1
    pairs = codes * width + numbers
    if int(codes.max(initial=0)) >= (1 << 62) // width:
        _, left = np.unique(codes, return_inverse=True)
        pairs = left.astype(np.int64) * width + numbers
    _, inverse = np.unique(pairs, return_inverse=True)
    combined: _Codes = inverse.astype(np.int64)
    combined[is_null] = _NULL
    return combined


def _match(target: _Codes, source: _Codes) -> KeyMatch:
    order = np.argsort(source, kind="stable")
    ordered = source[order]
    first = np.searchsorted(ordered, target, side="left")
    counts = np.searchsorted(ordered, target, side="right") - first
    counts[target == _NULL] = 0
    rows = np.repeat(np.arange(len(target)), counts)
    starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    matched = order[starts + np.arange(len(rows))]
    is_matched = np.zeros(len(source), np.bool_)
    is_matched[matched] = True
    return KeyMatch(rows, matched, np.flatnonzero(~is_matched))

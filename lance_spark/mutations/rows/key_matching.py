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
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.nested import as_list, list_lengths

_Indexes = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.int64]
_NULL = -1
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

    Raises
    ------
    InvalidInputError
        A column has a type whose values cannot be compared.
    """
    rows = len(target[0])
    codes = np.zeros(rows + len(source[0]), np.int64)
    for left, right in zip(target, source, strict=True):
        chunks = [*left.chunks, *right.chunks]
        if chunks:
            codes = _combined(codes, _numbered(chunks))
    return _match(codes[:rows], codes[rows:])


def _numbered(chunks: Sequence[pa.Array]) -> _Codes:
    """Return numbers of the values of all chunks; equal for equal values, `_NULL` for nulls."""
    chunks = [_comparable(chunk) for chunk in chunks]
    if pat.is_struct(chunks[0].type):
        numbers = _of_structs(chunks)
    elif pat.is_nested(chunks[0].type):
        numbers = _of_lists(chunks)
    else:
        return _encoded(chunks)
    numbers[pa.chunked_array(chunks).is_null().to_numpy()] = _NULL
    return numbers


def _of_structs(chunks: Sequence[pa.StructArray]) -> _Codes:
    numbers = np.zeros(sum(map(len, chunks)), np.int64)
    for children in zip(*(chunk.flatten() for chunk in chunks), strict=True):
        numbers = _combined(numbers, _numbered(children) + 1)
    return numbers


def _of_lists(chunks: Sequence[pa.Array]) -> _Codes:
    """Number lists by the bytes of the numbers of their items."""
    if pat.is_fixed_size_list(chunks[0].type):
        items = [vector_items(chunk) for chunk in chunks]
        lengths = np.full(sum(map(len, chunks)), chunks[0].type.list_size)
    else:
        if pat.is_map(chunks[0].type):
            chunks = [as_list(chunk) for chunk in chunks]
        items = [chunk.flatten() for chunk in chunks]
        lengths = np.concatenate([list_lengths(chunk) for chunk in chunks])
    numbers = _numbered(items) + 1
    buffers = [None, pa.py_buffer(bounds(lengths) * numbers.itemsize), pa.py_buffer(numbers)]
    return _encoded([pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)])


def _encoded(chunks: Sequence[pa.Array]) -> _Codes:
    try:
        encoded = pa.chunked_array(chunks).dictionary_encode().combine_chunks()
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"rows cannot be matched by values of {chunks[0].type}: {error}"
        ) from None
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    numbers: _Codes = encoded.indices.fill_null(_NULL).to_numpy().astype(np.int64)
    return numbers


def _comparable(array: pa.Array) -> pa.Array:
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pat.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not pat.is_floating(array.type):
        return array
    # By bits, so that a hash table distinguishes zeros on every path, and all NaN are the same.
    is_nan = pc.fill_null(pc.is_nan(array), False)
    canonical = pc.if_else(is_nan, pa.scalar(float("nan"), array.type), array)
    return canonical.view(_BITS[array.type.bit_width])


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

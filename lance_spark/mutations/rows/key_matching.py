"""Matching of rows by equal keys, in memory.

A hash table numbers the distinct values of the side that has fewer rows. The values of the other
side are looked up in it. Rows whose value is not found are left out before the next column is
compared. The numbers of several columns become one number, so that two rows match if their numbers
are equal.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import vector_items
from lance_spark.encoding.integer_sets import IntegerFlags, integers_of
from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.file.schema.nested import as_list, list_lengths

_Indexes = npt.NDArray[np.int64]
_Codes = npt.NDArray[np.int64]
#: The number of a value that is null, or that the other side does not have.
_ABSENT = -1
_BYTES = pa.large_binary()
_EMPTY = pa.scalar(b"", _BYTES)
#: Places for each value of a table of all values of a span.
_PLACES_OF_VALUE = 64
#: Fewest values for which numpy's tables are made.
_FEWEST_VALUES = 1 << 16
#: Arrow numbers values in one array. Offsets of 32 bits do not number more than 2 GiB.
_LARGE_BYTES = 1 << 30
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_BITS = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """The pairs of rows of a target and of a source whose keys are equal.

    - `target`, `source`: Rows of each pair, in the order of the rows of the target. A row of the
      target is in several pairs if the source has its key several times.
    - `unmatched`: Rows of the source in no pair, in order.
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

    - `target`, `source`: The columns of the key, of the same types on both sides.
    """
    sides = _Side(), _Side()
    for columns in zip(target, source, strict=True):
        left, right = (side.values(column) for side, column in zip(sides, columns, strict=True))
        sides = _narrowed(sides, _numbered(left, right))
    return _match(*sides, len(source[0]))


@dataclass(frozen=True, slots=True)
class _Side:
    """The rows of one side that can still match.

    - `rows`: The rows, increasing; None for all of them.
    - `numbers`: The numbers of their keys, from 0 on; None before the first column.
    """

    rows: _Indexes | None = None
    numbers: _Codes | None = None

    def values(self, column: pa.ChunkedArray) -> list[pa.Array]:
        """Return the values of the rows, in chunks that a hash table compares."""
        chunks = [comparable(chunk) for chunk in column.chunks]
        if self.rows is None:
            return chunks or [comparable(pa.array([], column.type))]
        ends = np.cumsum([0, *map(len, chunks)])
        places = np.searchsorted(self.rows, ends)
        return [
            chunk.take(pa.array(self.rows[first:last] - start))
            for chunk, start, first, last in zip(
                chunks, ends[:-1], places[:-1], places[1:], strict=True
            )
        ] or [comparable(pa.array([], column.type))]


class _NumberedRows(NamedTuple):
    """The rows of one side whose value has a number, increasing, and the numbers."""

    rows: _Indexes
    numbers: _Codes


def _narrowed(
    sides: tuple[_Side, _Side], parts: tuple[_NumberedRows, _NumberedRows]
) -> tuple[_Side, _Side]:
    """Return the rows that have a number, numbered by the columns before and this one."""
    rows = [
        part.rows if side.rows is None else side.rows[part.rows]
        for side, part in zip(sides, parts, strict=True)
    ]
    before = [side.numbers for side in sides if side.numbers is not None]
    if not before:
        return _Side(rows[0], parts[0].numbers), _Side(rows[1], parts[1].numbers)
    # There are at most as many numbers as rows, so the product has no more than 62 bits.
    width = max(int(part.numbers.max(initial=0)) for part in parts) + 1
    pairs = [
        [pa.array(own[part.rows] * width + part.numbers)]
        for own, part in zip(before, parts, strict=True)
    ]
    return _narrowed((_Side(rows[0]), _Side(rows[1])), _numbered(*pairs))


def _numbered(left: list[pa.Array], right: list[pa.Array]) -> tuple[_NumberedRows, _NumberedRows]:
    """Return numbers of the values of both sides, which are equal for equal values.

    Nulls have none, and of the side that has more rows, neither have values that the other side
    does not have.
    """
    if sum(map(len, left)) < sum(map(len, right)):
        others, own = _numbered(right, left)
        return own, others
    if not any(map(len, right)):
        return _with_numbers(np.empty(0, np.int64)), _with_numbers(np.empty(0, np.int64))
    size = sum(chunk.nbytes for chunk in right)
    if size > _LARGE_BYTES and left[0].type in _LARGE:
        left, right = ([chunk.cast(_LARGE[chunk.type]) for chunk in side] for side in (left, right))
    encoded = pa.chunked_array(right).dictionary_encode().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    own = _with_numbers(integers_of(encoded.indices, _ABSENT))
    return _found(left, encoded.dictionary), own


def _with_numbers(numbers: _Codes, first: int = 0) -> _NumberedRows:
    """Return the rows, from row `first` on, that have a number."""
    rows = np.flatnonzero(numbers != _ABSENT)
    return _NumberedRows(rows + first if first else rows, numbers[rows])


def _found(chunks: list[pa.Array], values: pa.Array) -> _NumberedRows:
    """Return the place of each value of the chunks in distinct values, if it is there."""
    dtype = values.type
    count = sum(map(len, chunks))
    if count < _FEWEST_VALUES or not pat.is_primitive(dtype) or dtype.bit_width < 8:

        def places(chunk: pa.Array) -> _Codes:
            return integers_of(pc.index_in(chunk, value_set=values, skip_nulls=True), _ABSENT)

        return _of_chunks(chunks, places)
    keys = integers_of(values, 0)
    if not len(keys):
        return _with_numbers(keys)
    least = keys.min()
    span = int(keys.max()) - int(least)
    if span > min(2 * count, _PLACES_OF_VALUE * len(keys)):
        return _by_hash(chunks, keys)
    # One more place is that of all values outside of the span.
    width = np.int32 if len(keys) <= np.iinfo(np.int32).max else np.int64
    places_of = np.full(span + 2, _ABSENT, width)
    places_of[keys - least] = np.arange(len(keys))

    def by_offset(chunk: pa.Array) -> _Codes:
        offsets = (integers_of(chunk, 0) - least).view(np.uint64)
        found: _Codes = places_of[np.minimum(offsets, np.uint64(span + 1)).view(np.int64)]
        if chunk.null_count:
            found[chunk.is_null().to_numpy(zero_copy_only=False)] = _ABSENT
        return found

    return _of_chunks(chunks, by_offset)


def _of_chunks(chunks: list[pa.Array], number: Callable[[pa.Array], _Codes]) -> _NumberedRows:
    """Return the rows of chunks that have a number, by a function of a chunk."""
    parts, first = [_with_numbers(np.empty(0, np.int64))], 0
    for chunk in chunks:
        parts.append(_with_numbers(number(chunk), first))
        first += len(chunk)
    rows, numbers = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return _NumberedRows(rows, numbers.astype(np.int64, copy=False))


def _by_hash(chunks: list[pa.Array], keys: _Codes) -> _NumberedRows:
    """Return what `_found` does. Most values that are absent are found out by a table of flags."""
    flags = IntegerFlags(keys)
    rows, candidates, first = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for chunk in chunks:
        values = integers_of(chunk, 0)
        is_candidate = flags.possible(values)
        if chunk.null_count:
            is_candidate[chunk.is_null().to_numpy(zero_copy_only=False)] = False
        places = np.flatnonzero(is_candidate)
        rows.append(places + first)
        candidates.append(values[places])
        first += len(chunk)
    found = pc.index_in(pa.array(np.concatenate(candidates)), value_set=pa.array(keys))
    numbered = _with_numbers(integers_of(found, _ABSENT))
    return _NumberedRows(np.concatenate(rows)[numbered.rows], numbered.numbers)


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


def _match(target: _Side, source: _Side, num_source: int) -> KeyMatch:
    """Return the pairs of rows with equal numbers."""
    rows, numbers, places, keys = (
        np.empty(0, np.int64) if array is None else array
        for array in (target.rows, target.numbers, source.rows, source.numbers)
    )
    most = max(int(numbers.max(initial=_ABSENT)), int(keys.max(initial=_ABSENT)))
    counts = np.bincount(keys, minlength=most + 1)
    if counts.max(initial=0) <= 1:
        place_of = np.full(most + 1, _ABSENT, np.int64)
        place_of[keys] = places
        matched = place_of[numbers]
        has_match = matched != _ABSENT
        rows, matched = rows[has_match], matched[has_match]
    else:
        order = np.argsort(keys, kind="stable")
        first = np.cumsum(counts) - counts
        pairs = counts[numbers]
        ends = np.cumsum(pairs)
        starts = np.repeat(first[numbers] - (ends - pairs), pairs)
        rows = np.repeat(rows, pairs)
        matched = places[order[starts + np.arange(len(rows))]]
    is_matched = np.zeros(num_source, np.bool_)
    is_matched[matched] = True
    return KeyMatch(rows, matched, np.flatnonzero(~is_matched))

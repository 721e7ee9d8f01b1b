"""A merge without Spark: rows are matched by their keys, and committed as one change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark import progress
from lance_spark.encoding.blocks import nulls, vector_items
from lance_spark.encoding.rows import IntegerFlags, integers_of
from lance_spark.encoding.v2_1.codec import bounds
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.schema.nested import Lengths, as_list, list_lengths
from lance_spark.file.writer import check_types
from lance_spark.mutations.commits import commit_rows
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rewrite.writers import RowRewriter, undo
from lance_spark.mutations.rows.delete import run_delete, union_rows
from lance_spark.mutations.rows.update import moved_operation
from lance_spark.predicates.comparison import kernel_type
from lance_spark.runner import abort_on_error, runner_for, write_and_delete
from lance_spark.scan.fragment.column_reader import cuts, halved
from lance_spark.table.align import align
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.base import BloomFilter, InsertedKeys
from lance_spark.table.operations.update import Update
from lance_spark.table.primary_key import primary_key
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# A Bloom filter of the keys that a merge inserts, so that concurrent inserts of a key conflict.
#
# | part | content |
# | --- | --- |
# | bytes of a key | integers as 8 bytes, little-endian; strings in UTF-8; binary unchanged; with
#     several columns, each part and a zero byte |
# | hash | XXH64 with seed 0 of these bytes |
# | position | block ``(hash >> 32) * 1024 >> 32`` of 32 bytes; in its word i the bit   ``(hash *
#     SALT[i] mod 2^32) >> 27`` |
#
# The filter has the only size that all clients can compare: 32,768 bytes, for 8,192 keys. With many
# more keys almost all bits are set: this causes needless retries, but never a duplicate key. Keys
# of types without a byte form set all bits. A key with a null equals no other key and is not added.
# Specification: table/commit/transaction.md, `KeyExistenceFilter`; the split-block Bloom filter is
# the filter of Parquet.

_BLOCKS = 1024
_WORDS = 8
_NUM_BITS = _BLOCKS * _WORDS * 32
_NUM_ITEMS = 8192
#: The value that pylance stores. It compares only filters with equal parameters.
_PROBABILITY = 0.00057
_SALTS = (
    *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
    *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
)
#: Approximate number of bytes that are hashed at once.
_AT_ONCE = 4 * 1024 * 1024

_U64 = npt.NDArray[np.uint64]
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


class KeyFilter:
    """A filter of keys of one or more columns.

    - `types`: Types of the columns of the key, in its order.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._words = np.zeros((_BLOCKS, _WORDS), np.uint32)
        self.num_keys = 0

    def add(self, keys: pa.RecordBatch) -> None:
        """Add keys.

        - `keys`: The columns of the key, in its order.
        """
        valid_columns = [column.is_valid() for column in keys.columns]
        is_valid = valid_columns[0]
        for valid in valid_columns[1:]:
            is_valid = pc.and_(is_valid, valid)
        keys = keys.filter(is_valid)
        if not keys.num_rows:
            return
        self.num_keys += keys.num_rows
        if not all(map(_has_bytes, self._types)):
            self._words[:] = np.uint32(0xFFFFFFFF)
            return
        parts = [_bytes_of(column) for column in keys.columns]
        if len(parts) > 1:
            end = pa.scalar(b"", pa.binary())
            parts = [pc.binary_join_element_wise(*parts, end, pa.scalar(b"\0", pa.binary()))]
        for hashes in _hashes(parts[0]):
            blocks = (hashes >> np.uint64(32)) * np.uint64(_BLOCKS) >> np.uint64(32)
            low = hashes.astype(np.uint32)
            for word, salt in enumerate(_SALTS):
                bits = np.uint32(1) << (low * np.uint32(salt) >> np.uint32(27))
                np.bitwise_or.at(self._words[:, word], blocks.astype(np.int64), bits)

    def merge(self, other: KeyFilter) -> None:
        """Add all keys of another filter of the same columns."""
        self._words |= other._words
        self.num_keys += other.num_keys

    def inserted(self, field_ids: Sequence[int]) -> InsertedKeys:
        """Return the form that a transaction records.

        - `field_ids`: Field ids of the columns, in the order of the key.
        """
        bitmap = self._words.astype("<u4").tobytes()
        bloom = BloomFilter(bitmap, _NUM_BITS, _NUM_ITEMS, _PROBABILITY)
        return InsertedKeys(tuple(field_ids), bloom)


def xxh64(rows: npt.NDArray[np.uint8]) -> _U64:
    """Return the XXH64 hashes, with seed 0, of byte strings of equal length."""
    count, length = rows.shape
    position = 0
    if length >= 32:
        zero = np.zeros(count, np.uint64)
        lanes = [zero + _P1 + _P2, zero + _P2, zero, zero - _P1]
        while position + 32 <= length:
            for lane in range(4):
                word = _words(rows, position + 8 * lane, 8)
                lanes[lane] = _round(lanes[lane], word)
            position += 32
        hashes = sum(
            (_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)),
            start=zero,
        )
        for lane_words in lanes:
            hashes = (hashes ^ _round(zero, lane_words)) * _P1 + _P4
    else:
        hashes = np.full(count, _P5, np.uint64)
    hashes = hashes + np.uint64(length)
    while position + 8 <= length:
        hashes = hashes ^ _round(np.zeros(count, np.uint64), _words(rows, position, 8))
        hashes = _rotated(hashes, 27) * _P1 + _P4
        position += 8
    if position + 4 <= length:
        hashes = _rotated(hashes ^ _words(rows, position, 4) * _P1, 23) * _P2 + _P3
        position += 4
    while position < length:
        hashes = _rotated(hashes ^ rows[:, position].astype(np.uint64) * _P5, 11) * _P1
        position += 1
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


def _round(lane: _U64, word: _U64) -> _U64:
    return _rotated(lane + word * _P2, 31) * _P1


def _rotated(values: _U64, bits: int) -> _U64:
    return values << np.uint64(bits) | values >> np.uint64(64 - bits)


def _words(rows: npt.NDArray[np.uint8], position: int, size: int) -> _U64:
    part = np.ascontiguousarray(rows[:, position : position + size])
    return part.view(f"<u{size}").reshape(-1).astype(np.uint64)


def _has_bytes(dtype: pa.DataType) -> bool:
    return bool(
        pat.is_integer(dtype)
        or pat.is_string(dtype)
        or pat.is_large_string(dtype)
        or pat.is_binary(dtype)
        or pat.is_large_binary(dtype)
    )


def _bytes_of(column: pa.Array) -> pa.Array:
    """Return the bytes of values without nulls, as a binary array."""
    dtype = column.type
    if not pat.is_integer(dtype):
        return column.cast(pa.large_binary() if _is_long(dtype) else pa.binary()).cast(pa.binary())
    wide = column.cast(pa.uint64() if pat.is_unsigned_integer(dtype) else pa.int64())
    numbers = np.ascontiguousarray(wide.to_numpy(zero_copy_only=False)).astype(
        "<u8" if pat.is_unsigned_integer(dtype) else "<i8"
    )
    data = pa.py_buffer(numbers.tobytes())
    return pa.Array.from_buffers(pa.binary(8), len(numbers), [None, data]).cast(pa.binary())


def _is_long(dtype: pa.DataType) -> bool:
    return bool(pat.is_large_string(dtype) or pat.is_large_binary(dtype))


def _hashes(strings: pa.Array) -> Iterator[_U64]:
    """Yield the hashes of byte strings, grouped by their length."""
    _, ends, data = strings.buffers()
    offsets = np.frombuffer(ends, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    starts = offsets[:-1].astype(np.int64)
    for length in np.unique(lengths).tolist():
        group_starts = starts[lengths == length]
        step = max(_AT_ONCE // max(length, 1), 1)
        for position in range(0, len(group_starts), step):
            positions = group_starts[position : position + step, None] + np.arange(length)
            yield xxh64(content[positions])


# --------------------------------------------------------------------------------------------------
# Matching of rows by equal keys, in memory.
#
# A hash table numbers the distinct values of the side that has fewer rows. The values of the other
# side are looked up in it. Rows whose value is not found are left out before the next column is
# compared. The numbers of several columns become one number, so that two rows match if their
# numbers are equal.
#
# | value | equals |
# | --- | --- |
# | null | nothing |
# | NaN | NaN |
# | 0.0 | 0.0, not -0.0 |
# | a struct | a struct with equal fields |
# | a list, a map | one with as many equal items, in the same order |
#
# Within structs and lists, a null equals a null.

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
        bits = array.view(_BITS[dtype.bit_width])
        nan = np.array(np.nan, dtype.to_pandas_dtype()).view(f"u{dtype.bit_width // 8}")
        # Not all kernels of pyarrow 19 take float16.
        is_nan = pc.fill_null(pc.is_nan(array.cast(kernel_type(dtype))), False)
        return pc.if_else(is_nan, pa.scalar(nan.item(), bits.type), bits)
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


# --------------------------------------------------------------------------------------------------
# Rows of an Arrow table whose columns may hold more than 2 GiB.
#
# Arrow makes one array of all chunks of a column before it takes rows out, and offsets of 32 bits
# do not number more than 2 GiB. Here rows are taken out of each chunk.

#: Bytes of rows that are taken together, and most rows.
_STEP_BYTES = 64 * 1024 * 1024
_STEP_ROWS = 65_536
Indexes = npt.NDArray[np.int64]


class ChunkedRows:
    """Takes rows of a table."""

    def __init__(self, table: pa.Table) -> None:
        self._schema = table.schema
        self._batches = [batch for batch in table.to_batches() if batch.num_rows]
        self._ends = np.cumsum([batch.num_rows for batch in self._batches], dtype=np.int64)
        row_bytes = [batch.nbytes / batch.num_rows for batch in self._batches]
        self._row_bytes: Lengths = np.ceil(row_bytes).astype(np.int64)

    def sizes(self, rows: Indexes) -> Lengths:
        """Return about how many bytes some rows have, by the average row of their chunk."""
        if not self._batches:
            return np.zeros(len(rows), np.int64)
        return self._row_bytes[self._chunks_of(rows)]

    def take(self, rows: Indexes) -> pa.Table:
        """Return rows in the given order, in one chunk if they are fewer than 2 GiB."""
        if not self._batches or not len(rows):
            # A table without columns has no chunks.
            return pa.Table.from_batches([], self._schema)
        chunks = self._chunks_of(rows)
        order = np.argsort(chunks, kind="stable")
        numbers, starts = np.unique(chunks[order], return_index=True)
        parts = []
        for number, places in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            batch = self._batches[number]
            first = int(self._ends[number]) - batch.num_rows
            parts.append(batch.take(pa.array(rows[places] - first)))
        table = pa.Table.from_batches(parts, self._schema).combine_chunks()
        if np.array_equal(order, np.arange(len(order))):
            return table
        return table.take(pa.array(np.argsort(order)))

    def steps(self, rows: Indexes) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of some rows, each with the number of its first row among them."""
        for part in parts(self.sizes(rows)):
            for begin, table in halved(lambda piece: self.take(rows[piece]), part):
                yield begin, table.combine_chunks().to_batches()[0]

    def _chunks_of(self, rows: Indexes) -> Indexes:
        chunks: Indexes = np.searchsorted(self._ends, rows, side="right")
        return chunks


def parts(sizes: Lengths) -> Iterator[slice]:
    """Yield slices of rows that are taken together, by the bytes of each row."""
    return cuts(sizes, _STEP_BYTES, _STEP_ROWS)


# --------------------------------------------------------------------------------------------------
# The commit of a merge without Spark: rows with new values, new rows and deleted rows.


@dataclass(frozen=True, slots=True)
class MergedRows:
    """What a merge changes.

    - `source`: Columns of the table.
    - `updated`: Addresses of rows that get the values of `updates`, increasing.
    - `updates`, `inserts`: Rows of the source.
    - `deleted`: Addresses of rows.
    """

    source: pa.Table
    updated: UInt64Array
    updates: Indexes
    inserts: Indexes
    deleted: UInt64Array


def check_mergeable(table: OpenTable) -> None:
    """Raise an error if rows of a table cannot be changed."""
    check_rows_changeable(table, data_files=True)
    check_types(table.schema, table.manifest.data_storage_version)


def commit_merge(table: OpenTable, rows: MergedRows, options: CommitOptions) -> Manifest:
    """Write the new rows, and commit the merge, also if nothing changes.

    Raises CommitConflictError, StorageError: And errors of `merge_operation`.
    """
    return commit_rows(table, merge_operation(table, rows), options)


def merge_operation(table: OpenTable, rows: MergedRows) -> Update:
    """Write the files of a merge, and return the operation that commits them.

    Raises StorageError. Raises InvalidInputError, SchemaMismatchError: a value does not fit its
    column.
    """
    names = rows.source.column_names
    runner = runner_for(table, None)
    rewriter = RowRewriter(table, table.schema, names, tag=runner.tag)
    count = len(rows.updated) + len(rows.deleted)
    with abort_on_error(rewriter.abort):
        source = ChunkedRows(rows.source)
        total = len(rows.updated) + len(rows.inserts)
        with progress.stage("rewrite", total, "rows"):
            for start, batch in source.steps(rows.updates):
                rewriter.move(rows.updated[start : start + batch.num_rows], batch)
            if len(rows.deleted):
                rewriter.mark_deleted(rows.deleted)
            schema = input_schema(table.schema)
            for _, batch in source.steps(rows.inserts):
                rewriter.insert(_with_all_columns(batch, schema))
        # After the stage: an error of a callback at its end would leave deletion files.
        removed = union_rows([rewriter.removed], disjoint=True)
        written, deletions = write_and_delete(
            rewriter.finish,
            lambda: run_delete(table, runner, (), removed) if removed else [],
            partial(undo, table.paths),
        )
    keys = _inserted_keys(table, rows) if len(rows.inserts) else None
    return moved_operation(table, [written], deletions, count, names, keys)


def _with_all_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return new rows with all columns; those that are not given are null."""
    names = set(batch.schema.names)
    batch = align(batch, pa.schema([field for field in schema if field.name in names]))
    columns = [
        batch.column(field.name) if field.name in names else nulls(batch.num_rows, field)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _inserted_keys(table: OpenTable, rows: MergedRows) -> InsertedKeys | None:
    """Return the filter of the primary keys of new rows; None without a primary key."""
    key = primary_key(table.schema)
    names = [path[0].name for path in key]
    if (
        not key
        or any(len(path) > 1 for path in key)
        or not set(names) <= set(rows.source.schema.names)
    ):
        return None
    keys = KeyFilter([path[-1].to_arrow().type for path in key])
    schema = pa.schema([path[-1].to_arrow() for path in key])
    for _, batch in ChunkedRows(rows.source.select(names)).steps(rows.inserts):
        keys.add(align(batch, schema))
    return keys.inserted([path[-1].id for path in key]) if keys.num_keys else None

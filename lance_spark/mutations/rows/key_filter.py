"""A Bloom filter of the keys that a merge inserts, so that concurrent inserts of a key conflict.

| part | content |
| --- | --- |
| bytes of a key | integers as 8 bytes, little-endian; strings in UTF-8; binary unchanged; with \
  several columns, each part and a zero byte |
| hash | XXH64 with seed 0 of these bytes |
| position | block ``(hash >> 32) * 1024 >> 32`` of 32 bytes; in its word i the bit \
  ``(hash * SALT[i] mod 2^32) >> 27`` |

The filter has the only size that all clients can compare: 32,768 bytes, for 8,192 keys. With many
more keys almost all bits are set: this causes needless retries, but never a duplicate key. Keys of
types without a byte form set all bits. A key with a null equals no other key and is not added.
Specification: table/commit/transaction.md, `KeyExistenceFilter`; the split-block Bloom filter is
the filter of Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.table.operations.data.inserted_keys import BloomFilter, InsertedKeys

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

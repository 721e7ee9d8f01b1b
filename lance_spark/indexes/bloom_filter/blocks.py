"""Split block Bloom filters, as in Parquet, and xxHash64, the hash of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import is_variable
from lance_spark.encoding.rows import RowNumbers
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Split block Bloom filters, as in Parquet.
#
# A filter consists of blocks of 8 words of 32 bits. A value sets one bit in each word of one block.
# The upper half of its hash chooses the block, the lower half the bits.
#
# Specification: Parquet, "Parquet Bloom Filter".

BLOCK_WORDS = 8
BLOCK_BYTES = 4 * BLOCK_WORDS
_SALTS = np.array(
    [
        *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
        *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
    ],
    np.uint32,
)

Words = npt.NDArray[np.uint32]


def block_of(value_hashes: UInt64Array, num_blocks: UInt64Array | np.uint64) -> UInt64Array:
    """Return the block of each value in a filter of some blocks."""
    half = np.uint64(32)
    return ((value_hashes >> half) * num_blocks) >> half


def masks_of(value_hashes: UInt64Array) -> Words:
    """Return the bit in each word of a block that a value sets."""
    low = value_hashes.astype(np.uint32)[:, None]
    return np.uint32(1) << ((low * _SALTS) >> np.uint32(27))


def add_values(words: Words, value_hashes: UInt64Array, blocks: npt.NDArray[np.int64]) -> None:
    """Add values to blocks.

    - `words` (uint32 array of shape (n, 8)): The words of all blocks.
    - `value_hashes`: Uint64 array.
    - `blocks` (int64 array): The block of each value.
    """
    masks = masks_of(value_hashes)
    for number in range(BLOCK_WORDS):
        np.bitwise_or.at(words[:, number], blocks, masks[:, number])


def filter_of(value_hashes: UInt64Array, size: int) -> Words:
    """Return a filter of some bytes that has some values."""
    num_blocks = size // BLOCK_BYTES
    words = np.zeros((num_blocks, BLOCK_WORDS), "<u4")
    blocks = block_of(value_hashes, np.uint64(num_blocks)).astype(np.int64)
    add_values(words, value_hashes, blocks)
    return words


# --------------------------------------------------------------------------------------------------
# The 64-bit hash xxHash64 with seed 0, of many values at once.
#
# Parts of a value are consumed in this order: stripes of 32 bytes by four lanes, then words of 8
# bytes, one of 4 bytes, and single bytes. All values are processed together, one part after
# another: the longest first, so that the values that still have a part are the first ones.

_Bytes = npt.NDArray[np.uint8]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE = 32
_MASK = (1 << 64) - 1
#: First values of the four lanes.
_LANES = [np.uint64(number & _MASK) for number in (int(_P1) + int(_P2), int(_P2), 0, -int(_P1))]


def hashes(values: pa.Array) -> UInt64Array:
    """Return the hash of each value's bytes.

    - `values`: Strings, binary, or values of 1, 2, 4 or 8 bytes; without nulls.
    """
    count, dtype = len(values), values.type
    if not count:
        return np.empty(0, np.uint64)
    if is_variable(dtype):
        _, offset_buffer, data_buffer = values.buffers()
        is_large = pat.is_large_string(dtype) or pat.is_large_binary(dtype)
        words = np.frombuffer(offset_buffer, np.int64 if is_large else np.int32)
        offsets = words[values.offset : values.offset + count + 1].astype(np.int64)
        data = np.frombuffer(data_buffer or b"", np.uint8)
        return _hashed(data, offsets[:-1], np.diff(offsets))
    width = dtype.bit_width // 8
    data = np.frombuffer(values.buffers()[1], np.uint8)
    starts = np.arange(values.offset, values.offset + count, dtype=np.int64) * width
    return _hashed(data, starts, np.full(count, width, np.int64))


def _hashed(data: _Bytes, starts: RowNumbers, lengths: RowNumbers) -> UInt64Array:
    """Return the hash of each range of bytes."""
    if (lengths == lengths[0]).all():
        return _of_longest_first(data, starts, lengths)
    order = np.argsort(-lengths, kind="stable")
    result = np.empty(len(starts), np.uint64)
    result[order] = _of_longest_first(data, starts[order], lengths[order])
    return result


def _of_longest_first(data: _Bytes, starts: RowNumbers, lengths: RowNumbers) -> UInt64Array:
    words, half_words = _overlapping(data, np.uint64), _overlapping(data, np.uint32)
    state = np.full(len(starts), _P5)
    striped = _count(lengths, _STRIPE)
    if striped:
        state[:striped] = _of_stripes(words, starts[:striped], lengths[:striped])
    state += lengths.astype(np.uint64)
    position = starts + lengths // _STRIPE * _STRIPE
    # Fewer than 32 bytes are left: in any order, so that rows are chosen by masks.
    left = lengths % _STRIPE
    for _ in range(3):
        rows = np.flatnonzero(left >= 8)
        if not len(rows):
            break
        word = _round(np.uint64(0), words[position[rows]])
        state[rows] = _rotated(state[rows] ^ word, 27) * _P1 + _P4
        position[rows] += 8
        left[rows] -= 8
    rows = np.flatnonzero(left >= 4)
    if len(rows):
        word = half_words[position[rows]].astype(np.uint64)
        state[rows] = _rotated(state[rows] ^ (word * _P1), 23) * _P2 + _P3
        position[rows] += 4
        left[rows] -= 4
    for _ in range(3):
        rows = np.flatnonzero(left)
        if not len(rows):
            break
        byte = data[position[rows]].astype(np.uint64)
        state[rows] = _rotated(state[rows] ^ (byte * _P5), 11) * _P1
        position[rows] += 1
        left[rows] -= 1
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


def _of_stripes(words: UInt64Array, starts: RowNumbers, lengths: RowNumbers) -> UInt64Array:
    """Return the state after all stripes of values that have one at least, the longest first."""
    lanes = [np.full(len(starts), first) for first in _LANES]
    for stripe in range(int(lengths[0]) // _STRIPE):
        active = _count(lengths, (stripe + 1) * _STRIPE)
        position = starts[:active] + stripe * _STRIPE
        for number, lane in enumerate(lanes):
            lane[:active] = _round(lane[:active], words[position + 8 * number])
    state = sum(
        (_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)),
        np.zeros(len(starts), np.uint64),
    )
    for lane in lanes:
        state = (state ^ _round(np.uint64(0), lane)) * _P1 + _P4
    return state


def _count(lengths: RowNumbers, least: int) -> int:
    """Return how many lengths, given in decreasing order, are at least some number."""
    return int(np.searchsorted(-lengths, -least, "right"))


def _round(state: UInt64Array | np.uint64, words: UInt64Array) -> UInt64Array:
    return _rotated(state + words * _P2, 31) * _P1


def _rotated(words: UInt64Array, bits: int) -> UInt64Array:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _overlapping(data: _Bytes, dtype: Any) -> npt.NDArray[Any]:
    """Return the word that begins at each byte, without a copy."""
    width = np.dtype(dtype).itemsize
    count = max(len(data) - width + 1, 0)
    return np.ndarray((count,), np.dtype(dtype).newbyteorder("<"), data, strides=(1,))

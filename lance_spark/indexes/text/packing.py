"""Packed integers and varints of INVERTED indexes.

Packed integers: a block is 32 rows of 4 or 8 lanes. Value `i` is in lane `i % lanes`. Each lane has
its 32 values one after the other, the least significant bit first, in `width` words of 32 bits.
Word `w` of lane `l` is word `w * lanes + l` of the block. Little-endian.

Varints: 7 bits in each byte, the least significant first; all bytes but the last are 128 or more.

All functions work on many blocks or streams at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]

#: Values of a lane.
ROWS = 32
MAX_WIDTH = 32
_WORD_BITS = 32
#: So many blocks are unpacked value by value, others as a whole.
_MANY_BLOCKS = 64
_MAX_VARINT = 5


def unpacked(data: Bytes, width: int, lanes: int) -> Words:
    """Return the values of blocks of one width.

    Parameters
    ----------
    data : 2-D uint8 array
        A block of ``4 * lanes * width`` bytes in each row.
    width : int
        Bits of a value, 0 to 32.
    lanes : int

    Returns
    -------
    2-D uint32 array
        A row of ``32 * lanes`` values for each block.
    """
    count = len(data)
    if not width:
        return np.zeros((count, ROWS * lanes), np.uint32)
    words = np.ascontiguousarray(data).view("<u4").reshape(count, width, lanes)
    if count < _MANY_BLOCKS:
        return _unpacked_few(words, width)
    # Each step takes one value of each lane of all blocks.
    by_word = np.ascontiguousarray(words.transpose(1, 0, 2)).reshape(width, count * lanes)
    values = np.empty((ROWS, count * lanes), np.uint32)
    upper = np.empty(count * lanes, np.uint32)
    for row in range(ROWS):
        out = values[row]
        word, shift = divmod(row * width, _WORD_BITS)
        np.right_shift(by_word[word], np.uint32(shift), out=out)
        if shift + width > _WORD_BITS:
            out |= np.left_shift(by_word[word + 1], np.uint32(_WORD_BITS - shift), out=upper)
        out &= np.uint32((1 << width) - 1)
    return values.reshape(ROWS, count, lanes).transpose(1, 0, 2).reshape(count, ROWS * lanes)


def _unpacked_few(words: Words, width: int) -> Words:
    """Return the values of few blocks, by few calls of numpy on larger arrays."""
    first_bit = np.arange(ROWS) * width
    low, shift = first_bit >> 5, (first_bit & 31).astype(np.uint64)[None, :, None]
    # A value has bits of at most two words; the second word of the last value is not needed.
    high = np.minimum(low + 1, width - 1)
    wide = words.astype(np.uint64)
    values = (wide[:, low] | (wide[:, high] << np.uint64(_WORD_BITS))) >> shift
    values &= np.uint64((1 << width) - 1)
    return values.astype(np.uint32).reshape(len(words), ROWS * words.shape[2])


def packed(values: Words, width: int, lanes: int) -> Bytes:
    """Return blocks of values of at most `width` bits; see `unpacked`."""
    count = len(values)
    if not width:
        return np.empty((count, 0), np.uint8)
    lane_values = values.reshape(count, ROWS, lanes).astype(np.uint64)
    words = np.zeros((count, width + 1, lanes), np.uint64)
    first_bit = np.arange(ROWS) * width
    shifted = lane_values << (first_bit & 31).astype(np.uint64)[None, :, None]
    for row, word in enumerate((first_bit >> 5).tolist()):
        words[:, word] |= shifted[:, row] & np.uint64(0xFFFF_FFFF)
        words[:, word + 1] |= shifted[:, row] >> np.uint64(_WORD_BITS)
    blocks: Bytes = words[:, :width].astype("<u4").reshape(count, width * lanes).view(np.uint8)
    return blocks


def widths(values: Words) -> npt.NDArray[np.int64]:
    """Return the bits of the greatest value of each row."""
    # Floats of 64 bits have all integers of 32 bits.
    _, exponents = np.frexp(values.max(axis=1, initial=0).astype(np.float64))
    bits: npt.NDArray[np.int64] = exponents.astype(np.int64)
    return bits


def gathered(data: Bytes, starts: RowNumbers, size: int) -> Bytes:
    """Return byte ranges of equal size as the rows of an array."""
    if not size or not len(starts):
        return np.empty((len(starts), size), np.uint8)
    # Numpy copies each range as one item.
    windows = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
    return windows[starts].view(np.uint8).reshape(len(starts), size)


def put_rows(array: npt.NDArray[Any], starts: RowNumbers, rows: npt.NDArray[Any]) -> None:
    """Store each row of a matrix at a place of an array of the same type."""
    if not rows.size:
        return
    size = rows.shape[1]
    shape, item = (len(array) - size + 1,), f"V{size * array.itemsize}"
    windows = np.ndarray(shape, item, array, strides=(array.itemsize,))
    windows[starts] = np.ascontiguousarray(rows, array.dtype).view(item)[:, 0]


def joined(data: Bytes, starts: RowNumbers, sizes: RowNumbers) -> tuple[Bytes, RowNumbers]:
    """Return byte ranges one after the other, and where each starts."""
    bounds = np.append(0, np.cumsum(sizes))
    positions = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], sizes)
    return data[positions], bounds


def varints(data: Bytes, bounds: RowNumbers) -> tuple[npt.NDArray[np.int64], RowNumbers] | None:
    """Return the varints of streams, and the first of each stream.

    Parameters
    ----------
    data : uint8 array
    bounds : int64 array
        First byte of each stream, and the number of bytes.

    Returns
    -------
    tuple of (int64 array, int64 array), or None
        Values, and bounds of the streams among them. None if a stream ends inside a varint, or a
        value has more than 32 bits.
    """
    is_last = data < 0x80
    ends = np.flatnonzero(is_last)
    stops = bounds[1:][np.diff(bounds) > 0]
    if not is_last[stops - 1].all():
        return None
    starts = np.append(0, ends[:-1] + 1) if len(ends) else ends
    sizes = ends - starts + 1
    if sizes.max(initial=0) > _MAX_VARINT:
        return None
    values = np.zeros(len(ends), np.int64)
    for number in range(int(sizes.max(initial=0))):
        has_byte = sizes > number
        part = data[starts[has_byte] + number].astype(np.int64) & 0x7F
        values[has_byte] |= part << (7 * number)
    if (values > 0xFFFF_FFFF).any():
        return None
    return values, np.append(0, np.cumsum(is_last))[bounds]


def encoded_varints(values: npt.NDArray[np.int64]) -> tuple[Bytes, RowNumbers]:
    """Return values below 2**32 as varints, and the bytes of each."""
    sizes = np.ones(len(values), np.int64)
    for number in range(1, _MAX_VARINT):
        sizes += values >= 1 << (7 * number)
    starts = np.append(0, np.cumsum(sizes))
    data = np.zeros(int(starts[-1]), np.uint8)
    for number in range(int(sizes.max(initial=0))):
        has_byte = sizes > number
        part = (values[has_byte] >> (7 * number)) & 0x7F
        more = sizes[has_byte] > number + 1
        data[starts[:-1][has_byte] + number] = part | (more.astype(np.int64) << 7)
    return data, sizes


def groups(keys: npt.NDArray[np.int64]) -> list[tuple[int, RowNumbers]]:
    """Return each distinct key with the positions that have it."""
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    return (
        list(zip(distinct.tolist(), np.split(order, starts[1:]), strict=True)) if len(keys) else []
    )


def running_sums(values: npt.NDArray[np.int64], bounds: RowNumbers) -> npt.NDArray[np.int64]:
    """Return sums of the values up to each one, which begin again at each bound."""
    sums = np.cumsum(values)
    before = np.append(0, sums)[bounds[:-1]]
    result: npt.NDArray[np.int64] = sums - np.repeat(before, np.diff(bounds))
    return result

"""The bit packing of 1,024 unsigned integers in the interleaved order of FastLanes.

A packed chunk of T-bit values (T = 8, 16, 32 or 64) cut to W bits, 0 <= W <= T:

=====================  =============================================================================
thing                  place
=====================  =============================================================================
lanes                  L = 1024 / T, each a bit stream of W words of T bits
word w of lane l       ``(w * L + l) * T / 8``, little-endian; so 128 bytes hold word w of all lanes
row r of lane l        bits ``[r * W, (r + 1) * W)`` of the stream, low bits first; 0 <= r < T
value of (r, l)        ``ORDER[r // 8] * 16 + (r % 8) * 128 + l``, ORDER = 0, 4, 2, 6, 1, 5, 3, 7
=====================  =============================================================================

A row has L consecutive values: 128 bytes, like word w of all lanes. Unpacking copies for each row
the 128 bytes of the word in which it starts to the row's place in the output, then shifts the whole
output by one constant pattern. If a row continues in the next word, that word is added in the same
way. Values of 8 and 16 bits are shifted eight bytes at a time, because processors cannot shift each
of them alone: masks remove the bits of their neighbours.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lance_spark.storage.source import Bytes

#: Values in a chunk.
CHUNK_VALUES = 1024

#: Bytes of one word of all lanes, and of one row of values.
_RUN = 128

#: Position of the n-th group of eight rows, in units of 16 values.
_ORDER = (0, 4, 2, 6, 1, 5, 3, 7)

#: So few values are unpacked by the integers of Python, which costs less than calls of numpy.
_FEW_VALUES = 4
#: Output bytes processed at once: together with scratch memory of the same size they fit the cache
#: of a core.
_GROUP_BYTES = 512 << 10

#: If more than this share of rows continues in the next word, all rows are treated so.
_MOST_SPLIT = 0.6

#: Maximum number of chunks that are packed at once.
_PACK_CHUNKS = 256

IndexArray = npt.NDArray[np.int64]
UIntArray = npt.NDArray[Any]


def packed_size(width: int) -> int:
    """Return the bytes of a packed chunk of values of `width` bits, of any type."""
    return width * _RUN


def bit_widths(values: UIntArray) -> IndexArray:
    """Return the width of the largest value of each row; 0 if all are 0.

    - `values`: unsigned array of shape (chunks, n)
    """
    powers = _powers(values.itemsize * 8)
    widths: IndexArray = np.searchsorted(powers, values.max(axis=1), side="right")
    return widths


@cache
def _powers(bits: int) -> UIntArray:
    dtype = np.dtype(f"u{bits // 8}")
    powers: UIntArray = np.left_shift(dtype.type(1), np.arange(bits, dtype=dtype))
    return powers


@dataclass(frozen=True, slots=True)
class _RowPositions:
    """Positions of the T rows for one (T, W); patterns are words of 32 or 64 bits of the output."""

    #: Word in which each row starts.
    word: IndexArray
    #: Shift of the bits of each word of the output.
    right: UIntArray
    #: Mask of the bits that stay after the shift; without `next_mask`, also of the bits of the next
    #: words.
    mask: UIntArray
    #: Rows that continue in the next word; all rows, if most do.
    split: IndexArray
    #: The next word of each of these rows; never beyond the last.
    next_word: IndexArray
    #: Shift of its bits. Where a row ends in its word, the shift removes all of them.
    left: UIntArray
    #: Mask of its bits that stay after the shift, for values of 8 and 16 bits.
    next_mask: UIntArray | None


@cache
def _row_order(bits: int) -> IndexArray:
    number = np.arange(bits)
    first = np.array(_ORDER)[number // 8] * 16 + number % 8 * 128
    return np.argsort(first)


@cache
def _rows(bits: int, width: int) -> _RowPositions:
    word, right = np.divmod(_row_order(bits) * width, bits)
    goes_on = right + width > bits
    split = np.flatnonzero(goes_on)
    if len(split) > bits * _MOST_SPLIT:
        split = np.arange(bits)
    wide = bits if bits >= 32 else 64
    dtype = np.dtype(f"<u{wide // 8}")
    # Values in a word of a pattern, and words in a row.
    per_word, words = wide // bits, _RUN * 8 // wide

    def pattern(numbers: list[int]) -> UIntArray:
        return np.repeat(np.array(numbers, dtype), words)

    def spread(mask: int) -> int:
        return sum(mask << (bits * index) for index in range(per_word))

    rights = right.tolist()
    lefts = [
        bits - right if continues else wide
        for right, continues in zip(rights, goes_on, strict=True)
    ]
    full = (1 << width) - 1
    mask, next_mask = np.array(full, dtype), None
    if per_word > 1:
        mask = pattern([spread(full & ((1 << (bits - right)) - 1)) for right in rights])
        next_mask = pattern([spread(full >> lefts[row] << lefts[row]) for row in split])
    return _RowPositions(
        word,
        pattern(rights),
        mask,
        split,
        np.minimum(word + 1, width - 1)[split],
        pattern([lefts[row] for row in split]),
        next_mask,
    )


class _Scratch(threading.local):
    """Memory that all calls of a thread reuse: new memory would cost more than the work in it."""

    def __init__(self) -> None:
        self.packed = np.empty(_GROUP_BYTES, np.uint8)
        self.upper = np.empty(_GROUP_BYTES, np.uint8)
        self.values = np.empty(_GROUP_BYTES, np.uint8)


_scratch = _Scratch()


def _gather(data: Bytes, starts: IndexArray, size: int) -> npt.NDArray[np.void]:
    """Return ``data[start:start + size]`` of every start as rows of an array of words."""
    step = _even_step(starts, size)
    if not step:
        result: npt.NDArray[np.void] = _windows(data)[starts[:, None] + np.arange(0, size, _RUN)]
        return result
    packed = _scratch.packed[: len(starts) * size].reshape(len(starts), size)
    packed[...] = _strided(data, starts, size, step)
    return packed.view(f"V{_RUN}")


def write_chunks(data: Bytes, starts: IndexArray, rows: Bytes) -> None:
    """Write packed chunks of one width to their places.

    - `data`: uint8 array, contiguous
    - `starts`: Target of each chunk in `data`; targets do not overlap.
    - `rows` (uint8 array of shape (n, size)): Each with `packed_size` bytes.
    """
    step = _even_step(starts, rows.shape[1])
    if step:
        _strided(data, starts, rows.shape[1], step)[...] = rows
    else:
        positions = starts[:, None] + np.arange(0, rows.shape[1], _RUN)
        _windows(data)[positions] = rows.view(f"V{_RUN}")


def _even_step(starts: IndexArray, size: int) -> int:
    """Return the distance of evenly spaced chunks; 0 for others."""
    steps = np.diff(starts)
    if not len(steps):
        return size
    return int(steps[0]) if steps[0] >= size and (steps == steps[0]).all() else 0


def _strided(data: Bytes, starts: IndexArray, size: int, step: int) -> Bytes:
    return np.ndarray(
        (len(starts), size), np.uint8, buffer=data, offset=int(starts[0]), strides=(step, 1)
    )


def _windows(data: Bytes) -> npt.NDArray[np.void]:
    """Return, for each byte, the 128 bytes from it on as one element."""
    return np.ndarray((len(data) - _RUN + 1,), f"V{_RUN}", buffer=data, strides=(1,))


def unpack(
    data: Bytes, starts: IndexArray, width: int, out: UIntArray, rows: IndexArray | None = None
) -> None:
    """Unpack chunks of one width.

    - `data` (uint8 array, contiguous): Memory that holds the chunks.
    - `starts` (int64 array, one element per chunk): Position of each chunk in `data`. The caller
      has checked that `packed_size(width)` bytes from there are inside.
    - `width`: Bits of a packed value, from 0 to the bits of an element of `out`.
    - `out` (unsigned array of shape (n, 1024), contiguous): Receives the values.
    - `rows` (int64 array, one element per chunk, or None): Row of `out` that each chunk fills; None
      fills all of them in order.
    """
    if rows is not None and len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1:
        first = int(rows[0])
        if (np.diff(rows) == 1).all():
            out, rows = out[first : first + len(rows)], None
    if not width:
        out[slice(None) if rows is None else rows] = 0
        return
    bits = out.itemsize * 8
    table = _rows(bits, width)
    step = _GROUP_BYTES // (_RUN * bits)
    for position in range(0, len(starts), step):
        chunk_starts = starts[position : position + step]
        words = _gather(data, chunk_starts, packed_size(width))
        values = out[position : position + step]
        if rows is not None:
            spare = _scratch.values.view(out.dtype).reshape(step, CHUNK_VALUES)
            values = spare[: len(chunk_starts)]
        words.take(table.word, axis=1, out=values.view(f"V{_RUN}"), mode="clip")
        if width < bits:
            _shift(values.view(table.right.dtype), words, table)
        if rows is not None:
            out[rows[position : position + step]] = values


@cache
def _places(bits: int) -> tuple[IndexArray, IndexArray]:
    """Return the row and the lane of each value of a chunk."""
    lanes = CHUNK_VALUES // bits
    rows = np.arange(bits)
    first = np.array(_ORDER)[rows // 8] * 16 + rows % 8 * 128
    values = (first[:, None] + np.arange(lanes)).reshape(-1)
    row_of, lane_of = np.empty(CHUNK_VALUES, np.int64), np.empty(CHUNK_VALUES, np.int64)
    row_of[values], lane_of[values] = np.repeat(rows, lanes), np.tile(np.arange(lanes), bits)
    return row_of, lane_of


def _unpacked(data: Bytes, start: int, width: int, place: int, size: int) -> int:
    """Return one value of a chunk, by the integers of Python."""
    bits = size * 8
    rows, lanes = _places(bits)
    word, right = divmod(int(rows[place]) * width, bits)
    position = start + (word * (CHUNK_VALUES // bits) + int(lanes[place])) * size
    value = int.from_bytes(data[position : position + size].tobytes(), "little") >> right
    if right + width > bits:
        position += _RUN
        upper = int.from_bytes(data[position : position + size].tobytes(), "little")
        value |= upper << (bits - right)
    return value & ((1 << width) - 1)


def unpack_some(
    data: Bytes, starts: IndexArray, widths: IndexArray, places: IndexArray, dtype: np.dtype[Any]
) -> UIntArray:
    """Return one value of each of several chunks, which may be the same chunk.

    - `data`: uint8 array, contiguous
    - `starts`, `widths`: Of the chunk of each value; see `unpack`.
    - `places`: The place of each value in its chunk.
    - `dtype`: Unsigned.
    """
    if len(starts) <= _FEW_VALUES:
        of_values = zip(starts.tolist(), widths.tolist(), places.tolist(), strict=True)
        values = [_unpacked(data, *of_value, dtype.itemsize) for of_value in of_values]
        return np.array(values, dtype)
    result = np.zeros(len(starts), dtype)
    chosen = np.flatnonzero(widths)
    if not len(chosen):
        return result
    starts, widths = starts[chosen], widths[chosen]
    bits = dtype.itemsize * 8
    row_of, lane_of = _places(bits)
    word, right = np.divmod(row_of[places[chosen]] * widths, bits)
    positions = starts + (word * (CHUNK_VALUES // bits) + lane_of[places[chosen]]) * dtype.itemsize
    words = np.ndarray(
        (len(data) - dtype.itemsize + 1,), dtype.newbyteorder("<"), buffer=data, strides=(1,)
    )
    values = words[positions].astype(dtype) >> right.astype(dtype)
    split = np.flatnonzero(right + widths > bits)
    left = (bits - right[split]).astype(dtype)
    values[split] |= words[positions[split] + _RUN].astype(dtype) << left
    values &= np.iinfo(dtype).max >> (bits - widths).astype(dtype)
    result[chosen] = values
    return result


def _shift(values: UIntArray, words: npt.NDArray[np.void], table: _RowPositions) -> None:
    """Turn the words in which rows start into values, in place."""
    np.right_shift(values, table.right, out=values)
    if table.next_mask is not None:
        np.bitwise_and(values, table.mask, out=values)
    if len(table.split):
        size = words.shape[0] * len(table.split) * _RUN
        upper = _scratch.upper[:size].view(values.dtype).reshape(words.shape[0], -1)
        words.take(table.next_word, axis=1, out=upper.view(f"V{_RUN}"), mode="clip")
        np.left_shift(upper, table.left, out=upper)
        if table.next_mask is not None:
            np.bitwise_and(upper, table.next_mask, out=upper)
        if upper.shape == values.shape:
            np.bitwise_or(values, upper, out=values)
        else:
            cells = values.view(f"V{_RUN}")
            lower = cells.take(table.split, axis=1)
            np.bitwise_or(lower.view(values.dtype), upper, out=upper)
            cells[:, table.split] = upper.view(f"V{_RUN}")
    if table.next_mask is None:
        np.bitwise_and(values, table.mask, out=values)


@cache
def _turns(bits: int, width: int) -> list[tuple[IndexArray, UIntArray]]:
    """Return for each turn of packing the row whose bits each word gets, and their shift in each
    lane.

    The n-th turn adds the n-th row that has bits in a word. The first row may begin in the previous
    word, and is shifted down; the others are shifted up.
    """
    position = np.argsort(_row_order(bits))
    first = np.arange(width) * bits // width
    turns = []
    for turn in range(-(-bits // width) + 1):
        row = first + turn
        shift = row * width - np.arange(width) * bits
        if turn and int(shift.min()) >= bits:
            break
        amount = np.where(row < bits, np.clip(abs(shift), 0, bits), bits)
        lanes = np.repeat(amount, CHUNK_VALUES // bits).astype(f"<u{bits // 8}")
        turns.append((position[np.minimum(row, bits - 1)], lanes))
    return turns


def pack_into(data: Bytes, starts: IndexArray, values: UIntArray, width: int) -> None:
    """Pack chunks of values to one width, each to its place.

    - `data`: uint8 array, contiguous
    - `starts`: Target of each chunk in `data`; targets do not overlap.
    - `values` (unsigned array of shape (n, 1024), contiguous): Values of at most `width` bits.
    - `width`: More than 0.
    """
    size = packed_size(width)
    (first, lanes), *more_turns = _turns(values.itemsize * 8, width)
    step = min(_GROUP_BYTES // 2 // size, _PACK_CHUNKS)
    for position in range(0, len(values), step):
        rows = values[position : position + step].view(f"V{_RUN}")
        packed = _scratch.packed[: len(rows) * size].reshape(len(rows), size)
        scratch = _scratch.upper[: len(rows) * size].reshape(len(rows), size)
        words, part = packed.view(values.dtype), scratch.view(values.dtype)
        rows.take(first, axis=1, out=packed.view(f"V{_RUN}"), mode="clip")
        np.right_shift(words, lanes, out=words)
        for row, up in more_turns:
            rows.take(row, axis=1, out=scratch.view(f"V{_RUN}"), mode="clip")
            np.left_shift(part, up, out=part)
            np.bitwise_or(words, part, out=words)
        write_chunks(data, starts[position : position + step], packed)

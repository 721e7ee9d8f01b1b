"""The bit packing of 1,024 unsigned integers in the interleaved order of FastLanes.

A packed chunk of T-bit values (T = 8, 16, 32 or 64) cut to W bits, 0 <= W <= T:

=====================  =================================================================================
thing                  place
=====================  =================================================================================
lanes                  L = 1024 / T, each a bit stream of W words of T bits
word w of lane l       ``(w * L + l) * T / 8``, little-endian; so 128 bytes hold word w of all lanes
row r of lane l        bits ``[r * W, (r + 1) * W)`` of the lane's stream, low bits first; 0 <= r < T
value of (r, l)        ``ORDER[r // 8] * 16 + (r % 8) * 128 + l``, ORDER = 0, 4, 2, 6, 1, 5, 3, 7
=====================  =================================================================================

A row takes L consecutive values, which are 128 bytes like the words they come from. Unpacking copies for each row the
128 bytes of the word it starts in straight to the row's place in the output, then shifts the whole output by one
constant pattern; rows that go on in the next word get that one in the same way.
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

#: Place of the n-th group of eight rows, in units of 16 values.
_ORDER = (0, 4, 2, 6, 1, 5, 3, 7)

#: Output bytes that are worked on at once: they and as many of scratch stay in the cache of one core.
_GROUP_BYTES = 256 << 10

#: Chunks that are packed at once at most.
_PACK_CHUNKS = 256

IndexArray = npt.NDArray[np.int64]
UIntArray = npt.NDArray[Any]


def packed_size(width: int) -> int:
    """Return the bytes of a packed chunk of values of `width` bits, whatever their type."""
    return width * _RUN


def bit_widths(values: UIntArray) -> IndexArray:
    """Return the width of the largest value of each row; 0 if all are 0.

    Parameters
    ----------
    values : unsigned array of shape (chunks, n)
    """
    powers = np.left_shift(values.dtype.type(1), np.arange(values.itemsize * 8, dtype=values.dtype))
    widths: IndexArray = np.searchsorted(powers, values.max(axis=1), side="right")
    return widths


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the rows of one (T, W) lie, in the order of the output.

    Attributes
    ----------
    row : int64 array of T
        Which row the n-th 128 bytes of output are.
    word, next_word : int64 arrays of T
        Word that each row starts in, and the one after it; never beyond the last.
    right, left : unsigned arrays of 1024
        By how much the two words' bits are moved; `left` is T, which leaves nothing, where a row ends in its word.
    split : bool
        Whether any row goes on in the next word.
    """

    row: IndexArray
    word: IndexArray
    next_word: IndexArray
    right: UIntArray
    left: UIntArray
    split: bool


@cache
def _row_order(bits: int) -> IndexArray:
    number = np.arange(bits)
    first = np.array(_ORDER)[number // 8] * 16 + number % 8 * 128
    return np.argsort(first)


@cache
def _rows(bits: int, width: int) -> _Rows:
    row = _row_order(bits)
    word, right = np.divmod(row * width, bits)
    split = right + width > bits
    left = np.where(split, bits - right, bits)
    lanes = CHUNK_VALUES // bits
    dtype = np.dtype(f"<u{bits // 8}")
    return _Rows(
        row,
        word,
        np.minimum(word + 1, width - 1),
        np.repeat(right, lanes).astype(dtype),
        np.repeat(left, lanes).astype(dtype),
        bool(split.any()),
    )


class _Scratch(threading.local):
    """Memory that every call of a thread uses again: fresh memory costs more than the work done in it."""

    def __init__(self) -> None:
        self.packed = np.empty(_GROUP_BYTES, np.uint8)
        self.upper = np.empty(_GROUP_BYTES, np.uint8)
        self.values = np.empty(_GROUP_BYTES, np.uint8)


_scratch = _Scratch()


def _gather(data: Bytes, starts: IndexArray, size: int) -> npt.NDArray[np.void]:
    """Return ``data[start:start + size]`` of every start as the rows of a contiguous array of words."""
    step = _even_step(starts, size)
    if not step:
        found: npt.NDArray[np.void] = _windows(data)[starts[:, None] + np.arange(0, size, _RUN)]
        return found
    packed = _scratch.packed[: len(starts) * size].reshape(len(starts), size)
    packed[...] = _strided(data, starts, size, step)
    return packed.view(f"V{_RUN}")


def place(data: Bytes, starts: IndexArray, rows: Bytes) -> None:
    """Write packed chunks of one width to their places.

    Parameters
    ----------
    data : uint8 array, contiguous
    starts : int64 array of n
        Where each chunk goes; they do not overlap.
    rows : uint8 array of shape (n, size)
        As `pack` returns them.
    """
    step = _even_step(starts, rows.shape[1])
    if step:
        _strided(data, starts, rows.shape[1], step)[...] = rows
    else:
        places = starts[:, None] + np.arange(0, rows.shape[1], _RUN)
        _windows(data)[places] = rows.view(f"V{_RUN}")


def _even_step(starts: IndexArray, size: int) -> int:
    """Return the distance of chunks that lie evenly, one after the other; else 0."""
    steps = np.diff(starts)
    if not len(steps):
        return size
    return int(steps[0]) if steps[0] >= size and (steps == steps[0]).all() else 0


def _strided(data: Bytes, starts: IndexArray, size: int, step: int) -> Bytes:
    return np.ndarray(
        (len(starts), size), np.uint8, buffer=data, offset=int(starts[0]), strides=(step, 1)
    )


def _windows(data: Bytes) -> npt.NDArray[np.void]:
    """Return the 128 bytes from every byte on, as one element each."""
    return np.ndarray((len(data) - _RUN + 1,), f"V{_RUN}", buffer=data, strides=(1,))


def unpack(
    data: Bytes,
    starts: IndexArray,
    width: int,
    out: UIntArray,
    rows: IndexArray | None = None,
) -> None:
    """Unpack chunks of one width.

    Parameters
    ----------
    data : uint8 array, contiguous
        Memory that holds the chunks.
    starts : int64 array, one element per chunk
        Where each chunk lies in `data`; `packed_size(width)` bytes from there are inside, which the caller has checked.
    width : int
        Bits of a packed value, from 0 to those of an element of `out`.
    out : unsigned array of shape (n, 1024), contiguous
        Where the values go.
    rows : int64 array, one element per chunk, or None
        Row of `out` that each chunk fills; None fills all of them in order.
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
    mask = np.array((1 << width) - 1, out.dtype)
    step = _GROUP_BYTES // (_RUN * bits)
    scratch = _scratch.upper.view(out.dtype).reshape(step, CHUNK_VALUES)
    spare = _scratch.values.view(out.dtype).reshape(step, CHUNK_VALUES)
    for at in range(0, len(starts), step):
        here = starts[at : at + step]
        words = _gather(data, here, packed_size(width))
        values = out[at : at + step] if rows is None else spare[: len(here)]
        words.take(table.word, axis=1, out=values.view(f"V{_RUN}"), mode="clip")
        if width < bits:
            np.right_shift(values, table.right, out=values)
            if table.split:
                upper = scratch[: len(here)]
                words.take(table.next_word, axis=1, out=upper.view(f"V{_RUN}"), mode="clip")
                np.left_shift(upper, table.left, out=upper)
                np.bitwise_or(values, upper, out=values)
            np.bitwise_and(values, mask, out=values)
        if rows is not None:
            out[rows[at : at + step]] = values


def pack(values: UIntArray, width: int) -> Bytes:
    """Pack chunks of values to one width.

    Parameters
    ----------
    values : unsigned array of shape (chunks, 1024), contiguous
        None of them needs more than `width` bits.
    width : int

    Returns
    -------
    uint8 array of shape (chunks, packed_size(width))
    """
    bits = values.itemsize * 8
    packed = np.zeros((len(values), packed_size(width)), np.uint8)
    if not width:
        return packed
    place = np.argsort(_row_order(bits))
    first = np.arange(width) * bits // width
    step = min(_GROUP_BYTES // 2 // packed_size(width), _PACK_CHUNKS)
    for at in range(0, len(values), step):
        here = values[at : at + step].view(f"V{_RUN}")
        words = packed[at : at + step].view(values.dtype)
        # The n-th turn adds the n-th of the rows that have bits in a word: the first may have begun in the word before.
        for turn in range(-(-bits // width) + 1):
            row = first + turn
            shift = row * width - np.arange(width) * bits
            if turn and int(shift.min()) >= bits:
                break
            part = here.take(place[np.minimum(row, bits - 1)], axis=1).view(values.dtype)
            amount = np.where(row < bits, np.clip(abs(shift), 0, bits), bits)
            lanes = np.repeat(amount, CHUNK_VALUES // bits).astype(values.dtype)
            (np.left_shift if turn else np.right_shift)(part, lanes, out=part)
            np.bitwise_or(words, part, out=words)
    return packed

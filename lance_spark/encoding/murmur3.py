"""Murmur3 for 32 bits (x86) of many values at once, in the variant of Spark.

| value | what is hashed |
| --- | --- |
| number of 4 bytes | its word |
| number of 8 bytes | its low word, then its high word |
| bytes | their little-endian words, then each byte that is left, as a word with its sign |

A word changes the state; at the end, the number of bytes does. Other implementations put the bytes
that are left into one word.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers

Words = npt.NDArray[np.uint32]

_WORD = 4


def hash_numbers(numbers: npt.NDArray[np.generic], seed: int = 0) -> Words:
    """Return the hash of each number; the dtype has 4 or 8 bytes."""
    width = numbers.dtype.itemsize
    words = np.ascontiguousarray(numbers).view("<u4").reshape(len(numbers), width // _WORD)
    state = np.full(len(numbers), seed, np.uint32)
    for column in words.T:
        state = _mixed(state, column)
    return _finished(state, np.uint32(width))


def hash_bytes(offsets: RowNumbers, data: npt.NDArray[np.uint8], seed: int = 0) -> Words:
    """Return the hash of each byte string.

    - `offsets`: The first byte of each string, and the end of the last.
    """
    lengths = np.diff(offsets)
    # The longest first: the strings that still have a word are the first ones.
    order = np.argsort(-lengths, kind="stable")
    lengths, position = lengths[order], offsets[:-1][order]
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words = np.ndarray((len(data) + 1,), "<u4", padded, strides=(1,))
    state = np.full(len(lengths), seed, np.uint32)
    whole = lengths // _WORD
    for number in range(int(whole[0]) if len(whole) else 0):
        active = int(np.searchsorted(-whole, -number, "left"))
        state[:active] = _mixed(state[:active], words[position[:active] + _WORD * number])
    left, position = lengths % _WORD, position + _WORD * whole
    for number in range(_WORD - 1):
        rows = np.flatnonzero(left > number)
        signed = padded[position[rows] + number].view(np.int8).astype(np.int32)
        state[rows] = _mixed(state[rows], signed.view(np.uint32))
    result = np.empty_like(state)
    result[order] = _finished(state, lengths.astype(np.uint32))
    return result


def _mixed(state: Words, word: Words) -> Words:
    word = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(state: Words, length: Words | np.uint32) -> Words:
    state = state ^ length
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ state >> np.uint32(shift)) * np.uint32(factor)
    return state ^ state >> np.uint32(16)


def _rotated(words: Words, count: int) -> Words:
    return words << np.uint32(count) | words >> np.uint32(32 - count)

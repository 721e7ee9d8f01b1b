"""The hash of a key: SipHash-1-3 with the key (0, 0) of its bytes, of many keys at once.

The bytes are consumed in words of 8 bytes, little-endian. The last word has the bytes that are
left, and the length of the key in its highest byte. All keys are processed together, one word after
another: the longest first, so that the keys that still have a word are the first ones.
Specification: Aumasson and Bernstein, "SipHash: a fast short-input PRF"; table/mem_wal.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lance_spark.mem_wal.key_bytes import KeyBytes, hashed_bytes
from lance_spark.table.rows.u64_segments import UInt64Array

_WORD = 8
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
#: Rounds after the last word.
_LAST_ROUNDS = 3
#: Keys that are hashed at once.
_AT_ONCE = 1 << 16


def key_hashes(columns: Sequence[pa.Array], *, as_pylance: bool = False) -> UInt64Array:
    """Return the hash of each key; see `key_bytes.hashed_bytes`."""
    count = len(columns[0])
    result = np.empty(count, np.uint64)
    for start in range(0, count, _AT_ONCE):
        part = [column.slice(start, _AT_ONCE) for column in columns]
        keys = hashed_bytes(part, as_pylance=as_pylance)
        result[start : start + _AT_ONCE] = siphash(keys)
    return result


def siphash(keys: KeyBytes) -> UInt64Array:
    """Return the SipHash-1-3 of byte strings."""
    lengths = np.diff(keys.offsets)
    order = np.argsort(-lengths, kind="stable")
    lengths, position = lengths[order], keys.offsets[:-1][order]
    padded = np.concatenate([keys.data, np.zeros(_WORD, np.uint8)])
    words = np.ndarray((len(keys.data) + 1,), "<u8", padded, strides=(1,))
    state = [np.full(len(keys), number, np.uint64) for number in _START]
    whole = lengths // _WORD
    for number in range(int(whole[0]) if len(keys) else 0):
        active = int(np.searchsorted(-whole, -number, "left"))
        _add_word(state, words[position[:active] + _WORD * number], active)
    left = (lengths % _WORD).astype(np.uint64)
    mask = (np.uint64(1) << (np.uint64(8) * left)) - np.uint64(1)
    last = words[position + _WORD * whole] & mask
    last |= (lengths & 255).astype(np.uint64) << np.uint64(56)
    _add_word(state, last, len(keys))
    state[2] ^= np.uint64(0xFF)
    for _ in range(_LAST_ROUNDS):
        state = list(_round(*state))
    result = np.empty(len(keys), np.uint64)
    result[order] = state[0] ^ state[1] ^ state[2] ^ state[3]
    return result


def _add_word(state: list[UInt64Array], words: UInt64Array, active: int) -> None:
    """Consume a word of each of the first keys."""
    first = [part[:active] for part in state]
    first[3] = first[3] ^ words
    changed = list(_round(*first))
    changed[0] ^= words
    for part, new in zip(state, changed, strict=True):
        part[:active] = new


def _round(
    a: UInt64Array, b: UInt64Array, c: UInt64Array, d: UInt64Array
) -> tuple[UInt64Array, UInt64Array, UInt64Array, UInt64Array]:
    a = a + b
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c = c + d
    d = _rotated(d, 16) ^ c
    a = a + d
    d = _rotated(d, 21) ^ a
    c = c + b
    b = _rotated(b, 17) ^ c
    return a, b, _rotated(c, 32), d


def _rotated(words: UInt64Array, bits: int) -> UInt64Array:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))

"""How the codes of RQ are laid out in bytes.

Sign codes of a partition (`packed`): blocks of 32 rows, one after the other. A block has 32 bytes
for each byte of a code. With the rows P = 0 8 1 9 2 10 3 11 4 12 5 13 6 14 7 15, byte `j` < 16 has
the low halves of the bytes of row `P[j]` (low) and `P[j] + 16` (high), byte ``16 + j`` the high
halves. The rows after the last whole block are stored byte position by byte position.

Extra codes of a row: blocks of 64 dimensions, the last one padded with zeros, of 8 bytes for each
bit of a code.

| bits | bytes of a block |
| --- | --- |
| 1 | bit `i` is that of dimension `i`, the least bit of a byte first |
| 2 | byte `b` < 16: dimensions `b`, ``b + 16``, ``b + 32``, ``b + 48``, from the low bits up |
| 4 | byte ``8 u + b``: dimensions ``16 u + b`` (low) and ``16 u + 8 + b`` (high) |
| 6 | byte ``16 k + b``, `k` < 3: dimension ``16 k + b``; above, bits 2k, 2k+1 of ``48 + b`` |
| 8 | byte `i`: dimension `i` |
| 3, 7 | the low 2 or 6 bits as above, then the top bits |
| 5 | byte ``16 k + b``, `k` < 2: 4 bits of ``32 k + b`` and ``32 k + 16 + b``, then the top bits |

The top bits are 8 bytes: that of dimension ``16 k + 8 h + b`` is bit ``2 k + h`` of byte `b`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Arrays of uint8.
Bytes = npt.NDArray[Any]

#: Dimensions of a block of extra codes, and rows of a block of sign codes.
BLOCK, ROWS = 64, 32
_PERMUTATION = np.arange(16).reshape(2, 8).T.ravel()
_WITH_TOP_BITS = (3, 5, 7)
#: Shape of a block whose bytes have 4 bits of the one and of the other of two dimensions.
_HALVES = {4: (4, 2, 8), 5: (2, 2, 16)}
#: First bits of the pairs of a byte, and of the three pairs of 6 bits.
_QUARTERS = np.array([[0], [2], [4], [6]], np.uint8)
_PAIRS = _QUARTERS[:3]


def extra_code_bytes(dimension: int, bits: int) -> int:
    """Return the bytes of the extra codes of a row."""
    return -(-dimension // BLOCK) * BLOCK * bits // 8


def pack_signs(codes: Bytes) -> Bytes:
    """Return the sign codes of a partition, shape (rows, bytes), in the order of the file."""
    num_packed = len(codes) // ROWS * ROWS
    width = codes.shape[1]
    blocks = codes[:num_packed].reshape(-1, 2, 16, width)[:, :, _PERMUTATION].transpose(0, 3, 1, 2)
    packed = np.empty((len(blocks), width, 2, 16), np.uint8)
    packed[:, :, 0] = blocks[:, :, 0] & 15 | blocks[:, :, 1] << 4
    packed[:, :, 1] = blocks[:, :, 0] >> 4 | blocks[:, :, 1] & 0xF0
    return np.concatenate([packed.ravel(), codes[num_packed:].T.ravel()]).reshape(codes.shape)


def unpack_signs(packed: Bytes) -> Bytes:
    """Return the sign codes of a partition, shape (rows, bytes), row by row; see `pack_signs`."""
    num_packed = len(packed) // ROWS * ROWS
    width = packed.shape[1]
    halves = packed[:num_packed].reshape(-1, width, 2, 16)
    blocks = np.empty((len(halves), 2, 16, width), np.uint8)
    low, high = halves[:, :, 0].transpose(0, 2, 1), halves[:, :, 1].transpose(0, 2, 1)
    blocks[:, 0, _PERMUTATION] = low & 15 | high << 4
    blocks[:, 1, _PERMUTATION] = low >> 4 | high & 0xF0
    tail = packed[num_packed:].reshape(width, len(packed) - num_packed).T
    return np.concatenate([blocks.reshape(num_packed, width), tail])


def pack_extra(codes: Bytes, bits: int) -> Bytes:
    """Return extra codes in bytes.

    Parameters
    ----------
    codes : uint8 array of shape (rows, dimension)
        Less than ``2 ** bits``.
    bits : int
        1 to 8.
    """
    rows, dimension = codes.shape
    size = extra_code_bytes(dimension, bits)
    padded = np.pad(codes, ((0, 0), (0, -dimension % BLOCK))) if dimension % BLOCK else codes
    values = padded.reshape(-1, BLOCK)
    if bits not in _WITH_TOP_BITS:
        return _pack_low(values, bits).reshape(rows, size)
    low = _pack_low(values & ((1 << (bits - 1)) - 1), bits)
    top = (values >> (bits - 1)).reshape(-1, 8, 8).transpose(0, 2, 1)
    top_bytes = np.packbits(top, axis=2, bitorder="little")[:, :, 0]
    return np.concatenate([low, top_bytes], axis=1).reshape(rows, size)


def unpack_extra(packed: Bytes, bits: int, dimension: int) -> Bytes:
    """Return the extra codes of rows, shape (rows, dimension); see `pack_extra`."""
    blocks = packed.reshape(-1, 8 * bits)
    if bits in _WITH_TOP_BITS:
        values = _unpack_low(blocks[:, :-8], bits)
        top = np.unpackbits(blocks[:, -8:, None], axis=2, bitorder="little").transpose(0, 2, 1)
        values |= top.reshape(-1, BLOCK) << (bits - 1)
    else:
        values = _unpack_low(blocks, bits)
    padded = -(-dimension // BLOCK) * BLOCK
    return values.reshape(len(packed), padded)[:, :dimension]


def _pack_low(values: Bytes, bits: int) -> Bytes:
    """Return blocks without their top bits, if codes of so many bits have these apart."""
    match bits:
        case 1:
            return np.packbits(values, axis=1, bitorder="little")
        case 2 | 3:
            parts = values.reshape(-1, 4, 16)
            joined: Bytes = parts[:, 0] | parts[:, 1] << 2 | parts[:, 2] << 4 | parts[:, 3] << 6
            return joined
        case 4 | 5:
            halves = values.reshape(-1, *_HALVES[bits])
            joined = halves[:, :, 0] | halves[:, :, 1] << 4
            return joined.reshape(len(values), BLOCK // 2)
        case 6 | 7:
            parts = values.reshape(-1, 4, 16)
            joined = parts[:, :3] | (parts[:, 3:] >> _PAIRS & 3) << 6
            return joined.reshape(len(values), BLOCK * 3 // 4)
        case _:
            return values


def _unpack_low(blocks: Bytes, bits: int) -> Bytes:
    """Return the values of blocks, shape (blocks, 64); see `_pack_low`."""
    count = len(blocks)
    match bits:
        case 1:
            return np.unpackbits(blocks, axis=1, bitorder="little")
        case 2 | 3:
            pairs: Bytes = blocks[:, None] >> _QUARTERS & 3
            return pairs.reshape(count, BLOCK)
        case 4 | 5:
            parts = np.empty((count, *_HALVES[bits]), np.uint8)
            joined: Bytes = blocks.reshape(parts[:, :, 0].shape)
            parts[:, :, 0], parts[:, :, 1] = joined & 15, joined >> 4
            return parts.reshape(count, BLOCK)
        case 6 | 7:
            values = np.empty((count, 4, 16), np.uint8)
            joined = blocks.reshape(count, 3, 16)
            values[:, :3] = joined & 63
            values[:, 3] = np.bitwise_or.reduce(joined >> 6 << _PAIRS, axis=1)
            return values.reshape(count, BLOCK)
        case _:
            return blocks.copy()

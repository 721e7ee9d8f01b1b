"""CRC-32C checksums (polynomial of Castagnoli, reflected).

The register of a checksum is linear in the bytes. So the bytes are cut into parts of one size, the
registers of all parts are computed at once, and then joined: the register of two parts is that of
the first, moved over the bytes of the second, XOR that of the second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Registers = npt.NDArray[np.uint32]

_POLYNOMIAL = np.uint32(0x82F6_3B78)
_REGISTER_BITS, _REGISTER_BYTES = 32, 4
#: Parts of a checksum; a power of 2.
_PARTS = 1 << 12
_MIN_PART = 64


def _table() -> _Registers:
    values: _Registers = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ (values & np.uint32(1)) * _POLYNOMIAL
    return values


_TABLE = _table()


def crc32c(data: npt.NDArray[np.uint8]) -> int:
    """Return the checksum of bytes.

    Parameters
    ----------
    data : uint8 array
        Four bytes or more.

    Examples
    --------
    >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
    '0xe3069283'
    """
    parts = 1
    while parts < _PARTS and len(data) > 2 * parts * _MIN_PART:
        parts *= 2
    size = max(-(-len(data) // parts), _REGISTER_BYTES)
    # Zeros at the start leave a register of zeros as it is.
    padded = np.zeros(parts * size, np.uint8)
    padded[len(padded) - len(data) :] = data
    padded[len(padded) - len(data) :][:_REGISTER_BYTES] ^= 0xFF
    columns = np.ascontiguousarray(padded.reshape(parts, size).T)
    # The last registers have one bit each: what becomes of it when it moves over a part.
    registers = np.append(
        np.zeros(parts, np.uint32), np.uint32(1) << np.arange(_REGISTER_BITS, dtype=np.uint32)
    )
    for column in columns:
        registers[:parts] ^= column
        registers = _TABLE[registers & 0xFF] ^ (registers >> 8)
    joined, moves = registers[:parts], registers[parts:]
    while len(joined) > 1:
        joined = _moved(joined[0::2], moves) ^ joined[1::2]
        moves = _moved(moves, moves)
    return int(joined[0]) ^ 0xFFFF_FFFF


def _moved(registers: _Registers, moves: _Registers) -> _Registers:
    """Return registers after some zeros; `moves` has what becomes of each bit."""
    result = np.zeros(len(registers), np.uint32)
    for bit in range(_REGISTER_BITS):
        result ^= ((registers >> np.uint32(bit)) & 1) * moves[bit]
    return result

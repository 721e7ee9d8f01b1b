"""Zstandard frames one after the other in a buffer: finding them without decompressing, and a frame
that is stored.

=========  =========================================================================================
bytes      content
=========  =========================================================================================
4          magic number ``28 B5 2F FD``
1          bits 0 to 1: length of a dictionary id; 2: checksum after the blocks; 5: no window;
           6 to 7: which length the content size has
0 or 1     window
0 to 4     dictionary id
0 to 8     content size, of two bytes counted from 256 on
...        blocks: three bytes (bit 0: last; 1 to 2: 1 for a repeated byte; size), then bytes
0 or 4     checksum
=========  =========================================================================================

Specification: RFC 8878, section 3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lance_spark.storage.source import Bytes

IndexArray = npt.NDArray[np.int64]

MAGIC = b"\x28\xb5\x2f\xfd"
_MAGIC_WORD = int.from_bytes(MAGIC, "little")
_SINGLE_SEGMENT = 0x20
#: Blocks of a frame that are followed; frames of more are large enough to be decompressed one by
#: one.
_MAX_BLOCKS = 64


class Frames(NamedTuple):
    """One frame of each of many buffers: where they end, and how many bytes they hold."""

    ends: IndexArray
    sizes: IndexArray


def stored(data: bytes) -> bytes:
    """Return up to 255 bytes as a frame that is not compressed."""
    size = len(data)
    block = (size << 3 | 1).to_bytes(3, "little")
    return MAGIC + bytes((_SINGLE_SEGMENT, size)) + block + data


def find(data: Bytes, starts: IndexArray, stops: IndexArray) -> Frames | None:
    """Follow the frames that start at many places, all at once.

    Parameters
    ----------
    data : uint8 array
    starts, stops : int64 array
        No frame may reach over its stop.

    Returns
    -------
    Frames or None
        None if the bytes are not a frame, lack the content size, or have unusual flags.
    """
    if not len(starts) or len(data) < 16:
        return None

    def number(position: IndexArray, width: int) -> IndexArray:
        result = data.take(position, mode="clip").astype(np.int64)
        for i in range(1, width):
            result |= data.take(position + i, mode="clip").astype(np.int64) << 8 * i
        return result

    if (starts + 5 > stops).any() or (number(starts, 4) != _MAGIC_WORD).any():
        return None
    flags = number(starts + 4, 1)
    # No dictionary, checksum or window: what one call makes of some bytes.
    if (flags & 0x3F != _SINGLE_SEGMENT).any():
        return None
    size_codes = flags >> 6
    position = starts + 5
    sizes = np.zeros_like(starts)
    for size_code in np.unique(size_codes).tolist():
        selected = size_codes == size_code
        sizes[selected] = number(position[selected], 1 << size_code) + (
            256 if size_code == 1 else 0
        )
    position += 1 << size_codes
    open_ = np.ones(len(starts), np.bool_)
    for _ in range(_MAX_BLOCKS):
        if (open_ & (position + 3 > stops)).any():
            return None
        header = number(position, 3)
        length = np.where(header >> 1 & 3 == 1, 1, header >> 3) + 3
        position = np.where(open_, position + length, position)
        open_ &= header & 1 == 0
        if not open_.any():
            break
    if open_.any() or (position > stops).any() or (sizes < 0).any():
        return None
    return Frames(position, sizes)

"""Many LZ4 blocks as one LZ4 frame, so that one call decompresses all of them.

A frame:

==================  ================================================================================
bytes               content
==================  ================================================================================
4                   magic number, ``04 22 4d 18``
1                   flags: ``60``, version 1, blocks that do not depend on each other, no checksums
1                   largest block: ``40`` 64 KiB, ``50`` 256 KiB, ``60`` 1 MiB, ``70`` 4 MiB
1                   checksum of the two bytes before
4 + n, repeated     u32 n, little-endian, and a raw block of n bytes
4                   0
==================  ================================================================================

A buffer of `lance_spark.encoding.compression` has the length before compression where the frame
wants that of the block: both take 4 bytes. Specification: lz4_Frame_format.md of LZ4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.storage.source import Bytes

_HEAD = 7
_PREFIX = 4
#: Largest block, and the head of a frame of such blocks.
_HEADS = (
    (1 << 16, bytes.fromhex("04224d18604082")),
    (1 << 18, bytes.fromhex("04224d186050fb")),
    (1 << 20, bytes.fromhex("04224d18606051")),
    (1 << 22, bytes.fromhex("04224d18607073")),
)
#: Literal bytes at the end of every LZ4 block that has as many.
LITERALS = 5


def decompress_blocks(
    buffers: Sequence[Bytes], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8] | None:
    """Return the content of all blocks; None if they must be decompressed one by one.

    Parameters
    ----------
    buffers : sequence of uint8 arrays
        Blocks with their length before compression in front.
    sizes : int64 array
        These lengths, which the caller has checked to be possible.
    """
    stored = np.array([len(data) for data in buffers]) - _PREFIX
    if int(stored.min()) < LITERALS or int(sizes.min()) < LITERALS:
        return None
    largest = max(int(stored.max()), int(sizes.max()))
    head = next((head for limit, head in _HEADS if largest <= limit), None)
    if head is None:
        return None
    parts = [np.frombuffer(head, np.uint8), *buffers, np.zeros(_PREFIX, np.uint8)]
    frame = np.concatenate(parts)
    ends = np.cumsum(stored + _PREFIX) + _HEAD
    positions = (ends - stored - _PREFIX)[:, None] + np.arange(_PREFIX)
    frame[positions] = stored.astype("<u4")[:, None].view(np.uint8)
    total = int(sizes.sum())
    try:
        text = np.frombuffer(_codec().decompress(frame, decompressed_size=total), np.uint8)
    except (OSError, ValueError, MemoryError, pa.ArrowException):
        return None
    # Arrow does not report blocks with too little content.
    last = np.arange(-LITERALS, 0)
    result = text[np.cumsum(sizes)[:, None] + last]
    return text if (result == frame[ends[:, None] + last]).all() else None


@cache
def _codec() -> pa.Codec:
    return pa.Codec("lz4")

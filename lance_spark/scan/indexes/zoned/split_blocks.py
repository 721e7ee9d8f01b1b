"""Split block Bloom filters, as in Parquet.

A filter consists of blocks of 8 words of 32 bits. A value sets one bit in each word of one block.
The upper half of its hash chooses the block, the lower half the bits.

Specification: Parquet, "Parquet Bloom Filter".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.table.rows.u64_segments import UInt64Array

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

    Parameters
    ----------
    words : uint32 array of shape (n, 8)
        The words of all blocks.
    value_hashes : uint64 array
    blocks : int64 array
        The block of each value.
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

"""Levels of all chunks of a page, in the smaller of the two encodings that writers use for them."""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.levels import IndexArray, LevelArray
from lance_spark.encoding.v2_1.codec import ChunkBuffer
from lance_spark.encoding.v2_1.codecs import out_of_line_bitpacking, rle
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Bytes of a run: a level of 16 bits and a length of 8. A buffer of runs begins with 8 bytes.
_RUN_BYTES = 3
_RUN_HEADER = 8
_LONGEST_RUN = 255


def encode_level_block(levels: LevelArray) -> tuple[pb.CompressiveEncoding, Bytes]:
    """Return levels as one buffer."""
    packed = out_of_line_bitpacking.encode_block(levels)
    runs = rle.encode_block(levels)
    return runs if len(runs[1]) < len(packed[1]) else packed


def encode_level_blocks(
    levels: LevelArray, counts: IndexArray
) -> tuple[pb.CompressiveEncoding, ChunkBuffer]:
    """Return levels as one buffer for each chunk, all in one encoding.

    Parameters
    ----------
    levels : uint16 array
    counts : int64 array, one element per chunk
        How many of the levels go into each; their sum is the number of levels.
    """
    changes = int(np.count_nonzero(levels[1:] != levels[:-1])) + len(counts)
    least = (changes + len(levels) // _LONGEST_RUN) * _RUN_BYTES + len(counts) * _RUN_HEADER
    bits = max(1, int(levels.max(initial=0)).bit_length())
    # Runs must save enough to be worth decoding them chunk by chunk.
    if least > len(levels) * bits / 8 * 0.75:
        return out_of_line_bitpacking.encode_blocks(levels, counts)
    return rle.encode_blocks(levels, counts)

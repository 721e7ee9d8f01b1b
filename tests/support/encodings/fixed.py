"""Helpers for tests of fixed-width codecs: slow packing in Python integers, and pieces that are
apart in memory.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding import fastlanes
from lance_spark.encoding.v2_1.codec import ChunkBuffer, Chunks, ranges
from tests.support.encodings.chunks import WrittenPage

_GROUPS = (0, 4, 2, 6, 1, 5, 3, 7)


def slow_pack(values: list[int], width: int, bits: int) -> bytes:
    """Pack 1,024 integers, one after the other."""
    lanes = 1024 // bits
    streams = [0] * lanes
    for lane in range(lanes):
        for row in range(bits):
            index = _GROUPS[row // 8] * 16 + (row % 8) * 128 + lane
            streams[lane] |= values[index] << (row * width)
    word = (1 << bits) - 1
    out = b""
    for number in range(width):
        for lane in range(lanes):
            out += ((streams[lane] >> (number * bits)) & word).to_bytes(bits // 8, "little")
    return out


def pack(values: np.ndarray, width: int) -> np.ndarray:
    """Return rows of 1,024 integers as rows of packed bytes."""
    size = fastlanes.packed_size(width)
    packed = np.empty((len(values), size), np.uint8)
    if width:
        starts = np.arange(len(values)) * size
        fastlanes.pack_into(packed.reshape(-1), starts, values, width)
    return packed


def random_values(seed: int, count: int, width: int, bits: int) -> np.ndarray:
    """Return `count` integers of up to `width` bits. One of them has `width` bits."""
    raw = np.random.default_rng(seed).integers(0, 1 << 32, (count, 2), dtype=np.uint64)
    values = (raw[:, 0] << np.uint64(32)) | raw[:, 1]
    values &= np.uint64((1 << width) - 1)
    if count:
        values[seed % count] = (1 << width) - 1
    return values.astype(f"u{bits // 8}")


def apart(buffer: ChunkBuffer, seed: int = 0) -> ChunkBuffer:
    """Return the same pieces with bytes of uneven lengths between them."""
    gaps = np.random.default_rng(seed).integers(0, 20, len(buffer.sizes))
    ends = np.cumsum(buffer.sizes + gaps)
    starts = ends - buffer.sizes
    data = np.full(int(ends.max(initial=0)) + 3, 0xA5, np.uint8)
    data[ranges(starts, buffer.sizes)] = buffer.data[ranges(buffer.starts, buffer.sizes)]
    data.flags.writeable = False
    return ChunkBuffer(data, starts, buffer.sizes)


def all_apart(chunks: Chunks) -> Chunks:
    return Chunks(tuple(apart(buffer) for buffer in chunks.buffers), chunks.num_values)


def levels_of(page: WrittenPage) -> tuple[list[ChunkBuffer], np.ndarray]:
    """Return the level buffers of a mini-block page (repetition, then definition, as present) and
    their counts.
    """
    layout = page.layout.mini_block_layout
    data = page.buffers[1]
    table = page.buffers[0].view("<u4" if layout.has_large_chunk else "<u2").astype(np.int64)
    present = layout.HasField("rep_compression") + layout.HasField("def_compression")
    result: list[list[tuple[int, int]]] = [[] for _ in range(present)]
    counts = []
    position = 0
    for entry in table.tolist():
        header = data[position : position + 2 + 2 * present].copy().view("<u2").tolist()
        counts.append(header[0])
        place = (
            position + 2 + 2 * present + layout.num_buffers * (4 if layout.has_large_chunk else 2)
        )
        for level_buffer, size in enumerate(header[1:]):
            place = -(-place // 8) * 8
            result[level_buffer].append((place, size))
            place += size
        position += ((entry >> 4) + 1) * 8
    buffers = [
        ChunkBuffer(data, np.array([a for a, _ in pairs]), np.array([n for _, n in pairs]))
        for pairs in result
    ]
    return buffers, np.array(counts, np.int64)

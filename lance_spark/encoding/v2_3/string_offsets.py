"""Strings of mini-block chunks whose offsets are encoded on their own.

``Variable { offsets }`` with offsets that are not flat: `Delta`, `Range`, `Constant`, `Rle` or
others. A chunk of n values has one or two buffers:

=========  =========================================================================================
buffer     content
=========  =========================================================================================
offsets    n + 1 offsets from the start of the bytes; no such buffer if the encoding stores nothing
bytes      the bytes of all values
=========  =========================================================================================
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.blocks import FixedWidthBlock, VariableWidthBlock, unsigned
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import (
    BlocksCodec,
    ChunkBuffer,
    Chunks,
    UIntArray,
    block_of,
    bounds,
    decode_blocks,
    gather,
    has_payload,
    uint_type,
)
from lance_spark.encoding.v2_3.sequence import require_sequence_word
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb

# --------------------------------------------------------------------------------------------------
# Numbers that never decrease, stored as the first number and the differences between neighbours.
#
# ``Delta { uncompressed_bits_per_value = b, base, deltas }``, b = 32 or 64. `deltas` is the
# encoding of the differences, one fewer than values. As values of many buffers (offsets of strings
# in mini-block chunks) each buffer starts at `base` again. Specification: Delta in
# protos/encodings_v2_1.proto.


class DeltaCodec(BlocksCodec):
    """Decodes ``Delta``."""

    name = "delta"

    def decode_blocks(
        self, encoding: pb.Delta, buffer: ChunkBuffer, num_values: IndexArray
    ) -> FixedWidthBlock:
        base, deltas = differences(encoding, buffer, num_values)
        bits = int(encoding.uncompressed_bits_per_value)
        return block_of(_summed(base, deltas, num_values, bits))


def differences(
    encoding: pb.Delta, buffer: ChunkBuffer, num_values: IndexArray
) -> tuple[int, UIntArray]:
    """Return the first number of every buffer, and the differences between neighbours; all sums fit
    62 bits.

    - `num_values` (int64 array, one element per buffer): Number of numbers in each buffer, one more
      than differences.

    Raises CorruptFileError: a buffer has no number, or the number of differences is wrong.
    """
    require_sequence_word(int(encoding.uncompressed_bits_per_value))
    if int(num_values.min(initial=1)) < 1:
        raise CorruptFileError("differences between no values")
    counts = num_values - 1
    deltas = unsigned(decode_blocks(encoding.deltas, buffer, counts))
    if len(deltas) != int(counts.sum()):
        raise CorruptFileError(f"{len(deltas)} differences instead of {int(counts.sum())}")
    # The sum itself may be too large to be computed.
    if encoding.base >= 1 << 62 or (
        int(deltas.max(initial=0)) * len(deltas) >= 1 << 62
        and float(deltas.sum(dtype=np.float64)) >= float(1 << 62)
    ):
        raise CorruptFileError("the sums of differences do not fit 62 bits")
    return int(encoding.base), deltas


def _summed(base: int, deltas: UIntArray, num_values: IndexArray, bits: int) -> UIntArray:
    starts = np.cumsum(num_values) - num_values
    inner = np.ones(int(num_values.sum()), np.bool_)
    inner[starts] = False
    sums = np.zeros(len(inner), np.int64)
    sums[inner] = deltas
    np.cumsum(sums, out=sums)
    sums += base - np.repeat(sums[starts], num_values)
    if int(sums.max(initial=0)) >= 1 << bits:
        raise CorruptFileError(f"the sums of differences do not fit {bits} bits")
    return sums.astype(uint_type(bits), copy=False)


# --------------------------------------------------------------------------------------------------
# Strings of mini-block chunks whose offsets are encoded on their own.

_OF_NUMBERS = {
    "constant",
    "delta",
    "dictionary",
    "general",
    "inline_bitpacking",
    "out_of_line_bitpacking",
    "range",
    "rle",
}


def decode_chunks(encoding: pb.CompressiveEncoding, chunks: Chunks) -> VariableWidthBlock:
    """Return the strings of all chunks, in order, as one block.

    - `encoding`: Encoding of the offsets.

    Raises CorruptFileError: offsets decrease or leave their chunk. Raises UnsupportedEncodingError:
    the encoding does not store numbers.
    """
    compression = encoding.WhichOneof("compression")
    if compression not in _OF_NUMBERS:
        raise UnsupportedEncodingError(f"string offsets encoded as {compression!r}")
    stored = has_payload(encoding)
    if len(chunks.buffers) != 1 + stored:
        raise CorruptFileError(f"strings in {len(chunks.buffers)} buffers per chunk")
    text = chunks.buffers[-1]
    zeros = np.zeros_like(text.starts)
    payload = chunks.buffers[0] if stored else ChunkBuffer(text.data, zeros, zeros)
    counts = chunks.num_values
    if compression == "delta":
        return _by_lengths(encoding.delta, payload, text, counts)
    block = decode_blocks(encoding, payload, counts + 1)
    if block.bits_per_value not in (32, 64):
        raise UnsupportedEncodingError(f"string offsets of {block.bits_per_value} bits")
    offsets = block.data.view(f"<i{block.bits_per_value // 8}").astype(np.int64)
    if len(offsets) != int((counts + 1).sum()):
        raise CorruptFileError(f"{len(offsets)} string offsets in {len(counts)} chunks")
    lasts_at = np.cumsum(counts + 1) - 1
    firsts, lasts = offsets[lasts_at - counts], offsets[lasts_at]
    inside = np.ones(max(len(offsets) - 1, 0), np.bool_)
    inside[lasts_at[:-1]] = False
    lengths = np.diff(offsets)[inside]
    if (lengths < 0).any() or (firsts < 0).any() or (lasts > text.sizes).any():
        raise CorruptFileError("string offsets decrease or leave their chunk")
    ends = bounds(lengths)
    data = gather(text.data, text.starts + firsts, lasts - firsts)
    return VariableWidthBlock.of(ends, data, block.bits_per_value // 8)


def _by_lengths(
    encoding: pb.Delta, payload: ChunkBuffer, text: ChunkBuffer, counts: IndexArray
) -> VariableWidthBlock:
    """Return strings from the stored differences of their offsets, which are their lengths."""
    base, lengths = differences(encoding, payload, counts + 1)
    ends = bounds(lengths)
    last = np.cumsum(counts)
    sizes = ends[last] - ends[last - counts]
    if (base + sizes > text.sizes).any():
        raise CorruptFileError("string offsets leave their chunk")
    data = gather(text.data, text.starts + base, sizes)
    return VariableWidthBlock.of(ends, data, encoding.uncompressed_bits_per_value // 8)

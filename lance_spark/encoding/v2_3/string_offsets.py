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

from lance_spark.encoding.blocks import VariableWidthBlock
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import ChunkBuffer, Chunks, decode_blocks, has_payload
from lance_spark.encoding.v2_1.fixed_width import bounds, gather
from lance_spark.encoding.v2_3.delta import differences
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb

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

"""Strings in mini-block chunks that are compressed: ``General { zstd or lz4, Variable }``.

If the offsets of a chunk are large enough, a Zstandard buffer is written as several adjacent
frames:

========  ===============================================================================
bytes     content
========  ===============================================================================
8         length before compression
a frame   the chunk's offsets, as in `variable`
a frame   the bytes of its values
a frame   up to 7 bytes of padding; not there if none are needed
========  ===============================================================================

Decompressors read adjacent frames as one text. Offsets and bytes are coded by the frequencies of
their own bytes, which saves a tenth. A read of all chunks of a page decompresses all their offsets
at once and all their bytes at once, and moves none of them afterwards. LZ4 has no adjacent blocks,
and no such frequencies.

Frames are found without decompressing them. A frame:

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

from lance_spark.encoding.blocks import VariableWidthBlock
from lance_spark.encoding.compression import (
    ZSTD_MAGIC,
    compress,
    decompress_frames,
    frame,
    message_of,
)
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import ChunkBuffer, ChunkLimits, Chunks, Encoded, bounds
from lance_spark.encoding.v2_1.codecs import variable
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Minimum bytes of a chunk's offsets for a frame of their own, which costs some 20 bytes and
#: microseconds.
_WORTH_A_FRAME = 1024
#: Number of chunks that are compressed as a sample, before all chunks are.
_SAMPLE = 4
#: Minimum saving of a compression that no hint requests.
_WORTH = 0.9
_TOO_LITTLE = 1024
#: Chunks this large, before compression, are large enough.
_SMALL = 32 * 1024
#: Bytes of the length in front of the frames of a buffer.
_PREFIX = 8
_INT32_MAX = (1 << 31) - 1

_MAGIC_WORD = int.from_bytes(ZSTD_MAGIC, "little")
_SINGLE_SEGMENT = 0x20
#: Maximum number of blocks of a frame that is searched; frames with more blocks are decompressed
#: one by one.
_MAX_BLOCKS = 64


def encode_chunks(
    block: VariableWidthBlock,
    limits: ChunkLimits,
    scheme: str,
    level: int | None = None,
    *,
    forced: bool = False,
    exact: bool = False,
) -> Encoded:
    """Return strings as mini-block chunks, compressed if that pays.

    - `scheme`: ``lz4`` or ``zstd``.
    - `level`: Of zstd.
    - `forced`: Compress even if that saves only a few bytes.
    - `exact`: Whether chunks always have the bytes of `limits` before compression. Otherwise they
      can have twice as many, if compression halves them.

    Raises InvalidInputError: a value is too long for a chunk, or the scheme or the level is not
    known.
    """
    cuts = pieces = None
    if limits.max_bytes < _SMALL and not exact:
        cuts = variable.cut(block, ChunkLimits(2 * limits.max_bytes, limits.max_values))
        pieces = _compressed(block, cuts, scheme, level, _WORTH / 2)
        if pieces is not None and max(map(len, pieces)) > limits.max_bytes:
            pieces = None
    if cuts is None or pieces is None:
        cuts = variable.cut(block, limits)
        pieces = _compressed(block, cuts, scheme, level, None if forced else _WORTH)
        if pieces is None:
            return variable.cut_chunks(block, cuts)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    data = np.frombuffer(b"".join(pieces), np.uint8)
    inner = variable.message(block.offsets.dtype.itemsize)
    general = pb.General(compression=message_of(scheme, level), values=inner)
    chunks = Chunks((ChunkBuffer(data, np.cumsum(sizes) - sizes, sizes),), np.diff(cuts))
    return pb.CompressiveEncoding(general=general), chunks


def _compressed(
    block: VariableWidthBlock, cuts: IndexArray, scheme: str, level: int | None, worth: float | None
) -> list[bytes] | None:
    """Return the compressed chunks; None if the compressed share of a sample is above `worth`."""
    count = len(cuts) - 1
    width = block.offsets.dtype.itemsize
    total = int(block.offsets[-1] - block.offsets[0]) + width * (block.num_values + count)
    if worth is not None and total < _TOO_LITTLE:
        return None
    position = cuts.tolist()
    # All chunks of a page have the same form, so that they can be decompressed together.
    split_frames = scheme == "zstd" and width * block.num_values >= _WORTH_A_FRAME * count

    def piece(i: int) -> bytes:
        return _chunk(
            variable.chunk_parts(block, position[i], position[i + 1]), scheme, level, split_frames
        )

    tried: dict[int, bytes] = {}
    if worth is not None:
        picked = np.unique(np.linspace(0, count - 1, _SAMPLE).astype(np.int64))
        tried = {i: piece(i) for i in picked.tolist()}
        ends = block.offsets[cuts].astype(np.int64) + width * (cuts + np.arange(count + 1))
        plain = int((ends[picked + 1] - ends[picked]).sum())
        if sum(len(result) for result in tried.values()) >= plain * worth:
            return None
    pieces = [tried[i] if i in tried else piece(i) for i in range(count)]
    return pieces if sum(len(result) for result in pieces) < total else None


def _chunk(
    parts: tuple[Bytes, Bytes, bytes], scheme: str, level: int | None, split_frames: bool
) -> bytes:
    offsets, text, padding = parts
    if not split_frames:
        content = np.concatenate([offsets, text, np.frombuffer(padding, np.uint8)])
        return compress(scheme, content, level)
    size = len(offsets) + len(text) + len(padding)
    frames = [size.to_bytes(8, "little"), frame(scheme, offsets, level), frame(scheme, text, level)]
    if padding:
        frames.append(stored_frame(padding))
    return b"".join(frames)


# Reading


def decode_chunks(buffer: ChunkBuffer, counts: IndexArray, width: int) -> VariableWidthBlock | None:
    """Return the strings of chunks whose offsets and bytes are in frames of their own; None for
    other chunks.

    - `buffer`: Compressed by zstd.
    - `counts`: Values of each chunk.
    - `width`: Bytes of an offset.

    Raises CorruptFileError: frames cannot be decompressed, or offsets decrease.
    """
    data = buffer.data
    starts, stops = buffer.starts + _PREFIX, buffer.starts + buffer.sizes
    heads = find_frames(data, starts, stops)
    if heads is None or (heads.sizes != (counts + 1) * width).any():
        return None
    bodies = find_frames(data, heads.ends, stops)
    if bodies is None:
        return None
    words = _join(data, starts, heads).view(f"<i{width}")
    position = bounds(counts + 1)
    text_at = bounds(bodies.sizes)
    firsts, lasts = words[position[:-1]].astype(np.int64), words[position[1:] - 1].astype(np.int64)
    if (firsts != heads.sizes).any() or (lasts - firsts != bodies.sizes).any():
        return None
    total = int(text_at[-1])
    offsets = np.empty(int(counts.sum()) + 1, words.dtype if total <= _INT32_MAX else np.int64)
    num_decoded = 0
    for start, stop, shift in zip(
        position[:-1].tolist(),
        (position[1:] - 1).tolist(),
        (text_at[:-1] - firsts).tolist(),
        strict=True,
    ):
        np.add(
            words[start:stop],
            shift,
            out=offsets[num_decoded : num_decoded + stop - start],
            dtype=offsets.dtype,
        )
        num_decoded += stop - start
    offsets[-1] = total
    if (offsets[1:] < offsets[:-1]).any():
        raise CorruptFileError("string offsets decrease")
    return VariableWidthBlock(offsets, _join(data, heads.ends, bodies))


def _join(data: Bytes, starts: IndexArray, frames: Frames) -> Bytes:
    pieces = [data[a:b] for a, b in zip(starts.tolist(), frames.ends.tolist(), strict=True)]
    return decompress_frames(pieces, int(frames.sizes.sum()))


class Frames(NamedTuple):
    """One frame of each of many buffers: its end, and the number of bytes that it holds."""

    ends: IndexArray
    sizes: IndexArray


def stored_frame(data: bytes) -> bytes:
    """Return up to 255 bytes as a frame that is not compressed."""
    size = len(data)
    block = (size << 3 | 1).to_bytes(3, "little")
    return ZSTD_MAGIC + bytes((_SINGLE_SEGMENT, size)) + block + data


def find_frames(data: Bytes, starts: IndexArray, stops: IndexArray) -> Frames | None:
    """Find the ends of the frames that start at many places, all at once.

    - `starts`, `stops`: No frame may end after its stop.

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
    # No dictionary, checksum or window, as frames of one call of the compressor have none.
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

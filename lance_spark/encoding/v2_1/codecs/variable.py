"""Variable: byte strings as offsets followed by bytes.

One buffer per mini-block chunk of n values; w is 4 or 8 bytes, the width of `offsets` (a Flat of 32
or 64 bits):

===================  ==================================================================
bytes                content
===================  ==================================================================
w * (n + 1)          offsets from the start of the buffer; the first is w * (n + 1)
offset[n] - first    the bytes of all values
up to 7              padding to a multiple of w
===================  ==================================================================

As a single buffer (dictionaries):

===================  ==================================================================
bytes                content
===================  ==================================================================
w                    bits of an offset: 32 or 64
w                    where the bytes begin: w * (n + 3)
w * (n + 1)          offsets from where the bytes begin
rest                 the bytes of all values
===================  ==================================================================

An older form of the single buffer has a header of 1 byte with the bits of an offset, n, and where
the bytes begin; bytes 1 to 3, which are not 0, distinguish it. In full-zip pages the values are
stored unchanged. Chunks of version 2.3 may have offsets in a buffer of their own:
`lance_spark.encoding.v2_3.string_offsets`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.blocks import DataBlock, VariableWidthBlock
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import ChunkBuffer, ChunkLimits, Chunks, Codec, Encoded
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

Offsets = npt.NDArray[np.int32] | npt.NDArray[np.int64]

_INT32_MAX = (1 << 31) - 1
_PAD = ord("H")


class VariableCodec(Codec):
    """Reads `Variable`."""

    name = "variable"

    def decode_chunks(self, encoding: pb.Variable, chunks: Chunks) -> VariableWidthBlock:
        if encoding.offsets.WhichOneof("compression") not in ("flat", None):
            from lance_spark.encoding.v2_3 import string_offsets

            _require_plain_bytes(encoding)
            return string_offsets.decode_chunks(encoding.offsets, chunks)
        width = _offset_width(encoding)
        if len(chunks.buffers) != 1:
            raise CorruptFileError(f"strings in {len(chunks.buffers)} buffers per chunk, not 1")
        (buffer,) = chunks.buffers
        return _gather(buffer, chunks.num_values, width)

    def decode_block(self, encoding: pb.Variable, data: Bytes, num_values: int) -> DataBlock:
        _offset_width(encoding)
        if len(data) < 8:
            raise CorruptFileError(f"a buffer of {len(data)} bytes is too short for strings")
        old = data[1:4].any()
        width = int(data[0]) // 8
        if width not in (4, 8) or data[0] % 8:
            raise UnsupportedEncodingError(f"string offsets of {int(data[0])} bits")
        header = 1 + 2 * width if old else 2 * width
        begin_at = header - width
        if len(data) < header:
            raise CorruptFileError(f"a buffer of {len(data)} bytes is too short for strings")
        begin = int.from_bytes(data[begin_at:header].tobytes(), "little")
        if begin != header + width * (num_values + 1) or begin > len(data):
            raise CorruptFileError(
                f"a buffer of {len(data)} bytes does not hold {num_values} strings"
            )
        offsets = _typed(data[header:begin], width)
        _check_offsets(offsets, len(data) - begin)
        return VariableWidthBlock(offsets, data[begin:])

    def decode_values(self, encoding: pb.Variable, values: DataBlock) -> DataBlock:
        _offset_width(encoding)
        if not isinstance(values, VariableWidthBlock):
            raise CorruptFileError("strings are stored as values of fixed width")
        return values


def _offset_width(encoding: pb.Variable) -> int:
    flat = encoding.offsets.flat
    if encoding.offsets.WhichOneof("compression") != "flat" or flat.HasField("data"):
        raise UnsupportedEncodingError("string offsets that are compressed")
    _require_plain_bytes(encoding)
    if flat.bits_per_value not in (32, 64):
        raise UnsupportedEncodingError(f"string offsets of {flat.bits_per_value} bits")
    return int(flat.bits_per_value) // 8


def _require_plain_bytes(encoding: pb.Variable) -> None:
    if encoding.HasField("values"):
        raise UnsupportedEncodingError("strings whose bytes are compressed on their own")


def _typed(data: Bytes, width: int) -> Offsets:
    dtype: np.dtype[Any] = np.dtype(f"<i{width}")
    if data.ctypes.data % width:
        data = data.copy()
    words: Offsets = data.view(dtype)
    return words


def _check_offsets(offsets: Offsets, size: int) -> None:
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise CorruptFileError("string offsets decrease or leave their buffer")


def _gather(buffer: ChunkBuffer, counts: IndexArray, width: int) -> VariableWidthBlock:
    """Join the offsets of all chunks, and their bytes; each is copied once."""
    dtype: np.dtype[Any] = np.dtype(f"<i{width}")
    if not len(counts):
        return VariableWidthBlock(np.zeros(1, dtype), np.zeros(0, np.uint8))
    heads = (counts + 1) * width
    if (buffer.sizes < heads).any():
        raise CorruptFileError("a chunk is too small for the offsets of its strings")
    data, starts = buffer.data, buffer.starts
    if data.ctypes.data % width or (starts % width).any():
        data, starts = _aligned(buffer, width)
    words = data.view(dtype) if len(data) % width == 0 else data[: -(len(data) % width)].view(dtype)
    position = starts // width
    firsts = words[position].astype(np.int64)
    lasts = words[position + counts].astype(np.int64)
    if (firsts < 0).any() or (lasts < firsts).any() or (lasts > buffer.sizes).any():
        raise CorruptFileError("string offsets leave their chunk")
    lengths = lasts - firsts
    begins = np.cumsum(lengths) - lengths
    total = int(lengths.sum())
    if total > _INT32_MAX:
        dtype = np.dtype(np.int64)
    offsets = np.empty(int(counts.sum()) + 1, dtype)
    # Slices of whole chunks cost less than indices of adjacent values.
    np.concatenate(
        [words[a:b] for a, b in zip(position.tolist(), (position + counts).tolist(), strict=True)],
        out=offsets[:-1],
    )
    offsets[:-1] += np.repeat((begins - firsts).astype(dtype), counts)
    offsets[-1] = total
    if (offsets[1:] < offsets[:-1]).any():
        raise CorruptFileError("string offsets decrease")
    begins_at, ends_at = starts + firsts, starts + lasts
    text = np.concatenate(
        [data[a:b] for a, b in zip(begins_at.tolist(), ends_at.tolist(), strict=True)]
    )
    return VariableWidthBlock(offsets, text)


def _aligned(buffer: ChunkBuffer, width: int) -> tuple[Bytes, IndexArray]:
    """Copy the buffers of all chunks so that each starts at a multiple of `width`."""
    room = -(-buffer.sizes // width) * width
    starts = np.cumsum(room) - room
    data = np.zeros(int(room.sum()), np.uint8)
    for source, size, target in zip(
        buffer.starts.tolist(), buffer.sizes.tolist(), starts.tolist(), strict=True
    ):
        data[target : target + size] = buffer.data[source : source + size]
    return data, starts


# Writing


def message(width: int) -> pb.CompressiveEncoding:
    """Return the message for strings whose offsets have `width` bytes."""
    offsets = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=8 * width))
    return pb.CompressiveEncoding(variable=pb.Variable(offsets=offsets))


def _chunk_ends(offsets: IndexArray, limits: ChunkLimits, width: int) -> list[int]:
    """Cut values into chunks of the largest power of two that fits, at least 2; the last holds the
    rest.
    """
    count = len(offsets) - 1
    # End of value i if its offset were stored next to its bytes: increasing, so that it can be
    # searched.
    reach = (offsets + np.arange(count + 1) * width).data
    ends: list[int] = []
    start = 0
    while start < count:
        stop = min(start + limits.max_values, count)
        fitting = bisect_right(reach, reach[start] + limits.max_bytes - width, start, stop + 1)
        fitting -= start + 1
        if fitting < count - start:
            fitting = 1 << (fitting.bit_length() - 1) if fitting > 1 else 0
        if not fitting:
            raise InvalidInputError(
                f"strings of {int(offsets[start + 1] - offsets[start])} bytes do not fit into "
                f"chunks of {limits.max_bytes} bytes; store the column as full-zip"
            )
        start += fitting
        ends.append(start)
    return ends


def cut(block: VariableWidthBlock, limits: ChunkLimits) -> IndexArray:
    """Return the start of each mini-block chunk of some strings, and the end of the last.

    Returns numbers of values; one element more than chunks. Raises InvalidInputError: a value is
    too long for a chunk.
    """
    offsets = block.offsets.astype(np.int64)
    ends = _chunk_ends(offsets, limits, block.offsets.dtype.itemsize)
    return np.array([0, *ends], np.int64)


def chunk_parts(block: VariableWidthBlock, start: int, stop: int) -> tuple[Bytes, Bytes, bytes]:
    """Return the chunk of some values in three parts: offsets, bytes, padding. The bytes are a view
    of the bytes of the block.
    """
    offsets = block.offsets[start : stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return (
        (offsets - (first - offsets.nbytes)).view(np.uint8),
        block.data[first:last],
        padding(last - first, offsets.itemsize),
    )


def padding(size: int, width: int) -> bytes:
    """Return the padding after `size` bytes of a chunk, up to a multiple of an offset's bytes."""
    return bytes((_PAD,)) * (-size % width)


def encode_chunks(block: VariableWidthBlock, limits: ChunkLimits) -> Encoded:
    """Return strings as mini-block chunks.

    Raises InvalidInputError: a value is too long for a chunk.
    """
    return cut_chunks(block, cut(block, limits))


def cut_chunks(block: VariableWidthBlock, cuts: IndexArray) -> Encoded:
    """Return strings as mini-block chunks that start at the values that `cut` found."""
    width = block.offsets.dtype.itemsize
    counts = np.diff(cuts)
    heads = (counts + 1) * width
    ends = block.offsets[cuts].astype(np.int64)
    sizes = heads + np.diff(ends)
    room = -(-sizes // width) * width
    starts = np.cumsum(room) - room
    out = np.empty(int(room.sum()), np.uint8)
    words = out.view(block.offsets.dtype)
    for start, stop, position, head, size, end, first in zip(
        cuts[:-1].tolist(),
        cuts[1:].tolist(),
        starts.tolist(),
        heads.tolist(),
        sizes.tolist(),
        room.tolist(),
        ends.tolist(),
        strict=False,
    ):
        np.subtract(
            block.offsets[start : stop + 1],
            first - head,
            out=words[position // width : position // width + stop - start + 1],
        )
        out[position + head : position + size] = block.data[first : first + size - head]
        out[position + size : position + end] = _PAD
    return message(width), Chunks((ChunkBuffer(out, starts, room),), counts)


def encode_block(block: VariableWidthBlock) -> tuple[pb.CompressiveEncoding, Bytes]:
    """Return strings as one buffer, as dictionaries are stored."""
    dtype = block.offsets.dtype
    width = dtype.itemsize
    first, last = int(block.offsets[0]), int(block.offsets[-1])
    begin = width * (block.num_values + 3)
    out = np.empty(begin + last - first, np.uint8)
    out[: 2 * width].view(dtype)[:] = [8 * width, begin]
    np.subtract(block.offsets, first, out=out[2 * width : begin].view(dtype))
    out[begin:] = block.data[first:last]
    return message(width), out


def encode_values(block: VariableWidthBlock) -> tuple[pb.CompressiveEncoding, VariableWidthBlock]:
    """Return strings as full-zip pages store them: unchanged."""
    return message(block.offsets.dtype.itemsize), block

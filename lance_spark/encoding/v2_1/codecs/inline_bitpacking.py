"""Integers cut to a bit width that is stored in front of each chunk.

``InlineBitpacking { uncompressed_bits_per_value = T }``, T = 8, 16, 32 or 64. One buffer per chunk:

==================  ===========================================================================
bytes               content
==================  ===========================================================================
T / 8               width W of the packed values, little-endian; from 0 to T
W * 128             1,024 values in the order of `lance_spark.encoding.fastlanes`
==================  ===========================================================================

A chunk never has more than 1,024 values; fewer are filled up with zeros. As a block, the same is
one buffer of up to 1,024 values. Specification: InlineBitpacking in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding import fastlanes
from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.fastlanes import CHUNK_VALUES
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import BlocksCodec, ChunkBuffer, ChunkLimits, Chunks, Encoded
from lance_spark.encoding.v2_1.fixed_width import (
    UIntArray,
    block_of,
    empty,
    gather,
    only_buffer,
    require_word,
    uint_type,
    values_of,
)
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: If fewer than this number of chunks come with each chunk that is not full, all chunks are
#: unpacked first and joined then.
_FULL_CHUNKS = 16
#: A value alone takes about as long as so many values of a chunk that is unpacked as a whole.
_FEW_VALUES = 32


class InlineBitpackingCodec(BlocksCodec):
    """Decodes ``InlineBitpacking``."""

    name = "inline_bitpacking"

    def decode_chunks(self, encoding: pb.InlineBitpacking, chunks: Chunks) -> FixedWidthBlock:
        buffer = only_buffer(chunks, "bit-packed values")
        return self.decode_blocks(encoding, buffer, chunks.num_values)

    def decode_blocks(
        self, encoding: pb.InlineBitpacking, buffer: ChunkBuffer, num_values: IndexArray
    ) -> FixedWidthBlock:
        bits, num_values, starts, widths = _opened(encoding, buffer, num_values)
        ends = _full_until(num_values)
        if ends is None:
            values = empty((len(widths), CHUNK_VALUES), uint_type(bits))
            _unpack(buffer.data, starts, widths, values)
            return block_of(compact(values, num_values))
        # The next chunk overwrites the superfluous values of a chunk.
        values = empty(int(num_values.sum()) + CHUNK_VALUES, uint_type(bits))
        position = first = 0
        for end in ends:
            until = position + (end - first) * CHUNK_VALUES
            table = values[position:until].reshape(-1, CHUNK_VALUES)
            _unpack(buffer.data, starts[first:end], widths[first:end], table)
            position, first = until - CHUNK_VALUES + int(num_values[end - 1]), end
        return block_of(values[:position])

    def decode_some(
        self, encoding: pb.InlineBitpacking, chunks: Chunks, entries: IndexArray
    ) -> FixedWidthBlock | None:
        if len(entries) * _FEW_VALUES > chunks.total:
            return None
        buffer = only_buffer(chunks, "bit-packed values")
        bits, num_values, starts, widths = _opened(encoding, buffer, chunks.num_values)
        ends = np.cumsum(num_values)
        holder = np.searchsorted(ends, entries, side="right")
        places = entries - (ends - num_values)[holder]
        dtype = np.dtype(uint_type(bits))
        values = fastlanes.unpack_some(buffer.data, starts[holder], widths[holder], places, dtype)
        return block_of(values)


def _opened(
    encoding: pb.InlineBitpacking, buffer: ChunkBuffer, num_values: IndexArray
) -> tuple[int, IndexArray, IndexArray, IndexArray]:
    """Return bits of a value, and of each chunk with values: their number, start and width."""
    bits = require_word(int(encoding.uncompressed_bits_per_value), "bit-packing")
    if encoding.HasField("values"):
        raise UnsupportedEncodingError("bit-packed chunks that went through a compressor")
    if not num_values.all():
        non_empty = np.flatnonzero(num_values)
        buffer = ChunkBuffer(buffer.data, buffer.starts[non_empty], buffer.sizes[non_empty])
        num_values = num_values[non_empty]
    if int(num_values.max(initial=0)) > CHUNK_VALUES or int(num_values.min(initial=0)) < 0:
        raise CorruptFileError(f"a bit-packed chunk of more than {CHUNK_VALUES} values")
    return bits, num_values, buffer.starts + bits // 8, _widths(buffer, bits)


def _full_until(num_values: IndexArray) -> list[int] | None:
    """Return the ends of runs of chunks that are full except the last chunk; None if there are many
    runs.
    """
    short = np.flatnonzero(num_values[:-1] != CHUNK_VALUES) + 1
    if len(short) * _FULL_CHUNKS > len(num_values):
        return None
    return [*short.tolist(), len(num_values)] if len(num_values) else []


def _unpack(data: Bytes, starts: IndexArray, widths: IndexArray, values: UIntArray) -> None:
    """Unpack chunks to the rows of `values`."""
    if len(widths) and (widths == widths[0]).all():
        fastlanes.unpack(data, starts, int(widths[0]), values)
        return
    for width in np.unique(widths).tolist():
        rows = np.flatnonzero(widths == width)
        fastlanes.unpack(data, starts[rows], width, values, rows)


def _widths(buffer: ChunkBuffer, bits: int) -> IndexArray:
    header = bits // 8
    if int(buffer.sizes.min(initial=header)) < header:
        raise CorruptFileError("a bit-packed chunk is too short for its width")
    positions = buffer.starts[:, None] + np.arange(header)
    numbers = buffer.data[positions].view(uint_type(bits))[:, 0]
    if int(numbers.max(initial=0)) > bits:
        raise CorruptFileError(f"values of {bits} bits packed to {int(numbers.max())} bits")
    widths: IndexArray = numbers.astype(np.int64)
    if (buffer.sizes != header + fastlanes.packed_size(1) * widths).any():
        raise CorruptFileError("a bit-packed chunk's size is not what its width demands")
    return widths


def compact(values: UIntArray, num_values: IndexArray) -> UIntArray:
    """Return the first ``num_values[i]`` values of each row i, one after the other.

    The result is a view if only the last row is not full.

    - `values`: array of shape (n, 1024), contiguous
    """
    if (num_values[:-1] == CHUNK_VALUES).all():
        contiguous: UIntArray = values.reshape(-1)[: int(num_values.sum())]
        return contiguous
    width = values.itemsize
    starts = np.arange(len(values)) * (CHUNK_VALUES * width)
    compacted = gather(values.reshape(-1).view(np.uint8), starts, num_values * width)
    return compacted.view(values.dtype)


def _tables(values: UIntArray, step: int) -> list[UIntArray]:
    """Return rows of `step` values, filled up with zeros to the shape (n, 1024); full rows are a
    view.
    """
    if step < CHUNK_VALUES:
        return [_padded(values, step)]
    full = len(values) // CHUNK_VALUES * CHUNK_VALUES
    full_chunks = np.ascontiguousarray(values[:full]).reshape(-1, CHUNK_VALUES)
    return (
        [full_chunks]
        if full == len(values)
        else [full_chunks, _padded(values[full:], CHUNK_VALUES)]
    )


def _padded(values: UIntArray, step: int) -> UIntArray:
    count = -(-len(values) // step)
    rows = np.zeros((count, CHUNK_VALUES), values.dtype)
    full = len(values) // step
    rows[:full, :step] = values[: full * step].reshape(full, step)
    rows[full:, : len(values) - full * step] = values[full * step :]
    return rows


def encoded_size(block: FixedWidthBlock) -> int:
    """Return the bytes of all chunks that `encode_chunks` makes with 1,024 values in each."""
    values = values_of(block)
    full = len(values) // CHUNK_VALUES * CHUNK_VALUES
    widths = fastlanes.bit_widths(values[:full].reshape(-1, CHUNK_VALUES))
    size = len(widths) * values.itemsize + fastlanes.packed_size(int(widths.sum()))
    if full < len(values):
        last = fastlanes.bit_widths(values[None, full:])
        size += values.itemsize + fastlanes.packed_size(int(last[0]))
    return size


def _message(bits: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(
        inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=bits)
    )


def _encode(tables: list[UIntArray]) -> ChunkBuffer:
    header = tables[0].itemsize
    widths_of = [fastlanes.bit_widths(rows) for rows in tables]
    widths = np.concatenate(widths_of)
    sizes = header + fastlanes.packed_size(1) * widths
    starts = np.cumsum(sizes) - sizes
    data = empty(int(sizes.sum()), np.uint8)
    heads = widths.astype(tables[0].dtype)[:, None].view(np.uint8)
    data[starts[:, None] + np.arange(header)] = heads
    first = 0
    for rows, of_rows in zip(tables, widths_of, strict=True):
        chunk_offsets = starts[first : first + len(rows)] + header
        first += len(rows)
        for width in np.unique(of_rows).tolist():
            same_width = np.flatnonzero(of_rows == width)
            if width:
                # Slices of a page of one width need no copy of the values.
                chosen = rows if len(same_width) == len(rows) else rows[same_width]
                fastlanes.pack_into(data, chunk_offsets[same_width], chosen, width)
    return ChunkBuffer(data, starts, sizes)


def encode_chunks(block: DataBlock, limits: ChunkLimits) -> Encoded:
    """Pack each 1,024 values to the width of their largest.

    Values of 64 bits can make chunks of 8,200 bytes; ``limits.max_bytes`` does not change that,
    since a chunk always holds 1,024 packed values. If ``limits.max_values`` is less, the rest of
    each chunk is zeros. Raises InvalidInputError: the block does not have values of 8, 16, 32 or 64
    bits.
    """
    values = values_of(block)
    step = min(CHUNK_VALUES, limits.max_values)
    counts = np.full(-(-len(values) // step), step, np.int64)
    counts[len(values) // step :] = len(values) % step
    return _message(values.itemsize * 8), Chunks((_encode(_tables(values, step)),), counts)

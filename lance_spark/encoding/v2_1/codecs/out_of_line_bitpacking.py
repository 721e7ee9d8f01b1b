"""Integers cut to one bit width, given in the message; the usual form of levels and of indices of
dictionaries.

``OutOfLineBitpacking { uncompressed_bits_per_value = T, values = Flat { bits_per_value = W } }``.
One buffer:

=====================  ========================================================================
bytes                  content
=====================  ========================================================================
W * 128 * (n // 1024)  all whole 1,024 values in the order of `lance_spark.encoding.fastlanes`
rest                   the last n % 1024 values: either raw, T bits each, or filled up with
                       zeros and packed, W * 128 bytes
=====================  ========================================================================

The length of the buffer determines the form of the rest; it is raw if both forms would have the
same length. Writers choose the raw form if packing saves nothing: ``W * (1024 - rest) >= (T - W) *
rest``. Specification: OutOfLineBitpacking in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lance_spark.encoding import fastlanes
from lance_spark.encoding.blocks import FixedWidthBlock
from lance_spark.encoding.fastlanes import CHUNK_VALUES
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import BlocksCodec, ChunkBuffer, Chunks
from lance_spark.encoding.v2_1.codecs.inline_bitpacking import compact
from lance_spark.encoding.v2_1.fixed_width import (
    UIntArray,
    block_of,
    empty,
    flat,
    flat_bits,
    only_buffer,
    ranges,
    require_page_size,
    require_word,
    uint_type,
)
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The runs of up to 1,024 values that make up one or many buffers, in order.

    For each piece: its number of values, its position, and whether it is raw.
    """

    counts: IndexArray
    starts: IndexArray
    raw: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class OutOfLineBitpackingCodec(BlocksCodec):
    """Decodes ``OutOfLineBitpacking``."""

    name = "out_of_line_bitpacking"

    def decode_chunks(self, encoding: pb.OutOfLineBitpacking, chunks: Chunks) -> FixedWidthBlock:
        buffer = only_buffer(chunks, "bit-packed values")
        return self.decode_blocks(encoding, buffer, chunks.num_values)

    def decode_blocks(
        self, encoding: pb.OutOfLineBitpacking, buffer: ChunkBuffer, num_values: IndexArray
    ) -> FixedWidthBlock:
        bits = require_word(int(encoding.uncompressed_bits_per_value), "bit-packing")
        width = flat_bits(encoding.values, "bit-packing")
        if width > bits:
            raise CorruptFileError(f"values of {bits} bits packed to {width} bits")
        require_page_size(int(num_values.max(initial=0)), bits)
        require_page_size(int(num_values.sum()), bits)
        pieces = _cut(num_values, bits, width, buffer)
        values = empty((len(pieces.counts), CHUNK_VALUES), uint_type(bits))
        packed, raw = np.flatnonzero(~pieces.raw), np.flatnonzero(pieces.raw)
        if len(packed):
            fastlanes.unpack(buffer.data, pieces.starts[packed], width, values, packed)
        if len(raw):
            _copy_raw(buffer.data, pieces.starts[raw], pieces.counts[raw], values, raw)
        return block_of(compact(values, pieces.counts))


def _cut(
    num_values: IndexArray, bits: int, width: int, buffer: ChunkBuffer | None = None
) -> _Pieces:
    """Cut blocks into pieces: by the sizes of `buffer`, or without it as a writer does."""
    full_chunks, num_last = np.divmod(num_values, CHUNK_VALUES)
    packed = fastlanes.packed_size(width)
    raw = (num_last > 0) & (width * (CHUNK_VALUES - num_last) >= (bits - width) * num_last)
    tails = np.where(raw, num_last * bits // 8, np.where(num_last > 0, packed, 0))
    if buffer is not None:
        tail_sizes = buffer.sizes - full_chunks * packed
        raw = (num_last > 0) & (tail_sizes == num_last * bits // 8)
        if (~raw & (tail_sizes != np.where(num_last > 0, packed, 0))).any():
            raise CorruptFileError("a bit-packed buffer's size is not what its values demand")
        starts = buffer.starts
    else:
        sizes = full_chunks * packed + tails
        starts = np.cumsum(sizes) - sizes
    of_block = full_chunks + (num_last > 0)
    last = np.cumsum(of_block) - 1
    counts = np.full(int(of_block.sum()), CHUNK_VALUES, np.int64)
    broken = np.flatnonzero(num_last)
    counts[last[broken]] = num_last[broken]
    is_raw = np.zeros(len(counts), bool)
    is_raw[last[broken]] = raw[broken]
    number = np.arange(len(counts)) - np.repeat(last + 1 - of_block, of_block)
    return _Pieces(counts, np.repeat(starts, of_block) + number * packed, is_raw)


def _copy_raw(
    data: Bytes, starts: IndexArray, counts: IndexArray, out: UIntArray, rows: IndexArray
) -> None:
    width = out.itemsize
    if len(rows) == 1:
        start, count = int(starts[0]), int(counts[0])
        out[rows[0], :count] = data[start : start + count * width].view(out.dtype)
        return
    words = np.ndarray((len(data) - width + 1,), out.dtype, buffer=data, strides=(1,))
    number = ranges(np.zeros_like(counts), counts)
    positions = np.repeat(starts, counts) + number * width
    out[np.repeat(rows, counts), number] = words[positions]


def encode_blocks(
    values: UIntArray, counts: IndexArray
) -> tuple[pb.CompressiveEncoding, ChunkBuffer]:
    """Pack the levels of all chunks of a page, one buffer each, to one width.

    Levels that need all their bits are stored flat.

    Parameters
    ----------
    values : array of uint8, uint16, uint32 or uint64
    counts : int64 array, one element per buffer
        Number of values in each buffer; their sum is the number of values.

    Returns
    -------
    encoding : pb.CompressiveEncoding
    buffers : ChunkBuffer
        Back to back, without padding.
    """
    bits = values.itemsize * 8
    width = max(1, int(values.max(initial=0)).bit_length())
    if width == bits:
        sizes = counts * values.itemsize
        data = np.ascontiguousarray(values).view(np.uint8)
        return flat(bits), ChunkBuffer(data, np.cumsum(sizes) - sizes, sizes)
    pieces = _cut(counts, bits, width)
    sizes_of = np.where(pieces.raw, pieces.counts * values.itemsize, fastlanes.packed_size(width))
    ends = pieces.starts + sizes_of
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    # If all pieces except the last are full, they are a view of the values.
    even = bool((pieces.counts[:-1] == CHUNK_VALUES).all())
    full = len(values) // CHUNK_VALUES if even else 0
    if full:
        table = np.ascontiguousarray(values[: full * CHUNK_VALUES]).reshape(full, CHUNK_VALUES)
        fastlanes.pack_into(data, pieces.starts[:full], table, width)
    counts_left = pieces.counts[full:]
    starts, is_raw = pieces.starts[full:], pieces.raw[full:]
    filled = np.arange(CHUNK_VALUES) < counts_left[:, None]
    rows = np.zeros(filled.shape, values.dtype)
    rows[filled] = values[full * CHUNK_VALUES :]
    packed = np.flatnonzero(~is_raw)
    if len(packed):
        chosen = rows if len(packed) == len(rows) else rows[packed]
        fastlanes.pack_into(data, starts[packed], chosen, width)
    raw = np.flatnonzero(is_raw)
    if len(raw):
        raw_values = rows[raw][filled[raw]]
        data[ranges(starts[raw], sizes_of[full:][raw])] = raw_values.view(np.uint8)
    last = np.cumsum(-(-counts // CHUNK_VALUES))
    sizes = np.diff(np.concatenate([[0], ends])[last], prepend=0)
    encoding = pb.CompressiveEncoding(
        out_of_line_bitpacking=pb.OutOfLineBitpacking(
            uncompressed_bits_per_value=bits, values=flat(width)
        )
    )
    return encoding, ChunkBuffer(data, np.cumsum(sizes) - sizes, sizes)


def encode_block(values: UIntArray) -> tuple[pb.CompressiveEncoding, Bytes]:
    """Pack values into one buffer; see `encode_blocks`."""
    encoding, buffers = encode_blocks(values, np.array([len(values)]))
    return encoding, buffers.data

"""Integers cut to a bit width, which each chunk or the page's description stores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lance_spark.encoding import fastlanes
from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.fastlanes import CHUNK_VALUES
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import (
    BlocksCodec,
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    Encoded,
    UIntArray,
    block_of,
    empty,
    flat,
    flat_bits,
    gather,
    only_buffer,
    ranges,
    require_page_size,
    require_word,
    uint_type,
    values_of,
)
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

# --------------------------------------------------------------------------------------------------
# Integers cut to a bit width that is stored in front of each chunk.
#
# ``InlineBitpacking { uncompressed_bits_per_value = T }``, T = 8, 16, 32 or 64. One buffer per
# chunk:
#
# ==================  ===========================================================================
# bytes               content
# ==================  ===========================================================================
# T / 8               width W of the packed values, little-endian; from 0 to T
# W * 128             1,024 values in the order of `lance_spark.encoding.fastlanes`
# ==================  ===========================================================================
#
# A chunk never has more than 1,024 values; fewer are filled up with zeros. As a block, the same is
# one buffer of up to 1,024 values. Specification: InlineBitpacking in protos/encodings_v2_1.proto.

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
        distinct = set(of_rows.tolist())
        for width in distinct - {0}:
            if len(distinct) == 1:
                # A page of one width needs no copy of the values.
                fastlanes.pack_into(data, chunk_offsets, rows, width)
                continue
            same_width = np.flatnonzero(of_rows == width)
            fastlanes.pack_into(data, chunk_offsets[same_width], rows[same_width], width)
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


# --------------------------------------------------------------------------------------------------
# Integers cut to one bit width, given in the message; the usual form of levels and of indices of
# dictionaries.
#
# ``OutOfLineBitpacking { uncompressed_bits_per_value = T, values = Flat { bits_per_value = W } }``.
# One buffer:
#
# =====================  ========================================================================
# bytes                  content
# =====================  ========================================================================
# W * 128 * (n // 1024)  all whole 1,024 values in the order of `lance_spark.encoding.fastlanes`
# rest                   the last n % 1024 values: either raw, T bits each, or filled up with
#                        zeros and packed, W * 128 bytes
# =====================  ========================================================================
#
# The length of the buffer determines the form of the rest; it is raw if both forms would have the
# same length. Writers choose the raw form if packing saves nothing: ``W * (1024 - rest) >= (T - W)
# * rest``. Specification: OutOfLineBitpacking in protos/encodings_v2_1.proto.


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

"""Fixed-width values without a change.

``Flat { bits_per_value = b }``. One buffer: values back to back, little-endian; b is a multiple of
8, or 1, then value i is bit ``i % 8`` of byte ``i // 8``. Chunks of 1-bit values hold whole bytes
except the last chunk. In full-zip pages the stored values are the values. Specification: Flat in
protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.blocks import (
    DataBlock,
    DictionaryBlock,
    FixedWidthBlock,
    LowHalves,
    unsigned,
)
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    Codec,
    Encoded,
    decode_block,
    empty,
    flat,
    flat_bits,
    gather,
    only_buffer,
    require_page_size,
    values_of,
)
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Fewer chunks in a run than this are not worth a copy for each run.
_MANY_RUNS = 4


class FlatCodec(Codec):
    """Decodes ``Flat``."""

    name = "flat"

    def decode_chunks(self, encoding: pb.Flat, chunks: Chunks) -> FixedWidthBlock:
        return self.decode_blocks(encoding, only_buffer(chunks, "flat values"), chunks.num_values)

    def decode_low(self, encoding: pb.Flat, chunks: Chunks) -> LowHalves | None:
        if _width(encoding) != 128:
            return None
        buffer, counts = only_buffer(chunks, "flat values"), chunks.num_values
        _checked_sizes(buffer, counts, 128)
        heads = _heads_of_runs(buffer.starts, counts)
        if len(heads) * _MANY_RUNS > len(counts):
            words = self.decode_chunks(encoding, chunks).data.view("<u8")
            return LowHalves(np.ascontiguousarray(words[::2]).view(np.uint8), 64, chunks.total)
        halves, position = empty(chunks.total, "<u8"), 0
        for head, end in zip(heads.tolist(), [*heads[1:].tolist(), len(counts)], strict=True):
            count, start = int(counts[head]), int(buffer.starts[head])
            step = int(buffer.starts[head + 1]) - start if end - head > 1 else 0
            low = np.ndarray((end - head, count), "<u8", buffer.data, start, (step, 16))
            halves[position : position + low.size].reshape(low.shape)[...] = low
            position += low.size
        return LowHalves(halves.view(np.uint8), 64, chunks.total)

    def decode_block(self, encoding: pb.Flat, data: Bytes, num_values: int) -> FixedWidthBlock:
        bits = _width(encoding)
        size = -(-num_values * bits // 8)
        if not 0 <= size <= len(data):
            raise CorruptFileError(f"{len(data)} bytes for {num_values} values of {bits} bits")
        return FixedWidthBlock(data[:size], bits, num_values)

    def decode_blocks(
        self, encoding: pb.Flat, buffer: ChunkBuffer, num_values: IndexArray
    ) -> FixedWidthBlock:
        bits = _width(encoding)
        sizes = _checked_sizes(buffer, num_values, bits)
        data = gather(buffer.data, buffer.starts, sizes)
        if bits == 1 and (num_values[:-1] % 8).any():
            data = _without_gaps(data, sizes, num_values)
        return FixedWidthBlock(data, bits, int(num_values.sum()))

    def decode_values(self, encoding: pb.Flat, values: DataBlock) -> FixedWidthBlock:
        bits = _width(encoding)
        if not isinstance(values, FixedWidthBlock) or values.bits_per_value != bits:
            raise CorruptFileError(f"the page's values are not stored in the {bits} bits they have")
        return values


def _width(encoding: pb.Flat) -> int:
    bits = int(encoding.bits_per_value)
    if encoding.HasField("data"):
        raise UnsupportedEncodingError("flat values that went through a compressor")
    if bits != 1 and (bits % 8 or not 0 < bits < 1 << 32):
        raise UnsupportedEncodingError(f"flat values of {bits} bits")
    return bits


def _checked_sizes(buffer: ChunkBuffer, num_values: IndexArray, bits: int) -> IndexArray:
    """Return the bytes that the values of each chunk take.

    Raises CorruptFileError: a chunk has fewer.
    """
    if int(num_values.min(initial=0)) < 0 or int(num_values.max(initial=0)) > (1 << 62) // bits:
        raise CorruptFileError("a chunk has an impossible number of values")
    sizes: IndexArray = -(-num_values * bits // 8)
    if (sizes > buffer.sizes).any():
        raise CorruptFileError(f"a chunk is too short for its values of {bits} bits")
    return sizes


def _heads_of_runs(starts: IndexArray, counts: IndexArray) -> IndexArray:
    """Return the first chunks of runs of as many values each, at one distance."""
    steps = np.diff(starts)
    is_head = np.ones(len(starts), np.bool_)
    is_head[1:] = counts[1:] != counts[:-1]
    is_head[2:] |= steps[1:] != steps[:-1]
    return np.flatnonzero(is_head)


def _without_gaps(data: Bytes, sizes: IndexArray, num_values: IndexArray) -> Bytes:
    """Return 1-bit values as one run of bits, if their chunks do not end at whole bytes."""
    bits = np.unpackbits(data, bitorder="little").view(np.bool_)
    used = np.empty(2 * len(sizes), np.int64)
    used[0::2] = num_values
    used[1::2] = sizes * 8 - num_values
    is_value = np.repeat(np.tile([True, False], len(sizes)), used)
    return np.packbits(bits[is_value], bitorder="little")


def _fixed(block: DataBlock) -> FixedWidthBlock:
    if not isinstance(block, FixedWidthBlock):
        raise InvalidInputError("only values of fixed width can be stored flat")
    return block


def encode_chunks(block: DataBlock, limits: ChunkLimits) -> Encoded:
    """Cut values into chunks of the largest power of two that the limits allow.

    Raises InvalidInputError: a chunk cannot hold two values, or the block has no fixed width.
    """
    block = _fixed(block)
    bits, total = block.bits_per_value, block.num_values
    fit = min(limits.max_bytes * 8 // bits, limits.max_values)
    step = 1 << fit.bit_length() - 1 if fit else 0
    if step < (2 if bits % 8 == 0 else 8):
        raise InvalidInputError(f"values of {bits} bits are too wide for mini-blocks")
    counts = np.full(-(-total // step), step, np.int64)
    counts[total // step :] = total % step
    starts = np.arange(len(counts)) * (step * bits // 8)
    buffer = ChunkBuffer(block.data, starts, -(-counts * bits // 8))
    return flat(bits), Chunks((buffer,), counts)


def encode_block(block: FixedWidthBlock) -> tuple[pb.CompressiveEncoding, Bytes]:
    """Return values as one buffer, without copying."""
    size = -(-block.num_values * block.bits_per_value // 8)
    return flat(block.bits_per_value), block.data[:size]


def encode_values(block: DataBlock) -> tuple[pb.CompressiveEncoding, FixedWidthBlock]:
    """Return values as a full-zip page stores them: unchanged.

    Raises InvalidInputError: the values do not have whole bytes.
    """
    block = _fixed(block)
    if block.bits_per_value % 8:
        raise InvalidInputError(f"values of {block.bits_per_value} bits in a full-zip page")
    return flat(block.bits_per_value), block


# --------------------------------------------------------------------------------------------------
# One value for all slots.
#
# ``Constant { value }``: the bytes of the value are in the message, and there is no buffer. Without
# a value all slots are null, as values of 0 bits: pylance writes vectors of nulls so.
# Specification: Constant in protos/encodings_v2_1.proto.


class ConstantCodec(Codec):
    """Decodes ``Constant``."""

    name = "constant"

    def decode_chunks(self, encoding: pb.Constant, chunks: Chunks) -> FixedWidthBlock:
        return _repeated(encoding, chunks.total)

    def decode_block(self, encoding: pb.Constant, data: Bytes, num_values: int) -> FixedWidthBlock:
        return _repeated(encoding, num_values)

    def decode_blocks(
        self, encoding: pb.Constant, buffer: ChunkBuffer, num_values: IndexArray
    ) -> FixedWidthBlock:
        return _repeated(encoding, int(num_values.sum()))

    def decode_values(self, encoding: pb.Constant, values: DataBlock) -> FixedWidthBlock:
        return _repeated(encoding, values.num_values)


def _repeated(encoding: pb.Constant, num_values: int) -> FixedWidthBlock:
    bits = len(encoding.value) * 8
    require_page_size(num_values, bits)
    value = np.frombuffer(encoding.value, np.uint8)
    data = np.empty((num_values, len(value)), np.uint8)
    data[...] = value
    return FixedWidthBlock(data.reshape(-1), bits, num_values)


# --------------------------------------------------------------------------------------------------
# Floats split into one stream per byte, so that similar bytes are adjacent for a compressor.
#
# ``ByteStreamSplit { values = Flat { bits_per_value = b } }``, b = 32 or 64. One buffer per chunk
# of n values:
#
# =============  ===================================
# bytes          content
# =============  ===================================
# n              byte 0 of all values (the lowest)
# n              byte 1 of all values
# ...            up to byte b / 8 - 1
# =============  ===================================
#
# Specification: ByteStreamSplit in protos/encodings_v2_1.proto.

#: Bytes of a chunk: 1,024 values of 32 bits, 512 of 64.
_CHUNK_BYTES = 4096

#: Bytes that are processed at once, so that they stay in the cache.
_GROUP_BYTES = 128 << 10


class ByteStreamSplitCodec(Codec):
    """Decodes ``ByteStreamSplit``."""

    name = "byte_stream_split"

    def decode_chunks(self, encoding: pb.ByteStreamSplit, chunks: Chunks) -> FixedWidthBlock:
        bits = flat_bits(encoding.values, "byte stream split")
        if bits not in (32, 64):
            raise UnsupportedEncodingError(f"byte stream split of values of {bits} bits")
        buffer = only_buffer(chunks, "split values")
        counts = chunks.num_values
        sizes = counts * (bits // 8)
        if (sizes != buffer.sizes).any() or int(counts.min(initial=0)) < 0:
            raise CorruptFileError(f"a chunk's size is not that of its split values of {bits} bits")
        data = gather(buffer.data, buffer.starts, sizes)
        values = np.empty(len(data), np.uint8)
        position = 0
        # Consecutive chunks of one size are one array; a page has two such runs, or a few if rows
        # were selected.
        cuts = np.flatnonzero(np.diff(counts)) + 1
        for run in np.split(counts, cuts):
            count = int(run[0]) if len(run) else 0
            size = len(run) * count * (bits // 8)
            if size:
                _join(
                    data[position : position + size],
                    values[position : position + size],
                    count,
                    bits // 8,
                )
            position += size
        return FixedWidthBlock(values, bits, chunks.total)


def _join(data: Bytes, out: Bytes, count: int, width: int) -> None:
    """Put the streams of chunks of `count` values together."""
    streams = data.reshape(-1, width, count)
    values = out.reshape(-1, count, width)
    step = max(1, _GROUP_BYTES // (count * width))
    for position in range(0, len(values), step):
        # Stream by stream: otherwise numpy's innermost loop would have the few bytes of a value.
        for byte in range(width):
            values[position : position + step, :, byte] = streams[position : position + step, byte]


def encode_byte_streams(block: DataBlock, limits: ChunkLimits) -> Encoded:
    """Split values in chunks of 4 KiB, or less if the limits demand it.

    Raises InvalidInputError: the values do not have 32 or 64 bits.
    """
    values = values_of(block)
    width = values.itemsize
    if width < 4:
        raise InvalidInputError(f"values of {width * 8} bits cannot be split into byte streams")
    fit = min(min(limits.max_bytes, _CHUNK_BYTES) // width, limits.max_values)
    step = 1 << fit.bit_length() - 1
    full = len(values) // step
    rows = values[: full * step].view(np.uint8).reshape(full, step, width)
    data = np.empty(len(values) * width, np.uint8)
    data[: rows.size].reshape(full, width, step)[...] = rows.transpose(0, 2, 1)
    num_last = len(values) - full * step
    if num_last:
        last = values[full * step :].view(np.uint8).reshape(num_last, width)
        data[rows.size :].reshape(width, num_last)[...] = last.T
    counts = np.full(full + bool(num_last), step, np.int64)
    counts[full:] = num_last
    buffer = ChunkBuffer(data, np.arange(len(counts)) * (step * width), counts * width)
    encoding = pb.CompressiveEncoding(byte_stream_split=pb.ByteStreamSplit(values=flat(width * 8)))
    return encoding, Chunks((buffer,), counts)


# --------------------------------------------------------------------------------------------------
# Dictionary as a compressive encoding: indices and items in one buffer.
#
# ``Dictionary { indices, items, num_dictionary_items }``. Single buffers only:
#
# =====================  ==========================================================
# bytes                  content
# =====================  ==========================================================
# 8                      length of the indices in bytes, little-endian
# 8                      length of the items
# length of indices      which item each value is, as `indices` says
# length of items        `num_dictionary_items` items, as `items` says
# =====================  ==========================================================
#
# The dictionary of a page is something else: a separate buffer, described in
# `MiniBlockLayout.dictionary`. Specification: Dictionary in protos/encodings_v2_1.proto.

_HEADER = 16


class DictionaryCodec(Codec):
    """Decodes ``Dictionary``."""

    name = "dictionary"

    def decode_block(self, encoding: pb.Dictionary, data: Bytes, num_values: int) -> DataBlock:
        if len(data) < _HEADER:
            raise CorruptFileError(f"a dictionary in {len(data)} bytes")
        first, second = (
            int.from_bytes(data[position : position + 8].tobytes(), "little")
            for position in range(0, _HEADER, 8)
        )
        if first + second != len(data) - _HEADER:
            raise CorruptFileError(
                f"indices of {first} bytes and items of {second} bytes in a buffer of {len(data)}"
            )
        middle = _HEADER + first
        indices = decode_block(encoding.indices, data[_HEADER:middle], num_values)
        items = decode_block(encoding.items, data[middle:], encoding.num_dictionary_items)
        if not isinstance(indices, FixedWidthBlock):
            raise CorruptFileError("the indices of a dictionary are not numbers")
        if isinstance(items, FixedWidthBlock) and items.bits_per_value % 8 == 0:
            return _look_up(indices, items)
        return DictionaryBlock(indices, items)


def _look_up(indices: FixedWidthBlock, items: FixedWidthBlock) -> FixedWidthBlock:
    positions = unsigned(indices)
    if len(positions) and int(positions.max()) >= items.num_values:
        raise CorruptFileError(
            f"index {int(positions.max())} in a dictionary of {items.num_values} items"
        )
    require_page_size(len(positions), items.bits_per_value)
    width = items.bits_per_value // 8
    table = items.data[: items.num_values * width].reshape(items.num_values, width)
    result = np.take(table, positions.astype(np.int64), axis=0)
    return FixedWidthBlock(result.reshape(-1), items.bits_per_value, len(positions))

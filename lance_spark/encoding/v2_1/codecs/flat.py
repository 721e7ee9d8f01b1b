"""Fixed-width values without a change.

``Flat { bits_per_value = b }``. One buffer: values back to back, little-endian; b is a multiple of
8, or 1, then value i is bit ``i % 8`` of byte ``i // 8``. Chunks of 1-bit values hold whole bytes
except the last chunk. In full-zip pages the stored values are the values. Specification: Flat in
protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import ChunkBuffer, ChunkLimits, Chunks, Codec, Encoded
from lance_spark.encoding.v2_1.fixed_width import flat, gather, only_buffer
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes


class FlatCodec(Codec):
    """Decodes ``Flat``."""

    name = "flat"

    def decode_chunks(self, encoding: pb.Flat, chunks: Chunks) -> FixedWidthBlock:
        return self.decode_blocks(encoding, only_buffer(chunks, "flat values"), chunks.num_values)

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
        if int(num_values.min(initial=0)) < 0 or int(num_values.max(initial=0)) > (1 << 62) // bits:
            raise CorruptFileError("a chunk has an impossible number of values")
        sizes = -(-num_values * bits // 8)
        if (sizes > buffer.sizes).any():
            raise CorruptFileError(f"a chunk is too short for its values of {bits} bits")
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

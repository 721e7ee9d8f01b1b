"""Floats split into one stream per byte, so that similar bytes are adjacent for a compressor.

``ByteStreamSplit { values = Flat { bits_per_value = b } }``, b = 32 or 64. One buffer per chunk of
n values:

=============  ===================================
bytes          content
=============  ===================================
n              byte 0 of all values (the lowest)
n              byte 1 of all values
...            up to byte b / 8 - 1
=============  ===================================

Specification: ByteStreamSplit in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.v2_1.codec import ChunkBuffer, ChunkLimits, Chunks, Codec, Encoded
from lance_spark.encoding.v2_1.fixed_width import flat, flat_bits, gather, only_buffer, values_of
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

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


def encode_chunks(block: DataBlock, limits: ChunkLimits) -> Encoded:
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

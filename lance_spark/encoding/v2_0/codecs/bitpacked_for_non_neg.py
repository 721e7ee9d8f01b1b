"""`BitpackedForNonNeg`: integers cut to their lowest W bits, in chunks of 1,024.

A chunk takes ``128 * W`` bytes, in the order of `lance_spark.encoding.fastlanes` for the width of
the type. All chunks have one W (`compressed_bits_per_value`, 1 to the width of the type) and lie
back to back; the last one is filled up with zeros.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lance_spark.encoding import fastlanes
from lance_spark.encoding.arrow_blocks import from_block
from lance_spark.encoding.blocks import FixedWidthBlock
from lance_spark.encoding.fastlanes import CHUNK_VALUES
from lance_spark.encoding.rows import Rows, expanded
from lance_spark.encoding.v2_0.codecs.flat import check_width
from lance_spark.encoding.v2_0.page import Decoder, PageBuffers, read_slots
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, ReadPlan


class ChunkedValues:
    """Integers out of packed chunks."""

    def __init__(self, buffer: ByteRange, width: int, bits: int, dtype: pa.DataType) -> None:
        self._buffer = buffer
        self._width = width
        self._bits = bits
        self._dtype = dtype

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        rows = expanded(rows, per_row)
        if isinstance(rows, range):
            stop = -(-rows.stop // CHUNK_VALUES) if len(rows) else 0
            chunks: Rows = range(rows.start // CHUNK_VALUES, stop)
            first = rows.start % CHUNK_VALUES
            indices: slice | np.ndarray = slice(first, first + len(rows))
        else:
            chunks, chunk_index = np.unique(rows // CHUNK_VALUES, return_inverse=True)
            indices = chunk_index * CHUNK_VALUES + rows % CHUNK_VALUES
        size = fastlanes.packed_size(self._width)
        data = yield from read_slots(self._buffer, size, chunks)
        values = np.empty((len(chunks), CHUNK_VALUES), f"<u{self._bits // 8}")
        if len(chunks):
            fastlanes.unpack(data, np.arange(len(chunks)) * size, self._width, values)
        chosen = values.reshape(-1)[indices].view(np.uint8)
        return from_block(FixedWidthBlock(chosen, self._bits, len(rows)), self._dtype)


def open_message(
    message: pb.BitpackedForNonNeg, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `BitpackedForNonNeg` message; see `open_encoding`."""
    width, bits = message.compressed_bits_per_value, message.uncompressed_bits_per_value
    check_width(width, bits, dtype)
    buffer = buffers.find(message.buffer)
    chunks = -(-(count or 0) // CHUNK_VALUES)
    if chunks * fastlanes.packed_size(width) > buffer.length:
        raise CorruptFileError(
            f"a buffer of {buffer.length} bytes cannot hold {chunks} chunks of values of {width} "
            "bits"
        )
    return ChunkedValues(buffer, width, bits, dtype)

"""One value for all slots.

``Constant { value }``: the bytes of the value are in the message, and there is no buffer. Without a
value all slots are null, as values of 0 bits: pylance writes vectors of nulls so. Specification:
Constant in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import ChunkBuffer, Chunks, Codec
from lance_spark.encoding.v2_1.fixed_width import require_page_size
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes


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

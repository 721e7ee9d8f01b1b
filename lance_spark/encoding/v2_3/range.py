"""Numbers at equal steps; nothing is stored.

``Range { uncompressed_bits_per_value = b, start, step }``, b = 32 or 64: value i is ``start + i *
step``. The step is positive. As values of many buffers (offsets of strings in mini-block chunks)
each buffer has a range of its own, from `start` on. Specification: Range in
protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.blocks import FixedWidthBlock
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import ChunkBuffer, Codec
from lance_spark.encoding.v2_1.fixed_width import block_of, ranges, uint_type
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Maximum number of values, which the file does not bound; chunks and items of pages have fewer.
_MAX_VALUES = 1 << 22


class RangeCodec(Codec):
    """Decodes ``Range``."""

    name = "range"

    def decode_block(self, encoding: pb.Range, data: Bytes, num_values: int) -> FixedWidthBlock:
        return _stepped(encoding, np.array([num_values]))

    def decode_blocks(
        self, encoding: pb.Range, buffer: ChunkBuffer, num_values: IndexArray
    ) -> FixedWidthBlock:
        return _stepped(encoding, num_values)


def require_sequence_word(bits: int) -> int:
    """Return `bits` if it is 32 or 64, the widths of the numbers of sequences.

    Raises UnsupportedEncodingError: the width is not 32 or 64.
    """
    if bits not in (32, 64):
        raise UnsupportedEncodingError(f"a sequence of numbers of {bits} bits")
    return bits


def require_range(encoding: pb.Range, num_values: int) -> None:
    """Raise CorruptFileError unless the last of `num_values` numbers fits the width."""
    bits = require_sequence_word(int(encoding.uncompressed_bits_per_value))
    if encoding.start + encoding.step * max(num_values - 1, 0) >= 1 << bits:
        raise CorruptFileError(
            f"{num_values} numbers from {encoding.start} at steps of {encoding.step} do not fit "
            f"{bits} bits"
        )


def _stepped(encoding: pb.Range, num_values: IndexArray) -> FixedWidthBlock:
    longest = int(num_values.max(initial=0))
    if longest > _MAX_VALUES or int(num_values.sum()) > _MAX_VALUES * 16:
        raise CorruptFileError(f"{int(num_values.sum())} numbers that are stored nowhere")
    require_range(encoding, longest)
    dtype = uint_type(int(encoding.uncompressed_bits_per_value))
    indices = ranges(np.zeros_like(num_values), num_values).astype(dtype)
    # A single number may have any step.
    step = dtype.type(encoding.step if longest > 1 else 0)
    return block_of(indices * step + dtype.type(encoding.start))

"""Numbers that never decrease, stored as the first number and the differences between neighbours.

``Delta { uncompressed_bits_per_value = b, base, deltas }``, b = 32 or 64. `deltas` is the encoding
of the differences, one fewer than values. As values of many buffers (offsets of strings in
mini-block chunks) each buffer starts at `base` again. Specification: Delta in
protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.arrow_blocks import unsigned
from lance_spark.encoding.blocks import FixedWidthBlock
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import BlocksCodec, ChunkBuffer, decode_blocks
from lance_spark.encoding.v2_1.fixed_width import UIntArray, block_of, uint_type
from lance_spark.encoding.v2_3.range import require_sequence_word
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb


class DeltaCodec(BlocksCodec):
    """Decodes ``Delta``."""

    name = "delta"

    def decode_blocks(
        self, encoding: pb.Delta, buffer: ChunkBuffer, num_values: IndexArray
    ) -> FixedWidthBlock:
        base, deltas = differences(encoding, buffer, num_values)
        bits = int(encoding.uncompressed_bits_per_value)
        return block_of(_summed(base, deltas, num_values, bits))


def differences(
    encoding: pb.Delta, buffer: ChunkBuffer, num_values: IndexArray
) -> tuple[int, UIntArray]:
    """Return the first number of every buffer, and the differences between neighbours; all sums fit
    62 bits.

    - `num_values` (int64 array, one element per buffer): Number of numbers in each buffer, one more
      than differences.

    Raises CorruptFileError: a buffer has no number, or the number of differences is wrong.
    """
    require_sequence_word(int(encoding.uncompressed_bits_per_value))
    if int(num_values.min(initial=1)) < 1:
        raise CorruptFileError("differences between no values")
    counts = num_values - 1
    deltas = unsigned(decode_blocks(encoding.deltas, buffer, counts))
    if len(deltas) != int(counts.sum()):
        raise CorruptFileError(f"{len(deltas)} differences instead of {int(counts.sum())}")
    # The sum itself may be too large to be computed.
    if encoding.base >= 1 << 62 or (
        int(deltas.max(initial=0)) * len(deltas) >= 1 << 62
        and float(deltas.sum(dtype=np.float64)) >= float(1 << 62)
    ):
        raise CorruptFileError("the sums of differences do not fit 62 bits")
    return int(encoding.base), deltas


def _summed(base: int, deltas: UIntArray, num_values: IndexArray, bits: int) -> UIntArray:
    starts = np.cumsum(num_values) - num_values
    inner = np.ones(int(num_values.sum()), np.bool_)
    inner[starts] = False
    sums = np.zeros(len(inner), np.int64)
    sums[inner] = deltas
    np.cumsum(sums, out=sums)
    sums += base - np.repeat(sums[starts], num_values)
    if int(sums.max(initial=0)) >= 1 << bits:
        raise CorruptFileError(f"the sums of differences do not fit {bits} bits")
    return sums.astype(uint_type(bits), copy=False)

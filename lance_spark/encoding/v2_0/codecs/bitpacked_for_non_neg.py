"""`BitpackedForNonNeg`: integers cut to their lowest W bits, in chunks of 1,024.

A chunk takes ``128 * W`` bytes, in the order of `lance_spark.encoding.fastlanes` for the width of
the type. All chunks have one W (`compressed_bits_per_value`, 1 to the width of the type) and lie
back to back; the last one is filled up with zeros.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding import fastlanes
from lance_spark.encoding.fastlanes import CHUNK_VALUES
from lance_spark.encoding.v2_0.codecs.flat import PackedValues, check_width
from lance_spark.encoding.v2_0.page import Decoder, PageBuffers
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import Bytes


class ChunkedValues(PackedValues):
    """Integers out of packed chunks."""

    group_values = CHUNK_VALUES

    def _unpack(self, data: Bytes, num_groups: int) -> npt.NDArray[np.unsignedinteger]:
        values = np.empty((num_groups, CHUNK_VALUES), f"<u{self._bits // 8}")
        if num_groups:
            starts = np.arange(num_groups) * fastlanes.packed_size(self._width)
            fastlanes.unpack(data, starts, self._width, values)
        return values.reshape(-1)


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

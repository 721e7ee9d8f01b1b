"""`Bitpacked`: integers cut to their lowest W bits, back to back without regard to bytes.

Value i takes the bits ``i * W`` to ``(i + 1) * W - 1`` of the buffer, counted from the lowest bit
of the first byte. With `signed`, the highest of its bits is repeated up to the width of the type.
Eight values take W bytes, so that a group of eight starts at a byte: groups are the unit of
reading. W is `compressed_bits_per_value`, 1 to 64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.v2_0.codecs.flat import PackedValues, check_width
from lance_spark.encoding.v2_0.page import Decoder, PageBuffers
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes

Words = npt.NDArray[np.uint64]


class BitpackedValues(PackedValues):
    """Integers of any number of bits."""

    group_values = 8

    def __init__(
        self, buffer: ByteRange, width: int, bits: int, signed: bool, dtype: pa.DataType
    ) -> None:
        super().__init__(buffer, width, bits, dtype)
        self._signed = signed

    def _unpack(self, data: Bytes, num_groups: int) -> npt.NDArray[np.unsignedinteger]:
        words = unpack(data, self._width)
        if self._signed:
            sign = np.uint64(1 << (self._width - 1))
            words = (words ^ sign) - sign
        return words.astype(f"<u{self._bits // 8}")


def unpack(data: Bytes, width: int) -> Words:
    """Return all values of `width` bits in a whole number of groups of eight."""
    groups = len(data) // width
    padded = np.concatenate([data, np.zeros(16, np.uint8)])
    out = np.empty((groups, 8), np.uint64)
    mask = np.uint64((1 << width) - 1)
    for index in range(8):
        # Values at the same place in their groups are one stride apart.
        position, shift = divmod(index * width, 8)
        low = np.ndarray((groups,), "<u8", buffer=padded, offset=position, strides=(width,))
        values = low >> np.uint64(shift)
        if shift + width > 64:
            high = np.ndarray((groups,), "u1", buffer=padded, offset=position + 8, strides=(width,))
            values |= high.astype(np.uint64) << np.uint64(64 - shift)
        out[:, index] = values & mask
    return out.reshape(-1)


def open_message(
    message: pb.Bitpacked, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `Bitpacked` message; see `open_encoding`."""
    width, bits = message.compressed_bits_per_value, message.uncompressed_bits_per_value
    check_width(width, bits, dtype)
    buffer = buffers.find(message.buffer)
    if (count or 0) * width > buffer.length * 8:
        raise CorruptFileError(
            f"a buffer of {buffer.length} bytes cannot hold {count} values of {width} bits"
        )
    return BitpackedValues(buffer, width, bits, message.signed, dtype)

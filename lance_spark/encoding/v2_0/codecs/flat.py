"""`Flat`: values of one width back to back in one buffer.

================  ==============================================================================
bits_per_value    bytes of the buffer
================  ==============================================================================
1                 ``ceil(count / 8)``: value i is bit ``i % 8`` of byte ``i // 8``, lowest first
8, 16, 24, ...    ``count * bits_per_value / 8``, little-endian
0                 none: values of no width
================  ==============================================================================

With `compression`, the buffer is the compressed form of these bytes (see
`encoding/compression.py`), and must be read as a whole.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import fixed_width, from_block, to_block
from lance_spark.encoding.blocks import FixedWidthBlock
from lance_spark.encoding.compression import MAX_SIZE, compress, decompress
from lance_spark.encoding.rows import RowNumbers, Rows, expanded
from lance_spark.encoding.v2_0.page import (
    Decoder,
    NewBuffers,
    PageBuffers,
    last_of,
    pick_slots,
    read_slots,
)
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError, UnsupportedTypeError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

_RAW_SCHEMES = ("", "none")
_SCHEMES = ("lz4", "zstd")
#: Bytes that compressed values may have in addition to the needed bytes.
_SLACK = 1 << 20


class FlatValues:
    """Values of a multiple of 8 bits."""

    def __init__(self, buffer: ByteRange, bits: int, dtype: pa.DataType, count: int) -> None:
        self._buffer = buffer
        self._bits = bits
        self._dtype = dtype
        self._count = count

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        if len(rows) and (last_of(rows) + 1) * per_row > self._count:
            raise CorruptFileError(
                f"value {(last_of(rows) + 1) * per_row - 1} lies outside the {self._count} that "
                "the buffer holds"
            )
        data = yield from read_slots(self._buffer, self._bits // 8 * per_row, rows)
        return from_block(FixedWidthBlock(data, self._bits, len(rows) * per_row), self._dtype)


class CompressedValues:
    """The same values in a compressed buffer, which is decompressed at the first read and kept."""

    def __init__(
        self, buffer: ByteRange, scheme: str, bits: int, dtype: pa.DataType, count: int | None
    ) -> None:
        self._buffer = buffer
        self._scheme = scheme
        self._bits = bits
        self._dtype = dtype
        # The offsets define the bytes of strings, but are unknown here.
        self._most = MAX_SIZE if count is None else min(MAX_SIZE, count * bits // 4 + _SLACK)
        self._values: Bytes | None = None

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        width = self._bits // 8
        if not len(rows):
            return pa.nulls(0, self._dtype)
        if self._values is None:
            (data,) = yield [self._buffer]
            self._values = decompress(self._scheme, data, self._most)
        if (last_of(rows) + 1) * per_row * width > len(self._values):
            raise CorruptFileError(
                f"value {(last_of(rows) + 1) * per_row - 1} of {width} bytes lies outside the "
                f"{len(self._values)} decompressed bytes"
            )
        data = pick_slots(self._values, width * per_row, rows)
        return from_block(FixedWidthBlock(data, self._bits, len(rows) * per_row), self._dtype)


class FlatBits:
    """Booleans and validity bitmaps."""

    def __init__(self, buffer: ByteRange) -> None:
        self._buffer = buffer

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        rows = expanded(rows, per_row)
        count = len(rows)
        if isinstance(rows, range):
            covering = range(rows.start // 8, (rows.stop + 7) // 8) if count else range(0)
            data = yield from read_slots(self._buffer, 1, covering)
            bits = [None, pa.py_buffer(data)]
            return pa.Array.from_buffers(pa.bool_(), count, bits, offset=rows.start % 8)
        data = yield from read_slots(self._buffer, 1, rows >> 3)
        flags = (data >> (rows & 7).astype(np.uint8)) & 1
        packed = pa.py_buffer(np.packbits(flags, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), count, [None, packed])


class PackedValues:
    """Base of the decoders of integers that are packed in groups of `group_values`."""

    group_values: ClassVar[int]

    def __init__(self, buffer: ByteRange, width: int, bits: int, dtype: pa.DataType) -> None:
        self._buffer = buffer
        self._width = width
        self._bits = bits
        self._dtype = dtype

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        rows = expanded(rows, per_row)
        size = self.group_values
        if isinstance(rows, range):
            groups: Rows = range(rows.start // size, -(-rows.stop // size) if len(rows) else 0)
            first = rows.start % size
            indices: slice | RowNumbers = slice(first, first + len(rows))
        else:
            groups, group_index = np.unique(rows // size, return_inverse=True)
            indices = group_index * size + rows % size
        data = yield from read_slots(self._buffer, self._width * size // 8, groups)
        values = self._unpack(data, len(groups))[indices]
        return from_block(
            FixedWidthBlock(values.view(np.uint8), self._bits, len(rows)), self._dtype
        )

    def _unpack(self, data: Bytes, num_groups: int) -> npt.NDArray[np.unsignedinteger]:
        """Return the values of whole groups, of the width of the type."""
        raise NotImplementedError


def open_message(
    message: pb.Flat, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `Flat` message; see `open_encoding`."""
    bits = message.bits_per_value
    buffer = buffers.find(message.buffer)
    scheme = message.compression.scheme
    if bits == 1:
        if not pat.is_boolean(dtype):
            raise CorruptFileError(f"values of 1 bit store a column of type {dtype}")
        if scheme not in _RAW_SCHEMES:
            raise UnsupportedEncodingError(f"compression {scheme!r} of 1-bit values cannot be read")
        _require(buffer, ((count or 0) + 7) // 8, bits, count)
        return FlatBits(buffer)
    if bits % 8:
        raise UnsupportedEncodingError(f"flat values of {bits} bits cannot be read")
    if not _stores(bits, dtype):
        raise CorruptFileError(f"values of {bits} bits store a column of type {dtype}")
    if scheme not in _RAW_SCHEMES:
        if scheme not in _SCHEMES:
            raise UnsupportedEncodingError(f"compression scheme {scheme!r} is not known")
        return CompressedValues(buffer, scheme, bits, dtype, count)
    if count is None:
        return FlatValues(buffer, bits, dtype, buffer.length * 8 // bits if bits else 0)
    _require(buffer, count * bits // 8, bits, count)
    return FlatValues(buffer, bits, dtype, count)


def _stores(bits: int, dtype: pa.DataType) -> bool:
    if pat.is_boolean(dtype):
        return bits == 8
    if pat.is_fixed_size_binary(dtype):
        return bits == 8 * int(dtype.byte_width)
    plain = not (pat.is_nested(dtype) or pat.is_dictionary(dtype))
    return plain and bits > 0 and bits == fixed_width(dtype)


def _require(buffer: ByteRange, size: int, bits: int, count: int | None) -> None:
    if buffer.length < size:
        raise CorruptFileError(
            f"a buffer of {buffer.length} bytes cannot hold {count} values of {bits} bits"
        )


def width_of(encoding: pb.ArrayEncoding) -> int:
    """Return the bits per value of a fixed-width encoding without nulls; 0 for others."""
    name = encoding.WhichOneof("array_encoding")
    if name == "nullable":
        inner = encoding.nullable.WhichOneof("nullability")
        if inner == "no_nulls":
            return width_of(encoding.nullable.no_nulls.values)
        if inner == "some_nulls":
            return width_of(encoding.nullable.some_nulls.values)
        return 0
    if name == "flat":
        return encoding.flat.bits_per_value
    if name == "bitpacked":
        return encoding.bitpacked.uncompressed_bits_per_value
    if name == "bitpacked_for_non_neg":
        return encoding.bitpacked_for_non_neg.uncompressed_bits_per_value
    return 0


def check_width(width: int, bits: int, dtype: pa.DataType) -> None:
    """Check the two widths of bit-packed values of a type.

    Raises CorruptFileError: `bits` is not the width of the type, one of 8, 16, 32 and 64, or
    `width` is not 1 to `bits`.
    """
    if bits not in (8, 16, 32, 64) or not _stores(bits, dtype) or pat.is_boolean(dtype):
        raise CorruptFileError(f"packed values of {bits} bits store a column of type {dtype}")
    if not 0 < width <= bits:
        raise CorruptFileError(f"values of {bits} bits are packed to {width} bits")


def encode(
    data: Bytes | pa.Buffer | bytes,
    bits: int,
    buffers: NewBuffers,
    compression: str | None = None,
    level: int | None = None,
) -> pb.ArrayEncoding:
    """Return the message for values back to back, whose buffer is appended to `buffers`.

    - `data` (uint8 array, pa.Buffer or bytes): The values, little-endian; values of 1 bit are
      packed.
    - `bits`: Bits per value.
    - `compression`: ``lz4`` or ``zstd``; only for values of whole bytes. A buffer that is too long
      to be decompressed again is not compressed.
    - `level`: Level of zstd.
    """
    message = pb.Flat(bits_per_value=bits)
    raw = np.frombuffer(data, np.uint8)
    if compression is not None and len(raw) <= MAX_SIZE:
        message.compression.scheme = compression
        if level is not None and compression == "zstd":
            message.compression.level = level
        message.buffer.CopyFrom(buffers.add(compress(compression, raw, level)))
    else:
        message.buffer.CopyFrom(buffers.add(raw))
    return pb.ArrayEncoding(flat=message)


def encode_values(array: pa.Array, buffers: NewBuffers) -> pb.ArrayEncoding:
    """Return the message for the values of an array of a fixed-width type; null slots keep their
    content.

    Raises UnsupportedTypeError: values of the type have no fixed width, or neither 1 bit nor whole
    bytes.
    """
    block = to_block(array)
    if not isinstance(block, FixedWidthBlock):
        raise UnsupportedTypeError(f"values of type {array.type} have no fixed width")
    size = (block.num_values * block.bits_per_value + 7) // 8
    return encode(block.data[:size], block.bits_per_value, buffers)

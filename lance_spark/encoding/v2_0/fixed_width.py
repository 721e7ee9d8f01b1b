"""Encodings of fixed-width values, nulls and structs in pages of file version 2.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding import fastlanes
from lance_spark.encoding.blocks import (
    FixedWidthBlock,
    bitmap,
    fixed_width,
    flags_of,
    from_block,
    from_bytes,
    to_block,
    unstored_nulls,
    validity_of,
    vector_items,
    with_validity,
)
from lance_spark.encoding.compression import MAX_SIZE, compress, decompress
from lance_spark.encoding.fastlanes import CHUNK_VALUES
from lance_spark.encoding.rows import RowNumbers, Rows, expanded
from lance_spark.encoding.v2_0.page import (
    Decoder,
    NewBuffers,
    PageBuffers,
    last_of,
    open_encoding,
    pick_slots,
    read_slots,
)
from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    UnsupportedEncodingError,
    UnsupportedTypeError,
)
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan, gather_plans

# --------------------------------------------------------------------------------------------------
# `Flat`: values of one width back to back in one buffer.
#
# ================  ==============================================================================
# bits_per_value    bytes of the buffer
# ================  ==============================================================================
# 1                 ``ceil(count / 8)``: value i is bit ``i % 8`` of byte ``i // 8``, lowest first
# 8, 16, 24, ...    ``count * bits_per_value / 8``, little-endian
# 0                 none: values of no width
# ================  ==============================================================================
#
# With `compression`, the buffer is the compressed form of these bytes (see
# `encoding/compression.py`), and must be read as a whole.

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


def open_flat(
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


def encode_flat(
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
    return encode_flat(block.data[:size], block.bits_per_value, buffers)


# --------------------------------------------------------------------------------------------------
# `Bitpacked`: integers cut to their lowest W bits, back to back without regard to bytes.
#
# Value i takes the bits ``i * W`` to ``(i + 1) * W - 1`` of the buffer, counted from the lowest bit
# of the first byte. With `signed`, the highest of its bits is repeated up to the width of the type.
# Eight values take W bytes, so that a group of eight starts at a byte: groups are the unit of
# reading. W is `compressed_bits_per_value`, 1 to 64.

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


def open_bitpacked(
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


# --------------------------------------------------------------------------------------------------
# `BitpackedForNonNeg`: integers cut to their lowest W bits, in chunks of 1,024.
#
# A chunk takes ``128 * W`` bytes, in the order of `lance_spark.encoding.fastlanes` for the width of
# the type. All chunks have one W (`compressed_bits_per_value`, 1 to the width of the type) and lie
# back to back; the last one is filled up with zeros.


class ChunkedValues(PackedValues):
    """Integers out of packed chunks."""

    group_values = CHUNK_VALUES

    def _unpack(self, data: Bytes, num_groups: int) -> npt.NDArray[np.unsignedinteger]:
        values = np.empty((num_groups, CHUNK_VALUES), f"<u{self._bits // 8}")
        if num_groups:
            starts = np.arange(num_groups) * fastlanes.packed_size(self._width)
            fastlanes.unpack(data, starts, self._width, values)
        return values.reshape(-1)


def open_bitpacked_for_non_neg(
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


# --------------------------------------------------------------------------------------------------
# `Nullable`: values with or without nulls.
#
# =============  ===================================================================================
# nullability    content
# =============  ===================================================================================
# `no_nulls`     the values, nothing else
# `some_nulls`   a bitmap (`Flat` of 1 bit; set where a value is) and as many values; values of
#                null slots mean nothing
# `all_nulls`    nothing: no buffer at all
# =============  ===================================================================================


class AllNulls:
    """Nulls without any stored value."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._dtype = dtype

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        count = len(rows) * per_row
        try:
            return unstored_nulls(count, self._dtype)
        except (MemoryError, OverflowError, pa.ArrowException):
            # These nulls have no bytes, so only memory bounds their number.
            raise CorruptFileError(f"{count} nulls do not fit into memory") from None
        yield


class SomeNulls:
    """Values under a validity bitmap."""

    def __init__(self, validity: Decoder, values: Decoder) -> None:
        self._validity = validity
        self._values = values

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        plans = [self._validity.read(rows, per_row), self._values.read(rows, per_row)]
        valid, values = yield from gather_plans(plans)
        return masked(values, valid)


def masked(values: pa.Array, valid: pa.BooleanArray) -> pa.Array:
    """Return `values` with additional nulls where `valid` is false."""
    if valid.true_count == len(valid):
        return values
    dtype = values.type
    plain = not (pat.is_nested(dtype) or pat.is_dictionary(dtype) or pat.is_null(dtype))
    if plain and not values.null_count and values.offset == valid.offset:
        bits = valid.buffers()[1]
        buffers = [bits, *values.buffers()[1:]]
        return pa.Array.from_buffers(dtype, len(values), buffers, offset=valid.offset)
    flags = flags_of(np.frombuffer(valid.buffers()[1], np.uint8), valid.offset, len(valid))
    validity = validity_of(values)
    return with_validity(values, flags if validity is None else flags & validity)


def open_nullable(
    message: pb.Nullable, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `Nullable` message; see `open_encoding`."""
    nullability = message.WhichOneof("nullability")
    if nullability == "no_nulls":
        return open_encoding(message.no_nulls.values, dtype, count, buffers)
    if nullability == "all_nulls":
        return AllNulls(dtype)
    if nullability == "some_nulls":
        validity = open_encoding(message.some_nulls.validity, pa.bool_(), count, buffers)
        return SomeNulls(validity, open_encoding(message.some_nulls.values, dtype, count, buffers))
    raise CorruptFileError("the page does not say which of its values are null")


def encode_nullable(
    array: pa.Array, buffers: NewBuffers, values: Callable[[pa.Array], pb.ArrayEncoding]
) -> pb.ArrayEncoding:
    """Return the message for an array with or without nulls.

    - `buffers`: The validity is appended to it if there are nulls, before the values.
    - `values`: Returns the message for the values of the array. Not called if there are none.
    """
    message = pb.Nullable()
    valid = validity_of(array)
    if valid is None and len(array):
        message.no_nulls.values.CopyFrom(values(array))
    elif valid is None or not valid.any():
        message.all_nulls.SetInParent()
    else:
        message.some_nulls.validity.CopyFrom(encode_flat(bitmap(valid), 1, buffers))
        message.some_nulls.values.CopyFrom(values(array))
    return pb.ArrayEncoding(nullable=message)


def never_null(values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    """Return the message for values of which none is null."""
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNull(values=values)))


# --------------------------------------------------------------------------------------------------
# `FixedSizeList`: every value is `dimension` items, which lie back to back in the items' encoding.
#
# Items may be nullable; the validity of the vectors themselves is a `Nullable` around this
# encoding. A fixed-size list of structs holds a `PackedStruct`.


class FixedSizeLists:
    """Vectors over any decoder of items."""

    def __init__(self, items: Decoder, dtype: pa.DataType) -> None:
        self._items = items
        self._dtype = dtype

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        items = yield from self._items.read(rows, per_row * self._dtype.list_size)
        count = len(rows) * per_row
        return pa.Array.from_buffers(self._dtype, count, [None], children=[items])


def open_fixed_size_list(
    message: pb.FixedSizeList, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `FixedSizeList` message; see `open_encoding`."""
    if not pat.is_fixed_size_list(dtype) or dtype.list_size != message.dimension:
        raise CorruptFileError(f"lists of {message.dimension} items store a column of type {dtype}")
    inner = None if count is None else count * message.dimension
    return FixedSizeLists(open_encoding(message.items, dtype.value_type, inner, buffers), dtype)


def encode_fixed_size_list(
    array: pa.Array, items: Callable[[pa.Array], pb.ArrayEncoding]
) -> pb.ArrayEncoding:
    """Return the message for vectors; null slots have an arbitrary content.

    - `array`: Of a fixed-size list type.
    - `items`: Returns the message for the items of all vectors.
    """
    message = pb.FixedSizeList(dimension=array.type.list_size, items=items(vector_items(array)))
    return pb.ArrayEncoding(fixed_size_list=message)


# --------------------------------------------------------------------------------------------------
# `PackedStruct`: structs of fixed-width children, row by row in one buffer.
#
# A row has the values of its children one after the other, without padding. Each child takes the
# bytes of its type; a fixed-size list takes the bytes of all its items, a struct the bytes of its
# own children. Neither the structs nor their children can be null. `inner` is the encoding that
# each child would have by itself; its references to buffers have no meaning.

Matrix = npt.NDArray[np.uint8]


class PackedStructs:
    """Structs cut out of rows of bytes."""

    def __init__(self, buffer: ByteRange, width: int, dtype: pa.DataType, count: int) -> None:
        self._buffer = buffer
        self._width = width
        self._dtype = dtype
        self._count = count

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        if len(rows) and (last_of(rows) + 1) * per_row > self._count:
            raise CorruptFileError(f"struct {last_of(rows) * per_row} of {self._count} is missing")
        data = yield from read_slots(self._buffer, self._width * per_row, rows)
        return _cut(data.reshape(len(rows) * per_row, self._width), self._dtype)


def _cut(values: Matrix, dtype: pa.DataType) -> pa.Array:
    count, width = values.shape
    if pat.is_struct(dtype):
        children, position = [], 0
        for field in dtype:
            size = _size(field.type)
            children.append(_cut(values[:, position : position + size], field.type))
            position += size
        return pa.Array.from_buffers(dtype, count, [None], children=children)
    if pat.is_fixed_size_list(dtype):
        item = width // dtype.list_size
        items = np.ascontiguousarray(values).reshape(count * dtype.list_size, item)
        children = [_cut(items, dtype.value_type)]
        return pa.Array.from_buffers(dtype, count, [None], children=children)
    return from_bytes(_dense(values).ravel(), count, dtype)


def _dense(values: Matrix) -> Matrix:
    width = values.shape[1]
    if width in (2, 4, 8):
        # One copy per value instead of one per byte.
        return np.ascontiguousarray(values.view(f"<u{width}")).view(np.uint8)
    return np.ascontiguousarray(values)


def _size(dtype: pa.DataType) -> int:
    """Return the bytes that a value of a type takes in a row; 0 if it cannot be in one."""
    if pat.is_struct(dtype):
        sizes = [_size(field.type) for field in dtype]
        return sum(sizes) if all(sizes) else 0
    if pat.is_fixed_size_list(dtype):
        return int(dtype.list_size) * _size(dtype.value_type)
    return 0 if pat.is_nested(dtype) else fixed_width(dtype) // 8


def open_packed_struct(
    message: pb.PackedStruct, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `PackedStruct` message; see `open_encoding`."""
    _check(message, dtype)
    width = _size(dtype)
    count = count or 0
    buffer = buffers.find(message.buffer)
    if count * width > buffer.length:
        raise CorruptFileError(
            f"a buffer of {buffer.length} bytes cannot hold {count} structs of {width} bytes"
        )
    return PackedStructs(buffer, width, dtype, count)


def _check(message: pb.PackedStruct, dtype: pa.DataType) -> None:
    if not pat.is_struct(dtype) or dtype.num_fields != len(message.inner):
        raise CorruptFileError(
            f"a packed struct of {len(message.inner)} children stores a column of type {dtype}"
        )
    for field, inner in zip(dtype, message.inner, strict=True):
        if not _size(field.type) or _stored_bits(inner) != 8 * _size(field.type):
            raise CorruptFileError(
                f"values of {_stored_bits(inner)} bits store child {field.name!r} of type "
                f"{field.type}"
            )


def _stored_bits(encoding: pb.ArrayEncoding) -> int:
    name = encoding.WhichOneof("array_encoding")
    if name == "nullable" and encoding.nullable.WhichOneof("nullability") == "no_nulls":
        return _stored_bits(encoding.nullable.no_nulls.values)
    if name == "fixed_size_list":
        return encoding.fixed_size_list.dimension * _stored_bits(encoding.fixed_size_list.items)
    if name == "packed_struct":
        return sum(_stored_bits(inner) for inner in encoding.packed_struct.inner)
    if name == "flat":
        return encoding.flat.bits_per_value
    raise UnsupportedEncodingError(f"encoding {name!r} cannot be read inside a packed struct")


def encode_packed_struct(array: pa.Array, path: str, buffers: NewBuffers) -> pb.ArrayEncoding:
    """Return the message for structs without nulls, whose children have no nulls either.

    Raises InvalidInputError: a child has nulls.
    """
    dtype = array.type
    inner, pieces = [], []
    for index in range(dtype.num_fields):
        child = array.field(index)
        if _has_nulls(child):
            raise InvalidInputError(
                f"column {path!r}: child {dtype.field(index).name!r} of a packed struct has nulls, "
                "which file "
                "version 2.0 cannot store: write version 2.2, or drop the field's 'packed' metadata"
            )
        pieces.append(_rows(child))
        inner.append(_message(child.type))
    rows = np.concatenate(pieces, axis=1)
    return pb.ArrayEncoding(
        packed_struct=pb.PackedStruct(inner=inner, buffer=buffers.add(rows.reshape(-1)))
    )


def can_pack(dtype: pa.DataType) -> bool:
    """Return whether a packed struct can have a child of a type: values of whole bytes, and vectors
    of them.
    """
    while pat.is_fixed_size_list(dtype):
        dtype = dtype.value_type
    return not pat.is_nested(dtype) and not pat.is_dictionary(dtype) and fixed_width(dtype) >= 8


def _has_nulls(array: pa.Array) -> bool:
    if array.null_count or not pat.is_fixed_size_list(array.type):
        return bool(array.null_count)
    return _has_nulls(vector_items(array))


def _rows(array: pa.Array) -> Matrix:
    count = len(array)
    while pat.is_fixed_size_list(array.type):
        array = vector_items(array)
    block = to_block(array)
    assert isinstance(block, FixedWidthBlock)
    width = block.bits_per_value // 8 * (len(array) // count) if count else 0
    return block.data[: count * width].reshape(count, width)


def _message(dtype: pa.DataType) -> pb.ArrayEncoding:
    # Children have no buffers of their own, but readers expect the field.
    if pat.is_fixed_size_list(dtype):
        items = pb.FixedSizeList(dimension=dtype.list_size, items=_message(dtype.value_type))
        return never_null(pb.ArrayEncoding(fixed_size_list=items))
    flat = pb.Flat(bits_per_value=fixed_width(dtype), buffer=pb.Buffer())
    return never_null(pb.ArrayEncoding(flat=flat))

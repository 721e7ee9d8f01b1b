"""Structs stored row after row, with fields of fixed or variable width."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.encoding.blocks import (
    DataBlock,
    FixedSizeListBlock,
    FixedWidthBlock,
    StructBlock,
    VariableWidthBlock,
    strings_of,
)
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import (
    ChunkLimits,
    Chunks,
    Codec,
    Encoded,
    decode_block,
    decode_chunks,
    decode_values,
    take_ranges,
)
from lance_spark.encoding.v2_1.codecs import fixed_size_list, flat, variable
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

# --------------------------------------------------------------------------------------------------
# PackedStruct: rows of fixed-width structs, field by field, row after row.
#
# ``PackedStruct { bits_per_value, values }``: `bits_per_value` has one width for each field,
# `values` holds the rows as values of the sum of the widths.
#
# ===========================  =========================
# bytes of each row            content
# ===========================  =========================
# bits_per_value[0] / 8        first field, little-endian
# bits_per_value[1] / 8        second field
# ...                          ...
# ===========================  =========================
#
# Fields have no nulls of their own. Specification: PackedStruct in protos/encodings_v2_1.proto.


class PackedStructCodec(Codec):
    """Reads `PackedStruct`."""

    name = "packed_struct"

    def decode_chunks(self, encoding: pb.PackedStruct, chunks: Chunks) -> StructBlock:
        return _unpack(encoding, decode_chunks(encoding.values, chunks))

    def decode_block(self, encoding: pb.PackedStruct, data: Bytes, num_values: int) -> StructBlock:
        return _unpack(encoding, decode_block(encoding.values, data, num_values))

    def decode_values(self, encoding: pb.PackedStruct, values: DataBlock) -> StructBlock:
        return _unpack(encoding, decode_values(encoding.values, values))


def _unpack(encoding: pb.PackedStruct, rows: DataBlock) -> StructBlock:
    widths = list(encoding.bits_per_value)
    if not isinstance(rows, FixedWidthBlock) or not widths or sum(widths) != rows.bits_per_value:
        raise CorruptFileError(f"rows do not consist of fields of {widths} bits")
    if any(not width or width % 8 for width in widths):
        raise UnsupportedEncodingError(f"packed fields of {widths} bits, not whole bytes")
    count = rows.num_values
    row = sum(widths) // 8
    table = rows.data[: count * row].reshape(count, row)
    children: list[DataBlock] = []
    position = 0
    for width in widths:
        column = np.ascontiguousarray(table[:, position : position + width // 8]).reshape(-1)
        children.append(FixedWidthBlock(column, width, count))
        position += width // 8
    return StructBlock(tuple(children))


# Writing


def pack(block: StructBlock) -> tuple[list[int], FixedWidthBlock]:
    """Return the widths of the fields, in bits, and the rows.

    Raises InvalidInputError: a field does not have a fixed width of whole bytes.
    """
    fields = [_fixed(child) for child in block.children]
    widths = [field.bits_per_value for field in fields]
    count, row = block.num_values, sum(widths) // 8
    table = np.empty((count, row), np.uint8)
    position = 0
    for field in fields:
        size = field.bits_per_value // 8
        table[:, position : position + size] = field.data[: count * size].reshape(count, size)
        position += size
    return widths, FixedWidthBlock(table.reshape(-1), 8 * row, count)


def _fixed(child: DataBlock) -> FixedWidthBlock:
    if not isinstance(child, FixedWidthBlock) or not child.bits_per_value:
        raise InvalidInputError("packed structs can be stored of fixed-width fields only")
    if child.bits_per_value % 8:
        raise InvalidInputError("packed structs cannot be stored with bool fields")
    return child


def _encoding(widths: list[int], values: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(
        packed_struct=pb.PackedStruct(bits_per_value=widths, values=values)
    )


def encode_chunks(block: StructBlock, limits: ChunkLimits) -> Encoded:
    """Return rows as mini-block chunks.

    Raises InvalidInputError: a field does not have a fixed width, or a chunk cannot hold two rows.
    """
    widths, rows = pack(block)
    inner, chunks = flat.encode_chunks(rows, limits)
    return _encoding(widths, inner), chunks


def encode_values(block: StructBlock) -> tuple[pb.CompressiveEncoding, FixedWidthBlock]:
    """Return rows as full-zip pages store them.

    Raises InvalidInputError: a field does not have a fixed width.
    """
    widths, rows = pack(block)
    inner, values = flat.encode_values(rows)
    return _encoding(widths, inner), values


# --------------------------------------------------------------------------------------------------
# VariablePackedStruct: rows of structs with strings or fixed-size lists; from file version 2.2 on,
# full-zip pages only.
#
# ``VariablePackedStruct { fields }``; each field has the encoding of its single values, and one of:
#
# ==================  =============================================================
# in the message      bytes of each row, one field after the other
# ==================  =============================================================
# `bits_per_value`    the value
# `bits_per_length`   the length of the value, little-endian (32 or 64 bits), then
#                     the value
# ==================  =============================================================
#
# A null row has no bytes. Specification: VariablePackedStruct in protos/encodings_v2_1.proto.


class VariablePackedStructCodec(Codec):
    """Reads `VariablePackedStruct`."""

    name = "variable_packed_struct"

    def decode_values(self, encoding: pb.VariablePackedStruct, values: DataBlock) -> StructBlock:
        if not isinstance(values, VariableWidthBlock) or not encoding.fields:
            raise CorruptFileError("packed structs of variable width are not stored as such")
        rows = _RowBytes(values)
        children = [_read(field, rows) for field in encoding.fields]
        if (rows.cursors != rows.ends).any():
            raise CorruptFileError("a packed row is longer than its fields")
        return StructBlock(tuple(children))


class _RowBytes:
    """The bytes of all rows, and the position in each row. Empty rows are null."""

    def __init__(self, values: VariableWidthBlock) -> None:
        offsets = values.offsets.astype(np.int64)
        self.data = np.ascontiguousarray(values.data[offsets[0] : offsets[-1]])
        offsets -= offsets[0]
        self.cursors = offsets[:-1].copy()
        self.ends = offsets[1:]
        self.live = self.ends > self.cursors

    def take(self, width: int) -> Bytes:
        """Return the next `width` bytes of every row; zeros for null rows."""
        result = np.zeros((len(self.cursors), width), np.uint8)
        starts = self._advance(np.where(self.live, width, 0))[self.live]
        if len(starts):
            # For each byte, `width` bytes from it on as one element: the copy of each takes one
            # step.
            windows = np.ndarray(
                (len(self.data) - width + 1,), f"V{width}", buffer=self.data, strides=(1,)
            )
            result[self.live] = windows[starts].view(np.uint8).reshape(-1, width)
        return result.reshape(-1)

    def take_lengths(self, lengths: IndexArray, offset_bytes: int) -> VariableWidthBlock:
        """Return the next `lengths[i]` bytes of each row i."""
        starts = self._advance(lengths)
        return VariableWidthBlock.of(
            *take_ranges(self.data, starts, starts + lengths), offset_bytes
        )

    def _advance(self, sizes: IndexArray) -> IndexArray:
        starts = self.cursors
        if (sizes < 0).any() or (sizes > self.ends - starts).any():
            raise CorruptFileError("a packed row is shorter than its fields")
        self.cursors = starts + sizes
        return starts


def _read(field: pb.VariablePackedStruct.FieldEncoding, rows: _RowBytes) -> DataBlock:
    count = len(rows.cursors)
    block: FixedWidthBlock | VariableWidthBlock
    if field.WhichOneof("layout") == "bits_per_value":
        bits = int(field.bits_per_value)
        if not bits or bits % 8:
            raise UnsupportedEncodingError(f"packed fields of {bits} bits, not whole bytes")
        # A value that is wider than all rows together is refused before memory is allocated for it.
        if bits // 8 > len(rows.data) and rows.live.any():
            raise CorruptFileError("a packed row is shorter than its fields")
        width = bits // 8 if rows.live.any() else min(bits // 8, 1 << 16)
        block = FixedWidthBlock(rows.take(width), 8 * width, count)
    else:
        bits = int(field.bits_per_length)
        if bits not in (32, 64):
            raise UnsupportedEncodingError(f"lengths of {bits} bits in packed rows")
        lengths = rows.take(bits // 8).view(f"<u{bits // 8}")
        if int(lengths.max(initial=0)) > len(rows.data):
            raise CorruptFileError("a packed row is shorter than its fields")
        block = rows.take_lengths(lengths.astype(np.int64), bits // 8)
    return decode_values(field.value, block)


# Writing


def encode_variable_values(block: StructBlock) -> tuple[pb.CompressiveEncoding, VariableWidthBlock]:
    """Return rows as full-zip pages store them.

    Raises InvalidInputError: a field is a struct itself, or does not have whole bytes.
    """
    fields: list[pb.VariablePackedStruct.FieldEncoding] = []
    parts: list[pa.Array] = []
    for child in block.children:
        if isinstance(child, VariableWidthBlock):
            encoding, values = variable.encode_values(child)
            width = values.offsets.dtype.itemsize
            fields.append(
                pb.VariablePackedStruct.FieldEncoding(value=encoding, bits_per_length=8 * width)
            )
            lengths = np.diff(values.offsets).astype(f"<u{width}")
            parts += [_fixed_array(lengths.view(np.uint8), width), _variable(values)]
            continue
        encoding, stored = _encode_fixed(child)
        fields.append(
            pb.VariablePackedStruct.FieldEncoding(
                value=encoding, bits_per_value=stored.bits_per_value
            )
        )
        parts.append(_fixed_array(stored.data, stored.bits_per_value // 8, stored.num_values))
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
    rows = strings_of(joined)
    rows = VariableWidthBlock.of(rows.offsets.astype(np.int64), rows.data, 4)
    message = pb.VariablePackedStruct(fields=fields)
    return pb.CompressiveEncoding(variable_packed_struct=message), rows


def _encode_fixed(child: DataBlock) -> tuple[pb.CompressiveEncoding, FixedWidthBlock]:
    if isinstance(child, FixedWidthBlock):
        return flat.encode_values(child)
    if isinstance(child, FixedSizeListBlock):
        if fixed_size_list.has_null_bools(child):
            raise InvalidInputError(
                "packed structs cannot be stored with fixed-size lists of bools of which some are "
                "null; store them as uint8"
            )
        return fixed_size_list.encode_values(child)
    raise InvalidInputError("packed structs can be stored of fixed-width fields and strings only")


def _fixed_array(data: Bytes, width: int, count: int | None = None) -> pa.Array:
    """Return values of one width as an Arrow array of byte strings."""
    count = len(data) // width if count is None else count
    offsets = np.arange(count + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


def _variable(values: VariableWidthBlock) -> pa.Array:
    offsets = values.offsets.astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values.data))]
    return pa.Array.from_buffers(pa.large_binary(), values.num_values, buffers)

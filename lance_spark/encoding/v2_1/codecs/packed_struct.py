"""PackedStruct: rows of fixed-width structs, field by field, row after row.

``PackedStruct { bits_per_value, values }``: `bits_per_value` has one width for each field, `values`
holds the rows as values of the sum of the widths.

===========================  =========================
bytes of each row            content
===========================  =========================
bits_per_value[0] / 8        first field, little-endian
bits_per_value[1] / 8        second field
...                          ...
===========================  =========================

Fields have no nulls of their own. Specification: PackedStruct in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock, StructBlock
from lance_spark.encoding.v2_1.codec import (
    ChunkLimits,
    Chunks,
    Codec,
    Encoded,
    decode_block,
    decode_chunks,
    decode_values,
)
from lance_spark.encoding.v2_1.codecs import flat
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes


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

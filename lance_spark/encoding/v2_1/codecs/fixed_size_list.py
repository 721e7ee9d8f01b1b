"""Vectors: lists of one size, whose items have a fixed width or are such lists themselves.

``FixedSizeList { items_per_value = d, has_validity, values }``. The validity of the items (not of
the vectors) is a bitmap for each level of lists that has null items; for lists of lists a value has
d1 items in the first, d1 * d2 in the second:

==============  ==================================================================================
used as         bytes
==============  ==================================================================================
mini-block      one buffer for each bitmap of the chunk's values, outermost lists first, then the
                buffers of the innermost items
full-zip        each value: its bits of each bitmap, filled up to whole bytes, then its items
dictionary      as full-zip
==============  ==================================================================================

Specification: FixedSizeList in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.blocks import DataBlock, FixedSizeListBlock, FixedWidthBlock
from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    Codec,
    Encoded,
    decode_block,
    decode_chunks,
    decode_values,
    empty,
)
from lance_spark.encoding.v2_1.codec import flat as fixed_width_message
from lance_spark.encoding.v2_1.codecs import flat
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Maximum number of items of a vector, over all levels of lists.
_MAX_ITEMS = 1 << 31


@dataclass(frozen=True, slots=True)
class _Level:
    """One level of lists: number of items of a list and of a whole value, and which items are not
    null.
    """

    dimension: int
    items: int
    validity: BoolArray | None = None


class FixedSizeListCodec(Codec):
    """Decodes ``FixedSizeList``."""

    name = "fixed_size_list"

    def decode_chunks(self, encoding: pb.FixedSizeList, chunks: Chunks) -> FixedSizeListBlock:
        dimension = _dimension(encoding)
        counts = chunks.num_values * dimension
        buffers = chunks.buffers
        validity = None
        if encoding.has_validity:
            if not buffers:
                raise CorruptFileError("the bitmap of null items is missing")
            validity = _flags(
                flat.FlatCodec().decode_blocks(pb.Flat(bits_per_value=1), buffers[0], counts)
            )
            buffers = buffers[1:]
        items = decode_chunks(encoding.values, Chunks(buffers, counts))
        return _vectors(items, dimension, validity)

    def decode_block(
        self, encoding: pb.FixedSizeList, data: Bytes, num_values: int
    ) -> FixedSizeListBlock:
        dimension = _dimension(encoding)
        if num_values and any(has_validity for _, has_validity in _parse(encoding)[0]):
            width, remainder = divmod(len(data), num_values)
            if remainder:
                raise CorruptFileError(f"{num_values} vectors with null items in {len(data)} bytes")
            return self.decode_values(encoding, FixedWidthBlock(data, 8 * width, num_values))
        items = decode_block(encoding.values, data, num_values * dimension)
        return _vectors(items, dimension, None)

    def decode_values(self, encoding: pb.FixedSizeList, values: DataBlock) -> FixedSizeListBlock:
        if not isinstance(values, FixedWidthBlock) or values.bits_per_value % 8:
            raise CorruptFileError("vectors are not stored in whole bytes")
        levels, inner = _parse(encoding)
        count, width = values.num_values, values.bits_per_value // 8
        table = values.data[: count * width].reshape(count, width)
        position = 0
        flags: list[BoolArray | None] = []
        for level, has_validity in levels:
            if not has_validity:
                flags.append(None)
                continue
            size = (level.items + 7) // 8
            if position + size > width:
                raise CorruptFileError("a vector is too short for its bitmaps")
            # One run of bits is unpacked faster than many runs.
            bits = np.unpackbits(
                np.ascontiguousarray(table[:, position : position + size]).reshape(-1),
                bitorder="little",
            )
            used = bits.reshape(count, 8 * size)[:, : level.items]
            flags.append(np.ascontiguousarray(used).reshape(-1).view(np.bool_))
            position += size
        items = levels[-1][0].items
        value_width = width - position
        if not items or value_width * 8 % items:
            raise CorruptFileError(f"vectors of {value_width} bytes for {items} items")
        data = values.data[: count * width]
        if position:
            data = empty((count, value_width), np.uint8)
            data[...] = table[:, position:]
        stored = FixedWidthBlock(data.reshape(-1), value_width * 8 // items, count * items)
        block = decode_values(inner, stored)
        for (level, _), validity in zip(reversed(levels), reversed(flags), strict=True):
            block = _vectors(block, level.dimension, validity)
        assert isinstance(block, FixedSizeListBlock)
        return block


def _dimension(encoding: pb.FixedSizeList) -> int:
    dimension = int(encoding.items_per_value)
    if not 0 < dimension < _MAX_ITEMS:
        raise CorruptFileError(f"vectors of {dimension} items")
    return dimension


def _parse(encoding: pb.FixedSizeList) -> tuple[list[tuple[_Level, bool]], pb.CompressiveEncoding]:
    levels: list[tuple[_Level, bool]] = []
    items = 1
    while True:
        dimension = _dimension(encoding)
        items *= dimension
        if items > _MAX_ITEMS:
            raise CorruptFileError(f"vectors of {items} items")
        levels.append((_Level(dimension, items), encoding.has_validity))
        if encoding.values.WhichOneof("compression") != "fixed_size_list":
            return levels, encoding.values
        encoding = encoding.values.fixed_size_list


def _flags(bits: FixedWidthBlock) -> BoolArray:
    unpacked = np.unpackbits(bits.data, count=bits.num_values, bitorder="little")
    return unpacked.view(np.bool_)


def _vectors(items: DataBlock, dimension: int, validity: BoolArray | None) -> FixedSizeListBlock:
    if items.num_values % dimension:
        raise CorruptFileError(f"{items.num_values} items do not make vectors of {dimension}")
    return FixedSizeListBlock(items, dimension, validity)


# Writing


def _levels(block: FixedSizeListBlock) -> tuple[list[_Level], FixedWidthBlock]:
    """Return the levels of lists, outermost first, and the innermost items."""
    levels: list[_Level] = []
    items = 1
    while True:
        items *= block.dimension
        levels.append(_Level(block.dimension, items, block.validity))
        inner = block.items
        if isinstance(inner, FixedWidthBlock):
            return levels, inner
        if not isinstance(inner, FixedSizeListBlock):
            raise InvalidInputError("vectors can be stored of fixed-width items only")
        block = inner


def _message(levels: list[_Level], inner: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    encoding = inner
    for level in reversed(levels):
        encoding = pb.CompressiveEncoding(
            fixed_size_list=pb.FixedSizeList(
                items_per_value=level.dimension,
                has_validity=level.validity is not None,
                values=encoding,
            )
        )
    return encoding


def stored_bits(block: FixedSizeListBlock) -> int:
    """Return the bits of a vector in a mini-block chunk, with its bitmaps of null items."""
    levels, inner = _levels(block)
    bits = levels[-1].items * inner.bits_per_value
    return bits + sum(level.items for level in levels if level.validity is not None)


def has_null_bools(block: DataBlock) -> bool:
    """Return whether vectors of bools have null items: pylance panics if it reads them from a
    full-zip page, and writes other bytes into such a page.
    """
    if not isinstance(block, FixedSizeListBlock):
        return False
    levels, inner = _levels(block)
    return inner.bits_per_value == 1 and any(level.validity is not None for level in levels)


def encode_chunks(block: FixedSizeListBlock, limits: ChunkLimits) -> Encoded:
    """Cut vectors into chunks of the largest power of two that the limits allow.

    Raises InvalidInputError: a chunk cannot hold two vectors.
    """
    levels, inner = _levels(block)
    total = block.num_values
    bits = stored_bits(block)
    fit = min(limits.max_bytes * 8 // bits, limits.max_values)
    step = 1 << fit.bit_length() - 1 if fit else 0
    if step < min(total, 2):
        raise InvalidInputError(f"vectors of {bits // 8} bytes are too wide for mini-blocks")
    step = max(step, 1)
    counts: npt.NDArray[np.int64] = np.full(-(-total // step), step, np.int64)
    counts[total // step :] = total % step
    buffers = [
        _bit_chunks(level.validity, step * level.items, len(counts))
        for level in levels
        if level.validity is not None
    ]
    values = step * levels[-1].items
    if inner.bits_per_value == 1:
        buffers.append(_bit_chunks(_flags(inner), values, len(counts)))
    else:
        width = inner.bits_per_value // 8
        starts = np.arange(len(counts)) * (values * width)
        sizes = counts * (levels[-1].items * width)
        buffers.append(ChunkBuffer(inner.data, starts, sizes))
    encoding = _message(levels, fixed_width_message(inner.bits_per_value))
    return encoding, Chunks(tuple(buffers), counts)


def _bit_chunks(flags: BoolArray, per_chunk: int, num_chunks: int) -> ChunkBuffer:
    """Pack flags so that every chunk begins with a whole byte."""
    size = (per_chunk + 7) // 8
    padded = np.zeros(num_chunks * per_chunk, np.bool_)
    padded[: len(flags)] = flags
    packed = np.packbits(padded.reshape(num_chunks, per_chunk), axis=1, bitorder="little")
    sizes: npt.NDArray[np.int64] = np.full(num_chunks, size, np.int64)
    sizes[-1] = (len(flags) - (num_chunks - 1) * per_chunk + 7) // 8
    return ChunkBuffer(packed.reshape(-1), np.arange(num_chunks) * size, sizes)


def encode_values(block: FixedSizeListBlock) -> tuple[pb.CompressiveEncoding, FixedWidthBlock]:
    """Return vectors as a full-zip page stores them: bitmaps of null items in front of the items.

    Raises InvalidInputError: the items of a vector do not fill whole bytes.
    """
    levels, inner = _levels(block)
    count = block.num_values
    bits = levels[-1].items * inner.bits_per_value
    if bits % 8:
        raise InvalidInputError(f"vectors of {bits} bits in a full-zip page")
    of_items = fixed_width_message(inner.bits_per_value)
    encoding = _message(
        levels, of_items if bits else pb.CompressiveEncoding(constant=pb.Constant())
    )
    values = inner.data[: count * bits // 8]
    bitmaps = [
        np.packbits(level.validity.reshape(count, level.items), axis=1, bitorder="little")
        for level in levels
        if level.validity is not None
    ]
    if not bitmaps:
        return encoding, FixedWidthBlock(values, bits, count)
    table = np.concatenate([*bitmaps, values.reshape(count, bits // 8)], axis=1)
    return encoding, FixedWidthBlock(table.reshape(-1), table.shape[1] * 8, count)

"""Dictionary as a compressive encoding: indices and items in one buffer.

``Dictionary { indices, items, num_dictionary_items }``. Single buffers only:

=====================  ==========================================================
bytes                  content
=====================  ==========================================================
8                      length of the indices in bytes, little-endian
8                      length of the items
length of indices      which item each value is, as `indices` says
length of items        `num_dictionary_items` items, as `items` says
=====================  ==========================================================

The dictionary of a page is something else: a separate buffer, described in
`MiniBlockLayout.dictionary`. Specification: Dictionary in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.arrow_blocks import unsigned
from lance_spark.encoding.blocks import DataBlock, DictionaryBlock, FixedWidthBlock
from lance_spark.encoding.v2_1.codec import Codec, decode_block
from lance_spark.encoding.v2_1.fixed_width import require_page_size
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

_HEADER = 16


class DictionaryCodec(Codec):
    """Decodes ``Dictionary``."""

    name = "dictionary"

    def decode_block(self, encoding: pb.Dictionary, data: Bytes, num_values: int) -> DataBlock:
        if len(data) < _HEADER:
            raise CorruptFileError(f"a dictionary in {len(data)} bytes")
        first, second = (
            int.from_bytes(data[position : position + 8].tobytes(), "little")
            for position in range(0, _HEADER, 8)
        )
        if first + second != len(data) - _HEADER:
            raise CorruptFileError(
                f"indices of {first} bytes and items of {second} bytes in a buffer of {len(data)}"
            )
        middle = _HEADER + first
        indices = decode_block(encoding.indices, data[_HEADER:middle], num_values)
        items = decode_block(encoding.items, data[middle:], encoding.num_dictionary_items)
        if not isinstance(indices, FixedWidthBlock):
            raise CorruptFileError("the indices of a dictionary are not numbers")
        if isinstance(items, FixedWidthBlock) and items.bits_per_value % 8 == 0:
            return _look_up(indices, items)
        return DictionaryBlock(indices, items)


def _look_up(indices: FixedWidthBlock, items: FixedWidthBlock) -> FixedWidthBlock:
    positions = unsigned(indices)
    if len(positions) and int(positions.max()) >= items.num_values:
        raise CorruptFileError(
            f"index {int(positions.max())} in a dictionary of {items.num_values} items"
        )
    require_page_size(len(positions), items.bits_per_value)
    width = items.bits_per_value // 8
    table = items.data[: items.num_values * width].reshape(items.num_values, width)
    result = np.take(table, positions.astype(np.int64), axis=0)
    return FixedWidthBlock(result.reshape(-1), items.bits_per_value, len(positions))

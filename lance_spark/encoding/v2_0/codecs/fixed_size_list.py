"""`FixedSizeList`: every value is `dimension` items, which lie back to back in the items' encoding.

Items may be nullable; the validity of the vectors themselves is a `Nullable` around this encoding.
A fixed-size list of structs holds a `PackedStruct`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import vector_items
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.page import Decoder, PageBuffers, open_encoding
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ReadPlan


class FixedSizeLists:
    """Vectors over any decoder of items."""

    def __init__(self, items: Decoder, dtype: pa.DataType) -> None:
        self._items = items
        self._dtype = dtype

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        items = yield from self._items.read(rows, per_row * self._dtype.list_size)
        count = len(rows) * per_row
        return pa.Array.from_buffers(self._dtype, count, [None], children=[items])


def open_message(
    message: pb.FixedSizeList, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `FixedSizeList` message; see `open_encoding`."""
    if not pat.is_fixed_size_list(dtype) or dtype.list_size != message.dimension:
        raise CorruptFileError(f"lists of {message.dimension} items store a column of type {dtype}")
    inner = None if count is None else count * message.dimension
    return FixedSizeLists(open_encoding(message.items, dtype.value_type, inner, buffers), dtype)


def encode(array: pa.Array, items: Callable[[pa.Array], pb.ArrayEncoding]) -> pb.ArrayEncoding:
    """Return the message for vectors; null slots have an arbitrary content.

    - `array`: Of a fixed-size list type.
    - `items`: Returns the message for the items of all vectors.
    """
    message = pb.FixedSizeList(dimension=array.type.list_size, items=items(vector_items(array)))
    return pb.ArrayEncoding(fixed_size_list=message)

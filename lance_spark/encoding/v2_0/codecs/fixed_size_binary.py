"""`FixedSizeBinary`: strings or binaries that all have `byte_width` bytes, back to back and without
offsets.

`bytes` encodes them one byte at a time, or as one wide value each. A column of Arrow type
fixed-size binary never comes this way: its values are `Flat`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import is_variable, offset_type
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.codecs.flat import width_of
from lance_spark.encoding.v2_0.page import Decoder, PageBuffers, open_encoding
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ReadPlan


class FixedSizeBinaryValues:
    """Strings or binaries of one length."""

    def __init__(self, data: Decoder, values_per_row: int, width: int, dtype: pa.DataType) -> None:
        self._data = data
        self._values_per_row = values_per_row
        self._width = width
        self._dtype = dtype

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        count = len(rows) * per_row
        data = yield from self._data.read(rows, per_row * self._values_per_row)
        dtype = offset_type(self._dtype)
        if count * self._width > np.iinfo(dtype).max:
            raise InvalidInputError(
                f"{count * self._width} bytes do not fit one array of type {self._dtype}: "
                "read fewer rows at a time"
            )
        if data.null_count:
            raise CorruptFileError("bytes of strings are null")
        offsets = (np.arange(count + 1) * self._width).astype(dtype)
        buffers = [None, pa.py_buffer(offsets), data.buffers()[1]]
        return pa.Array.from_buffers(self._dtype, count, buffers)


def open_message(
    message: pb.FixedSizeBinary, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `FixedSizeBinary` message; see `open_encoding`."""
    width = message.byte_width
    if not is_variable(dtype) or not 0 < width <= np.iinfo(np.int32).max:
        raise CorruptFileError(f"strings of {width} bytes store a column of type {dtype}")
    if width_of(message.bytes) == 8:
        total = None if count is None else count * width
        data = open_encoding(message.bytes, pa.uint8(), total, buffers)
        return FixedSizeBinaryValues(data, width, width, dtype)
    data = open_encoding(message.bytes, pa.binary(width), count, buffers)
    return FixedSizeBinaryValues(data, 1, width, dtype)

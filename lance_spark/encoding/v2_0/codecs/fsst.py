"""`Fsst`: strings whose bytes are FSST codes.

`binary` holds the codes of every value by itself, with the nulls. The table `symbol_table` and the
meaning of a code are as in later versions (`lance_spark.encoding.v2_1.codecs.strings.fsst`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from google.protobuf.message import Message

from lance_spark.encoding.arrow_blocks import (
    from_block,
    is_variable,
    offset_type,
    to_block,
    validity_of,
    with_validity,
)
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.page import Decoder, PageBuffers, open_encoding
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.proto import encodings_v2_1_pb2 as pb21
from lance_spark.storage.source import ReadPlan

#: The codes of each page are strings; only the table differs.
_STRINGS = pb21.CompressiveEncoding(
    variable=pb21.Variable(offsets=pb21.CompressiveEncoding(flat=pb21.Flat(bits_per_value=32)))
)


class FsstValues:
    """Strings decompressed one by one."""

    def __init__(self, codes: Decoder, symbol_table: bytes, dtype: pa.DataType) -> None:
        self._codes = codes
        self._dtype = dtype
        self._encoding = pb21.CompressiveEncoding(
            fsst=pb21.Fsst(symbol_table=symbol_table, values=_STRINGS)
        )

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        from lance_spark.encoding.v2_1.codec import decode_values

        codes = yield from self._codes.read(rows, per_row)
        if not len(codes):
            return pa.array([], self._dtype)
        block = decode_values(self._encoding, to_block(codes))
        if block.num_values != len(codes):
            raise CorruptFileError(f"{block.num_values} strings for {len(codes)} values")
        return with_validity(from_block(block, self._dtype), validity_of(codes))


def open_message(
    message: pb.Fsst, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of an `Fsst` message; see `open_encoding`."""
    if not is_variable(dtype):
        raise CorruptFileError(f"byte strings store a column of type {dtype}")
    if _holds_fsst(message.binary):
        raise CorruptFileError("FSST codes are stored as FSST codes")
    codes = pa.large_binary() if offset_type(dtype) is np.int64 else pa.binary()
    return FsstValues(
        open_encoding(message.binary, codes, count, buffers), message.symbol_table, dtype
    )


def _holds_fsst(message: Message) -> bool:
    """Return whether a message contains FSST: nested FSST would expand eight times per level."""
    inner = [
        item
        for field, value in message.ListFields()
        if field.message_type is not None
        for item in ([value] if isinstance(value, Message) else value)
    ]
    return any(isinstance(item, pb.Fsst) or _holds_fsst(item) for item in inner)

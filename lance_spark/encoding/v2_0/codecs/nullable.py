"""`Nullable`: values with or without nulls.

=============  ===================================================================================
nullability    content
=============  ===================================================================================
`no_nulls`     the values, nothing else
`some_nulls`   a bitmap (`Flat` of 1 bit; set where a value is) and as many values; values of
               null slots mean nothing
`all_nulls`    nothing: no buffer at all
=============  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import (
    bitmap,
    flags_of,
    validity_of,
    with_validity,
)
from lance_spark.encoding.nulls import unstored_nulls
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.codecs import flat
from lance_spark.encoding.v2_0.page import Decoder, NewBuffers, PageBuffers, open_encoding
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans


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


def open_message(
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


def encode(
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
        message.some_nulls.validity.CopyFrom(flat.encode(bitmap(valid), 1, buffers))
        message.some_nulls.values.CopyFrom(values(array))
    return pb.ArrayEncoding(nullable=message)


def never_null(values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    """Return the message for values of which none is null."""
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNull(values=values)))

"""`PackedStruct`: structs of fixed-width children, row by row in one buffer.

A row has the values of its children one after the other, without padding. Each child takes the
bytes of its type; a fixed-size list takes the bytes of all its items, a struct the bytes of its own
children. Neither the structs nor their children can be null. `inner` is the encoding that each
child would have by itself; its references to buffers have no meaning.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import fixed_width, from_bytes, to_block, vector_items
from lance_spark.encoding.blocks import FixedWidthBlock
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.codecs.nullable import never_null
from lance_spark.encoding.v2_0.page import Decoder, NewBuffers, PageBuffers, last_of, read_slots
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, ReadPlan

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


def open_message(
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


def encode(array: pa.Array, path: str, buffers: NewBuffers) -> pb.ArrayEncoding:
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

"""Full-zip and constant pages with encodings that no writer makes by default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.levels import layer_numbers
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.layouts.full_zip import write_full_zip
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.encoding.v2_1.mini_block_cases import (
    PACKED,
    Case,
    Child,
    rows_of,
    structs,
    words,
)
from tests.support.encodings.chunks import block_of
from tests.support.encodings.handmade import (
    CE,
    Version,
    flat,
    squeezed,
)

# Full-zip


def full_zip(
    array: pa.Array, encoding: CE, block: DataBlock, field: pa.Field | None = None, **more: Any
) -> Case:
    def make(column: LeafColumn, _: Version) -> EncodedPage | None:
        return write_full_zip(column, encoding, block)

    return Case(array, make, field=field, **more)


def zip_text(
    encoding: CE,
    store: Callable[[bytes], bytes],
    dtype: pa.DataType | None = None,
    width: type = np.int32,
    **more: Any,
) -> Case:
    stored = block_of([store(word.encode()) for word in words()], width)
    return full_zip(pa.array(words(), dtype or pa.string()), encoding, stored, **more)


def one_by_one(scheme: str) -> Callable[[bytes], bytes]:
    return lambda value: squeezed(value, scheme) if value else b""


def zip_rows(**more: Any) -> Case:
    array, field, rows = structs()
    block = FixedWidthBlock(np.frombuffer(rows.tobytes(), np.uint8), 96, len(rows))
    return full_zip(array, rows_of(flat(96)), block, field, **more)


def zip_nested_vectors(flags: Sequence[bool]) -> Case:
    """Vectors of 3 vectors of 2 vectors of 5 items, with nulls on some of the levels."""
    sizes = [3, 2, 5]
    count = 40
    rng = np.random.default_rng(6)
    total = count * 30
    dtype: pa.DataType = pa.int16()
    validity, items = [], count
    for size, nulls in zip(sizes, flags, strict=True):
        items *= size
        validity.append(rng.random(items) < 0.7 if nulls else None)
    values = rng.integers(-999, 999, total).astype(np.int16)
    array: pa.Array = pa.array(values, mask=None if validity[2] is None else ~validity[2])
    for depth in (2, 1, 0):
        dtype = pa.list_(dtype, sizes[depth])
        outer = validity[depth - 1] if depth else None
        mask = None if outer is None else pa.array(~outer)
        array = pa.FixedSizeListArray.from_arrays(array, type=dtype, mask=mask)
    pieces = [
        np.packbits(result.reshape(count, -1), axis=1, bitorder="little")
        for result in validity
        if result is not None
    ]
    table = np.concatenate([*pieces, values.view(np.uint8).reshape(count, -1)], axis=1)
    encoding = flat(16)
    for size, nulls in reversed(list(zip(sizes, flags, strict=True))):
        encoding = CE(
            fixed_size_list=pb.FixedSizeList(
                items_per_value=size, has_validity=nulls, values=encoding
            )
        )
    block = FixedWidthBlock(table.reshape(-1), table.shape[1] * 8, count)
    return full_zip(array, encoding, block)


def text_rows(value: CE, store: Callable[[bytes], bytes], **more: Any) -> Case:
    dtype = pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.string(), False)])
    field = pa.field("c", dtype, metadata=PACKED)
    texts_ = words(500)
    array = pa.StructArray.from_arrays(
        [pa.array(range(500), pa.int32()), pa.array(texts_)], fields=list(dtype)
    )
    rows = []
    for i, text in enumerate(texts_):
        data = store(text.encode())
        rows.append(i.to_bytes(4, "little") + len(data).to_bytes(4, "little") + data)
    fields = [
        pb.VariablePackedStruct.FieldEncoding(value=flat(32), bits_per_value=32),
        pb.VariablePackedStruct.FieldEncoding(value=value, bits_per_length=32),
    ]
    encoding = CE(variable_packed_struct=pb.VariablePackedStruct(fields=fields))
    return full_zip(array, encoding, block_of(rows), field, **more)


def zip_constant(value: bytes | None, array: pa.Array, **more: Any) -> Case:
    message = pb.Constant() if value is None else pb.Constant(value=value)
    stored = b"" if value is None else value * len(array)
    width = 8 * len(value or b"")
    block = FixedWidthBlock(np.frombuffer(stored, np.uint8), width, len(array))
    return full_zip(array, CE(constant=message), block, **more)


# Constants


def constant(array: pa.Array, inline: bytes | None, scalar: bytes | None, **more: Any) -> Case:
    """A page that holds one value, and the levels of its nulls."""

    def make(column: LeafColumn, _: Version) -> EncodedPage:
        layout = pb.ConstantLayout(layers=layer_numbers(column.levels.layers))
        if inline is not None:
            layout.inline_value = inline
        buffers = [] if scalar is None else [np.frombuffer(scalar, np.uint8)]
        for result in (column.levels.repetition, column.levels.definition):
            data = b"" if result is None else result.astype("<u2").tobytes()
            buffers.append(np.frombuffer(data, np.uint8))
        if column.levels.repetition is None and column.levels.definition is None:
            buffers = buffers[:-2]
        page = pb.PageLayout(constant_layout=layout)
        return EncodedPage(tuple(buffers), column.num_rows, page.SerializeToString())

    return Case(array, make, **more)


def scalar_buffer(*buffers: bytes) -> bytes:
    head = len(buffers).to_bytes(4, "little")
    head += b"".join(len(buffer).to_bytes(4, "little") for buffer in buffers)
    return head + b"".join(buffers)


def repeated(value: object, dtype: pa.DataType, *, nulls: bool = True) -> pa.Array:
    return pa.array([None if nulls and i % 3 == 0 else value for i in range(100)], dtype)


def text_scalar(value: bytes, width: int = 4) -> bytes:
    return scalar_buffer(bytes(width) + len(value).to_bytes(width, "little"), value)


def null_lists(rep: Child, definition: Child, **more: Any) -> Case:
    """Only nulls, below lists, with compressed levels."""
    array = pa.array([None, [], [None], [None, None], [], None] * 900, pa.list_(pa.int32()))

    def make(column: LeafColumn, _: Version) -> EncodedPage:
        layout = pb.ConstantLayout(layers=layer_numbers(column.levels.layers))
        assert column.levels.repetition is not None
        assert column.levels.definition is not None
        encoding, first = rep(column.levels.repetition.astype("<u2"))
        layout.rep_compression.CopyFrom(encoding)
        encoding, second = definition(column.levels.definition.astype("<u2"))
        layout.def_compression.CopyFrom(encoding)
        layout.num_rep_values = layout.num_def_values = column.levels.num_entries
        page = pb.PageLayout(constant_layout=layout)
        buffers = tuple(np.frombuffer(data, np.uint8) for data in (first, second))
        return EncodedPage(buffers, column.num_rows, page.SerializeToString())

    return Case(array, make, **more)

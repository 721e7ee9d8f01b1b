"""Encodings that the messages can express and no writer makes by default, one page each.

pylance is the oracle where it reads them: a case names those that it refuses. Pages are put
together here byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.encoding.arrow_blocks import to_block
from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.levels import layer_numbers
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.codec import ChunkBuffer, ChunkLimits, Chunks
from lance_spark.encoding.v2_1.codecs import flat as flat_module
from lance_spark.encoding.v2_1.layouts import mini_block_write
from lance_spark.encoding.v2_1.layouts.full_zip_write import write_full_zip
from lance_spark.encoding.v2_1.layouts.mini_block_write import DictionaryItems, write_mini_block
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.encodings.chunks import block_of, symbol_table
from tests.support.encodings.fixed import pack as pack_rows
from tests.support.encodings.handmade import (
    CE,
    Make,
    Version,
    chunks_of,
    file_of,
    flat,
    general,
    ours,
    packed,
    squeezed,
    theirs,
)
from tests.support.interop.tables import build

ROWS = 3_000
CHUNK = 1_024


Written = tuple["Case", Path]


@dataclass(frozen=True)
class Case:
    """A column, how its page is made, and who reads it."""

    array: pa.Array
    make: Make
    version: Version = (2, 2)
    field: pa.Field | None = None
    # The version whose rules let pylance read the page: its own, 2.3 where older ones must not have
    # it, or none.
    reader: Version | None = (2, 2)


def numbers() -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.repeat(rng.integers(0, 1 << 40, ROWS // 40), 40)


def cut(values: np.ndarray, step: int = CHUNK) -> list[np.ndarray]:
    return [values[at : at + step] for at in range(0, len(values), step)]


def mini(encoding: CE, chunks: Chunks, dictionary: DictionaryItems | None = None) -> Make:
    def make(column: LeafColumn, version: Version) -> EncodedPage | None:
        return write_mini_block(column, encoding, chunks, version, dictionary)

    return make


def pack(values: np.ndarray, width: int) -> bytes:
    """Bit-pack values, the last 1,024 filled up with zeros."""
    rows = np.zeros((-(-len(values) // 1024), 1024), values.dtype)
    rows.reshape(-1)[: len(values)] = values
    return pack_rows(rows, width).tobytes()


# Runs


def runs_of(values: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    most = np.iinfo(kind).max
    result = []
    for value, run in groupby(values.tolist()):
        left = len(list(run))
        while left:
            result.append((value, min(left, most)))
            left -= result[-1][1]
    return (
        np.array([value for value, _ in result], values.dtype),
        np.array([count for _, count in result], kind),
    )


Child = Callable[[np.ndarray], tuple[CE, bytes]]


def plain(values: np.ndarray) -> tuple[CE, bytes]:
    return flat(values.itemsize * 8), values.tobytes()


def zipped(scheme: str, inner: Child = plain) -> Child:
    def child(values: np.ndarray) -> tuple[CE, bytes]:
        encoding, data = inner(values)
        return general(encoding, scheme), squeezed(data, scheme)

    return child


def bits(width: int) -> Child:
    def child(values: np.ndarray) -> tuple[CE, bytes]:
        unsigned = values.view(f"u{values.itemsize}")
        return packed(values.itemsize * 8, width), pack(unsigned, width)

    return child


def rle(values: Child, lengths: Child, kind: str = "u1") -> Case:
    parts, counts = [], []
    for part in cut(numbers()):
        result, times = runs_of(part, kind)
        (of_values, data), (of_lengths, more) = values(result), lengths(times)
        parts.append([data, more])
        counts.append(len(part))
    encoding = CE(rle=pb.Rle(values=of_values, run_lengths=of_lengths))
    return Case(pa.array(numbers()), mini(encoding, chunks_of(parts, counts)), reader=(2, 3))


# Values in chunks


def one_buffer(encoding: CE, data: Callable[[np.ndarray], bytes], **more: Any) -> Case:
    parts = cut(numbers())
    chunks = chunks_of([[data(part)] for part in parts], [len(part) for part in parts])
    return Case(pa.array(numbers()), mini(encoding, chunks), **more)


def nested_general() -> Case:
    return one_buffer(
        general(general(flat(64), "lz4"), "zstd"),
        lambda part: squeezed(squeezed(part.tobytes(), "lz4"), "zstd"),
    )


def bare_planes() -> Case:
    encoding = CE(byte_stream_split=pb.ByteStreamSplit(values=flat(64)))
    return one_buffer(encoding, lambda part: part.view(np.uint8).reshape(-1, 8).T.tobytes())


def vectors(
    inner: CE,
    items: Callable[[np.ndarray], bytes],
    mask: Callable[[bytes], bytes] = bytes,
    wrap: Callable[[CE], CE] = lambda encoding: encoding,
    **more: Any,
) -> Case:
    """Vectors of 4 items; every seventh item is null."""
    parts = cut(numbers(), 256 * 4)
    valid = np.arange(len(numbers())) % 7 != 0
    flags = [np.packbits(part, bitorder="little").tobytes() for part in cut(valid, 256 * 4)]
    encoding = CE(
        fixed_size_list=pb.FixedSizeList(items_per_value=4, has_validity=True, values=inner)
    )
    chunks = chunks_of(
        [[mask(bitmap), items(part)] for bitmap, part in zip(flags, parts, strict=True)],
        [len(part) // 4 for part in parts],
    )
    array = pa.FixedSizeListArray.from_arrays(pa.array(numbers(), mask=~valid), 4)
    return Case(array, mini(wrap(encoding), chunks), **more)


def zipped_vectors() -> Case:
    """The first buffer is the bitmap: it is what a compressor around vectors compresses."""
    return vectors(flat(64), lambda part: part.tobytes(), squeezed, general)


STRUCT = pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.int64(), False)])
PACKED = {"lance-encoding:packed": "true"}


def structs() -> tuple[pa.StructArray, pa.Field, np.ndarray]:
    second = numbers()
    first = (second % 1000).astype(np.int32)
    array = pa.StructArray.from_arrays([pa.array(first), pa.array(second)], fields=list(STRUCT))
    rows = np.empty(len(second), np.dtype([("a", "<i4"), ("b", "<i8")]))
    rows["a"], rows["b"] = first, second
    return array, pa.field("c", STRUCT, metadata=PACKED), rows


def packed_rows(wrap: Callable[[CE], CE], data: Callable[[bytes], bytes], **more: Any) -> Case:
    array, field, rows = structs()
    parts = cut(rows, 256)
    chunks = chunks_of([[data(part.tobytes())] for part in parts], [len(part) for part in parts])
    return Case(array, mini(wrap(flat(96)), chunks), field=field, **more)


def rows_of(values: CE) -> CE:
    return CE(packed_struct=pb.PackedStruct(bits_per_value=[32, 64], values=values))


# Strings


def words(count: int = ROWS) -> list[str]:
    rng = np.random.default_rng(2)
    known = ["", "alpha", "beta", "gamma ray", "delta", "abab" * 9]
    return [known[i] + known[j] for i, j in rng.integers(0, len(known), (count, 2)).tolist()]


def text_chunk(values: Sequence[bytes], width: int = 4) -> bytes:
    ends = np.cumsum([0, *(len(value) for value in values)]) + width * (len(values) + 1)
    data = ends.astype(f"<u{width}").tobytes() + b"".join(values)
    return data + b"H" * (-len(data) % width)


def text_block(values: Sequence[bytes], width: int = 4, *, old: bool = False) -> bytes:
    count = len(values)
    head = width + 1 + width if old else 2 * width
    begin = head + width * (count + 1)
    numbers = [8 * width, begin]
    header = (
        bytes([8 * width]) + count.to_bytes(width, "little") + begin.to_bytes(width, "little")
        if old
        else b"".join(number.to_bytes(width, "little") for number in numbers)
    )
    ends = np.cumsum([0, *(len(value) for value in values)])
    return header + ends.astype(f"<u{width}").tobytes() + b"".join(values)


def texts(bits: int = 32) -> CE:
    return CE(variable=pb.Variable(offsets=flat(bits)))


SYMBOLS = [b"ab", b"al", b"ph", b"a", b"b", b"e", b"t", b"gam", b"ma ", b"delta"]


def fsst(inner: CE) -> CE:
    return CE(fsst=pb.Fsst(symbol_table=symbol_table(SYMBOLS), values=inner))


def coded(text: bytes) -> bytes:
    out = bytearray()
    while text:
        code = next((i for i, symbol in enumerate(SYMBOLS) if text.startswith(symbol)), None)
        if code is None:
            out += bytes([255, text[0]])
            text = text[1:]
        else:
            out.append(code)
            text = text[len(SYMBOLS[code]) :]
    return bytes(out)


def text_case(
    encoding: CE,
    chunk: Callable[[list[bytes]], bytes],
    dtype: pa.DataType | None = None,
    **more: Any,
) -> Case:
    values = [word.encode() for word in words()]
    parts = [values[at : at + 256] for at in range(0, ROWS, 256)]
    chunks = chunks_of([[chunk(part)] for part in parts], [len(part) for part in parts])
    return Case(pa.array(words(), dtype or pa.string()), mini(encoding, chunks), **more)


# Dictionaries of pages


def dictionary(
    items: CE,
    data: Callable[[pa.Array], bytes],
    dtype: pa.DataType | None = None,
    bits: int = 8,
    **more: Any,
) -> Case:
    plain = pa.array(words()) if dtype is None else pa.array(numbers() % 97).cast(dtype)
    result = plain.dictionary_encode()
    positions = result.indices.to_numpy().astype(f"<u{bits // 8}")
    parts = cut(positions)
    chunks = chunks_of([[part.tobytes()] for part in parts], [len(part) for part in parts])
    of_page = DictionaryItems(
        items, np.frombuffer(data(result.dictionary), np.uint8), len(result.dictionary)
    )
    return Case(plain, mini(flat(bits), chunks, of_page), **more)


def as_bytes(items: pa.Array) -> list[bytes]:
    return [item.encode() for item in items.to_pylist()]


def raw(items: pa.Array) -> bytes:
    return to_block(items).data.tobytes()


def inside(
    indices: Child, items: CE, data: bytes, num_items: int, positions: np.ndarray
) -> tuple[CE, bytes]:
    """Return a dictionary in a single buffer."""
    encoding, places = indices(positions)
    message = pb.Dictionary(indices=encoding, items=items, num_dictionary_items=num_items)
    head = len(places).to_bytes(8, "little") + len(data).to_bytes(8, "little")
    return CE(dictionary=message), head + places + data


def dictionary_of_dictionary(dtype: pa.DataType | None, **more: Any) -> Case:
    plain = pa.array(words()) if dtype is None else pa.array(numbers() % 97).cast(dtype)
    result = plain.dictionary_encode()
    items = result.dictionary
    once = pa.concat_arrays([items, items])
    positions = np.tile(np.arange(len(items), dtype=np.uint16), 2)
    inner = (texts(), text_block(as_bytes(items))) if dtype is None else (flat(64), raw(items))
    encoding, data = inside(plain_child, *inner, len(items), positions)
    places = result.indices.to_numpy().astype("<u2")
    places[::2] += len(items)
    parts = cut(places)
    chunks = chunks_of([[part.tobytes()] for part in parts], [len(part) for part in parts])
    of_page = DictionaryItems(encoding, np.frombuffer(data, np.uint8), len(once))
    return Case(plain, mini(flat(16), chunks, of_page), **more)


plain_child = plain


# Levels


def levels(child: Child, kind: str = "<u2", **more: Any) -> Case:
    rng = np.random.default_rng(3)
    array = pa.array(numbers(), mask=rng.random(len(numbers())) < 0.2)
    chunks = chunks_of(
        [[part.tobytes()] for part in cut(numbers(), 512)], [len(p) for p in cut(numbers(), 512)]
    )

    def encode(result: np.ndarray, counts: np.ndarray) -> tuple[CE, ChunkBuffer]:
        ends = np.cumsum(counts)
        blocks = [
            child(result[end - count : end].astype(kind))
            for end, count in zip(ends.tolist(), counts.tolist(), strict=True)
        ]
        parts = chunks_of([[data] for _, data in blocks], counts.tolist())
        return blocks[0][0], parts.buffers[0]

    def make(column: LeafColumn, version: Version) -> EncodedPage | None:
        with mock.patch.object(mini_block_write, "encode_level_blocks", encode):
            return write_mini_block(column, flat(64), chunks, version)

    return Case(array, make, **more)


def as_runs(values: Child = plain, lengths: Child = plain, kind: str = "u1") -> Child:
    def child(result: np.ndarray) -> tuple[CE, bytes]:
        (of_values, data), (of_lengths, more) = map(
            lambda f, x: f(x), (values, lengths), runs_of(result, kind)
        )
        encoding = CE(rle=pb.Rle(values=of_values, run_lengths=of_lengths))
        return encoding, len(data).to_bytes(8, "little") + data + more

    return child


def inline(values: np.ndarray) -> tuple[CE, bytes]:
    unsigned = values.view(f"u{values.itemsize}")
    width = 5
    head = np.array([width], unsigned.dtype).tobytes()
    message = pb.InlineBitpacking(uncompressed_bits_per_value=values.itemsize * 8)
    return CE(inline_bitpacking=message), head + pack(unsigned, width)


def dictionary_levels(values: np.ndarray) -> tuple[CE, bytes]:
    items = np.array([1, 0, 0], values.dtype)
    places = np.where(values == 1, 0, 1).astype(np.uint8)
    return inside(plain, flat(16), items.tobytes(), 3, places)


def constant_chunks(value: bytes | None) -> Case:
    message = pb.Constant() if value is None else pb.Constant(value=value)
    case = one_buffer(CE(constant=message), lambda _: b"", reader=None)
    same = 0 if value is None else int.from_bytes(value, "little")
    return Case(pa.array(np.full(ROWS - ROWS % 40, same)), case.make, reader=None)


# Chunks


def large_chunks(step: int, version: Version = (2, 2), *, log: bool = False, **more: Any) -> Case:
    values = np.random.default_rng(4).integers(0, 1 << 62, 5 * step)

    def make(column: LeafColumn, _: Version) -> EncodedPage | None:
        parts = cut(values, step)
        chunks = chunks_of([[part.tobytes()] for part in parts], [step] * len(parts))
        page = write_mini_block(column, flat(64), chunks, (2, 2))
        assert page is not None
        if log:
            words = page.buffers[0].view("<u4").copy()
            words[-1] |= step.bit_length() - 1
            page = replace(page, buffers=(words.view(np.uint8), *page.buffers[1:]))
        return page

    return Case(pa.array(values), make, version, **more)


def nested_lists() -> pa.Array:
    rng = np.random.default_rng(5)
    kind = pa.list_(pa.list_(pa.list_(pa.int32())))
    return build(kind, rng.integers(0, 1 << 20, 700), 0.2, rng)


def deeper_index(more: int) -> Case:
    """A repetition index with counts of further depths, as readers must expect."""
    array = nested_lists()

    def make(column: LeafColumn, version: Version) -> EncodedPage | None:
        values = to_block(column.values)
        page = write_mini_block(
            column, *flat_module.encode_chunks(values, ChunkLimits(1 << 10, 256)), version
        )
        assert page is not None
        layout = pb.PageLayout.FromString(page.encoding)
        layout.mini_block_layout.repetition_index_depth = 1 + more
        table = page.buffers[-1].view("<u8").reshape(-1, 2)
        wide = np.concatenate([table, np.repeat(table[:, 1:], more, axis=1)], axis=1)
        buffers = (*page.buffers[:-1], np.ascontiguousarray(wide).reshape(-1).view(np.uint8))
        return EncodedPage(buffers, page.num_rows, layout.SerializeToString())

    return Case(array, make)


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
    kind: pa.DataType = pa.int16()
    validity, items = [], count
    for size, nulls in zip(sizes, flags, strict=True):
        items *= size
        validity.append(rng.random(items) < 0.7 if nulls else None)
    values = rng.integers(-999, 999, total).astype(np.int16)
    array: pa.Array = pa.array(values, mask=None if validity[2] is None else ~validity[2])
    for depth in (2, 1, 0):
        kind = pa.list_(kind, sizes[depth])
        outer = validity[depth - 1] if depth else None
        mask = None if outer is None else pa.array(~outer)
        array = pa.FixedSizeListArray.from_arrays(array, type=kind, mask=mask)
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
    kind = pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.string(), False)])
    field = pa.field("c", kind, metadata=PACKED)
    texts_ = words(500)
    array = pa.StructArray.from_arrays(
        [pa.array(range(500), pa.int32()), pa.array(texts_)], fields=list(kind)
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
    """Nothing but nulls below lists, with levels that are compressed."""
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


CASES: dict[str, Callable[[], Case]] = {
    "rle 16": lambda: rle(plain, plain, "<u2"),
    "rle 32": lambda: rle(plain, plain, "<u4"),
    "rle values zstd": lambda: rle(zipped("zstd"), plain),
    "rle lengths lz4": lambda: rle(plain, zipped("lz4"), "<u2"),
    "rle both zstd": lambda: rle(zipped("zstd"), zipped("zstd"), "<u4"),
    "rle values packed": lambda: rle(bits(40), plain),
    "rle lengths packed": lambda: rle(plain, bits(6)),
    "rle lengths packed 16": lambda: rle(plain, bits(6), "<u2"),
    "rle values packed lengths zstd": lambda: rle(bits(40), zipped("zstd")),
    "rle values zstd of packed": lambda: rle(zipped("zstd", bits(40)), plain),
    "rle lengths lz4 of packed": lambda: rle(plain, zipped("lz4", bits(6))),
    "general in general": nested_general,
    "byte planes": bare_planes,
    "packed values": lambda: one_buffer(
        packed(64, 40), lambda part: pack(part.view("u8"), 40), reader=None
    ),
    "null items": lambda: vectors(flat(64), lambda part: part.tobytes()),
    "null items, general": zipped_vectors,
    "null items, inline packed": lambda: vectors(
        CE(inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=64)),
        lambda part: (40).to_bytes(8, "little") + pack(part.view("u8"), 40),
        reader=None,
    ),
    "null items, items zstd": lambda: vectors(
        general(flat(64)), lambda part: squeezed(part.tobytes()), reader=None
    ),
    "packed struct": lambda: packed_rows(rows_of, lambda data: data),
    "packed struct, general around": lambda: packed_rows(
        lambda values: general(rows_of(values)), squeezed
    ),
    "packed struct, general inside": lambda: packed_rows(
        lambda values: rows_of(general(values)), squeezed, reader=None
    ),
    "text": lambda: text_case(texts(), text_chunk),
    "text 64": lambda: text_case(texts(64), lambda part: text_chunk(part, 8), pa.large_string()),
    "text 64 as string": lambda: text_case(
        texts(64), lambda part: text_chunk(part, 8), reader=None
    ),
    "text 32 as large": lambda: text_case(texts(), text_chunk, pa.large_string(), reader=None),
    "fsst": lambda: text_case(
        fsst(texts()), lambda part: text_chunk([coded(value) for value in part])
    ),
    "fsst of general": lambda: text_case(
        fsst(general(texts())),
        lambda part: squeezed(text_chunk([coded(v) for v in part])),
        reader=None,
    ),
    "general of fsst": lambda: text_case(
        general(fsst(texts()), "lz4"),
        lambda part: squeezed(text_chunk([coded(v) for v in part]), "lz4"),
    ),
    "fsst 64": lambda: text_case(
        fsst(texts(64)), lambda part: text_chunk([coded(v) for v in part], 8), pa.large_string()
    ),
    "dictionary": lambda: dictionary(texts(), lambda items: text_block(as_bytes(items))),
    "dictionary, positions 16": lambda: dictionary(
        texts(), lambda items: text_block(as_bytes(items)), bits=16
    ),
    "dictionary, positions 32": lambda: dictionary(
        texts(), lambda items: text_block(as_bytes(items)), bits=32
    ),
    "dictionary, positions 64": lambda: dictionary(
        texts(), lambda items: text_block(as_bytes(items)), bits=64
    ),
    "dictionary, old header": lambda: dictionary(
        texts(), lambda items: text_block(as_bytes(items), old=True)
    ),
    "dictionary 64": lambda: dictionary(
        texts(64), lambda items: text_block(as_bytes(items), 8), reader=None
    ),
    "dictionary 64, old header": lambda: dictionary(
        texts(64), lambda items: text_block(as_bytes(items), 8, old=True), reader=None
    ),
    "dictionary zstd": lambda: dictionary(
        general(texts()), lambda items: squeezed(text_block(as_bytes(items)))
    ),
    "dictionary zstd of lz4": lambda: dictionary(
        general(general(texts(), "lz4")),
        lambda items: squeezed(squeezed(text_block(as_bytes(items)), "lz4")),
    ),
    "dictionary fsst": lambda: dictionary(
        fsst(texts()), lambda items: text_block([coded(v) for v in as_bytes(items)]), reader=None
    ),
    "dictionary of numbers": lambda: dictionary(flat(64), raw, pa.int64()),
    "dictionary of numbers, lz4": lambda: dictionary(
        general(flat(64), "lz4"), lambda items: squeezed(raw(items), "lz4"), pa.int64()
    ),
    "dictionary of numbers, packed": lambda: dictionary(
        packed(64, 7), lambda items: pack(items.to_numpy().view("u8"), 7), pa.int64()
    ),
    "dictionary of numbers, inline packed": lambda: dictionary(
        inline(np.zeros(0, "u8"))[0],
        lambda items: (7).to_bytes(8, "little") + pack(items.to_numpy().view("u8"), 7),
        pa.int64(),
    ),
    "dictionary of numbers, runs": lambda: dictionary(
        as_runs()(np.zeros(1, "u8"))[0],
        lambda items: as_runs()(items.to_numpy().view("u8"))[1],
        pa.int64(),
    ),
    "dictionary of decimals": lambda: dictionary(flat(128), raw, pa.decimal128(25, 0)),
    "dictionary in dictionary": lambda: dictionary_of_dictionary(None, reader=None),
    "dictionary in dictionary of numbers": lambda: dictionary_of_dictionary(
        pa.int64(), reader=None
    ),
    "levels": lambda: levels(plain),
    "levels 8": lambda: levels(plain, "<u1", reader=None),
    "levels inline packed": lambda: levels(inline),
    "levels packed": lambda: levels(bits(1)),
    "levels zstd": lambda: levels(zipped("zstd")),
    "levels zstd of packed": lambda: levels(zipped("zstd", bits(3))),
    "levels zstd of runs": lambda: levels(zipped("zstd", as_runs())),
    "levels runs": lambda: levels(as_runs()),
    "levels runs 16": lambda: levels(as_runs(kind="<u2"), reader=(2, 3)),
    "levels runs, values packed": lambda: levels(as_runs(bits(1)), reader=(2, 3)),
    "levels runs, lengths zstd": lambda: levels(as_runs(plain, zipped("zstd")), reader=(2, 3)),
    "levels dictionary": lambda: levels(dictionary_levels, reader=None),
    "constant values": lambda: constant_chunks((77).to_bytes(8, "little")),
    "chunks of 32 KiB": lambda: large_chunks(4_096),
    "chunks of 256 KiB": lambda: large_chunks(32_768),
    "chunks of 256 KiB, last with its log": lambda: large_chunks(32_768, log=True),
    "large chunks in 2.1": lambda: large_chunks(4_096, (2, 1), reader=(2, 3)),
    "index of depth 2": lambda: deeper_index(1),
    "index of depth 3": lambda: deeper_index(2),
    "zip text": lambda: zip_text(texts(), bytes),
    "zip text 64": lambda: zip_text(texts(64), bytes, pa.large_string(), np.int64),
    "zip text 64 as string": lambda: zip_text(texts(64), bytes, None, np.int64, reader=None),
    "zip text lz4": lambda: zip_text(general(texts(), "lz4"), one_by_one("lz4"), reader=None),
    "zip text zstd": lambda: zip_text(general(texts()), one_by_one("zstd")),
    "zip fsst": lambda: zip_text(fsst(texts()), coded),
    "zip fsst of lz4": lambda: zip_text(
        fsst(general(texts(), "lz4")), lambda v: one_by_one("lz4")(coded(v)), reader=None
    ),
    "zip lz4 of fsst": lambda: zip_text(
        general(fsst(texts()), "lz4"), lambda v: one_by_one("lz4")(coded(v)), reader=None
    ),
    "zip lz4 of zstd": lambda: zip_text(
        general(general(texts()), "lz4"),
        lambda v: one_by_one("lz4")(one_by_one("zstd")(v)),
        reader=None,
    ),
    "zip rows": zip_rows,
    "zip vectors, items null": lambda: zip_nested_vectors([False, False, True]),
    "zip vectors, middle null": lambda: zip_nested_vectors([False, True, False]),
    "zip vectors, outer null": lambda: zip_nested_vectors([True, False, False]),
    "zip vectors, all null": lambda: zip_nested_vectors([True, True, True]),
    "zip vectors": lambda: zip_nested_vectors([False, False, False]),
    "zip constant": lambda: zip_constant(
        (5).to_bytes(8, "little"), pa.array(np.full(100, 5)), reader=None
    ),
    "zip text rows": lambda: text_rows(texts(), bytes),
    "zip text rows, fsst": lambda: text_rows(fsst(texts()), coded),
    "zip text rows, lz4": lambda: text_rows(
        general(texts(), "lz4"), one_by_one("lz4"), reader=None
    ),
    "constant inline": lambda: constant(
        repeated(-3, pa.int16()), (-3).to_bytes(2, "little", signed=True), None
    ),
    "constant of no nulls": lambda: constant(
        repeated(9, pa.int64(), nulls=False), (9).to_bytes(8, "little"), None
    ),
    "constant in a buffer": lambda: constant(
        repeated(9, pa.int64()), None, scalar_buffer((9).to_bytes(8, "little"))
    ),
    "constant bool": lambda: constant(repeated(True, pa.bool_()), b"\1", None),
    "constant bool in a buffer": lambda: constant(
        repeated(True, pa.bool_()), None, scalar_buffer(b"\1")
    ),
    "constant text": lambda: constant(repeated("hello", pa.string()), None, text_scalar(b"hello")),
    "constant empty text": lambda: constant(repeated("", pa.string()), None, text_scalar(b"")),
    "constant large text": lambda: constant(
        repeated("hello", pa.large_string()), None, text_scalar(b"hello", 8)
    ),
    "constant text of 64 bits": lambda: constant(
        repeated("hello", pa.string()), None, text_scalar(b"hello", 8), reader=None
    ),
    "constant large text of 32 bits": lambda: constant(
        repeated("hello", pa.large_string()), None, text_scalar(b"hello", 4), reader=None
    ),
    "constant decimal": lambda: constant(
        repeated(Decimal(-7), pa.decimal128(30, 0)), (-7).to_bytes(16, "little", signed=True), None
    ),
    "constant decimal256": lambda: constant(
        repeated(Decimal(-7), pa.decimal256(70, 0)), (-7).to_bytes(32, "little", signed=True), None
    ),
    "constant bytes": lambda: constant(
        repeated(b"q" * 40, pa.binary(40)), None, scalar_buffer(b"q" * 40)
    ),
    "constant bytes inline": lambda: constant(repeated(b"q" * 40, pa.binary(40)), b"q" * 40, None),
    "constant date": lambda: constant(
        repeated(11, pa.int32()).cast(pa.date32()), (11).to_bytes(4, "little"), None
    ),
    "constant vector": lambda: constant(
        repeated([1, 2, 3], pa.list_(pa.int16(), 3)), b"\1\0\2\0\3\0", None, reader=None
    ),
    "constant in lists": lambda: constant(
        pa.array([None, [], [4], [4, None, 4]] * 30, pa.list_(pa.int8())), b"\4", None
    ),
    "constant text in lists": lambda: constant(
        pa.array([None, [], ["x"], ["x", None]] * 30, pa.list_(pa.string())),
        None,
        text_scalar(b"x"),
    ),
    "constant dictionary": lambda: constant(
        repeated("hello", pa.string()).dictionary_encode(), None, text_scalar(b"hello"), reader=None
    ),
    "null lists": lambda: null_lists(plain, plain),
    "null lists packed": lambda: null_lists(bits(1), bits(2)),
    "null lists zstd": lambda: null_lists(zipped("zstd"), zipped("lz4")),
    "null lists runs": lambda: null_lists(as_runs(), zipped("zstd", as_runs())),
}


@pytest.fixture(scope="module", params=CASES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    case = CASES[request.param]()
    path = tmp_path_factory.mktemp("f") / "f.lance"
    path.write_bytes(file_of(case.array, case.version, case.make, case.field))
    return case, path


def test_pylance_reads(written: Written, tmp_path: Path) -> None:
    case, path = written
    result = theirs(path)
    if case.reader == case.version:
        assert result is not None
        assert result.equals(case.array)
        return
    assert result is None or not result.equals(case.array)
    if case.reader:
        newer = tmp_path / "f.lance"
        newer.write_bytes(file_of(case.array, case.reader, case.make, case.field))
        result = theirs(newer)
        assert result is not None
        assert result.equals(case.array)


def test_we_read(written: Written) -> None:
    case, path = written
    rows = len(case.array)
    assert ours(path).equals(case.array)
    for part in (range(1), range(rows - 1, rows), range(rows // 3, rows // 2)):
        assert ours(path, part).equals(case.array.slice(part.start, len(part)))
    some = np.unique(np.random.default_rng(rows).integers(0, rows, 9))
    assert ours(path, some).equals(case.array.take(pa.array(some)))

"""Mini-block pages with encodings that no writer makes by default, built byte by byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from lance_spark.encoding.blocks import to_block
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.codec import ChunkBuffer, ChunkLimits, Chunks
from lance_spark.encoding.v2_1.codecs import flat as flat_module
from lance_spark.encoding.v2_1.layouts import mini_block_write
from lance_spark.encoding.v2_1.layouts.mini_block_write import DictionaryItems, write_mini_block
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.encodings.chunks import symbol_table
from tests.support.encodings.fixed import pack as pack_rows
from tests.support.encodings.handmade import (
    CE,
    Make,
    Version,
    chunks_of,
    flat,
    general,
    packed,
    squeezed,
)
from tests.support.interop.tables import build

ROWS = 3_000
CHUNK = 1_024


@dataclass(frozen=True)
class Case:
    """A column, a function that makes its page, and the version at which pylance reads it."""

    array: pa.Array
    make: Make
    version: Version = (2, 2)
    field: pa.Field | None = None
    # The file version at which pylance reads the page: the version of the page, 2.3 if older
    # versions forbid the encoding, or None.
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


def runs_of(values: np.ndarray, length_dtype: str) -> tuple[np.ndarray, np.ndarray]:
    most = np.iinfo(length_dtype).max
    result = []
    for value, run in groupby(values.tolist()):
        left = len(list(run))
        while left:
            result.append((value, min(left, most)))
            left -= result[-1][1]
    return (
        np.array([value for value, _ in result], values.dtype),
        np.array([count for _, count in result], length_dtype),
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


def rle(values: Child, lengths: Child, length_dtype: str = "u1") -> Case:
    parts, counts = [], []
    for part in cut(numbers()):
        result, times = runs_of(part, length_dtype)
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


def wide_integers(*, signed: bool) -> Case:
    """Decimals in Zstandard frames that repeat upper bytes; see `codecs.wide_integers`."""
    values = numbers()
    values = np.where(np.arange(len(values)) % 3 == 0, -values, values) if signed else values
    words = np.stack([values, values >> 63], axis=1)
    parts = cut(words)
    make = signed_frame if signed else common_frame
    chunks = chunks_of([[make(part)] for part in parts], [len(part) for part in parts])
    dtype = pa.decimal128(20, 0)
    array = pa.Array.from_buffers(dtype, len(values), [None, pa.py_buffer(words)])
    return Case(array, mini(general(flat(128), "zstd"), chunks))


def matches(literals: bytes, number: int, size: int, offset: bytes, last: bool) -> bytes:
    """Return a block of Zstandard of matches that repeat 16 - `size` bytes after `size` literals.

    - `offset`: The code of the offset, and the bits after it.
    """
    many = bytes([number]) if number < 128 else bytes([number >> 8 | 128, number & 255])
    codes = bytes([0x54, size, offset[0], 16 - size - 3])
    body = (len(literals) << 4 | 12).to_bytes(3, "little") + literals + many + codes + offset[1:]
    return (len(body) << 3 | 4 | last).to_bytes(3, "little") + body


def zstd_frame(size: int, blocks: bytes) -> bytes:
    head = b"\x28\xb5\x2f\xfd\x60" + (size - 256).to_bytes(2, "little")
    return size.to_bytes(8, "little") + head + blocks


def signed_frame(part: np.ndarray) -> bytes:
    literals = b"".join(row.tobytes()[:6] for row in part)
    return zstd_frame(part.nbytes, matches(literals, len(part), 6, b"\x00\x01", True))


def common_frame(part: np.ndarray) -> bytes:
    rows = [row.tobytes() for row in part]
    raw = (16 << 3).to_bytes(3, "little") + rows[0]
    # The offset is 19 less 3: 16, and 3 in 4 bits, after the bit that ends the bits.
    second = bytes([len(rows[1][:5]) << 3]) + rows[1][:5] + b"\x01"
    second += bytes([0x54, 5, 4, 16 - 5 - 3, 0b10011])
    head = (len(second) << 3 | 4).to_bytes(3, "little")
    literals = b"".join(row[:5] for row in rows[2:])
    rest = matches(literals, len(rows) - 2, 5, b"\x00\x01", True)
    return zstd_frame(part.nbytes, raw + head + second + rest)


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
    """The first buffer is the bitmap: a compressor around vectors compresses this buffer."""
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


def levels(child: Child, level_dtype: str = "<u2", **more: Any) -> Case:
    rng = np.random.default_rng(3)
    array = pa.array(numbers(), mask=rng.random(len(numbers())) < 0.2)
    chunks = chunks_of(
        [[part.tobytes()] for part in cut(numbers(), 512)], [len(p) for p in cut(numbers(), 512)]
    )

    def encode(result: np.ndarray, counts: np.ndarray) -> tuple[CE, ChunkBuffer]:
        ends = np.cumsum(counts)
        blocks = [
            child(result[end - count : end].astype(level_dtype))
            for end, count in zip(ends.tolist(), counts.tolist(), strict=True)
        ]
        parts = chunks_of([[data] for _, data in blocks], counts.tolist())
        return blocks[0][0], parts.buffers[0]

    def make(column: LeafColumn, version: Version) -> EncodedPage | None:
        with mock.patch.object(mini_block_write, "encode_level_blocks", encode):
            return write_mini_block(column, flat(64), chunks, version)

    return Case(array, make, **more)


def as_runs(values: Child = plain, lengths: Child = plain, length_dtype: str = "u1") -> Child:
    def child(result: np.ndarray) -> tuple[CE, bytes]:
        (of_values, data), (of_lengths, more) = map(
            lambda f, x: f(x), (values, lengths), runs_of(result, length_dtype)
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
    dtype = pa.list_(pa.list_(pa.list_(pa.int32())))
    return build(dtype, rng.integers(0, 1 << 20, 700), 0.2, rng)


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

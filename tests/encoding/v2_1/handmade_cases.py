"""All pages with encodings that no writer makes by default, by name."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa

from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.encoding.v2_1.full_zip_cases import (
    constant,
    null_lists,
    one_by_one,
    repeated,
    scalar_buffer,
    text_rows,
    text_scalar,
    zip_constant,
    zip_nested_vectors,
    zip_rows,
    zip_text,
)
from tests.encoding.v2_1.mini_block_cases import (
    Case,
    as_bytes,
    as_runs,
    bare_planes,
    bits,
    coded,
    constant_chunks,
    deeper_index,
    dictionary,
    dictionary_levels,
    dictionary_of_dictionary,
    fsst,
    inline,
    large_chunks,
    levels,
    nested_general,
    one_buffer,
    pack,
    packed_rows,
    plain,
    raw,
    rle,
    rows_of,
    text_block,
    text_case,
    text_chunk,
    texts,
    vectors,
    wide_integers,
    zipped,
    zipped_vectors,
)
from tests.support.encodings.handmade import (
    CE,
    flat,
    general,
    packed,
    squeezed,
)

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
    "wide integers": lambda: wide_integers(signed=False),
    "wide integers, signs": lambda: wide_integers(signed=True),
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
    "levels runs 16": lambda: levels(as_runs(length_dtype="<u2"), reader=(2, 3)),
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

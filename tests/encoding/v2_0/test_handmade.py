"""All arms of `ArrayEncoding`, alone and nested: this package reads every page that pylance reads;
both refuse the others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.encoding.compression import compress
from lance_spark.errors import UnsupportedEncodingError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from tests.encoding.v2_0.files import File, assert_rows, make, read_theirs

INTS = np.arange(16, dtype="<i4")
RAW = INTS.tobytes()
ENDS = np.array([1, 1, 2, 3], "<u8").tobytes()


def flat(bits: int, buffer: int = 0, scheme: str | None = None) -> pb.ArrayEncoding:
    message = pb.Flat(bits_per_value=bits, buffer=pb.Buffer(buffer_index=buffer))
    if scheme is not None:
        message.compression.scheme = scheme
    return pb.ArrayEncoding(flat=message)


def packed(bits: int, buffer: int = 0) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(
        bitpacked=pb.Bitpacked(
            compressed_bits_per_value=4,
            uncompressed_bits_per_value=bits,
            buffer=pb.Buffer(buffer_index=buffer),
        )
    )


def no_nulls(values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNull(values=values)))


def some_nulls(values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    some = pb.Nullable.SomeNull(validity=flat(1), values=values)
    return pb.ArrayEncoding(nullable=pb.Nullable(some_nulls=some))


def all_nulls() -> pb.ArrayEncoding:
    return pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=pb.Nullable.AllNull()))


def vectors(items: pb.ArrayEncoding) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(fixed_size_list=pb.FixedSizeList(dimension=2, items=items))


def strings(indices: pb.ArrayEncoding, data: pb.ArrayEncoding, mark: int = 4) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(binary=pb.Binary(indices=indices, bytes=data, null_adjustment=mark))


def items(indices: pb.ArrayEncoding, values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(
        dictionary=pb.Dictionary(indices=indices, items=values, num_dictionary_items=4)
    )


LZ4 = compress("lz4", INTS.view(np.uint8))
ZSTD = compress("zstd", INTS.view(np.uint8))
VECTOR = pa.list_(pa.int32(), 2)
WORDS = strings(no_nulls(flat(64, 1)), flat(8, 2))

READ: dict[str, tuple[pa.DataType, int, list[bytes], pb.ArrayEncoding, list[object]]] = {
    "flat": (pa.int32(), 16, [RAW], flat(32), INTS.tolist()),
    "flat_none": (pa.int32(), 16, [RAW], flat(32, 0, "none"), INTS.tolist()),
    "flat_lz4": (pa.int32(), 16, [LZ4], flat(32, 0, "lz4"), INTS.tolist()),
    "flat_zstd": (pa.int32(), 16, [ZSTD], flat(32, 0, "zstd"), INTS.tolist()),
    # Old releases did not write the length in front of the frame.
    "flat_zstd_frame": (pa.int32(), 16, [ZSTD[8:]], flat(32, 0, "zstd"), INTS.tolist()),
    "flags_of_bytes": (pa.bool_(), 3, [b"\1\0\1"], flat(8), [True, False, True]),
    "bitpacked_dates": (
        pa.date32(),
        4,
        [b"\x21\x43"],
        packed(32),
        pa.array([1, 2, 3, 4], pa.date32()).to_pylist(),
    ),
    "nullable_bitpacked": (
        pa.uint16(),
        4,
        [b"\x0d", b"\x21\x43"],
        some_nulls(packed(16, 1)),
        [1, None, 3, 4],
    ),
    "vectors_of_flat": (VECTOR, 8, [RAW], vectors(flat(32)), INTS.reshape(-1, 2).tolist()),
    "vectors_of_zstd": (
        VECTOR,
        8,
        [ZSTD],
        vectors(flat(32, 0, "zstd")),
        INTS.reshape(-1, 2).tolist(),
    ),
    "vectors_of_bitpacked": (VECTOR, 2, [b"\x21\x43"], vectors(packed(32)), [[1, 2], [3, 4]]),
    "vectors_of_nulls": (VECTOR, 2, [], vectors(all_nulls()), [[None, None]] * 2),
    "nulls_of_strings": (pa.string(), 3, [], all_nulls(), [None] * 3),
    "nulls_of_dictionaries": (
        pa.dictionary(pa.int8(), pa.string()),
        3,
        [],
        all_nulls(),
        [None] * 3,
    ),
    "nullable_strings": (
        pa.string(),
        4,
        [b"\x0d", ENDS, b"abc"],
        some_nulls(WORDS),
        ["a", None, "b", "c"],
    ),
    "strings_with_bitpacked_ends": (
        pa.large_binary(),
        4,
        [b"\x51\x32", b"abc"],
        strings(no_nulls(packed(64)), flat(8, 1)),
        [b"a", None, b"b", b"c"],
    ),
    "repeated_strings_bitpacked": (
        pa.string(),
        4,
        [b"\x10\x43", ENDS, b"abc"],
        items(no_nulls(packed(8)), WORDS),
        [None, "a", "b", "c"],
    ),
    "repeated_binaries": (
        pa.binary(),
        4,
        [b"\0\1\3\4", ENDS, b"abc"],
        items(no_nulls(flat(8)), WORDS),
        [None, b"a", b"b", b"c"],
    ),
    "dictionary_bitpacked": (
        pa.dictionary(pa.int16(), pa.string()),
        4,
        [b"\x30\x12", ENDS, b"abc"],
        items(no_nulls(packed(16)), WORDS),
        ["a", "c", "b", ""],
    ),
}


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        (name, wrapped)
        for name in READ
        for wrapped in (False, True)
        if not (wrapped and READ[name][3].HasField("nullable"))
    ],
)
def test_encodings_that_pylance_reads_are_read(name: str, wrapped: bool, tmp_path: Path) -> None:
    dtype, rows, buffers, encoding, expected = READ[name]
    field = pa.field("c", dtype)
    message = no_nulls(encoding) if wrapped else encoding
    path = make(tmp_path / "f.lance", field, rows, buffers, message)
    theirs = read_theirs(path)["c"]
    assert theirs.to_pylist() == expected
    assert_rows(File(path, pa.schema([field])), "c", theirs, 1)


BITPACKING = pb.OutOfLineBitpacking(uncompressed_bits_per_value=32, compressed_bits_per_value=32)
REFUSED = {
    "constant": pb.ArrayEncoding(constant=pb.Constant(value=b"\7\0\0\0")),
    "inline_bitpacking": pb.ArrayEncoding(
        inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=32)
    ),
    "out_of_line_bitpacking": pb.ArrayEncoding(out_of_line_bitpacking=BITPACKING),
    "variable": pb.ArrayEncoding(variable=pb.Variable(bits_per_offset=32)),
    "packed_struct_fixed_width_mini_block": pb.ArrayEncoding(
        packed_struct_fixed_width_mini_block=pb.PackedStructFixedWidthMiniBlock(
            bits_per_values=[32]
        )
    ),
    "block": pb.ArrayEncoding(block=pb.Block(scheme="zstd")),
    "rle": pb.ArrayEncoding(rle=pb.Rle(bits_per_value=32)),
    "general_mini_block": pb.ArrayEncoding(general_mini_block=pb.GeneralMiniBlock(inner=flat(32))),
    "byte_stream_split": pb.ArrayEncoding(byte_stream_split=pb.ByteStreamSplit(bits_per_value=32)),
    "struct": pb.ArrayEncoding(struct=pb.SimpleStruct()),
    "unknown": pb.ArrayEncoding(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_encodings_that_pylance_cannot_read_are_refused(name: str, tmp_path: Path) -> None:
    field = pa.field("c", pa.int32())
    path = make(tmp_path / "f.lance", field, 16, [RAW], REFUSED[name])
    # pylance panics; a panic is no Exception.
    with pytest.raises(BaseException, match=r"unreachable|None|decode|encoding"):
        read_theirs(path)
    with pytest.raises(UnsupportedEncodingError, match=rf"column 'c', page 0.*'{name}'"):
        File(path, pa.schema([field])).read("c", range(16))


@pytest.mark.parametrize("scheme", ["fsst", "gzip"])
def test_compressions_that_neither_reads(scheme: str, tmp_path: Path) -> None:
    field = pa.field("c", pa.int32())
    path = make(tmp_path / "f.lance", field, 16, [RAW], flat(32, 0, scheme))
    with pytest.raises(BaseException, match=f"(?i){scheme}"):
        read_theirs(path)
    with pytest.raises(UnsupportedEncodingError, match=f"column 'c', page 0.*'{scheme}'"):
        File(path, pa.schema([field])).read("c", range(16))


def test_every_encoding_of_the_message_has_a_test() -> None:
    arms = {field.name for field in pb.ArrayEncoding.DESCRIPTOR.fields}
    made = {"nullable", "flat", "binary", "dictionary", "fixed_size_list", "bitpacked"}
    # Files of pylance have these arms, or test_rare has them.
    elsewhere = {"list", "fsst", "packed_struct", "bitpacked_for_non_neg", "fixed_size_binary"}
    assert arms == made | elsewhere | set(REFUSED) - {"unknown"}

"""Encodings that pylance reads at version 2.0 but no longer writes: files made by hand, values
as pylance reads them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.proto import encodings_v2_0_pb2 as pb
from tests.encoding.v2_0.files import File, assert_rows, make, read_theirs
from tests.support.encodings.fixed import pack

ROWS = [1, 7, 1000, 1024, 2500, 20_000]


def check(path: str, field: pa.Field, expected: pa.Array, seed: int) -> None:
    theirs = read_theirs(path)["c"].combine_chunks()
    assert theirs.equals(expected)
    assert_rows(File(path, pa.schema([field])), "c", theirs, seed)


def packed_bits(values: np.ndarray, width: int) -> bytes:
    """Cut values to their lowest bits and lay these end to end."""
    bits = np.unpackbits(
        values.astype("<i8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
    )
    return np.packbits(bits[:, :width].reshape(-1), bitorder="little").tobytes()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(
    ("dtype", "width", "signed"),
    [
        (pa.uint8(), 3, False),
        (pa.int16(), 9, True),
        (pa.uint32(), 17, False),
        (pa.int32(), 13, True),
        (pa.uint32(), 8, False),
        (pa.int64(), 1, True),
        (pa.int64(), 33, True),
        (pa.uint64(), 61, False),
        (pa.int64(), 63, True),
    ],
)
def test_bitpacked(dtype: pa.DataType, width: int, signed: bool, rows: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(rows)
    low = -(1 << (width - 1)) if signed else 0
    values = rng.integers(low, low + (1 << width) - 1, rows, endpoint=True, dtype=np.int64)
    message = pb.Bitpacked(
        compressed_bits_per_value=width,
        uncompressed_bits_per_value=dtype.bit_width,
        signed=signed,
        buffer=pb.Buffer(),
    )
    encoding = pb.ArrayEncoding(
        nullable=pb.Nullable(
            no_nulls=pb.Nullable.NoNull(values=pb.ArrayEncoding(bitpacked=message))
        )
    )
    field = pa.field("c", dtype)
    path = make(tmp_path / "f.lance", field, rows, [packed_bits(values, width)], encoding)
    check(path, field, pa.array(values, dtype), width)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(
    ("dtype", "width"),
    [(pa.uint8(), 3), (pa.int16(), 11), (pa.uint32(), 17), (pa.int32(), 31), (pa.int64(), 40)],
)
def test_bitpacked_for_non_neg(dtype: pa.DataType, width: int, rows: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(rows)
    values = rng.integers(0, 1 << width, rows, dtype=np.int64)
    filled = np.zeros(-(-rows // 1024) * 1024, f"<u{dtype.bit_width // 8}")
    filled[:rows] = values
    valid = rng.random(rows) < 0.8
    message = pb.BitpackedForNonNeg(
        compressed_bits_per_value=width,
        uncompressed_bits_per_value=dtype.bit_width,
        buffer=pb.Buffer(buffer_index=1),
    )
    validity = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=1, buffer=pb.Buffer()))
    some = pb.Nullable.SomeNull(
        validity=validity, values=pb.ArrayEncoding(bitpacked_for_non_neg=message)
    )
    encoding = pb.ArrayEncoding(nullable=pb.Nullable(some_nulls=some))
    buffers = [
        np.packbits(valid, bitorder="little").tobytes(),
        pack(filled.reshape(-1, 1024), width).tobytes(),
    ]
    field = pa.field("c", dtype)
    path = make(tmp_path / "f.lance", field, rows, buffers, encoding)
    check(path, field, pa.array(values, dtype, mask=~valid), width)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_binary()])
def test_fixed_size_binary(dtype: pa.DataType, rows: int, tmp_path: Path) -> None:
    text = "".join(f"{i:05d}" for i in range(rows)).encode()
    flat = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=8, buffer=pb.Buffer()))
    encoding = pb.ArrayEncoding(fixed_size_binary=pb.FixedSizeBinary(bytes=flat, byte_width=5))
    field = pa.field("c", dtype)
    path = make(tmp_path / "f.lance", field, rows, [text], encoding)
    check(path, field, pa.array([f"{i:05d}" for i in range(rows)], pa.string()).cast(dtype), rows)

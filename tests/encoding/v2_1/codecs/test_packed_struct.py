"""PackedStruct and VariablePackedStruct: structs row by row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.blocks import (
    FixedWidthBlock,
    StructBlock,
    VariableWidthBlock,
    from_block,
    to_block,
)
from lance_spark.encoding.v2_1.codec import ChunkLimits, decode_chunks, decode_values
from lance_spark.encoding.v2_1.codecs import packed_structs
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.cells import number_of
from tests.support.encodings.chunks import block_of, chunks_of, strings_of, values_of, write

PACKED = {"lance-encoding:packed": "true"}
FIXED = [pa.int64(), pa.float32(), pa.int16(), pa.uint8(), pa.binary(5), pa.decimal128(30, 2)]
VARIABLE = [pa.string(), pa.large_binary()]


def column(dtype: pa.DataType, count: int, seed: int) -> pa.Array:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 100, count)
    if dtype in VARIABLE:
        return pa.array([b"ab cd " * int(n % 7) for n in numbers], pa.binary()).cast(dtype)
    if dtype == pa.binary(5):
        return pa.array([b"%05d" % n for n in numbers], dtype)
    return pa.array(numbers).cast(dtype, safe=False)


def structs(dtypes: list[pa.DataType], count: int) -> pa.StructArray:
    columns = [column(dtype, count, seed) for seed, dtype in enumerate(dtypes)]
    return pa.StructArray.from_arrays(columns, names=[f"f{i}" for i in range(len(dtypes))])


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_fixed_pages_of_pylance(version: str) -> None:
    array = structs(FIXED[:5], 4000)
    (page,) = write(array, version, PACKED)
    assert page.encoding.WhichOneof("compression") == "packed_struct"
    block = decode_chunks(page.encoding, chunks_of(page))
    assert from_block(block, array.type).equals(array)


@pytest.mark.parametrize(
    "dtypes",
    [[pa.int64(), pa.string()], [pa.string(), pa.int16(), pa.large_binary(), pa.float32()]],
    ids=str,
)
def test_variable_pages_of_pylance(dtypes: list[pa.DataType]) -> None:
    array = structs(dtypes, 6000)
    (page,) = write(array, "2.2", PACKED)
    assert page.encoding.WhichOneof("compression") == "variable_packed_struct"
    block = decode_values(page.encoding, values_of(page))
    assert from_block(block, array.type).equals(array)


KINDS = st.lists(st.sampled_from(FIXED), min_size=1, max_size=5)


@given(KINDS, st.integers(1, 200))
@settings(max_examples=40, deadline=None)
def test_fixed_round_trip(dtypes: list[pa.DataType], count: int) -> None:
    array = structs(dtypes, count)
    encoding, chunks = packed_structs.encode_chunks(to_block_of(array), ChunkLimits(512, 64))
    assert from_block(decode_chunks(encoding, chunks), array.type).equals(array)
    encoding, rows = packed_structs.encode_values(to_block_of(array))
    assert rows.bits_per_value == sum(dtype.bit_width for dtype in dtypes)
    assert from_block(decode_values(encoding, rows), array.type).equals(array)


def to_block_of(array: pa.StructArray) -> StructBlock:
    return StructBlock(tuple(to_block(array.field(i)) for i in range(array.type.num_fields)))


@given(st.lists(st.sampled_from(FIXED + VARIABLE), min_size=1, max_size=5), st.integers(1, 100))
@settings(max_examples=number_of(30, 60), deadline=None)
def test_variable_round_trip(dtypes: list[pa.DataType], count: int) -> None:
    array = structs(dtypes, count)
    encoding, rows = packed_structs.encode_variable_values(to_block_of(array))
    assert from_block(decode_values(encoding, rows), array.type).equals(array)


def test_null_rows_have_no_bytes() -> None:
    array = structs([pa.int16(), pa.string(), pa.int16()], 3)
    encoding, rows = packed_structs.encode_variable_values(to_block_of(array))
    first, *rest = strings_of(rows)
    result = decode_values(encoding, block_of([first, b"", *rest, b""]))
    back = from_block(result, array.type).to_pylist()
    assert [back[i] for i in (0, 2, 3)] == array.to_pylist()
    assert back[1] == back[4] == {"f0": 0, "f1": "", "f2": 0}
    empty = decode_values(encoding, block_of([b"", b""]))
    assert from_block(empty, array.type).to_pylist() == [back[1]] * 2


def test_bools_and_strings_are_refused() -> None:
    flags = FixedWidthBlock(np.zeros(1, np.uint8), 1, 3)
    for child in (flags, block_of([b"a"] * 3)):
        with pytest.raises(InvalidInputError):
            packed_structs.encode_values(StructBlock((child,)))


def test_widths_that_contradict() -> None:
    rows = FixedWidthBlock(np.zeros(24, np.uint8), 64, 3)
    flat = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=64))
    for widths, error in (
        ([], CorruptFileError),
        ([32], CorruptFileError),
        ([32, 64], CorruptFileError),
        ([63, 1], UnsupportedEncodingError),
        ([64, 0], UnsupportedEncodingError),
    ):
        packed = pb.PackedStruct(bits_per_value=widths, values=flat)
        with pytest.raises(error):
            decode_values(pb.CompressiveEncoding(packed_struct=packed), rows)


@given(st.data())
@settings(max_examples=number_of(60, 150), deadline=None)
def test_damaged_rows(data: st.DataObject) -> None:
    array = structs([pa.int16(), pa.string(), pa.int64(), pa.large_binary()], 6)
    encoding, rows = packed_structs.encode_variable_values(to_block_of(array))
    damaged = rows.data.copy()
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    offsets = np.sort(
        np.array(
            data.draw(st.lists(st.integers(0, len(damaged)), min_size=7, max_size=7)), np.int32
        )
    )
    offsets = data.draw(st.sampled_from([offsets, rows.offsets]))
    fields = encoding.variable_packed_struct.fields
    field = fields[data.draw(st.integers(0, len(fields) - 1))]
    wrong = data.draw(st.sampled_from([None, 8, 24, 64, 1 << 20, 1 << 62]))
    if wrong is not None:
        setattr(field, data.draw(st.sampled_from(["bits_per_value", "bits_per_length"])), wrong)
    try:
        result = decode_values(encoding, VariableWidthBlock(offsets, damaged))
        for child in result.children:
            assert child.num_values == 6
    except (CorruptFileError, UnsupportedEncodingError):
        return


@pytest.mark.parametrize("bits", [8, 1 << 40, 1 << 63])
def test_wide_fields_of_null_rows_take_no_memory(bits: int) -> None:
    flat = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))
    field = pb.VariablePackedStruct.FieldEncoding(value=flat, bits_per_value=bits)
    packed = pb.VariablePackedStruct(fields=[field])
    encoding = pb.CompressiveEncoding(variable_packed_struct=packed)
    if bits == 8:
        assert decode_values(encoding, block_of([b""] * 4)).num_values == 4
        return
    with pytest.raises((CorruptFileError, UnsupportedEncodingError)):
        decode_values(encoding, block_of([b""] * 4))

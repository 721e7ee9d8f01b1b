"""Flat against plain bytes and pages that pylance wrote."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.blocks import FixedWidthBlock
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    decode_block,
    decode_blocks,
    decode_chunks,
    decode_values,
)
from lance_spark.encoding.v2_1.codecs import flat
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.cells import number_of
from tests.support.encodings.chunks import chunks_of, write
from tests.support.encodings.fixed import all_apart

LIMITS = ChunkLimits(8186, 4096)


def message(bits: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))


def random_block(bits: int, count: int) -> FixedWidthBlock:
    size = -(-count * bits // 8)
    return FixedWidthBlock(
        np.random.default_rng(bits).integers(0, 256, size + 3, dtype=np.uint8), bits, count
    )


@given(
    st.sampled_from([1, 8, 16, 24, 32, 64, 128, 256]),
    st.integers(0, 20000),
    st.sampled_from([100, 4096, 8186]),
)
@settings(max_examples=number_of(30, 60), deadline=None)
def test_round_trip(bits, count, most):
    block = random_block(bits, count)
    limits = ChunkLimits(most, 4096)
    encoding, chunks = flat.encode_chunks(block, limits)
    assert encoding == message(bits)
    sizes, counts = chunks.buffers[0].sizes, chunks.num_values
    assert (sizes <= most).all()
    assert counts.sum() == count
    assert all(n.bit_count() == 1 for n in counts[:-1].tolist())
    if len(counts) > 1:
        step = int(counts[0])
        assert (counts[:-1] == step).all()
        assert step == 4096 or 2 * step * bits > most * 8
    for some in (chunks, all_apart(chunks)):
        result = decode_chunks(encoding, some)
        assert (result.bits_per_value, result.num_values) == (bits, count)
        assert result.data.tobytes() == block.data[: -(-count * bits // 8)].tobytes()


def test_one_run_of_chunks_is_not_copied():
    block = random_block(64, 5000)
    encoding, chunks = flat.encode_chunks(block, LIMITS)
    assert len(chunks.num_values) > 1
    assert np.shares_memory(decode_chunks(encoding, chunks).data, block.data)
    _, data = flat.encode_block(block)
    assert np.shares_memory(data, block.data)
    assert np.shares_memory(decode_block(encoding, data, 5000).data, block.data)


@given(st.lists(st.lists(st.booleans(), max_size=20), max_size=6))
def test_bits_of_chunks_that_end_inside_a_byte(parts):
    pieces = [np.packbits(np.array(part, bool), bitorder="little") for part in parts]
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    data = np.concatenate([np.zeros(0, np.uint8), *pieces])
    chunks = Chunks(
        (ChunkBuffer(data, np.cumsum(sizes) - sizes, sizes),),
        np.array([len(part) for part in parts], np.int64),
    )
    result = decode_chunks(message(1), all_apart(chunks))
    expected = [value for part in parts for value in part]
    bits = np.unpackbits(result.data, count=result.num_values, bitorder="little")
    assert bits.tolist() == expected


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("type_name", ["bool", "decimal", "binary", "int"])
def test_pages_of_pylance(version, type_name):
    rng = np.random.default_rng(1)
    metadata = None
    if type_name == "bool":
        array = pa.array(rng.random(70001) < 0.3)
    elif type_name == "decimal":
        array = pa.array(rng.integers(0, 1 << 60, 3000)).cast(pa.decimal128(30, 0))
    elif type_name == "binary":
        array = pa.array([rng.bytes(12) for _ in range(3000)], pa.binary(12))
    else:
        array = pa.array(rng.integers(0, 1 << 40, 3000))
        metadata = {b"lance-encoding:compression": b"none"}
    (page,) = write(array, version, metadata)
    encoding = page.encoding
    if type_name == "binary" and encoding.WhichOneof("compression") == "fixed_size_list":
        encoding = encoding.fixed_size_list.values
    assert encoding.WhichOneof("compression") == "flat"
    chunks = chunks_of(page)
    result = decode_chunks(encoding, chunks)
    expected = array.buffers()[1].to_pybytes()[: -(-len(array) * array.type.bit_width // 8)]
    mask = (1 << (len(array) * array.type.bit_width - 1) % 8 + 1) - 1
    assert result.data[:-1].tobytes() == expected[:-1]
    assert result.data[-1] & mask == expected[-1] & mask
    _, ours = flat.encode_chunks(result, LIMITS)
    assert ours.num_values.tolist() == chunks.num_values.tolist()


def test_levels_of_any_lengths():
    data = np.arange(20, dtype=np.uint16).view(np.uint8)
    buffer = ChunkBuffer(data, np.array([4, 20]), np.array([6, 8]))
    result = decode_blocks(message(16), buffer, np.array([3, 2]))
    assert result.data.view(np.uint16).tolist() == [2, 3, 4, 10, 11]


def test_values_of_full_zip_pages():
    block = random_block(32, 10)
    encoding, stored = flat.encode_values(block)
    assert decode_values(encoding, stored) is block
    with pytest.raises(CorruptFileError):
        decode_values(message(64), stored)
    with pytest.raises(InvalidInputError):
        flat.encode_values(random_block(1, 10))


def test_values_too_wide_for_chunks():
    with pytest.raises(InvalidInputError, match="too wide"):
        flat.encode_chunks(random_block(8 * 5000, 3), LIMITS)


@pytest.mark.parametrize(
    ("bits", "size", "count"), [(8, 3, 4), (1, 1, 9), (64, 8, 1 << 61), (8, 3, -1)]
)
def test_hostile_chunks(bits, size, count):
    data = np.zeros(size, np.uint8)
    chunks = Chunks(
        (ChunkBuffer(data, np.zeros(1, np.int64), np.array([size])),), np.array([count])
    )
    with pytest.raises(CorruptFileError):
        decode_chunks(message(bits), chunks)
    with pytest.raises(CorruptFileError):
        decode_block(message(bits), data, count)


@pytest.mark.parametrize("bits", [0, 2, 7, 12, 1 << 40])
def test_other_widths(bits):
    with pytest.raises(UnsupportedEncodingError, match="bits"):
        decode_block(message(bits), np.zeros(8, np.uint8), 1)
    encoding = message(8)
    encoding.flat.data.scheme = 2
    with pytest.raises(UnsupportedEncodingError, match="compressor"):
        decode_block(encoding, np.zeros(8, np.uint8), 1)

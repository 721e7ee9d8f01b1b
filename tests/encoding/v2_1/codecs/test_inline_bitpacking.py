"""InlineBitpacking against plain packing and pages that pylance wrote."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    block_of,
    decode_block,
    decode_blocks,
    decode_chunks,
    gather,
    values_of,
)
from lance_spark.encoding.v2_1.codecs import bitpacking
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.encodings.chunks import chunks_of, write
from tests.support.encodings.fixed import all_apart, levels_of, random_values, slow_pack

LIMITS = ChunkLimits(8186, 4096)


def message(bits: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(
        inline_bitpacking=pb.InlineBitpacking(uncompressed_bits_per_value=bits)
    )


def one_chunk(data: bytes, count: int) -> Chunks:
    raw = np.frombuffer(data, np.uint8)
    buffer = ChunkBuffer(raw, np.zeros(1, np.int64), np.array([len(raw)]))
    return Chunks((buffer,), np.array([count]))


def test_the_bytes_of_a_chunk():
    values = random_values(3, 1000, 11, 32)
    values[0] = 2047
    encoding, chunks = bitpacking.encode_chunks(block_of(values), LIMITS)
    packed = slow_pack(values.tolist() + [0] * 24, 11, 32)
    assert encoding == message(32)
    assert chunks.buffers[0].data.tobytes() == b"\x0b\0\0\0" + packed
    assert chunks.num_values.tolist() == [1000]


@given(
    st.sampled_from([8, 16, 32, 64]),
    st.lists(st.integers(0, 64), min_size=1, max_size=6),
    st.integers(0, 1024),
    st.sampled_from([4096, 1024, 256, 2]),
)
@settings(max_examples=40, deadline=None)
def test_round_trip(bits, widths, last, most):
    parts = [random_values(k, 1024, min(w, bits), bits) for k, w in enumerate(widths)]
    values = np.concatenate([*parts, random_values(7, last, bits // 2, bits)])
    if most == 2:
        values = values[:501]
    limits = ChunkLimits(8186, most)
    encoding, chunks = bitpacking.encode_chunks(block_of(values), limits)
    assert chunks.num_values.max() <= most
    assert chunks.num_values[-1] > 0
    assert (chunks.num_values[:-1] == min(1024, most)).all()
    result = decode_chunks(encoding, all_apart(chunks))
    assert (values_of(result) == values).all()
    assert result.num_values == len(values)
    if most >= 1024:
        assert bitpacking.encoded_size(block_of(values)) == chunks.buffers[0].sizes.sum()


def test_chunks_of_any_number_of_values():
    values = random_values(1, 2048, 9, 16)
    encoding, chunks = bitpacking.encode_chunks(block_of(values), LIMITS)
    some = Chunks(chunks.buffers, np.array([5, 7]))
    result = values_of(decode_chunks(encoding, some))
    assert result.tolist() == [*values[:5].tolist(), *values[1024:1031].tolist()]
    none = Chunks(chunks.buffers, np.array([0, 7]))
    assert values_of(decode_chunks(encoding, none)).tolist() == values[1024:1031].tolist()


def test_no_values():
    encoding, chunks = bitpacking.encode_chunks(block_of(np.zeros(0, np.uint32)), LIMITS)
    assert decode_chunks(encoding, chunks).num_values == 0


def test_a_block():
    values = random_values(5, 77, 3, 16)
    encoding, chunks = bitpacking.encode_chunks(block_of(values), LIMITS)
    result = decode_block(encoding, chunks.buffers[0].data, 77)
    assert (values_of(result) == values).all()


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(
    "dtype", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.timestamp("us")]
)
def test_pages_of_pylance(version, dtype):
    rng = np.random.default_rng(4)
    if dtype == pa.float64():
        array = pa.array(rng.random(5000))
    else:
        tops = np.repeat([100, 3, 1, 0, 90], 1000)
        array = pa.array(rng.integers(0, tops + 1)).cast(dtype)
    (page,) = write(array, version, {b"lance-encoding:dict-divisor": b"1000000"})
    assert page.encoding.WhichOneof("compression") == "inline_bitpacking"
    chunks = chunks_of(page)
    assert len(chunks.num_values) == 5
    expected = np.frombuffer(array.buffers()[1], np.uint8)[: 5000 * dtype.bit_width // 8]
    assert (decode_chunks(page.encoding, chunks).data == expected).all()
    ours = values_of(decode_chunks(page.encoding, chunks))
    encoding, again = bitpacking.encode_chunks(block_of(ours), LIMITS)
    assert encoding == page.encoding
    theirs = gather(chunks.buffers[0].data, chunks.buffers[0].starts, chunks.buffers[0].sizes)
    assert (theirs == again.buffers[0].data).all()


def test_levels_of_pylance():
    nulls = np.random.default_rng(2).random(500) < 0.3
    (page,) = write(pa.array(np.arange(500), mask=nulls), "2.1")
    (buffer,), counts = levels_of(page)
    encoding = page.layout.mini_block_layout.def_compression
    assert encoding.WhichOneof("compression") == "inline_bitpacking"
    assert (values_of(decode_blocks(encoding, buffer, counts)) == nulls).all()


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 1),
        (b"\x01\0\0", 1),
        (b"\x01\0\0\0", 1),
        (b"\x01\0\0\0" + bytes(127), 10),
        (b"\x01\0\0\0" + bytes(129), 10),
        (b"\x21\0\0\0" + bytes(33 * 128), 10),
        (b"\xff\xff\xff\xff" + bytes(128), 10),
        (b"\x01\0\0\0" + bytes(128), 1025),
        (b"\x01\0\0\0" + bytes(128), -1),
    ],
)
def test_hostile_chunks(data, count):
    with pytest.raises(CorruptFileError):
        decode_chunks(message(32), one_chunk(data, count))


def test_a_width_that_is_huge():
    data = b"\xff" * 8 + bytes(128)
    with pytest.raises(CorruptFileError, match="packed to"):
        decode_chunks(message(64), one_chunk(data, 10))


def test_other_words():
    with pytest.raises(UnsupportedEncodingError, match="128 bits"):
        decode_chunks(message(128), one_chunk(bytes(16), 1))
    chunks = one_chunk(bytes(4), 1)
    twice = Chunks(chunks.buffers * 2, chunks.num_values)
    with pytest.raises(CorruptFileError, match="2 buffers"):
        decode_chunks(message(32), twice)


@given(st.sampled_from([8, 16, 32, 64]), st.binary(max_size=600), st.integers(0, 2000))
@settings(deadline=None)
def test_any_bytes(bits, data, count):
    try:
        result = decode_chunks(message(bits), one_chunk(data, count))
    except CorruptFileError:
        return
    assert result.num_values == count

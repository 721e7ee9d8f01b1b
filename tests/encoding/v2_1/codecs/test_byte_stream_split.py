"""ByteStreamSplit against plain bytes and pages that pylance wrote."""

from __future__ import annotations

import itertools

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
    decode_chunks,
    flat,
    values_of,
)
from lance_spark.encoding.v2_1.codecs import flat as byte_stream_split
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.encodings.chunks import chunks_of, write
from tests.support.encodings.fixed import all_apart, random_values

LIMITS = ChunkLimits(8186, 4096)


def message(bits: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(byte_stream_split=pb.ByteStreamSplit(values=flat(bits)))


def chunk(size: int, count: int, buffers: int = 1) -> Chunks:
    buffer = ChunkBuffer(np.zeros(size, np.uint8), np.zeros(1, np.int64), np.array([size]))
    return Chunks((buffer,) * buffers, np.array([count]))


def test_the_bytes_of_a_chunk():
    values = np.array([0x04030201, 0x14131211], np.uint32)
    encoding, chunks = byte_stream_split.encode_byte_streams(block_of(values), LIMITS)
    assert encoding == message(32)
    assert chunks.buffers[0].data.tobytes() == b"\x01\x11\x02\x12\x03\x13\x04\x14"


@given(
    st.sampled_from([32, 64]),
    st.integers(0, 30000),
    st.sampled_from([100, 8186]),
    st.integers(0, 9),
)
@settings(max_examples=40, deadline=None)
def test_round_trip(bits, count, most, seed):
    values = random_values(seed, count, bits, bits)
    limits = ChunkLimits(most, 4096)
    encoding, chunks = byte_stream_split.encode_byte_streams(block_of(values), limits)
    counts = chunks.num_values
    assert counts.sum() == count
    assert (chunks.buffers[0].sizes <= min(most, 4096)).all()
    assert all(n.bit_count() == 1 for n in counts[:-1].tolist())
    result = decode_chunks(encoding, all_apart(chunks))
    assert (values_of(result) == values).all()
    at = 0
    pieces = zip(chunks.buffers[0].starts.tolist(), counts.tolist(), strict=True)
    for start, n in itertools.islice(pieces, 3):
        stored = chunks.buffers[0].data[start : start + n * bits // 8].tobytes()
        plain = values[at : at + n].tobytes()
        assert stored == b"".join(plain[k :: bits // 8] for k in range(bits // 8))
        at += n


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(("dtype", "scheme"), [("f4", "lz4"), ("f8", "zstd")])
def test_pages_of_pylance(version, dtype, scheme):
    """pylance always wraps the streams in a compressor; here Arrow opens it."""
    array = pa.array(np.random.default_rng(1).random(5000).astype(dtype))
    metadata = {b"lance-encoding:bss": b"on", b"lance-encoding:compression": scheme.encode()}
    (page,) = write(array, version, metadata)
    general = page.encoding.general
    bits = int(dtype[1]) * 8
    assert general.values == message(bits)
    chunks = chunks_of(page)
    assert (chunks.num_values[:-1] == 4096 * 8 // bits).all()
    packed = chunks.buffers[0]
    plain = []
    for start, size, count in zip(
        packed.starts.tolist(), packed.sizes.tolist(), chunks.num_values.tolist(), strict=True
    ):
        data = packed.data[start : start + size].tobytes()
        length = count * bits // 8
        if scheme == "lz4":
            opened = pa.Codec("lz4_raw").decompress(data[4:], length)
        else:
            opened = pa.Codec("zstd").decompress(data[data.index(b"\x28\xb5\x2f\xfd") :], length)
        plain.append(np.frombuffer(opened, np.uint8))
    sizes = np.array([len(item) for item in plain])
    buffer = ChunkBuffer(np.concatenate(plain), np.cumsum(sizes) - sizes, sizes)
    opened_chunks = Chunks((buffer,), chunks.num_values)
    result = decode_chunks(general.values, opened_chunks)
    assert result.data.tobytes() == array.to_numpy().tobytes()
    _, ours = byte_stream_split.encode_byte_streams(result, LIMITS)
    assert ours.buffers[0].data.tobytes() == buffer.data.tobytes()
    assert ours.num_values.tolist() == chunks.num_values.tolist()


@pytest.mark.parametrize(("size", "count"), [(3, 1), (5, 1), (8, 1), (0, 1), (4, 0), (4, -1)])
def test_hostile_chunks(size, count):
    with pytest.raises(CorruptFileError):
        decode_chunks(message(32), chunk(size, count))


def test_other_widths():
    with pytest.raises(UnsupportedEncodingError, match="16 bits"):
        decode_chunks(message(16), chunk(2, 1))
    with pytest.raises(InvalidInputError, match="16 bits"):
        byte_stream_split.encode_byte_streams(block_of(np.zeros(3, np.uint16)), LIMITS)
    with pytest.raises(CorruptFileError, match="2 buffers"):
        decode_chunks(message(32), chunk(4, 1, buffers=2))
    with pytest.raises(UnsupportedEncodingError, match="single buffer"):
        decode_block(message(32), np.zeros(4, np.uint8), 1)

"""Rle against plain run lengths and pages that pylance wrote."""

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
    decode_blocks,
    decode_chunks,
    flat,
    values_of,
)
from lance_spark.encoding.v2_1.codecs import rle
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.cells import number_of
from tests.support.encodings.chunks import chunks_of, write
from tests.support.encodings.fixed import all_apart, apart, levels_of

RUNS = st.lists(
    st.tuples(
        st.integers(0, 4), st.one_of(st.integers(1, 5), st.sampled_from([255, 256, 600, 2500]))
    ),
    max_size=40,
)


def message(bits: int, of_length: int = 8) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(rle=pb.Rle(values=flat(bits), run_lengths=flat(of_length)))


def from_runs(runs: list[tuple[int, int]], bits: int) -> np.ndarray:
    return np.array([value for value, times in runs for _ in range(times)], f"u{bits // 8}")


def chunks_from(parts: list[tuple[bytes, bytes]], counts: list[int]) -> Chunks:
    buffers = []
    for pieces in zip(*parts, strict=True):
        sizes = np.array([len(piece) for piece in pieces], np.int64)
        data = np.frombuffer(b"".join(pieces), np.uint8)
        buffers.append(ChunkBuffer(data, np.cumsum(sizes) - sizes, sizes))
    return Chunks(tuple(buffers), np.array(counts, np.int64))


def test_the_bytes_of_a_chunk():
    values = np.array([7] * 600 + [9], np.uint16)
    encoding, chunks = rle.encode_chunks(block_of(values), ChunkLimits(8186, 4096))
    assert encoding == message(16)
    assert chunks.num_values.tolist() == [601]
    assert chunks.buffers[0].data.tobytes() == b"\x07\0\x07\0\x07\0\x09\0"
    assert chunks.buffers[1].data.tolist() == [255, 255, 90, 1]


def test_the_bytes_of_a_block():
    encoding, data = rle.encode_block(np.array([1, 1, 1, 0], np.uint16))
    assert encoding == message(16)
    assert data.tobytes() == b"\x04" + bytes(7) + b"\x01\0\0\0" + b"\x03\x01"


@given(RUNS, st.sampled_from([8, 16, 32, 64]), st.sampled_from([40, 300, 8186]), st.integers(1, 12))
@settings(max_examples=number_of(40, 100), deadline=None)
def test_round_trip(runs, bits, most_bytes, log_values):
    values = from_runs(runs, bits)
    limits = ChunkLimits(most_bytes, 1 << log_values)
    encoding, chunks = rle.encode_chunks(block_of(values), limits)
    counts = chunks.num_values.tolist()
    assert sum(counts) == len(values)
    assert all(n.bit_count() == 1 and n > 1 for n in counts[:-1])
    assert all(0 < n <= limits.max_values for n in counts)
    stored, times = (buffer.sizes for buffer in chunks.buffers)
    assert (stored + times <= most_bytes).all()
    assert (stored == times * (bits // 8)).all()
    result = decode_chunks(encoding, all_apart(chunks))
    assert (values_of(result) == values).all()
    at = 0
    for count, entries in zip(counts, times.tolist(), strict=True):
        here = itertools.groupby(values[at : at + count].tolist())
        assert entries == sum(-(-len(list(run)) // 255) for _, run in here)
        at += count


@given(st.lists(RUNS, max_size=5), st.sampled_from([8, 16]))
@settings(deadline=None)
def test_blocks(parts, bits):
    values = [from_runs(part, bits) for part in parts]
    pieces = [rle.encode_block(value)[1] for value in values]
    for expected, piece in zip(values, pieces, strict=True):
        result = decode_block(message(bits), piece, len(expected))
        assert (values_of(result) == expected).all()
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    data = np.concatenate([np.zeros(0, np.uint8), *pieces])
    counts = np.array([len(value) for value in values], np.int64)
    buffer = apart(ChunkBuffer(data, np.cumsum(sizes) - sizes, sizes))
    result = decode_blocks(message(bits), buffer, counts)
    assert values_of(result).tolist() == [v for value in values for v in value.tolist()]


@given(RUNS)
def test_count_runs(runs):
    values = from_runs(runs, 32)
    assert rle.count_runs(block_of(values)) == len(list(itertools.groupby(values.tolist())))


def test_runs_that_reach_beyond_their_chunk():
    chunks = chunks_from([(b"\1\2", b"\3\xc8"), (b"\2\3", b"\xff\2"), (b"\4", b"\1")], [64, 65, 1])
    result = values_of(decode_chunks(message(8), chunks)).tolist()
    assert result == [1] * 3 + [2] * 61 + [2] * 65 + [4]


def test_wider_lengths():
    chunks = chunks_from([(b"\5\6", b"\x00\x10\x01\0")], [4097])
    result = values_of(decode_chunks(message(8, 16), chunks)).tolist()
    assert result == [5] * 4096 + [6]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(
    ("bits", "mean"),
    [(8, 3), (8, 3000), (16, 2), (16, 50), (32, 3), (32, 300), (64, 2), (64, 3000)],
)
def test_pages_of_pylance(version, bits, mean):
    rng = np.random.default_rng(mean)
    array = pa.array(
        np.repeat(rng.integers(0, 1 << bits - 1, 30000 // mean), mean).astype(f"i{bits // 8}")
    )
    metadata = {b"lance-encoding:rle-threshold": b"0.9", b"lance-encoding:dict-divisor": b"100000"}
    (page,) = write(array, version, metadata)
    assert page.encoding == message(bits)
    result = decode_chunks(page.encoding, chunks_of(page))
    assert (values_of(result) == array.to_numpy().view(f"u{bits // 8}")).all()


def test_levels_of_pylance():
    nulls = np.arange(20000) // 3000 % 2 == 0
    (page,) = write(pa.array(np.arange(20000), mask=nulls), "2.2")
    (buffer,), counts = levels_of(page)
    encoding = page.layout.mini_block_layout.def_compression
    assert encoding == message(16)
    assert (values_of(decode_blocks(encoding, buffer, counts)) == nulls).all()


@pytest.mark.parametrize(
    ("values", "lengths", "count"),
    [
        (b"", b"", 1),
        (b"\1\0", b"\3", 4),
        (b"\1\0", b"\0", 1),
        (b"\1\0\1", b"\3", 3),
        (b"\1\0\1\0", b"\3", 3),
        (b"\1\0", b"\3\3", 3),
        (b"\1\0", b"\3", -1),
    ],
)
def test_hostile_chunks(values, lengths, count):
    with pytest.raises(CorruptFileError):
        decode_chunks(message(16), chunks_from([(values, lengths)], [count]))
    block = np.frombuffer(len(values).to_bytes(8, "little") + values + lengths, np.uint8)
    with pytest.raises(CorruptFileError):
        decode_block(message(16), block, count)


def test_a_chunk_cannot_borrow_from_its_neighbour():
    chunks = chunks_from([(b"\1", b"\x0a"), (b"\1", b"\2")], [4, 8])
    with pytest.raises(CorruptFileError, match="fewer"):
        decode_chunks(message(8), chunks)


@pytest.mark.parametrize("header", [b"\xff" * 8, b"\3" + bytes(7), bytes(3)])
def test_hostile_headers(header):
    with pytest.raises(CorruptFileError):
        decode_block(message(8), np.frombuffer(header + b"\1\1", np.uint8), 1)


def test_other_encodings_of_the_buffers():
    chunks = chunks_from([(b"\1", b"\1")], [1])
    with pytest.raises(UnsupportedEncodingError, match="24 bits"):
        decode_chunks(message(24), chunks)
    inner = message(8)
    inner.rle.values.CopyFrom(message(8))
    with pytest.raises(UnsupportedEncodingError, match="not flat"):
        decode_chunks(inner, chunks)
    incomplete = Chunks(chunks.buffers[:1], chunks.num_values)
    with pytest.raises(CorruptFileError, match="1 buffers"):
        decode_chunks(message(8), incomplete)


def test_limits_below_one_run_are_refused():
    with pytest.raises(InvalidInputError, match="fit"):
        rle.encode_chunks(block_of(np.arange(9, dtype=np.uint64)), ChunkLimits(10, 4096))


@given(st.sampled_from([8, 16, 64]), st.binary(max_size=100), st.integers(0, 3000))
@settings(deadline=None)
def test_any_bytes(bits, data, count):
    try:
        result = decode_block(message(bits), np.frombuffer(data, np.uint8), count)
    except CorruptFileError:
        return
    assert result.num_values == count
    assert len(result.data) == count * bits // 8

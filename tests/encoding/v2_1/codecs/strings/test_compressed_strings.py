"""Compressed strings, read by this package and by pylance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.blocks import to_block
from lance_spark.encoding.v2_1.codec import ChunkBuffer, ChunkLimits, Chunks, decode_chunks
from lance_spark.encoding.v2_1.codecs import compressed_strings, variable
from lance_spark.encoding.v2_1.codecs.compressed_strings import find_frames, stored_frame
from lance_spark.errors import CorruptFileError
from tests.support.cells import number_of
from tests.support.encodings.chunks import read_by_both

LIMITS = ChunkLimits(max_bytes=24 * 1024, max_values=1 << 15)
WORDS = ["alpha", "bravo", "", "delta", "échelle", "データ", "\x00", "x" * 40]
CODEC = pa.Codec("zstd", 1)
# Frames of more than half a megabyte have a window; the reader decompresses them singly.
CONTENTS = st.one_of(
    st.binary(max_size=300),
    st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 50_000)).map(lambda p: p[0] * p[1]),
)


def text(count: int, seed: int = 0) -> pa.Array:
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(WORDS), (count, 3)).tolist()
    return pa.array([" ".join(WORDS[i] for i in pick) for pick in picks])


@pytest.mark.parametrize("scheme", ["zstd", "lz4"])
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_binary()])
@given(
    values=st.lists(st.binary(max_size=60), min_size=1, max_size=40),
    copies=st.integers(1, 200),
    start=st.integers(0, 7),
)
@settings(max_examples=40, deadline=None)
def test_round_trip(
    scheme: str, dtype: pa.DataType, values: list[bytes], copies: int, start: int
) -> None:
    array = pa.array(values * copies + [b"end"], pa.binary()).slice(start % len(values))
    array = array.cast(pa.large_binary()) if dtype == pa.large_binary() else array
    block = to_block(array, None)
    encoding, chunks = compressed_strings.encode_chunks(block, LIMITS, scheme, forced=True)
    decoded = decode_chunks(encoding, chunks)
    dtype = array.type
    buffers = [None, pa.py_buffer(decoded.offsets), pa.py_buffer(decoded.data)]
    assert pa.Array.from_buffers(dtype, len(array), buffers).equals(array)


def test_many_frames_decode_like_single_chunks() -> None:
    array = text(20_000)
    encoding, chunks = compressed_strings.encode_chunks(to_block(array, None), LIMITS, "zstd", 1)
    assert encoding.WhichOneof("compression") == "general"
    (buffer,) = chunks.buffers
    together = compressed_strings.decode_chunks(buffer, chunks.num_values, 4)
    assert together is not None
    # Few chunks go through the plain decoder.
    single = Chunks(
        (ChunkBuffer(buffer.data, buffer.starts[1:3], buffer.sizes[1:3]),), chunks.num_values[1:3]
    )
    part = decode_chunks(encoding, single)
    first, count = int(chunks.num_values[0]), int(single.num_values.sum())
    begin = int(together.offsets[first])
    assert (together.offsets[first : first + count + 1] - begin == part.offsets).all()
    assert bytes(together.data[begin : begin + len(part.data)]) == bytes(part.data)


def test_two_frames_are_smaller_than_one() -> None:
    numbers = np.random.default_rng(2).integers(0, 1 << 40, 20_000).tolist()
    words = text(20_000).to_pylist()
    block = to_block(pa.array([f"{a} {b}" for a, b in zip(words, numbers, strict=True)]), None)
    _, chunks = compressed_strings.encode_chunks(block, LIMITS, "zstd", 1)
    _, plain = variable.encode_chunks(block, LIMITS)
    codec = pa.Codec("zstd", 1)
    (buffer,) = plain.buffers
    joint = sum(
        len(codec.compress(buffer.data[a : a + n], asbytes=True))
        for a, n in zip(buffer.starts.tolist(), buffer.sizes.tolist(), strict=True)
    )
    assert int(chunks.buffers[0].sizes.sum()) < 0.97 * joint


def test_noise_stays_uncompressed() -> None:
    rng = np.random.default_rng(3)
    block = to_block(pa.array([rng.bytes(100) for _ in range(2000)]), None)
    encoding, _ = compressed_strings.encode_chunks(block, LIMITS, "zstd", 1)
    assert encoding.WhichOneof("compression") == "variable"


@pytest.mark.parametrize("version", [(2, 1), (2, 2)])
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.binary()])
def test_pylance_reads(tmp_path: Path, version: tuple[int, int], dtype: pa.DataType) -> None:
    values = text(30_000).cast(pa.binary() if dtype == pa.binary() else dtype)
    nulls = np.random.default_rng(1).random(len(values)) < 0.2
    table = pa.table({"all": values, "some": pa.array(values.to_pylist(), dtype, mask=nulls)})
    table = pa.Table.from_batches(table.to_batches(7_000))
    read_by_both(tmp_path, table, version, [0, 1, 4_095, 4_096, 17_777, 29_999])


@given(at=st.integers(0, 1 << 20), value=st.integers(0, 255))
@settings(max_examples=number_of(120, 300), deadline=None)
def test_damage_is_an_error_or_other_strings(at: int, value: int) -> None:
    encoding, chunks = DAMAGED
    (buffer,) = chunks.buffers
    data = buffer.data.copy()
    # Damage at the beginning of a frame has the largest effect.
    chunk = at % len(buffer.starts)
    data[int(buffer.starts[chunk]) + at // 64 % min(64, int(buffer.sizes[chunk]))] = value
    try:
        block = decode_chunks(
            encoding, Chunks((ChunkBuffer(data, buffer.starts, buffer.sizes),), chunks.num_values)
        )
    except CorruptFileError:
        return
    assert block.num_values == int(chunks.num_values.sum())
    assert int(block.offsets[-1]) <= len(block.data)
    assert (np.diff(block.offsets) >= 0).all()


DAMAGED = compressed_strings.encode_chunks(to_block(text(6_000), None), LIMITS, "zstd", 1)


def test_small_chunks_grow_if_compression_halves_them() -> None:
    block = to_block(text(20_000), None)
    _, exact = compressed_strings.encode_chunks(block, LIMITS, "zstd", 1, exact=True)
    _, grown = compressed_strings.encode_chunks(block, LIMITS, "zstd", 1)
    assert len(grown.num_values) <= len(exact.num_values) / 2 + 1
    assert int(grown.buffers[0].sizes.max()) <= LIMITS.max_bytes
    rng = np.random.default_rng(4)
    # Six bits of eight are random: compression helps, but less than by half.
    noise = to_block(
        pa.array([bytes(rng.integers(0, 64, 90).astype(np.uint8)) for _ in range(2_000)]), None
    )
    _, exact = compressed_strings.encode_chunks(noise, LIMITS, "zstd", 1, exact=True)
    encoding, grown = compressed_strings.encode_chunks(noise, LIMITS, "zstd", 1)
    assert encoding.WhichOneof("compression") == "general"
    assert grown.num_values.tolist() == exact.num_values.tolist()


@given(st.lists(CONTENTS, min_size=1, max_size=6), st.integers(0, 20))
def test_ends_and_sizes(contents: list[bytes], gap: int) -> None:
    frames = [CODEC.compress(content, asbytes=True) for content in contents]
    starts = np.cumsum([0] + [len(frame) + gap for frame in frames[:-1]])
    data = np.frombuffer(b"".join(frame + b"\x28" * gap for frame in frames) + bytes(16), np.uint8)
    result = find_frames(data, starts, np.full(len(frames), len(data)))
    assert result is not None
    assert result.sizes.tolist() == [len(content) for content in contents]
    lengths = [len(frame) for frame in frames]
    assert (result.ends - starts).tolist() == lengths
    # A frame that does not end before its stop is not accepted.
    assert find_frames(data, starts, starts + np.array(lengths) - 1) is None


@pytest.mark.parametrize("content", [b"", b"a", b"abc", bytes(range(255))])
def test_stored(content: bytes) -> None:
    frame = stored_frame(content)
    assert CODEC.decompress(frame, len(content), asbytes=True) == content if content else True
    joined = CODEC.compress(b"before", asbytes=True) + frame
    assert CODEC.decompress(joined, 6 + len(content), asbytes=True) == b"before" + content


def test_incomplete_or_other_frames_are_not_accepted() -> None:
    frame = CODEC.compress(b"something " * 9, asbytes=True)
    at = np.zeros(1, np.int64)

    def find(data: bytes) -> object:
        return find_frames(np.frombuffer(data, np.uint8), at, at + len(data))

    assert find(frame) is not None
    assert find(frame[:10]) is None
    assert find(b"\x29" + frame[1:]) is None
    # A frame without the size of its content, with a checksum, or with a dictionary is not
    # accepted.
    for flags in (0x00, frame[4] | 4, frame[4] | 1):
        assert find(frame[:4] + bytes((flags,)) + frame[5:]) is None

"""Frames of Zstandard that the writer makes without a compressor, against the library of Zstandard
that Arrow has.
"""

from __future__ import annotations

from pathlib import Path

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
    decode_chunks,
    decode_low,
    decode_some,
)
from lance_spark.encoding.v2_1.codecs import wide_integers
from lance_spark.errors import CorruptFileError
from tests.support.encodings.chunks import read_by_both
from tests.support.encodings.fixed import all_apart

LIMITS = ChunkLimits(24 * 1024, 1 << 15)


def words_of(values: np.ndarray, width: int) -> np.ndarray:
    """Return integers of 64 bits as integers of `width` bytes."""
    words = np.repeat((values >> 63)[:, None], width // 8, axis=1)
    words[:, 0] = values
    return words


def values_of(rng: np.random.Generator, pattern: str, bits: int, count: int) -> np.ndarray:
    values = rng.integers(0, 1 << bits, count)
    if pattern == "signs":
        return np.where(rng.random(count) < 0.5, values, -values)
    if pattern == "negative":
        return ~values
    if pattern == "near":
        return values + (1 << 62)
    if pattern == "chunks":
        return values >> np.arange(count) // 512 % 5 * 8
    if pattern == "few":
        return np.where(rng.random(count) < 0.9, 5, values)
    return values


PATTERNS = ("positive", "negative", "signs", "near", "chunks", "few")


def by_library(buffer: ChunkBuffer, chunk: int, size: int) -> bytes:
    start = int(buffer.starts[chunk]) + 8
    frame = buffer.data[start : start + int(buffer.sizes[chunk]) - 8].tobytes()
    return pa.Codec("zstd").decompress(frame, size).to_pybytes()


@given(
    st.sampled_from(PATTERNS),
    st.sampled_from([16, 32]),
    st.integers(1, 61),
    st.integers(200, 5000),
    st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_the_library_and_the_reader_agree(pattern, width, bits, count, seed):
    rng = np.random.default_rng(seed)
    words = words_of(values_of(rng, pattern, bits, count), width)
    block = FixedWidthBlock(words.reshape(-1).view(np.uint8), 8 * width, count)
    encoded = wide_integers.encode_chunks(block, LIMITS)
    if encoded is None:
        # A compressor saves more.
        assert pattern == "few" or bits < 8
        return
    encoding, chunks = encoded
    assert all(n.bit_count() == 1 for n in chunks.num_values[:-1].tolist())
    sizes = (chunks.num_values * width).tolist()
    texts = [by_library(chunks.buffers[0], chunk, size) for chunk, size in enumerate(sizes)]
    assert b"".join(texts) == words.tobytes()
    chunks = all_apart(chunks)
    assert decode_chunks(encoding, chunks).data.tobytes() == words.tobytes()
    low = decode_low(encoding, chunks)
    assert width == 32 or low.data.tobytes() == words[:, 0].tobytes()
    entries = np.sort(rng.integers(0, count, 20))
    some = decode_some(encoding, chunks, entries)
    if some is not None:
        assert some.data.tobytes() == words[entries].tobytes()


def test_bytes_of_a_value():
    """Each value takes the bytes that differ in its chunk, and a byte for different signs."""
    rng = np.random.default_rng(1)
    cases = {"positive": 3, "negative": 3, "signs": 4, "near": 3, "chunks": 1.8}
    for pattern, most in cases.items():
        words = words_of(values_of(rng, pattern, 22, 1 << 15), 16)
        block = FixedWidthBlock(words.reshape(-1).view(np.uint8), 128, len(words))
        encoding, chunks = wide_integers.encode_chunks(block, LIMITS)
        assert chunks.buffers[0].sizes.sum() < (most + 0.1) * len(words), pattern
        some = decode_some(encoding, chunks, np.array([0, 1, 2, 1024, len(words) - 1]))
        assert (some is None) == (pattern == "chunks")
    noise = np.frombuffer(rng.bytes(1 << 18), np.uint8)
    assert wide_integers.encode_chunks(FixedWidthBlock(noise, 128, 1 << 14), LIMITS) is None


@pytest.mark.parametrize("pattern", ["positive", "signs"])
def test_damaged_frames(pattern):
    """A damaged frame has the values that the library finds in it, or is refused."""
    rng = np.random.default_rng(2)
    words = words_of(values_of(rng, pattern, 22, 40), 16)
    block = FixedWidthBlock(words.reshape(-1).view(np.uint8), 128, 40)
    encoding, chunks = wide_integers.encode_chunks(block, LIMITS)
    buffer = chunks.buffers[0]
    start, size = int(buffer.starts[0]), int(buffer.sizes[0])
    for bit in range(8 * size):
        data = buffer.data.copy()
        data[start + bit // 8] ^= 1 << bit % 8
        damaged = Chunks((ChunkBuffer(data, buffer.starts, buffer.sizes),), chunks.num_values)
        try:
            found = decode_chunks(encoding, damaged).data.tobytes()
        except CorruptFileError:
            with pytest.raises(CorruptFileError):
                decode_low(encoding, damaged)
            continue
        assert bit >= 64
        assert found == by_library(damaged.buffers[0], 0, 640), bit
        low = decode_low(encoding, damaged).data.view("<u8")
        assert (low == np.frombuffer(found, "<u8")[::2]).all(), bit


@pytest.mark.parametrize("version", [(2, 1), (2, 2)])
def test_pylance_reads_them(tmp_path: Path, version: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    columns: dict[str, pa.Array] = {}
    for pattern in PATTERNS:
        for dtype in (pa.decimal128(38, 2), pa.decimal256(76, 2)):
            words = words_of(values_of(rng, pattern, 30, 3_000), dtype.bit_width // 8)
            buffers = [None, pa.py_buffer(words)]
            if pattern == "chunks":
                buffers[0] = pa.array(rng.random(3_000) < 0.7).buffers()[1]
            columns[f"{pattern} {dtype}"] = pa.Array.from_buffers(dtype, 3_000, buffers)
    read_by_both(tmp_path, pa.table(columns), version, [0, 1, 2, 1023, 1024, 1025, 2_999])

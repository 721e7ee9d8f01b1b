"""LZ4 and Zstandard buffers: round trips, and buffers with false sizes. Buffers of pylance are in
v2_1/test_general.py.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lance_spark.encoding.compression import (
    compress,
    decompress,
    decompress_lz4_blocks,
    decompress_many,
    message_of,
    scheme_of,
)
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.cells import number_of

SCHEMES = ["lz4", "zstd"]
TEXT = st.one_of(
    st.binary(max_size=40),
    st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 30_000)).map(lambda p: p[0] * p[1]),
)


def bytes_of(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(st.binary(max_size=50), st.integers(0, 300))
@settings(max_examples=number_of(30, 60), deadline=None)
def test_round_trip(scheme: str, data: bytes, times: int) -> None:
    plain = bytes_of(data * times)
    stored = bytes_of(compress(scheme, plain))
    assert decompress(scheme, stored).tobytes() == plain.tobytes()


def test_layout_is_length_then_block() -> None:
    text = b"the length comes first " * 20
    stored = compress("lz4", bytes_of(text))
    assert stored[:4] == len(text).to_bytes(4, "little")
    body = pa.Codec("lz4_raw").decompress(stored[4:], decompressed_size=len(text))
    assert body.to_pybytes() == text
    stored = compress("zstd", bytes_of(text), 9)
    assert stored[:8] == len(text).to_bytes(8, "little")
    assert stored[8:12] == b"\x28\xb5\x2f\xfd"


def test_bare_frame_is_read() -> None:
    text = b"no length in front " * 5000
    frame = pa.Codec("zstd").compress(text, asbytes=True)
    assert decompress("zstd", bytes_of(frame)).tobytes() == text
    with pytest.raises(CorruptFileError):
        decompress("zstd", bytes_of(frame), len(text) - 1)
    with pytest.raises(CorruptFileError):
        decompress("zstd", bytes_of(frame[:-3]))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("wrong", [-1, 1, 1000, 1 << 31])
def test_wrong_length(scheme: str, wrong: int) -> None:
    text = bytes_of(b"some text, repeated; " * 40)
    width = 4 if scheme == "lz4" else 8
    stored = compress(scheme, text)
    claim = (len(text) + wrong).to_bytes(width, "little")
    with pytest.raises(CorruptFileError):
        decompress(scheme, bytes_of(claim + stored[width:]))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_more_than_wanted(scheme: str) -> None:
    stored = bytes_of(compress(scheme, np.zeros(1000, np.uint8)))
    assert len(decompress(scheme, stored, 1000)) == 1000
    with pytest.raises(CorruptFileError, match="1000"):
        decompress(scheme, stored, 999)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(st.binary(max_size=60))
@settings(max_examples=number_of(80, 200), deadline=None)
def test_hostile_bytes(scheme: str, data: bytes) -> None:
    with suppress(CorruptFileError):
        assert len(decompress(scheme, bytes_of(data), 1 << 20)) <= 1 << 20


@pytest.mark.parametrize("scheme", SCHEMES)
@given(st.data())
@settings(max_examples=number_of(40, 100), deadline=None)
def test_damaged_bytes(scheme: str, data: st.DataObject) -> None:
    stored = bytearray(compress(scheme, bytes_of(b"abcabcabd" * 30)))
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    stored = stored[: data.draw(st.integers(0, len(stored)))]
    with suppress(CorruptFileError):
        assert len(decompress(scheme, bytes_of(bytes(stored)), 1 << 20)) <= 1 << 20


def test_names() -> None:
    assert scheme_of(message_of("lz4", None)) == "lz4"
    assert scheme_of(message_of("zstd", 7)) == "zstd"
    assert message_of("zstd", 7).level == 7
    with pytest.raises(UnsupportedEncodingError):
        scheme_of(pb.BufferCompression())
    with pytest.raises(InvalidInputError):
        message_of("snappy", None)
    with pytest.raises(InvalidInputError):
        compress("zstd", np.zeros(1, np.uint8), 99)


def compressed(texts: list[bytes], scheme: str = "lz4") -> list[np.ndarray]:
    return [
        np.frombuffer(compress(scheme, np.frombuffer(text, np.uint8)), np.uint8) for text in texts
    ]


def many(scheme: str, buffers: list[np.ndarray], max_size: int) -> list[np.ndarray]:
    """Decompress buffers that lie in one array, with gaps between them."""
    gap = np.full(3, 0x28, np.uint8)
    sizes = np.array([len(buffer) for buffer in buffers], np.int64)
    starts = np.cumsum(sizes + len(gap)) - sizes
    data = np.concatenate([part for buffer in buffers for part in (gap, buffer)] or [gap])
    result = decompress_many(scheme, data, starts, sizes, max_size)
    assert not (result.starts % 8).any()
    return [
        result.data[start : start + size]
        for start, size in zip(result.starts.tolist(), result.sizes.tolist(), strict=True)
    ]


@settings(max_examples=number_of(60, 150), deadline=None)
@given(st.lists(TEXT, max_size=12), st.sampled_from(["lz4", "zstd"]))
@example([b"", b""], "zstd")
@example([b"a" * (3 << 20), b"b" * (3 << 20), b"", b""], "zstd")
def test_many(texts: list[bytes], scheme: str) -> None:
    result = many(scheme, compressed(texts, scheme), 1 << 24)
    assert [piece.tobytes() for piece in result] == texts


@pytest.mark.parametrize("size", [5, 4_096, 1 << 16, (1 << 16) + 1, 1 << 20, 1 << 22, 5 << 20])
def test_sizes_of_blocks(size: int) -> None:
    """Blocks of noise are larger than their content."""
    texts = [np.random.default_rng(size).bytes(size), b"a" * size]
    buffers = compressed(texts)
    result = decompress_lz4_blocks(
        buffers, np.array([len(buffer) for buffer in buffers]), np.array([size, size])
    )
    together = max(len(buffer) - 4 for buffer in buffers) <= 1 << 22
    assert (result is not None) == together
    assert result is None or result.tobytes() == b"".join(texts)
    assert [p.tobytes() for p in many("lz4", buffers, 1 << 24)] == texts


def test_corrupt_blocks_are_found() -> None:
    """A damaged block gives the same error or bytes as it gives alone, and the other blocks give
    their content.
    """
    texts = [b"some text, some more text " * 3, b"nothing comes twice", b"0123456789" * 8]
    buffers = compressed(texts)
    errors = 0
    for at in range(len(buffers[1])):
        broken = buffers[1].copy()
        broken[at] ^= 0x41
        try:
            expected = decompress("lz4", broken, 1 << 20)
        except CorruptFileError:
            errors += 1
            with pytest.raises(CorruptFileError):
                many("lz4", [buffers[0], broken, buffers[2]], 1 << 20)
            continue
        result = many("lz4", [buffers[0], broken, buffers[2]], 1 << 20)
        assert [p.tobytes() for p in result] == [texts[0], expected.tobytes(), texts[2]]
    assert errors > 3


def test_all_together_are_limited() -> None:
    buffers = compressed([b"a" * 1_000] * 4)
    with pytest.raises(CorruptFileError, match="more than 3999"):
        many("lz4", buffers, 3_999)
    assert len(many("lz4", buffers, 4_000)) == 4

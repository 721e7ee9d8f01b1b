"""Frames in a row against the decompressor."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_spark.encoding import zstd_frames

CODEC = pa.Codec("zstd", 1)
# Frames of more than half a megabyte have a window, and are decompressed one by one.
CONTENTS = st.one_of(
    st.binary(max_size=300),
    st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 50_000)).map(lambda p: p[0] * p[1]),
)


@given(st.lists(CONTENTS, min_size=1, max_size=6), st.integers(0, 20))
def test_ends_and_sizes(contents: list[bytes], gap: int) -> None:
    frames = [CODEC.compress(content, asbytes=True) for content in contents]
    starts = np.cumsum([0] + [len(frame) + gap for frame in frames[:-1]])
    data = np.frombuffer(b"".join(frame + b"\x28" * gap for frame in frames) + bytes(16), np.uint8)
    found = zstd_frames.find(data, starts, np.full(len(frames), len(data)))
    assert found is not None
    assert found.sizes.tolist() == [len(content) for content in contents]
    lengths = [len(frame) for frame in frames]
    assert (found.ends - starts).tolist() == lengths
    # A frame that does not end before its stop is none.
    assert zstd_frames.find(data, starts, starts + np.array(lengths) - 1) is None


@pytest.mark.parametrize("content", [b"", b"a", b"abc", bytes(range(255))])
def test_stored(content: bytes) -> None:
    frame = zstd_frames.stored(content)
    assert CODEC.decompress(frame, len(content), asbytes=True) == content if content else True
    joined = CODEC.compress(b"before", asbytes=True) + frame
    assert CODEC.decompress(joined, 6 + len(content), asbytes=True) == b"before" + content


def test_what_is_none() -> None:
    frame = CODEC.compress(b"something " * 9, asbytes=True)
    at = np.zeros(1, np.int64)

    def find(data: bytes) -> object:
        return zstd_frames.find(np.frombuffer(data, np.uint8), at, at + len(data))

    assert find(frame) is not None
    assert find(frame[:10]) is None
    assert find(b"\x29" + frame[1:]) is None
    # Without the size of what it holds, with a checksum, with a dictionary.
    for flags in (0x00, frame[4] | 4, frame[4] | 1):
        assert find(frame[:4] + bytes((flags,)) + frame[5:]) is None

"""LZ4 blocks that are decompressed together: they hold what each of them holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lance_spark.encoding.compression import compress, decompress, decompress_many
from lance_spark.encoding.lz4_frames import decompress_blocks
from lance_spark.errors import CorruptFileError

TEXT = st.one_of(
    st.binary(max_size=40),
    st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 30_000)).map(lambda p: p[0] * p[1]),
)


def stored(texts: list[bytes], scheme: str = "lz4") -> list[np.ndarray]:
    return [
        np.frombuffer(compress(scheme, np.frombuffer(text, np.uint8)), np.uint8) for text in texts
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXT, max_size=12), st.sampled_from(["lz4", "zstd"]))
@example([b"", b""], "zstd")
@example([b"a" * (3 << 20), b"b" * (3 << 20), b"", b""], "zstd")
def test_many(texts: list[bytes], scheme: str) -> None:
    found = decompress_many(scheme, stored(texts, scheme), 1 << 24)
    assert [piece.tobytes() for piece in found] == texts


@pytest.mark.parametrize("size", [5, 4_096, 1 << 16, (1 << 16) + 1, 1 << 20, 1 << 22, 5 << 20])
def test_sizes_of_blocks(size: int) -> None:
    """Noise makes blocks that are larger than what they hold."""
    texts = [np.random.default_rng(size).bytes(size), b"a" * size]
    buffers = stored(texts)
    found = decompress_blocks(buffers, np.array([size, size]))
    together = max(len(buffer) - 4 for buffer in buffers) <= 1 << 22
    assert (found is not None) == together
    assert found is None or found.tobytes() == b"".join(texts)
    assert [p.tobytes() for p in decompress_many("lz4", buffers, 1 << 24)] == texts


def test_corrupt_blocks_are_found() -> None:
    """A block that is changed in any byte gives the error or the bytes that it gives alone, and
    the others theirs.
    """
    texts = [b"some text, some more text " * 3, b"nothing comes twice", b"0123456789" * 8]
    buffers = stored(texts)
    errors = 0
    for at in range(len(buffers[1])):
        broken = buffers[1].copy()
        broken[at] ^= 0x41
        try:
            expected = decompress("lz4", broken, 1 << 20)
        except CorruptFileError:
            errors += 1
            with pytest.raises(CorruptFileError):
                decompress_many("lz4", [buffers[0], broken, buffers[2]], 1 << 20)
            continue
        found = decompress_many("lz4", [buffers[0], broken, buffers[2]], 1 << 20)
        assert [p.tobytes() for p in found] == [texts[0], expected.tobytes(), texts[2]]
    assert errors > 3


def test_all_together_are_limited() -> None:
    buffers = stored([b"a" * 1_000] * 4)
    with pytest.raises(CorruptFileError, match="more than 3999"):
        decompress_many("lz4", buffers, 3_999)
    assert len(decompress_many("lz4", buffers, 4_000)) == 4

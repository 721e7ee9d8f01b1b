"""Token dictionaries that this package writes."""

from __future__ import annotations

import random
import struct

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.indexes.text import fst as fst_writer
from lance_spark.indexes.text.fst import TokenGraph, crc32c

_ALPHABETS = ["ab", "abcdefgh", "éß中ф\U00010400'a", "\x00\x01z", "0123456789"]
_ANY_SIZE = 1 << 30


def random_tokens(seed: int, alphabet: str, count: int, most: int) -> list[bytes]:
    rng = random.Random(seed)
    return [
        "".join(rng.choice(alphabet) for _ in range(rng.randrange(most))).encode()
        for _ in range(count)
    ]


TOKENS: list[list[bytes]] = [
    [],
    [b""],
    [b"a"],
    [b"", b"a"],
    [b"the same start", b"the same"],
    [b"a", b"ab", b"abc", b"b", b"bc"],
    # A node of 256 transitions, of 33, 63 and 64.
    [bytes([byte]) for byte in range(256)],
    [bytes([first, byte]) for first in range(0, 256, 3) for byte in range(first)],
    [b"x" * size for size in range(300)],
    # Equal endings, and endings that other endings end with.
    [start + end for start in (b"ab", b"cd", b"e") for end in (b"", b"ing", b"ning", b"g", b"s")],
    [b"y" * 200_000 + b"1", b"y" * 200_000 + b"2" * 100_000],
]
RANDOM = [
    (seed, alphabet, count, most)
    for seed, alphabet in enumerate(_ALPHABETS)
    for count in (2, 40, 3000)
    for most in (3, 9, 60)
]


def encoded(tokens: list[bytes], numbers: np.ndarray) -> bytes:
    content: bytes = fst_writer.encoded(pa.array(tokens, pa.large_binary()), numbers).tobytes()
    return content


@pytest.mark.sample(8)
@pytest.mark.parametrize("step", [1000, 1 << 20])
@pytest.mark.parametrize("case", range(len(TOKENS) + len(RANDOM)))
def test_tokens_are_read_again(case: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fst_writer, "_STEP_BYTES", step)
    is_random = case >= len(TOKENS)
    tokens = random_tokens(*RANDOM[case - len(TOKENS)]) if is_random else TOKENS[case]
    tokens = sorted(set(tokens))
    numbers = np.random.default_rng(case).permutation(len(tokens))
    content = encoded(tokens, numbers)
    graph = TokenGraph.parse(content, len(tokens), "f")
    if sum(map(len, tokens)) < 200_000:
        matches, found_numbers = graph.starting_with(b"", _ANY_SIZE)
        assert len(matches) == len(tokens)
        expected = dict(zip(tokens, numbers.tolist(), strict=True))
        assert dict(zip(matches, found_numbers.tolist(), strict=True)) == expected
    for place in range(0, len(tokens), 1 + len(tokens) // 50):
        token = tokens[place]
        assert graph.find(token) == numbers[place]
        assert (graph.find(token + b"\xff") is None) == (token + b"\xff" not in tokens)
    # Readers expect the root at the end.
    root = struct.unpack_from("<Q", content, len(content) - 12)[0]
    assert root + 21 == len(content)


def test_a_slice_of_an_array() -> None:
    tokens = pa.array([b"0", b"aa", b"ab", b"b", b"z"], pa.large_binary()).slice(1, 3)
    content = fst_writer.encoded(tokens, np.array([2, 0, 1])).tobytes()
    matches, numbers = TokenGraph.parse(content, 3, "f").starting_with(b"a", 5)
    assert dict(zip(matches, numbers.tolist(), strict=True)) == {b"aa": 2, b"ab": 0}


def test_equal_endings_are_written_once() -> None:
    starts = sorted({token for token in random_tokens(1, "abcdefg", 3000, 9) if len(token) == 8})
    numbers = np.arange(len(starts))
    shared = encoded([start + b"@same.ending" for start in starts], numbers)
    # The targets of endings have other sizes.
    assert len(shared) < len(encoded(starts, numbers)) + 3 * len(starts)


@pytest.mark.parametrize("size", [4, 5, 63, 64, 65, 1000, 600_000])
def test_checksums(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    register = 0xFFFF_FFFF
    for byte in data[: min(size, 1000)].tolist():
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F6_3B78 if register & 1 else 0)
    if size > 1000:
        # Parts of another length give the same.
        padded = np.concatenate([data, np.frombuffer(crc32c(data).to_bytes(4, "little"), "u1")])
        assert crc32c(padded) == 0x48674BC7
    else:
        assert crc32c(data) == register ^ 0xFFFF_FFFF
    assert crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE306_9283

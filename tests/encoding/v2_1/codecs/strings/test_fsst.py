"""Fsst: against pages of pylance, and against an expansion code by code."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.blocks import VariableWidthBlock
from lance_spark.encoding.v2_1 import registry
from lance_spark.encoding.v2_1.codecs import variable
from lance_spark.encoding.v2_1.codecs.strings import fsst
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.encodings.chunks import as_bytes, block_of, chunks_of, strings_of, write

WORDS = [
    "the",
    "of",
    "and",
    "a",
    "to",
    "in",
    "is",
    "you",
    "that",
    "it",
    "he",
    "was",
    "for",
    "on",
    "are",
    "as",
    "with",
    "his",
    "they",
    "I",
    "at",
    "be",
    "this",
]


def sentences(count: int, seed: int = 0) -> list[str]:
    pick = random.Random(seed)
    return [
        " ".join(pick.choices(WORDS, k=pick.randrange(3, 12))).capitalize() for _ in range(count)
    ]


def rare_letters(count: int) -> list[str]:
    pick = random.Random(1)
    letters = [chr(c) for c in range(0x100, 0x4000, 37)]
    return [text + pick.choice(letters) * (i % 7 == 0) for i, text in enumerate(sentences(count))]


TEXTS = {
    "sentences": sentences(4000),
    "escapes": rare_letters(4000),
    "digits": [f"{i * 7919 % 1000003:012d}" for i in range(9000)],
    "empty": [text * (i % 3) for i, text in enumerate(sentences(3000))],
}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("text", TEXTS)
def test_pages_of_pylance(version: str, text: str) -> None:
    array = pa.array(TEXTS[text])
    (page,) = write(array, version)
    assert page.encoding.WhichOneof("compression") == "fsst"
    chunks = chunks_of(page)
    assert strings_of(registry.decode_chunks(page.encoding, chunks)) == as_bytes(array)


def test_large_offsets_and_binary() -> None:
    pick = random.Random(2)
    values = [bytes(pick.choices(range(256), k=20)) + b"always the same" for _ in range(3000)]
    array = pa.array(values, pa.large_binary())
    (page,) = write(array, "2.1", {"lance-encoding:compression": "fsst"})
    assert page.encoding.WhichOneof("compression") == "fsst"
    block = registry.decode_chunks(page.encoding, chunks_of(page))
    assert block.offsets.dtype == np.int64
    assert strings_of(block) == values


# Tables and codes of any kind


def message_of(symbols: list[bytes], *, encoded: bool = True) -> pb.CompressiveEncoding:
    head = bytes([len(symbols), 0, 0, int(encoded)]) + b"TSSF"
    table = head + b"".join(symbol.ljust(8, b"\0") for symbol in symbols)
    table += bytes(len(symbol) for symbol in symbols)
    inner, _ = variable.encode_values(block_of([]))
    return pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table.ljust(2312, b"\0"), values=inner))


def plainly(symbols: list[bytes], codes: bytes) -> bytes:
    text = b""
    at = 0
    while at < len(codes):
        if codes[at] == 255:
            text += codes[at + 1 : at + 2]
            at += 2
        else:
            text += symbols[codes[at]]
            at += 1
    return text


SYMBOLS = st.lists(st.binary(min_size=1, max_size=8), min_size=1, max_size=255)


@st.composite
def coded(draw: st.DrawFn, symbols: list[bytes]) -> bytes:
    code = st.integers(0, len(symbols) - 1).map(lambda c: bytes([c]))
    literal = st.sampled_from([0, 7, 254, 255]).map(lambda c: bytes([255, c]))
    return b"".join(draw(st.lists(st.one_of(code, code, literal), max_size=20)))


@given(st.data(), st.sampled_from([1, 60, 3000]))
@settings(max_examples=60, deadline=None)
def test_any_table(data: st.DataObject, times: int) -> None:
    symbols = data.draw(SYMBOLS)
    values = data.draw(st.lists(coded(symbols), min_size=1, max_size=12)) * times
    plain = {value: plainly(symbols, value) for value in set(values)}
    block = registry.decode_values(message_of(symbols), block_of(values))
    assert strings_of(block) == [plain[value] for value in values]


@pytest.mark.parametrize("where", [0, 1, 40000, 70001, -1])
@pytest.mark.parametrize("literal", [0, 255])
def test_one_escape_among_many_codes(where: int, literal: int) -> None:
    symbols = [bytes([65 + i % 26]) * (1 + i % 8) for i in range(255)]
    codes = bytes(i * 31 % 255 for i in range(100003))
    at = where % len(codes)
    codes = codes[:at] + bytes([255, literal]) + codes[at:]
    (text,) = strings_of(registry.decode_values(message_of(symbols), block_of([codes])))
    assert text == plainly(symbols, codes)


@pytest.mark.parametrize(("most", "width"), [(20, 8), (49, 8), (50, 4)])
def test_text_too_long_for_offsets_of_4_bytes(
    most: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsst, "_INT32_MAX", most)
    values = [b"\0\1\0", b"", b"\xff\0", b"\0\0\1\xff\xff\1"] * 2
    block = registry.decode_values(message_of([b"abcde", b"z"]), block_of(values))
    assert isinstance(block, VariableWidthBlock)
    assert len(block.data) == 50
    assert block.offsets.itemsize == width
    assert strings_of(block) == [b"abcdezabcde", b"", b"\0", b"abcdeabcdez\xffz"] * 2


def test_not_encoded() -> None:
    values = [b"as", b"", b"they are"]
    block = registry.decode_values(message_of([], encoded=False), block_of(values))
    assert strings_of(block) == values


@pytest.mark.parametrize("times", [1, 40000])
def test_escape_at_the_end(times: int) -> None:
    for values in ([b"\0\xff"] * times, [b"\0\xff", b"\0"] * times, [b"\xff\xff\xff"] * times):
        with pytest.raises(CorruptFileError):
            registry.decode_values(message_of([b"a"]), block_of(values))


def test_damaged_tables() -> None:
    good = message_of([b"abc", b"d"])
    block = block_of([b"\0\1"])
    for table in (b"", good.fsst.symbol_table[:20], b"\xff" + good.fsst.symbol_table[1:500]):
        bad = pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table, values=good.fsst.values))
        with pytest.raises(CorruptFileError):
            registry.decode_values(bad, block)
    magic = bytearray(good.fsst.symbol_table)
    magic[5] ^= 1
    length = bytearray(good.fsst.symbol_table)
    length[8 + 16] = 9
    for table in (bytes(magic), bytes(length)):
        bad = pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table, values=good.fsst.values))
        with pytest.raises(CorruptFileError):
            registry.decode_values(bad, block)


@given(st.binary(min_size=1, max_size=400), st.sampled_from([1, 200]))
@settings(max_examples=100, deadline=None)
def test_hostile_codes(codes: bytes, times: int) -> None:
    values = [codes[i : i + 7] for i in range(0, len(codes), 7)] * times
    try:
        block = registry.decode_values(message_of([b"abcdefgh", b"b"]), block_of(values))
    except CorruptFileError:
        return
    assert block.num_values == len(values)
    assert (np.diff(block.offsets) >= 0).all()
    assert block.offsets[-1] <= len(block.data) <= 8 * len(codes) * times


def test_code_without_a_symbol() -> None:
    for times in (1, 60000):
        for code in (b"\2", b"\xfe\0", b"\xff\xff\5"):
            with pytest.raises(CorruptFileError):
                registry.decode_values(message_of([b"a", b"b"]), block_of([b"\0", code] * times))

"""Fsst: against pages of pylance, and against an expansion code by code. All ways to expand codes
are tested: one at a time or two at a time by functions of numpy and Arrow, and by a loop that numba
compiles.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_spark
from lance_spark.encoding import compiled
from lance_spark.encoding.blocks import VariableWidthBlock
from lance_spark.encoding.v2_1.codec import decode_chunks, decode_values
from lance_spark.encoding.v2_1.codecs import fsst, fsst_compiled, variable
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.cells import number_of
from tests.support.encodings.chunks import (
    as_bytes,
    block_of,
    chunks_of,
    strings_of,
    symbol_table,
    write,
)

#: Random tables of symbols.
pytestmark = pytest.mark.slow

COMMON = "the of and a to in is you that it he was for on are as with his they I at be this"
WORDS = COMMON.split()
ROWS = 20_000


@pytest.fixture(scope="module", autouse=True, params=["codes", "pairs", "loop"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    compiled = request.param == "loop"
    if compiled:
        pytest.importorskip("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fsst_compiled.LOOP, "min_items", -1 if compiled else 1 << 62)
        patch.setattr(fsst, "_FEWEST_FOR_PAIRS", 1 << 62 if request.param == "codes" else 0)
        assert fsst_compiled.is_worthwhile(1) is compiled
        yield


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
    assert strings_of(decode_chunks(page.encoding, chunks)) == as_bytes(array)


def test_large_offsets_and_binary() -> None:
    pick = random.Random(2)
    values = [bytes(pick.choices(range(256), k=20)) + b"always the same" for _ in range(3000)]
    array = pa.array(values, pa.large_binary())
    (page,) = write(array, "2.1", {"lance-encoding:compression": "fsst"})
    assert page.encoding.WhichOneof("compression") == "fsst"
    block = decode_chunks(page.encoding, chunks_of(page))
    assert block.offsets.dtype == np.int64
    assert strings_of(block) == values


# Tables and codes of any kind


def message_of(symbols: list[bytes], *, encoded: bool = True) -> pb.CompressiveEncoding:
    inner, _ = variable.encode_values(block_of([]))
    table = symbol_table(symbols, encoded=encoded)
    return pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table, values=inner))


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
@settings(max_examples=number_of(30, 60), deadline=None)
def test_any_table(data: st.DataObject, times: int) -> None:
    symbols = data.draw(SYMBOLS)
    values = data.draw(st.lists(coded(symbols), min_size=1, max_size=12)) * times
    plain = {value: plainly(symbols, value) for value in set(values)}
    block = decode_values(message_of(symbols), block_of(values))
    assert strings_of(block) == [plain[value] for value in values]


@pytest.mark.sample(9)
@pytest.mark.parametrize("position", [0, 1, 40000, 70001, -1])
@pytest.mark.parametrize("literal", [0, 255])
def test_one_escape_among_many_codes(position: int, literal: int) -> None:
    symbols = [bytes([65 + i % 26]) * (1 + i % 8) for i in range(255)]
    codes = bytes(i * 31 % 255 for i in range(100003))
    at = position % len(codes)
    codes = codes[:at] + bytes([255, literal]) + codes[at:]
    (text,) = strings_of(decode_values(message_of(symbols), block_of([codes])))
    assert text == plainly(symbols, codes)


@pytest.mark.parametrize(("most", "width"), [(20, 8), (49, 8), (50, 4)])
def test_text_too_long_for_offsets_of_4_bytes(
    most: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsst, "_FEWEST_FOR_PAIRS", 0)
    for module in (fsst, fsst_compiled):
        monkeypatch.setattr(module, "_INT32_MAX", most)
    monkeypatch.setattr(fsst_compiled, "_MAX_ROOM", 3)
    values = [b"\0\1\0", b"", b"\xff\0", b"\0\0\1\xff\xff\1"] * 2
    block = decode_values(message_of([b"abcde", b"z"]), block_of(values))
    assert isinstance(block, VariableWidthBlock)
    assert len(block.data) == 50
    assert block.offsets.itemsize == width
    assert strings_of(block) == [b"abcdezabcde", b"", b"\0", b"abcdeabcdez\xffz"] * 2


def test_not_encoded() -> None:
    values = [b"as", b"", b"they are"]
    block = decode_values(message_of([], encoded=False), block_of(values))
    assert strings_of(block) == values


@pytest.mark.parametrize("times", [1, 40000])
def test_escape_at_the_end(times: int) -> None:
    for values in ([b"\0\xff"] * times, [b"\0\xff", b"\0"] * times, [b"\xff\xff\xff"] * times):
        with pytest.raises(CorruptFileError):
            decode_values(message_of([b"a"]), block_of(values))


def test_damaged_tables() -> None:
    good = message_of([b"abc", b"d"])
    block = block_of([b"\0\1"])
    for table in (b"", good.fsst.symbol_table[:20], b"\xff" + good.fsst.symbol_table[1:500]):
        bad = pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table, values=good.fsst.values))
        with pytest.raises(CorruptFileError):
            decode_values(bad, block)
    magic = bytearray(good.fsst.symbol_table)
    magic[5] ^= 1
    length = bytearray(good.fsst.symbol_table)
    length[8 + 16] = 9
    for table in (bytes(magic), bytes(length)):
        bad = pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table, values=good.fsst.values))
        with pytest.raises(CorruptFileError):
            decode_values(bad, block)


@given(st.binary(min_size=1, max_size=400), st.sampled_from([1, 200]))
@settings(max_examples=number_of(40, 100), deadline=None)
def test_hostile_codes(codes: bytes, times: int) -> None:
    values = [codes[i : i + 7] for i in range(0, len(codes), 7)] * times
    try:
        block = decode_values(message_of([b"abcdefgh", b"b"]), block_of(values))
    except CorruptFileError:
        return
    assert block.num_values == len(values)
    assert (np.diff(block.offsets) >= 0).all()
    assert block.offsets[-1] <= len(block.data) <= 8 * len(codes) * times


def test_code_without_a_symbol() -> None:
    for times in (1, 60000):
        for code in (b"\2", b"\xfe\0", b"\xff\xff\5"):
            with pytest.raises(CorruptFileError):
                decode_values(message_of([b"a", b"b"]), block_of([b"\0", code] * times))


def _texts(dtype: pa.DataType) -> pa.Array:
    rng = np.random.default_rng(5)
    words = np.array(["lance ", "spark ", "\xe9t\xe9 ", "", "a much longer word "])
    texts = ["".join(words[rng.integers(0, 5, n)]) + str(n) for n in rng.integers(1, 12, ROWS)]
    return pa.array(texts, mask=rng.random(ROWS) < 0.1).cast(dtype)


@pytest.mark.sample(5)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.list_(pa.string())], ids=str)
def test_rows_that_pylance_wrote_as_fsst(
    tmp_path: Path, version: str, dtype: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    expanded: list[int] = []
    expand = fsst.expand

    def counting(symbols: Any, codes: Any, offsets: Any) -> Any:
        expanded.append(len(offsets) - 1)
        return expand(symbols, codes, offsets)

    monkeypatch.setattr(fsst, "expand", counting)
    # Few values are expanded without it.
    monkeypatch.setattr(fsst, "_FEW_VALUES", 0)
    lists = pa.types.is_list(dtype)
    texts = _texts(dtype.value_type if lists else dtype)
    if lists:
        texts = pa.ListArray.from_arrays(np.arange(0, ROWS + 1, 4, np.int32), texts)
    metadata = {"lance-encoding:compression": "fsst"}
    schema = pa.schema([pa.field("text", dtype, metadata=metadata)])
    table = pa.table([texts], schema=schema)
    lance.write_dataset(table, str(tmp_path / "t"), data_storage_version=version)
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    assert dataset.to_table()["text"].combine_chunks().equals(texts)
    rng = np.random.default_rng(6)
    for count in (1, 40, len(texts) // 2):
        rows = np.sort(rng.choice(len(texts), count, replace=False))
        expected = texts.take(pa.array(rows))
        expanded.clear()
        assert dataset.take(rows)["text"].combine_chunks().equals(expected)
        assert 0 < sum(expanded) <= count * (4 if lists else 1)


def test_values_that_are_not_asked_for_are_not_expanded() -> None:
    table = bytes([1, 0, 0, 1]) + b"TSSF" + b"word\0\0\0\0" + bytes([4])
    encoding = pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table))
    # The second value has a code without a symbol.
    codes = VariableWidthBlock(
        np.array([1, 3, 4, 4, 6], np.int32), np.array([9, 0, 0, 7, 255, 33], np.uint8)
    )
    result = fsst.expand_some(encoding, codes, np.array([0, 2, 3]))
    assert bytes(result.data) == b"wordword!"
    assert result.offsets.tolist() == [0, 8, 8, 9]
    result = fsst.expand_some(encoding, codes, slice(2, 4))
    assert bytes(result.data) == b"!"
    for entries in (np.array([1]), slice(0, 2)):
        with pytest.raises(CorruptFileError, match="outside the"):
            fsst.expand_some(encoding, codes, entries)


def test_pages_that_are_expanded_together() -> None:
    rng = np.random.default_rng(7)
    encodings, values, texts, ends = [], [], [], []
    for page in range(12):
        symbols = [rng.bytes(int(size)) for size in rng.integers(1, 9, 40 * (page % 5) + 1)]
        encoded = page not in (3, 4, 8)
        encodings.append(message_of(symbols, encoded=encoded))
        for size in rng.integers(0, 9, page * 7 % 20):
            escape = bytes([255, int(rng.integers(256))]) * int(rng.integers(2))
            codes = bytes(rng.integers(0, len(symbols), size).astype(np.uint8)) + escape
            values.append(codes)
            texts.append(plainly(symbols, codes) if encoded else codes)
        ends.append(len(values))
    block = block_of([b"before", *values])
    block = VariableWidthBlock(block.offsets[1:], block.data)
    parts = fsst.expand_pages(encodings, block, np.array(ends))
    assert [text for part in parts for text in strings_of(part)] == texts
    # The first page has one symbol.
    strange = block_of([b"\0\1", *values])
    with pytest.raises(CorruptFileError, match="outside the"):
        list(fsst.expand_pages(encodings, strange, np.array(ends) + 1))


def test_few_values_are_expanded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    for count in (1, 7, 200):
        symbols = [rng.bytes(int(size)) for size in rng.integers(1, 9, count)]
        encoding = pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=symbol_table(symbols)))
        values = []
        for _ in range(60):
            escaped = rng.random(int(rng.integers(0, 12))) < 0.4
            literals = rng.choice([0, 10, 254, 255], len(escaped))
            codes = rng.integers(0, count, len(escaped))
            pairs = zip(escaped.tolist(), literals.tolist(), codes.tolist(), strict=True)
            values.append(b"".join(bytes([255, byte] if e else [code]) for e, byte, code in pairs))
        values += [b"\xff", b"\xff\xff\xff", bytes([count])]
        ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
        block = VariableWidthBlock(ends, np.frombuffer(b"".join(values), np.uint8))
        for _ in range(20):
            entries = np.sort(rng.choice(60, 12, replace=False))
            with monkeypatch.context() as patch:
                patch.setattr(fsst, "_FEW_VALUES", 0)
                expected = fsst.expand_some(encoding, block, entries)
            few = fsst.expand_few([encoding], block, [entries])
            assert few is not None
            assert bytes(few.data) == bytes(expected.data)
            assert few.offsets.tolist() == expected.offsets.tolist()
        for damaged in (60, 61, 62):
            with pytest.raises(CorruptFileError):
                fsst.expand_some(encoding, block, np.array([1, damaged]))


@pytest.mark.parametrize("problem", [ImportError, OSError, RuntimeError, EOFError])
def test_a_numba_that_does_not_work(
    monkeypatch: pytest.MonkeyPatch, problem: type[Exception]
) -> None:
    def fail(*_: Any, cache: bool) -> Any:
        raise problem

    monkeypatch.setattr(compiled, "_compiled", fail)
    loop = compiled.CompiledLoop(fsst_compiled._write, fsst_compiled._signature, -1)
    monkeypatch.setattr(fsst_compiled, "LOOP", loop)
    block = decode_values(message_of([b"abc"]), block_of([b"\0\0", b"\xff!"]))
    assert strings_of(block) == [b"abcabc", b"!"]


def test_a_damaged_cache_of_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    compile_function = compiled._compiled

    def only_without_cache(*arguments: Any, cache: bool) -> Any:
        if cache:
            raise EOFError
        return compile_function(*arguments, cache=cache)

    monkeypatch.setattr(compiled, "_compiled", only_without_cache)
    loop = compiled.CompiledLoop(fsst_compiled._write, fsst_compiled._signature, -1)
    assert loop.loop is not None
    monkeypatch.setattr(fsst_compiled, "LOOP", loop)
    block = decode_values(message_of([b"abc"]), block_of([b"\0\0", b"\xff!"]))
    assert strings_of(block) == [b"abcabc", b"!"]

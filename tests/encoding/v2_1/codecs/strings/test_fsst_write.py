"""FSST as this package writes it, read by this package and by pylance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileWriter

from lance_spark.encoding.blocks import VariableWidthBlock, to_block
from lance_spark.encoding.v2_1.codec import ChunkLimits, decode_chunks
from lance_spark.encoding.v2_1.codecs import fsst
from tests.file.sources import file_bytes
from tests.support.cells import number_of
from tests.support.encodings.chunks import block_of, read_by_both, strings_of

#: Random texts.
pytestmark = pytest.mark.slow

LIMITS = ChunkLimits(max_bytes=64 * 1024, max_values=1 << 15)
FSST = {"lance-encoding:compression": "fsst"}
#: Bytes with a meaning in the encoding, and text.
PIECES = st.one_of(
    st.sampled_from([b"", b"\xff", b"\x00", b"\xff\xff", b"ab", b"the ", b"http://", "ö".encode()]),
    st.binary(max_size=12),
)
VALUES = st.lists(st.lists(PIECES, max_size=12).map(b"".join), min_size=1, max_size=60)


def expand(codes: list[bytes], symbols: fsst.Symbols) -> list[bytes]:
    """Return the texts of some codes."""
    texts = [
        word.to_bytes(8, "little")[:length]
        for word, length in zip(symbols.words.tolist(), symbols.lengths.tolist(), strict=True)
    ]
    result = []
    for value in codes:
        rest = iter(value)
        result.append(b"".join(bytes((next(rest),)) if c == 255 else texts[c] for c in rest))
    return result


@pytest.mark.parametrize("offset_dtype", [np.int32, np.int64])
@given(values=VALUES, copies=st.integers(1, 30), start=st.integers(0, 5))
@settings(max_examples=number_of(30, 60), deadline=None)
def test_codes_stand_for_the_values(
    offset_dtype: type, values: list[bytes], copies: int, start: int
) -> None:
    whole = block_of([b"before"] * start + values * copies, offset_dtype)
    block = VariableWidthBlock(whole.offsets[start:], whole.data)
    if not any(values):
        return
    symbols = fsst.train(block)
    codes = fsst.encode(block, symbols)
    assert codes.offsets.dtype == offset_dtype
    assert len(symbols.words) <= 255
    assert ((symbols.lengths >= 1) & (symbols.lengths <= 8)).all()
    assert expand(strings_of(codes), symbols) == values * copies


@given(values=VALUES, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_chunks_round_trip(values: list[bytes], seed: int) -> None:
    picks = np.random.default_rng(seed).integers(0, len(values), 3000).tolist()
    values = [values[i] for i in picks] + [b"the end of it"] * 1000
    encoding, chunks = fsst.encode_chunks(block_of(values), LIMITS)
    assert encoding.WhichOneof("compression") == "fsst"
    assert strings_of(decode_chunks(encoding, chunks)) == values


def test_the_longest_symbol_is_taken() -> None:
    texts = [b"a", b"ab", b"abc", b"abcdefgh", b"xyz"]
    words = np.array([int.from_bytes(text, "little") for text in texts], np.uint64)
    symbols = fsst.Symbols(words[[0, 1, 3, 4]], np.array([1, 2, 8, 3]))
    values = [b"abcdefgha", b"abcdefg", b"ab", b"a", b"xyzxy", b"", b"\xffxyz"]
    codes = fsst.encode(block_of(values), symbols)
    assert strings_of(codes) == [
        bytes((2, 0)),
        bytes((1, 255, ord("c"), 255, ord("d"), 255, ord("e"), 255, ord("f"), 255, ord("g"))),
        bytes((1,)),
        bytes((0,)),
        bytes((3, 255, ord("x"), 255, ord("y"))),
        b"",
        bytes((255, 255, 3)),
    ]


def test_symbols_do_not_depend_on_anything_else() -> None:
    block = to_block(sentences(5_000), None)
    first, again = fsst.train(block), fsst.train(block)
    assert first.table() == again.table()
    assert len(first.table()) == fsst.TABLE_BYTES


def test_a_long_value_is_coded_in_parts() -> None:
    value = b" ".join(text.encode() for text in sentences(3_000).to_pylist())
    block = block_of([b"short", value, b"", b"end"])
    symbols = fsst.train(block)
    codes = fsst.encode(block, symbols)
    assert expand(strings_of(codes), symbols) == [b"short", value, b"", b"end"]
    assert len(codes.data) < len(value) / 2


def test_noise_and_few_values_stay_uncompressed() -> None:
    rng = np.random.default_rng(3)
    for values in ([rng.bytes(100) for _ in range(500)], [b"abc"] * 50):
        encoding, _ = fsst.encode_chunks(block_of(values), LIMITS)
        assert encoding.WhichOneof("compression") == "variable"


def sentences(count: int) -> pa.Array:
    rng = np.random.default_rng(5)
    known = [bytes(rng.integers(97, 123, rng.integers(2, 9)).astype(np.uint8)) for _ in range(400)]
    ranks = np.minimum(rng.zipf(1.4, (count, 8)) - 1, 399).tolist()
    return pa.array([" ".join(known[i].decode() for i in row[: 3 + row[0] % 6]) for row in ranks])


def table(structural: str | None = None) -> pa.Table:
    rng = np.random.default_rng(6)
    texts = sentences(20_000)
    numbers = pa.array(
        [f"{a} № {b}" for a, b in zip(texts.to_pylist(), rng.random(20_000).tolist(), strict=True)]
    )
    bytes_ = pa.array([t.encode() + rng.bytes(3) + b"\x00\xff" for t in texts.to_pylist()])
    nulls = rng.random(20_000) < 0.3
    columns = {
        "text": numbers,
        "nullable": pa.array(numbers.to_pylist(), pa.large_string(), mask=nulls),
        "bytes": bytes_,
        "lists": pa.ListArray.from_arrays(pa.array(np.arange(0, 20_001, 4), pa.int32()), numbers),
    }
    metadata = FSST | ({"lance-encoding:structural-encoding": structural} if structural else {})
    lists = columns.pop("lists")
    fields = [pa.field(name, array.type, metadata=metadata) for name, array in columns.items()]
    fields.append(pa.field("lists", pa.list_(pa.field("item", pa.string(), metadata=metadata))))
    arrays = [array.slice(0, 5_000) for array in columns.values()] + [lists]
    return pa.table(arrays, pa.schema(fields))


@pytest.mark.sample(5)
@pytest.mark.parametrize("version", [(2, 1), (2, 2)])
@pytest.mark.parametrize("structural", [None, "fullzip"])
def test_pylance_reads(
    tmp_path: Path,
    version: tuple[int, int],
    structural: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []
    for name in ("encode_chunks", "encode_values"):
        encode = getattr(fsst, name)

        def noted(*arguments: object, encode=encode) -> object:  # type: ignore[no-untyped-def]
            result = encode(*arguments)
            written.append(result[0].WhichOneof("compression"))
            return result

        monkeypatch.setattr(fsst, name, noted)
    data = table(structural)
    read_by_both(tmp_path, data, version, [0, 1, 1_023, 1_024, 3_333, 4_999])
    assert written == ["fsst"] * 4


def test_no_larger_than_pylance(tmp_path: Path) -> None:
    data = table().select(["text", "bytes"])
    size = len(file_bytes(data))
    with LanceFileWriter(str(tmp_path / "theirs.lance"), data.schema, version="2.2") as theirs:
        theirs.write_batch(data)
    assert size < 1.05 * (tmp_path / "theirs.lance").stat().st_size

"""JSONB against pylance, which writes the same bytes and reads the same text, and against
damaged bytes.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader

from lance_spark.errors import CorruptFileError, InvalidInputError, LanceError, UnsupportedError
from lance_spark.json.jsonb import MAX_DEPTH, decode, encode, to_jsonb, to_text
from tests.support.cells import number_of

SCALAR, OBJECT, ARRAY = 0x2000_0000, 0x4000_0000, 0x8000_0000

EDGES = [0, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31, 2**32, 2**53 + 1, 2**63, 2**64]
INTEGERS = [str(sign * edge + step) for edge in EDGES for sign in (1, -1) for step in (-1, 0, 1)]
FLOATS = [
    "0.0",
    "-0.0",
    "-0",
    "-0e0",
    "0e400",
    "1.0",
    "0.1",
    "-1.5",
    "1.10",
    "4.35",
    "1e10",
    "1E10",
    "1.0E+2",
    "1e15",
    "1e16",
    "1e17",
    "1.5e16",
    "1e21",
    "1e22",
    "1e100",
    "123456789.123456789",
    "0.1234567890123456789",
    "12345678901234567890.123456789",
    "99999999999999999999999999999999999999.9",
    "1.7976931348623157e308",
    "5e-324",
    "2.5e-320",
    "1e-400",
    "0.0001",
    "0.00012345",
    "0.00001",
    "-0.00001",
    "1.234e-5",
    "9.999e-5",
    "1e-6",
    "123e-8",
    "1e-7",
    "0.30000000000000004",
    "9007199254740993.0",
    "100000000000000000000",
]
TEXTS = [
    *("null", "true", "false", '""', "[]", "{}", " [ 1 ,\t2 ]\r\n", "[[],{},[[]],[{}]]", '{"":{}}'),
    '"\\" \\\\ \\/ / \\b\\f\\n\\r\\t \\u0000 \\u001f \\u007f \x7f \u2028"',
    '"\u00e9 \\u00e9 \\u00E9 \U0001f600 \\ud83d\\ude00 \u4e2d"',
    '["\\ud800","\\udc00x","a\\udbff"]',
    '{"z":1,"aa":2,"a":3,"":4,"\u00e9":5,"10":6,"9":7,"A":8,"\U0001f600":9,"\uffff":10}',
    '{"l":[null,true,-5,300,70000,5000000000,1.5,"x",{"k":[]}],"a b":{"c":{"d":{}}}}',
    json.dumps("x" * 70_000),
    json.dumps(list(range(3_000))),
    json.dumps({f"key {i}": i for i in range(300)}),
]


def random_texts(count: int) -> list[str]:
    """Floats and doubles of every size, where their texts differ most between writers."""
    drawn = random.Random(7)
    bits = [struct.pack(">Q", drawn.getrandbits(64)) for _ in range(count)]
    floats = [struct.unpack(">d", raw)[0] for raw in bits]
    scaled = [drawn.random() * 10 ** drawn.randint(-9, 20) for _ in range(count)]
    short = [round(value, drawn.randint(0, 6)) for value in scaled]
    return [repr(value) for value in [*floats, *scaled, *short] if value - value == 0]


def through_pylance(texts: list[str], path: Path) -> tuple[list[bytes], list[str]]:
    """Return the bytes that pylance stores for some texts, and the texts that it reads."""
    table = pa.table({"j": pa.array(texts, pa.json_())})
    dataset = lance.write_dataset(table, str(path), mode="overwrite", data_storage_version="2.1")
    (fragment,) = dataset.get_fragments()
    (file,) = fragment.data_files()
    raw = LanceFileReader(str(path / "data" / file.path)).read_all().to_table()
    return raw["j"].to_pylist(), dataset.to_table()["j"].to_pylist()


def check(texts: list[str], path: Path) -> None:
    stored, read = through_pylance(texts, path)
    for text, binary, decoded in zip(texts, stored, read, strict=True):
        assert encode(text) == binary, text
        assert decode(binary) == decoded, text


def test_all_kinds_of_values_are_as_pylance_has_them(tmp_path: Path) -> None:
    check([*INTEGERS, *FLOATS, *TEXTS, *random_texts(1_000)], tmp_path)


CHARACTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Integers beyond 64 bits are floats.
    | st.integers(-(2**80), 2**80)
    | CHARACTERS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(CHARACTERS, inner, max_size=5),
    max_leaves=20,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(VALUES, min_size=1, max_size=60), st.booleans(), st.sampled_from([None, 1]))
def test_random_values_are_as_pylance_has_them(
    tmp_path: Path, values: list[Any], ascii_only: bool, indent: int | None
) -> None:
    texts = [json.dumps(value, ensure_ascii=ascii_only, indent=indent) for value in values]
    check(texts, tmp_path)


@settings(max_examples=number_of(80, 200), deadline=None)
@given(VALUES)
def test_values_come_back(value: Any) -> None:
    result = json.loads(decode(encode(json.dumps(value))), parse_int=float)
    assert result == json.loads(json.dumps(value), parse_int=float)


def number(*content: int) -> bytes:
    return struct.pack(">II", SCALAR, 0x2000_0000 | len(content)) + bytes(content)


def test_values_of_other_jsonb_writers_are_decoded(tmp_path: Path) -> None:
    values = [
        number(0x10),
        number(0x20),
        number(0x30),
        number(0x40, 255, 255, 255, 251),
        number(0x50, 0, 0, 0, 0, 0, 0, 0, 9),
        number(0x70, *(12345).to_bytes(8, "big"), 2),
        number(0x70, *(-5).to_bytes(8, "big", signed=True), 2),
        number(0x70, *(12300).to_bytes(16, "big"), 2),
        number(0x70, *(12345).to_bytes(16, "big"), 9, 2),
        number(0x70, *(10**60).to_bytes(32, "big"), 5),
        struct.pack(">IIIII", OBJECT | 2, 0x1000_0001, 0x1000_0001, 0, 0x4000_0000) + b"ba",
        number(0x50, 1) + b"behind",
        b"",
    ]
    field = pa.field("j", pa.large_binary(), metadata={"ARROW:extension:name": "lance.json"})
    table = pa.table([pa.array(values, pa.large_binary())], schema=pa.schema([field]))
    theirs = lance.write_dataset(table, str(tmp_path)).to_table()["j"].to_pylist()
    assert [decode(value) for value in values] == theirs
    assert theirs[:2] == ["null", "null"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("nul", "Expecting value"),
        ("NaN", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("[1,]", "Expecting value|trailing comma"),
        ("{a:1}", "property name"),
        ("'a'", "Expecting value"),
        ('"a', "Unterminated"),
        ('"a\nb"', "control character"),
        ("1 2", "Extra data"),
        ("01", "Extra data"),
        ('{"a":1,"b":{},"a":2}', "key 'a' twice"),
        ('[{"\\u0061":1,"a":2}]', "key 'a' twice"),
        ("1e400", "no float64 holds"),
        ("[-1" + "0" * 400 + "]", "no float64 holds"),
        ("1" * 5_000, "digits|no float64 holds"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} deep"),
        ("[" * 100_000, "more than"),
    ],
)
def test_invalid_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as refused:
        encode(text)
    assert repr(text[:60])[:-1] in str(refused.value)
    assert len(str(refused.value)) < 400


def test_the_deepest_value_comes_back() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert decode(encode(text)) == text


def nested(depth: int) -> bytes:
    value = struct.pack(">I", ARRAY)
    for _ in range(depth):
        value = struct.pack(">II", ARRAY | 1, 0x5000_0000 | len(value)) + value
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\x20", "header"),
        (struct.pack(">I", 0x6000_0000), "not a header"),
        (struct.pack(">I", 0), "not a header"),
        (struct.pack(">I", SCALAR), "entries do not fit"),
        (struct.pack(">I", ARRAY | 0x1FFF_FFFF), "entries do not fit"),
        (struct.pack(">II", OBJECT | 1, 0x1000_0000), "entries do not fit"),
        (struct.pack(">II", SCALAR, 0x1FFF_FFFF) + b"abc", "268435455 bytes has 3 left"),
        (struct.pack(">III", ARRAY | 2, 0x1000_0002, 0x1000_0002) + b"abc", "2 bytes has 1 left"),
        (struct.pack(">II", SCALAR, 0x1000_0002) + b"\xff\xff", "not UTF-8"),
        (struct.pack(">III", OBJECT | 1, 0x2000_0001, 0) + b"\x00", "a key is not a string"),
        (number(), "not a number"),
        (number(0x40), "not a number"),
        (number(0x40, 1, 2, 3), "not a number"),
        (number(0x60, 1, 2, 3, 4), "not a number"),
        (number(0x80, 1), "not a number"),
        (number(0x70, 1, 2), "not a number"),
        (struct.pack(">II", SCALAR, 0x5000_0004) + b"\0\0\0\0", "not a header"),
    ],
)
def test_damaged_bytes(value: bytes, message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        decode(value)


def test_unknown_and_deeply_nested_jsonb_values_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="kind 6"):
        decode(struct.pack(">II", SCALAR, 0x6000_0001) + b"\0")
    assert decode(nested(MAX_DEPTH)).count("[") == MAX_DEPTH + 1
    with pytest.raises(UnsupportedError, match="deep"):
        decode(nested(10_000))


@pytest.mark.slow
@settings(max_examples=number_of(120, 300), deadline=None)
@given(VALUES, st.integers(0, 2**32 - 1))
def test_any_damage_is_an_error_or_text(value: Any, seed: int) -> None:
    drawn = random.Random(seed)
    data = bytearray(encode(json.dumps(value)))
    for _ in range(drawn.randint(1, 4)):
        data[drawn.randrange(len(data))] = drawn.choice((0, 1, 0x10, 0x50, 0x7F, 0x80, 0xFF))
    damaged = bytes(data[: drawn.randint(1, len(data))] if drawn.random() < 0.5 else data)
    try:
        text = decode(damaged)
    except LanceError:
        return
    json.loads(text)


def test_arrays() -> None:
    texts = pa.array(["1", None, '{"b":1, "a":[]}', "null"])
    binary = to_jsonb(texts)
    assert binary.type == pa.large_binary()
    assert binary.null_count == 1
    assert to_text(binary).equals(pa.array(["1", None, '{"a":[],"b":1}', "null"]))
    assert to_text(binary.slice(2)).to_pylist() == ['{"a":[],"b":1}', "null"]

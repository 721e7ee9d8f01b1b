"""Values found in JSONB for many documents at once, against the decoder and pylance."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_spark
from lance_spark.errors import CorruptFileError, InvalidInputError, LanceError
from lance_spark.indexes.json.files import extracted
from lance_spark.json import search
from lance_spark.json.functions import json_value
from lance_spark.json.jsonb import encode, to_jsonb, to_text
from lance_spark.json.paths import Item, Key, Member, Step
from tests.support.cells import number_of

#: Few keys, so that paths find values; some begin with others, or have the same bytes.
KEYS = ["", "a", "b", "ab", "aa", "A", "é", "e\u0301", "0", "1", "+1", "\U0001f600", "x" * 70]
RESULTS: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "get": pa.bool_(),
    "text": pa.string(),
    "exists": pa.bool_(),
    "length": pa.int64(),
    "contains": pa.bool_(),
}
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.sampled_from([0, 127, 128, 255, 256, 65535, 65536, 2**31, 2**32, 2**53 + 1, 2**63])
    | st.sampled_from([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 9.3e18, -(2.0**63), -0.0])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "1", "-7", "1.5", "true", "No", "x", "é\u0000", '"\\', "1e400"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
STEPS: st.SearchStrategy[Step] = (
    st.builds(Key, st.sampled_from([*KEYS, "18446744073709551615", "\ud800"]))
    | st.builds(Member, st.sampled_from(KEYS))
    | st.builds(Item, st.integers(0, 3) | st.just(10**9))
)
#: Documents that pylance does not write: numbers that are no numbers, decimals, a key twice, keys
#: without order, a container that is a scalar, and bytes behind a value.
OTHERS = [
    b"",
    struct.pack(">II", 0x2000_0000, 0x2000_0001) + b"\x10",
    struct.pack(">II", 0x2000_0000, 0x2000_000A) + b"\x70" + (12345).to_bytes(8, "big") + b"\x02",
    struct.pack(">IIIII", 0x4000_0002, 0x1000_0001, 0x1000_0001, 0x4000_0000, 0) + b"aa",
    struct.pack(">IIIII", 0x4000_0002, 0x1000_0001, 0x1000_0001, 0x4000_0000, 0) + b"ba",
    struct.pack(">IIIII", 0x4000_0001, 0x1000_0001, 0x5000_0008, 0x6100_0000, 0)[:12]
    + b"a"
    + struct.pack(">II", 0x2000_0000, 0x4000_0000),
    encode('{"a":1}') + b"behind",
    struct.pack(">III", 0x4000_0001, 0x1000_0001, 0x2000_0001) + b"a\x30",
    struct.pack(">III", 0x4000_0001, 0x1000_0001, 0x2000_0002) + b"a\x00\x07",
    struct.pack(">III", 0x4000_0001, 0x1000_0001, 0x2000_0009) + b"a\x60\x7f\xf0" + bytes(6),
]


def outcome(documents: pa.Array, detail: Any, dtype: pa.DataType) -> Any:
    """Return the result for each document, or the error."""
    try:
        return [repr(value) for value in json_value([documents], detail, dtype).to_pylist()]
    except ValueError:
        return ValueError


def outcome_of_index(documents: pa.Array, path: str) -> Any:
    try:
        values = extracted(documents, path)
        return values.type, [repr(value) for value in values.to_pylist()]
    except InvalidInputError:
        return InvalidInputError


def small_pieces(patch: pytest.MonkeyPatch, size: int) -> None:
    patch.setattr(search, "_PIECE_BYTES", size)


@settings(
    max_examples=number_of(60, 150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.none() | st.sampled_from(OTHERS) | (OBJECTS | VALUES).map(lambda v: encode(json.dumps(v))),
        min_size=1,
        max_size=12,
    ),
    st.lists(STEPS, max_size=3),
    st.lists(STEPS.filter(lambda step: not isinstance(step, Key)), max_size=2),
    st.sampled_from(list(RESULTS)),
    st.integers(0, 3),
)  # fmt: skip
def test_values_are_those_of_the_decoder(
    monkeypatch: pytest.MonkeyPatch,
    documents: list[bytes | None],
    keys: list[Step],
    path: list[Step],
    result: str,
    skipped: int,
) -> None:
    small_pieces(monkeypatch, 150)
    array = pa.array(documents, pa.large_binary()).slice(skipped)
    for detail in (
        (result, tuple(keys), (), "1"),
        (result, (), tuple(path), "1"),
        (result, tuple(keys), tuple(path), "x"),
    ):
        for part in (array, *(array.slice(row, 1) for row in range(len(array)))):
            expected = outcome(to_text(part), detail, RESULTS[result])
            assert outcome(part, detail, RESULTS[result]) == expected


@settings(
    max_examples=number_of(60, 150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.none()
        | st.sampled_from([*OTHERS, *(encode(f'{{"a":{n}}}') for n in ("1", "-2", "2.5", "1e19"))])
        | st.dictionaries(st.sampled_from("ab"), SCALARS).map(lambda v: encode(json.dumps(v))),
        max_size=8,
    ),
    st.sampled_from(["a", "$", "$.b"]),
)
def test_indexed_values_are_those_of_the_decoder(
    monkeypatch: pytest.MonkeyPatch, documents: list[bytes | None], path: str
) -> None:
    small_pieces(monkeypatch, 60)
    array = pa.array(documents, pa.large_binary())
    for part in (array, *(array.slice(row, 2) for row in range(len(array)))):
        assert outcome_of_index(part, path) == outcome_of_index(to_text(part), path)


@settings(max_examples=number_of(60, 150), deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=4), STEPS, STEPS, st.integers(0, 2**32 - 1))
def test_damage_is_an_error_or_a_value(
    values: list[Any], first: Step, second: Step, seed: int
) -> None:
    drawn = random.Random(seed)
    documents = []
    for value in values:
        data = bytearray(encode(json.dumps(value)))
        for _ in range(drawn.randint(0, 3)):
            data[drawn.randrange(len(data))] = drawn.choice((0, 1, 0x10, 0x50, 0x7F, 0x80, 0xFF))
        documents.append(bytes(data[: drawn.randint(0, len(data))] if seed % 2 else data))
    array = pa.array(documents, pa.large_binary())
    for row in range(len(array)):
        for result, dtype in RESULTS.items():
            detail = (result, (first, second), (), "1")
            try:
                expected = outcome(to_text(array.slice(row, 1)), detail, dtype)
            except LanceError:
                # Damage in a part that no step reads may stay unseen.
                expected = None
            try:
                answer = outcome(array.slice(row, 1), detail, dtype)
            except LanceError:
                # One that the decoder has found.
                assert expected is None
            else:
                assert expected in (None, answer)


@pytest.mark.sample(3)
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_filters_are_as_in_pylance(tmp_path: Path, version: str) -> None:
    rng = random.Random(version)
    rows = 3000

    def value(depth: int) -> Any:
        if depth and rng.random() < 0.5:
            names = rng.sample(["a", "b", "é", "ab", "0"], rng.randint(0, 4))
            return {name: value(depth - 1) for name in names}
        if depth and rng.random() < 0.3:
            words = ["x", "-5", "true", "é", "", 'q"']
            length = rng.randint(0, 3)
            if rng.random() < 0.5:
                return rng.choices(words, k=length)
            return [rng.choice([value(depth - 1), *words]) for _ in range(length)]
        return rng.choice([None, True, False, 0, -5, 300, 70_000, 2**40, 2.5, -0.5])

    documents = [
        None if rng.random() < 0.1 else json.dumps(value(3), ensure_ascii=False)
        for _ in range(rows)
    ]
    js = pa.array(documents, pa.json_())
    columns: dict[str, Any] = {"id": range(rows), "js": js}
    if version not in ("0.1",):
        columns["inner"] = pa.StructArray.from_arrays([js], names=["doc"])
    table = pa.table(columns)
    path = str(tmp_path / "t.lance")
    lance.write_dataset(table, path, data_storage_version=version, max_rows_per_file=1000)
    lance.dataset(path).delete("id % 7 = 3")
    texts = [
        "json_get(json_get(js, 'a'), 'b') IS NULL AND json_get(js, 'ab') IS NOT NULL",
        "json_exists(js, '$.a.b')",
        "json_exists(js, '$.é[0]') OR json_exists(js, '$.a[1]')",
        "json_array_length(js, '$.a') > 1",
        "json_extract(js, '$.b') = '300'",
        "json_extract(js, '$.b') LIKE '{%'",
        "json_array_contains(js, '$.b', '-5')",
        *(f"json_array_contains(js, '$.a', '{word}')" for word in ("x", "true", "é", "", 'q"')),
        "json_get(js, '0') IS NOT NULL AND js IS NOT NULL",
        "js IS NULL",
    ]
    for text in texts:
        ours = lance_spark.open_dataset(path)
        expected = lance.dataset(path).to_table(filter=text).sort_by("id")
        own = ours.to_table(filter=text).sort_by("id")
        assert own["id"].to_pylist() == expected["id"].to_pylist(), text
        # The filter's column is read as JSONB, and returned as text.
        assert own["js"].to_pylist() == expected["js"].to_pylist()
        assert ours.count_rows(text) == expected.num_rows
        if version != "0.1":
            assert own["inner"].to_pylist() == expected["inner"].to_pylist()
            inner = text.replace("js,", "inner.doc,").replace("js IS", "inner.doc IS")
            own = ours.to_table(["id", "inner"], filter=inner).sort_by("id")
            assert own["id"].to_pylist() == expected["id"].to_pylist(), inner
            assert own["inner"].to_pylist() == expected["inner"].to_pylist()


@pytest.mark.parametrize("rows", [3, 3000])
def test_damage_of_a_file_is_an_error(tmp_path: Path, rows: int) -> None:
    sound = to_jsonb(pa.array(['{"a":1}', '{"a":"é","b":2}', '{"a":{"b":2}}'])).to_pylist()
    damaged = {
        "a": [sound[0], sound[1].replace(b"\xc3\xa9", b"\xc3\xc3"), sound[2]],
        "b": [sound[0], sound[1], sound[2].replace(b"\x50", b"\x5f", 1)],
    }
    field = pa.field("js", pa.large_binary(), metadata={"ARROW:extension:name": "lance.json"})
    for name, documents in damaged.items():
        array = pa.array([sound[0]] * (rows - 3) + documents, pa.large_binary())
        table = pa.table(
            [pa.array(range(rows)), array], schema=pa.schema([("id", pa.int64()), field])
        )
        path = str(tmp_path / name)
        lance.write_dataset(table, path)
        dataset = lance_spark.open_dataset(path)
        texts = ["json_get_string(js, 'a') = 'x'", "json_extract(js, '$.a') = '1'", "js = 'x'"]
        for text in texts:
            with pytest.raises(CorruptFileError, match=r"\.lance, column 'js': JSONB is damaged"):
                dataset.to_table(["id"], filter=text)
        # The filter does not need the damaged part, but the result has it.
        with pytest.raises(CorruptFileError, match=r"\.lance, column 'js': JSONB is damaged"):
            dataset.to_table(filter="json_get_int(js, 'zz') IS NULL")
        with pytest.raises(CorruptFileError, match=r"\.lance, column 'js': JSONB is damaged"):
            dataset.create_scalar_index("js", lance_spark.IndexConfig("JSON", {"path": "a"}))


def test_an_index_of_a_nested_column(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    js = pa.array([json.dumps({"a": k % 50}) for k in range(500)], pa.json_())
    inner = pa.StructArray.from_arrays([pa.array(range(500)), js], names=["n", "doc"])
    lance.write_dataset(pa.table({"id": range(500), "inner": inner}), path)
    dataset = lance_spark.open_dataset(path)
    dataset.create_scalar_index("inner.doc", lance_spark.IndexConfig("JSON", {"path": "a"}))
    dataset = lance_spark.open_dataset(path)
    text = "json_get_int(inner.doc, 'a') = 7"
    assert dataset.check_index("inner.doc_idx").is_valid
    table = dataset.to_table(["id"], filter=text)["id"]
    assert pc.sum(table).as_py() == sum(range(7, 500, 50))

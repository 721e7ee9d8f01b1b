"""JSON columns, both ways: text for users, JSONB in files, at every place where such a column can
be.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import lance_spark
from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedTypeError,
)

ROWS = 900
JSON = pa.json_()
BOTH = ("2.0", "2.1", "2.2")
TAGGED = {"ARROW:extension:name": "arrow.json"}


def texts(count: int = ROWS, nulls: bool = True) -> pa.Array:
    drawn = np.random.default_rng(5)
    values_of: list[Callable[[int], object]] = [
        lambda i: {"name": f"user {i}", "id": i, "tags": ["x"] * (i % 4), "score": i / 7},
        lambda i: [i, -i, {"b": None, "a": {"é": i % 2 == 0}}],
        lambda i: f'line\n"{i}"',
        lambda i: None,
        lambda i: i * 2**40,
        lambda i: {},
    ]
    values = [
        json.dumps(values_of[choice](i), indent=int(i) % 2)
        for i, choice in enumerate(drawn.integers(0, 6, count))
    ]
    mask = drawn.random(count) < 0.2 if nulls else None
    return pa.array(values, mask=mask).cast(JSON)


def some(count: int) -> pa.Array:
    return pa.array(np.random.default_rng(count).random(count) < 0.2)


def lists(items: pa.Array, array_type: type[pa.ListArray] = pa.ListArray) -> pa.Array:
    offsets = np.arange(len(items) // 3 + 1) * 3
    width = pa.int64() if array_type is pa.LargeListArray else pa.int32()
    return array_type.from_arrays(pa.array(offsets, width), items, mask=some(len(items) // 3))


def structs(mask: bool = True) -> pa.Array:
    return pa.StructArray.from_arrays(
        [pa.array(np.arange(ROWS)), texts()], ["i", "j"], mask=some(ROWS) if mask else None
    )


CASES: dict[str, tuple[tuple[str, ...], Callable[[], pa.Array]]] = {
    "plain": (BOTH, texts),
    "no nulls": (BOTH, lambda: texts(nulls=False)),
    "all null": (BOTH, lambda: pa.nulls(ROWS, pa.string()).cast(JSON)),
    "no rows": (BOTH, lambda: texts(0)),
    "large": (
        BOTH,
        lambda: texts().storage.cast(pa.large_string()).cast(pa.json_(pa.large_string())),
    ),
    "lists": (BOTH, lambda: lists(texts())),
    "large lists": (BOTH, lambda: lists(texts(), pa.LargeListArray)),
    "lists of lists": (BOTH, lambda: lists(lists(texts()))),
    "structs": (("2.1", "2.2"), structs),
    "structs that are not null": (BOTH, lambda: structs(False)),
    "lists of structs": (("2.1", "2.2"), lambda: lists(structs())),
    "maps": (
        ("2.2",),
        lambda: pa.MapArray.from_arrays(
            pa.array(np.arange(0, ROWS + 1, 3), pa.int32()),
            pa.array([str(i) for i in range(ROWS)]),
            texts(),
        ),
    ),
    "vectors of structs": (("2.2",), lambda: pa.FixedSizeListArray.from_arrays(structs(), 3)),
}
PAIRS = [(name, version) for name, (versions, _) in CASES.items() for version in versions]


def check(path: str, theirs: pa.Table) -> None:
    """Check that this package reads what pylance reads: all rows, some rows, and windows that do
    not begin at the first row.
    """
    ours = lance_spark.open_dataset(path)
    values = theirs["c"].to_pylist()
    assert ours.to_table()["c"].to_pylist() == values
    assert plain(ours.schema.field("c").type) == plain(theirs.schema.field("c").type)
    if values:
        rows = np.random.default_rng(3).integers(0, len(values), 15)
        assert ours.take(rows)["c"].to_pylist() == [values[row] for row in rows]
    batches = [batch["c"].to_pylist() for batch in ours.to_batches(batch_size=77)]
    assert [value for batch in batches for value in batch] == values


def plain(dtype: pa.DataType) -> str:
    """Return a type with strings in place of JSON."""
    return str(dtype).replace("extension<arrow.json>", "string")


@pytest.mark.sample(5)
@pytest.mark.parametrize(("name", "version"), [*PAIRS, ("plain", "0.1"), ("plain", "2.3")])
def test_pylance_wrote(tmp_path: Path, name: str, version: str) -> None:
    path = str(tmp_path / "t.lance")
    table = pa.table({"c": CASES[name][1]()})
    dataset = lance.write_dataset(table, path, data_storage_version=version, max_rows_per_file=400)
    check(path, dataset.to_table())
    if len(table) and name != "vectors of structs":
        dataset.delete("_rowid % 3 = 0")
        check(path, dataset.to_table())


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_pylance_reads_written_json(tmp_path: Path, name: str, version: str) -> None:
    table = pa.table({"c": CASES[name][1]()})
    ours, theirs = str(tmp_path / "ours.lance"), str(tmp_path / "theirs.lance")
    expected = lance.write_dataset(table, theirs, data_storage_version=version)
    # The offsets of a slice do not begin at 0.
    halves = [table.slice(0, 5), table.slice(5)] if len(table) else [table]
    batches = [batch for half in halves for batch in half.to_batches()]
    lance_spark.write_dataset(batches, ours, schema=table.schema, data_storage_version=version)
    written = lance.dataset(ours)
    written.validate()
    assert written.schema.equals(expected.schema, check_metadata=True)
    assert written.to_table().equals(expected.to_table())
    check(ours, expected.to_table())


def test_the_files_hold_the_same_bytes(tmp_path: Path) -> None:
    table = pa.table({"c": texts()})
    tables = []
    for name, write in (("ours", lance_spark.write_dataset), ("theirs", lance.write_dataset)):
        write(table, str(tmp_path / name), data_storage_version="2.1")
        (path,) = (tmp_path / name / "data").iterdir()
        tables.append(LanceFileReader(str(path)).read_all().to_table())
    assert tables[0].schema.equals(tables[1].schema, check_metadata=True)
    assert tables[0].equals(tables[1])


def test_schemas_name_the_json_extension(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"c": texts(), "s": structs()}), path)
    ours = lance_spark.open_dataset(path)
    for schema in (ours.schema, ours.to_table().schema):
        assert ours.schema_of(["s.j"]).field("s.j").type == JSON
        for field in (schema.field("c"), schema.field("s").type.field("j")):
            assert field.type == JSON
    assert ours.to_table().equals(lance.dataset(path).to_table())


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.2"])
def test_filters_compare_texts(tmp_path: Path, version: str) -> None:
    path = str(tmp_path / "t.lance")
    table = pa.table({"c": pa.array(["9", "[1]", None, "10", '"a"'] * 40, JSON)})
    lance.write_dataset(table, path, data_storage_version=version, max_rows_per_group=20)
    ours = lance_spark.open_dataset(path)
    assert ours.to_table(filters=[("c", "==", "[1]")])["c"].to_pylist() == ["[1]"] * 40
    assert len(ours.to_table(filters=[("c", "<", "9")])) == 80
    assert len(ours.to_table(filters=[("c", "is_null", None)])) == 40


def test_parts_of_structs_beside_blobs(tmp_path: Path) -> None:
    tag = {"lance-encoding:blob": "true"}
    dtype = pa.struct(
        [("i", pa.int64()), ("j", JSON), pa.field("b", pa.large_binary(), metadata=tag)]
    )
    rows = [{"i": 1, "j": '{"a":1}', "b": b"xyz"}, None, {"i": 2, "j": None, "b": b""}]
    array = pa.StructArray.from_arrays(
        [
            pa.array([1, None, 2]),
            pa.array(['{"a": 1}', None, None], JSON),
            pa.array([b"xyz", None, b""], pa.large_binary()),
        ],
        fields=list(dtype),
        mask=pa.array([False, True, False]),
    )
    path = str(tmp_path / "t.lance")
    lance_spark.write_dataset(pa.table({"c": array}), path)
    lance.dataset(path).validate()
    ours = lance_spark.open_dataset(path)
    assert ours.to_table(blob_handling="all_binary")["c"].to_pylist() == rows
    assert ours.to_table(["c.j"])["c.j"].to_pylist() == ['{"a":1}', None, None]
    theirs = lance.dataset(path).to_table(columns={"j": "c.j"})
    assert theirs["j"].to_pylist() == ['{"a":1}', None, None]


STRINGS = [
    pa.array(['{"b":1, "a":2}', None, "null"], dtype)
    for dtype in (pa.string(), pa.large_string(), pa.string_view())
]


@pytest.mark.parametrize("version", BOTH)
def test_appends(tmp_path: Path, version: str) -> None:
    """Append JSON in every type of strings, strings without metadata, and rows that were read."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"c": texts(5)}), path, data_storage_version=version)
    before = lance.dataset(path).to_table()["c"].to_pylist()
    tagged = pa.field("c", pa.string(), metadata=TAGGED)
    tables = [
        pa.table({"c": STRINGS[0].cast(JSON)}),
        pa.table({"c": STRINGS[1].cast(pa.json_(pa.large_string()))}),
        pa.table({"c": pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), STRINGS[2])}),
        pa.table([STRINGS[0]], schema=pa.schema([tagged])),
        pa.table([STRINGS[2]], schema=pa.schema([tagged.with_type(pa.string_view())])),
        *(pa.table({"c": strings}) for strings in STRINGS),
    ]
    for table in tables:
        lance_spark.write_dataset(table, path, mode="append")
    lance_spark.write_dataset(lance_spark.open_dataset(path).take([0, 5]), path, mode="append")
    expected = before + ['{"a":2,"b":1}', None, "null"] * len(tables)
    expected += [expected[0], expected[5]]
    dataset = lance.dataset(path)
    dataset.validate()
    assert dataset.to_table()["c"].to_pylist() == expected
    check(path, dataset.to_table())


def test_binary_json_is_taken_as_pylance_takes_it(tmp_path: Path) -> None:
    field = pa.field("c", pa.large_binary(), metadata={"ARROW:extension:name": "lance.json"})
    path = str(tmp_path / "t.lance")

    def table(value: bytes) -> pa.Table:
        return pa.table([pa.array([value, None], pa.large_binary())], schema=pa.schema([field]))

    lance_spark.write_dataset(table(b"\x20\0\0\0\x10\0\0\1a"), path)
    assert lance.dataset(path).to_table()["c"].to_pylist() == ['"a"', None]
    with pytest.raises(InvalidInputError, match=r"'c'.*damaged"):
        lance_spark.write_dataset(table(b"\x20\0\0\0\x10\0\0\2a"), path, mode="append")


def test_tables_that_hold_json_as_strings_take_json(tmp_path: Path) -> None:
    """A table of release 0.33. Its old text does not change."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"c": pa.array(['{ "b":1}'])}), path, data_storage_version="2.0")
    dataset = lance.dataset(path)
    dataset.update_field_metadata({"c": TAGGED})
    ours = lance_spark.open_dataset(path)
    assert ours.schema.field("c").type == JSON
    lance_spark.write_dataset(
        pa.table({"c": pa.array(['{ "z":1, "a":2}'], JSON)}), path, mode="append"
    )
    texts_read = lance_spark.open_dataset(path).to_table()["c"].to_pylist()
    assert texts_read == ['{ "b":1}', '{ "z":1, "a":2}']


def test_text_that_is_no_json_is_refused_by_row_and_column(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    good = pa.array(["1", None, "[]"] * 10).cast(JSON)
    bad = pa.array(["1", None, '{"a": nil}', "nor this"]).cast(JSON)
    for array, message in [
        (pa.concat_arrays([good, bad]), r"'c', row 32: '\{\"a\": nil\}' cannot be stored as JSON"),
        (lists(pa.concat_arrays([good, good, bad, good])), "'c', row 2[0-9]: .*nil"),
        (pa.StructArray.from_arrays([pa.concat_arrays([good, bad])], ["x"]), "'c', row 32: .*nil"),
    ]:
        batches = pa.table({"c": array}).to_batches(max_chunksize=7)
        with pytest.raises(InvalidInputError, match=message):
            lance_spark.write_dataset(batches, path, data_storage_version="2.1")
        assert not any((tmp_path / "t.lance" / "data").iterdir())
        assert not (tmp_path / "t.lance" / "_versions").exists()


def test_values_below_a_null_are_not_checked(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    hidden = pa.StructArray.from_arrays(
        [pa.array(["no json", "1"]).cast(JSON)], ["j"], mask=pa.array([True, False])
    )
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.StructArray.from_arrays([pa.array(["no", "json", "1", "2"]).cast(JSON)], ["j"]),
        2,
        mask=pa.array([True, False]),
    )
    lance_spark.write_dataset(pa.table({"c": hidden, "v": vectors}), path)
    rows = lance_spark.open_dataset(path).to_table().to_pylist()
    assert rows == [{"c": None, "v": None}, {"c": {"j": "1"}, "v": [{"j": "1"}, {"j": "2"}]}]


def test_types_that_hold_no_json(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    vectors = pa.FixedSizeListArray.from_arrays(texts(6), 3)
    with pytest.raises(UnsupportedTypeError, match="fixed-size list"):
        lance_spark.write_dataset(pa.table({"c": vectors}), path)
    lance.write_dataset(pa.table({"c": texts(6)}), path)
    with pytest.raises(SchemaMismatchError, match="'c' is string, but the data has large_binary"):
        lance_spark.write_dataset(
            pa.table({"c": pa.array([b"1"], pa.large_binary())}), path, mode="append"
        )


def test_damage_names_file_and_column(tmp_path: Path) -> None:
    field = pa.field("c", pa.large_binary(), metadata={"ARROW:extension:name": "lance.json"})
    values = pa.array([b"\x20\0\0\0"] * 3, pa.large_binary())
    # pylance stores such bytes without a change.
    lance.write_dataset(pa.table([values], schema=pa.schema([field])), str(tmp_path / "t.lance"))
    (file,) = (tmp_path / "t.lance" / "data").iterdir()
    with pytest.raises(CorruptFileError, match=rf"{file.name}, column 'c': JSONB is damaged"):
        lance_spark.open_dataset(str(tmp_path / "t.lance")).to_table()

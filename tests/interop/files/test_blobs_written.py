"""Blobs that this package wrote, read by pylance, and both clients writing to one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, SchemaMismatchError, UnsupportedTypeError
from tests.interop.files.written_blobs import VERSIONS, content, in_pieces, kinds, read
from tests.support.interop import blobs
from tests.support.interop.blobs import (
    CASES,
    LIMITS,
    MARK,
    check_reads,
    extended,
    marked,
    minimal,
    table,
)


def sidecars(path: Path) -> dict[str, int]:
    """Return the sizes of the blob files of a table with one data file."""
    return {file.name: file.stat().st_size for file in path.glob("data/*/*.blob")}


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("name", "version"), [(name, version) for name in CASES for version in VERSIONS]
)
def test_every_shape(tmp_path: Path, name: str, version: str) -> None:
    data = CASES[name](version)
    if data is None:
        return
    rows = max(data.num_rows // 2 + 3, 1)
    lance.write_dataset(
        data, str(tmp_path / "p"), data_storage_version=version, max_rows_per_file=rows
    )
    lance_spark.write_dataset(
        in_pieces(data, 11),
        str(tmp_path / "t"),
        data_storage_version=version,
        max_rows_per_file=rows,
    )
    ours_read = read(tmp_path / "t", blob_handling="all_binary")
    assert blobs.same(ours_read, read(tmp_path / "p", blob_handling="all_binary"))
    ours, theirs = (lance.dataset(str(tmp_path / name)) for name in "tp")
    assert [(f.name, f.type, f.nullable) for f in ours.schema] == [
        (f.name, f.type, f.nullable) for f in theirs.schema
    ]
    assert [d.fields for f in ours.get_fragments() for d in f.data_files()] == [
        d.fields for f in theirs.get_fragments() for d in f.data_files()
    ]
    # Batches of several columns are packed together. The batches of pylance have another size.
    if version == "2.2" and "b" in data.schema.names and "c" not in data.schema.names:
        assert kinds(tmp_path / "t") == kinds(tmp_path / "p")
    check_reads(tmp_path / "t")
    theirs = lance.dataset(str(tmp_path / "t"))
    if "i" in data.schema.names:
        theirs.delete("i % 3 = 1")
        theirs.optimize.compact_files()
        check_reads(tmp_path / "t")


def test_limits(tmp_path: Path) -> None:
    sizes = [65_535, 65_536, 65_537, 4_194_304, 4_194_305, 0, 1]
    values = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    data = table(marked(values))
    lance.write_dataset(data, str(tmp_path / "p"), data_storage_version="2.2")
    lance_spark.write_dataset(data, str(tmp_path / "t"))
    assert [description[0] for description in kinds(tmp_path / "t")] == [0, 0, 1, 1, 2, 0, 0]
    assert kinds(tmp_path / "t") == kinds(tmp_path / "p")
    assert sidecars(tmp_path / "t") == sidecars(tmp_path / "p")
    assert content(tmp_path / "t") == values


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "limits",
    [
        LIMITS,
        {"inline_size_threshold": 0},
        {"inline_size_threshold": 0, "pack_file_size_threshold": 1},
        {"inline_size_threshold": 5_000, "dedicated_size_threshold": 50},
        {"dedicated_size_threshold": 1},
        {"inline_size_threshold": 10, "pack_file_size_threshold": 700},
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [1, 13, 1_000])
def test_limits_of_a_column(tmp_path: Path, limits: dict[str, int], rows: int) -> None:
    data = table(extended(blobs.random_values(80, 6, 1_000), **limits))
    lance.write_dataset(data, str(tmp_path / "p"), data_storage_version="2.2")
    lance_spark.write_dataset(in_pieces(data, rows), str(tmp_path / "t"))
    assert kinds(tmp_path / "t") == kinds(tmp_path / "p")
    assert sidecars(tmp_path / "t") == sidecars(tmp_path / "p")
    assert content(tmp_path / "t") == content(tmp_path / "p")
    metadata = [lance.dataset(str(tmp_path / name)).schema.field("b").metadata for name in "tp"]
    assert metadata[0] == metadata[1]
    # The limits of the table also hold for appended rows.
    for name in "tp":
        lance.write_dataset(data, str(tmp_path / name), mode="append")
    lance_spark.write_dataset(data, str(tmp_path / "t"), "append")
    assert kinds(tmp_path / "t") == kinds(tmp_path / "p")[:80] * 3


def test_limit_of_packed_files_of_a_write(tmp_path: Path) -> None:
    data = table(extended(blobs.random_values(60)))
    for write, name in ((lance.write_dataset, "p"), (lance_spark.write_dataset, "t")):
        write(data, str(tmp_path / name), blob_pack_file_size_threshold=6_000)
    assert kinds(tmp_path / "t") == kinds(tmp_path / "p")
    assert sidecars(tmp_path / "t") == sidecars(tmp_path / "p")
    with pytest.raises(InvalidInputError, match="blob_pack_file_size_threshold"):
        lance_spark.write_dataset(data, str(tmp_path / "u"), blob_pack_file_size_threshold=0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("blob-inline-size-threshold", b"-1"),
        ("blob-inline-size-threshold", b"many"),
        ("blob-dedicated-size-threshold", b"0"),
        ("blob-pack-file-size-threshold", b"9" * 30),
    ],
)
def test_limits_that_are_no_numbers(tmp_path: Path, key: str, value: bytes) -> None:
    array, field = marked([b"abc"])
    field = field.with_metadata({**MARK, f"lance-encoding:{key}": value})
    with pytest.raises(InvalidInputError, match=f"'b'.*{key}"):
        lance_spark.write_dataset(table((array, field)), str(tmp_path / "t"))
    assert not list(tmp_path.glob("t/data/*"))


def shapes(values: blobs.Values) -> dict[str, pa.Table]:
    return {
        "marked": table(marked(values)),
        "binary": table(marked(values, pa.binary())),
        "plain": table((pa.array(values, pa.binary()), pa.field("b", pa.binary()))),
        "large": table((pa.array(values, pa.large_binary()), pa.field("b", pa.large_binary()))),
        "extended": table(extended(values)),
        "minimal": table(minimal(values)),
    }


@pytest.mark.sample(9)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("first_shape", ["marked", "extended", "minimal"])
@pytest.mark.parametrize("second_shape", list(shapes([])))
def test_appends(tmp_path: Path, version: str, first_shape: str, second_shape: str) -> None:
    first, second = blobs.random_values(30), blobs.random_values(30, 9)
    if version < "2.2" and first_shape != "marked":
        return
    path = tmp_path / "t"
    lance.write_dataset(shapes(first)[first_shape], str(path), data_storage_version=version)
    if version < "2.2" and second_shape in ("extended", "minimal"):
        # Version 2.0 and 2.1 cannot store URIs. These blobs have none, and their bytes can be
        # stored.
        with pytest.raises((SchemaMismatchError, UnsupportedTypeError)):
            lance_spark.write_dataset(shapes(second)[second_shape], str(path), "append")
        return
    lance_spark.write_dataset(shapes(second)[second_shape].select(["b", "i"]), str(path), "append")
    assert content(path) == first + second
    before = lance.dataset(str(path)).schema
    # pylance appends to the table.
    lance.write_dataset(shapes(first)[first_shape], str(path), mode="append")
    assert content(path) == first + second + first
    assert lance.dataset(str(path)).schema == before
    check_reads(path)


@pytest.mark.parametrize("version", VERSIONS)
def test_pylance_appends_to_and_changes_written_tables(tmp_path: Path, version: str) -> None:
    first, second = blobs.random_values(30), blobs.random_values(30, 9)
    path = tmp_path / "t"
    lance_spark.write_dataset(table(marked(first)), str(path), data_storage_version=version)
    appended = table(minimal(second)) if version == "2.2" else table(marked(second))
    lance.write_dataset(appended, str(path), mode="append")
    assert content(path) == first + second
    lance.dataset(str(path)).update({"i": "i + 7"}, where="i < 9")
    lance.dataset(str(path)).optimize.compact_files()
    assert sorted(content(path), key=repr) == sorted(first + second, key=repr)
    check_reads(path)


@pytest.mark.parametrize("version", VERSIONS)
def test_overwrites(tmp_path: Path, version: str) -> None:
    path = tmp_path / "t"
    lance.write_dataset(
        table(marked(blobs.random_values(30))), str(path), data_storage_version=version
    )
    values = blobs.random_values(20, 5)
    lance_spark.write_dataset(table(marked(values, name="c")), str(path), "overwrite")
    assert lance.dataset(str(path)).data_storage_version == version
    assert content(path, "c") == values
    # Values that were read are written again as blobs.
    copy = lance_spark.open_dataset(str(path)).to_table(blob_handling="all_binary")
    lance_spark.write_dataset(copy, str(tmp_path / "copy"))
    assert content(tmp_path / "copy", "c") == values
    assert blobs.blob_paths(lance.dataset(str(tmp_path / "copy")).schema) == ["c"]
    # Without the mark of blobs they are binary values.
    plain = pa.table({"c": pa.array(values, pa.large_binary())})
    lance_spark.write_dataset(plain, str(path), "overwrite")
    assert read(path)["c"].to_pylist() == values


LISTS: dict[str, Callable[[blobs.Values], tuple[pa.Array, pa.Field]]] = {
    "list": blobs.in_list,
    "large list": lambda values: blobs.in_list(values, True),
    "list of structs": blobs.in_list_of_structs,
    "list of lists": blobs.in_list_of_lists,
    "struct of list": blobs.in_struct_of_list,
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("shape", LISTS)
@pytest.mark.parametrize("made_by", ["pylance", "us", "us, of the second kind"])
def test_changes_of_lists(tmp_path: Path, shape: str, made_by: str) -> None:
    path = str(tmp_path / "t")
    make = LISTS[shape]
    first, second = (table(make(blobs.random_values(30, seed))) for seed in (1, 2))
    rows = [first["l"].to_pylist(), second["l"].to_pylist()]
    if made_by == "pylance":
        lance.write_dataset(first, path, data_storage_version="2.2")
    elif made_by == "us":
        lance_spark.write_dataset(first, path, data_storage_version="2.2")
    else:
        lance_spark.write_dataset(blobs.as_extended(first), path, data_storage_version="2.2")

    def check(expected: list[Any]) -> None:
        for dataset in (lance.dataset(path), lance_spark.open_dataset(path)):
            assert dataset.to_table(blob_handling="all_binary")["l"].to_pylist() == expected

    expected = list(rows[0])
    check(expected)
    # Append declared blobs, blobs that were read, and binary values without a mark.
    read_again = lance_spark.open_dataset(path).to_table(blob_handling="all_binary")
    for rows_given in (second, blobs.as_extended(second), read_again, blobs.without_marks(second)):
        lance_spark.write_dataset(rows_given, path, "append")
        expected += rows[0] if rows_given is read_again else rows[1]
        check(expected)
    # pylance appends blobs that were declared in the same way.
    rows_given = second if made_by != "us, of the second kind" else blobs.as_extended(second)
    lance.write_dataset(rows_given, path, mode="append")
    expected += rows[1]
    check(expected)
    lance_spark.open_dataset(path).update({"i": -1}, [("i", "==", 4)])
    lance_spark.open_dataset(path).compact_files()
    lance.dataset(path).validate()
    after = lance.dataset(path).to_table(blob_handling="all_binary")["l"].to_pylist()
    assert sorted(after, key=repr) == sorted(expected, key=repr)
    # After an overwrite with rows that were read, the columns are blobs again.
    lance_spark.write_dataset(read_again, path, "overwrite")
    check(rows[0])
    schema = lance_spark.open_dataset(path)._table.schema
    assert any(field.is_blob for field in schema.walk())
    described = lance_spark.open_dataset(path).to_table()["l"].to_pylist()
    assert described == lance.dataset(path).to_table()["l"].to_pylist()


@pytest.mark.parametrize("value", ["false", ""])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_key_marks_a_blob_whatever_its_value(tmp_path: Path, version: str, value: str) -> None:
    values = [b"a", None, b"", b"some bytes"]
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": value})
    data = pa.table([pa.array(values, pa.large_binary())], schema=pa.schema([field]))
    lance.write_dataset(data, str(tmp_path / "theirs"), data_storage_version=version)
    lance_spark.write_dataset(data, str(tmp_path / "ours"), data_storage_version=version)
    for name in ("theirs", "ours"):
        path = str(tmp_path / name)
        lance_spark.write_dataset(data, path, "append")
        lance.write_dataset(data, path, mode="append")
        lance_spark.open_dataset(path).compact_files()
        for dataset in (lance.dataset(path), lance_spark.open_dataset(path)):
            assert dataset.to_table(blob_handling="all_binary")["b"].to_pylist() == values * 3
            file = dataset.take_blobs("b", indices=[3])[0]
            assert file is not None
            assert file.read() == b"some bytes"
        described = lance_spark.open_dataset(path).to_table()["b"].to_pylist()
        assert described == lance.dataset(path).to_table()["b"].to_pylist()
    schemas = [lance.dataset(str(tmp_path / name)).schema for name in ("theirs", "ours")]
    assert schemas[0].equals(schemas[1], check_metadata=True)


def test_the_key_means_nothing_in_version_0_1(tmp_path: Path) -> None:
    field = pa.field("n", pa.int32(), metadata={"lance-encoding:blob": "true"})
    data = pa.table([pa.array([1, 2], pa.int32())], schema=pa.schema([field]))
    lance.write_dataset(data, str(tmp_path / "t"), data_storage_version="0.1")
    assert lance_spark.open_dataset(str(tmp_path / "t")).to_table()["n"].to_pylist() == [1, 2]


def test_versions_and_types_that_cannot_be(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for version in ("2.0", "2.1"):
        with pytest.raises(UnsupportedTypeError, match=r"'b'.*version 2\.2"):
            lance_spark.write_dataset(table(extended([b"a"])), path, data_storage_version=version)
    for dtype, value in ((pa.string(), "a"), (pa.int64(), 1), (pa.binary(1), b"a")):
        column = pa.array([value], dtype), pa.field("b", dtype, metadata=MARK)
        with pytest.raises(UnsupportedTypeError, match="'b': blobs must be binary"):
            lance_spark.write_dataset(table(column), path)
    for place in (
        pa.map_(pa.string(), marked([])[1]),
        pa.list_(marked([])[1].with_name("item"), 2),
    ):
        with pytest.raises(UnsupportedTypeError, match="'m': blobs cannot be stored inside"):
            lance_spark.write_dataset([], path, schema=pa.schema([("m", place)]))
    data = table(blobs.in_list([b"a"]))
    with pytest.raises(UnsupportedTypeError, match=r"lists of blobs.*2\.2"):
        lance_spark.write_dataset(data, path, data_storage_version="2.1")
    odd = pa.field("b", pa.struct([("data", pa.binary())]))
    odd = odd.with_metadata({"ARROW:extension:name": "lance.blob.v2"})
    with pytest.raises(UnsupportedTypeError, match=r"'b'.*struct<data, uri>"):
        lance_spark.write_dataset(table((pa.array([None], odd.type), odd)), path)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_descriptions_of_blobs_are_refused_as_blobs(tmp_path: Path, version: str) -> None:
    path = tmp_path / "t"
    lance.write_dataset(table(marked([b"a"])), str(path), data_storage_version=version)
    descriptions = lance_spark.open_dataset(str(path)).to_table()
    with pytest.raises(
        (SchemaMismatchError, InvalidInputError, UnsupportedTypeError), match="all_binary"
    ):
        lance_spark.write_dataset(descriptions, str(path), "append")
    assert content(path) == [b"a"]


def test_values_below_nulls_are_not_stored(tmp_path: Path) -> None:
    offsets = np.array([0, 3, 1_003, 1_003, 1_009], np.int64)
    data = b"abc" + b"x" * 1_000 + b"defghi"
    valid = pa.array([True, False, True, True]).buffers()[1]
    hidden = pa.Array.from_buffers(
        pa.large_binary(), 4, [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    expected = [b"abc", None, b"", b"defghi"]
    for version in VERSIONS:
        lance_spark.write_dataset(
            table((hidden, marked([])[1])), str(tmp_path / version), data_storage_version=version
        )
        assert content(tmp_path / version) == expected
        check_reads(tmp_path / version)


BLOB = pa.field("b", pa.large_binary(), metadata=MARK)
COLUMNS: dict[str, tuple[pa.Field, Any]] = {
    "blob": (BLOB, b"new"),
    "list": (pa.field("b", pa.list_(BLOB.with_name("item"))), [b"new", None]),
    "struct": (pa.field("b", pa.struct([pa.field("i", pa.int32()), BLOB])), {"i": 1, "b": b"new"}),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("change", ["append", "rows", "columns", "merge"])
def test_blob_columns_that_pylance_added_without_values(
    tmp_path: Path, name: str, change: str
) -> None:
    """pylance declares such a column as bytes, and again as a struct once it has values."""
    field, value = COLUMNS[name]
    path = str(tmp_path / "t")
    lance_spark.write_dataset(pa.table({"id": [1]}), path, data_storage_version="2.2")
    lance.dataset(path).add_columns(pa.schema([field]))
    dataset = lance_spark.open_dataset(path)
    values = pa.array([value], field.type)
    if change in ("append", "merge"):
        schema = pa.schema([("id", pa.int64()), field])
        data = pa.table([pa.array([2]), values], schema=schema)
        if change == "append":
            lance_spark.write_dataset(data, path, mode="append")
        else:
            dataset.merge_insert("id").when_not_matched_insert_all().execute(data)
    elif name == "blob":
        dataset.update({"b": value}, mode="rows" if change == "rows" else "columns")
    else:
        return
    expected = [value] if change in ("rows", "columns") else [None, value]
    dataset = lance_spark.open_dataset(path)
    assert dataset.to_table(["b"], blob_handling="all_binary")["b"].to_pylist() == expected
    theirs = lance.dataset(path)
    read = theirs.to_table(columns=["b"], blob_handling="all_binary")
    assert read["b"].to_pylist() == expected
    lance.dataset(path).delete("id = 7")
    assert lance_spark.open_dataset(path).add_columns({"n": 1}).schema.names == ["id", "b", "n"]
    lance.dataset(path).validate()

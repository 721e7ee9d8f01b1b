"""Blobs that pylance wrote: as bytes, as descriptions, left out, in part, and as files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import DatasetBasePath
from lance.blob import Blob

import lance_spark
from lance_spark.errors import InvalidInputError, UnsupportedEncodingError
from tests.support.interop import blobs
from tests.support.interop.blobs import (
    CASES,
    HANDLINGS,
    check_files,
    check_reads,
    extended,
    marked,
    table,
)

VERSIONS = ("2.0", "2.1", "2.2", "2.3")
BOTH = [(name, version) for name in CASES for version in VERSIONS]


def write(data: pa.Table, path: Path, version: str, rows: int = 1 << 20, **options: Any) -> Any:
    return lance.write_dataset(
        data, str(path), data_storage_version=version, max_rows_per_file=rows, **options
    )


@pytest.mark.sample(9)
@pytest.mark.parametrize(("name", "version"), BOTH)
def test_every_shape(tmp_path: Path, name: str, version: str) -> None:
    data = CASES[name](version)
    if data is None:
        return
    write(data, tmp_path / "t", version, rows=max(data.num_rows // 2 + 3, 1))
    check_reads(tmp_path / "t")


@pytest.mark.sample(8)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("gone", ["i % 3 = 1", "i > 4 and i != 97", "i < 60", "i >= 0"])
def test_deleted_rows(tmp_path: Path, version: str, gone: str) -> None:
    data = table(
        marked(blobs.random_values(120)), blobs.in_struct(blobs.random_values(120, 1), False)
    )
    write(data, tmp_path / "t", version, rows=50).delete(gone)
    check_reads(tmp_path / "t")


def test_limits_are_those_of_pylance(tmp_path: Path) -> None:
    sizes = [65_535, 65_536, 65_537, 4_194_304, 4_194_305, 0, 1]
    values = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    write(table(extended(values, inline_size_threshold=65_536)), tmp_path / "t", "2.2")
    descriptions = lance.dataset(str(tmp_path / "t")).to_table()["b"].to_pylist()
    assert [description["kind"] for description in descriptions] == [0, 0, 1, 1, 2, 0, 0]
    check_reads(tmp_path / "t")


def later(path: Path, version: str, change: str) -> None:
    """Write a table whose blobs, or other columns, were added after its first fragments."""
    values = blobs.random_values(40)
    plain = pa.table({"i": pa.array(range(40))})
    blob = table(marked(values))
    if change in ("reader", "merge", "null"):
        dataset = write(plain, path, version, rows=15)
        if change == "null":
            dataset.add_columns(marked([])[1])
            write(
                table(marked(values) if version < "2.2" else blobs.minimal(values)),
                path,
                version,
                mode="append",
            )
        elif change == "reader":
            column = extended(values) if version == "2.3" else marked(values)
            dataset.add_columns(table(column, ids=False).to_reader())
        else:
            dataset.merge(table(extended(values)) if version == "2.3" else blob, "i")
        return
    dataset = write(blob, path, version, rows=15)
    if change == "other":
        dataset.add_columns({"j": "i * 2"})
        dataset.drop_columns(["i"])
    elif change == "rename":
        dataset.alter_columns({"path": "b", "name": "c"})
    elif change == "compact":
        dataset.delete("i % 4 = 1")
        dataset.optimize.compact_files()
    elif change == "update":
        dataset.update({"i": "i + 100"}, where="i < 5")
    else:
        new = table(marked(values) if version < "2.2" else blobs.minimal(values)).slice(25)
        builder = dataset.merge_insert("i").when_matched_update_all()
        builder.when_not_matched_insert_all().execute(new)


CHANGES = ["reader", "merge", "null", "other", "rename", "compact", "update", "upsert"]


@pytest.mark.sample(8)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", CHANGES)
def test_tables_that_changed(tmp_path: Path, version: str, change: str) -> None:
    later(tmp_path / "t", version, change)
    if version == "2.2" and change in ("reader", "merge"):
        # pylance writes these tables, but cannot read them.
        ours = lance_spark.open_dataset(str(tmp_path / "t"))
        values = blobs.random_values(40)
        assert ours.to_table(blob_handling="all_binary")["b"].to_pylist() == values
        descriptions = ours.to_table()["b"].to_pylist()
        assert [description and description["size"] for description in descriptions] == [
            None if value is None else len(value) for value in values
        ]
        files = ours.take_blobs("b", indices=range(40))
        assert [file and file.read() for file in files] == values
        return
    check_reads(tmp_path / "t")


def test_lists_in_files_of_2_1_do_not_say_where_they_end(tmp_path: Path) -> None:
    write(table(blobs.in_list([b"a", b"b", b"c"] * 4)), tmp_path / "t", "2.1")
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    with pytest.raises(UnsupportedEncodingError, match=r"column 'l\.item'.*lists of blobs"):
        dataset.to_table(blob_handling="all_binary")
    assert dataset.to_table(blob_handling="none").num_rows == 12


@pytest.mark.parametrize("version", VERSIONS)
def test_children_of_structs(tmp_path: Path, version: str) -> None:
    data = table(blobs.in_deep_struct(blobs.random_values(60), version != "2.0"))
    write(data, tmp_path / "t", version, rows=25)
    theirs = lance.dataset(str(tmp_path / "t"))
    ours = lance_spark.open_dataset(str(tmp_path / "t"))
    for columns in (["o.s.b"], ["o.s.x"], ["o.s.plain", "i"], ["i", "o.s.x", "o.s.b"]):
        for handling in HANDLINGS:
            chosen = {} if handling is None else {"blob_handling": handling}
            expected = theirs.to_table(**chosen)
            wanted = [leaf(expected, column) for column in columns]
            table_read = ours.to_table(columns, blob_handling=handling)
            assert [leaf(table_read, column) for column in columns] == wanted
    none = ours.to_table(["o", "i"], blob_handling="none")
    assert leaf(none, "o.s.x") == leaf(theirs.to_table(), "o.s.x")
    assert [field.name for field in none.schema.field("o").type.field(0).type] == ["x", "plain"]
    assert ours.to_table(["o.s.b", "i"], blob_handling="none").schema.names == ["i"]


def leaf(data: pa.Table, path: str) -> list[Any]:
    if path in data.column_names:
        return data[path].to_pylist()
    top, *children = path.split(".")
    values = data[top].to_pylist()
    for name in children:
        values = [value and value[name] for value in values]
    return values


@pytest.mark.parametrize("version", VERSIONS)
def test_files_by_ids_of_tables_with_stable_ones(tmp_path: Path, version: str) -> None:
    data = table(marked(blobs.random_values(40)))
    write(data, tmp_path / "t", version, enable_stable_row_ids=True)
    check_files(tmp_path / "t", "b", [3, 39, 3, 0])
    # Rows that moved keep their ids.
    lance.dataset(str(tmp_path / "t")).delete("i in (0, 7)")
    lance.dataset(str(tmp_path / "t")).optimize.compact_files()
    ids = [38, 1, 8]
    ours = lance_spark.open_dataset(str(tmp_path / "t")).take_blobs("b", ids=ids)
    theirs = lance.dataset(str(tmp_path / "t")).take_blobs("b", ids=ids)
    assert [file and file.read() for file in ours] == [file and file.read() for file in theirs]
    with pytest.raises(lance_spark.errors.InvalidInputError):
        lance_spark.open_dataset(str(tmp_path / "t")).take_blobs("b", ids=[7])


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    folder = tmp_path / "objects"
    (folder / "sub").mkdir(parents=True)
    (folder / "f.bin").write_bytes(bytes(range(256)) * 8)
    (folder / "sub" / "a b%20.bin").write_bytes(b"name with escapes")
    return folder


def references(folder: Path) -> list[Any]:
    uri = (folder / "f.bin").as_uri()
    return [
        Blob.from_uri(uri),
        Blob.from_uri(uri, 10, 50),
        None,
        Blob.from_bytes(b"inline"),
        Blob.from_uri(uri, 2_000, 48),
        Blob.empty(),
        Blob.from_uri((folder / "sub" / "a b%20.bin").as_uri()),
        Blob.from_bytes(bytes(300)),
        Blob.from_uri(uri),
    ]


CONTENT = [
    bytes(range(256)) * 8,
    bytes(range(10, 60)),
    None,
    b"inline",
    (bytes(range(256)) * 8)[2_000:],
    b"",
    b"name with escapes",
    bytes(300),
    bytes(range(256)) * 8,
]


@pytest.mark.parametrize("case", ["base", "outside", "ingest"])
def test_objects_outside_the_table(tmp_path: Path, objects: Path, case: str) -> None:
    base = DatasetBasePath(objects.as_uri(), name="objects", is_dataset_root=False)
    chosen: dict[str, Any] = {
        "base": {"initial_bases": [base]},
        "outside": {"allow_external_blob_outside_bases": True},
        "ingest": {"external_blob_mode": "ingest"},
    }[case]
    data = table(extended(references(objects) * 3))
    write(data, tmp_path / "t", "2.2", rows=10, **chosen)
    check_reads(tmp_path / "t")
    contents = lance_spark.open_dataset(str(tmp_path / "t")).to_table(blob_handling="all_binary")
    assert contents["b"].to_pylist() == CONTENT * 3


def test_references_move_with_their_base(tmp_path: Path, objects: Path) -> None:
    base = DatasetBasePath(objects.as_uri(), name="objects", is_dataset_root=False)
    write(table(extended(references(objects))), tmp_path / "t", "2.2", initial_bases=[base])
    shutil.move(objects, tmp_path / "moved")
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    with pytest.raises(lance_spark.errors.MissingFileError, match=r"f\.bin"):
        dataset.to_table(blob_handling="all_binary")
    # A read of descriptions opens no file of blobs.
    assert dataset.to_table().num_rows == len(CONTENT)
    (file,) = dataset.take_blobs("b", indices=[3])
    assert file is not None
    assert file.read() == b"inline"


@pytest.mark.parametrize("handling", ["binary", "", "ALL", "all-binary"])
def test_unknown_blob_handlings_are_refused(tmp_path: Path, handling: str) -> None:
    write(table(marked([b"a"])), tmp_path / "t", "2.2")
    with pytest.raises(InvalidInputError, match="all_binary, blobs_descriptions"):
        lance_spark.open_dataset(str(tmp_path / "t")).to_table(blob_handling=handling)


def test_files_of_version_0_1_have_blobs_as_plain_values(tmp_path: Path) -> None:
    values = [b"a", b"bc", b"d" * 5_000] * 3
    write(table(marked(values)), tmp_path / "t", "0.1")
    dataset = lance_spark.open_dataset(str(tmp_path / "t"))
    for handling in HANDLINGS:
        assert dataset.to_table(blob_handling=handling)["b"].to_pylist() == values
    assert dataset.to_table(blob_handling="none").schema.names == ["i"]
    with pytest.raises(lance_spark.errors.UnsupportedFeatureError, match="read the column"):
        dataset.take_blobs("b", indices=[0])

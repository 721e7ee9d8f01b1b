"""Manifests that contradict the format: what can be read is read, and no change makes it worse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptTableError, LanceError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from tests.support.tables.damaged import files_below, rewrite_manifest
from tests.support.tables.pylance_written import new_table, rows

#: Changes of a table by its path. `id` is 0 to 5, in two fragments.
CHANGES: dict[str, Callable[[str], object]] = {
    "append": lambda uri: lance_spark.write_dataset(rows(6), uri, mode="append"),
    "delete": lambda uri: lance_spark.open_dataset(uri).delete([("id", "==", 1)]),
    "delete all": lambda uri: lance_spark.open_dataset(uri).delete([]),
    "update": lambda uri: lance_spark.open_dataset(uri).update({"id": 9}, [("id", "==", 4)]),
    "update columns": lambda uri: lance_spark.open_dataset(uri).update({"id": 9}, mode="columns"),
    "add column": lambda uri: lance_spark.open_dataset(uri).add_columns({"new": 1}),
    "add nulls": lambda uri: lance_spark.open_dataset(uri).add_columns(pa.field("new", pa.int32())),
    "drop column": lambda uri: lance_spark.open_dataset(uri).drop_columns(["word"]),
    "rename": lambda uri: lance_spark.open_dataset(uri).alter_columns(
        {"path": "word", "name": "text"}
    ),
    "cast": lambda uri: lance_spark.open_dataset(uri).alter_columns(
        {"path": "id", "data_type": pa.int32()}
    ),
    "compact": lambda uri: lance_spark.open_dataset(uri).compact_files(),
    "config": lambda uri: lance_spark.open_dataset(uri).update_config({"a": "b"}),
    "metadata": lambda uri: lance_spark.open_dataset(uri).update_schema_metadata({"a": "b"}),
    "branch": lambda uri: lance_spark.open_dataset(uri).create_branch("x"),
    "deep clone": lambda uri: lance_spark.open_dataset(uri).deep_clone(f"{uri}_clone"),
}


def duplicate_fragment_id(manifest: table_pb2.Manifest) -> None:
    manifest.fragments[1].id = 0


@pytest.mark.parametrize("name", CHANGES)
def test_two_fragments_of_one_id_are_not_changed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    new_table(path)
    rewrite_manifest(path, duplicate_fragment_id)
    before = files_below(tmp_path)
    with pytest.raises(CorruptTableError, match="fragment id 0 occurs twice") as caught:
        CHANGES[name](str(path))
    assert str(path) in str(caught.value)
    assert files_below(tmp_path) == before


def test_two_fragments_of_one_id_are_read_as_pylance_reads_them(tmp_path: Path) -> None:
    new_table(tmp_path)
    rewrite_manifest(tmp_path, duplicate_fragment_id)
    ours = lance_spark.open_dataset(str(tmp_path))
    assert ours.to_table() == lance.dataset(str(tmp_path)).to_table() == rows(0, 6)
    assert ours.count_rows() == 6
    assert ours.to_table(filters=[("id", ">", 3)]) == rows(4, 2)


@pytest.mark.parametrize("way", ["overwrite", "restore"])
def test_ways_out_of_two_fragments_of_one_id(tmp_path: Path, way: str) -> None:
    path = str(tmp_path)
    new_table(tmp_path)
    lance.write_dataset(rows(6), path, mode="append")
    rewrite_manifest(tmp_path, duplicate_fragment_id)
    if way == "overwrite":
        lance_spark.write_dataset(rows(0, 6), path, mode="overwrite")
    else:
        lance_spark.open_dataset(path, 1).restore()
    lance.dataset(path).validate()
    assert lance.dataset(path).to_table() == rows(0, 6)


def set_fields(numbers: list[int]) -> Callable[[table_pb2.Manifest], None]:
    def change(manifest: table_pb2.Manifest) -> None:
        manifest.fragments[1].files[0].fields[:] = numbers

    return change


def set_columns(numbers: list[int]) -> Callable[[table_pb2.Manifest], None]:
    def change(manifest: table_pb2.Manifest) -> None:
        manifest.fragments[1].files[0].column_indices[:] = numbers

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_columns([0, 0]), "column 0 occurs twice"),
        (set_fields([1, 1]), "field id 1 occurs twice"),
        (set_fields([0, -1]), "field id -1 stands for a field without an id"),
    ],
)
def test_fields_that_no_writer_may_store(
    tmp_path: Path, change: Callable[[table_pb2.Manifest], None], message: str
) -> None:
    new_table(tmp_path)
    rewrite_manifest(tmp_path, change)
    ours = lance_spark.open_dataset(str(tmp_path))
    with pytest.raises(CorruptTableError, match=message):
        ours.to_table()
    for name in ("add column", "compact", "update columns"):
        with pytest.raises(CorruptTableError, match=message):
            CHANGES[name](str(tmp_path))


def test_replaced_fields_stay_legal(tmp_path: Path) -> None:
    new_table(tmp_path)
    rewrite_manifest(tmp_path, set_fields([-2, -2]))
    theirs = lance.dataset(str(tmp_path)).to_table()
    assert theirs["id"].to_pylist() == [0, 1, 2, None, None, None]
    assert lance_spark.open_dataset(str(tmp_path)).to_table() == theirs


def test_structs_without_columns_stay_legal(tmp_path: Path) -> None:
    # Several fields have the column -1 in such files.
    point = {"a": {"b": 1, "c": 2}}
    data = pa.table({"s": [point, point], "t": [point, point]})
    lance.write_dataset(data, str(tmp_path), data_storage_version="2.0")
    assert (
        lance_spark.open_dataset(str(tmp_path)).to_table()
        == lance.dataset(str(tmp_path)).to_table()
    )


def set_file_format(name: str) -> Callable[[table_pb2.Manifest], None]:
    def change(manifest: table_pb2.Manifest) -> None:
        manifest.data_format.file_format = name

    return change


def test_data_files_of_another_format(tmp_path: Path) -> None:
    new_table(tmp_path)
    rewrite_manifest(tmp_path, set_file_format("parquet"))
    before = files_below(tmp_path)
    for change in (lance_spark.open_dataset, CHANGES["append"]):
        with pytest.raises(UnsupportedFeatureError, match="'parquet'") as caught:
            change(str(tmp_path))
        assert str(tmp_path) in str(caught.value)
    assert files_below(tmp_path) == before
    # The field's default says nothing.
    rewrite_manifest_again = set_file_format("")
    lance.write_dataset(rows(0, 6), str(tmp_path / "u"))
    rewrite_manifest(tmp_path / "u", rewrite_manifest_again)
    assert lance_spark.open_dataset(str(tmp_path / "u")).to_table() == rows(0, 6)


def same_names(section: table_pb2.IndexSection) -> None:
    for index in section.indices:
        index.name = "same"


def test_one_index_name_on_different_columns(tmp_path: Path) -> None:
    uri = str(tmp_path)
    new_table(tmp_path)
    for column in ("id", "word"):
        lance.dataset(uri).create_scalar_index(column, "BTREE")
    rewrite_manifest(tmp_path, change_indexes=same_names)
    # Readers look at single segments; pylance reads such tables too, but lists no indexes of them.
    ours = lance_spark.open_dataset(uri)
    assert ours.to_table(filters=[("id", ">", 3)]) == rows(4, 2)
    with pytest.raises(RuntimeError, match="identical across all segments"):
        lance.dataset(uri).list_indices()
    for change in (
        ours.list_indices,
        ours.describe_indices,
        lambda: CHANGES["delete"](uri),
        lambda: CHANGES["update columns"](uri),
        lambda: CHANGES["drop column"](uri),
        lambda: CHANGES["compact"](uri),
        lambda: ours.drop_index("same"),
    ):
        with pytest.raises(
            CorruptTableError, match="index 'same' has segments of different fields"
        ):
            change()
    lance_spark.write_dataset(rows(0), uri, mode="overwrite")
    assert lance_spark.open_dataset(uri).list_indices() == []


def test_unknown_writer_flags_forbid_tags_and_a_migration_too(tmp_path: Path) -> None:
    uri = str(tmp_path)
    new_table(tmp_path)
    tags = lance_spark.open_dataset(uri).tags
    tags.create("before", 1)

    def set_flag(manifest: table_pb2.Manifest) -> None:
        manifest.writer_feature_flags |= 1 << 40

    rewrite_manifest(tmp_path, set_flag)
    before = files_below(tmp_path)
    ours = lance_spark.open_dataset(uri)
    for change in (
        lambda: ours.tags.create("x", 1),
        lambda: ours.tags.update("before", 1),
        lambda: ours.tags.delete("before"),
        lambda: ours.tags.replace_metadata("before", {"a": "b"}),
        ours.migrate_manifest_paths_v2,
    ):
        with pytest.raises(UnsupportedFeatureError, match="bit 40") as caught:
            change()
        assert uri in str(caught.value)
    assert files_below(tmp_path) == before
    assert ours.to_table() == rows(0, 6)
    assert list(ours.tags.list()) == ["before"]


@pytest.mark.parametrize("name", CHANGES)
def test_the_changes_work_on_a_table_that_is_not_damaged(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    new_table(path)
    before = files_below(tmp_path)
    try:
        CHANGES[name](str(path))
    except LanceError as error:
        pytest.fail(f"{name}: {error}")
    assert files_below(tmp_path) > before

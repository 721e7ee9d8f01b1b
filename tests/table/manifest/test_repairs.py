"""Errors of early releases: the next commit repairs them, as pylance does."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.proto import table_pb2
from lance_spark.table.manifest.codec import decode, has_wrong_bitmaps, with_unique_field_ids
from tests.support.tables.damaged import files_below, newest_manifest, rewrite_manifest
from tests.support.tables.pylance_written import ids, new_table, rows

FIRST = {"x": [0, 1], "y": [0, 2], "b": [0, 4], "c": [0, 5]}
SECOND = {"x": [2, 3], "y": [4, 6], "b": [8, 12], "c": [10, 15]}
ALL = {name: FIRST[name] + SECOND[name] for name in FIRST}


@pytest.fixture(scope="module")
def with_used_ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give columns b and c the ids of dropped columns in other files, as release 0.10.5 did."""
    path = tmp_path_factory.mktemp("used") / "t"
    options = {"data_storage_version": "0.1"}
    uri = str(path)
    lance.write_dataset(pa.table({"x": FIRST["x"]}), uri, **options)
    lance.dataset(uri).add_columns({"y": "x * 2", "z": "x * 3"})
    lance.dataset(uri).add_columns({"a": "-x"})
    second = pa.table({"x": SECOND["x"], "y": SECOND["y"], "z": [6, 9], "a": [-2, -3]})
    lance.write_dataset(second, uri, mode="append")
    lance.dataset(uri).drop_columns(["a", "z"])
    # The files in that release: the column a has a file of its own, z has none.
    dropped = {0: [[0], [1, 2], [3]], 1: [[0, 1, 2, 3]]}
    whole = lance.dataset(uri, version=4)
    files = {fragment.fragment_id: fragment.data_files() for fragment in whole.get_fragments()}
    lance.dataset(uri).add_columns({"b": "x * 4", "c": "x * 5"})

    def use_ids_again(manifest: table_pb2.Manifest) -> None:
        manifest.writer_version.library = "lance"
        manifest.writer_version.version = "0.10.5"
        manifest.ClearField("data_format")
        for number, name in ((2, "b"), (3, "c")):
            (field,) = (field for field in manifest.fields if field.name == name)
            field.id = number
        for fragment in manifest.fragments:
            new = fragment.files[-1]
            messages = []
            for file, fields in zip(files[fragment.id], dropped[fragment.id], strict=True):
                old = table_pb2.DataFile(path=file.path, fields=fields)
                messages.append(old)
            added = table_pb2.DataFile(path=new.path, fields=[2, 3])
            fragment.ClearField("files")
            fragment.files.extend([*messages, added])

    rewrite_manifest(path, use_ids_again)
    return path


@pytest.fixture
def path(with_used_ids: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(with_used_ids, tmp_path / "t"))


def field_ids(path: Path) -> tuple[dict[str, int], list[list[list[int]]]]:
    """Return the ids of the columns, and the fields of each data file of each fragment."""
    dataset = lance.dataset(str(path))
    columns = {field.name(): field.id() for field in dataset.lance_schema.fields()}
    files = [
        [file.fields for file in fragment.data_files()] for fragment in dataset.get_fragments()
    ]
    return columns, files


def test_reader_uses_last_file_of_repeated_field(path: Path) -> None:
    # pylance reads other values before the repair, and refuses to validate the table.
    with pytest.raises(OSError, match="Field id 2 is duplicated"):
        lance.dataset(str(path)).validate()
    assert lance_spark.open_dataset(str(path)).to_table().to_pydict() == ALL


def test_a_commit_repairs_field_ids_as_pylance_does(path: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(path, theirs)
    lance.dataset(str(theirs)).update_config({"a": "b"})
    lance_spark.open_dataset(str(path)).update_config({"a": "b"})
    assert field_ids(path) == field_ids(theirs)
    assert field_ids(path)[0] == {"x": 0, "y": 1, "b": 4, "c": 5}
    repaired = lance.dataset(str(path))
    repaired.validate()
    assert repaired.to_table().to_pydict() == ALL
    assert lance_spark.open_dataset(str(path)).to_table().to_pydict() == ALL


CHANGES: dict[str, tuple[Callable[[lance_spark.Dataset], object], dict[str, list[int]]]] = {
    "delete": (lambda dataset: dataset.delete([("b", "<", 5)]), SECOND),
    "rename": (
        lambda dataset: dataset.alter_columns({"path": "c", "name": "d"}),
        {**{name: ALL[name] for name in "xyb"}, "d": ALL["c"]},
    ),
    "drop": (lambda dataset: dataset.drop_columns(["y"]), {name: ALL[name] for name in "xbc"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_repaired_columns(path: Path, name: str) -> None:
    change, expected = CHANGES[name]
    change(lance_spark.open_dataset(str(path)))
    lance.dataset(str(path)).validate()
    assert lance.dataset(str(path)).to_table().to_pydict() == expected
    assert lance_spark.open_dataset(str(path)).to_table().to_pydict() == expected


def test_compaction_as_first_change_after_repair(path: Path, tmp_path: Path) -> None:
    """The first commit of the release reserves fragment ids and removes data files without
    columns.
    """
    theirs = tmp_path / "theirs"
    shutil.copytree(path, theirs)
    lance.dataset(str(theirs)).optimize.compact_files()
    compacted, metrics = lance_spark.open_dataset(str(path)).compact_files()
    assert (metrics.fragments_removed, metrics.fragments_added) == (2, 1)
    assert compacted.to_table().to_pydict() == ALL
    lance.dataset(str(path)).validate()
    assert lance.dataset(str(path)).to_table().to_pydict() == ALL
    assert len(lance.dataset(str(theirs)).get_fragments()) == 1


def test_cleanup_keeps_files_of_unrepaired_version(path: Path) -> None:
    lance_spark.open_dataset(str(path)).cleanup_old_versions(datetime.timedelta(0))
    names = newest_manifest(path)
    stored = {
        file.path
        for fragment in decode(names.read_bytes(), str(names)).fragments
        for file in fragment.files
    }
    assert len(stored) == 6
    assert {f"data/{name}" for name in stored} <= files_below(path)
    assert lance_spark.open_dataset(str(path)).to_table().to_pydict() == ALL


def test_sound_manifests_are_not_copied(tmp_path: Path) -> None:
    lance.write_dataset(rows(0), str(tmp_path), data_storage_version="0.1")
    lance.dataset(str(tmp_path)).add_columns({"new": "id * 2"})
    file = newest_manifest(tmp_path)
    proto = decode(file.read_bytes(), str(file)).message
    assert with_unique_field_ids(proto, "1.manifest") is proto


def set_file_version(manifest: table_pb2.Manifest) -> None:
    manifest.data_format.version = "0.1"


def test_wrong_file_version_is_corrected(tmp_path: Path) -> None:
    # As release 0.16 left it: the manifest named version 0.1 although files of 2.0 were written.
    new_table(tmp_path, data_storage_version="2.0")
    rewrite_manifest(tmp_path, set_file_version)
    assert lance.dataset(str(tmp_path)).data_storage_version == "0.1"
    ours = lance_spark.open_dataset(str(tmp_path))
    assert ours.data_storage_version == "2.0"
    ours.delete([("id", "==", 0)])
    lance_spark.write_dataset(rows(6), str(tmp_path), mode="append")
    lance_spark.open_dataset(str(tmp_path)).update({"word": "x"}, [("id", "==", 7)])
    _, metrics = lance_spark.open_dataset(str(tmp_path)).compact_files()
    assert metrics.fragments_added == 1
    assert lance.dataset(str(tmp_path)).data_storage_version == "2.0"
    assert sorted(ids(tmp_path)) == list(range(1, 9))


def without_file_version(manifest: table_pb2.Manifest) -> None:
    manifest.ClearField("data_format")
    manifest.writer_feature_flags |= 4


@pytest.mark.parametrize("first", ["append", "delete", "config"])
def test_files_of_version_2_without_a_stated_version(tmp_path: Path, first: str) -> None:
    """Releases 0.13 to 0.15 did not write the version.

    A compaction after our change once took the version of a table without files.
    """
    new_table(tmp_path, data_storage_version="2.0")
    rewrite_manifest(tmp_path, without_file_version)
    uri = str(tmp_path)
    ours = lance_spark.open_dataset(uri)
    if first == "append":
        lance_spark.write_dataset(rows(6), uri, mode="append")
    elif first == "delete":
        ours.delete([("id", "==", 5)])
    else:
        ours.update_config({"a": "b"})
    before = sorted(ids(tmp_path))
    _, metrics = lance_spark.open_dataset(uri).compact_files()
    assert metrics.fragments_added == 1
    assert sorted(ids(tmp_path)) == before
    assert lance.dataset(uri).data_storage_version == "2.0"


def test_a_table_without_files_and_with_the_flag_of_version_2(tmp_path: Path) -> None:
    new_table(tmp_path, data_storage_version="2.0").delete("true")
    rewrite_manifest(tmp_path, without_file_version)
    uri = str(tmp_path)
    theirs = tmp_path / "theirs"
    shutil.copytree(tmp_path, theirs)
    lance.write_dataset(rows(0), str(theirs), mode="append")
    lance_spark.write_dataset(rows(0), uri, mode="append")
    version = lance.dataset(str(theirs)).data_storage_version
    assert lance.dataset(uri).data_storage_version == version
    assert ids(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize(
    ("library", "version", "expected"),
    [
        ("lance", "0.8.14", True),
        ("lance", "0.8.15", False),
        ("lance", "0.10.0", False),
        ("lance", "unknown", True),
        ("lance-spark", "0.1.0", False),
    ],
)
def test_writers_with_wrong_fragment_bitmaps(library: str, version: str, expected: bool) -> None:
    manifest = table_pb2.Manifest()
    assert has_wrong_bitmaps(manifest)
    manifest.writer_version.library = library
    manifest.writer_version.version = version
    assert has_wrong_bitmaps(manifest) is expected


def test_indexes_with_wrong_bitmaps_are_left_out(tmp_path: Path) -> None:
    uri = str(tmp_path)
    new_table(tmp_path)
    lance.dataset(uri).create_scalar_index("id", "BTREE")

    def earlier(manifest: table_pb2.Manifest) -> None:
        manifest.writer_version.library = "lance"
        manifest.writer_version.version = "0.8.14"

    rewrite_manifest(tmp_path, earlier)
    assert len(lance_spark.open_dataset(uri).list_indices()) == 1
    lance_spark.open_dataset(uri).update_config({"a": "b"})
    assert lance.dataset(uri).describe_indices() == []
    assert lance.dataset(uri).to_table(filter="id = 4") == rows(4, 1)

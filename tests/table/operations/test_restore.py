"""Restored versions: the same as in pylance. New ids follow the greatest ids ever used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import DatasetBasePath

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import UnsupportedFeatureError, VersionNotFoundError
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import read_latest
from lance_spark.table.operations.metadata import Restore
from tests.support.tables.pylance_written import new_table, rows
from tests.table.manifest.test_flags import patch, raise_flags

HISTORY: list[Callable[[lance.LanceDataset], object]] = [
    lambda d: d.update_config({"a": "1"}),
    lambda d: d.create_scalar_index("id", "BTREE"),
    lambda d: lance.write_dataset(rows(6), d, mode="append"),
    lambda d: d.update_metadata({"m": "1"}),
    lambda d: d.delete("id = 1"),
    lambda d: d.add_columns({"x": "id"}),
    lambda d: d.add_bases([DatasetBasePath("/tmp/elsewhere", "b", False)]),
    lambda d: d.drop_columns(["word"]),
    lambda d: d.drop_index("id_idx"),
    lambda d: lance.write_dataset(rows(20), d, mode="overwrite"),
]


def newest(path: Path) -> Manifest:
    return read_latest(ObjectStore.from_uri(path))


def content(path: Path) -> tuple[table_pb2.Manifest, bytes | None]:
    """Return the newest manifest without the fields that differ between commits."""
    manifest = newest(path)
    proto = manifest.to_proto()
    for name in ("timestamp", "writer_version", "transaction_file", "transaction_section"):
        proto.ClearField(name)
    proto.ClearField("index_section")
    return proto, manifest.index_section


@pytest.mark.parametrize("stable", [False, True])
def test_restored_versions_equal_those_of_pylance(tmp_path: Path, stable: bool) -> None:
    path = tmp_path / "t"
    new_table(path, enable_stable_row_ids=stable)
    for change in HISTORY:
        change(lance.dataset(str(path)))
    greatest = newest(path).max_fragment_id
    last = newest(path).version
    for version in range(1, last + 1):
        theirs, ours = tmp_path / f"theirs{version}", tmp_path / f"ours{version}"
        shutil.copytree(path, theirs)
        shutil.copytree(path, ours)
        lance.dataset(str(theirs), version=version).restore()
        made = open_dataset(str(ours), version).restore(commit_message="back")
        assert content(ours) == content(theirs), version
        assert made.version == last + 1
        read = lance.dataset(str(ours))
        read.validate()
        assert read.to_table() == made.to_table() == lance.dataset(str(ours), version).to_table()
        transaction = read.read_transaction(last + 1)
        assert transaction.transaction_properties == {"__lance_commit_message": "back"}
        appended = write_dataset(made.to_table().slice(0, 1), str(ours), mode="append")
        assert appended.fragments[-1].id == (greatest or 0) + 1
        if stable:
            table = lance.dataset(str(ours)).to_table(columns=[], with_row_id=True)
            assert table["_rowid"][-1].as_py() == newest(path).next_row_id


def test_a_restored_index_is_used(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path).create_scalar_index("id", "BTREE")
    lance.dataset(str(path)).drop_index("id_idx")
    open_dataset(str(path), 2).restore()
    dataset = lance.dataset(str(path))
    assert "ScalarIndexQuery" in dataset.scanner(filter="id = 3").explain_plan()
    assert dataset.to_table(filter="id = 3") == rows(3, 1)


def test_a_removed_version_cannot_be_restored(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    store = ObjectStore.from_uri(path)
    with pytest.raises(VersionNotFoundError, match="7"):
        commit(store, Transaction.new(1, Restore(7)), newest(path))
    assert not list((path / "_transactions").glob("1-*.txn"))


def test_restore_keeps_feature_flags(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    lance.write_dataset(rows(6), str(path), mode="append")
    patch(path, raise_flags(256 | 1024, 256 | 1024 | 32))
    made = open_dataset(str(path), 1).restore()
    assert made.count_rows() == 6
    assert (newest(path).flags.reader, newest(path).flags.writer) == (1280, 1280 | 32)


def test_restore_is_refused_if_field_ids_became_stable(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    lance.write_dataset(rows(6), str(path), mode="append")
    patch(path, lambda proto: setattr(proto, "max_allocated_field_id", 5))
    patch(path, raise_flags(0, 1 << 15))
    with pytest.raises(OSError, match="activated after that version"):
        lance.dataset(str(path), version=1).restore()
    with pytest.raises(UnsupportedFeatureError, match="never reuses a field id"):
        open_dataset(str(path), 1).restore()
    assert open_dataset(str(path), 2).restore().version == 3


def test_restore_of_a_version_with_an_unknown_flag(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    patch(path, raise_flags(0, 1 << 40))
    base = newest(path)
    shutil.copytree(path, tmp_path / "newer")
    patch(path, lambda proto: proto.ClearField("writer_feature_flags"))
    open_dataset(str(path)).update_config({"a": "1"})
    for file in (tmp_path / "newer" / "_versions").glob("*.manifest"):
        shutil.copy(file, path / "_versions" / file.name)
    assert base.version == 1
    with pytest.raises(UnsupportedFeatureError, match="bit 40"):
        open_dataset(str(path), 1).restore()


def test_restore_brings_back_types(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_dataset(rows(0), str(path))
    dataset = open_dataset(str(path)).alter_columns({"path": "id", "data_type": pa.int16()})
    assert dataset.schema.field("id").type == pa.int16()
    restored = open_dataset(str(path), 1).restore()
    assert restored.schema.field("id").type == pa.int64()
    again = restored.alter_columns({"path": "id", "data_type": pa.int32()})
    assert lance.dataset(str(path)).to_table() == again.to_table()


@pytest.mark.parametrize("second", [{"id": [9]}, {"id": [9], "word": ["longer than before"]}])
def test_dictionaries_of_early_files_come_back(
    tmp_path: Path, second: dict[str, list[object]]
) -> None:
    """The values are in the manifest. pylance refuses to restore such a version."""
    path, options = tmp_path / "t", {"data_storage_version": "legacy"}
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    lance.write_dataset(pa.table({"id": [1, 2, 3], "word": words}), str(path), **options)
    new = {
        name: pa.array(values).dictionary_encode() if name == "word" else values
        for name, values in second.items()
    }
    lance.write_dataset(pa.table(new), str(path), mode="overwrite", **options)
    restored = open_dataset(str(path), 1).restore()
    expected = {"id": [1, 2, 3], "word": ["a", "b", "a"]}
    assert lance.dataset(str(path)).to_table().to_pydict() == expected
    assert restored.to_table().to_pydict() == expected

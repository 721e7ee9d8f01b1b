"""Feature flags: equal to those of pylance after each change; unknown flags are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import DatasetBasePath

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CorruptTableError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import encode
from lance_spark.table.manifest.manifest import Flags
from lance_spark.table.manifest.versions import latest
from lance_spark.table.open import read_latest
from tests.support.tables.pylance_written import new_table, rows

Theirs = Callable[[lance.LanceDataset], object]
Ours = Callable[[Dataset], object]


def flags(path: Path) -> Flags:
    return read_latest(ObjectStore.from_uri(path)).flags


def patch(path: Path, change: Callable[[table_pb2.Manifest], object]) -> None:
    """Change the newest manifest in place."""
    store = ObjectStore.from_uri(path)
    manifest = read_latest(store)
    proto = manifest.to_proto()
    change(proto)
    data = encode(proto, manifest.index_section, manifest.transaction_section)
    (path / latest(store).path).write_bytes(data)


def raise_flags(reader: int, writer: int) -> Callable[[table_pb2.Manifest], None]:
    def change(proto: table_pb2.Manifest) -> None:
        proto.reader_feature_flags |= reader
        proto.writer_feature_flags |= writer

    return change


CHANGES: dict[str, tuple[Theirs, Ours]] = {
    "append": (
        lambda d: lance.write_dataset(rows(6), d, mode="append"),
        lambda d: write_dataset(rows(6), d.uri, mode="append"),
    ),
    "delete": (lambda d: d.delete("id = 1"), lambda d: d.delete([("id", "==", 1)])),
    "delete all": (lambda d: d.delete("true"), lambda d: d.delete([])),
    "set a key": (
        lambda d: d.update_config({"a": "1"}),
        lambda d: d.update_config({"a": "1"}),
    ),
    "delete the key": (
        lambda d: d.delete_config_keys(["a"]),
        lambda d: d.delete_config_keys(["a"]),
    ),
    "add a column": (
        lambda d: d.add_columns({f"c{d.version}": "id + 1"}),
        lambda d: d.add_columns({f"c{d.version}": 1}),
    ),
    "cast": (
        lambda d: d.alter_columns({"path": "id", "data_type": pa.int32()}),
        lambda d: d.alter_columns({"path": "id", "data_type": pa.int32()}),
    ),
    "drop a column": (lambda d: d.drop_columns(["word"]), lambda d: d.drop_columns(["word"])),
    "compact": (lambda d: d.optimize.compact_files(), lambda d: d.compact_files()),
    "overwrite": (
        lambda d: lance.write_dataset(rows(9), d, mode="overwrite"),
        lambda d: write_dataset(rows(9), d.uri, mode="overwrite"),
    ),
    "restore": (
        lambda d: lance.dataset(d.uri, version=1).restore(),
        lambda d: open_dataset(d.uri, 1).restore(),
    ),
}


def _use_field_ids_once(proto: table_pb2.Manifest) -> None:
    proto.writer_feature_flags |= 1 << 15
    proto.max_allocated_field_id = 7


def _with_hidden_columns(path: Path) -> None:
    dataset = new_table(path, enable_stable_row_ids=True)
    dataset.update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "0"}
    )
    dataset.update({"id": "id + 10"}, where="id % 3 = 0")


#: Tables of pylance before the changes, by the name of their state.
STATES: dict[str, Callable[[Path], object]] = {
    "plain": new_table,
    "stable row ids": lambda path: new_table(path, enable_stable_row_ids=True),
    "base paths": lambda path: new_table(path).add_bases(
        [DatasetBasePath(str(path.parent / "base"), "b", False)]
    ),
    "hidden columns": _with_hidden_columns,
    "old flag of version 2": lambda path: (new_table(path), patch(path, raise_flags(4, 4))),
    "several file versions": lambda path: (new_table(path), patch(path, raise_flags(256, 256))),
    "tagged reuse index": lambda path: (new_table(path), patch(path, raise_flags(1024, 1024))),
    "field ids used once": lambda path: (new_table(path), patch(path, _use_field_ids_once)),
}


@pytest.mark.parametrize("state", STATES)
def test_flags_equal_those_of_pylance(tmp_path: Path, state: str) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    STATES[state](theirs)
    shutil.copytree(theirs, ours)
    for name, (by_pylance, by_us) in CHANGES.items():
        by_pylance(lance.dataset(str(theirs)))
        by_us(open_dataset(str(ours)))
        assert flags(ours) == flags(theirs), name
        made = lance.dataset(str(ours))
        made.validate()
        assert made.to_table().num_rows == lance.dataset(str(theirs)).count_rows(), name
        ids = [field.id for field in read_latest(ObjectStore.from_uri(ours)).to_proto().fields]
        assert ids == [o.id for o in read_latest(ObjectStore.from_uri(theirs)).to_proto().fields]


def test_table_keeps_flag_for_no_transaction_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    patch(path, raise_flags(0, 32))
    before = set((path / "_transactions").iterdir())
    made = open_dataset(str(path)).update_config({"a": "1"}).drop_columns(["word"])
    assert flags(path) == Flags(0, 32 | 8)
    assert set((path / "_transactions").iterdir()) == before
    assert made.read_transaction(made.version) is not None


@pytest.mark.parametrize("bit", [9, 12, 13, 14, 16, 17, 40, 63])
def test_unknown_flags_are_named_in_errors(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "t"
    new_table(path)
    patch(path, raise_flags(0, 1 << bit))
    dataset = open_dataset(str(path))
    number = rf"flag {1 << bit} \(bit {bit}\)"
    for change in ("update_config", "update_metadata", "update_schema_metadata"):
        with pytest.raises(UnsupportedFeatureError, match=f"writer feature {number}"):
            getattr(dataset, change)({"a": "1"})
    with pytest.raises(UnsupportedFeatureError, match=f"writer feature {number}"):
        dataset.drop_columns(["word"])
    with pytest.raises(UnsupportedFeatureError, match=f"writer feature {number}"):
        dataset.restore()
    patch(path, raise_flags(1 << bit, 0))
    with pytest.raises(UnsupportedFeatureError, match=f"reader feature {number}"):
        open_dataset(str(path))


def test_missing_max_allocated_field_id(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    patch(path, raise_flags(0, 1 << 15))
    with pytest.raises(CorruptTableError, match="max_allocated_field_id is missing"):
        open_dataset(str(path)).update_config({"a": "1"})


def test_an_unknown_writer_flag_stops_changes_that_commit_no_version(tmp_path: Path) -> None:
    """Also through an older version, which does not have the flag."""
    path = tmp_path / "t"
    write_dataset(pa.table({"i": [1]}), path)
    dataset = write_dataset(pa.table({"i": [2]}), path, mode="append")
    dataset.tags.create("t", 1)
    dataset.create_branch("b")
    old = open_dataset(path, version=1)

    def add_flag(manifest: table_pb2.Manifest) -> None:
        manifest.writer_feature_flags |= 1 << 20

    patch(path, add_flag)
    for opened in (old, open_dataset(path)):
        for change in (
            lambda opened=opened: opened.tags.create("u", 1),
            lambda opened=opened: opened.tags.update("t", 2),
            lambda opened=opened: opened.tags.replace_metadata("t", {"a": "b"}),
            lambda opened=opened: opened.tags.delete("t"),
            lambda opened=opened: opened.create_branch("c"),
            lambda opened=opened: opened.branches.replace_metadata("b", {"a": "b"}),
            lambda opened=opened: opened.branches.delete("b"),
        ):
            with pytest.raises(UnsupportedFeatureError):
                change()
    assert list(old.tags.list()) == ["t"]
    assert list(old.branches.list()) == ["b"]

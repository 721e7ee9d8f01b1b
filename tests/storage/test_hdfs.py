"""Tables on HDFS, on a stand-in that moves files as pyarrow and HDFS do. The tests use no HDFS."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import lance
import pytest

import lance_spark
from lance_spark.errors import StorageError, TableNotFoundError
from lance_spark.namespace.directory import DirectoryNamespace
from lance_spark.storage import connect
from lance_spark.storage.commit import FolderRename
from lance_spark.storage.store import ObjectStore
from tests.support.stores.hadoop import StandIn, StandInFileSystem
from tests.support.stores.store_suite import StoreSuite
from tests.support.stores.table_suite import rows, values

REGISTERED = sys.modules["fsspec.registry"]._registry


@pytest.fixture(autouse=True)
def hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the stand-in keeps its files."""
    monkeypatch.setattr(StandInFileSystem, "root", tmp_path, raising=False)
    fsspec.register_implementation("hdfs", StandInFileSystem, clobber=True)
    connect.forget_probes()
    yield tmp_path
    REGISTERED.pop("hdfs", None)


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore.from_uri("hdfs://names:8020/user/me/t")


class TestFiles(StoreSuite):
    pass


def test_a_table(hdfs: Path) -> None:
    uri = "hdfs://names:8020/tables/a b.lance"
    lance_spark.write_dataset(rows(1, 2), uri)
    assert StandInFileSystem.connection == {"host": "names", "port": 8020, "user": None}
    dataset = lance_spark.write_dataset(rows(3), uri, "append")
    dataset.delete([("x", "==", 2)]).compact_files()
    assert values(lance_spark.open_dataset(uri).to_table()) == [1, 3]
    theirs = lance.dataset(str(hdfs / "tables/a b.lance"))
    theirs.validate()
    assert values(theirs.to_table()) == [1, 3]
    names = {path.name for path in (hdfs / "tables/a b.lance").rglob("*")}
    assert not [name for name in names if name.endswith(".tmp") or "probe" in name]


def test_writers_side_by_side() -> None:
    uri = "hdfs:///raced"
    lance_spark.write_dataset(rows(0), uri)
    assert StandInFileSystem.connection["host"] == "default"

    def append(number: int) -> None:
        lance_spark.write_dataset(rows(number), uri, "append")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(1, 13)))
    dataset = lance_spark.open_dataset(uri)
    assert dataset.version == 13
    assert values(dataset.to_table()) == list(range(13))


def test_a_file_as_the_target_would_be_replaced(hdfs: Path) -> None:
    """The reason why the folder is the target."""
    (hdfs / "old").write_bytes(b"old")
    (hdfs / "new").write_bytes(b"new")
    StandIn(hdfs).move("/new", "/old")
    assert (hdfs / "old").read_bytes() == b"new"


def test_a_rename_that_replaces_is_found_out(monkeypatch: pytest.MonkeyPatch, hdfs: Path) -> None:
    """The default file system of Hadoop need not be HDFS."""
    import os

    def rename(self: StandIn, source: str, target: str) -> None:
        new = self._path(target)
        if os.path.isdir(new):
            new = os.path.join(new, os.path.basename(source))
        os.replace(self._path(source), new)

    monkeypatch.setattr(StandIn, "rename", rename)
    monkeypatch.setattr(FolderRename, "_exists", lambda *_: False)
    with pytest.raises(StorageError, match="commit_lock"):
        lance_spark.write_dataset(rows(1), "hdfs://names/t")
    assert not [path for path in hdfs.rglob("*") if path.is_file()]


def test_a_rename_that_fails_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, store: ObjectStore, hdfs: Path
) -> None:
    assert store.put_if_absent("_versions/1", b"1")

    def failing(*_: object) -> None:
        raise OSError(5, "no name node")

    monkeypatch.setattr(StandIn, "rename", failing)
    with pytest.raises(StorageError, match="no name node"):
        store.put_if_absent("_versions/2", b"2")
    assert [path.name for path in (hdfs / "user/me/t/_versions").iterdir()] == ["1"]


@pytest.mark.parametrize("look", ["_exists", "cat_file"])
def test_a_rename_that_cannot_be_checked_is_not_a_refusal(
    monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """Permissions can expire between a rename and the check of its outcome."""
    uri = "hdfs://names/expired"
    lance_spark.write_dataset(rows(0), uri)
    rename = StandIn.rename
    place = FolderRename if look == "_exists" else StandInFileSystem
    allowed = getattr(place, look)
    renamed: list[str] = []

    def lost(self: StandIn, source: str, target: str) -> None:
        rename(self, source, target)
        monkeypatch.setattr(StandIn, "rename", rename)
        renamed.append(target)
        raise OSError(5, "no answer")

    def denied(*arguments: Any, **named: Any) -> Any:
        if not renamed:
            return allowed(*arguments, **named)
        monkeypatch.setattr(place, look, allowed)
        raise PermissionError(13, "the ticket has expired")

    monkeypatch.setattr(StandIn, "rename", lost)
    monkeypatch.setattr(place, look, denied)
    written = lance_spark.write_dataset(rows(1), uri, "append")
    assert renamed
    assert written.version == 2
    assert values(lance_spark.open_dataset(uri).to_table()) == [0, 1]


def test_cleanup_removes_staging_folders_of_a_crash(hdfs: Path) -> None:
    uri = "hdfs://names/crashed"
    dataset = lance_spark.write_dataset(rows(1), uri)
    left = hdfs / "crashed/_versions" / f".18446744073709551613.manifest.{'a' * 32}.tmp"
    left.mkdir()
    (left / "18446744073709551613.manifest").write_bytes(b"half")
    assert lance_spark.open_dataset(uri).version == 1
    assert lance_spark.write_dataset(rows(2), uri, "append").version == 2
    dataset.cleanup_old_versions(datetime.timedelta(0), delete_unverified=True)
    assert not list(left.iterdir())
    assert values(lance_spark.open_dataset(uri).to_table()) == [1, 2]


def test_viewfs() -> None:
    written = lance_spark.write_dataset(rows(1), "viewfs://cluster/t")
    assert StandInFileSystem.connection["host"] == "viewfs://cluster"
    assert values(lance_spark.open_dataset(written.uri).to_table()) == [1]


def test_without_hadoop_the_error_says_what_is_missing() -> None:
    REGISTERED.pop("hdfs", None)
    with pytest.raises(StorageError, match="HADOOP_HOME") as caught:
        ObjectStore.from_uri("hdfs://names/t")
    assert len(str(caught.value)) < 400


def test_the_folders_of_a_dropped_table_are_no_table(hdfs: Path) -> None:
    names = DirectoryNamespace("hdfs://names:8020/lake")
    for number in range(2):
        lance_spark.write_dataset(
            rows(number), namespace_client=names, table_id=["t"], mode="create"
        )
        assert names.list_tables() == ["t"]
        dataset = lance_spark.open_dataset(namespace_client=names, table_id=["t"])
        assert values(dataset.to_table()) == [number]
        names.drop_table(("t",))
        assert (hdfs / "lake/t.lance/data").is_dir()
        assert names.list_tables() == []
        with pytest.raises(TableNotFoundError):
            names.describe_table(("t",))
    lance_spark.write_dataset(rows(1), "hdfs://names:8020/lake/u.lance")
    (hdfs / "lake/v.lance").mkdir()
    assert names.list_tables() == ["u"]

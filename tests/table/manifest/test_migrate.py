"""Migration of manifest names from V1 to V2: repeated, after crashes, and with readers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import pytest

from lance_spark import open_dataset, write_dataset
from lance_spark.errors import CorruptTableError, LanceError, TableNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import history, migrate, versions
from lance_spark.table.manifest.versions import NamingScheme, parse_name
from tests.support.tables.pylance_written import ids, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Versions 1 to 12; each adds 3 rows."""
    path = tmp_path / "t"
    for start in range(12):
        lance.write_dataset(
            rows(3 * start),
            str(path),
            mode="append" if start else "create",
            enable_v2_manifest_paths=False,
        )
    return path


def schemes(path: Path) -> set[NamingScheme]:
    located = [parse_name(name) for name in os.listdir(path / "_versions")]
    return {location.scheme for location in located if location is not None}


def read_everything(path: Path) -> None:
    assert open_dataset(str(path)).count_rows() == 36
    for version in range(1, 13):
        assert open_dataset(str(path), version).count_rows() == 3 * version
    assert [info.version for info in open_dataset(str(path)).versions()] == [*range(1, 13)]
    assert open_dataset(str(path)).get_transactions(3)[2] is not None


def test_migrate(path: Path) -> None:
    dataset = open_dataset(str(path))
    dataset.tags.create("t", 5)
    dataset.migrate_manifest_paths_v2()
    assert schemes(path) == {NamingScheme.V2}
    read_everything(path)
    theirs = lance.dataset(str(path))
    assert [version["version"] for version in theirs.versions()] == [*range(1, 13)]
    assert lance.dataset(str(path), version="t").count_rows() == 15
    before = sorted(os.listdir(path / "_versions"))
    dataset.migrate_manifest_paths_v2()
    theirs.migrate_manifest_paths_v2()
    assert sorted(os.listdir(path / "_versions")) == before
    write_dataset(rows(36), str(path), "append")
    lance.write_dataset(rows(39), str(path), mode="append")
    assert schemes(path) == {NamingScheme.V2}
    assert ids(path) == [*range(42)]


class Killed(BaseException):
    pass


def test_killed_before_each_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, delete = ObjectStore.put_if_absent, ObjectStore.delete
    left = [0]

    def step() -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1

    def put_dead(self: ObjectStore, *args: Any) -> bool:
        step()
        return put(self, *args)

    def delete_dead(self: ObjectStore, paths: Any) -> None:
        step()
        delete(self, paths)

    # Each crash is followed by another try, which is killed a few steps later.
    for tried in range(1, 20):
        left[0] = tried
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "put_if_absent", put_dead)
            patch.setattr(ObjectStore, "delete", delete_dead)
            try:
                migrate.migrate_to_v2(ObjectStore.from_uri(path))
                break
            except Killed:
                pass
        read_everything(path)
        assert NamingScheme.V2 in schemes(path)
        if schemes(path) == {NamingScheme.V1, NamingScheme.V2}:
            # A version could be created under two names.
            with pytest.raises(CorruptTableError, match=r"Dataset\.migrate_manifest_paths_v2"):
                write_dataset(rows(0), str(path), "append")
    else:
        raise AssertionError("never done")
    assert tried > 3
    assert schemes(path) == {NamingScheme.V2}
    assert ids(path) == [*range(36)]


@pytest.mark.parametrize("renamed", [(1,), (1, 2, 3), (12,), (11, 12), (5, 9)])
def test_unfinished_migration_of_pylance_is_finished(path: Path, renamed: tuple[int, ...]) -> None:
    folder = path / "_versions"
    for version in renamed:
        new = NamingScheme.V2.name_of(version)
        (folder / f"{version}.manifest").rename(folder / new)
    read_everything(path)
    with pytest.raises(ValueError, match="migrate_manifest_paths_v2"):
        lance.dataset(str(path))
    open_dataset(str(path)).migrate_manifest_paths_v2()
    read_everything(path)
    assert ids(path) == [*range(36)]


def test_different_manifests_of_a_version_are_refused(path: Path) -> None:
    """Equal bytes are one manifest with two names."""
    folder = path / "_versions"
    (folder / NamingScheme.V2.name_of(7)).write_bytes((folder / "7.manifest").read_bytes())
    (folder / NamingScheme.V2.name_of(6)).write_bytes((folder / "5.manifest").read_bytes())
    with pytest.raises(CorruptTableError, match="version 6 has two different manifests"):
        open_dataset(str(path)).migrate_manifest_paths_v2()
    assert (folder / "6.manifest").exists()
    (folder / NamingScheme.V2.name_of(6)).unlink()
    open_dataset(str(path)).migrate_manifest_paths_v2()
    read_everything(path)


def test_version_committed_during_migration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer listed the versions before; its manifest is renamed in another round."""
    rename = migrate._rename
    done: list[int] = []

    def late(store: ObjectStore, old: Any) -> bool:
        if not done:
            done.append(1)
            lance.write_dataset(rows(36), str(path), mode="append")
        return rename(store, old)

    monkeypatch.setattr(migrate, "_rename", late)
    open_dataset(str(path)).migrate_manifest_paths_v2()
    assert schemes(path) == {NamingScheme.V2}
    assert ids(path) == [*range(39)]


def test_versions_are_found_during_migration(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration runs between a listing, or a request for one of the names, and the next step."""
    store = ObjectStore.from_uri(path)
    when = open_dataset(str(path)).versions()[10].timestamp
    old = versions.list_manifests(store)
    assert {item.scheme for item in old} == {NamingScheme.V1}
    exists = ObjectStore.exists

    def late(self: ObjectStore, name: str) -> bool:
        result = exists(self, name)
        migrate.migrate_to_v2(self)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "exists", late)
        assert versions.find(store, 7) == NamingScheme.V2.locate(7)
    monkeypatch.setattr(history, "list_manifests", lambda store: old)
    assert history.manifest_as_of(store, when).version == 11
    assert [info.version for info in history.list_versions(store)] == [*range(1, 13)]


def test_branches_are_migrated_separately(path: Path) -> None:
    theirs, mine = lance.dataset(str(path)), open_dataset(str(path))
    theirs.create_branch("theirs")
    mine.create_branch("mine")
    mine.shallow_clone(str(path) + "-c")
    for place in (path / "tree/theirs", path / "tree/mine", Path(f"{path}-c")):
        assert schemes(place) == {NamingScheme.V2}
    assert schemes(path) == {NamingScheme.V1}
    mine.migrate_manifest_paths_v2()
    assert open_dataset(str(path), branch="mine").count_rows() == 36


def test_path_without_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        migrate.migrate_to_v2(ObjectStore.from_uri(tmp_path))
    assert issubclass(TableNotFoundError, LanceError)


def test_table_in_memory(path: Path) -> None:
    local = ObjectStore.from_uri(path)
    remote = ObjectStore.from_uri(f"memory://{path.name}-migrated")
    for name in local.list_names("_versions"):
        remote.write_bytes(f"_versions/{name}", local.read_bytes(f"_versions/{name}"))
    assert migrate.migrate_to_v2(remote) == 12
    located = versions.list_manifests(remote)
    assert [location.version for location in located] == [*range(1, 13)]
    assert {location.scheme for location in located} == {NamingScheme.V2}

"""Manifest stores that users implement, and the option that names them."""

from __future__ import annotations

import errno
import pickle
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidOptionError,
    StorageError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.storage.commit import ManifestEntry, ManifestStore
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.versions import list_manifests, list_since, newest


class InSqlite(ManifestStore):
    """A manifest store as a user may implement it."""

    def __init__(self, path: str) -> None:
        self.path = path
        with self._database() as database:
            database.execute(
                "create table if not exists manifests "
                "(root text, version integer, path text, size integer, primary key (root, version))"
            )

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def get(self, root: str, version: int) -> ManifestEntry | None:
        return self._first("root = ? and version = ?", root, version)

    def latest(self, root: str) -> ManifestEntry | None:
        return self._first("root = ? order by version desc", root)

    def _first(self, condition: str, *values: object) -> ManifestEntry | None:
        sql = f"select version, path, size from manifests where {condition}"
        with self._database() as database:
            row = database.execute(sql, values).fetchone()
        return ManifestEntry(*row) if row else None

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        sql = "insert or ignore into manifests values (?, ?, ?, ?)"
        with self._database() as database:
            values = (root, entry.version, entry.path, entry.size)
            return database.execute(sql, values).rowcount == 1

    def put_final(self, root: str, entry: ManifestEntry) -> None:
        sql = "update manifests set path = ?, size = ? where root = ? and version = ?"
        with self._database() as database:
            database.execute(sql, (entry.path, entry.size, root, entry.version))


def in_sqlite(options: Mapping[str, Any]) -> ManifestStore:
    return InSqlite(options["database"])


NAMED = f"{__name__}:in_sqlite"


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


@pytest.fixture
def store(tmp_path: Path) -> InSqlite:
    return InSqlite(str(tmp_path / "manifests.db"))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "t")


def values(dataset: Any) -> list[int]:
    return sorted(dataset.to_table()["x"].to_pylist())


def test_user_defined_manifest_store(uri: str, store: InSqlite) -> None:
    lance_spark.write_dataset(rows(1), uri, manifest_store=store)
    lance_spark.write_dataset(rows(2), uri, "append", manifest_store=store)
    dataset = lance_spark.open_dataset(uri, manifest_store=store)
    assert values(dataset) == [1, 2]
    assert dataset.delete([("x", "==", 1)]).version == 3
    entry = store.latest(uri)
    assert entry is not None
    place = Path(uri) / entry.path
    assert entry == ManifestEntry(3, f"_versions/{2**64 - 4}.manifest", place.stat().st_size)
    assert values(lance_spark.open_dataset(uri, 1, manifest_store=store)) == [1]
    assert [version.version for version in dataset.versions()] == [1, 2, 3]
    # The table has the files of any other table.
    assert values(lance.dataset(uri)) == [2]
    assert not list(Path(uri).glob("_versions/*.manifest-*"))


def test_errors_after_the_commit_do_not_fail_it(
    uri: str, store: InSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance_spark.write_dataset(rows(1), uri, manifest_store=store)

    def contradicted(*_: object) -> None:
        raise CommitConflictError("that is not asked for", retryable=True)

    monkeypatch.setattr(store, "put_final", contradicted)
    assert lance_spark.write_dataset(rows(2), uri, "append", manifest_store=store).version == 2
    monkeypatch.undo()
    assert values(lance_spark.open_dataset(uri, manifest_store=store)) == [1, 2]


def test_manifest_store_named_by_option(uri: str, store: InSqlite) -> None:
    options = {"manifest_store": NAMED, "database": store.path}
    lance_spark.write_dataset(rows(1), uri, storage_options=options)
    dataset = lance_spark.open_dataset(uri, storage_options=options)
    assert values(dataset) == [1]
    assert store.latest(uri) is not None
    (task,) = pickle.loads(pickle.dumps(dataset.plan()))
    assert [batch.num_rows for batch in task.batches()] == [1]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("in_sqlite", "must be package.module:name"),
        ("no.such.module:x", "cannot be imported"),
        (f"{__name__}:nothing", "cannot be imported"),
        ("builtins:dict", "is not a ManifestStore"),
        (17, "is not a ManifestStore"),
    ],
)
def test_invalid_manifest_store_names(uri: str, named: Any, message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        lance_spark.open_dataset(uri, manifest_store=named)


def staged(uri: str, store: InSqlite, version: int) -> Path:
    """Set a version back to its staging file."""
    entry = store.get(uri, version)
    assert entry is not None
    place = Path(uri) / entry.path
    staging = place.with_name(f"{place.name}-b77cf1d6-9b0b-4a7f-8cb1-0a1fc4a9d1ae")
    place.rename(staging)
    store.put_final(uri, ManifestEntry(version, f"_versions/{staging.name}", entry.size))
    return staging


def test_unfinished_commits_are_finished(uri: str, store: InSqlite) -> None:
    lance_spark.write_dataset(rows(1), uri, manifest_store=store)
    lance_spark.write_dataset(rows(2), uri, "append", manifest_store=store)
    staging = staged(uri, store, 2)
    assert lance.dataset(uri).version == 1
    assert values(lance_spark.open_dataset(uri, manifest_store=store)) == [1, 2]
    assert not staging.exists()
    assert lance.dataset(uri).version == 2


def test_lost_staging_file(uri: str, store: InSqlite) -> None:
    lance_spark.write_dataset(rows(1), uri, manifest_store=store)
    lance_spark.write_dataset(rows(2), uri, "append", manifest_store=store)
    staged(uri, store, 2).unlink()
    with pytest.raises(StorageError, match=r"18446744073709551613\.manifest: file not found"):
        lance_spark.open_dataset(uri, manifest_store=store)
    with pytest.raises(VersionNotFoundError):
        lance_spark.open_dataset(uri, 2, manifest_store=store)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x/_versions/1.manifest", "_versions/3.manifest", "_versions/d2.manifest"],
)
def test_entries_with_invalid_paths(uri: str, store: InSqlite, path: str) -> None:
    lance_spark.write_dataset(rows(1), uri, manifest_store=store)
    store.put_if_absent(uri, ManifestEntry(2, path))
    with pytest.raises(CorruptTableError, match="correct its entry"):
        lance_spark.open_dataset(uri, manifest_store=store)


def test_errors_of_a_store_become_storage_errors(
    uri: str, store: InSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance_spark.write_dataset(rows(1), uri, manifest_store=store)

    def broken(*_: object) -> bool:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(InSqlite, "put_if_absent", broken)
    with pytest.raises(UncertainCommitError, match="disk I/O error"):
        lance_spark.write_dataset(rows(2), uri, "append", manifest_store=store)
    monkeypatch.setattr(InSqlite, "latest", broken)
    with pytest.raises(StorageError, match="disk I/O error"):
        lance_spark.open_dataset(uri, manifest_store=store)


def test_own_entry_that_cannot_be_read(
    uri: str, store: InSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store repeats a request, then refuses to return the entry: the version must stay."""
    lance_spark.write_dataset(rows(1), uri, manifest_store=store)
    put, get = InSqlite.put_if_absent, InSqlite.get

    def repeated(self: InSqlite, root: str, entry: ManifestEntry) -> bool:
        put(self, root, entry)
        monkeypatch.setattr(InSqlite, "get", refused)
        return put(self, root, entry)

    def refused(self: InSqlite, root: str, version: int) -> ManifestEntry | None:
        monkeypatch.setattr(InSqlite, "get", get)
        raise PermissionError("not allowed")

    monkeypatch.setattr(InSqlite, "put_if_absent", repeated)
    lance_spark.write_dataset(rows(2), uri, "append", manifest_store=store)
    monkeypatch.undo()
    dataset = lance_spark.open_dataset(uri, manifest_store=store)
    assert dataset.version == 2
    assert dataset.to_table()["x"].to_pylist() == [1, 2]


@pytest.mark.parametrize("readable", [False, True])
def test_credentials_that_expire_during_a_repeated_request(
    uri: str, store: InSqlite, readable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request succeeded: the entry names the staging file, which must stay."""
    lance_spark.write_dataset(rows(1), uri, manifest_store=store)
    put = InSqlite.put_if_absent

    def expired(*_: object) -> None:
        raise PermissionError("expired")

    def repeated(self: InSqlite, root: str, entry: ManifestEntry) -> bool:
        assert put(self, root, entry)
        if not readable:
            for name in ("get", "latest", "since"):
                monkeypatch.setattr(InSqlite, name, expired)
        raise PermissionError("expired")

    monkeypatch.setattr(InSqlite, "put_if_absent", repeated)
    if readable:
        lance_spark.write_dataset(rows(2), uri, "append", manifest_store=store)
    else:
        with pytest.raises(UncertainCommitError, match="permission denied"):
            lance_spark.write_dataset(rows(2), uri, "append", manifest_store=store)
    monkeypatch.undo()
    dataset = lance_spark.open_dataset(uri, manifest_store=store)
    assert dataset.version == 2
    assert dataset.to_table()["x"].to_pylist() == [1, 2]


def test_only_newer_entries_are_requested(uri: str, store: InSqlite) -> None:
    for value in range(6):
        lance_spark.write_dataset(
            rows(value), uri, "append" if value else "create", manifest_store=store
        )
    files = ObjectStore.from_uri(uri, {"manifest_store": store})
    assert [item.version for item in list_since(files, 4)] == [4, 5, 6]
    for place in Path(uri).glob("_versions/*"):
        place.unlink()
    # The store decides. Files are listed only if the store does not know the version.
    result = newest(files)
    assert result is not None
    assert result.version == 6


def busy(*_: object) -> None:
    raise StorageError("busy") from OSError("busy")


def forbidden(*_: object) -> None:
    raise StorageError("permission denied") from PermissionError("permission denied")


def read_only(*_: object) -> None:
    raise StorageError("read-only") from OSError(errno.EROFS, "read-only file system")


def test_version_that_cannot_be_copied_is_refused(
    store: InSqlite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    options = {"manifest_store": NAMED, "database": store.path}
    lance_spark.write_dataset(rows(1), path, storage_options=options)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "copy", busy)
        # The commit holds, also if the copy fails.
        written = lance_spark.write_dataset(rows(2), path, "append", storage_options=options)
        assert written.version == 2
        for attempt in (
            lambda: lance_spark.open_dataset(path, storage_options=options),
            lambda: lance_spark.open_dataset(path, 2, storage_options=options),
            lambda: written.delete([("x", "==", 1)]),
            lambda: lance_spark.write_dataset(rows(3), path, "append", storage_options=options),
        ):
            with pytest.raises(
                StorageError, match=r"version 2 is committed, but .* copied"
            ) as error:
                attempt()
            assert path in str(error.value)
        assert store.latest(path).version == 2
    # No files of the refused changes are left.
    assert lance.dataset(path).version == 1
    assert lance_spark.open_dataset(path, storage_options=options).to_table() == rows(1, 2)
    assert lance.dataset(path).version == 2
    lance_spark.write_dataset(rows(3), path, "append", storage_options=options)
    assert lance.dataset(path).to_table() == rows(1, 2, 3)


@pytest.mark.parametrize("failure", [forbidden, read_only])
def test_reader_without_write_permission_reads_staging_file(
    failure: Callable[..., None], store: InSqlite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    options = {"manifest_store": NAMED, "database": store.path}
    lance_spark.write_dataset(rows(1), path, storage_options=options)
    monkeypatch.setattr(ObjectStore, "copy", failure)
    lance_spark.write_dataset(rows(2), path, "append", storage_options=options)
    ours = lance_spark.open_dataset(path, storage_options=options)
    assert ours.to_table() == rows(1, 2)
    files = {file for file in Path(path).rglob("*") if file.is_file()}
    for change in (
        lambda: lance_spark.write_dataset(rows(3), path, "append", storage_options=options),
        lambda: ours.delete([("x", "==", 1)]),
        lambda: ours.update_config({"a": "b"}),
    ):
        with pytest.raises(StorageError, match="version 2 has not been copied"):
            change()
    assert store.latest(path).version == 2
    assert {file for file in Path(path).rglob("*") if file.is_file()} == files


def test_versions_with_only_a_staging_file(
    store: InSqlite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The versions are listed, and a tag keeps them, although later versions have final
    manifests.
    """
    path = str(tmp_path / "t")
    options = {"manifest_store": NAMED, "database": store.path}
    for number, mode in enumerate(["create", "append", "overwrite", "append"], 1):
        lance_spark.write_dataset(rows(number), path, mode, storage_options=options)
    dataset = lance_spark.open_dataset(path, storage_options=options)
    dataset.tags.create("tag", 2)
    policy: dict[str, Any] = {
        "retain_versions": 1,
        "delete_unverified": True,
        "error_if_tagged_old_versions": False,
    }
    staged(path, store, 2)
    staged(path, store, 3)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "copy", forbidden)
        assert [version.version for version in dataset.versions()] == [1, 2, 3, 4]
        dataset.cleanup_old_versions(**policy)
    dataset.cleanup_old_versions(**policy)
    assert [version.version for version in dataset.versions()] == [2, 4]
    # A writer that lost version 1 and was killed.
    files = ObjectStore.from_uri(path, options)
    name = list_manifests(files)[0].scheme.name_of(1)
    files.write_bytes(f"_versions/{name}-0b8f9aa4-bd2c-4a4c-9b3c-0d9a4ba3ff05", b"")
    assert [item.version for item in list_manifests(files)] == [2, 4]
    assert lance_spark.open_dataset(path, tag="tag", storage_options=options).count_rows() == 2
    assert lance.dataset(path, version=2).to_table().num_rows == 2


def test_cleanup_without_the_manifest_store(
    store: InSqlite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without the store does not see a staged version, but must not damage it."""
    path = str(tmp_path / "t")
    options = {"manifest_store": NAMED, "database": store.path}
    lance_spark.write_dataset(rows(1), path, storage_options=options)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "copy", busy)
        lance_spark.write_dataset(rows(2), path, "append", storage_options=options)
    lance_spark.open_dataset(path).cleanup_old_versions(retain_versions=1, delete_unverified=True)
    assert lance_spark.open_dataset(path, storage_options=options).count_rows() == 2
    assert lance.dataset(path, version=2).to_table().num_rows == 2

"""Cleanup that is killed, on failing stores, and during commits of other clients."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import LanceError, MissingFileError, StorageError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup import plan as cleanup_plan
from lance_spark.table.cleanup.plan import Listing
from tests.support.tables.cleanup import (
    check,
    copy_of,
    files,
    folders,
    rows,
    versions,
)

OLD = {"retain_versions": 2}


class Killed(BaseException):
    """Simulates a kill of the process: no handler catches it."""


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    copy_of(template, tmp_path / "t")
    return tmp_path / "t"


def clean(path: Path, **options: Any) -> Any:
    return lance_spark.open_dataset(str(path)).cleanup_old_versions(**{**OLD, **options})


def failing_at(
    call: int, error: Callable[[str], BaseException], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], int]:
    """Let the store fail at deletion number `call`, counted from 0; return the counter of calls."""
    delete, remove_folder = ObjectStore._delete, ObjectStore.remove_folder
    calls = [0]

    def count(path: str) -> None:
        calls[0] += 1
        if calls[0] == call + 1:
            raise error(path)

    def failing_delete(self: ObjectStore, path: str) -> StorageError | None:
        try:
            count(path)
        except StorageError as failure:
            return failure
        return delete(self, path)

    def failing_remove(self: ObjectStore, folder: str) -> None:
        if error is Killed:
            count(folder)
        remove_folder(self, folder)

    monkeypatch.setattr(ObjectStore, "_delete", failing_delete)
    monkeypatch.setattr(ObjectStore, "remove_folder", failing_remove)
    return lambda: calls[0]


def expected(template: Path, tmp_path: Path) -> tuple[set[str], set[str]]:
    whole = tmp_path / "whole"
    copy_of(template, whole)
    clean(whole)
    return files(whole), folders(whole)


def readable_or_missing(path: Path) -> None:
    """Check that partly removed versions name a missing file, and that the others can be read."""
    for version in lance_spark.open_dataset(str(path)).versions():
        dataset = lance_spark.open_dataset(str(path), version=version.version)
        if version.version >= 8:
            assert dataset.to_table(blob_handling="all_binary").num_rows == dataset.count_rows()
            assert (
                lance.dataset(str(path), version=version.version).to_table(columns=["i"]).num_rows
            )
            continue
        try:
            dataset.to_table()
        except MissingFileError as error:
            assert str(path) in str(error)  # noqa: PT017


@pytest.mark.slow
def test_a_kill_at_any_deletion_keeps_the_table_readable(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = expected(template, tmp_path)
    path = tmp_path / "t"
    call = 0
    while True:
        copy_of(template, path)
        with monkeypatch.context() as patch:
            calls = failing_at(call, Killed, patch)
            try:
                clean(path)
            except Killed:
                pass
            else:
                break
            assert calls() == call + 1
        readable_or_missing(path)
        if call % 8:
            clean(path)
            assert (files(path), folders(path)) == left
        else:
            lance.dataset(str(path)).cleanup_old_versions(**OLD)
            assert files(path) == left[0]
        call += 1
    assert call == len(files(template)) - len(left[0]) + len(folders(template)) - len(left[1])


def test_a_failed_deletion_keeps_the_manifests(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = expected(template, tmp_path)
    path = tmp_path / "t"
    deleted = len(files(template)) - len(left[0])
    for call in range(0, deleted, 3):
        copy_of(template, path)
        with monkeypatch.context() as patch:
            failing_at(call, lambda name: StorageError(f"{name}: not today"), patch)
            stats = clean(path)
        assert stats.failed_deletes == 1
        assert stats.first_failure is not None
        assert "not today" in stats.first_failure
        assert len(stats.files) + 1 <= deleted
        assert set(versions(path)) | set(stats.versions) == set(range(1, 10))
        # The file that failed stays, and so do the manifests, which show that no job is writing it.
        if call < deleted - 7:
            assert stats.old_versions == 0
        clean(path)
        assert (files(path), folders(path)) == left


def during(monkeypatch: pytest.MonkeyPatch, step: str, action: Callable[[], object]) -> None:
    """Run `action` once: after the files were listed, or after the versions were sorted."""
    pending = [action]

    def run() -> None:
        if pending:
            pending.pop()()

    if step == "listed":
        list_files = cleanup_plan.list_files

        def listing(store: ObjectStore) -> Listing:
            result = list_files(store)
            run()
            return result

        monkeypatch.setattr(cleanup_plan, "list_files", listing)
        return
    decide = cleanup_plan.CleanupPlanner._sort_versions

    def deciding(self: Any, *arguments: Any) -> None:
        decide(self, *arguments)
        run()

    monkeypatch.setattr(cleanup_plan.CleanupPlanner, "_sort_versions", deciding)


def append_written_files(path: Path) -> None:
    """Commit files that were written before the cleanup started."""
    uri = str(path)
    lance.LanceDataset.commit(
        uri,
        lance.LanceOperation.Append(_UNCOMMITTED.pop(uri)),
        read_version=lance.dataset(uri).version,
    )


def append(path: Path) -> None:
    lance.write_dataset(rows(300), str(path), mode="append")
    lance.dataset(str(path)).delete("i = 303")


def restore(path: Path) -> None:
    lance.dataset(str(path), version=5).restore()


def tag(path: Path) -> None:
    lance.dataset(str(path)).tags.create("late", 4)


def branch(path: Path) -> None:
    lance.dataset(str(path)).create_branch("late", 2)


_UNCOMMITTED: dict[str, list[lance.FragmentMetadata]] = {}


@pytest.mark.parametrize("step", ["listed", "decided"])
@pytest.mark.parametrize(
    ("action", "rows_after", "kept"),
    [
        (append_written_files, 12, None),
        (append, 11, None),
        (restore, 9, None),
        (tag, 6, 4),
        (branch, 6, 2),
    ],
)
def test_concurrent_commits_keep_their_files(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    action: Callable[[Path], None],
    rows_after: int,
    kept: int | None,
) -> None:
    uri = str(path)
    unverified = action is append_written_files and step == "listed"
    if action is append_written_files:
        _UNCOMMITTED[uri] = lance.fragment.write_fragments(
            rows(200), uri, data_storage_version="2.2"
        )
    during(monkeypatch, step, lambda: action(path))
    # Even with `delete_unverified`: the files were committed before the manifests were read.
    stats = clean(path, delete_unverified=unverified, error_if_tagged_old_versions=False)
    assert set(range(1, 8)) - set(stats.versions) == ({kept} if kept else set())
    assert kept not in stats.versions
    check(path, ("late",) if action is branch else ())
    assert lance.dataset(uri).count_rows() == rows_after


def test_a_branch_created_meanwhile_keeps_its_parent(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    during(monkeypatch, "decided", lambda: lance.dataset(str(path)).create_branch("late", 3))
    stats = clean(path)
    assert stats.versions == (1, 2, 4, 5, 6, 7)
    check(path, ("late",))


@pytest.mark.slow
def test_concurrent_writers_and_cleanups(path: Path) -> None:
    uri = str(path)
    stop = time.monotonic() + 4
    errors: list[BaseException] = []
    written = [0]

    def write() -> None:
        at = 1_000
        while time.monotonic() < stop:
            lance.write_dataset(rows(at), uri, mode="append")
            lance.dataset(uri).delete(f"i = {at}")
            written[0] += 5
            at += 6

    def guarded(action: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                action()
            except BaseException as error:
                errors.append(error)

        return run

    def remove() -> None:
        while time.monotonic() < stop:
            clean(path)

    threads = [threading.Thread(target=guarded(action)) for action in (write, remove, remove)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    clean(path)
    assert len(versions(path)) == 2
    check(path)
    assert lance.dataset(uri).count_rows() == 6 + written[0]
    newest = lance_spark.open_dataset(uri)
    kept = {file.path for fragment in newest.fragments for file in fragment.files}
    assert {name.removeprefix("data/") for name in files(path) if name.endswith(".lance")} >= kept


def test_a_concurrent_cleanup_removes_versions_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed manifests are gone when they are read, and files when they are deleted."""
    list_manifests = cleanup_plan.list_manifests
    first = [True]

    def listing(store: ObjectStore) -> Any:
        result = list_manifests(store)
        if first:
            first.clear()
            lance.dataset(str(path)).cleanup_old_versions(versions=[1, 2, 3])
        return result

    monkeypatch.setattr(cleanup_plan, "list_manifests", listing)
    stats = clean(path)
    assert stats.versions == (4, 5, 6, 7)
    assert stats.failed_deletes == 0
    check(path)


@pytest.mark.parametrize("branch", [None, "b"])
def test_a_table_that_is_created_again_meanwhile_keeps_its_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, branch: str | None
) -> None:
    table = str(tmp_path / "new")
    uri = table if branch is None else f"{table}/tree/{branch}"
    data = pa.table({"i": [1, 2]})

    def make() -> None:
        if branch is None:
            lance.write_dataset(data, table, mode="create")
        else:
            lance.dataset(table).create_branch(branch, 1)
        for _ in range(3):
            lance.write_dataset(data, uri, mode="append")

    def make_again() -> None:
        if branch is None:
            shutil.rmtree(table)
        else:
            lance.dataset(table).branches.delete(branch)
        make()

    if branch is not None:
        lance.write_dataset(data, table)
    make()
    during(monkeypatch, "decided", make_again)
    stats = lance_spark.open_dataset(uri).cleanup_old_versions(retain_versions=1)
    assert stats.versions == ()
    versions_left = [version["version"] for version in lance.dataset(uri).versions()]
    assert sorted(versions_left) == [1, 2, 3, 4]
    for version in versions_left:
        assert lance.dataset(uri, version=version).to_table().num_rows == 2 * version


def test_remote_stores_delete_files_concurrently(path: Path) -> None:
    """The same files are removed from a store behind fsspec, with concurrent requests."""
    remote = f"memory://cleanup-{os.getpid()}/t"
    store = ObjectStore.from_uri(remote)
    for name in files(path):
        store.write_bytes(name, (path / name).read_bytes())
    at_once, most, lock = [0], [0], threading.Lock()
    delete = ObjectStore._delete

    def slow(self: ObjectStore, path: str) -> StorageError | None:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.002)
        error = delete(self, path)
        with lock:
            at_once[0] -= 1
        return error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectStore, "_delete", slow)
        remote_stats = lance_spark.open_dataset(remote).cleanup_old_versions(
            **OLD, delete_concurrency=4
        )
    assert most[0] in (2, 3, 4)
    local_stats = clean(path)
    assert {file.path for file in remote_stats.files} == {file.path for file in local_stats.files}
    left = {
        info.path
        for folder in ("data", "_versions", "_indices")
        for info in store.list_tree(folder)
    }
    assert left == {
        name for name in files(path) if name.startswith(("data/", "_versions/", "_indices/"))
    }
    with pytest.raises(LanceError):
        lance_spark.open_dataset(remote, version=1)

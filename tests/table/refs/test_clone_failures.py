"""Clones that fail, are killed, or meet changes of other clients."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

from lance_spark import open_dataset
from lance_spark.errors import (
    MissingFileError,
    StorageError,
    TableExistsError,
    UncertainCommitError,
)
from lance_spark.storage import copies
from lance_spark.storage.copies import Copy
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from tests.support.tables.damaged import files_below
from tests.support.tables.pylance_written import ids, rows
from tests.table.refs.clone_calls import BOTH, read_ids, source_table

#: These tests copy tables in each way.
pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> str:
    return source_table(tmp_path)


class Killed(BaseException):
    pass


@BOTH
def test_a_deep_clone_can_be_repeated_after_a_kill_at_any_step(
    path: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the manifest exists, no table exists; a second attempt makes the clone."""
    target = Path(path + "-c")
    create = versions.create_manifest
    put = ObjectStore.write_bytes
    steps: list[int] = []

    def step() -> None:
        if not steps[0]:
            raise Killed
        steps[0] -= 1

    def put_dead(self: ObjectStore, *args: Any, **named: Any) -> None:
        step()
        put(self, *args, **named)

    def create_dead(*args: Any) -> bool:
        step()
        return create(*args)

    copy = copies.copy_file

    def copy_dead(file_copy: Copy) -> None:
        step()
        copy(file_copy)

    for kill_at in range(40):
        steps[:] = [kill_at]
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "write_bytes", put_dead)
            patch.setattr(versions, "create_manifest", create_dead)
            patch.setattr(copies, "copy_file", copy_dead)
            # A killed process does not run this.
            patch.setattr(ObjectStore, "delete", lambda self, paths: None)
            try:
                getattr(open_dataset(path), method)(str(target))
                done = True
            except Killed:
                done = False
        if done:
            assert kill_at >= (2 if method == "shallow_clone" else 8)
            return
        if versions.list_manifests(ObjectStore.from_uri(target)):
            # Only the hint is written after the manifest.
            assert read_ids(str(target)) == [0, *range(2, 9)]
            shutil.rmtree(target)
            continue
        getattr(open_dataset(path), method)(str(target))
        assert read_ids(str(target)) == [0, *range(2, 9)]
        shutil.rmtree(target)
    raise AssertionError("never done")


def test_a_missing_source_file_fails_the_clone(path: str) -> None:
    next((Path(path) / "data").iterdir()).unlink()
    with pytest.raises(MissingFileError, match="data/"):
        open_dataset(path).deep_clone(path + "-c")
    assert files_below(Path(path + "-c")) == set()


def test_a_store_that_fails_at_the_manifest(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create = versions.create_manifest

    def answer_is_lost(*args: Any) -> bool:
        create(*args)
        raise StorageError("lost")

    def refused(*args: Any) -> bool:
        raise StorageError("refused")

    monkeypatch.setattr(versions, "create_manifest", answer_is_lost)
    open_dataset(path).shallow_clone(path + "-c")
    assert read_ids(path + "-c") == [0, *range(2, 9)]
    monkeypatch.setattr(versions, "create_manifest", refused)
    with pytest.raises(StorageError, match="refused"):
        open_dataset(path).deep_clone(path + "-d")
    assert not [name for name in files_below(Path(path + "-d")) if name.endswith(".lance")]


@BOTH
def test_a_repeated_request_recognises_its_own_manifest(
    path: str, method: str, repeat_puts: Callable[[], None]
) -> None:
    """The answer was lost: the existing manifest is our own."""
    repeat_puts()
    made = getattr(open_dataset(path), method)(path + "-c")
    assert read_ids(made.uri) == [0, *range(2, 9)]
    assert made.read_transaction(made.version) is not None
    assert len(list((Path(path + "-c") / "_transactions").iterdir())) == 1


@pytest.mark.parametrize("failures", [1, 99])
def test_a_delayed_request_for_the_manifest_is_uncertain(
    path: str, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files must stay as long as the request may still arrive."""
    put = ObjectStore.put_if_absent
    late: list[tuple[Any, ...]] = []

    def delayed(self: ObjectStore, *args: Any) -> bool:
        if len(late) < failures:
            late.append((self, *args))
            raise StorageError("no answer") from TimeoutError()
        return put(self, *args)

    monkeypatch.setattr(ObjectStore, "put_if_absent", delayed)
    if failures == 1:
        open_dataset(path).deep_clone(path + "-c")
    else:
        with pytest.raises(UncertainCommitError, match="no answer"):
            open_dataset(path).deep_clone(path + "-c")
    for request in late:
        put(*request)
    assert read_ids(path + "-c") == [0, *range(2, 9)]


def test_a_failing_clone_keeps_files_of_a_concurrent_one(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies of both clones have the same names, and the failing clone deletes its own."""
    copy = copies.copy_file
    target = Path(path + "-c")
    doomed = sorted((Path(path) / "data").iterdir())[-1]

    def fail(file_copy: Copy) -> None:
        copy(file_copy)
        if file_copy.path.endswith(doomed.name):
            raise MissingFileError("broken off")

    def interleaved(file_copy: Copy) -> None:
        copy(file_copy)
        if file_copy.path.endswith(doomed.name):
            monkeypatch.setattr(copies, "copy_file", copy)
            # The temporary files stay: other threads are copying into them.
            for name in (target / "data").glob("[!.]*"):
                name.unlink()

    monkeypatch.setattr(copies, "copy_file", interleaved)
    open_dataset(path).deep_clone(str(target))
    assert read_ids(str(target)) == [0, *range(2, 9)]

    # The failing clone stops once a table exists.
    delete = ObjectStore.delete

    def overtaken(self: ObjectStore, paths: Any) -> None:
        delete(self, paths)
        monkeypatch.setattr(ObjectStore, "delete", delete)
        monkeypatch.setattr(copies, "copy_file", copy)
        open_dataset(path).deep_clone(str(target))

    shutil.rmtree(target)
    monkeypatch.setattr(copies, "copy_file", fail)
    monkeypatch.setattr(ObjectStore, "delete", overtaken)
    with pytest.raises(MissingFileError, match="broken off"):
        open_dataset(path).deep_clone(str(target))
    assert read_ids(str(target)) == [0, *range(2, 9)]


def test_another_client_creates_a_table_at_the_target(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = versions.create_manifest

    def late(*args: Any) -> bool:
        lance.write_dataset(rows(0), path + "-c")
        return create(*args)

    monkeypatch.setattr(versions, "create_manifest", late)
    with pytest.raises(TableExistsError, match="another client"):
        open_dataset(path).deep_clone(path + "-c")
    monkeypatch.undo()
    assert ids(Path(path + "-c")) == [0, 1, 2]


def test_another_client_commits_to_the_clone_at_once(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit on the new version, before the check for other tables, is not another table."""
    create = versions.create_manifest

    def early(*args: Any) -> bool:
        monkeypatch.undo()
        created = create(*args)
        lance.write_dataset(rows(50), path + "-c", mode="append")
        return created

    def another(*args: Any) -> bool:
        monkeypatch.undo()
        created = create(*args)
        lance.dataset(path).shallow_clone(path + "-e", 4)
        # The check was before the commit.
        shutil.copytree(path + "-e", path + "-d", dirs_exist_ok=True)
        return created

    monkeypatch.setattr(versions, "create_manifest", early)
    open_dataset(path).shallow_clone(path + "-c", 4)
    assert read_ids(path + "-c") == [0, *range(2, 9), 50, 51, 52]
    assert [version.version for version in open_dataset(path + "-c").versions()] == [4, 5]

    monkeypatch.setattr(versions, "create_manifest", another)
    with pytest.raises(TableExistsError, match="another client"):
        open_dataset(path).shallow_clone(path + "-d", 3)
    assert [version.version for version in open_dataset(path + "-d").versions()] == [4]


def test_a_failed_deep_clone_keeps_existing_files(path: str) -> None:
    """Another table that uses the folder can have files with the same names."""
    lost, kept = sorted((Path(path) / "data").iterdir())[:2]
    target = Path(path + "-c") / "data"
    target.mkdir(parents=True)
    shutil.copy(kept, target)
    lost.unlink()
    with pytest.raises(MissingFileError):
        open_dataset(path).deep_clone(path + "-c")
    assert files_below(Path(path + "-c")) == {f"data/{kept.name}"}


def test_a_copied_file_is_never_seen_in_part(tmp_path: Path) -> None:
    """A concurrent clone to the same path must never see a partly written file."""
    source, target = ObjectStore.from_uri(tmp_path / "a"), ObjectStore.from_uri(tmp_path / "b")
    source.write_bytes("x", b"new")
    target.write_bytes("x", b"old")
    output = target.open_output("x", replace=True)
    output.write(b"part")
    assert target.read_bytes("x") == b"old"
    output.abort()
    copies.copy_file(Copy(source, "x", target, "x"))
    assert target.read_bytes("x") == b"new"
    assert target.list_names("") == ["x"]

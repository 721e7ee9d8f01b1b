"""Past bugs that schedules found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import (
    CommitConflictError,
    CorruptFileError,
    StorageError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.storage import local
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup.plan import CleanupPlan, CleanupPlanner
from lance_spark.table.cleanup.run import policy_for
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.versions import ManifestLocation
from lance_spark.table.refs import tags
from tests.faults.objects import Objects
from tests.faults.schedule import Schedule
from tests.faults.store import Place, registered

URI = "s3://bucket/table"
ROWS = pa.table({"id": pa.array(range(4), pa.int64())})


class Script:
    """Faults that a test chooses: the first call that matches gets its fault."""

    def __init__(self) -> None:
        self.todo: list[tuple[str, str, Callable[[Callable[[], Any]], Any]]] = []

    def call(self, call: str, path: str, effect: Callable[[], Any]) -> Any:
        if self.todo and call == self.todo[0][0] and self.todo[0][1] in path:
            return self.todo.pop(0)[2](effect)
        return effect()


@pytest.fixture
def script() -> Iterator[Script]:
    calls = Script()
    Place.objects, Place.schedule, Place.deletes_singly = Objects(), Schedule(0), True
    Place.faults = calls  # type: ignore[assignment]
    with registered():
        yield calls


def twice(effect: Callable[[], Any]) -> Any:
    effect()
    return effect()


def fails(_: Callable[[], Any]) -> Any:
    raise OSError(5, "no such server")


def lost(effect: Callable[[], Any]) -> Any:
    effect()
    raise OSError(5, "no such answer")


def refused(_: Callable[[], Any]) -> Any:
    raise PermissionError(13, "deletion is forbidden")


def test_an_existing_manifest_does_not_prove_a_commit_of_another_client(script: Script) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI)
    script.todo = [("create", "_versions/", twice), ("get", "_versions/", fails)]
    with pytest.raises(UncertainCommitError):
        dataset.update({"id": 9}, [("id", "==", 3)])
    assert not script.todo
    newest = lance_spark.open_dataset(URI)
    assert newest.version == 2
    assert sorted(newest.to_table()["id"].to_pylist()) == [0, 1, 2, 9]


def test_a_conflict_is_raised_if_the_files_cannot_be_deleted(script: Script) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI)

    def overtaken(effect: Callable[[], Any]) -> Any:
        dataset.restore()
        return effect()

    script.todo = [("put", "data/", overtaken), ("delete", "data/", fails)]
    with pytest.raises(CommitConflictError):
        lance_spark.write_dataset(ROWS, URI, "append")
    assert not script.todo


def test_the_error_names_the_cause_of_a_failed_write(script: Script) -> None:
    lance_spark.write_dataset(ROWS, URI)
    script.todo = [("put", "data/", fails), *[("delete", "data/", refused)] * 2]
    with pytest.raises(StorageError, match="no such server"):
        lance_spark.write_dataset(ROWS, URI, "append")


@pytest.mark.parametrize("folder", ["_transactions/", "_deletions/"])
def test_a_small_file_whose_answer_is_lost_does_not_stay(script: Script, folder: str) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI)
    before = set(Place.objects.now)
    script.todo = [("put", folder, lost)]
    with pytest.raises(StorageError, match="no such answer"):
        dataset.delete([("id", "==", 3)])
    assert not script.todo
    assert set(Place.objects.now) == before


@pytest.mark.parametrize("call", ["remove", "sync_folder"])
def test_a_commit_that_may_not_tidy_up_is_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path))
    original = getattr(local, call)

    def forbidden(path: str) -> None:
        original(path)
        if "_versions" in path:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(local, call, forbidden)
    updated = dataset.update({"id": 9}, [("id", "==", 3)])
    monkeypatch.undo()
    assert updated.version == lance_spark.open_dataset(str(tmp_path)).version == 2
    assert sorted(updated.to_table()["id"].to_pylist()) == [0, 1, 2, 9]


def test_a_version_that_was_cleaned_up_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path))
    create = versions.create_manifest

    def late(store: ObjectStore, location: ManifestLocation, data: bytes) -> bool:
        monkeypatch.undo()
        newest = dataset.update_config({"a": "1"}).update_config({"a": "2"})
        newest.cleanup_old_versions(timedelta(0))
        return create(store, location, data)

    monkeypatch.setattr(versions, "create_manifest", late)
    with pytest.raises(UncertainCommitError, match="cleanup may have removed an earlier version"):
        dataset.delete([("id", "==", 3)])
    newest = lance_spark.open_dataset(str(tmp_path))
    assert newest.version == 3
    assert newest.to_table()["id"].to_pylist() == [0, 1, 2, 3]
    # The deletion file of the old version is removed with it.
    newest.cleanup_old_versions(timedelta(0))
    assert [version.version for version in newest.versions()] == [3]
    assert not list((tmp_path / "_deletions").iterdir())


@pytest.mark.parametrize("method", ["shallow_clone", "deep_clone"])
def test_a_clone_that_cannot_be_looked_at_is_no_failure(script: Script, method: str) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI)

    def seen(effect: Callable[[], Any]) -> Any:
        effect()
        # From now on, the store answers no listing.
        script.todo = [("list", "clone/_versions", fails)]

    script.todo = [("create", "clone/_versions", seen)]
    with pytest.raises(UncertainCommitError, match="check whether the table exists"):
        getattr(dataset, method)("s3://bucket/clone")
    assert not script.todo
    clone = lance_spark.open_dataset("s3://bucket/clone")
    assert clone.to_table()["id"].to_pylist() == [0, 1, 2, 3]


def test_copies_that_can_be_deleted_are_when_a_clone_fails(script: Script) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI, max_rows_per_file=1)
    script.todo = [("create", "clone/_versions", refused), ("delete", "clone/data", refused)]
    with pytest.raises(StorageError, match="permission denied"):
        dataset.deep_clone("s3://bucket/clone")
    assert not script.todo
    (remaining_path,) = Place.objects.below("bucket/clone")
    assert "/data/" in remaining_path


def test_a_clone_whose_transaction_has_no_answer_leaves_none(script: Script) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI)
    script.todo = [("put", "clone/_transactions/", lost)]
    with pytest.raises(StorageError, match="no such answer"):
        dataset.shallow_clone("s3://bucket/clone")
    assert not script.todo
    assert not Place.objects.below("bucket/clone")


def called_back(change: str, dataset: lance_spark.Dataset) -> None:
    """Refer to the first version of a table again. The handle is open at this version."""
    if change == "tag":
        dataset.tags.create("kept")
    elif change == "moved tag":
        dataset.tags.update("moved")
    elif change == "branch":
        dataset.create_branch("kept")
    else:
        dataset.restore()


@pytest.mark.parametrize("change", ["tag", "moved tag", "branch", "restore"])
@pytest.mark.parametrize("step", ["plan", "look_again"])
def test_a_version_restored_or_tagged_during_a_cleanup_stays_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, step: str
) -> None:
    first = lance_spark.write_dataset(ROWS, str(tmp_path))
    second = lance_spark.write_dataset(ROWS, str(tmp_path), "overwrite")
    newest = second.delete([("id", "==", 1)])
    newest.tags.create("moved")
    original = getattr(CleanupPlanner, step)

    def then(planner: CleanupPlanner, *arguments: Any, **named: Any) -> CleanupPlan:
        monkeypatch.undo()
        plan: CleanupPlan = original(planner, *arguments, **named)
        if step == "plan":
            called_back(change, first)
            return plan
        with pytest.raises(VersionNotFoundError, match="version 1 is being removed by a cleanup"):
            called_back(change, first)
        return plan

    monkeypatch.setattr(CleanupPlanner, step, then)
    stats = newest.cleanup_old_versions(timedelta(0))
    reopened = lance_spark.open_dataset(str(tmp_path))
    if step == "look_again":
        assert stats.versions == (1, 2)
        assert {name: tag["version"] for name, tag in reopened.tags.list().items()} == {"moved": 3}
        assert not reopened.branches.list()
        assert reopened.version == 3
        return
    if change == "branch":
        reopened = lance_spark.open_dataset(f"{tmp_path}/tree/kept")
    elif change != "restore":
        tag = {"tag": "kept", "moved tag": "moved"}[change]
        reopened = lance_spark.open_dataset(str(tmp_path), tag=tag)
    assert reopened.to_table()["id"].to_pylist() == [0, 1, 2, 3]
    if change != "restore":
        assert stats.versions == (2,)


def test_a_cleanup_does_not_promise_a_version_that_another_cleanup_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lance_spark.write_dataset(ROWS, str(tmp_path))
    newest = lance_spark.write_dataset(ROWS, str(tmp_path), "overwrite")
    look, check = CleanupPlanner.look_again, tags.check_named

    def then(planner: CleanupPlanner, *arguments: Any, **named: Any) -> CleanupPlan:
        monkeypatch.undo()
        plan = look(planner, *arguments, **named)
        # One cleanup has checked the tags. Another cleanup has planned to remove the same version.
        # Then the tag is created, and only the other cleanup sees it.
        other_cleanup = CleanupPlanner(
            ObjectStore.from_uri(tmp_path), policy_for(timedelta(0)), None
        )
        assert [version for version, _ in other_cleanup.plan(None).manifests] == [1]

        def held(*arguments: Any) -> None:
            assert not other_cleanup.look_again(is_marked=True).manifests
            check(*arguments)

        monkeypatch.setattr(tags, "check_named", held)
        with pytest.raises(VersionNotFoundError, match="version 1 is being removed by a cleanup"):
            first.tags.create("kept")
        return plan

    monkeypatch.setattr(CleanupPlanner, "look_again", then)
    assert newest.cleanup_old_versions(timedelta(0)).versions == (1,)
    assert not newest.tags.list()


def test_a_version_stays_if_its_transaction_file_does(script: Script) -> None:
    """A client that creates a tag checks this file."""
    first = lance_spark.write_dataset(ROWS, URI)
    newest = lance_spark.write_dataset(ROWS, URI, "overwrite")
    script.todo = [("delete", "_transactions/", refused)]
    stats = newest.cleanup_old_versions(timedelta(0))
    assert (stats.versions, stats.failed_deletes, stats.data_files_removed) == ((), 1, 0)
    first.tags.create("kept", 1)
    assert lance_spark.open_dataset(URI, tag="kept").to_table() == ROWS


def test_a_restore_that_is_under_way_keeps_its_version(script: Script) -> None:
    first = lance_spark.write_dataset(ROWS, URI)
    newest = lance_spark.write_dataset(ROWS, URI, "overwrite").delete([("id", "==", 1)])

    def cut(effect: Callable[[], Any]) -> Any:
        return effect()[:-1]

    def held(effect: Callable[[], Any]) -> Any:
        # A file that is read only in part is not taken for another file.
        script.todo = [("get", "_transactions/", cut)]
        with pytest.raises(CorruptFileError, match="_transactions/"):
            newest.cleanup_old_versions(timedelta(0))
        assert not script.todo
        assert newest.cleanup_old_versions(timedelta(0)).versions == (2,)
        return effect()

    script.todo = [("create", "_versions/", held)]
    restored = first.restore()
    assert restored.version == 4
    assert restored.to_table()["id"].to_pylist() == [0, 1, 2, 3]


def test_columns_have_values_in_rows_that_a_restore_brings_back(tmp_path: Path) -> None:
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path))
    newest = dataset.delete([("id", "==", 1)])
    calls = 0

    def double(rows: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal calls
        calls += 1
        # The first call determines the type. During the second call, which computes values, another
        # client commits.
        if calls == 2:
            newest.update({"id": 3}, [("id", "==", 3)])
            dataset.restore()
        doubled = [2 * number for number in rows.column("id").to_pylist()]
        return pa.record_batch({"double": pa.array(doubled, pa.int64())})

    table = newest.add_columns(double).to_table()
    assert table["double"].to_pylist() == [0, 2, 4, 6]


def test_columns_are_not_computed_again_for_rows_that_others_delete(tmp_path: Path) -> None:
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path)).delete([("id", "==", 1)])
    rows = []

    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows.append(batch.num_rows)
        if len(rows) == 2:
            dataset.delete([("id", "==", 2)])
        doubled = [2 * number for number in batch.column("id").to_pylist()]
        return pa.record_batch({"double": pa.array(doubled, pa.int64())})

    table = dataset.add_columns(double).to_table()
    assert table["double"].to_pylist() == [0, 6]
    # The calls compute types, values, and types again: the file is used again.
    assert rows == [3, 3, 2]


def test_an_existing_tag_is_compared_as_a_whole(script: Script) -> None:
    """A request arrived twice, and the answer to the check was cut short: the writer took its tag
    for the tag of another client.
    """
    dataset = lance_spark.write_dataset(ROWS, URI)
    script.todo = [
        ("create", "_refs/tags/", twice),
        ("get", "_refs/tags/", lambda effect: effect()[:7]),
    ]
    dataset.tags.create("t")
    assert not script.todo
    assert lance_spark.open_dataset(URI).tags.list()["t"]["version"] == 1

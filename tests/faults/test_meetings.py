"""Operations that meet in ways which schedules do not reach: clones, detached versions, branches
that are created again, repeated writes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import lance_spark
from lance_spark import Dataset
from lance_spark.errors import (
    AlreadyCommittedError,
    CommitConflictError,
    TableExistsError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup.plan import CleanupPlan, CleanupPlanner
from lance_spark.table.commit import commit as detached
from lance_spark.table.commit.options import WriteToken
from lance_spark.table.commit.write import WriteJob, begin_write, commit_or_clean_up
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.versions import ManifestLocation
from lance_spark.table.operations.append import Append, field_paths
from lance_spark.table.refs import clones
from tests.faults.store import Place
from tests.faults.test_regressions import ROWS, URI, Script, fails, refused, script

__all__ = ["script"]

NOW = timedelta(0)


def ids(dataset: Dataset) -> list[int]:
    numbers: list[int] = dataset.to_table()["id"].to_pylist()
    return numbers


def written(job: WriteJob) -> list[Fragment]:
    writer = job.writer()
    for batch in ROWS.to_batches():
        writer.write(batch)
    return writer.finish()


def test_a_clone_that_is_refused_after_doubt_keeps_its_copies(script: Script) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI)
    late: list[Callable[[], Any]] = []

    def delayed(effect: Callable[[], Any]) -> Any:
        late.append(effect)
        raise OSError(5, "no answer in time")

    script.todo = [("create", "clone/_versions", delayed), ("create", "clone/_versions", refused)]
    with pytest.raises(UncertainCommitError, match="no answer in time"):
        dataset.deep_clone("s3://bucket/clone")
    late[0]()
    assert ids(lance_spark.open_dataset("s3://bucket/clone")) == [0, 1, 2, 3]


def test_a_clone_copies_files_again_that_another_client_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path / "t"))
    create = versions.create_manifest

    def taken(store: ObjectStore, location: ManifestLocation, data: bytes) -> bool:
        for name in (tmp_path / "c/data").iterdir():
            name.unlink()
        return create(store, location, data)

    monkeypatch.setattr(versions, "create_manifest", taken)
    assert ids(dataset.deep_clone(str(tmp_path / "c"))) == [0, 1, 2, 3]


def test_a_write_does_not_follow_a_clone_that_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "target")
    first = lance_spark.write_dataset(ROWS, str(tmp_path / "one"))
    second = lance_spark.write_dataset(ROWS, str(tmp_path / "two")).delete([("id", "<", 3)])
    empty, alone = clones._check_empty, clones._has_another
    jobs: list[WriteJob] = []

    def late(store: ObjectStore) -> None:
        empty(store)
        monkeypatch.setattr(clones, "_check_empty", empty)
        first.shallow_clone(target)
        jobs.append(begin_write(target, ROWS.schema))
        monkeypatch.setattr(clones, "_has_another", seen)

    def seen(store: ObjectStore, version: int) -> bool:
        monkeypatch.setattr(clones, "_has_another", alone)
        with pytest.raises(CommitConflictError, match="version 2 is the first version of a clone"):
            commit_or_clean_up(jobs[0], written(jobs[0]))
        return alone(store, version)

    monkeypatch.setattr(clones, "_check_empty", late)
    with pytest.raises(TableExistsError, match="another client has just created a table"):
        second.shallow_clone(target)
    assert ids(lance_spark.open_dataset(target)) == [0, 1, 2, 3]
    assert commit_or_clean_up(jobs[0], written(jobs[0])).version == 2


@pytest.mark.parametrize("kept", [False, True])
def test_a_detached_version_beside_a_cleanup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """The later operation sees the earlier operation."""
    uri = str(tmp_path)
    lance_spark.write_dataset(ROWS, uri)
    newest = lance_spark.write_dataset(ROWS, uri, "overwrite")
    job = begin_write(uri, ROWS.schema)
    operation = Append(tuple(written(job)), field_paths(job.schema.to_protos()))
    detached_versions: list[Dataset] = []
    look = CleanupPlanner.look_again

    def commit() -> None:
        detached_versions.append(Dataset.commit(uri, operation, 1, detached=True))

    def then(planner: CleanupPlanner, *arguments: Any, **named: Any) -> CleanupPlan:
        monkeypatch.undo()
        if kept:
            # The commit has checked for marks before. Cleanup checks again after the commit.
            monkeypatch.setattr(detached, "check_named", lambda *_: None)
            commit()
            return look(planner, *arguments, **named)
        plan = look(planner, *arguments, **named)
        with pytest.raises(VersionNotFoundError, match="version 1 is being removed by a cleanup"):
            commit()
        return plan

    monkeypatch.setattr(CleanupPlanner, "look_again", then)
    newest.cleanup_old_versions(NOW)
    if kept:
        assert ids(detached_versions[0]) == [0, 1, 2, 3] * 2
    else:
        assert not [name for name in (tmp_path / "_versions").iterdir() if name.name[0] == "d"]


def test_a_detached_version_that_cannot_be_looked_at_is_uncertain(script: Script) -> None:
    lance_spark.write_dataset(ROWS, URI)
    job = begin_write(URI, ROWS.schema)
    operation = Append(tuple(written(job)), field_paths(job.schema.to_protos()))

    def repeated(effect: Callable[[], Any]) -> Any:
        effect()
        script.todo = [("get", "_versions/d", refused)]
        return effect()

    script.todo = [("create", "_versions/d", repeated)]
    with pytest.raises(UncertainCommitError, match="check whether the version exists"):
        Dataset.commit(URI, operation, 1, detached=True)
    assert not script.todo
    (path,) = (path for path in Place.objects.now if "_versions/d" in path)
    version = int(path.rpartition("/d")[2].removesuffix(".manifest"))
    assert ids(lance_spark.open_dataset(URI, version)) == [0, 1, 2, 3] * 2


def test_a_branch_that_was_made_again_during_a_cleanup_keeps_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new branch begins with a version number of the earlier branch, which the cleanup has
    planned to remove.
    """
    uri = str(tmp_path)

    def overwritten(uri_of_table: str) -> Dataset:
        return lance_spark.write_dataset(ROWS, uri_of_table, "overwrite")

    history = [overwritten(uri) for _ in range(6)]
    branch = history[2].create_branch("x").uri
    overwritten(branch)
    overwritten(branch)
    lance_spark.open_dataset(branch).cleanup_old_versions(NOW)
    overwritten(branch)
    plan = CleanupPlanner.plan

    def then(planner: CleanupPlanner, *arguments: Any) -> CleanupPlan:
        monkeypatch.undo()
        cleanup_plan = plan(planner, *arguments)
        assert [version for version, _ in cleanup_plan.manifests] == [1, 2, 3, 4, 5]
        history[5].branches.delete("x")
        history[4].create_branch("x")
        return cleanup_plan

    monkeypatch.setattr(CleanupPlanner, "plan", then)
    assert history[5].cleanup_old_versions(NOW).versions == (1, 2, 3, 4)
    assert ids(lance_spark.open_dataset(branch)) == [0, 1, 2, 3]


def test_a_write_that_is_tried_again_keeps_the_files_that_were_committed(script: Script) -> None:
    lance_spark.write_dataset(ROWS, URI)
    job = begin_write(URI, ROWS.schema)
    fragments, token = written(job), WriteToken.of_app("app", 1)

    def outage(effect: Callable[[], Any]) -> Any:
        effect()
        script.todo = [("get", "_versions/", fails), ("list", "_versions", fails)]
        raise OSError(5, "no answer")

    script.todo = [("create", "_versions/", outage)]
    with pytest.raises(UncertainCommitError):
        commit_or_clean_up(job, fragments, write_token=token)
    script.todo = []
    second_try = written(job)
    with pytest.raises(AlreadyCommittedError):
        commit_or_clean_up(job, [*fragments, *second_try], write_token=token)
    assert ids(lance_spark.open_dataset(URI)) == [0, 1, 2, 3] * 2
    # The files that were not committed are deleted.
    names = {name.rpartition("/")[2] for name in Place.objects.below("bucket/table/data")}
    assert names.isdisjoint(file.path for fragment in second_try for file in fragment.files)

"""Removal of files of failed jobs, and of no other files."""

from __future__ import annotations

import datetime
from pathlib import Path

import lance
import pytest

from lance_spark.errors import InvalidInputError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup.run import cleanup, policy_for_failed_jobs
from tests.support.tables.cleanup import (
    check,
    failed_jobs,
    files,
    strangers,
    versions,
    write_everything,
)

DAY = 24 * 3600


def days(number: float) -> datetime.timedelta:
    return datetime.timedelta(days=number)


def test_only_unreferenced_files_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_everything(path)
    lance.dataset(str(path)).tags.create("first", 1)
    before, existing_versions = files(path), versions(path)
    failed = set(failed_jobs(path, 2 * DAY))
    strange = set(strangers(path))
    store = ObjectStore.from_uri(path)

    young = cleanup(store, policy_for_failed_jobs(days(3)))
    assert (young.files, young.bytes_removed) == ((), 0)
    assert files(path) == before | failed | strange

    planned = cleanup(store, policy_for_failed_jobs(days(1)), dry_run=True)
    assert {file.path for file in planned.files} == failed
    assert files(path) == before | failed | strange

    removed = cleanup(store, policy_for_failed_jobs(days(1)))
    assert removed == planned
    assert (removed.old_versions, removed.bytes_removed) == (0, 10 * len(failed))
    assert all(file.unverified for file in removed.files)
    assert files(path) == before | strange
    assert versions(path) == existing_versions
    check(path)


def test_files_of_other_branches_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_everything(path)
    lance.dataset(str(path)).create_branch("b", 2)
    # Only the branch remains of the versions with these files.
    lance.dataset(str(path)).cleanup_old_versions(retain_versions=1, delete_unverified=True)
    before = files(path)
    failed_jobs(path, 2 * DAY)
    cleanup(ObjectStore.from_uri(path), policy_for_failed_jobs(days(0)))
    assert files(path) == before
    check(path, ("b",))


def test_negative_ages_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="negative"):
        policy_for_failed_jobs(days(-1))

from __future__ import annotations

import datetime
import shutil
import time
from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.table.cleanup.run import CleanupStats
from tests.support.tables.cleanup import (
    WEEK,
    check,
    copy_of,
    failed_jobs,
    files,
    folders,
    rows,
    strangers,
    versions,
    write_everything,
)

DAY = datetime.timedelta(days=1)
STATS = (
    "bytes_removed",
    "old_versions",
    "data_files_removed",
    "transaction_files_removed",
    "index_files_removed",
    "deletion_files_removed",
    "failed_deletes",
)


class Table:
    """A table that is restored after each cleanup, in place, since base paths are absolute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._template = path.with_name("template")
        shutil.copytree(path, self._template)

    def fresh(self) -> Path:
        copy_of(self._template, self.path)
        return self.path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("plain") / "t"
    write_everything(path)
    return Table(path)


@pytest.fixture(scope="module")
def referenced(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table with tags and branches."""
    path = tmp_path_factory.mktemp("referenced") / "t"
    write_everything(path)
    dataset = lance.dataset(str(path))
    dataset.tags.create("five", 5)
    branch = dataset.create_branch("b", 2)
    branch = lance.write_dataset(rows(50), branch.uri, mode="append")
    branch.delete("i in (1, 51)")
    deep = branch.create_branch("feat/x", ("b", 3))
    lance.write_dataset(rows(70), deep.uri, mode="append")
    lance.write_dataset(rows(60), str(path / "tree" / "b"), mode="overwrite")
    lance.dataset(str(path)).tags.create("on-b", ("b", 4))
    return Table(path)


def theirs(path: Path, **options: Any) -> Any:
    return lance.dataset(str(path)).cleanup_old_versions(**options)


def ours(path: Path, **options: Any) -> CleanupStats:
    return lance_spark.open_dataset(str(path)).cleanup_old_versions(**options)


POLICIES: list[dict[str, Any]] = [
    {"retain_versions": 1},
    {"retain_versions": 3},
    {"retain_versions": 5},
    {"retain_versions": 100},
    {"older_than": datetime.timedelta(microseconds=1)},
    {"older_than": DAY},
    {},
    {"older_than": DAY, "retain_versions": 1},
    {"versions": [2, 4, 9, 77]},
    {"versions": [1, 2, 3], "retain_versions": 8},
    {"retain_versions": 2, "delete_unverified": True},
]


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("age", [0, WEEK + 60], ids=["young", "old"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_cleanup_removes_what_pylance_removes(
    table: Table, policy: dict[str, Any], age: float
) -> None:
    left = []
    for clean in (theirs, ours):
        path = table.fresh()
        failed = failed_jobs(path, age)
        strange = strangers(path)
        clean(path, **policy)
        left.append((versions(path), files(path), folders(path)))
        check(path)
    assert set(strange) <= left[1][1]
    assert left[1][0] == left[0][0]
    # pylance ignores temporary files of this package. This package ignores some folders that
    # pylance reads.
    more = {name for name in left[0][1] if name.endswith(".tmp")}
    if policy.get("delete_unverified"):
        # In some folders pylance never removes files newer than the oldest remaining version.
        more |= {
            name for name in failed if name.startswith(("_deletions", "_transactions", "_versions"))
        }
        assert left[1][1].isdisjoint(failed)
    assert left[1][1] | more == left[0][1] | set(strange) | more


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_statistics(table: Table, policy: dict[str, Any]) -> None:
    result = []
    for clean in (theirs, ours):
        path = table.fresh()
        before = {name: (path / name).stat().st_size for name in files(path)}
        stats = clean(path, **policy)
        result.append({name: getattr(stats, name) for name in STATS})
    assert result[0] == result[1]
    removed = {name: size for name, size in before.items() if name not in files(path)}
    assert {file.path: file.size_bytes for file in stats.files} == removed
    assert sum(removed.values()) == stats.bytes_removed
    assert stats.versions == tuple(sorted(set(range(1, 10)) - set(versions(path))))
    assert stats.first_failure is None


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "policy",
    [
        {"retain_versions": 1},
        {"retain_versions": 2, "delete_unverified": True},
        {"older_than": datetime.timedelta(microseconds=1)},
        {"versions": [2, 3, 4]},
    ],
    ids=str,
)
@pytest.mark.parametrize("branch", ["", "b", "feat/x"])
def test_tags_and_branches_protect_versions_as_in_pylance(
    referenced: Table, policy: dict[str, Any], branch: str
) -> None:
    left = []
    for clean in (theirs, ours):
        path = referenced.fresh()
        clean(
            path / "tree" / branch if branch else path,
            **policy,
            error_if_tagged_old_versions=False,
        )
        left.append((versions(path), versions(path / "tree" / "b"), files(path)))
        if clean is ours:
            check(path, ("b", "feat/x"))
    assert left[0][:2] == left[1][:2]
    # pylance keeps the manifest of a version that a branch was made from, and removes its
    # transaction.
    more = {name for name in left[1][2] - left[0][2] if "_transactions/" in name}
    assert left[1][2] == left[0][2] | more
    assert len(more) <= 1


def test_tagged_versions_are_an_error_by_default(referenced: Table) -> None:
    path = referenced.fresh()
    before = files(path)
    with pytest.raises(InvalidInputError, match=r"1 tags are on versions.*five \(5\)"):
        ours(path, retain_versions=1)
    with pytest.raises(InvalidInputError, match=r"on-b \(4\)"):
        ours(path / "tree" / "b", retain_versions=1)
    # The tag of the branch does not concern the main branch, and version 5 is new enough.
    ours(path, versions=[1, 4], dry_run=True)
    assert files(path) == before


def test_a_branch_without_its_file_is_kept(referenced: Table) -> None:
    """A branch has no file for a moment while it is created."""
    path = referenced.fresh()
    shutil.rmtree(path / "_refs")
    stats = ours(path, retain_versions=1, delete_unverified=True)
    assert stats.versions == tuple(range(1, 9))
    check(path, ("b", "feat/x"))


def test_branches_are_recognised_through_links(referenced: Table) -> None:
    """The base path of a branch is another spelling of the root, so file names must match."""
    path = referenced.fresh()
    link = path.with_name("link")
    link.unlink(missing_ok=True)
    link.symlink_to(path, target_is_directory=True)
    shutil.rmtree(path / "_refs" / "tags")
    stats = ours(link, retain_versions=1, delete_unverified=True)
    assert stats.versions == (1, *range(3, 9))
    check(path, ("b", "feat/x"))


@pytest.mark.parametrize("staging", ["", "-6f2b4c1e-0000-4000-8000-1234567890ab"])
def test_detached_versions_are_kept(tmp_path: Path, staging: str) -> None:
    path = tmp_path / "t"
    write_everything(path)
    uri = str(path)
    dataset = lance.dataset(uri, version=2)
    detached = lance.LanceDataset.commit(
        uri,
        lance.LanceOperation.Overwrite(
            dataset.schema, [fragment.metadata for fragment in dataset.get_fragments()]
        ),
        read_version=2,
        detached=True,
    )
    name = next(name for name in files(path) if "/d" in name and name.endswith(".manifest"))
    # The state after a commit by an external manifest store was killed.
    (path / name).rename(path / (name + staging))
    stats = ours(path, retain_versions=1, delete_unverified=True)
    assert stats.versions == tuple(range(1, 9))
    (path / (name + staging)).rename(path / name)
    assert lance.dataset(uri, version=detached.version).to_table(columns=["i"]).num_rows == 12


def test_cleanup_keeps_the_version_that_is_open(table: Table) -> None:
    path = table.fresh()
    old = lance_spark.open_dataset(str(path), version=4)
    assert old.cleanup_old_versions(retain_versions=1).versions == (1, 2, 3)
    assert old.to_table()["i"].to_pylist() == [*range(2, 12)]


def test_before_version_limits_the_versions(table: Table) -> None:
    assert ours(table.fresh(), before_version=4).versions == (1, 2, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"retain_versions": 0},
        {"retain_versions": -1},
        {"older_than": -DAY},
        {"versions": []},
        {"delete_rate_limit": 0},
        {"delete_concurrency": 0},
    ],
    ids=str,
)
def test_limits_out_of_range_are_refused(table: Table, options: dict[str, Any]) -> None:
    path = table.fresh()
    before = files(path)
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        ours(path, **options)
    assert files(path) == before


def test_very_large_ages_remove_no_version(table: Table) -> None:
    assert not ours(table.fresh(), older_than=datetime.timedelta.max).versions


@pytest.mark.parametrize("unverified", [False, True])
def test_a_dry_run_reports_what_a_run_removes(referenced: Table, unverified: bool) -> None:
    path = referenced.fresh()
    failed_jobs(path, 0)
    strangers(path)
    options = {
        "retain_versions": 2,
        "delete_unverified": unverified,
        "error_if_tagged_old_versions": False,
    }
    before = files(path)
    planned = ours(path, dry_run=True, **options)
    assert files(path) == before
    done = ours(path, **options)
    assert done == planned
    assert files(path) == before - {file.path for file in done.files}
    assert any(file.unverified for file in done.files) == unverified
    again = ours(path, **options)
    assert again.files == ()


def test_empty_folders_are_removed(table: Table) -> None:
    path = table.fresh()
    ours(path, retain_versions=1)
    empty = [
        folder
        for folder in folders(path)
        if folder.startswith(("data/", "_indices/")) and not any((path / folder).iterdir())
    ]
    assert empty == []
    assert (path / "data").exists()


def test_rate_limit_slows_deletions(table: Table) -> None:
    path = table.fresh()
    started = time.monotonic()
    stats = ours(path, versions=[1, 3, 4], delete_rate_limit=50)
    assert len(stats.files) > 5
    assert time.monotonic() - started > (len(stats.files) - 1) / 50
    assert versions(path) == [2, 5, 6, 7, 8, 9]

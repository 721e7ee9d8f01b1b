"""Deletion of branches, and unfinished creations and deletions."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import lance
import pytest

from lance_spark import open_dataset, write_dataset
from lance_spark.errors import InvalidInputError, VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.open import open_table
from lance_spark.table.refs import branches
from tests.support.tables.damaged import files_below
from tests.support.tables.pylance_written import ids, rows
from tests.table.refs.branch_calls import (
    CLIENTS,
    Create,
    our_branch,
    pylance_branch,
    read_ids,
    source_table,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return source_table(tmp_path)


@CLIENTS
def test_delete_keeps_branches_in_the_same_folder(path: Path, create: Create) -> None:
    """feat/x, feat/x/y and feat/xy are in one folder, and were made from the main branch."""
    before = files_below(path)
    other_names = ["feat/x/y", "feat/xy", "feat", "feat/x/y/z"]
    for name in (*other_names, "feat/x"):
        create(path, name)
        write_dataset(rows(100), str(path), "append", branch=name)
        lance.dataset(str(path)).checkout_version((name, None)).delete("id = 100")
    expected = {name: read_ids(path, name) for name in other_names}
    dataset = open_dataset(str(path))
    dataset.branches.delete("feat/x")
    assert sorted(dataset.branches.list()) == sorted(other_names)
    assert {name: read_ids(path, name) for name in other_names} == expected
    assert {entry.name for entry in (path / "tree/feat/x").iterdir()} == {"y"}
    with pytest.raises(VersionNotFoundError, match="branch 'feat/x' not found"):
        open_dataset(str(path), branch="feat/x")
    create(path, "feat/x", 1)
    assert read_ids(path, "feat/x") == [*range(6)]
    for name in ("feat/x", *other_names):
        dataset.branches.delete(name)
    assert files_below(path) == before
    assert not list((path / "tree").iterdir())


def test_a_branch_inside_a_folder_of_another_branch(path: Path) -> None:
    """pylance creates a/data, whose files are in the data folder of a."""
    pylance_branch(path, "a/data")
    pylance_branch(path, "a")
    for name in ("a/data", "a"):
        write_dataset(rows(100), str(path), "append", branch=name)
    expected = read_ids(path, "a/data")
    open_dataset(str(path)).branches.delete("a")
    assert read_ids(path, "a/data") == expected
    assert {entry.name for entry in (path / "tree/a").iterdir()} == {"data"}


@CLIENTS
def test_branches_with_tags_or_descendants_cannot_be_deleted(path: Path, create: Create) -> None:
    create(path, "a")
    create(path, "b", ("a", None))
    create(path, "c", ("b", None))
    dataset, theirs = open_dataset(str(path)), lance.dataset(str(path))
    for name, needed_by in (("a", "'b', 'c'"), ("b", "'c'")):
        with pytest.raises(InvalidInputError, match=f"made from '{name}' .*: {needed_by};"):
            dataset.branches.delete(name)
        with pytest.raises(OSError, match="referenced by"):
            theirs.branches.delete(name)
    dataset.tags.create("t", ("c", None))
    with pytest.raises(InvalidInputError, match="branch 'c' has tags: 't'"):
        dataset.branches.delete("c")
    with pytest.raises(OSError, match="referenced by tags"):
        theirs.branches.delete("c")
    dataset.tags.delete("t")
    dataset.branches.delete("c")
    theirs.branches.delete("b")
    dataset.branches.delete("a")
    assert dataset.branches.list() == {}


def test_a_branch_that_was_deleted_and_created_again_is_another_branch(path: Path) -> None:
    """Only the random id identifies the branches that were made from the first branch of the
    name.
    """
    dataset = open_dataset(str(path))
    dataset.create_branch("a")
    dataset.create_branch("b", ("a", None))
    (path / "_refs/branches/a.json").unlink()
    shutil.rmtree(path / "tree/a")
    dataset.create_branch("a")
    dataset.branches.delete("a")
    lance.dataset(str(path)).create_branch("a")
    lance.dataset(str(path)).branches.delete("a")


def test_a_branch_without_its_file_is_not_deleted_while_it_is_needed(path: Path) -> None:
    dataset = open_dataset(str(path))
    dataset.create_branch("a")
    write_dataset(rows(100), str(path), "append", branch="a")
    dataset.create_branch("b", ("a", None)).create_branch("c")
    dataset.tags.create("t", ("a", None))
    (path / "_refs/branches/a.json").unlink()
    expected = read_ids(path, "c")
    with pytest.raises(InvalidInputError, match="branch 'a' has tags: 't'"):
        dataset.branches.delete("a")
    dataset.tags.delete("t")
    with pytest.raises(InvalidInputError, match=r"made from 'a' .*: 'b', 'c';"):
        dataset.branches.delete("a")
    assert read_ids(path, "c") == expected
    dataset.branches.delete("c")
    dataset.branches.delete("b")
    dataset.branches.delete("a")
    assert not list((path / "tree").iterdir())


def test_an_unfinished_deletion_is_completed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill before any removal of a file, a second deletion removes the rest."""

    class Killed(BaseException):
        pass

    delete = ObjectStore.delete
    before = files_below(path)
    for kill_at in range(20):
        our_branch(path, "b")
        write_dataset(rows(100), str(path), "append", branch="b")
        left = [kill_at]

        def one_by_one(self: ObjectStore, paths: Any, left: list[int] = left) -> None:
            for path_to_delete in paths:
                if not left[0]:
                    raise Killed
                left[0] -= 1
                delete(self, [path_to_delete])

        monkeypatch.setattr(ObjectStore, "delete", one_by_one)
        dataset = open_dataset(str(path))
        try:
            dataset.branches.delete("b")
        except Killed:
            monkeypatch.setattr(ObjectStore, "delete", delete)
            assert ids(path) == [0, *range(2, 9)]
            dataset.branches.delete("b")
        else:
            assert kill_at > 5
            return
        monkeypatch.setattr(ObjectStore, "delete", delete)
        assert files_below(path) == before
        with pytest.raises(VersionNotFoundError):
            dataset.branches.delete("b")
    raise AssertionError("never done")


def test_a_table_in_the_folder_of_branches_is_not_deleted(path: Path) -> None:
    lance.write_dataset(rows(0), str(path / "tree/table"))
    with pytest.raises(VersionNotFoundError, match="branch 'table' not found"):
        open_dataset(str(path)).branches.delete("table")
    with pytest.raises(VersionNotFoundError, match="branch 'table' not found"):
        open_dataset(str(path), branch="table")
    with pytest.raises(InvalidInputError, match="already has versions"):
        our_branch(path, "table")
    assert ids(path / "tree/table") == [0, 1, 2]


def test_a_link_in_the_folder_of_a_branch_is_not_followed(path: Path) -> None:
    our_branch(path, "b")
    outside = path.parent / "outside"
    outside.mkdir()
    (outside / "keep.lance").write_text("x")
    os.symlink(outside, path / "tree/b/data")
    open_dataset(str(path)).branches.delete("b")
    assert (outside / "keep.lance").exists()


def test_creation_and_deletion_of_the_parent_exclude_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion starts at any step: no branch loses its files."""
    our_branch(path, "a")
    write_dataset(rows(50), str(path / "tree/a"), "append")
    put = ObjectStore.put_if_absent
    delete = ObjectStore.delete
    main = ObjectStore.from_uri(path)

    def deleted_before(self: ObjectStore, name: str, data: bytes) -> bool:
        monkeypatch.setattr(ObjectStore, "put_if_absent", put)
        branches.delete_branch(main, "a")
        return put(self, name, data)

    def made_before(self: ObjectStore, paths: Any) -> None:
        monkeypatch.setattr(ObjectStore, "delete", delete)
        our_branch(path, "c", ("a", None))
        delete(self, paths)

    monkeypatch.setattr(ObjectStore, "delete", made_before)
    with pytest.raises(InvalidInputError, match="made from 'a'"):
        open_dataset(str(path)).branches.delete("a")
    assert read_ids(path, "c") == read_ids(path, "a") == [0, *range(2, 9), 50, 51, 52]
    open_dataset(str(path)).branches.delete("c")

    source = open_table(str(path), branch="a")
    monkeypatch.setattr(ObjectStore, "put_if_absent", deleted_before)
    with pytest.raises(VersionNotFoundError, match="'a' was deleted"):
        branches.create_branch(source, "c")
    assert open_dataset(str(path)).branches.list() == {}
    assert files_below(path / "tree") == set()

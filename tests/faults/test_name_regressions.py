"""Past bugs of tags and branches that meet other clients, a cleanup or a store that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lance_spark
from lance_spark.errors import StorageError, UncertainCommitError
from tests.faults.named_tables import ROWS, named
from tests.faults.objects import Objects
from tests.faults.schedule import Schedule
from tests.faults.store import Place, registered
from tests.faults.test_regressions import Script, fails, refused

URI = "s3://bucket/table"
TAG, BRANCH = "_refs/tags/", "_refs/branches/"


@pytest.fixture
def scripted() -> Iterator[Script]:
    calls = Script()
    Place.objects, Place.schedule, Place.deletes_singly = Objects(), Schedule(0), True
    Place.faults = calls  # type: ignore[assignment]
    with registered():
        yield calls


CHANGES: dict[str, tuple[str, str, Callable[[lance_spark.Dataset], Any]]] = {
    "create a tag": ("create", TAG, lambda dataset: dataset.tags.create("new")),
    "update a tag": ("put", TAG, lambda dataset: dataset.tags.update("t", 2)),
    "describe a tag": ("put", TAG, lambda dataset: dataset.tags.replace_metadata("t", {"a": "b"})),
    "delete a tag": ("delete", TAG, lambda dataset: dataset.tags.delete("t")),
    "create a branch": ("create", BRANCH, lambda dataset: dataset.create_branch("new")),
    "describe a branch": (
        "put",
        BRANCH,
        lambda dataset: dataset.branches.replace_metadata("x", {"a": "b"}),
    ),
    "delete a branch": ("delete", BRANCH, lambda dataset: dataset.branches.delete("x")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_name_without_an_answer_is_uncertain(scripted: Script, change: str) -> None:
    """The change was reported as failed, and came into effect later."""
    call, folder, change_of_name = CHANGES[change]
    dataset = lance_spark.write_dataset(ROWS, URI)
    dataset.tags.create("t")
    dataset.create_branch("x")
    dataset = lance_spark.write_dataset(ROWS, URI, "append")
    late = []

    def comes_late(effect: Callable[[], Any]) -> Any:
        late.append(effect)
        raise OSError(5, "no answer in time")

    before = named(dataset), dataset.tags.list(), dataset.branches.list()
    scripted.todo = [(call, folder, refused)]
    with pytest.raises(StorageError, match="permission denied") as caught:
        change_of_name(dataset)
    assert not isinstance(caught.value, UncertainCommitError)
    scripted.todo = [(call, folder, comes_late)]
    with pytest.raises(UncertainCommitError, match="no answer in time"):
        change_of_name(dataset)
    assert (named(dataset), dataset.tags.list(), dataset.branches.list()) == before
    late[0]()
    assert (named(dataset), dataset.tags.list(), dataset.branches.list()) != before


def test_a_name_that_may_not_be_taken_back_is_uncertain(scripted: Script) -> None:
    """The check of the version failed, and then the deletion of the tag failed."""
    dataset = lance_spark.write_dataset(ROWS, URI)
    scripted.todo = [("head", "_transactions/", fails)]
    with pytest.raises(StorageError, match="no such server") as caught:
        dataset.tags.create("t")
    assert not isinstance(caught.value, UncertainCommitError)
    assert not named(dataset)
    scripted.todo = [("head", "_transactions/", fails), ("delete", TAG, refused)]
    with pytest.raises(UncertainCommitError, match=r"no such server.*permission denied"):
        dataset.tags.create("t")
    assert named(dataset) == {"t": 1}


def test_a_deletion_that_cannot_look_puts_the_branch_back(scripted: Script) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI)
    dataset.create_branch("x")

    def unseen(effect: Callable[[], Any]) -> Any:
        effect()
        scripted.todo = [("list", BRANCH, fails)]

    scripted.todo = [("delete", BRANCH, unseen)]
    with pytest.raises(StorageError, match="no such server") as caught:
        dataset.branches.delete("x")
    assert not isinstance(caught.value, UncertainCommitError)
    assert lance_spark.open_dataset(URI, branch="x").to_table() == ROWS
    # If the deletion of files fails, the branch is not restored.
    scripted.todo = [("delete", "_versions/", refused)]
    with pytest.raises(UncertainCommitError, match=r"is deleted, but not all of its files"):
        dataset.branches.delete("x")
    assert not named(dataset)
    dataset.branches.delete("x")
    assert not Place.objects.below("bucket/table/tree")


def test_a_branch_that_is_made_is_acknowledged_whatever_comes_then(scripted: Script) -> None:
    """Once, the store was read another time to open the new branch, which could fail."""
    dataset = lance_spark.write_dataset(ROWS, URI)

    def seen(effect: Callable[[], Any]) -> Any:
        effect()
        scripted.todo = [("list", "tree/x/_versions", fails)]

    scripted.todo = [("create", BRANCH, seen)]
    branch = dataset.create_branch("x")
    scripted.todo.clear()
    assert (branch.branch, branch.version, branch.to_table()) == ("x", 1, ROWS)
    assert lance_spark.open_dataset(branch.uri).to_table() == ROWS


@pytest.mark.parametrize("gone", [False, True])
def test_a_tag_that_existed_and_is_gone_may_be_the_tag_of_this_client(
    scripted: Script, gone: bool
) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI)

    def twice(effect: Callable[[], Any]) -> Any:
        effect()
        if gone:
            dataset.tags.delete("t")
        else:
            scripted.todo = [("get", TAG, fails)]
        raise FileExistsError(17, "exists")

    scripted.todo = [("create", TAG, twice)]
    with pytest.raises(UncertainCommitError):
        dataset.tags.create("t")
    assert named(dataset) == ({} if gone else {"t": 1})


def test_metadata_of_a_branch_that_cannot_be_looked_at(scripted: Script) -> None:
    dataset = lance_spark.write_dataset(ROWS, URI)
    dataset.create_branch("x")
    scripted.todo = [("list", "tree/x/_versions", fails)]
    with pytest.raises(UncertainCommitError, match="may have been deleted meanwhile"):
        dataset.branches.replace_metadata("x", {"a": "b"})
    assert dataset.branches.list()["x"]["metadata"] == {"a": "b"}

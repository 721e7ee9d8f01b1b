"""Past bugs of tags and branches that other clients or a cleanup change at the same time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, UncertainCommitError, VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.refs import branches, clones, tags
from lance_spark.table.refs import json_file as ref_json
from tests.faults.named_tables import ROWS, named


class Held:
    """Run a function once, just before another function continues that was called with some
    arguments.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.done: list[str] = []

    def at(self, owner: Any, function: str, then: Callable[[], object], call: int = 1) -> None:
        original = getattr(owner, function)
        calls_left = call

        def held(*arguments: Any, **named: Any) -> Any:
            nonlocal calls_left
            calls_left -= 1
            if not calls_left:
                setattr(owner, function, original)
                then()
                self.done.append(function)
            return original(*arguments, **named)

        self._monkeypatch.setattr(owner, function, held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


def mark_removed(dataset: lance_spark.Dataset) -> None:
    """Do the first step of a cleanup that removes a version."""
    (file,) = Path(dataset.uri, "_transactions").glob(f"{dataset.version - 1}-*.txn")
    file.unlink()


def versions_of(path: Path, count: int) -> list[lance_spark.Dataset]:
    """Write versions that share no file."""
    modes: list[Any] = ["create", *["overwrite"] * (count - 1)]
    return [lance_spark.write_dataset(ROWS, str(path), mode) for mode in modes]


@pytest.mark.parametrize("case", ["made", "moved", "described"])
def test_a_tag_that_somebody_else_has_changed_is_not_taken_back(
    tmp_path: Path, held: Held, case: str
) -> None:
    first, second = versions_of(tmp_path, 2)
    mark_removed(first)

    def meanwhile() -> None:
        if case == "moved":
            second.tags.update("t")
        elif case == "made":
            second.tags.delete("t")
            second.tags.create("t")
        else:
            second.tags.replace_metadata("t", {"a": "b"})

    held.at(tags, "check_named", meanwhile)
    with pytest.raises(VersionNotFoundError, match="version 1 is being removed by a cleanup"):
        first.tags.create("t")
    # Other metadata do not keep the tag on the version that is removed.
    assert held.done
    assert named(second) == ({} if case == "described" else {"t": 2})


@pytest.mark.parametrize("case", ["made", "described"])
def test_a_branch_that_somebody_else_has_made_is_not_taken_back(
    tmp_path: Path, held: Held, case: str
) -> None:
    first, second = versions_of(tmp_path, 2)
    mark_removed(first)

    def meanwhile() -> None:
        if case == "made":
            second.branches.delete("x")
            branch = second.create_branch("x")
            lance_spark.write_dataset(ROWS, branch.uri, "append")
        else:
            second.branches.replace_metadata("x", {"a": "b"})

    held.at(branches, "check_stays", meanwhile)
    with pytest.raises(VersionNotFoundError, match="version 1 is being removed by a cleanup"):
        first.create_branch("x")
    assert held.done
    assert named(second) == ({} if case == "described" else {"x": 2})
    if case == "made":
        assert lance_spark.open_dataset(str(tmp_path), branch="x").count_rows() == 8


def test_a_tag_is_not_put_on_a_version_that_goes(tmp_path: Path, held: Held) -> None:
    """Without the tag, nothing kept the version that it had named."""
    first, second, third = versions_of(tmp_path, 3)
    third.tags.create("t", 2)
    mark_removed(first)
    held.at(ref_json, "replace", lambda: pytest.fail("the tag is moved"))
    with pytest.raises(VersionNotFoundError, match="version 1 is being removed by a cleanup"):
        third.tags.update("t", 1)
    assert named(second) == {"t": 2}


@pytest.mark.parametrize("case", ["moved", "made"])
def test_a_tag_that_somebody_else_has_moved_is_not_put_back(
    tmp_path: Path, held: Held, case: str
) -> None:
    first, _, third = versions_of(tmp_path, 3)
    third.tags.create("t", 2)

    def meanwhile() -> None:
        mark_removed(first)
        if case == "made":
            third.tags.delete("t")
            third.tags.create("t", 3)
        else:
            third.tags.update("t", 3)

    held.at(tags, "check_named", meanwhile)
    with pytest.raises(VersionNotFoundError, match="version 1 is being removed by a cleanup"):
        third.tags.update("t", 1)
    assert held.done
    assert named(third) == {"t": 3}


@pytest.mark.parametrize("case", ["goes", "gone", "stays"])
def test_a_tag_whose_old_version_goes_while_it_is_moved(
    tmp_path: Path, held: Held, case: str
) -> None:
    first, second, third = versions_of(tmp_path, 3)
    third.tags.create("t", 2)

    def meanwhile() -> None:
        mark_removed(first)
        if case == "goes":
            mark_removed(second)
        elif case == "gone":
            assert third.cleanup_old_versions(
                timedelta(0), error_if_tagged_old_versions=False
            ).versions == (2,)

    held.at(tags, "check_named", meanwhile)
    expected = VersionNotFoundError if case == "stays" else UncertainCommitError
    text = {
        "goes": "version 1 is being removed .*: version 2 is being removed",
        "gone": "version 1 is being removed .*: version 2, .* was removed meanwhile",
        "stays": "version 1 is being removed",
    }[case]
    with pytest.raises(expected, match=text):
        third.tags.update("t", 1)
    assert held.done
    assert named(third) == ({} if case == "gone" else {"t": 2})


@pytest.mark.parametrize("case", ["made", "moved"])
def test_a_tag_on_a_branch_whose_deletion_has_begun(tmp_path: Path, held: Held, case: str) -> None:
    """The deletion has checked the tags for the last time. No file is deleted yet."""
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path))
    dataset.tags.create("moved")
    branch = dataset.create_branch("x")
    change = branch.tags.create if case == "made" else branch.tags.update

    def tagged() -> None:
        with pytest.raises(VersionNotFoundError, match="branch 'x' not found"):
            change(case)

    held.at(branches, "delete_files", tagged)
    dataset.branches.delete("x")
    assert held.done
    assert named(dataset) == {"moved": 1}


@pytest.mark.parametrize("case", ["made", "moved"])
@pytest.mark.parametrize("recreated", [False, True])
def test_a_tag_on_a_branch_that_is_deleted_meanwhile(
    tmp_path: Path, held: Held, case: str, recreated: bool
) -> None:
    """The tag has its version. Then the branch is deleted, which sees no tag, and perhaps created
    again.
    """
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path))
    dataset.tags.create("moved")
    branch = dataset.create_branch("x")
    change = branch.tags.create if case == "made" else branch.tags.update

    def deleted() -> None:
        dataset.branches.delete("x")
        if recreated:
            dataset.create_branch("x")

    held.at(ref_json, "create" if case == "made" else "replace", deleted)
    with pytest.raises(VersionNotFoundError, match="'x' was deleted by another client"):
        change(case)
    assert held.done
    assert named(dataset) == {"moved": 1} | ({"x": 1} if recreated else {})


@pytest.mark.parametrize("has_files", [False, True])
def test_a_branch_that_is_made_while_one_of_its_name_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Held, has_files: bool
) -> None:
    """The branch file is created after the deletion has checked for one, and before the files of
    the branch are deleted.
    """
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path))
    main = ObjectStore.from_uri(tmp_path)
    if has_files:
        dataset.create_branch("x")
        (tmp_path / "_refs/branches/x.json").unlink()
    put = ref_json.create

    def create(*arguments: Any) -> bool:
        monkeypatch.setattr(ref_json, "create", put)
        created: list[bool] = []
        held.at(branches, "delete_files", lambda: created.append(put(*arguments)))
        branches.delete_branch(main, "x")
        return created == [True]

    monkeypatch.setattr(ref_json, "create", create)
    with pytest.raises(VersionNotFoundError, match="deleted the first version of the branch"):
        dataset.create_branch("x")
    assert held.done
    assert not named(dataset)
    assert not list((tmp_path / "tree").iterdir())
    assert dataset.create_branch("x").to_table() == ROWS


@pytest.mark.parametrize("has_files", [False, True])
def test_a_branch_that_begins_with_what_is_being_deleted(
    tmp_path: Path, held: Held, has_files: bool
) -> None:
    """The branch has its name, and was acknowledged, before the deletion continues."""
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path))
    dataset.create_branch("x")
    if has_files:
        (tmp_path / "_refs/branches/x.json").unlink()
    held.at(branches, "_table_paths", lambda: dataset.create_branch("x"))
    dataset.branches.delete("x")
    assert held.done
    assert named(dataset) == {"x": 1}
    branch = lance_spark.open_dataset(str(tmp_path), branch="x")
    assert branch.to_table() == ROWS
    assert lance_spark.write_dataset(ROWS, branch.uri, "append").version == 2
    dataset.branches.delete("x")
    assert not list((tmp_path / "tree").iterdir())


@pytest.mark.parametrize("step", ["before", "early", "late"])
def test_a_branch_that_is_deleted_while_its_metadata_change(
    tmp_path: Path, held: Held, step: str
) -> None:
    """The branch file comes back: after the deletion, before the files of the branch are deleted,
    or after that.
    """
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path))
    dataset.create_branch("x")
    file = tmp_path / "_refs/branches/x.json"
    described = json.loads(file.read_text()) | {"metadata": {"a": "b"}}

    def back() -> None:
        file.write_text(json.dumps(described))

    if step == "before":
        held.at(ref_json, "replace", lambda: dataset.branches.delete("x"))
        with pytest.raises(VersionNotFoundError, match="branch 'x' not found"):
            dataset.branches.replace_metadata("x", {"a": "b"})
    else:
        held.at(branches, "_table_paths" if step == "early" else "delete_files", back)
        dataset.branches.delete("x")
    assert held.done
    assert not named(dataset)
    assert not list((tmp_path / "tree").iterdir())


def test_a_deletion_does_not_restore_a_branch_that_another_client_deleted(
    tmp_path: Path, held: Held
) -> None:
    """Two clients delete a branch. The second client finds a tag that is being deleted, and
    restores the branch file.
    """
    dataset = lance_spark.write_dataset(ROWS, str(tmp_path))
    dataset.create_branch("x")
    tag = tmp_path / "_refs/tags/t.json"

    def tagged() -> None:
        tag.parent.mkdir()
        tag.write_bytes(tags.Tag(1, "x").encode())

    def deleted() -> None:
        tag.unlink()
        shutil.rmtree(tmp_path / "tree/x")

    held.at(branches, "_check_unused", tagged, call=2)
    held.at(branches, "_restore_branch_file", deleted)
    with pytest.raises(UncertainCommitError, match=r"has tags: .* branch 'x' not found"):
        dataset.branches.delete("x")
    assert held.done == ["_check_unused", "_restore_branch_file"]
    assert not named(dataset)


def test_a_branch_that_begins_with_a_version_that_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients A and B create the branch from version 1, client C from version 2. A and C give way
    to each other. B has adopted the version of A.
    """
    first = lance_spark.write_dataset(ROWS, str(tmp_path))
    second = lance_spark.write_dataset(ROWS, str(tmp_path), "append")
    look = clones._has_another
    looks = []

    def of_a(target: ObjectStore, version: int) -> bool:
        def of_c(*arguments: Any) -> bool:
            patched.setattr(clones, "_has_another", look)
            looks.append(look(target, version))
            return look(*arguments)

        monkeypatch.setattr(clones, "_has_another", look)
        first.create_branch("x")
        with monkeypatch.context() as patched:
            # C checked for other versions before there were any, and writes its version now.
            patched.setattr(clones, "_check_empty", lambda _: None)
            patched.setattr(ObjectStore, "exists", lambda *_: False)
            patched.setattr(clones, "_has_another", of_c)
            with pytest.raises(InvalidInputError, match="already has versions"):
                second.create_branch("x")
        return looks == [True]

    monkeypatch.setattr(clones, "_has_another", of_a)
    with pytest.raises(InvalidInputError, match="branch 'x' already exists"):
        first.create_branch("x")
    assert looks == [True]
    assert named(first) == {"x": 1}
    branch = lance_spark.open_dataset(str(tmp_path), branch="x")
    assert branch.to_table() == ROWS
    assert lance_spark.write_dataset(ROWS, branch.uri, "append").version == 2

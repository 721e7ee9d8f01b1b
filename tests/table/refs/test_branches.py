"""Branches that both clients create and write, and branch files."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import Dataset, open_dataset, write_dataset
from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import read_transaction
from lance_spark.table.open import open_table
from lance_spark.table.refs import branch_store, branches
from tests.support.tables.damaged import files_below
from tests.support.tables.pylance_written import ids, rows
from tests.table.refs.branch_calls import (
    CLIENTS,
    Create,
    clean_manifest,
    manifest_of,
    our_branch,
    pylance_branch,
    read_ids,
    source_table,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return source_table(tmp_path)


def test_first_manifest_equals_that_of_pylance(path: Path) -> None:
    our_branch(path, "a/b")
    pylance_branch(path, "c/d")
    ours, theirs = (manifest_of(path, name) for name in ("a/b", "c/d"))
    assert (ours.branch, theirs.branch) == ("a/b", "c/d")
    assert clean_manifest(ours.to_proto()) == clean_manifest(theirs.to_proto())
    assert ours.index_section == theirs.index_section
    for branch, made in (("a/b", ours), ("c/d", theirs)):
        store = ObjectStore.from_uri(path / "tree" / branch)
        transaction = read_transaction(store, made)
        assert transaction is not None
        assert transaction.read_version == 4
        assert (store.uri + f"/_transactions/{transaction.file_name}") in map(
            str, (path / "tree" / branch / "_transactions").iterdir()
        )
    # A branch of a branch.
    for branch, create in (("a/b", our_branch), ("c/d", pylance_branch)):
        write_dataset(rows(20), str(path), "append", branch=branch)
        create(path, f"{branch}/e", (branch, None))
    ours, theirs = (manifest_of(path, name) for name in ("a/b/e", "c/d/e"))
    ours, theirs = clean_manifest(ours.to_proto()), clean_manifest(theirs.to_proto())
    for message in (ours, theirs):
        assert len(message.base_paths) == 2
        message.base_paths[1].ClearField("path")
        message.base_paths[1].ClearField("name")
        message.fragments[-1].files[0].ClearField("path")
    assert ours == theirs


def test_branch_file_equals_that_of_pylance(path: Path) -> None:
    our_branch(path, "a")
    pylance_branch(path, "b")
    our_branch(path, "a/x", ("a", None))
    pylance_branch(path, "b/x", ("b", None))

    def text(name: str) -> str:
        content = (path / f"_refs/branches/{name}.json").read_text()
        return re.sub(r'[0-9a-f]{32}|\d{10}|(?<="manifestSize": )\d+', "N", content)

    assert text("a") == text("b")
    assert text("a%2Fx") == text("b%2Fx").replace('"b"', '"a"')
    ours, theirs = open_dataset(str(path)), lance.dataset(str(path))
    ours.branches.replace_metadata("b", {"k": "ü"})
    theirs.branches.replace_metadata("a", {"k": "v"})
    assert ours.branches.list() == theirs.branches.list()
    assert ours.branches.list_ordered() == theirs.branches.list_ordered()
    assert ours.branches.list_ordered("asc") == theirs.branches.list_ordered("asc")
    mapping = ours.branches.list()["a/x"]["branch_identifier"]
    assert mapping[:1] == ours.branches.list()["a"]["branch_identifier"]
    assert [step[0] for step in mapping] == [4, 4]


@CLIENTS
def test_branches_can_be_made_from_versions_tags_and_branches(path: Path, create: Create) -> None:
    lance.dataset(str(path)).tags.create("deleted", 3)
    create(path, "new")
    create(path, "old", 1)
    create(path, "tagged", "deleted")
    create(path, "main2", ("main", 2))
    assert read_ids(path, "new") == [0, *range(2, 9)]
    assert read_ids(path, "old") == [*range(6)]
    assert read_ids(path, "tagged") == [0, *range(2, 6)]
    assert read_ids(path, "main2") == [*range(6)]
    # Version numbers continue from the version that a branch was made from.
    ours = write_dataset(rows(30), str(path), "append", branch="tagged")
    assert (ours.version, ours.branch) == (4, "tagged")
    theirs = lance.dataset(str(path)).checkout_version(("tagged", None))
    lance.write_dataset(rows(40), theirs, mode="append")
    theirs = lance.dataset(str(path)).checkout_version(("tagged", None))
    theirs.delete("id in (2, 30)")
    assert read_ids(path, "tagged") == [0, 3, 4, 5, 31, 32, 40, 41, 42]
    assert [info.version for info in ours.versions()] == [3, 4, 5, 6]
    assert [info.operation for info in ours.versions()] == ["clone", "append", "append", "delete"]
    create(path, "further", ("tagged", 5))
    create(path, "further/on", ("further", None))
    assert read_ids(path, "further/on") == [0, 2, 3, 4, 5, 30, 31, 32, 40, 41, 42]
    # The main branch has none of these.
    assert ids(path) == [0, *range(2, 9)]


def shallow_clone(path: Path, create: Create) -> Path:
    target = Path(f"{path}-clone")
    client: Any = open_dataset(str(path)) if create is our_branch else lance.dataset(str(path))
    client.shallow_clone(str(target), (None, None))
    return target


def rooted_branch(path: Path, create: Create) -> Path:
    create(path, "b")
    return path / "tree/b"


@CLIENTS
@pytest.mark.parametrize("make", [rooted_branch, shallow_clone])
def test_every_mutation_works_on_rows_of_another_root(
    path: Path, create: Create, make: Callable[[Path, Create], Path]
) -> None:
    """Fragments, deletions and indexes of the parent, changed on the branch."""
    before = files_below(path) - {"_refs", "tree"}
    root = make(path, create)

    def agreed(dataset: Dataset) -> list[int]:
        theirs = lance.dataset(str(root))
        theirs.validate()
        assert dataset.version == theirs.version
        assert dataset.to_table() == theirs.to_table()
        for item in dataset.to_table()["id"].to_pylist():
            assert theirs.to_table(filter=f"id = {item}").num_rows == 1
        return sorted(dataset.to_table()["id"].to_pylist())

    start = open_dataset(str(root))
    dataset = start.delete([("id", "in", [0, 7])])
    assert agreed(dataset) == [2, 3, 4, 5, 6, 8]
    dataset = dataset.update({"word": "new"}, [("id", "==", 3)])
    assert agreed(dataset) == [2, 3, 4, 5, 6, 8]
    dataset = dataset.update({"word": "newer"}, [("id", "==", 8)], mode="columns")
    assert agreed(dataset) == [2, 3, 4, 5, 6, 8]
    dataset = dataset.add_columns({"more": 7})
    assert agreed(dataset) == [2, 3, 4, 5, 6, 8]
    words = dict(zip(*dataset.to_table(["id", "word"]).to_pydict().values(), strict=True))
    assert words == {2: "w2", 3: "new", 4: "w4", 5: "w5", 6: "w6", 8: "newer"}
    dataset = dataset.drop_columns(["word"])
    assert agreed(dataset) == [2, 3, 4, 5, 6, 8]
    dataset, _ = dataset.compact_files()
    assert agreed(dataset) == [2, 3, 4, 5, 6, 8]
    assert all(file.base_id is None for fragment in dataset.fragments for file in fragment.files)
    dataset = start.restore()
    assert agreed(dataset) == [0, *range(2, 9)]
    if start.branch is not None:
        assert dataset.branch == "b"
    lance.dataset(str(root)).delete("id = 4")
    assert agreed(open_dataset(str(root))) == [0, 2, 3, 5, 6, 7, 8]
    dataset = write_dataset(rows(70), str(root), "overwrite")
    assert agreed(dataset) == [70, 71, 72]
    if start.branch is not None:
        assert dataset.branch == "b"
    # The parent does not change.
    assert ids(path) == [0, *range(2, 9)]
    assert before <= files_below(path)


def test_checkout_opens_branches_and_their_versions(path: Path) -> None:
    ours = open_dataset(str(path))
    branch = ours.create_branch("feat/x", 3)
    assert (branch.version, branch.branch, branch.uri) == (3, "feat/x", f"{path}/tree/feat/x")
    assert branch.checkout_version(3).branch == "feat/x"
    assert branch.checkout_version(("main", 1)).branch is None
    assert branch.checkout_version((None, None)).version == 4
    branch.tags.create("t")
    assert ours.checkout_version("t").branch == "feat/x"
    assert branch.latest_version == 3
    with pytest.raises(VersionNotFoundError, match="no version 1: it has version 3 only"):
        branch.checkout_version(1)
    with pytest.raises(VersionNotFoundError, match="branch 'feat/y' not found"):
        branch.checkout_version(("feat/y", 1))
    # The root of a branch can be opened like the root of a table.
    root = f"{path}/tree/feat/x"
    assert open_dataset(root).branch == "feat/x"
    assert open_dataset(root, branch="main").uri == str(path)
    assert open_dataset(root, tag="t").branch == "feat/x"
    assert list(open_dataset(root).branches.list()) == ["feat/x"]
    with pytest.raises(InvalidOptionError, match="tag 't' names a version on branch 'feat/x'"):
        open_dataset(str(path), branch="main", tag="t")
    with pytest.raises(TableNotFoundError):
        open_dataset(str(path / "nothing"), branch="x")
    with pytest.raises(TableExistsError):
        write_dataset(rows(0), str(path), "create", branch="feat/x")
    made = write_dataset(rows(0), str(path) + "2", "create", branch="main")
    assert (made.version, made.branch) == (1, None)


def test_invalid_branch_names_are_refused(path: Path) -> None:
    """Names are valid if pylance accepts them; two forms are refused because pylance fails
    later.
    """
    names = ["a/b/c", "a/b", "a", ".x", "x.", "Main", "main/x", "x.lock/y", "data", "é", "-", "_"]
    names += ["x.lock", ".", "..", "a/../b", "a/./b", "main", "a b", "a%2Fb", "a@b", "/a", "a/"]
    names += ["a//b", "", "a\\b", "a:b", "a\nb"]
    dataset, theirs = open_dataset(str(path)), lance.dataset(str(path))
    for name in names:
        try:
            dataset.create_branch(name, 1)
            dataset.branches.delete(name)
            taken = True
        except InvalidInputError:
            taken = False
        try:
            theirs.create_branch(name, 1)
            assert taken, name
        except OSError:
            assert not taken, name
    listed = dataset.branches.list()
    assert listed == theirs.branches.list()
    assert len(listed) == 12
    for name in ("a/data", "x/tree/y", "x/_versions"):
        with pytest.raises(InvalidInputError, match="keep their own files"):
            dataset.create_branch(name, 1)


def test_a_branch_name_can_be_used_once(path: Path) -> None:
    our_branch(path, "b", 1)
    with pytest.raises(InvalidInputError, match="branch 'b' already exists"):
        our_branch(path, "b", 2)
    pylance_branch(path, "c")
    with pytest.raises(InvalidInputError, match="branch 'c' already exists"):
        our_branch(path, "c")
    assert read_ids(path, "b") == [*range(6)]


def test_a_repeated_request_recognises_its_own_branch_file(
    path: Path, repeat_puts: Callable[[], None]
) -> None:
    """A creation succeeds if its own file exists because the answer to the first request was
    lost.
    """
    repeat_puts()
    dataset = open_dataset(str(path))
    dataset.create_branch("b").tags.create("t")
    assert read_ids(path, "b") == [0, *range(2, 9)]
    assert dataset.tags.list()["t"]["branch"] == "b"
    with pytest.raises(InvalidInputError, match="branch 'b' already exists"):
        dataset.create_branch("b")
    with pytest.raises(InvalidInputError, match="tag 't' already exists"):
        dataset.tags.create("t")


def test_an_unfinished_creation_is_adopted(path: Path) -> None:
    dataset = open_dataset(str(path))
    dataset.create_branch("a/b")
    (path / "_refs/branches/a%2Fb.json").unlink()
    with pytest.raises(VersionNotFoundError, match="branch 'a/b' not found"):
        open_dataset(str(path), branch="a/b")
    with pytest.raises(InvalidInputError, match="unfinished creation or deletion of a branch"):
        dataset.create_branch("a/b", 1)
    dataset.create_branch("a/b")
    assert read_ids(path, "a/b") == [0, *range(2, 9)]
    (path / "_refs/branches/a%2Fb.json").unlink()
    dataset.branches.delete("a/b")
    dataset.create_branch("a/b", 1)
    assert read_ids(path, "a/b") == [*range(6)]


def test_a_copy_of_a_branch_folder_is_a_table(path: Path) -> None:
    our_branch(path, "b")
    copy = path.parent / "copy"
    shutil.copytree(path / "tree/b", copy)
    dataset = open_dataset(str(copy))
    assert (dataset.branch, dataset.branches.list()) == (None, {})
    assert dataset.count_rows() == 8


GOOD: dict[str, Any] = {
    "parentBranch": None,
    "identifier": {"version_mapping": [[1, "ab"]]},
    "parentVersion": 1,
    "createAt": 5,
    "manifestSize": 3,
    "metadata": {},
}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        "\x00",
        *(
            json.dumps({**GOOD, **change})
            for change in (
                {"parentBranch": 1},
                {"parentBranch": "../../x"},
                {"parentBranch": "/x"},
                {"parentVersion": -1},
                {"parentVersion": 2**64},
                {"parentVersion": 1.5},
                {"parentVersion": None},
                {"createAt": -1},
                {"createAt": "now"},
                {"manifestSize": 2**70},
                {"metadata": 1},
                {"metadata": {"a": None}},
                {"identifier": 1},
                {"identifier": {}},
                {"identifier": {"version_mapping": {}}},
                {"identifier": {"version_mapping": [[1]]}},
                {"identifier": {"version_mapping": [["1", "a"]]}},
                {"identifier": {"version_mapping": [[True, "a"]]}},
                {"identifier": {"version_mapping": [[2**64, "a"]]}},
                {"identifier": {"version_mapping": [[1, 2]]}},
                {"identifier": {"version_mapping": ["ab"]}},
            )
        ),
    ],
    ids=lambda content: content[:60],
)
def test_corrupt_branch_files_are_refused(path: Path, content: str) -> None:
    our_branch(path, "good")
    (path / "_refs/branches/bad.json").write_text(content)
    dataset = open_dataset(str(path))
    for look in (
        dataset.branches.list,
        lambda: dataset.branches.delete("good"),
        lambda: dataset.branches.replace_metadata("bad", {}),
    ):
        with pytest.raises(CorruptTableError, match=r"_refs/branches/bad\.json"):
            look()
    assert (path / "tree/good").exists()


@pytest.mark.parametrize(
    "name", ["..%2F..%2Fx", "%2Fetc", "a%2F..%2Fb", "a%00b", "%61", "a%2f b", "main", "a%2F"]
)
def test_files_with_invalid_branch_names_are_refused(path: Path, name: str) -> None:
    our_branch(path, "good")
    (path / f"_refs/branches/{name}.json").write_text(json.dumps(GOOD))
    dataset = open_dataset(str(path))
    for look in (dataset.branches.list, lambda: dataset.branches.delete("good")):
        with pytest.raises(CorruptTableError, match=re.escape(f"{name}.json")):
            look()
    with pytest.raises(InvalidInputError):
        branches.delete_branch(ObjectStore.from_uri(path), "../../t")
    assert read_ids(path, "good") == [0, *range(2, 9)]


def test_branch_files_of_early_releases_have_no_identifier(path: Path) -> None:
    our_branch(path, "a")
    our_branch(path, "b", ("a", None))
    for name in ("a", "b"):
        file = path / f"_refs/branches/{name}.json"
        content = json.loads(file.read_text())
        del content["identifier"]
        file.write_text(json.dumps(content))
    dataset = open_dataset(str(path))
    with pytest.raises(InvalidInputError, match="made from 'a'"):
        dataset.branches.delete("a")
    dataset.branches.delete("b")
    dataset.branches.delete("a")
    # A circle of parents ends.
    store = ObjectStore.from_uri(path)
    loop = {
        name: branch_store.Branch(parent, 1, None, 0) for name, parent in (("x", "y"), ("y", "x"))
    }
    unrelated = branch_store.Branch(None, 1, None, 0)
    assert not loop["x"].descends_from("z", unrelated, loop)
    assert branch_store.read_branches(store) == {}


def test_manifests_with_a_wrong_branch_name(path: Path) -> None:
    """The branch name in a manifest must not lead to a folder outside of the table."""
    our_branch(path, "b")
    manifest = manifest_of(path, "b")
    for branch in ("../../..", "b/../..", "", "/", "x"):
        proto = manifest.to_proto()
        proto.branch = branch
        table = open_table(str(path / "tree/b"))
        table = type(table)(table.paths, type(manifest)(proto, "m"))
        try:
            assert table.main.uri == str(path / "tree/b")
        except CorruptTableError:
            assert branch != "x"


def test_branches_work_in_the_memory_store(tmp_path: Path) -> None:
    uri = f"memory://{tmp_path.name}/t"
    table = pa.table({"id": range(5)})
    dataset: Dataset = write_dataset(table, uri)
    dataset.create_branch("feat/x")
    write_dataset(table, uri, "append", branch="feat/x")
    nested = open_dataset(uri, branch="feat/x").create_branch("feat/x/y")
    assert nested.count_rows() == 10
    dataset.branches.delete("feat/x/y")
    dataset.branches.delete("feat/x")
    assert dataset.branches.list() == {}
    assert open_dataset(uri).count_rows() == 5

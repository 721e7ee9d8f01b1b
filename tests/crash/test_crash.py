"""A process that changes a table is killed before each of its steps in turn.

After each kill, both clients open the table, at the version before or after the change. The same
operation can be done again, and a cleanup removes all files that no version refers to.
"""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import lance
import pytest

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import read_manifest
from lance_spark.table.manifest.versions import HINT, list_manifests
from lance_spark.table.paths import deletion_path
from tests.crash.operations import DONE, GRADUAL, OPERATIONS, rows, run
from tests.support.forking import CONTEXT

NEVER = 1 << 60


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three fragments, with a deleted row, versions enough to clean up, a tag and a branch."""
    path = tmp_path_factory.mktemp("crash") / "before"
    dataset = lance.write_dataset(rows(0, 9), str(path), max_rows_per_file=3)
    dataset.delete("id = 1")
    dataset.update_config({"owner": "nobody"})
    dataset.tags.create("first", 1)
    dataset.create_branch("old")
    return path


def killed_at(path: Path, operation: str, step: int) -> bool:
    """Run the operation in a process of its own; return whether it was killed."""
    process = CONTEXT.Process(target=run, args=(str(path), operation, step))
    process.start()
    process.join(60)
    assert process.exitcode in (-signal.SIGKILL, DONE), process.exitcode
    return process.exitcode == -signal.SIGKILL


def content(path: Path) -> tuple[object, ...]:
    """Return the content of the newest version, and all names, as both clients read them."""
    theirs = lance.dataset(str(path))
    theirs.validate()
    ours = lance_spark.open_dataset(str(path))
    assert ours.version == theirs.version
    assert ours.to_table().to_pylist() == theirs.to_table().to_pylist()
    tags = {name: tag["version"] for name, tag in theirs.tags.list().items()}
    assert {name: tag["version"] for name, tag in ours.tags.list().items()} == tags
    branches = sorted(theirs.branches.list())
    assert sorted(ours.branches.list()) == branches
    in_branches = {}
    for branch in branches:
        their_branch = theirs.checkout_version((branch, None))
        # The table is a copy, whose branch reads the original.
        allowed = {"allow_foreign_branch_bases": "true"}
        our_branch = lance_spark.open_dataset(str(path), branch=branch, storage_options=allowed)
        in_branches[branch] = our_branch.to_table().to_pylist()
        assert in_branches[branch] == their_branch.to_table().to_pylist()
    assert ours.config() == theirs.config()
    return (
        ours.to_table().to_pylist(),
        ours.schema,
        ours.config(),
        [fragment.physical_rows for fragment in ours.fragments],
        tags,
        in_branches,
    )


def unused(path: Path) -> set[str]:
    """Return the files that remain after a cleanup although neither the newest version nor a name
    needs them.
    """
    everything = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    dataset = lance_spark.open_dataset(str(path))
    versions = {dataset.version} | {tag["version"] for tag in dataset.tags.list().values()}
    # Files that branches need are kept for them.
    versions |= {branch["parent_version"] for branch in dataset.branches.list().values()}
    used = set()
    store = ObjectStore.from_uri(path)
    for location in list_manifests(store):
        if location.version not in versions:
            continue
        manifest = read_manifest(store, location)
        used |= {location.path, f"_transactions/{manifest.transaction_file}"}
        for fragment in manifest.fragments:
            used |= {f"data/{file.path}" for file in fragment.files}
            if fragment.deletion_file is not None:
                used.add(deletion_path(fragment.deletion_file, fragment.id))
    return {
        name
        for name in everything - used
        if not name.startswith(("_refs/", "tree/")) and name != HINT
    }


def left(path: Path) -> tuple[tuple[str, int], ...]:
    """Return the name and the size of each file that a killed process left, without random parts of
    names.

    Steps that only read or sync leave the same files as the step before them.

    Steps that only read or sync leave what the step before them left.
    """
    remaining = []
    for file in path.rglob("*"):
        relative_path = file.relative_to(path)
        name = re.sub(r"[0-9a-f]{8,}(-[0-9a-f]+)*", "*", str(relative_path))
        remaining.append((name, file.stat().st_size if file.is_file() else 0))
    return tuple(sorted(remaining))


def done(path: Path, operation: str) -> tuple[object, ...]:
    """Return the content after the operation, or the type of its error."""
    try:
        OPERATIONS[operation](str(path))
    except LanceError as error:
        return type(error), content(path)
    return content(path)


@pytest.mark.sample(3)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_before_every_step(table: Path, operation: str, tmp_path: Path) -> None:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(table, tmp_path / name))

    reference = copy("reference")
    before = content(reference)
    after = done(reference, operation)
    twice = done(reference, operation)
    shutil.rmtree(reference)
    seen = set()
    states = set()
    for step in range(10_000):
        path = copy(f"step{step}")
        killed = killed_at(path, operation, step)
        files = left(path)
        if killed and files in states:
            shutil.rmtree(path)
            continue
        states.add(files)
        content_after = content(path)
        if operation not in GRADUAL:
            assert content_after in (before, after), step
            seen.add(content_after == after)
        again = done(path, operation)
        # If the content is new, the operation completes its first run, or runs a second time.
        assert again in ((after,) if content_after == before else (after, twice)), step
        OPERATIONS["cleanup"](str(path))
        assert not unused(path), step
        assert content(path) == (again if len(again) > 2 else again[1]), step
        shutil.rmtree(path)
        if not killed:
            break
    assert step > 2
    assert seen == ({False, True} if operation not in GRADUAL else set())

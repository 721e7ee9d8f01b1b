"""A process that changes a table is killed before each of its steps in turn.

Whenever it happens: both clients open the table, at the version before or the one after, the same operation can be done again, and a
cleanup leaves no file behind that no version refers to.
"""

from __future__ import annotations

import multiprocessing
import shutil
import signal
from pathlib import Path

import lance
import pytest

import lance_spark
from lance_spark.errors import LanceError
from tests.crash.operations import DONE, OPERATIONS, rows, run

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.crash.operations"])
NEVER = 1 << 60


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three fragments, rows of the first of which are deleted."""
    path = tmp_path_factory.mktemp("crash") / "before"
    dataset = lance.write_dataset(rows(0, 9), str(path), max_rows_per_file=3)
    dataset.delete("id = 1")
    dataset.update_config({"owner": "nobody"})
    return path


def killed_at(path: Path, operation: str, step: int) -> bool:
    """Run the operation in a process of its own; tell whether it was killed."""
    process = CONTEXT.Process(target=run, args=(str(path), operation, step))
    process.start()
    process.join(60)
    assert process.exitcode in (-signal.SIGKILL, DONE), process.exitcode
    return process.exitcode == -signal.SIGKILL


def content(path: Path) -> tuple[object, ...]:
    """What the newest version holds, by both clients."""
    theirs = lance.dataset(str(path))
    theirs.validate()
    ours = lance_spark.open_dataset(str(path))
    assert ours.version == theirs.version
    assert ours.to_table().to_pylist() == theirs.to_table().to_pylist()
    return (
        ours.to_table().to_pylist(),
        tuple(ours.schema.names),
        tuple(sorted(theirs.config().items())),
    )


def done(path: Path, operation: str) -> tuple[object, ...]:
    """What there is once the operation is done, or the kind of error."""
    try:
        OPERATIONS[operation](str(path))
    except LanceError as error:
        return type(error), content(path)
    return content(path)


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
    for step in range(10_000):
        path = copy(f"step{step}")
        killed = killed_at(path, operation, step)
        found = content(path)
        assert found in (before, after), step
        seen.add(found == after)
        assert done(path, operation) == (after if found == before else twice), step
        shutil.rmtree(path)
        if not killed:
            break
    assert step > 5
    assert seen == {False, True}

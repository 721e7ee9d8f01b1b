"""Handles of a table that was deleted and created again at the same path."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import fsspec
import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark import Dataset
from lance_spark.errors import VersionNotFoundError
from lance_spark.mutations.merge_schema import begin_merging_write
from lance_spark.mutations.rows.partial_overwrite import ReplaceRows
from lance_spark.predicates.tree import Constant
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit import commit
from lance_spark.table.commit.write import (
    WriteJob,
    begin_write,
    commit_on_newest,
    commit_or_clean_up,
)
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.codec import read_version

Planned = Callable[[str], tuple[WriteJob, pa.Table]]
Commit = Callable[[WriteJob, list[Fragment]], object]


@pytest.fixture(params=["disk", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(commit, "_FRESH_SECONDS", 0.0)
    return str(tmp_path / "t") if request.param == "disk" else "memory://made-anew/t"


def made(uri: str, first: int) -> Dataset:
    if "://" in uri:
        fs = fsspec.filesystem("memory")
        if fs.exists("/made-anew/t"):
            fs.rm("/made-anew/t", recursive=True)
    else:
        shutil.rmtree(uri, ignore_errors=True)
    return lance_spark.write_dataset(pa.table({"a": [first, first + 1]}), uri)


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.update_config({"x": "y"}),
        lambda dataset: dataset.add_columns(pa.field("b", pa.int64())),
        lambda dataset: dataset.alter_columns({"path": "a", "name": "b"}),
    ],
)
def test_change_is_not_committed_to_recreated_table(
    uri: str, change: Callable[[Dataset], object]
) -> None:
    old = made(uri, 0)
    new = made(uri, 100)
    assert old.version == new.version
    with pytest.raises(VersionNotFoundError, match="the table or the version was deleted"):
        change(old)
    result = lance_spark.open_dataset(uri)
    assert result.version == 1
    assert result.to_table()["a"].to_pylist() == [100, 101]
    change(new)
    assert lance_spark.open_dataset(uri).version == 2


ROWS = pa.table({"a": pa.array([7, 8], pa.int64())})
MORE = pa.table({"a": pa.array([7, 8], pa.int64()), "b": pa.array([1, 2], pa.int64())})


def append(uri: str) -> tuple[WriteJob, pa.Table]:
    return begin_write(uri, ROWS.schema, mode="append"), ROWS


def overwrite(uri: str) -> tuple[WriteJob, pa.Table]:
    return begin_write(uri, ROWS.schema, mode="overwrite"), ROWS


def append_with_new_columns(uri: str) -> tuple[WriteJob, pa.Table]:
    return begin_merging_write(uri, MORE.schema), MORE


def overwrite_of_a_part(uri: str) -> tuple[WriteJob, pa.Table]:
    return append(uri)[0].with_strategy(ReplaceRows(Constant(True))), ROWS


WRITES = [append, overwrite, append_with_new_columns, overwrite_of_a_part]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("commit_write", [commit_or_clean_up, commit_on_newest])
@pytest.mark.parametrize("write", WRITES)
def test_rows_are_not_committed_to_recreated_table(
    uri: str, write: Planned, commit_write: Commit, late: bool
) -> None:
    """The new table can have equal field ids; the data files may be gone with the old table."""
    made(uri, 0)
    job, rows = write(uri)
    if not late:
        made(uri, 100)
    writer = job.writer()
    for batch in rows.to_batches():
        writer.write(batch)
    fragments = writer.finish()
    if late:
        made(uri, 100)
    with pytest.raises(VersionNotFoundError, match="the table or the version was deleted"):
        commit_write(job, fragments)
    result = lance_spark.open_dataset(uri)
    assert result.version == 1
    assert result.to_table()["a"].to_pylist() == [100, 101]
    assert len(result._table.store.list("data")) == 1


def restored(dataset: Dataset) -> object:
    return dataset.restore()


def branched(dataset: Dataset) -> object:
    return dataset.create_branch("b")


def tagged(dataset: Dataset) -> object:
    return dataset.tags.create("t")


@pytest.mark.parametrize("give", [restored, branched, tagged])
def test_version_of_recreated_table_is_not_restored_or_tagged(
    uri: str, give: Callable[[Dataset], object]
) -> None:
    old = made(uri, 0)
    new = made(uri, 100)
    with pytest.raises(VersionNotFoundError, match="the table or the version was deleted"):
        give(old)
    result = lance_spark.open_dataset(uri)
    assert (result.version, result.tags.list(), result.branches.list()) == (1, {}, {})
    give(new)


def test_version_read_by_another_process_is_always_checked(uri: str) -> None:
    manifest = read_version(made(uri, 0)._table.store, 1)
    assert manifest.read_at > 0
    assert pickle.loads(pickle.dumps(manifest)).read_at < 0


class Killed(BaseException):
    """Simulates a kill of the process: no handler catches it."""


def killed_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End the process at deletion number `call`, counted from 0."""
    delete, calls = ObjectStore.delete, iter(range(1000))

    def killed_delete(self: ObjectStore, paths: Iterable[str]) -> None:
        for path in paths:
            if next(calls) == call:
                raise Killed
            delete(self, [path])

    monkeypatch.setattr(ObjectStore, "delete", killed_delete)


def test_a_drop_that_was_killed_leaves_no_names_for_a_new_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    data = pa.table({"a": [0]})
    for call in range(100):
        shutil.rmtree(path, ignore_errors=True)
        for mode in ("create", "append"):
            old = lance_spark.write_dataset(data, path, mode=mode)
        old.tags.create("before", 1)
        old.create_branch("b", 1)
        killed = False
        with monkeypatch.context() as patch:
            killed_at(call, patch)
            try:
                Dataset.drop(path)
            except Killed:
                killed = True
        if not killed:
            break
        if (path / "_versions").exists() and list((path / "_versions").glob("*.manifest")):
            continue
        new = lance_spark.write_dataset(pa.table({"a": [100]}), path)
        assert new.tags.list() == {}
        assert new.branches.list() == {}
        assert lance.dataset(str(path)).tags.list() == {}
    assert call > 5

"""Copied and moved tables: their base paths, and branches that refer to absolute paths."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import DatasetBasePath

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    MissingFileError,
)
from lance_spark.mutations.merge_schema import begin_merging_write
from lance_spark.mutations.rows.partial_overwrite import ReplaceRows
from lance_spark.predicates.sql import parse_predicate
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import _Attempts, commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.commit.write import BaseTargets, begin_write
from lance_spark.table.open import read_latest
from lance_spark.table.operations.metadata import UpdateBases
from lance_spark.table.paths import BasePath
from tests.support.tables.pylance_written import rows


def with_base(tmp_path: Path, *, is_root: bool) -> Path:
    """Let pylance write three rows to the table, and three to the base path 1."""
    path = tmp_path / "t"
    base = DatasetBasePath(str(tmp_path / "old"), "tier", is_root)
    lance.write_dataset(rows(0), path, initial_bases=[base])
    lance.write_dataset(rows(3), path, mode="append", target_bases=["tier"])
    return path


@pytest.mark.parametrize("is_root", [False, True])
def test_repoint_base_changes_the_path(tmp_path: Path, is_root: bool) -> None:
    path = with_base(tmp_path, is_root=is_root)
    dataset = open_dataset(str(path))
    new = tmp_path / "new"
    with pytest.raises(MissingFileError, match="1 of the 1 files of base path 'tier'"):
        dataset.repoint_base("tier", str(new))
    shutil.move(tmp_path / "old", new)
    moved = dataset.repoint_base("tier", str(new), commit_message="moved")
    assert moved.base_paths() == {1: BasePath(1, str(new), is_root, "tier")}
    theirs = lance.dataset(path)
    theirs.validate()
    assert theirs.base_paths()[1].path == str(new)
    assert theirs.to_table() == moved.to_table() == rows(0, 6)
    # Both clients continue to write.
    lance.write_dataset(rows(6), path, mode="append", target_bases=["tier"])
    write_dataset(rows(9), str(path), "append", target_bases=["tier"])
    assert lance.dataset(path).to_table() == open_dataset(str(path)).to_table() == rows(0, 12)
    # Older versions still look for files at their old places.
    with pytest.raises(MissingFileError):
        dataset.to_table()
    with pytest.raises(InvalidInputError, match=r"already points to"):
        moved.repoint_base(1, str(new))
    with pytest.raises(InvalidInputError, match=r"no base path 'x'; it has 1 \('tier'\)"):
        moved.repoint_base("x", str(new))


def test_repoint_base_refuses_files_of_another_size(tmp_path: Path) -> None:
    path = with_base(tmp_path, is_root=True)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    (file,) = (tmp_path / "new" / "data").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(MissingFileError, match="other sizes"):
        open_dataset(str(path)).repoint_base("tier", str(tmp_path / "new"))


def test_repoint_base_refuses_the_path_of_another_base(tmp_path: Path) -> None:
    path = with_base(tmp_path, is_root=False)
    other_base = tmp_path / "other"
    dataset = open_dataset(str(path)).add_bases([BasePath(0, str(other_base), False, "other")])
    shutil.copytree(tmp_path / "old", other_base)
    with pytest.raises(InvalidInputError, match="another one with the same name or path"):
        dataset.repoint_base("tier", str(other_base))


def test_pylance_replaces_base_paths_by_id_as_well(tmp_path: Path) -> None:
    """This package commits the same transaction with which pylance replaces a base path."""
    path = with_base(tmp_path, is_root=False)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    lance.dataset(path).add_bases([DatasetBasePath(str(tmp_path / "new"), "renamed", False, 1)])
    assert open_dataset(str(path)).base_paths() == {
        1: BasePath(1, str(tmp_path / "new"), False, "renamed")
    }


def test_a_write_planned_with_the_old_path_conflicts(tmp_path: Path) -> None:
    path = with_base(tmp_path, is_root=False)
    job = begin_write(str(path), rows(0).schema, bases=BaseTargets(names=["tier"]))
    writer = job.writer()
    writer.write(rows(6).to_batches()[0])
    fragments = writer.finish()
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    dataset = open_dataset(str(path)).repoint_base("tier", str(tmp_path / "new"))
    with pytest.raises(CommitConflictError, match="changed the base path 1") as raised:
        job.commit(fragments)
    assert raised.value.retryable
    assert lance.dataset(path).to_table() == dataset.to_table() == rows(0, 6)


def repointed_before(monkeypatch: pytest.MonkeyPatch, path: Path, operation: str) -> None:
    """Give the base path another path, in the moment before an operation is committed."""
    original = _Attempts.run

    def run(attempts: _Attempts, *args: object) -> object:
        if attempts._transaction.operation.name == operation:
            monkeypatch.setattr(_Attempts, "run", original)
            open_dataset(path).repoint_base("tier", str(path.parent / "new"))
        return original(attempts, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(_Attempts, "run", run)


@pytest.mark.parametrize("change", ["add", "cast"])
def test_computed_columns_follow_a_base_path_to_its_new_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = with_base(tmp_path, is_root=False)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    dataset = open_dataset(path)
    repointed_before(monkeypatch, path, "merge")
    if change == "add":
        dataset.add_columns({"more": "id + 1"})
    else:
        dataset.alter_columns({"path": "id", "data_type": pa.int32()})
    assert open_dataset(path).base_paths()[1].path == str(tmp_path / "new")
    assert lance.dataset(path).to_table() == open_dataset(path).to_table()
    assert len(list((tmp_path / "old").iterdir())) == 1


@pytest.mark.parametrize("change", ["new columns", "part"])
def test_rows_below_the_old_path_of_a_base_path_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = with_base(tmp_path, is_root=False)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    bases = BaseTargets(names=["tier"])
    new = rows(6)
    if change == "new columns":
        new = new.append_column("more", pa.nulls(len(new), pa.int8()))
        job = begin_merging_write(str(path), new.schema, bases=bases)
    else:
        job = begin_write(str(path), new.schema, bases=bases)
        condition = parse_predicate("id < 6", job.base().schema)
        job = job.with_strategy(ReplaceRows(condition))
    writer = job.writer()
    writer.write(new.to_batches()[0])
    fragments = writer.finish()
    repointed_before(monkeypatch, path, "merge" if change == "new columns" else "update")
    with pytest.raises(CommitConflictError, match="base path"):
        job.commit(fragments)
    assert lance.dataset(path).to_table() == open_dataset(path).to_table() == rows(0, 6)


def test_a_concurrent_append_conflicts_with_a_new_path(tmp_path: Path) -> None:
    path = with_base(tmp_path, is_root=False)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    lance.write_dataset(rows(6), path, mode="append", target_bases=["tier"])
    moved = UpdateBases((BasePath(1, str(tmp_path / "new"), False, "tier"),), replaces=True)
    with pytest.raises(CommitConflictError) as raised:
        commit(store, Transaction.new(base.version, moved), base)
    assert raised.value.retryable


def branched(path: Path) -> None:
    """Let pylance create `a` from the main branch and `a/b` from `a`, each with its own rows."""
    lance.write_dataset(rows(0), path)
    first = lance.dataset(path).create_branch("a")
    first = lance.write_dataset(rows(3), first.uri, mode="append")
    second = lance.dataset(path).checkout_version(("a", None)).create_branch("a/b")
    lance.write_dataset(rows(6), second.uri, mode="append")


def test_branches_of_a_copied_table_are_refused_until_repaired(tmp_path: Path) -> None:
    path, copy = tmp_path / "t", tmp_path / "copy" / "t"
    branched(path)
    shutil.copytree(path, copy)
    assert open_dataset(str(copy)).to_table() == rows(0)
    # pylance reads the files of the original as long as they exist.
    assert lance.dataset(copy).checkout_version(("a", None)).base_paths()[0].path == str(path)
    for name in ("a", "a/b"):
        with pytest.raises(CorruptTableError, match=r"the table was copied or moved.*repair"):
            open_dataset(str(copy), branch=name)
        with pytest.raises(CorruptTableError, match="copied or moved"):
            write_dataset(rows(9), str(copy), "append", branch=name)
        allowed = {"allow_foreign_branch_bases": "true"}
        assert open_dataset(str(copy), branch=name, storage_options=allowed).count_rows() >= 6
        assert open_dataset(str(path), branch=name).count_rows() >= 6
    shutil.rmtree(path)
    repaired = open_dataset(str(copy)).repair_branches()
    assert [(item.branch, item.problem) for item in repaired] == [("a", ""), ("a/b", "")]
    assert all(item.version for item in repaired)
    for name, count in (("a", 6), ("a/b", 9)):
        ours = open_dataset(str(copy), branch=name)
        theirs = lance.dataset(copy).checkout_version((name, None))
        theirs.validate()
        assert ours.to_table() == theirs.to_table() == rows(0, count)
        with pytest.raises(CorruptTableError, match="copied or moved"):
            open_dataset(str(copy), branch=name, version=ours.version - 1)
        write_dataset(rows(count), str(copy), "append", branch=name)
        assert lance.dataset(copy).checkout_version((name, None)).to_table() == rows(0, count + 3)
    assert [item.version for item in open_dataset(str(copy)).repair_branches()] == [None, None]


def test_a_branch_with_missing_files_is_not_repaired(tmp_path: Path) -> None:
    path, copy = tmp_path / "t", tmp_path / "copy"
    branched(path)
    shutil.copytree(path, copy)
    for file in (copy / "data").iterdir():
        file.unlink()
    result = open_dataset(str(copy)).repair_branches()
    assert [item.version for item in result] == [None, None]
    assert all("1 of the 1 files below" in item.problem for item in result)
    for name in ("a", "a/b"):
        with pytest.raises(CorruptTableError, match="copied or moved"):
            open_dataset(str(copy), branch=name)


def test_branches_of_a_copied_clone_keep_the_source(tmp_path: Path) -> None:
    """The source does not move: only the clone's own files are in the copy."""
    source, clone, copy = (tmp_path / name for name in ("source", "clone", "copy"))
    lance.write_dataset(rows(0), source).shallow_clone(str(clone), reference=1)
    lance.write_dataset(rows(3), clone, mode="append")
    lance.dataset(clone).create_branch("a")
    open_dataset(str(clone), branch="a")
    shutil.copytree(clone, copy)
    assert lance.dataset(copy).to_table() == open_dataset(str(copy)).to_table() == rows(0, 6)
    with pytest.raises(CorruptTableError, match="copied or moved"):
        open_dataset(str(copy), branch="a")
    (repaired,) = open_dataset(str(copy)).repair_branches()
    assert len(repaired.bases) == 1
    shutil.rmtree(clone)
    branch = open_dataset(str(copy), branch="a")
    assert branch.to_table() == rows(0, 6)
    assert lance.dataset(copy).checkout_version(("a", None)).to_table() == rows(0, 6)


def test_spellings_of_the_same_location_are_equal(tmp_path: Path) -> None:
    path = tmp_path / "t"
    branched(path)
    (tmp_path / "link").symlink_to(path)
    assert open_dataset(str(tmp_path / "link"), branch="a").to_table() == rows(0, 6)
    assert open_dataset(path.as_uri(), branch="a/b").to_table() == rows(0, 9)
    assert open_dataset(str(path / "tree" / "a")).to_table() == rows(0, 6)

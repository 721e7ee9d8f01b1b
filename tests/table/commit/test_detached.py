"""Detached versions: written by either client, read by the other, not in the history."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import lance
import pytest

from lance_spark import Dataset, open_dataset, write_dataset
from lance_spark.errors import (
    InvalidInputError,
    StorageError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.operations.append import Append
from lance_spark.table.operations.base import Operation
from tests.support.tables.pylance_written import ids, rows, written_by_pylance


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    lance.write_dataset(rows(0), str(path))
    lance.write_dataset(rows(3), str(path), mode="append")
    return path


def append(path: Path, start: int) -> Operation:
    return Append(written_by_pylance(path, rows(start)))


def ids_of(path: Path, version: int) -> list[int]:
    """Return the ids in a version; both clients must read the same."""
    theirs = lance.dataset(str(path), version=version)
    mine = open_dataset(str(path), version)
    assert (mine.version, theirs.version) == (version, version)
    assert mine.to_table() == theirs.to_table()
    return sorted(mine.to_table()["id"].to_pylist())


def test_a_detached_version(path: Path) -> None:
    dataset = open_dataset(str(path))
    made = Dataset.commit(dataset, append(path, 6), 2, detached=True, commit_message="apart")
    assert made.version >= 2**63
    assert (path / f"_versions/d{made.version}.manifest").exists()
    assert ids_of(path, made.version) == [*range(9)]
    transaction = made.read_transaction(made.version)
    assert transaction is not None
    assert transaction.properties == {"__lance_commit_message": "apart"}
    # The history does not contain it.
    assert dataset.latest_version == 2
    assert [info.version for info in dataset.versions()] == [1, 2]
    assert [version["version"] for version in lance.dataset(str(path)).versions()] == [1, 2]
    assert ids(path) == [*range(6)]
    write_dataset(rows(50), str(path), "append")
    assert ids_of(path, made.version) == [*range(9)]
    assert made.checkout_version(3).count_rows() == 9


def test_detached_version_of_pylance_as_base(path: Path) -> None:
    fragment = lance.fragment.LanceFragment.create(str(path), rows(6))
    operation = lance.LanceOperation.Append([fragment])
    theirs = lance.LanceDataset.commit(str(path), operation, read_version=2, detached=True)
    assert ids_of(path, theirs.version) == [*range(9)]
    mine = Dataset.commit(str(path), append(path, 9), theirs.version, detached=True)
    assert ids_of(path, mine.version) == [*range(12)]
    fragment = lance.fragment.LanceFragment.create(str(path), rows(12))
    operation = lance.LanceOperation.Append([fragment])
    again = lance.LanceDataset.commit(
        str(path), operation, read_version=mine.version, detached=True
    )
    assert ids_of(path, again.version) == [*range(15)]


def test_tags_of_detached_versions(path: Path) -> None:
    dataset = open_dataset(str(path))
    made = Dataset.commit(dataset, append(path, 6), 2, detached=True)
    dataset.tags.create("mine", made.version)
    lance.dataset(str(path)).tags.create("theirs", made.version)
    for name in ("mine", "theirs"):
        assert open_dataset(str(path), tag=name).version == made.version
        assert lance.dataset(str(path), version=name).version == made.version
    assert dataset.tags.list() == lance.dataset(str(path)).tags.list()


def test_invalid_uses_of_detached_versions(path: Path) -> None:
    dataset = open_dataset(str(path))
    made = Dataset.commit(dataset, append(path, 6), 2, detached=True)
    with pytest.raises(InvalidInputError, match="only detached versions can follow it"):
        Dataset.commit(made, append(path, 9), made.version)
    for make in (made.create_branch, made.shallow_clone, made.deep_clone):
        with pytest.raises(InvalidInputError, match="is detached"):
            make(f"{path.name}-x")
    with pytest.raises(InvalidInputError, match="needs read_version"):
        Dataset.commit(dataset, append(path, 9), detached=True)
    missing_version = made.version ^ 1
    for missing in (missing_version, 2**64 - 1, 2**64, 2**70):
        with pytest.raises(VersionNotFoundError, match=str(missing)):
            open_dataset(str(path), missing)
    assert dataset.branches.list() == {}


def test_names_of_scheme_v1(tmp_path: Path) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows(0), str(path), enable_v2_manifest_paths=False)
    with pytest.raises(InvalidInputError, match="migrate_manifest_paths_v2"):
        Dataset.commit(str(path), append(path, 3), 1, detached=True)
    open_dataset(str(path)).migrate_manifest_paths_v2()
    made = Dataset.commit(str(path), append(path, 3), 1, detached=True)
    assert ids_of(path, made.version) == [*range(6)]
    # Other migrations leave it where it is.
    open_dataset(str(path)).migrate_manifest_paths_v2()
    assert ids_of(path, made.version) == [*range(6)]


def test_detached_version_on_branch(path: Path) -> None:
    branch = open_dataset(str(path)).create_branch("b")
    made = Dataset.commit(branch, append(path / "tree/b", 6), 2, detached=True)
    assert (made.branch, made.count_rows()) == ("b", 9)
    theirs = lance.dataset(str(path)).checkout_version(("b", made.version))
    assert theirs.count_rows() == 9


def test_stable_row_ids(tmp_path: Path) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows(0), str(path), enable_stable_row_ids=True)
    made = Dataset.commit(str(path), append(path, 3), 1, detached=True)
    theirs = lance.dataset(str(path), version=made.version).to_table(with_row_id=True)
    assert theirs["_rowid"].to_pylist() == [*range(6)]
    assert made.to_table(with_row_id=True) == theirs


def test_store_that_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: ObjectStore, *args: object) -> bool:
        raise StorageError("lost") from OSError("timeout")

    operation = append(path, 6)
    monkeypatch.setattr(ObjectStore, "put_if_absent", lost)
    with pytest.raises(UncertainCommitError, match=r"detached version \d{19,20}"):
        Dataset.commit(str(path), operation, 2, detached=True)


def test_store_that_refuses_requests(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: ObjectStore, *args: object) -> bool:
        raise StorageError("permission denied") from PermissionError()

    operation = append(path, 6)
    before = set((path / "_transactions").iterdir())
    monkeypatch.setattr(ObjectStore, "put_if_absent", refused)
    with pytest.raises(StorageError, match="permission denied") as caught:
        Dataset.commit(str(path), operation, 2, detached=True)
    assert not isinstance(caught.value, UncertainCommitError)
    assert set((path / "_transactions").iterdir()) == before


def test_request_repeated_by_the_store(path: Path, repeat_puts: Callable[[], None]) -> None:
    operation = append(path, 6)
    repeat_puts()
    made = Dataset.commit(str(path), operation, 2, detached=True)
    assert ids_of(path, made.version) == [*range(9)]


def test_numbers_are_random(path: Path) -> None:
    operation = append(path, 6)
    made = {Dataset.commit(str(path), operation, 2, detached=True).version for _ in range(5)}
    assert len(made) == 5
    assert all(versions.is_detached(version) for version in made)
    names = [file.name for file in (path / "_versions").glob("d*")]
    assert sorted(int(re.fullmatch(r"d(\d+)\.manifest", name)[1]) for name in names) == sorted(made)  # type: ignore[index]

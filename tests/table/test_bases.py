"""Base paths that are added to a table: compared with pylance, and refused if invalid."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest
from lance.dataset import DatasetBasePath

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CommitConflictError, InvalidInputError, InvalidOptionError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.bases import new_bases, targets
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append
from lance_spark.table.operations.metadata import UpdateBases
from lance_spark.table.paths import BasePath
from tests.support.tables.pylance_written import new_table, rows

Base = tuple[int, str | None, str, bool]


def bases(path: Path) -> list[tuple[int, str | None, str, bool]]:
    proto = read_latest(ObjectStore.from_uri(path)).to_proto()
    return [
        (base.id, base.name if base.HasField("name") else None, base.path, base.is_dataset_root)
        for base in proto.base_paths
    ]


def given(number: int, name: str | None, path: str, root: bool = False) -> DatasetBasePath:
    return DatasetBasePath(path, name, root, number or None)


def test_added_bases_equal_those_of_pylance(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    new_table(theirs)
    shutil.copytree(theirs, ours)
    for step in (
        [given(0, "a", "/data/a")],
        [given(0, None, "/data/b", True), given(9, "c", "/data/c")],
        [given(0, "d", "s3://bucket/d")],
    ):
        lance.dataset(str(theirs)).add_bases(step, {"who": "me"})
        made = open_dataset(str(ours)).add_bases(step, {"who": "me"})
        assert sorted(bases(ours)) == sorted(bases(theirs))
        assert sorted(made.base_paths()) == sorted(number for number, *_ in bases(ours))
        read = lance.dataset(str(ours))
        assert read.read_transaction(read.version).transaction_properties == {"who": "me"}
        assert read_latest(ObjectStore.from_uri(ours)).flags.reader == 16


def test_files_are_written_to_an_added_base(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    dataset = open_dataset(str(path)).add_bases([BasePath(0, str(tmp_path / "more"), False, "m")])
    write_dataset(rows(6), dataset.uri, mode="append", target_bases=["m"])
    assert len(list((tmp_path / "more").glob("*.lance"))) == 1
    read = lance.dataset(str(path))
    read.validate()
    assert read.to_table() == rows(0, 9) == open_dataset(str(path)).to_table()
    lance.write_dataset(rows(9), str(path), mode="append", target_bases=["m"])
    assert open_dataset(str(path)).to_table() == rows(0, 12)


def test_files_below_a_missing_base_path_are_refused(tmp_path: Path) -> None:
    """pylance commits them, and reads the table no more."""
    path, other = tmp_path / "t", tmp_path / "other"
    base = BasePath(0, str(tmp_path / "more"), False, "m")
    write_dataset(rows(0), path)
    write_dataset(rows(3), other, initial_bases=[base], target_bases=["m"])
    append = Append(tuple(read_latest(ObjectStore.from_uri(other)).fragments))
    with pytest.raises(InvalidInputError, match="base path 1, which the table does not have"):
        Dataset.commit(path, append, 1)
    assert open_dataset(path).add_bases([base]).version == 2
    assert Dataset.commit(path, append, 2).to_table() == rows(0, 6)


@pytest.mark.parametrize(
    "second", [given(0, "a", "/data/z"), given(0, "z", "/data/a"), given(1, "z", "/data/z")]
)
def test_base_with_existing_name_path_or_id_is_refused(
    tmp_path: Path, second: DatasetBasePath
) -> None:
    path = tmp_path / "t"
    new_table(path)
    made = open_dataset(str(path)).add_bases([given(0, "a", "/data/a")])
    with pytest.raises(InvalidInputError, match="one with the same name, path or id"):
        made.add_bases([second])
    assert made.latest_version == 2


@pytest.mark.parametrize(
    ("mine", "theirs", "holds"),
    [
        ((0, "a", "/data/a"), (0, "b", "/data/b"), True),
        ((0, "a", "/data/a"), (0, "a", "/data/b"), False),
        ((0, "a", "/data/a"), (0, "b", "/data/a"), False),
        ((3, "a", "/data/a"), (3, "b", "/data/b"), False),
        ((0, None, "/data/a"), (0, None, "/data/b"), True),
    ],
)
def test_concurrent_changes_of_bases(
    tmp_path: Path, mine: tuple[int, str, str], theirs: tuple[int, str, str], holds: bool
) -> None:
    path = tmp_path / "t"
    new_table(path)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    lance.dataset(str(path)).add_bases([given(*theirs)])
    operation = UpdateBases((BasePath(mine[0], mine[2], False, mine[1]),))
    if holds:
        commit(store, Transaction.new(1, operation), base)
        assert [number for number, *_ in bases(path)] == [1, 2]
        lance.dataset(str(path)).validate()
        return
    with pytest.raises(CommitConflictError) as raised:
        commit(store, Transaction.new(1, operation), base)
    assert not raised.value.retryable


def test_errors_hide_secrets_in_paths() -> None:
    """Paths can contain a password or a signature."""
    secret = "ftp://me:hidden@host/a?sig=hidden"
    base = BasePath(1, secret, True)
    with pytest.raises(InvalidInputError, match="two base paths have the same path") as twice:
        new_bases([base, BasePath(2, secret, True)])
    with pytest.raises(InvalidOptionError, match=r"base path .* not found") as missing:
        targets({1: base}, [secret + "2"], None, ObjectStore.from_uri("/t"))
    assert "hidden" not in f"{twice.value} {missing.value}"

"""Commits on stores that lose requests and answers, or on which other clients are always faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from lance_spark.errors import CommitConflictError, StorageError, UncertainCommitError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit import options as retry_module
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append
from tests.support.tables.pylance_written import ids, manifests, new_table, rows, written_by_pylance
from tests.table.commit.changes import append, overwrite, transaction_files


class Unreliable(ObjectStore):
    """A store whose `put_if_absent` fails `times` times in a chosen way."""

    way = ""
    times = 1

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.times == 0:
            return super().put_if_absent(path, data)
        self.times -= 1
        if self.way == "answer lost":
            super().put_if_absent(path, data)
        if self.way == "repeated":
            assert super().put_if_absent(path, data)
            return super().put_if_absent(path, data)
        if self.way == "overtaken":
            append(Path(self.uri), 100)
        if self.way == "forbidden":
            raise StorageError("permission denied") from PermissionError()
        raise StorageError("timeout") from TimeoutError()


@pytest.fixture
def unreliable(path: Path, monkeypatch: pytest.MonkeyPatch) -> Unreliable:
    new_table(path)
    monkeypatch.setattr(retry_module, "_FIRST_WAIT", 0.0001)
    monkeypatch.setattr(retry_module, "_LONGEST_WAIT", 0.001)
    return Unreliable.from_uri(path)


@pytest.mark.parametrize("way", ["answer lost", "repeated", "request lost"])
def test_commit_happens_once(path: Path, unreliable: Unreliable, way: str) -> None:
    unreliable.way = way
    made = append(path, 6, unreliable)
    assert made.version == 2
    assert ids(path) == list(range(9))
    assert len(manifests(path)) == 2
    assert len(transaction_files(path)) == 2


def test_creation_happens_once(tmp_path: Path) -> None:
    store = Unreliable.from_uri(tmp_path / "new")
    store.way = "answer lost"
    operation = overwrite(tmp_path / "new", rows(0), data_storage_version=(2, 2))
    assert commit(store, Transaction.new(0, operation), None).version == 1
    assert ids(tmp_path / "new") == [0, 1, 2]


def test_lost_request_overtaken_by_another_client(path: Path, unreliable: Unreliable) -> None:
    unreliable.way = "overtaken"
    assert append(path, 6, unreliable).version == 3
    assert sorted(ids(path)) == [*range(9), 100, 101, 102]


def test_store_that_never_answers(path: Path, unreliable: Unreliable) -> None:
    unreliable.way, unreliable.times = "request lost", 100
    with pytest.raises(UncertainCommitError, match=r"version 2 was committed \(timeout\)"):
        append(path, 6, unreliable)
    # A client that looks for the commit later needs the transaction file.
    assert len(transaction_files(path)) == 2


def test_store_that_refuses_requests(path: Path, unreliable: Unreliable) -> None:
    unreliable.way = "forbidden"
    with pytest.raises(StorageError, match="permission denied"):
        append(path, 6, unreliable)
    assert len(transaction_files(path)) == 1


def test_other_clients_are_always_faster(path: Path, unreliable: Unreliable) -> None:
    class Slow(ObjectStore):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            append(Path(self.uri), 100)
            return super().put_if_absent(path, data)

    base = read_latest(unreliable)
    transaction = Transaction.new(1, Append(written_by_pylance(path, rows(6))))
    with pytest.raises(CommitConflictError, match="faster 3 times, last with version 4") as e:
        commit(Slow.from_uri(path), transaction, base, max_retries=2)
    assert e.value.retryable
    assert len(transaction_files(path)) == 4
    assert 6 not in ids(path)

"""History: versions with summaries and transactions, compared with pylance."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import open_dataset, write_dataset
from lance_spark.dataset import Dataset
from lance_spark.errors import VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest import history
from lance_spark.table.open import open_table
from tests.support.tables.pylance_written import rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    lance.write_dataset(rows(0, 9), path, max_rows_per_file=3, commit_message="first")
    write_dataset(rows(9), path, "append", commit_message="ours", transaction_properties={"k": "v"})
    dataset = lance.dataset(path)
    dataset.delete("id in (1, 3, 4, 5)")
    dataset.create_scalar_index("id", "BTREE")
    dataset.add_columns({"more": "id * 2"})
    dataset.update_config({"a": "b"})
    lance.write_dataset(rows(20), path, mode="overwrite", transaction_properties={"x": "y"})
    lance.write_dataset(
        rows(0, 0), path, mode="overwrite", schema=rows(0).schema, data_storage_version="2.1"
    )
    return path


def test_versions_equal_those_of_pylance(path: str) -> None:
    ours, theirs = open_dataset(path).versions(), lance.dataset(path).versions()
    assert [info.version for info in ours] == [item["version"] for item in theirs]
    for info, their_version in zip(ours, theirs, strict=True):
        assert info.metadata == their_version["metadata"]
        local = info.timestamp.astimezone().replace(tzinfo=None)
        assert abs(local - their_version["timestamp"]) < datetime.timedelta(microseconds=2)
    assert ours[2].metadata["total_deletion_file_rows"] == "1"


def test_operations_and_messages(path: str) -> None:
    infos = open_dataset(path).versions()
    operation_names = ["overwrite", "append", "delete", "create_index", "merge", "update_config"]
    assert [info.operation for info in infos] == [*operation_names, "overwrite", "overwrite"]
    assert [info.message for info in infos[:3]] == ["first", "ours", None]
    assert infos[1].transaction_properties == {"k": "v", "__lance_commit_message": "ours"}
    assert infos[6].transaction_properties == {"x": "y"}


def test_transactions_equal_those_of_pylance(path: str) -> None:
    ours, theirs = open_dataset(path), lance.dataset(path)
    for limit in (1, 3, 100):
        result = ours.get_transactions(limit)
        their_transactions = theirs.get_transactions(limit)
        assert [item and item.uuid for item in result] == [
            item and item.uuid for item in their_transactions
        ]
    assert len(ours.get_transactions()) == 8
    for version in range(1, 9):
        our_transaction, their_transaction = (
            ours.read_transaction(version),
            theirs.read_transaction(version),
        )
        assert our_transaction is not None
        assert (our_transaction.uuid, our_transaction.read_version) == (
            their_transaction.uuid,
            their_transaction.read_version,
        )
        assert dict(our_transaction.properties) == their_transaction.transaction_properties
    assert theirs.read_transaction(2).transaction_properties["__lance_commit_message"] == "ours"
    # An older version knows the versions before it.
    assert len(ours.checkout_version(3).get_transactions()) == 3
    with pytest.raises(VersionNotFoundError, match="no version 99"):
        ours.read_transaction(99)


def test_versions_without_transactions(path: str) -> None:
    """The transaction is neither in the manifest nor in a file."""
    from lance_spark.table.manifest.codec import encode
    from lance_spark.table.manifest.versions import find

    table = open_table(path, version=2)
    file = Path(path) / find(table.store, 2).path
    proto = table.manifest.to_proto()
    proto.transaction_file = ""
    file.write_bytes(encode(proto, None, None))
    info = open_dataset(path).versions()[1]
    assert (info.operation, info.message, info.transaction_properties) == (None, None, {})
    assert open_dataset(path).read_transaction(2) is None
    assert open_dataset(path).get_transactions()[-2] is None


def test_fragments_are_parsed_on_first_use(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*args: Any) -> Any:
        raise AssertionError("a fragment was parsed")

    monkeypatch.setattr(Fragment, "from_proto", looked)
    monkeypatch.setattr(history, "summarize", looked)
    dataset = Dataset(open_table(path))
    infos = dataset.versions()
    assert len(infos) == 8
    with pytest.raises(AssertionError):
        _ = infos[0].metadata
    monkeypatch.undo()
    # A transaction is cached after the first request.
    reads: list[str] = []
    read = ObjectStore.read_bytes

    def counted(self: ObjectStore, name: str) -> bytes:
        reads.append(name)
        return read(self, name)

    monkeypatch.setattr(ObjectStore, "read_bytes", counted)
    assert infos[0].metadata["total_rows"] == "9"
    assert infos[0].metadata["total_rows"] == "9"
    assert len(reads) == 1
    assert (infos[0].operation, infos[0].message) == ("overwrite", "first")
    assert len(reads) == 2


def test_version_removed_after_listing(path: str) -> None:
    infos = open_dataset(path).versions()
    lance.dataset(path).cleanup_old_versions(datetime.timedelta(0), retain_versions=1)
    with pytest.raises(VersionNotFoundError, match="cleanup has removed version 1"):
        _ = infos[0].metadata
    assert infos[-1].metadata["total_rows"] == "0"


def test_branch_history_begins_with_the_branch(path: str) -> None:
    branch = open_dataset(path).create_branch("b", 3)
    branch = write_dataset(rows(50), path, mode="append", branch="b", schema=rows(0).schema)
    assert [info.operation for info in branch.versions()] == ["clone", "append"]
    assert [info.version for info in branch.versions()] == [3, 4]
    theirs = lance.dataset(path).checkout_version(("b", None))
    assert [info.metadata for info in branch.versions()] == [
        version["metadata"] for version in theirs.versions()
    ]
    between = branch.versions()[0].timestamp
    assert open_dataset(path, branch="b", timestamp=between).version == 3


def test_equal_versions_are_equal(path: str) -> None:
    first, second = open_dataset(path).versions(), open_dataset(path).versions()
    assert first == second
    assert first[0] != first[1]
    assert "_store" not in repr(first[0])
    assert pa.table({"v": [info.version for info in first]}).num_rows == 8

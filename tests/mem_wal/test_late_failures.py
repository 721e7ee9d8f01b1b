"""What a writer says about rows that are stored, if something fails after that."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset
from lance_spark.errors import CommitConflictError, InvalidInputError, LanceError, StorageError
from lance_spark.mem_wal import writer as writers
from lance_spark.mem_wal.table import shard_manifest
from lance_spark.mem_wal.table.shard_manifest import ShardManifest, encode, publish
from lance_spark.storage.commit import MemoryCommit
from lance_spark.storage.store import ObjectStore

SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, SCHEMA)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """A table without a key: rows that are put twice are in it twice."""
    dataset = lance_spark.write_dataset(rows(0), str(tmp_path / "t"))
    return dataset.initialize_mem_wal(unsharded=True)


def stored(dataset: Dataset) -> list[int]:
    fresh = lance_spark.open_dataset(dataset.uri).fresh()
    return sorted(fresh.to_table()["id"].to_pylist())


def claim_before_flush(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let another writer claim the shard before the next flush; return the writer in a list."""
    original = writers.write_sstable
    others: list[Any] = []

    def write(*arguments: Any) -> Any:
        monkeypatch.setattr(writers, "write_sstable", original)
        others.append(dataset.mem_wal_writer(max_memtable_rows=100))
        return original(*arguments)

    monkeypatch.setattr(writers, "write_sstable", write)
    return others


def test_a_stored_put_does_not_fail_with_its_flush(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = dataset.mem_wal_writer(max_memtable_rows=2)
    writer.put(rows(1))
    others = claim_before_flush(dataset, monkeypatch)
    writer.put(rows(2))
    assert writer.has_failed
    errors = []
    for _ in range(2):
        with pytest.raises(CommitConflictError, match="fenced") as caught:
            writer.put(rows(3))
        errors.append(caught.value)
    # A stored exception would keep the rows of each call.
    assert errors[0] is not errors[1]
    with pytest.raises(CommitConflictError, match="fenced"):
        writer.flush()
    (other,) = others
    other.put(rows(4))
    assert stored(dataset) == [0, 1, 2, 4]


def test_a_put_that_is_stored_in_part_says_so(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = dataset.mem_wal_writer(max_memtable_rows=2)
    claim_before_flush(dataset, monkeypatch)
    with pytest.raises(StorageError, match="first 2 of 5 rows are stored"):
        writer.put(rows(1, 2, 3, 4, 5))
    with pytest.raises(InvalidInputError, match="open a new writer"):
        writer.put(rows(6))
    assert stored(dataset) == [0, 1, 2]


@pytest.mark.parametrize("again", [False, True])
def test_a_put_fails_with_its_flush_if_the_log_is_gone(dataset: Dataset, again: bool) -> None:
    """No reader finds what a writer puts into the folder of a shard that was deleted."""
    dataset.mem_wal_writer().close()
    writer = dataset.mem_wal_writer(max_memtable_rows=1)
    disabled = dataset.disable_mem_wal()
    if again:
        disabled.initialize_mem_wal(unsharded=True).mem_wal_writer().close()
    with pytest.raises(LanceError, match="was removed"):
        writer.put(rows(1))
    assert stored(dataset) == [0]


def test_a_flush_whose_request_a_package_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has carried out the first request, and refuses the second: a flush took its own
    shard manifest for one of another client, and deleted the SSTable.
    """
    original = MemoryCommit.put_if_absent
    repeated: list[str] = []

    def put_twice(self: MemoryCommit, path: str, data: bytes) -> bool:
        if "/manifest/" in path:
            repeated.append(path)
            original(self, path, data)
        return original(self, path, data)

    dataset = lance_spark.write_dataset(rows(0), "memory://repeated/t")
    dataset = dataset.initialize_mem_wal(unsharded=True)
    monkeypatch.setattr(MemoryCommit, "put_if_absent", put_twice)
    for number in (1, 2):
        writer = dataset.mem_wal_writer(max_memtable_rows=100)
        assert writer.epoch == number
        writer.put(rows(number))
        writer.flush()
        writer.close()
    assert len(repeated) == 4
    assert stored(dataset) == [0, 1, 2]
    dataset.compact_mem_wal()
    assert stored(dataset) == [0, 1, 2]
    dataset.disable_mem_wal()
    assert sorted(lance_spark.open_dataset(dataset.uri).to_table()["id"].to_pylist()) == [0, 1, 2]


def test_a_longer_shard_manifest_of_another_client() -> None:
    store = ObjectStore.from_uri("memory://longer/t")
    shard = uuid.uuid4()
    manifest = ShardManifest(shard, version=1, writer_epoch=1)
    store.write_bytes(shard_manifest.manifest_path(shard, 1), encode(manifest) + bytes(100))
    assert publish(store, manifest) is None
    store.write_bytes(shard_manifest.manifest_path(shard, 1), encode(manifest))
    assert publish(store, manifest) is None

"""What a writer says about rows that are stored, if something fails after that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    StorageError,
)
from lance_spark.mem_wal.writing import writer as writers

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
    for _ in range(2):
        with pytest.raises(CommitConflictError, match="fenced"):
            writer.put(rows(3))
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

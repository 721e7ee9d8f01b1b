"""Compactions, and other clients that commit between their plan and their commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset
from lance_spark.errors import CommitConflictError
from lance_spark.mem_wal import compaction
from lance_spark.mem_wal.table.details import compacted_messages, details_of
from lance_spark.mem_wal.table.shard_manifest import list_shards
from lance_spark.proto import table_pb2
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.open import open_table
from lance_spark.table.operations.append import Append
from lance_spark.table.operations.base import Conflict, InsertedKeys
from lance_spark.table.operations.indexes import CreateIndex, UpdateMemWalState
from lance_spark.table.operations.update import Update

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("s", pa.string())])


def rows(ids: list[int], text: str) -> pa.Table:
    return pa.table({"id": ids, "s": [text] * len(ids)}, SCHEMA)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    lance_spark.write_dataset(rows([1, 2, 3], "base"), uri).initialize_mem_wal(unsharded=True)
    return uri


def opened(uri: str) -> Dataset:
    return lance_spark.open_dataset(uri)


def sstable(uri: str, ids: list[int], deleted: list[int]) -> None:
    with opened(uri).mem_wal_writer() as writer:
        writer.put(rows(ids, "fresh"))
        writer.delete(pa.table({"id": pa.array(deleted, pa.int64())}))


def before_commit(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> list[Any]:
    """Let another client commit between the first plan of a compaction and its commit."""
    original = compaction.commit_tasks
    attempts: list[Any] = []

    def commit_tasks(*arguments: Any) -> Any:
        attempts.append(arguments)
        if len(attempts) == 1:
            change()
        return original(*arguments)

    monkeypatch.setattr(compaction, "commit_tasks", commit_tasks)
    return attempts


@pytest.mark.parametrize("change", ["append", "merge"])
def test_keys_that_others_insert_meanwhile(
    uri: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The compaction inserts no row. The SSTable hides the rows that come, as before."""
    sstable(uri, [1], [7])

    def insert() -> None:
        if change == "append":
            lance_spark.write_dataset(rows([1, 7, 8], "late"), uri, mode="append")
            return
        # pylance does not look at the rows of shards.
        merge = lance.dataset(uri).merge_insert("id").when_not_matched_insert_all()
        merge.execute(rows([7, 8], "late"))

    attempts = before_commit(monkeypatch, insert)
    opened(uri).compact_mem_wal()
    table = opened(uri).to_table().sort_by("id")
    assert table["id"].to_pylist() == [1, 2, 3, 8]
    assert table["s"].to_pylist() == ["fresh", "base", "base", "late"]
    assert len(attempts) == 2


def test_appends_do_not_stop_compactions_without_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "t")
    data = pa.table({"a": [1]})
    lance_spark.write_dataset(data, uri).initialize_mem_wal(unsharded=True)
    with opened(uri).mem_wal_writer() as writer:
        writer.put(data)
    attempts = before_commit(
        monkeypatch, lambda: lance_spark.write_dataset(data, uri, mode="append")
    )
    opened(uri).compact_mem_wal()
    assert len(attempts) == 1
    assert opened(uri).to_table()["a"].to_pylist() == [1, 1, 1]


def test_progress_of_a_mem_wal_that_is_gone(uri: str) -> None:
    """The new MemWAL has the same shard, and counts its generations from 1 again."""
    sstable(uri, [1], [2])
    table = open_table(uri)
    (shard,) = list_shards(table.store)
    messages = tuple(compacted_messages({shard: 1}))
    # Another client drops the index without a compaction.
    lance.dataset(uri).drop_index("__lance_mem_wal")
    opened(uri).disable_mem_wal().initialize_mem_wal(unsharded=True)
    sstable(uri, [1, 9], [3])
    for operation, retryable in (
        (Update(compacted_sstables=messages), True),
        (UpdateMemWalState(messages), False),
    ):
        with pytest.raises(CommitConflictError) as caught:
            commit(table.store, Transaction.new(table.version, operation), table.manifest)
        assert caught.value.retryable is retryable
    details = details_of(open_table(uri).manifest)
    assert details is not None
    assert details.compacted == {}
    assert sorted(opened(uri).compact_mem_wal().to_table()["id"].to_pylist()) == [1, 2, 9]


def test_answers() -> None:
    compacted = tuple(compacted_messages({uuid.UUID(int=1): 1}))
    other = tuple(compacted_messages({uuid.UUID(int=2): 1}))
    keys, more = (InsertedKeys((0,), frozenset([key])) for key in (1, 2))
    tombstones = Update(compacted_sstables=compacted)
    assert tombstones.conflict(Append(())) is Conflict.RETRYABLE
    merged = Update(compacted_sstables=compacted, inserted_rows=keys)
    assert merged.conflict(Update(inserted_rows=more)) is Conflict.RETRYABLE
    beside = Update(compacted_sstables=other, inserted_rows=more)
    assert merged.conflict(beside) is Conflict.COMPATIBLE
    for name, expected in (("__lance_mem_wal", Conflict.RETRYABLE), ("a", Conflict.COMPATIBLE)):
        index = table_pb2.IndexMetadata(name=name)
        for change in (CreateIndex((index,)), CreateIndex((), (index,))):
            assert tombstones.conflict(change) is expected
            assert Update().conflict(change) is Conflict.COMPATIBLE

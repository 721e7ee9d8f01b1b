"""Clients that have begun before another client disables the MemWAL."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset
from lance_spark.dataset.fresh import FreshRows
from lance_spark.errors import (
    CommitConflictError,
    CorruptFileError,
    InvalidInputError,
    LanceError,
    StorageError,
    UnsupportedFeatureError,
)
from lance_spark.mem_wal import setup
from lance_spark.mem_wal import writer as writers

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("s", pa.string())])


def rows(ids: list[int], text: str) -> pa.Table:
    return pa.table({"id": ids, "s": [text] * len(ids)}, SCHEMA)


def opened(path: Path) -> Dataset:
    return lance_spark.open_dataset(str(path / "t"))


def new_table(path: Path) -> Dataset:
    dataset = lance_spark.write_dataset(rows([0, 1], "base"), str(path / "t"))
    return dataset.initialize_mem_wal(unsharded=True)


def content(dataset: Dataset | FreshRows) -> dict[int, str]:
    table = dataset.to_table()
    return dict(zip(table["id"].to_pylist(), table["s"].to_pylist(), strict=True))


@pytest.mark.parametrize("again", [False, True])
def test_a_read_whose_log_was_deleted_fails(tmp_path: Path, again: bool) -> None:
    """A deleted log looks like an empty one, and the table is the older version without its rows.

    The MemWAL that is initialized again has the same shard, whose manifests start at 1 again.
    """
    dataset = new_table(tmp_path)
    writer = dataset.mem_wal_writer()
    for number in range(5):
        writer.put(rows([1, 10 + number], "log"))
    writer.close(flush=False)
    fresh = opened(tmp_path).fresh()
    dataset = dataset.disable_mem_wal()
    if again:
        dataset.initialize_mem_wal(unsharded=True).mem_wal_writer().close()
    with pytest.raises(CorruptFileError, match="read again"):
        fresh.to_table()
    assert content(opened(tmp_path).fresh()) == {
        0: "base",
        1: "log",
        **dict.fromkeys(range(10, 15), "log"),
    }


def test_logs_are_deleted_after_all_shard_manifests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader takes a log as whole if its shard manifest still exists."""
    dataset = new_table(tmp_path)
    writer = dataset.mem_wal_writer()
    writer.put(rows([5], "log"))
    writer.close(flush=False)
    fresh = opened(tmp_path).fresh()
    unlink = os.unlink

    def refuse(path: str, **options: Any) -> None:
        if path.endswith(".binpb"):
            raise PermissionError(path)
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(StorageError, match="binpb"):
            dataset.disable_mem_wal()
    assert content(fresh)[5] == "log"


def buckets(path: Path) -> Dataset:
    """Return a table with two shards, of which the first one exists."""
    dataset = lance_spark.write_dataset(rows([0, 1], "base"), str(path / "t"))
    dataset = dataset.initialize_mem_wal(bucket_column="id", num_buckets=2)
    dataset.mem_wal_writer(shard_values={"bucket": 0}).close()
    return dataset


def in_bucket(dataset: Dataset, bucket: int) -> pa.Table:
    for shard_id, part in dataset.split_by_shard(rows(list(range(10, 20)), "log")).items():
        if shard_id.entries[0][1][0] == bucket:  # type: ignore[attr-defined]
            return part
    raise AssertionError


@pytest.mark.parametrize("has_rows", [False, True])
def test_a_shard_that_is_made_after_the_shards_are_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_rows: bool
) -> None:
    """Its rows are acknowledged, so that the MemWAL stays."""
    dataset = buckets(tmp_path)
    part = in_bucket(dataset, 1)
    original = setup.change_schema
    late: list[Any] = []

    def change_schema(*arguments: Any) -> Any:
        if late:
            return original(*arguments)
        late.append(dataset.mem_wal_writer(shard_values={"bucket": 1}))
        changed = original(*arguments)
        if has_rows:
            late[0].put(part)
        return changed

    with monkeypatch.context() as patch:
        patch.setattr(setup, "change_schema", change_schema)
        if has_rows:
            with pytest.raises(UnsupportedFeatureError, match="stop its writers and compact"):
                dataset.disable_mem_wal()
        else:
            dataset.disable_mem_wal()
    if has_rows:
        # The shard was sealed meanwhile.
        with pytest.raises(LanceError, match="fenced"):
            late[0].close()
        fresh = opened(tmp_path).fresh().to_table()
        assert set(part["id"].to_pylist()) <= set(fresh["id"].to_pylist())
        assert [part.status for part in opened(tmp_path).mem_wal_shards()] == ["active", "active"]
        disabled = opened(tmp_path).disable_mem_wal().to_table()
        assert sorted(disabled["id"].to_pylist()) == sorted(fresh["id"].to_pylist())
    assert opened(tmp_path).mem_wal_index_details() is None


def before_claim(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """Let another client change the table after a writer has read it."""
    original = writers.claim

    def claim(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(writers, "claim", original)
        change()
        return original(*arguments, **options)

    monkeypatch.setattr(writers, "claim", claim)


def test_a_shard_that_is_made_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader would find its rows."""
    dataset = buckets(tmp_path)
    before_claim(monkeypatch, opened(tmp_path).disable_mem_wal)
    with pytest.raises(InvalidInputError, match="has disabled the MemWAL"):
        dataset.mem_wal_writer(shard_values={"bucket": 1})
    dataset = opened(tmp_path).disable_mem_wal().initialize_mem_wal(unsharded=True)
    assert dataset.mem_wal_shards() == []


def test_a_shard_of_a_mem_wal_that_was_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its generations do not follow those of the old MemWAL, which readers would miss."""
    dataset = new_table(tmp_path)
    for number in range(3):
        with dataset.mem_wal_writer() as writer:
            writer.put(rows([number], "old"))
        dataset.compact_mem_wal()

    def again() -> None:
        opened(tmp_path).disable_mem_wal().initialize_mem_wal(unsharded=True)

    before_claim(monkeypatch, again)
    with pytest.raises(CommitConflictError, match="open the writer again"):
        opened(tmp_path).mem_wal_writer()
    with opened(tmp_path).mem_wal_writer() as writer:
        writer.put(rows([1], "new"))
    assert content(opened(tmp_path).fresh()) == {0: "old", 1: "new", 2: "old"}

    def sharded() -> None:
        opened(tmp_path).disable_mem_wal().initialize_mem_wal(bucket_column="id", num_buckets=2)

    before_claim(monkeypatch, sharded)
    with pytest.raises(CommitConflictError, match="open the writer again"):
        opened(tmp_path).mem_wal_writer()


def test_an_end_that_cannot_be_taken_back_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = buckets(tmp_path)
    part = in_bucket(dataset, 1)
    original = setup.change_schema
    calls: list[Any] = []

    def change_schema(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise StorageError("the store is gone")
        writer = dataset.mem_wal_writer(shard_values={"bucket": 1})
        changed = original(*arguments)
        writer.put(part)
        return changed

    monkeypatch.setattr(setup, "change_schema", change_schema)
    with pytest.raises(StorageError, match=r"not in the base table.*put these rows again"):
        dataset.disable_mem_wal()

"""Clients that have begun before another client disables the MemWAL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset
from lance_spark.dataset.fresh.rows import FreshRows
from lance_spark.errors import CorruptFileError, StorageError

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

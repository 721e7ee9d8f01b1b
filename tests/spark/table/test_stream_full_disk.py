"""Batches of streams on a disk that is full from any write on: a restart makes them once."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.mem_wal import stream_batches
from lance_spark.spark.datasource import LanceDataSource
from lance_spark.storage import local

_KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, _KEY), ("n", pa.int64())])
COLUMNS = StructType().add("id", "long").add("n", "long")
SINKS: dict[str, dict[str, str]] = {
    "append": {},
    "sstable": {"upsert": "true", "upsert_mode": "sstable"},
    "log": {"upsert": "true", "upsert_mode": "log"},
}
Rows = list[tuple[int, int]]


def run(uri: str, options: dict[str, str], number: int) -> None:
    """Run a batch of one row, as Spark does: tasks and commit are in different processes."""
    stream_batches._WRITERS.clear()
    given = {"path": uri, "streamingQueryId": "q", **options}
    task, driver = (LanceDataSource(given).streamWriter(COLUMNS, False) for _ in range(2))
    batch = pa.record_batch({"id": [number], "n": [10 * number]})
    messages: list[Any] = [None]
    try:
        messages = [pickle.loads(pickle.dumps(task)).write(iter([batch]))]
        driver.commit(messages, number)
    except LanceError:
        driver.abort(messages, number)
        raise


def new_table(uri: str, sink: str) -> None:
    lance_spark.write_dataset(pa.table({"id": [100], "n": [0]}, schema=SCHEMA), uri)
    if sink != "append":
        lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)


def rows_of(uri: str, sink: str) -> Rows:
    dataset = lance_spark.open_dataset(uri)
    rows = (dataset if sink == "append" else dataset.fresh()).to_table().to_pydict()
    return sorted(zip(rows["id"], rows["n"], strict=True))


def fill(monkeypatch: pytest.MonkeyPatch, free: int) -> list[int]:
    """Let all writes after some fail; return the list that they are counted in."""
    counted: list[int] = []

    def limited(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counted.append(1)
            if len(counted) > free:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(local, "write_temporary", limited(local.write_temporary))
    monkeypatch.setattr(os, "fsync", limited(os.fsync))
    monkeypatch.setattr(os, "link", limited(os.link))
    return counted


@pytest.mark.parametrize("sink", SINKS)
def test_a_batch_on_a_full_disk(tmp_path: Path, sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[str] = []
    for free in range(40):
        uri = str(tmp_path / str(free))
        new_table(uri, sink)
        run(uri, SINKS[sink], 0)
        with monkeypatch.context() as full:
            counted = fill(full, free)
            try:
                run(uri, SINKS[sink], 1)
            except LanceError as error:
                failures.append(str(error))
        before = rows_of(uri, sink)
        assert before in ([(0, 0), (100, 0)], [(0, 0), (1, 10), (100, 0)])
        for number in (1, 2):
            run(uri, SINKS[sink], number)
        assert rows_of(uri, sink) == [(0, 0), (1, 10), (2, 20), (100, 0)]
        if len(counted) <= free:
            break
    assert len(failures) > 3
    assert all("No space left" in failure for failure in failures)
    assert len(counted) <= free

"""Large columns on a store that takes a while to answer: many requests at the same time, and the next ones before they are wanted."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import lance
import numpy as np
import pyarrow as pa
import pytest
from fsspec.asyn import AsyncFileSystem

import lance_spark
from lance_spark.storage import remote
from lance_spark.storage.remote import DEFAULT_IO_THREADS
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore
from tests.storage.aws import BUCKET, serving
from tests.storage.proxy import spoiling

MIB = 1024 * 1024
ROWS = 8 * MIB
DELAY = 0.05


class SlowFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """Files of a local disk, each request to which takes a while."""

    protocol = "slowly"
    under_way: ClassVar[int] = 0
    most: ClassVar[int] = 0
    requests: ClassVar[int] = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("slowly://")

    async def _info(self, path: str, **_kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        kind = "directory" if os.path.isdir(path) else "file"
        return {"name": path, "size": os.stat(path).st_size, "type": kind}

    async def _ls(self, path: str, detail: bool = True, **_kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        return [await self._info(os.path.join(path, name)) for name in os.listdir(path)]

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_kwargs: Any
    ) -> bytes:
        kind = SlowFileSystem
        kind.requests += 1
        kind.under_way += 1
        kind.most = max(kind.most, kind.under_way)
        try:
            await asyncio.sleep(DELAY)
            with open(self._strip_protocol(path), "rb") as file:
                file.seek(start or 0)
                return file.read() if end is None else file.read(end - (start or 0))
        finally:
            kind.under_way -= 1


@pytest.fixture(scope="module")
def column(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 MiB of numbers that no encoding makes smaller."""
    fsspec.register_implementation("slowly", SlowFileSystem, clobber=True)
    path = tmp_path_factory.mktemp("slowly") / "t"
    values = np.random.default_rng(0).integers(0, 2**62, ROWS)
    lance.write_dataset(pa.table({"x": values}), str(path), max_rows_per_file=ROWS)
    return path


def scan(path: Path, **options: Any) -> Iterator[pa.RecordBatch]:
    dataset = lance_spark.open_dataset(f"slowly://{path}", storage_options=options)
    (task,) = dataset.plan(target_rows=10 * ROWS)
    SlowFileSystem.most = SlowFileSystem.requests = 0
    return task.batches()


@pytest.mark.parametrize("io_threads", [4, DEFAULT_IO_THREADS])
def test_a_large_column_is_read_by_many_requests_at_once(column: Path, io_threads: int) -> None:
    rows = sum(batch.num_rows for batch in scan(column, io_threads=io_threads))
    assert rows == ROWS
    assert SlowFileSystem.most == io_threads
    # One after the other they would be at least as many, and take as many times as long.
    assert SlowFileSystem.requests <= 3 * DEFAULT_IO_THREADS


def test_the_next_piece_is_fetched_while_the_consumer_is_busy(column: Path) -> None:
    batches = scan(column)
    next(batches)
    first = SlowFileSystem.requests
    assert _happens(lambda: SlowFileSystem.requests >= first + DEFAULT_IO_THREADS)
    rest = SlowFileSystem.requests
    assert sum(batch.num_rows for batch in batches) > 0
    assert SlowFileSystem.requests - rest <= 2


def _happens(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_s3_has_as_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore opens ten if nobody says how many."""
    monkeypatch.setattr(remote, "PART", 64 * 1024)
    size = 2 * DEFAULT_IO_THREADS * remote.PART
    with serving() as aws, spoiling(aws.endpoint) as proxy:
        aws.s3.put_object(Bucket=BUCKET, Key="t/big", Body=bytes(size))
        options = {**aws.ours, "endpoint_url": proxy.endpoint}
        source = ObjectStore.from_uri(f"s3://{BUCKET}/t", options).open("big", size)
        proxy.delay(0.3)
        source.read([ByteRange(0, size)])
        assert proxy.most_at_once == DEFAULT_IO_THREADS

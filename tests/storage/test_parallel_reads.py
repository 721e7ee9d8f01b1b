"""Large columns on a slow store: many requests at the same time, and requests ahead of their
use.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import lance
import numpy as np
import pyarrow as pa
import pytest
from fsspec.asyn import AsyncFileSystem

import lance_spark
from lance_spark.errors import CorruptFileError, InvalidOptionError, StorageError
from lance_spark.file import footer
from lance_spark.scan.fragment import column_reader as fragment
from lance_spark.storage import remote
from lance_spark.storage import remote as prefetch
from lance_spark.storage.remote import DEFAULT_IO_THREADS
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore
from tests.support.stores.aws import BUCKET, serving
from tests.support.stores.proxy import spoiling

MIB = 1024 * 1024
ROWS = 8 * MIB
DELAY = 0.05
TEXTS = 256 * 1024
TEXT_BYTES = 160


class SlowFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """Files of a local disk. Each request takes some time."""

    protocol = "slowly"
    under_way: ClassVar[int] = 0
    most: ClassVar[int] = 0
    requests: ClassVar[int] = 0
    fetched: ClassVar[int] = 0
    refused: ClassVar[range] = range(0)
    spoiled: ClassVar[range] = range(0)

    @classmethod
    def begin(cls, refused: range = range(0), spoiled: range = range(0)) -> None:
        """Reset the counters; refuse requests for some bytes, and reverse others."""
        cls.most = cls.requests = cls.fetched = 0
        cls.refused, cls.spoiled = refused, spoiled

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("slowly://")

    async def _info(self, path: str, **_kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        entry_type = "directory" if os.path.isdir(path) else "file"
        return {"name": path, "size": os.stat(path).st_size, "type": entry_type}

    async def _ls(self, path: str, detail: bool = True, **_kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        return [await self._info(os.path.join(path, name)) for name in os.listdir(path)]

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_kwargs: Any
    ) -> bytes:
        counters = SlowFileSystem
        counters.requests += 1
        counters.under_way += 1
        counters.most = max(counters.most, counters.under_way)
        try:
            await asyncio.sleep(DELAY)
            with open(self._strip_protocol(path), "rb") as file:
                file.seek(start or 0)
                data = file.read() if end is None else file.read(end - (start or 0))
            counters.fetched += len(data)
            return data if start is None else counters._changed(data, start)
        finally:
            counters.under_way -= 1

    @classmethod
    def _changed(cls, data: bytes, start: int) -> bytes:
        if max(start, cls.refused.start) < min(start + len(data), cls.refused.stop):
            raise PermissionError("not these bytes")
        first, last = (
            max(min(at - start, len(data)), 0) for at in (cls.spoiled.start, cls.spoiled.stop)
        )
        turned = bytes(255 - byte for byte in data[first:last])
        return data[:first] + turned + data[last:]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    SlowFileSystem.begin()
    yield
    SlowFileSystem.begin()
    assert SlowFileSystem.under_way == 0
    assert not [item for item in threading.enumerate() if item.name == "lance-read-ahead"]


@pytest.fixture(scope="module")
def column(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 MiB of numbers that no encoding makes smaller."""
    fsspec.register_implementation("slowly", SlowFileSystem, clobber=True)
    path = tmp_path_factory.mktemp("slowly") / "t"
    values = np.random.default_rng(0).integers(0, 2**62, ROWS)
    lance.write_dataset(pa.table({"x": values}), str(path), max_rows_per_file=ROWS)
    return path


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 MiB of text, in pages of 8 MiB."""
    fsspec.register_implementation("slowly", SlowFileSystem, clobber=True)
    path = tmp_path_factory.mktemp("slowly") / "texts"
    letters = np.random.default_rng(1).integers(97, 123, TEXTS * TEXT_BYTES, np.uint8)
    offsets = np.arange(TEXTS + 1, dtype=np.int32) * TEXT_BYTES
    values = pa.StringArray.from_buffers(TEXTS, pa.py_buffer(offsets), pa.py_buffer(letters))
    batches = [pa.record_batch({"t": values[at : at + 1024]}) for at in range(0, TEXTS, 1024)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    lance.write_dataset(reader, str(path), max_rows_per_file=TEXTS)
    return path


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 2 MiB."""
    monkeypatch.setattr(fragment, "WINDOW_BYTES", MIB)


def scan(path: Path, **options: Any) -> Generator[pa.RecordBatch, None, None]:
    dataset = lance_spark.open_dataset(f"slowly://{path}", storage_options=options)
    (task,) = dataset.plan(rows_per_task=10 * ROWS)
    SlowFileSystem.most = SlowFileSystem.requests = SlowFileSystem.fetched = 0
    batches = task.batches()
    assert isinstance(batches, Generator)
    return batches


def stored(path: Path) -> range:
    """Return the bytes of the only data file."""
    (file,) = path.glob("data/*.lance")
    return range(file.stat().st_size)


@pytest.mark.parametrize("io_threads", [4, 16])
def test_a_large_column_is_read_by_many_requests_at_once(column: Path, io_threads: int) -> None:
    rows = sum(batch.num_rows for batch in scan(column, io_threads=io_threads))
    assert rows == ROWS
    assert SlowFileSystem.most == io_threads
    # Sequential requests would be at least as many, and take as many times the delay.
    assert SlowFileSystem.requests <= 48


def test_windows_of_text_are_fetched_before_they_are_decoded(
    texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of text have 10 MiB in the file: five requests each."""
    # A busy machine may start threads late.
    monkeypatch.setattr(sys.modules[__name__], "DELAY", 0.2)
    result = pa.Table.from_batches(scan(texts))
    assert result.equals(lance.dataset(str(texts)).to_table())
    assert SlowFileSystem.most >= 12
    # No byte is fetched twice.
    assert SlowFileSystem.fetched < 1.02 * len(stored(texts))
    assert SlowFileSystem.requests <= 26


@pytest.mark.sample(2)
@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2", "2.3"])
def test_rows_are_those_of_a_near_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Pages that windows share, of any type; deleted rows, filters, parts of a fragment."""
    count = 40_000
    rng = np.random.default_rng(7)
    items = pa.array(rng.integers(0, 100, 3 * count), pa.int32())
    offsets = np.append(np.sort(rng.integers(0, len(items), count)), len(items))
    words = pa.array([f"{number:x}" * (number % 9) for number in rng.integers(0, 1 << 40, count)])
    table = pa.table(
        {
            "number": rng.integers(0, 2**40, count),
            "text": words,
            "name": words.slice(0, 50).take(pa.array(rng.integers(0, 50, count))),
            "list": pa.ListArray.from_arrays(offsets.astype(np.int32), items),
            "vector": pa.FixedSizeListArray.from_arrays(rng.random(4 * count, np.float32), 4),
        }
    )
    path = tmp_path / "t"
    lance.write_dataset(table, str(path), data_storage_version=version)
    lance.dataset(str(path)).delete("number % 11 = 3 or (_rowid > 12000 and _rowid < 25000)")
    fsspec.register_implementation("slowly", SlowFileSystem, clobber=True)
    monkeypatch.setattr(sys.modules[__name__], "DELAY", 0)
    monkeypatch.setattr(fragment, "WINDOW_BYTES", MIB // 4)
    for module in (prefetch, footer, remote):
        monkeypatch.setattr(module, "MAX_GAP", 512)
    near = lance_spark.open_dataset(str(path))
    far = lance_spark.open_dataset(f"slowly://{path}")
    for condition in (None, "name < '5'"):
        assert far.to_table(filter=condition).equals(near.to_table(filter=condition))
    tasks = [item.plan(["text", "list"], rows_per_task=15_000) for item in (far, near)]
    for distant, close in zip(*tasks, strict=True):
        result, wanted = (
            pa.Table.from_batches(item.batches(), close.schema) for item in (distant, close)
        )
        assert result.equals(wanted)


@pytest.mark.usefixtures("small_windows")
def test_prefetched_bytes_are_bounded(column: Path) -> None:
    batches = scan(column, read_ahead_bytes=2 * MIB)
    next(batches)
    # One window was taken, one is decoded, and two are fetched.
    assert _happens(lambda: SlowFileSystem.fetched >= 7 * MIB)
    time.sleep(4 * DELAY)
    assert SlowFileSystem.fetched <= 13 * MIB
    # The other bytes are not needed.
    batches.close()
    num_requests = SlowFileSystem.requests
    time.sleep(2 * DELAY)
    assert (SlowFileSystem.under_way, SlowFileSystem.requests) == (0, num_requests)


def test_an_option_sets_the_bytes_that_are_read_ahead(column: Path) -> None:
    for value in (0, "7"):
        store = ObjectStore.from_uri(f"slowly://{column}", {"read_ahead_bytes": value})
        assert store.ahead_bytes == int(value)
        assert sum(batch.num_rows for batch in scan(column, read_ahead_bytes=value)) == ROWS
    for value in ("16m", -1):
        with pytest.raises(InvalidOptionError, match=f"read_ahead_bytes must be .* not '?{value}"):
            scan(column, read_ahead_bytes=value)


@pytest.mark.usefixtures("small_windows")
def test_a_failed_request_raises_after_the_earlier_rows(column: Path) -> None:
    SlowFileSystem.begin(refused=range(32 * MIB, 32 * MIB + 1))
    result: list[pa.RecordBatch] = []
    with pytest.raises(StorageError, match=r"data/.*\.lance: permission denied"):
        result.extend(scan(column, read_ahead_bytes=2 * MIB))
    assert 28 * MIB <= sum(batch.num_rows for batch in result) * 8 <= 32 * MIB


@pytest.mark.usefixtures("small_windows")
def test_damaged_bytes_are_those_of_a_column(texts: Path) -> None:
    end = len(stored(texts))
    SlowFileSystem.begin(spoiled=range(end // 2, end // 2 + 4 * MIB))
    result: list[pa.RecordBatch] = []
    with pytest.raises(CorruptFileError, match=r"\.lance, column 't', page \d"):
        result.extend(scan(texts, read_ahead_bytes=2 * MIB))
    assert 0.3 < sum(batch.num_rows for batch in result) / TEXTS < 0.7


def _happens(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_s3_has_as_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore opens ten connections by default."""
    monkeypatch.setattr(remote, "PART", 64 * 1024)
    size = 2 * DEFAULT_IO_THREADS * remote.PART
    with serving() as aws, spoiling(aws.endpoint) as proxy:
        aws.s3.put_object(Bucket=BUCKET, Key="t/big", Body=bytes(size))
        options = {**aws.ours, "endpoint_url": proxy.endpoint}
        source = ObjectStore.from_uri(f"s3://{BUCKET}/t", options).open("big", size)
        proxy.delay(0.3)
        source.read([ByteRange(0, size)])
        assert proxy.most_at_once == DEFAULT_IO_THREADS

"""Short ranges of files that a process keeps, and ranges that are under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import lance
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

import lance_spark
from lance_spark.errors import CorruptFileError
from lance_spark.file.footer import Tail, expect_tail
from lance_spark.indexes.cache import IndexCache
from lance_spark.storage import kept_ranges
from lance_spark.storage.kept_ranges import KEPT, MAX_LENGTH, WHOLE, KeptFile, KeptRanges
from lance_spark.storage.memory import CacheStats
from lance_spark.storage.remote import RemoteSource, file_key
from lance_spark.storage.retry import Retries
from lance_spark.storage.source import ByteRange

CONTENT = bytes(range(256)) * 1024


class Store(LocalFileSystem):
    """One file, in memory."""

    protocol = "kept"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.error: Exception | None = None

    def cat_file(self, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        self.ranges.append((start, end))
        self.open_gate.wait(20)
        error, self.error = self.error, None
        if error is not None:
            raise error
        return CONTENT[start:end]


def opened(store: Store, *, keep: bool = True) -> RemoteSource:
    kept = (lambda size: KeptFile(file_key(store, "f", size))) if keep else None
    return RemoteSource(store, "f", "f", len(CONTENT), retries=Retries(0, 0.0), keep=kept)


def read(source: RemoteSource, *ranges: tuple[int, int]) -> None:
    places = [ByteRange(*place) for place in ranges]
    for (start, length), data in zip(ranges, source.read(places), strict=True):
        assert data.tobytes() == CONTENT[start : start + length]


def test_the_end_of_a_file_is_read_once() -> None:
    """The pages of the last columns are there, and small files of indexes are there as a whole."""
    store, size = Store(), len(CONTENT)
    source = opened(store)
    tail = Tail(source)
    assert tail.all_bytes is None
    read(source, (size - 100, 100), (size - MAX_LENGTH, 7))
    assert store.ranges == [(size - MAX_LENGTH, size)]
    read(source, (size - MAX_LENGTH - 1, 2))
    with pytest.raises(CorruptFileError, match="lie outside the file"):
        source.read([ByteRange(size - 1, 2)])
    KEPT.clear()
    store.ranges.clear()
    for _ in range(2):
        source = opened(store)
        source.end_bytes = size
        expect_tail(source)
        whole = Tail(source).all_bytes
        assert whole is not None
        assert whole.tobytes() == CONTENT
    assert store.ranges == [(0, size)]


def test_short_ranges_are_read_once_in_a_process() -> None:
    store = Store()
    long = MAX_LENGTH + 1
    read(opened(store), (0, 10), (5, 10), (200_000, 20), (70_000, long))
    first = len(store.ranges)
    read(opened(store), (5, 10), (200_000, 20), (0, 10))
    assert len(store.ranges) == first
    read(opened(store), (70_000, long))
    read(opened(store, keep=False), (0, 10))
    assert len(store.ranges) == first + 2
    stats = KEPT.stats()
    assert (stats.entries, stats.hits) == (1, 3)
    assert 40 <= stats.nbytes <= 4096 < stats.max_bytes
    assert lance_spark.cache_stats()["ranges"] == stats


def test_bytes_between_merged_ranges_are_not_read_again() -> None:
    store = Store()
    source = opened(store, keep=False)
    read(source, (1000, 10), (9000, 10))
    read(source, (1010, 7990))
    assert store.ranges == [(1000, 9010)]


def test_readers_share_a_request_that_is_under_way() -> None:
    store = Store()
    store.open_gate.clear()
    for source in (opened(store), opened(store)):
        source.expect(ByteRange(100, 50))
    threading.Timer(0.05, store.open_gate.set).start()
    other = opened(store)
    read(other, (100, 50))
    assert store.ranges == [(100, 150)]
    # A request of another reader that failed is sent again.
    store.error = PermissionError("once")
    other.expect(ByteRange(7, 7))
    read(other, (7, 7))
    assert store.ranges[1:] == [(7, 14), (7, 14)]


def test_the_oldest_files_are_dropped() -> None:
    kept = KeptRanges(10_000)
    for number in range(10):
        kept.put(number, ByteRange(0, 2000), np.zeros(2000, np.uint8))
        kept.get(0, ByteRange(0, 2000))
    assert kept.stats().nbytes <= 10_000
    assert kept.get(0, ByteRange(0, 2000)) is not None
    assert kept.get(9, ByteRange(0, 2000)) is not None
    assert kept.get(1, ByteRange(0, 2000)) is None
    kept.put(1, WHOLE, np.zeros(kept_ranges.MAX_FILE + 1, np.uint8))
    assert kept.get(1, WHOLE) is None
    nothing = KeptRanges(0)
    nothing.put(0, ByteRange(0, 1), np.zeros(1, np.uint8))
    assert nothing.stats().entries == 0


def test_the_environment_sets_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = lance_spark.cache_stats()
    assert [name for name in stats if stats[name].max_bytes] == ["ranges", "indexes"]
    for limit, entries in (("3", 1), ("0", 0)):
        monkeypatch.setenv("LANCE_SPARK_KEPT_MIB", limit)
        monkeypatch.setenv("LANCE_SPARK_INDEX_CACHE_MIB", limit)
        kept, cache = KeptRanges(), IndexCache()
        kept.put(0, ByteRange(0, 1), np.zeros(1, np.uint8))
        for _ in range(2):
            cache.get(("root", "file", None), lambda: b"1", len)
        assert kept.stats() == CacheStats(entries, 257 * entries, int(limit) << 20)
        assert cache.stats() == CacheStats(entries, entries, int(limit) << 20, entries, 2 - entries)


class Counted(LocalFileSystem):
    """Counts the requests for data files and deletion files."""

    protocol = "counted"
    requests: list[str] = []  # noqa: RUF012 - of all instances

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        # Older releases of fsspec strip the protocols of the local disk alone.
        stripped: str = super()._strip_protocol(path.removeprefix("counted://"))
        return stripped

    def cat_file(self, path: str, *place: Any, **more: Any) -> bytes:
        if "_versions" not in path:
            Counted.requests.append(path)
        data: bytes = super().cat_file(path, *place, **more)
        return data


@pytest.fixture
def table(tmp_path: Path) -> Iterator[str]:
    fsspec.register_implementation("counted", Counted, clobber=True)
    path = tmp_path / "t"
    rows = pa.table({"x": range(40_000), "s": [f"row {n}" for n in range(40_000)]})
    lance.write_dataset(rows, str(path), max_rows_per_file=10_000).delete("x % 1000 = 7")
    yield f"counted://{path}"
    Counted.requests.clear()


def test_a_second_dataset_reads_no_footer_and_no_deletion_file(table: str) -> None:
    first = lance_spark.open_dataset(table).to_table(filter="x > 39000")
    count = len(Counted.requests)
    Counted.requests.clear()
    assert lance_spark.open_dataset(table).to_table(filter="x > 39000").equals(first)
    assert not [path for path in Counted.requests if "_deletions" in path]
    # Footers and deletion files, four each.
    assert len(Counted.requests) <= count - 8

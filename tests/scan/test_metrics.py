"""Counters of scans on local and remote stores, and the requests that run in parallel."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import lance
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

import lance_spark
from lance_spark.errors import InvalidOptionError
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.storage.remote import PART, RemoteSource
from lance_spark.storage.source import ByteRange

ROWS = 60_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("metrics") / "t.lance"
    random = np.random.default_rng(1)
    vectors = pa.FixedSizeListArray.from_arrays(random.random(ROWS * 64, np.float32), 64)
    table = pa.table({"id": range(ROWS), "r": random.integers(0, 1 << 40, ROWS), "v": vectors})
    dataset = lance.write_dataset(table, str(path), max_rows_per_file=30_000)
    dataset.delete("id >= 100 AND id < 200")
    return path


def measured(dataset: lance_spark.Dataset, *columns: str, **more: Any) -> ScanMetrics:
    metrics = ScanMetrics()
    for task in dataset.plan(list(columns), rows_per_task=1 << 40, **more):
        task_metrics = ScanMetrics()
        for _ in task.batches(task_metrics):
            pass
        metrics += task_metrics
    return metrics


def test_rows_and_bytes(path: Path) -> None:
    dataset = lance_spark.open_dataset(str(path))
    whole = measured(dataset, "v")
    assert (whole.fragments_scanned, whole.rows_scanned) == (2, ROWS - 100)
    assert whole.rows_filtered == whole.rows_skipped == whole.windows_skipped == 0
    assert 0 <= whole.bytes_read - ROWS * 256 < 200_000
    filtered = measured(dataset, "v", filter="id < 1000")
    assert filtered.rows_scanned == 900
    assert filtered.rows_filtered == ROWS - 1000
    assert (filtered.windows, filtered.windows_skipped) == (2, 1)
    assert filtered.bytes_read < whole.bytes_read / 10
    assert filtered.batch_load_time_ns > 0
    assert set(filtered.as_dict()) >= {"numRowsScanned", "numBytesRead", "numIops", "numRequests"}
    assert "numRowsFiltered=59000" in filtered.summary()


def test_rows_that_statistics_rule_out(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    table = pa.table({"id": range(20_000)})
    lance.write_dataset(table, str(path), data_storage_version="legacy", max_rows_per_group=5000)
    metrics = measured(lance_spark.open_dataset(str(path)), "id", filter="id = 7000")
    assert (metrics.rows_scanned, metrics.rows_filtered) == (1, 4999)
    assert metrics.rows_skipped == 15_000


class SlowFileSystem(LocalFileSystem):
    """Answers late, and counts the requests that wait."""

    protocol = "slow"
    lock = threading.Lock()
    waiting = most = requests = 0
    seconds = 0.02

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.split("://", 1)[-1]

    def cat_file(self, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        cls = SlowFileSystem
        with cls.lock:
            cls.waiting += 1
            cls.requests += 1
            cls.most = max(cls.most, cls.waiting)
        try:
            time.sleep(cls.seconds)
            data: bytes = super().cat_file(path, start=start, end=end, **more)
            return data
        finally:
            with cls.lock:
                cls.waiting -= 1


class OneConnection(SlowFileSystem):
    protocol = ("sftp", "ssh")


@pytest.fixture
def slow() -> type[SlowFileSystem]:
    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    SlowFileSystem.most = SlowFileSystem.requests = 0
    return SlowFileSystem


def test_requests_are_counted(path: Path, slow: type[SlowFileSystem]) -> None:
    dataset = lance_spark.open_dataset(f"slow://{path}")
    slow.requests = 0
    metrics = measured(dataset, "v", "r")
    # The read of the deletion file is not counted.
    assert metrics.iops == slow.requests - 1
    assert metrics.requests < metrics.iops
    assert slow.most > 1
    assert metrics.files_opened == metrics.fragments_scanned == 2
    # Each round waits at least for its slowest request; prefetched windows may not wait.
    assert metrics.read_time_ns >= 2 * slow.seconds * 1e9
    assert metrics.scan_time_ns >= metrics.decode_time_ns > 0


@pytest.mark.parametrize("io_threads", [1, 3])
def test_reads_at_once(path: Path, slow: type[SlowFileSystem], io_threads: int) -> None:
    options = {"io_threads": str(io_threads)}
    far = lance_spark.open_dataset(f"slow://{path}", storage_options=options)
    slow.most = 0
    (task,) = far.plan(["v"], rows_per_task=1 << 40, filter="r < 2000000000")
    result = pa.Table.from_batches(task.batches(prefetch=False))
    assert min(io_threads, 2) <= slow.most <= io_threads
    near = lance_spark.open_dataset(str(path)).to_table(["v"], filter="r < 2000000000")
    assert result.equals(near)


@pytest.mark.parametrize("value", ["0", "many", "-1", "100000"])
def test_invalid_numbers_of_threads_are_refused(path: Path, value: str) -> None:
    with pytest.raises(InvalidOptionError, match="io_threads"):
        lance_spark.open_dataset(str(path), storage_options={"io_threads": value})


def test_long_reads_are_sent_in_parts(
    tmp_path: Path, slow: type[SlowFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may start the second thread late.
    monkeypatch.setattr(SlowFileSystem, "seconds", 0.3)
    file = tmp_path / "f"
    content = np.random.default_rng(2).bytes(5 * PART + 77)
    file.write_bytes(content)
    source = RemoteSource(SlowFileSystem(), str(file), "f")
    first, second = source.read([ByteRange(10, 3 * PART), ByteRange(4 * PART, PART + 77)])
    assert first.tobytes() == content[10 : 10 + 3 * PART]
    assert second.tobytes() == content[4 * PART :]
    assert (source.counts.requests, source.counts.reads, slow.requests) == (1, 4, 4)
    assert slow.most > 1
    assert source.counts.bytes == 4 * PART + 77


def test_one_connection_answers_requests_in_sequence(
    tmp_path: Path, slow: type[SlowFileSystem]
) -> None:
    file = tmp_path / "f"
    file.write_bytes(bytes(3 * PART))
    RemoteSource(OneConnection(), str(file), "f").read([ByteRange(0, 3 * PART)])
    assert (slow.requests, slow.most) == (1, 1)

"""Prefetch by a thread: it yields the same items, at most one ahead, and leaves no thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptFileError
from lance_spark.file.reader import FileReader
from lance_spark.scan import task as task_module
from lance_spark.scan.prefetch import read_ahead


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    yield
    assert not [item for item in threading.enumerate() if item.name == "lance-read-ahead"]


class Counted:
    """A generator of numbers that records its progress."""

    def __init__(self, count: int, fails_at: int = -1) -> None:
        self.count, self.fails_at = count, fails_at
        self.made = 0
        self.closed = False
        self.threads: set[str] = set()

    def items(self) -> Generator[int, None, None]:
        try:
            for number in range(1, self.count + 1):
                if number == self.fails_at:
                    raise CorruptFileError("damaged")
                self.threads.add(threading.current_thread().name)
                self.made = number
                yield number
        finally:
            self.closed = True


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_items(count: int) -> None:
    source = Counted(count)
    assert list(read_ahead(source.items(), 0)) == list(range(1, count + 1))
    assert source.closed
    assert len(source.threads) == min(count, 2)


def test_at_most_one_item_ahead() -> None:
    source = Counted(10)
    items = read_ahead(source.items(), 0)
    for number in range(1, 11):
        assert next(items) == number
        deadline = time.monotonic() + 5
        while source.made < min(number + 1, 10) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.005)
        assert source.made == min(number + 1, 10)
    assert next(items, None) is None


@pytest.mark.parametrize("fails_at", [1, 2, 5])
def test_errors_come_after_the_items_before(fails_at: int) -> None:
    source = Counted(10, fails_at)
    result: list[int] = []
    with pytest.raises(CorruptFileError, match="damaged"):
        result.extend(read_ahead(source.items(), 0))
    assert result == list(range(1, fails_at))
    assert source.closed


@pytest.mark.parametrize("taken", [1, 2, 3])
@pytest.mark.parametrize("fails_at", [-1, 3])
def test_closed_early(taken: int, fails_at: int) -> None:
    source = Counted(100, fails_at)
    items = read_ahead(source.items(), 0)
    for _ in range(min(taken, 2)):
        next(items)
    items.close()
    assert source.closed
    assert source.made <= taken + 1


def test_fast_items_start_no_thread() -> None:
    source = Counted(20)
    items = read_ahead(source.items(), 10**12)
    assert next(items) == 1
    assert source.made == 1
    assert list(items) == list(range(2, 21))
    assert source.threads == {threading.current_thread().name}
    assert source.closed
    source = Counted(20)
    items = read_ahead(source.items(), 10**12)
    next(items)
    items.close()
    assert source.closed


def test_producer_and_consumer_overlap() -> None:
    made = [threading.Event() for _ in range(5)]

    def numbers() -> Generator[int, None, None]:
        for number, event in enumerate(made):
            event.set()
            yield number

    for number in read_ahead(numbers(), 0):
        # The producer makes the next item while this one is in use.
        assert number == 4 or made[number + 1].wait(30)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ahead") / "t.lance"
    vectors = pa.FixedSizeListArray.from_arrays(np.zeros(20_000 * 768, np.float32), 768)
    table = pa.table({"id": range(20_000), "v": vectors})
    lance.write_dataset(table, str(path), max_rows_per_file=11_000)
    return path


@pytest.mark.parametrize("worth", [0, 10**12])
def test_scans(path: Path, monkeypatch: pytest.MonkeyPatch, worth: int) -> None:
    monkeypatch.setattr(task_module, "read_ahead", partial(read_ahead, worth_ns=worth))
    (task,) = lance_spark.open_dataset(str(path)).plan(rows_per_task=1 << 40)
    expected = pa.Table.from_batches(task.batches(prefetch=False))
    assert pa.Table.from_batches(task.batches(prefetch=True)).equals(expected)
    closed = []
    close = FileReader.close
    monkeypatch.setattr(FileReader, "close", lambda self: closed.append(close(self)))
    batches = task.batches(prefetch=True)
    next(batches)
    batches.close()
    assert closed


def test_a_scan_that_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "read_ahead", partial(read_ahead, worth_ns=0))
    read = FileReader.read
    num_reads = 0

    def failing(self: FileReader, *rest: object) -> list[pa.Array]:
        nonlocal num_reads
        num_reads += 1
        if num_reads == 3:
            raise CorruptFileError("the third read")
        return read(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FileReader, "read", failing)
    (task,) = lance_spark.open_dataset(str(path)).plan(rows_per_task=1 << 40)
    result: list[pa.RecordBatch] = []
    with pytest.raises(CorruptFileError, match="the third read"):
        result.extend(task.batches(prefetch=True))
    assert 0 < sum(batch.num_rows for batch in result) < 20_000

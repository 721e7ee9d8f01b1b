"""Batches that a second thread writes: order, errors and bounds; no thread is left."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from lance_spark.spark.write.input import BackgroundWriter


def batch(number: int, rows: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array([number] * rows, pa.int64())})


def threads() -> list[str]:
    return [item.name for item in threading.enumerate() if item.name == "lance-write"]


def test_order_and_other_thread() -> None:
    written: list[int] = []
    writers = set()

    def write(written_batch: pa.RecordBatch) -> None:
        writers.add(threading.current_thread().name)
        written.append(written_batch["x"][0].as_py())

    with BackgroundWriter(write) as behind:
        for number in range(1000):
            behind.put(batch(number))
    assert written == list(range(1000))
    assert writers == {"lance-write"}
    assert not threads()


def test_an_error_is_raised_by_the_next_call_and_once() -> None:
    def write(written_batch: pa.RecordBatch) -> None:
        if written_batch["x"][0].as_py() == 3:
            raise ValueError("third")

    def run() -> None:
        with BackgroundWriter(write, 1) as behind:
            for number in range(100_000):
                behind.put(batch(number))

    with pytest.raises(ValueError, match="third"):
        run()
    assert not threads()


def test_an_error_of_the_last_batch_is_raised() -> None:
    def write(written_batch: pa.RecordBatch) -> None:
        time.sleep(0.05)
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"), BackgroundWriter(write) as behind:
        behind.put(batch(0))


def test_an_error_of_the_caller_ends_the_thread() -> None:
    written: list[int] = []

    def write(written_batch: pa.RecordBatch) -> None:
        time.sleep(0.02)
        written.append(written_batch["x"][0].as_py())

    def run() -> None:
        with BackgroundWriter(write) as behind:
            for number in range(50):
                behind.put(batch(number))
            raise KeyError

    with pytest.raises(KeyError):
        run()
    assert len(written) < 50
    assert not threads()


def test_waiting_batches_are_bounded() -> None:
    rows = 1000
    held = 0
    most = 0
    lock = threading.Lock()

    def write(written_batch: pa.RecordBatch) -> None:
        nonlocal held
        time.sleep(0.002)
        with lock:
            held -= written_batch.nbytes

    with BackgroundWriter(write, max_waiting_bytes=8 * rows * 3) as behind:
        for number in range(100):
            behind.put(batch(number, rows))
            with lock:
                held += 8 * rows
                most = max(most, held)
    # Three batches wait, one is being written, and one was counted before it was removed from the
    # queue.
    assert 8 * rows <= most <= 8 * rows * 5

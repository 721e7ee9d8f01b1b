"""Threads that read local files take turns; see `lance_spark.turns`."""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic, sleep

import pyarrow as pa
import pytest

import lance_spark
from lance_spark import turns
from lance_spark.turns import end_if_long, turn


def in_thread(function: object) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_short_work_of_two_threads_does_not_overlap() -> None:
    running, most = 0, 0

    def work() -> None:
        nonlocal running, most
        for _ in range(20):
            with turn(local=True), turn(local=True):
                running += 1
                most = max(most, running)
                sleep(0.0005)
                running -= 1

    threads = [in_thread(work) for _ in range(4)]
    for thread in threads:
        thread.join(30)
    assert (running, most) == (0, 1)


def test_long_work_ends_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_SECONDS", 60.0)
    began, done = threading.Event(), threading.Event()

    def long() -> None:
        with turn(local=True):
            end_if_long()
            began.set()
            sleep(2 * turns._SHORT_SECONDS)
            end_if_long()
            done.wait(30)

    thread = in_thread(long)
    assert began.wait(30)
    with turn(local=True):
        assert thread.is_alive()
    done.set()
    thread.join(30)
    assert not turns._LOCK.locked()


def test_a_thread_that_waits_for_another_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback can wait for a thread that reads, too."""
    monkeypatch.setattr(turns, "_MOST_SECONDS", 0.05)
    dataset = lance_spark.write_dataset(pa.table({"a": [1, 2]}), tmp_path / "t")
    counts = []

    def wait(_: object) -> None:
        thread = in_thread(lambda: counts.append(dataset.count_rows("a = 1")))
        thread.join(30)

    start = monotonic()
    assert dataset.to_table(scan_stats_callback=wait).num_rows == 2
    assert counts == [1]
    assert monotonic() - start < 30


def test_stores_have_no_turns() -> None:
    with turn(local=False):
        assert not turns._LOCK.locked()

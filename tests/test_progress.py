"""Progress of long calls: what a callback receives, what its errors end, and when a bar is shown."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import lance.progress
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark import Progress, __main__, progress
from lance_spark.dataset import Dataset
from lance_spark.errors import InvalidInputError
from lance_spark.runner import LocalRunner

ROWS = 1200
Call = Callable[[Dataset, Any], object]


def rows(first: int = 0) -> pa.Table:
    vectors = np.random.default_rng(first).random(4 * ROWS, np.float32)
    return pa.table(
        {
            "id": range(first, first + ROWS),
            "s": [f"word{n % 7} text" for n in range(ROWS)],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 4),
        }
    )


def merge(dataset: Dataset, callback: Any) -> object:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return builder.execute(rows(ROWS // 2), progress_callback=callback)


#: Calls, with their stages.
CALLS: dict[str, tuple[Call, list[str]]] = {
    "btree": (
        lambda d, c: d.create_scalar_index("s", "BTREE", progress_callback=c),
        ["load_data"],
    ),
    "text": (
        lambda d, c: d.create_scalar_index("s", "INVERTED", progress_callback=c),
        ["tokenize_docs"],
    ),
    "vectors": (
        lambda d, c: d.create_index(
            "v", "IVF_PQ", num_partitions=2, num_sub_vectors=2, progress_callback=c
        ),
        ["sample", "train_ivf", "train_quantizer", "shuffle", "merge_partitions"],
    ),
    "graphs": (
        lambda d, c: d.create_index("v", "IVF_HNSW_SQ", num_partitions=2, progress_callback=c),
        ["sample", "train_ivf", "shuffle", "build_graphs", "merge_partitions"],
    ),
    "extend": (
        lambda d, c: d.optimize_indices(progress_callback=c),
        ["load_data", "merge_runs"],
    ),
    "compact": (
        lambda d, c: d.compact_files(progress_callback=c),
        ["rewrite", "remap_indexes"],
    ),
    "delete": (lambda d, c: d.delete("id % 2 = 0", progress_callback=c), ["delete"]),
    "update": (lambda d, c: d.update({"s": "x"}, progress_callback=c), ["rewrite"]),
    "columns": (
        lambda d, c: d.update({"s": "x"}, "id > 3", mode="columns", progress_callback=c),
        ["rewrite"],
    ),
    "merge": (merge, ["match", "rewrite", "delete"]),
    "add": (
        lambda d, c: d.add_columns({"n": lambda batch: batch["id"]}, progress_callback=c),
        ["compute"],
    ),
    "insert": (lambda d, c: d.insert(rows(), progress_callback=c), ["write"]),
    "clone": (lambda d, c: d.deep_clone(f"{d.uri}.copy", progress_callback=c), ["copy"]),
    "validate": (lambda d, c: d.validate(progress_callback=c), ["check_fragments"]),
    "check": (lambda d, c: d.check_index("id_idx", progress_callback=c), ["load_data"]),
    "cleanup": (
        lambda d, c: d.cleanup_old_versions(retain_versions=1, progress_callback=c),
        ["read_versions", "remove_transactions", "remove_manifests"],
    ),
}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """A table with an index of its first rows, and new rows."""
    dataset = lance_spark.write_dataset(rows(), tmp_path / "t", max_rows_per_file=400)
    return dataset.create_scalar_index("id", "BTREE").insert(rows(ROWS))


def files_below(folder: Path) -> set[str]:
    return {
        str(Path(parent, name).relative_to(folder))
        for parent, _, names in os.walk(folder)
        for name in names
    }


@pytest.mark.parametrize("name", CALLS)
def test_stages_of_calls(name: str, dataset: Dataset) -> None:
    if name == "graphs":
        pytest.importorskip("faiss")
    call, stages = CALLS[name]
    seen: list[Progress] = []

    def callback(event: Progress) -> None:
        assert threading.current_thread() is threading.main_thread()
        # The caller's own calls are not a part of the work.
        dataset.count_rows()
        seen.append(event)

    call(dataset, callback)
    assert [event.stage for event in seen if event.event == "start"] == stages
    for stage in stages:
        events = [event for event in seen if event.stage == stage]
        assert [events[0].event, events[-1].event] == ["start", "complete"]
        assert {event.event for event in events[1:-1]} <= {"progress"}
        counts = [event.completed for event in events]
        assert counts == sorted(counts)
        assert counts[0] == 0 < counts[-1]
        assert len({event.unit for event in events}) == 1
        assert events[-1].total in (None, counts[-1])


def _stopping(calls: list[tuple[str, str]], stop: tuple[str, str], seen: Progress) -> None:
    calls.append((seen.stage, seen.event))
    if calls[-1] == stop:
        raise ZeroDivisionError


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"graphs", "validate", "check", "cleanup"}))
def test_an_error_of_the_callback_ends_a_call(name: str, dataset: Dataset, tmp_path: Path) -> None:
    """It is called no more, no version is committed, and no file stays."""
    call, stages = CALLS[name]
    before = files_below(tmp_path)
    for stage in stages:
        for event in ("start", "complete"):
            calls: list[tuple[str, str]] = []
            callback = partial(_stopping, calls, (stage, event))
            with pytest.raises(ZeroDivisionError):
                call(dataset, callback)
            assert calls[-1] == (stage, event)
            left = files_below(tmp_path) - before
            if name == "compact" and stage == "remap_indexes":
                # The version that reserves the ids of the new fragments.
                assert {Path(path).suffix for path in left} == {".txn", ".manifest"}
                before |= left
            else:
                assert left == set()


def test_threads_count_and_stop() -> None:
    """Threads never call the callback, which is called seldom; they stop after its error."""
    seen: list[tuple[Progress, bool]] = []
    done: list[int] = []

    def callback(event: Progress) -> None:
        seen.append((event, threading.current_thread() is threading.main_thread()))
        if event.completed > 100:
            raise ZeroDivisionError

    def task(number: int) -> int:
        for _ in range(2000):
            time.sleep(0.001)
            progress.advance(unit="rows")
            progress.advance(1000, "bytes")
        done.append(number)
        return number

    started = time.monotonic()
    with pytest.raises(ZeroDivisionError), progress.reporting("test", callback):
        LocalRunner(True, 3).run_counted(range(6), task, done.append, "work", 12000, "rows")
    assert done == []
    assert all(is_own for _, is_own in seen)
    assert len(seen) <= 3 + (time.monotonic() - started) * 11
    # Nothing is followed any more.
    assert progress._CURRENT.get() is None


def test_the_progress_is_that_of_pylance() -> None:
    assert [field.name for field in dataclasses.fields(Progress)] == [
        field.name for field in dataclasses.fields(lance.progress.IndexProgress)
    ]
    for completed, total in ((1, 4), (5, 4), (1, 0), (1, None)):
        ours = Progress("progress", "x", completed, total, "rows")
        theirs = lance.progress.IndexProgress("progress", "x", completed, total, "rows")
        assert ours.fraction == theirs.fraction


def test_a_callback_must_be_callable(dataset: Dataset) -> None:
    for name in ("btree", "merge", "compact"):
        with pytest.raises(InvalidInputError, match="progress_callback must be a function"):
            CALLS[name][0](dataset, 3)


class Written(lance.progress.FragmentWriteProgress):
    """A class for pylance."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def begin(self, fragment: Any, **kwargs: Any) -> None:
        self.calls.append(("begin", fragment.id, len(fragment.files), kwargs))

    def complete(self, fragment: Any, **kwargs: Any) -> None:
        self.calls.append(("complete", fragment.physical_rows, len(fragment.files), kwargs))


def test_fragments_that_are_written(tmp_path: Path) -> None:
    """The calls are those of pylance, for an object of its class, which forgets the last one."""
    ours, theirs = Written(), Written()
    limit = 2 * ROWS // 3
    lance.write_dataset(rows(), tmp_path / "theirs", max_rows_per_file=limit, progress=theirs)
    dataset = lance_spark.write_dataset(
        rows(), tmp_path / "ours", max_rows_per_file=limit, progress=ours
    )
    calls = [*theirs.calls, ("complete", ROWS - limit, 1, {})]
    assert ours.calls == calls
    ours.calls.clear()
    lance_spark.dataset.write_fragments(rows(), dataset, max_rows_per_file=limit, progress=ours)
    assert ours.calls == calls
    ours.calls.clear()
    lance_spark.dataset.DatasetFragment.create(dataset.uri, rows(), progress=ours)
    assert [call[:2] for call in ours.calls] == [("begin", 0), ("complete", ROWS)]
    with pytest.raises(InvalidInputError, match="progress must be a FragmentWriteProgress"):
        dataset.insert(rows(), progress=3)


class Bar:
    """Stands for the bar of tqdm, which the tests do not install."""

    made: ClassVar[list[Bar]] = []

    def __init__(self, initial: int, total: int | None, desc: str, **_: Any) -> None:
        self.n, self.total, self.desc, self.is_closed = initial, total, desc, False
        self.made.append(self)

    def update(self, count: int) -> None:
        self.n += count

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Bar]]:
    """The bars that are made, without a delay."""
    auto = ModuleType("tqdm.auto")
    auto.tqdm = Bar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    monkeypatch.setattr(progress, "_BAR_SECONDS", 0)
    monkeypatch.delenv("LANCE_SPARK_PROGRESS", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    Bar.made = []
    yield Bar.made
    assert all(bar.is_closed for bar in Bar.made)


def test_bars(dataset: Dataset, bars: list[Bar], monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.optimize.compact_files()
    assert [bar.desc for bar in bars] == [
        "lance compact_files: rewrite",
        "lance compact_files: remap_indexes",
    ]
    assert bars[0].total == ROWS
    bars.clear()
    assert __main__.main(["validate", dataset.uri]) == 0
    assert [bar.desc for bar in bars] == ["lance validate: check_fragments"]
    bars.clear()
    # A callback takes the place of bars.
    dataset.validate(progress_callback=lambda _: None)
    # The work is not long.
    monkeypatch.setattr(progress, "_BAR_SECONDS", 60)
    dataset.validate()
    assert bars == []


def test_no_bars(dataset: Dataset, bars: list[Bar], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("LANCE_SPARK_PROGRESS", "0")
        dataset.validate()
    with monkeypatch.context() as patch:
        worker = SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon"))
        patch.setitem(sys.modules, "__main__", worker)
        dataset.validate()
    with monkeypatch.context() as patch:
        patch.setattr(sys.stderr, "isatty", lambda: False)
        dataset.validate()
    with monkeypatch.context() as patch:
        # Without the package.
        patch.setitem(sys.modules, "tqdm.auto", None)
        dataset.validate()
    with monkeypatch.context() as patch:
        # Nothing is shown, so nothing is counted.
        patch.setattr(sys.stderr, "isatty", lambda: False)
        with progress.reporting("x"), progress.stage("x") as counter:
            assert counter is progress._NO_COUNTER
    assert bars == []

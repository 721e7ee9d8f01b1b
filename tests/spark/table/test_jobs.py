"""Spark jobs that run tasks of this package: results, errors, and the files that tasks leave."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    MissingFileError,
    StorageError,
    UncertainCommitError,
)
from lance_spark.mutations.rows.update import update_rows
from lance_spark.runner import LocalRunner
from lance_spark.spark import job as job_monitor
from lance_spark.spark import job as jobs
from lance_spark.spark.job import Job, raised_by_task, wait_for_attempts
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.writer import FragmentWriter
from lance_spark.table.open import OpenTable, open_table


@dataclass(frozen=True)
class Counts:
    """A task that counts its input and returns the counts. It fails at a value."""

    wrong: int = -1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[object]:
        for batch in batches:
            ids = batch["id"].to_pylist()
            if self.wrong in ids:
                raise InvalidInputError(f"wrong: {self.wrong}")
            yield ids[0], len(ids)


@dataclass(frozen=True)
class Writes:
    """A task that writes a data file. Its first attempt dies before it ends, or all attempts
    fail.
    """

    table: TableSnapshot
    tag: bytes
    marker: Path
    attempts: int

    def run(self) -> Any:
        table = self.table.open()
        writer = FragmentWriter(table.paths, table.schema, (2, 1), tag=self.tag)
        writer.write(pa.record_batch({"id": [1, 2, 3]}))
        fragments = writer.finish()
        with open(self.marker, "ab") as file:
            file.write(b".")
        if self.marker.stat().st_size <= self.attempts:
            os._exit(1)
        return fragments


def full(_: int) -> None:
    raise StorageError("s3://bucket: the disk is full,\nas it seems")


def failing(number: int) -> int:
    if number == 3:
        raise CommitConflictError("task 3", retryable=True)
    return -number


@pytest.fixture
def table(tmp_path: Path) -> OpenTable:
    write_dataset(pa.table({"id": range(10)}), str(tmp_path / "t"), data_storage_version="2.1")
    return open_table(str(tmp_path / "t"))


def files(table: OpenTable) -> set[str]:
    return set(table.store.list_names("data"))


def test_results_in_order_and_in_waves(
    spark: Any, table: OpenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MAX_TASKS", 30)
    context = spark.sparkContext
    context.setJobDescription("mine")
    result_counts = []
    collect = Job._collect

    def noted(self: Job, *arguments: Any) -> Any:
        results = collect(self, *arguments)
        result_counts.append(len(results))
        return results

    monkeypatch.setattr(Job, "_collect", noted)
    try:
        with Job(spark, table, "test") as job:
            assert job.run_tasks(range(70), str, "number") == [str(n) for n in range(70)]
            assert job.run_tasks([], str, "nothing") == []
        assert result_counts == [30, 30, 10]
        assert context.getLocalProperty("spark.job.description") == "mine"
        assert context.getLocalProperty("spark.jobGroup.id") is None
    finally:
        context.setLocalProperty("spark.job.description", None)


def test_progress_line_in_a_terminal(
    spark: Any,
    table: OpenTable,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Job(spark, table, "test") as job:
        job.run_tasks(range(4), str, "number")
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(job_monitor, "is_visible", lambda: True)
        monkeypatch.setattr(job_monitor, "_INTERVAL", 0.05)
        job.run_tasks([0.5] * 8, time.sleep, "sleep")
    lines = capsys.readouterr().err.split("\r")
    assert f"lance test {table.store.display}: sleep: 8 of 8 tasks" in lines or any(
        f"sleep: {n} of 8 tasks" in line for n in range(1, 8) for line in lines
    )
    # No file of the job is left.
    assert lines[-1] == ""
    assert not lines[-2].strip()


def test_lance_errors_reach_the_driver_unchanged(spark: Any, table: OpenTable) -> None:
    with Job(spark, table, "test") as job:
        with pytest.raises(CommitConflictError, match="task 3") as error:
            job.run_tasks(range(5), failing, "fail")
        assert error.value.retryable
        frame = spark.range(0, 100_000, 1, 4)
        with pytest.raises(InvalidInputError, match="wrong: 30000"):
            job.run_frame(frame, Counts(30_000), "fail")
        # The workers in which tasks failed still work.
        counts = job.run_frame(frame, Counts(), "count")
    assert [first for first, _ in counts] == sorted(first for first, _ in counts)
    assert sum(rows for _, rows in counts) == 100_000


def test_files_of_a_killed_worker_are_deleted(spark: Any, table: OpenTable, tmp_path: Path) -> None:
    before = files(table)
    with Job(spark, table, "test") as job:
        task = Writes(snapshot_of(table), job.tag, tmp_path / "marker", 1)
        (fragments,) = job.runner("write").run([task], Writes.run, print)
        kept = {file.path for fragment in fragments for file in fragment.files}
        assert len(files(table) - before) == 2
        # The committed files are the files of the last attempt.
        manifest = _appended(table, fragments)
        job.committed(manifest)
    assert files(table) - before == kept


def test_files_of_a_failed_job_are_deleted(spark: Any, table: OpenTable, tmp_path: Path) -> None:
    before = files(table)
    with pytest.raises(Exception, match=r"(?i)python worker"), Job(spark, table, "test") as job:  # noqa: PT012
        task = Writes(snapshot_of(table), job.tag, tmp_path / "marker", 9)
        job.run_tasks([task], Writes.run, "write")
    assert (tmp_path / "marker").stat().st_size == 2
    assert files(table) == before


def test_storage_errors_reach_the_driver_after_the_last_attempt(
    spark: Any, table: OpenTable
) -> None:
    with pytest.raises(StorageError) as error, Job(spark, table, "test") as job:
        job.run_tasks([1], full, "write")
    assert str(error.value) == "s3://bucket: the disk is full,\nas it seems"
    assert "Python worker" in str(error.value.__cause__)


def test_other_errors_are_not_restored() -> None:
    text = "Traceback (most recent call last):\n  File x\nlance_spark.errors.{}"
    for message in (
        "StorageError: a\n\nTraceback (most recent call last):\nValueError: b",
        "Path: a",
    ):
        assert raised_by_task(ValueError(text.format(message))) is None
    assert raised_by_task(ValueError("lance_spark.errors.UncertainCommitError: a")) is None
    # This error cannot be created from a text alone.
    assert raised_by_task(ValueError("lance_spark.errors.CommitConflictError: a")) is None
    restored = raised_by_task(
        ValueError(text.format("MissingFileError: a: b\n\tat org.apache.spark"))
    )
    assert (type(restored), str(restored)) == (MissingFileError, "a: b")


def test_wait_for_running_attempts() -> None:
    active = {1: [2, 1, 0], 2: [0], 3: [1, 1, 1, 0]}

    class Tracker:
        def getJobInfo(self, job: int) -> Any:
            return {7: SimpleNamespace(stageIds=[1, 2]), 8: SimpleNamespace(stageIds=[3])}.get(job)

        def getStageInfo(self, stage: int) -> Any:
            return SimpleNamespace(numActiveTasks=active[stage].pop(0))

    assert wait_for_attempts(Tracker(), [7, 8, 9])
    assert not any(active.values())
    active[2] = [1] * 3
    active[1] = [0]
    assert not wait_for_attempts(Tracker(), [7], patience=0)
    assert wait_for_attempts(Tracker(), [])


def test_files_stay_that_only_an_earlier_version_refers_to(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    write_dataset(pa.table({"id": range(10)}), uri)
    job = Job(None, open_table(uri), "test")  # type: ignore[arg-type]
    runner = LocalRunner(local=True)
    runner.tag = job.tag
    update_rows(open_table(uri), {"id": pa.scalar(50)}, "id = 1", "rows", CommitOptions(), runner)
    open_dataset(uri).delete("id < 5 or id = 50")
    job._was_repeated = True
    job.committed()
    counts = [open_dataset(uri, version).to_table().num_rows for version in (1, 2, 3)]
    assert counts == [10, 10, 5]
    assert open_dataset(uri, 2).to_table()["id"].to_pylist() == [0, *range(2, 10), 50]


@pytest.mark.parametrize("error", [UncertainCommitError("?"), KeyboardInterrupt()], ids=type)
def test_files_of_an_uncertain_commit_stay(
    spark: Any, table: OpenTable, error: BaseException
) -> None:
    before = files(table)
    with pytest.raises(type(error)), Job(spark, table, "test") as job:  # noqa: PT012
        writer = FragmentWriter(table.paths, table.schema, (2, 1), tag=job.tag)
        writer.write(pa.record_batch({"id": [1, 2, 3]}))
        _appended(table, writer.finish())
        raise error
    assert len(files(table)) == len(before) + 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError()], ids=type)
def test_files_stay_whose_commit_may_still_be_under_way(
    tmp_path: Path, error: BaseException
) -> None:
    """The client of a store sends a request in a thread of its own, which an interrupt of the
    thread that waits for it does not end.
    """
    table = write_dataset(pa.table({"id": range(10)}), tmp_path / "t")._table
    with pytest.raises(type(error)), Job(None, table, "test") as job:  # type: ignore[arg-type] # noqa: PT012
        writer = FragmentWriter(table.paths, table.schema, (2, 2), tag=job.tag)
        writer.write(pa.record_batch({"id": [1, 2, 3]}))
        fragments = writer.finish()
        raise error
    _appended(table, fragments)
    assert open_dataset(tmp_path / "t").to_table().num_rows == 13


def test_files_of_a_failed_change_are_deleted(tmp_path: Path) -> None:
    table = write_dataset(pa.table({"id": range(10)}), tmp_path / "t")._table
    before = files(table)
    with pytest.raises(CommitConflictError), Job(None, table, "test") as job:  # type: ignore[arg-type] # noqa: PT012
        writer = FragmentWriter(table.paths, table.schema, (2, 2), tag=job.tag)
        writer.write(pa.record_batch({"id": [1, 2, 3]}))
        writer.finish()
        raise CommitConflictError("overtaken", retryable=True)
    assert files(table) == before


def _appended(table: OpenTable, fragments: Any) -> Any:
    from lance_spark.table.commit.commit import commit
    from lance_spark.table.commit.transaction import Transaction
    from lance_spark.table.operations.append import Append

    transaction = Transaction.new(table.version, Append(tuple(fragments)))
    return commit(table.store, transaction, table.manifest)

"""Tasks that fail, run twice, or die before the commit: no row occurs twice, and no removable file
is left.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from lance_spark.errors import CommitConflictError, LanceError, UncertainCommitError
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.write.planning import make_writer
from lance_spark.spark.write.writer import LanceCommitMessage, LanceWriter
from lance_spark.table.fragments.fragment import Fragment
from tests.support.settled import settled

SCHEMA = StructType().add("id", LongType())
Write = Callable[..., None]


def writer_for(path: Path, *, overwrite: bool = False) -> Any:
    made = make_writer(WriteOptions.parse({"path": str(path)}), SCHEMA, overwrite)
    return pickle.loads(pickle.dumps(made))


def batches(*values: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": pa.array(values, pa.int64())})


def data_files(path: Path) -> list[str]:
    folder = path / "data"
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def ids(path: Path) -> list[int]:
    return sorted(lance.dataset(str(path)).to_table()["id"].to_pylist())


def test_results_of_a_task_that_ran_twice_count_once(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    writer = writer_for(path)
    first = pickle.loads(pickle.dumps(writer.write(batches(1, 2))))
    pickle.loads(pickle.dumps(writer)).write(batches(1, 2))
    message = writer.write(batches(3))
    writer.commit([first, message])
    assert ids(path) == [1, 2, 3]


def test_a_task_that_fails_removes_its_file(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    writer = writer_for(path)

    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(1, 2)
        raise RuntimeError("upstream")

    with pytest.raises(RuntimeError, match="upstream"):
        writer.write(failing())
    assert data_files(path) == []


def test_abort_removes_what_finished_tasks_wrote(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    writer_for(path).commit([writer_for(path).write(batches(0))])
    before = data_files(path)
    writer = writer_for(path)
    done = writer.write(batches(1))
    assert data_files(path) != before
    # The message of one task was lost, but its file exists. Files of other writes stay.
    writer.write(batches(2))
    message = writer_for(path).write(batches(3))
    pickle.loads(pickle.dumps(writer)).abort([done, None])
    kept = {file.path for fragment in message.fragments for file in fragment.files}
    assert set(data_files(path)) == {*before, *kept}
    assert ids(path) == [0]


def test_a_lost_message_commits_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    writer = writer_for(path)
    with pytest.raises(LanceError, match="nothing was committed"):
        writer.commit([writer.write(batches(1)), None])
    assert not (path / "_versions").exists()


class Job:
    """The commit of a job fails, and is not retried."""

    commit_retries = 0
    read_version = 0
    read_identity = None

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.aborted: list[Any] = []

    def paths(self) -> None:
        """Return nothing: the fragments of the test have no files."""

    def commit_manifest(
        self, fragments: list[Any], properties: Any = None, write_token: Any = None
    ) -> int:
        raise self.error

    def abort(self, fragments: list[Any]) -> None:
        self.aborted.append(fragments)


@pytest.mark.parametrize(
    ("error", "removed"),
    [
        (CommitConflictError("conflict", retryable=True), True),
        (UncertainCommitError("who knows"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_files_are_deleted_only_if_no_manifest_can_refer_to_them(error: Any, removed: bool) -> None:
    job = Job(error)
    writer = LanceWriter(job, ["id"])  # type: ignore[arg-type]
    fragment = Fragment(0, (), 1)
    messages: list[Any] = [LanceCommitMessage([fragment])]
    with pytest.raises(type(error)):
        writer.commit(messages)
    assert job.aborted == ([[fragment]] if removed else [])
    # Spark calls abort after a failed commit, in another process.
    writer.abort(messages)
    assert len(job.aborted) == int(removed)


def test_a_task_that_fails_once_leaves_each_row_once(
    spark: Any, write: Write, tmp_path: Path
) -> None:
    def flaky(iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from iterator
        if context is not None and context.attemptNumber() == 0 and context.partitionId() == 1:
            raise RuntimeError("first attempt")

    path = tmp_path / "t.lance"
    write(spark.range(0, 30_000, 1, 3).mapInArrow(flaky, "id long"))
    assert ids(path) == list(range(30_000))


def test_a_failed_job_leaves_the_table_and_its_folder_unchanged(
    spark: Any, write: Write, tmp_path: Path
) -> None:
    def failing(iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from iterator
        if TaskContext.get().partitionId() == 0:  # type: ignore[union-attr]
            done.touch()
            return
        # A task that begins its file after the job was aborted leaves the file: wait until the
        # other task ends.
        deadline = time.monotonic() + 30
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        raise RuntimeError("always")

    path, done = tmp_path / "t.lance", tmp_path / "done"
    write(spark.range(10))
    before = data_files(path)
    with pytest.raises(Exception, match="always"):
        write(spark.range(0, 30_000, 1, 2).mapInArrow(failing, "id long"))
    assert settled(lambda: data_files(path), before) == before
    assert lance.dataset(str(path)).version == 1
    assert ids(path) == list(range(10))


def test_a_refused_value_leaves_no_file(spark: Any, write: Write, tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": pa.array([1], pa.int8())}), str(path))
    before = data_files(path)
    # The name of the table, the column and the value, without the lines of the worker's code.
    refusal = f"{path}: column id holds a value outside the range of int8: 128"
    with pytest.raises(Exception, match=refusal) as raised:
        write(spark.range(0, 30_000, 1, 1))
    assert "Traceback" not in str(raised.value)
    assert settled(lambda: data_files(path), before) == before

"""Spark jobs that run tasks of this package, or work over the rows of a frame.

| job | a partition | results |
| --- | --- | --- |
| `Job.run_tasks` | several tasks, one after the other | the result of each task |
| `Job.run_frame` | the batches of a partition of a frame | the values that the work yields |

Executors send rows of the columns ``place, number, attempt, stage, value``; each value is a pickle.
A `LanceError` that another attempt would raise again is sent as a value too: so the job fails at
once, and the driver raises the original error. Spark handles all other errors and tries the task
again. If all attempts fail, the driver restores a `LanceError` from the text of Spark's error.

The names of all files that the tasks of a job write end with its tag. By the tag the driver finds
and deletes the files of failed attempts.
"""

from __future__ import annotations

import pickle
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException

from lance_spark import errors
from lance_spark.errors import LanceError, StorageError, UncertainCommitError
from lance_spark.progress import is_visible
from lance_spark.runner import Runner, delete_orphans, delete_orphans_of_failed_job, new_tag
from lance_spark.spark.jvm.classes import is_connect
from lance_spark.spark.python_process import TaskObject
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.placement import placement_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lance_spark.spark.write.locators import BlobSources


# --------------------------------------------------------------------------------------------------
# Monitoring of Spark jobs: their progress, and failed and superfluous attempts of their tasks.
#
# A progress line such as ``lance optimize /t: rewrite groups: 12 of 40 tasks`` is written to stderr
# if that is a terminal or in a notebook, and the environment variable LANCE_SPARK_PROGRESS is not
# 0. Its errors are ignored, so that they never disturb the job.
#
# A job ends for its driver when each task has succeeded once, or all attempts of a task have
# failed. Other attempts may still run: Spark interrupts them, which Python does not notice, and
# kills their Python workers some seconds later. Until then they write files.

#: Seconds between two updates.
_INTERVAL = 0.5
#: Spark checks every two seconds whether a task is interrupted, and kills its Python worker after
#: spark.python.task.killTimeout, by default two more seconds.
_PATIENCE = 10.0
_POLL_SECONDS = 0.05
_RAISED = re.compile(r"^lance_spark\.errors\.(\w+): ", re.MULTILINE)
#: Text after an error that was not the last one of the traceback.
_LATER_ERROR = re.compile(r"^(Traceback |The above exception |During handling of )", re.MULTILINE)
_JAVA = re.compile(r"\n+(Driver stacktrace:|\tat )")


@contextmanager
def progress_line(spark: SparkSession, group: str, title: str) -> Iterator[None]:
    """Show the progress of a group of Spark jobs until the context ends.

    - `group`: The group of jobs; not used with Spark Connect, which reports all jobs of the
      session.
    - `title`: Start of the line.
    """
    if not is_visible():
        yield
        return
    line = Line(title)
    stop: Callable[[], None] | None = None
    with suppress(Exception):
        stop = _follow(spark, group, line)
    try:
        yield
    finally:
        with suppress(Exception):
            if stop is not None:
                stop()
            line.clear()


class Line:
    """A line on stderr that each update overwrites."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._width = 0

    def show(self, done: int, total: int) -> None:
        """Show the number of finished tasks."""
        if not total:
            return
        text = f"{self._title}: {done:,} of {total:,} tasks"
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Make the line empty."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


def _follow(spark: Any, group: str, line: Line) -> Callable[[], None]:
    """Start to update the line; return a function that stops it."""
    if hasattr(spark, "registerProgressHandler") and is_connect(spark):

        def handle(stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
            with suppress(Exception):
                line.show(
                    sum(stage.num_completed_tasks for stage in stages),
                    sum(stage.num_tasks for stage in stages),
                )

        spark.registerProgressHandler(handle)
        return lambda: spark.removeProgressHandler(handle)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(group))
    ended = threading.Event()

    def watch() -> None:
        with suppress(Exception):
            while not ended.wait(_INTERVAL):
                jobs = set(tracker.getJobIdsForGroup(group)) - before
                infos = (tracker.getJobInfo(job) for job in jobs)
                numbers = {number for info in infos if info for number in info.stageIds}
                stages = [stage for stage in map(tracker.getStageInfo, numbers) if stage]
                line.show(
                    sum(stage.numCompletedTasks for stage in stages),
                    sum(stage.numTasks for stage in stages),
                )

    thread = threading.Thread(target=watch, name="lance progress", daemon=True)
    thread.start()

    def stop() -> None:
        ended.set()
        thread.join(2 * _INTERVAL)

    return stop


def raised_by_task(error: BaseException) -> LanceError | None:
    """Return the `LanceError` that a task raised, restored from Spark's error on the driver.

    - `error`: Spark's error. Its text has the traceback of the last attempt.

    None if the task raised another error.
    """
    text = str(error)
    matches = list(_RAISED.finditer(text))
    if not matches:
        return None
    last = matches[-1]
    message = text[last.end() :]
    if _LATER_ERROR.search(message):
        return None
    error_class = getattr(errors, last[1], None)
    if not isinstance(error_class, type) or not issubclass(error_class, LanceError):
        return None
    if issubclass(error_class, UncertainCommitError):
        # Tasks do not commit.
        return None
    # Classes that need more than a message are left to Spark's error.
    with suppress(TypeError):
        restored: LanceError = error_class(_JAVA.split(message)[0].strip())
        return restored
    return None


def wait_for_attempts(tracker: Any, jobs: Collection[int], patience: float = _PATIENCE) -> bool:
    """Wait until all attempts of the tasks of Spark jobs have ended.

    - `jobs`: Spark's numbers of the jobs.
    - `patience`: Maximum time to wait in seconds.

    Returns whether all attempts have ended.
    """
    job_infos = [tracker.getJobInfo(job) for job in jobs]
    stages = {stage for info in job_infos if info for stage in info.stageIds}
    end = time.monotonic() + patience
    while True:
        infos = {stage: tracker.getStageInfo(stage) for stage in stages}
        stages = {stage for stage, info in infos.items() if info and info.numActiveTasks > 0}
        if not stages:
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_SECONDS)


def task_number() -> int:
    """Return the number of the current partition, plus the number of the batch in a stream.

    By this number, tasks that each write a single file start with different target bases.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0
    batch = context.getLocalProperty("streaming.sql.batchId") or ""
    return context.partitionId() + (int(batch) if batch.isdecimal() else 0)


# --------------------------------------------------------------------------------------------------
# Spark jobs that run tasks of this package, or work over the rows of a frame.

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Maximum number of tasks of one Spark job, and of bytes of their pickles.
MAX_TASKS = 2_000
_MAX_BYTES = 32 * 1024 * 1024
#: Partitions per concurrent task, so that idle cores can take over partitions of slow cores.
_WAVES = 4
#: Assumed parallelism with Spark Connect, which does not report it.
_UNKNOWN_PARALLELISM = 32
_SCHEMA = "place long, number long, attempt int, stage int, value binary"
_ARROW = pa.schema(
    [
        ("place", pa.int64()),
        ("number", pa.int64()),
        ("attempt", pa.int32()),
        ("stage", pa.int32()),
        ("value", pa.binary()),
    ]
)
_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
#: Seconds until Spark has killed the Python workers of a failed job, where it does not report this.
_KILL_SECONDS = 4.5


class Work(Protocol):
    """Work over the batches of a partition: an object of a module's class that can be pickled."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[object]:
        """Yield a few small results."""
        ...


class Job(AbstractContextManager["Job"]):
    """The Spark jobs of one change of a table. A context manager.

    It names the Spark jobs, shows their progress, and deletes files that are not needed. The caller
    calls `committed` when the change is committed. If the context ends with an error before that,
    the files of all tasks are deleted, unless a commit may still be under way: after an
    `UncertainCommitError`, or an interrupt outside of a Spark job.

    - `table`: Any version before the change.
    - `change`: Name of the change, such as "delete".
    """

    def __init__(self, spark: SparkSession, table: OpenTable, change: str) -> None:
        self._spark = spark
        self._table = table
        self._title = f"lance {change} {table.store.display}"
        self._is_committed = False
        self._was_repeated = False
        self._has_failed = False
        self._is_in_job = False
        self._jobs: set[int] = set()
        self._tag: bytes | None = None

    @property
    def tag(self) -> bytes:
        """Suffix of the names of the files that tasks write."""
        if self._tag is None:
            self._tag = new_tag()
        return self._tag

    @property
    def spark(self) -> SparkSession:
        """The session that runs the jobs."""
        return self._spark

    def runner(self, step: str) -> Runner:
        """Return a runner of tasks on executors."""
        return SparkRunner(self, step)

    def run_tasks(
        self, tasks: Sequence[_T], run: Callable[[_T], _R], step: str, *, writes: bool = True
    ) -> list[_R]:
        """Run tasks on executors, and return their results in the order of the tasks.

        - `tasks`: Objects that can be pickled.
        - `run`: Runs a task: a function of a module, or a method of a class of a module.

        Raises LanceError: raised by the first attempt of a task, if another attempt would raise it
        again. Raises StorageError: raised by the last attempt of a task. Raises PySparkException:
        all attempts of a task failed for other reasons.
        """
        pickles = [_pickled(task) for task in tasks]
        results: list[_R] = []
        for wave in _waves([len(data) for data in pickles]):
            work = _Tasks(tuple(pickles[wave.start : wave.stop]), _pickled(run))
            partitions = min(len(wave), _WAVES * parallelism(self._spark))
            frame = self._spark.range(0, len(wave), 1, partitions)
            results += self._collect(frame, work, step, writes)
        if len(results) != len(pickles):
            raise LanceError(
                f"{self._title}: {step}: Spark returned {len(results)} results of {len(pickles)} "
                "tasks; nothing was changed, run it again"
            )
        return results

    def run_frame(
        self, frame: DataFrame, work: Work, step: str, *, writes: bool = True
    ) -> list[Any]:
        """Run work over all partitions of a frame; see `run_tasks` for errors.

        Returns the yielded values, in the order of the partitions and of each partition's work.
        Raises PySparkException: also if an expression of the frame raised an error.
        """
        from lance_spark.spark.write.locators import located_rows

        with located_rows(self._spark, frame) as (rows, sources):
            return self._collect(rows, _FrameWork(work, sources), step, writes)

    def committed(self, manifest: Manifest | None = None) -> None:
        """Record that the change is committed, and delete the files of failed attempts.

        - `manifest`: The version that the change committed. By default the files of all versions
          stay that were committed since the job started: a newer version may lack files of the
          change.
        """
        self._is_committed = True
        if not self._was_repeated:
            return
        self._wait_for_attempts()
        with suppress(LanceError):
            if manifest is None:
                delete_orphans_of_failed_job(self._table, self.tag, self._targets())
            else:
                delete_orphans(self._table, self.tag, manifest, targets=self._targets())

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if error is None or self._is_committed or isinstance(error, UncertainCommitError):
            return
        if self._tag is None:
            # No task can have written a file.
            return
        if not (self._is_in_job or isinstance(error, LanceError | PySparkException)):
            # The store may still carry out the request that creates the manifest.
            return
        with suppress(Exception):
            self._wait_for_attempts()
            delete_orphans_of_failed_job(self._table, self.tag, self._targets())

    def _targets(self) -> tuple[int | None, ...]:
        """Return the base paths to which tasks may have written, and None for the table's root."""
        return placement_of(self._table).all

    def _collect(self, frame: DataFrame, work: Any, step: str, writes: bool) -> list[Any]:
        title = f"{self._title}: {step}"
        with job_group(self._spark, title) as group, progress_line(self._spark, group, title):
            before = self._job_numbers(group)
            self._is_in_job = True
            try:
                rows = frame.mapInArrow(work, _SCHEMA).toArrow()
                self._is_in_job = False
            except BaseException as error:
                self._has_failed |= writes
                original = raised_by_task(error)
                if original is None:
                    raise
                raise original from error
            finally:
                if writes:
                    self._jobs |= self._job_numbers(group) - before
        if writes and not self._was_repeated:
            self._was_repeated = self._has_other_attempts(rows)
        places, numbers, values = (rows[name].to_pylist() for name in ("place", "number", "value"))
        order = sorted(range(rows.num_rows), key=lambda index: (places[index], numbers[index]))
        results = []
        for index in order:
            is_error, value = pickle.loads(values[index])  # noqa: S301 - of our own tasks
            if is_error:
                raise value
            results.append(value)
        return results

    def _job_numbers(self, group: str) -> set[int]:
        """Return Spark's numbers of the jobs of a group; none with Spark Connect."""
        with suppress(Exception):
            if not is_connect(self._spark):
                return set(self._spark.sparkContext.statusTracker().getJobIdsForGroup(group))
        return set()

    def _wait_for_attempts(self) -> None:
        """Wait until superfluous attempts have ended, so that all their files can be deleted."""
        with suppress(Exception):
            if not is_connect(self._spark):
                wait_for_attempts(self._spark.sparkContext.statusTracker(), self._jobs)
            elif self._has_failed:
                time.sleep(_KILL_SECONDS)

    def _has_other_attempts(self, rows: pa.Table) -> bool:
        """Return whether attempts may have run whose results are not in the rows."""
        if any(rows["attempt"].to_pylist()):
            return True
        with suppress(Exception):
            if str(self._spark.conf.get("spark.speculation", "false")).lower() == "true":
                return True
            if not is_connect(self._spark):
                tracker = self._spark.sparkContext.statusTracker()
                stages = [tracker.getStageInfo(number) for number in set(rows["stage"].to_pylist())]
                # A stage that lost its input starts again, with attempt numbers from 0.
                return any(
                    not stage or stage.currentAttemptId or stage.numFailedTasks for stage in stages
                )
        return True


class SparkRunner(Runner):
    """Runs tasks on executors. If the job fails, it deletes the files of its tasks."""

    def __init__(self, job: Job, step: str) -> None:
        self._job = job
        self._step = step
        self.tag = job.tag

    def run(
        self, tasks: Sequence[_T], run: Callable[[_T], _R], undo: Callable[[_R], object]
    ) -> list[_R]:
        """Run tasks; see `Runner.run` and `Job.run_tasks`."""
        return self._job.run_tasks(tasks, run, self._step)


def parallelism(spark: SparkSession) -> int:
    """Return the number of concurrent tasks; a constant with Spark Connect."""
    if is_connect(spark):
        return _UNKNOWN_PARALLELISM
    return max(int(spark.sparkContext.defaultParallelism), 1)


@dataclass(frozen=True)
class _Tasks(TaskObject):
    """Runs tasks by number. Every executor receives all tasks, but unpickles only its own."""

    pickles: tuple[bytes, ...]
    run: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run = pickle.loads(self.run)  # noqa: S301 - of our own driver
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _row(number, 0, *_returned(partial(self._result, run, number)))

    def _result(self, run: Callable[[Any], object], number: int) -> object:
        return run(pickle.loads(self.pickles[number]))  # noqa: S301 - of our own driver


@dataclass(frozen=True)
class _FrameWork(TaskObject):
    """Runs work over the batches of a partition, and yields its results as rows."""

    work: Work
    sources: BlobSources | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from lance_spark.spark.write.locators import rows_of_job

        context = TaskContext.get()
        place = 0 if context is None else context.partitionId()
        results = iter(self.work(rows_of_job(batches, self.sources)))
        end = object()
        number = 0
        while True:
            is_error, value = _returned(partial(next, results, end))
            if value is end:
                return
            yield _row(place, number, is_error, value)
            number += 1
            if is_error:
                # Spark assumes that a worker which does not read all of its input has died.
                for _ in batches:
                    pass
                return


def _returned(call: Callable[[], object]) -> tuple[bool, object]:
    """Return whether a call raised an error to send to the driver, and the error or the result."""
    try:
        return False, call()
    except StorageError:
        raise
    except LanceError as error:
        return True, error


def _row(place: int, number: int, is_error: bool, value: object) -> pa.RecordBatch:
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt, stage = (0, 0) if context is None else (context.attemptNumber(), context.stageId())
    row = (place, number, attempt, stage, pickle.dumps((is_error, value)))
    columns = [pa.array([value], dtype) for value, dtype in zip(row, _ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _pickled(value: object) -> bytes:
    # Functions of users can be lambdas, which pickle rejects.
    from pyspark import cloudpickle

    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def _waves(sizes: Sequence[int]) -> Iterator[range]:
    """Divide tasks among Spark jobs, by the sizes of their pickles in bytes."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start >= MAX_TASKS or total + size > _MAX_BYTES):
            yield range(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield range(start, len(sizes))


@contextmanager
def job_group(spark: Any, title: str) -> Iterator[str]:
    """Describe the Spark jobs of this thread in the context; yield their group."""
    if is_connect(spark):
        tag = f"lance-{uuid.uuid4()}"
        spark.addTag(tag)
        try:
            yield tag
        finally:
            spark.removeTag(tag)
        return
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    # A group of the user is kept, so that cancelling it cancels these jobs too.
    group = before["spark.jobGroup.id"]
    if group is None:
        group = f"lance-{uuid.uuid4()}"
        context.setLocalProperty("spark.jobGroup.id", group)
    context.setLocalProperty("spark.job.description", title)
    try:
        yield group
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)

"""Monitoring of Spark jobs: their progress, and failed and superfluous attempts of their tasks.

A progress line such as ``lance optimize /t: rewrite groups: 12 of 40 tasks`` is written to stderr
if that is a terminal or in a notebook, and the environment variable LANCE_SPARK_PROGRESS is not 0.
Its errors are ignored, so that they never disturb the job.

A job ends for its driver when each task has succeeded once, or all attempts of a task have failed.
Other attempts may still run: Spark interrupts them, which Python does not notice, and kills their
Python workers some seconds later. Until then they write files.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lance_spark import errors
from lance_spark.errors import LanceError, UncertainCommitError
from lance_spark.progress import is_visible
from lance_spark.spark.jvm.classes import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

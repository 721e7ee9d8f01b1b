"""Progress line of a Spark job: ``lance optimize /t: rewrite groups: 12 of 40 tasks``.

It is written to stderr if that is a terminal or in a notebook, and the environment variable
LANCE_SPARK_PROGRESS is not 0. Its errors are ignored, so that they never disturb the job.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lance_spark.spark.pushdown.java_classes import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds between two updates.
_INTERVAL = 0.5
_VARIABLE = "LANCE_SPARK_PROGRESS"


@contextmanager
def progress_line(spark: SparkSession, group: str, title: str) -> Iterator[None]:
    """Show the progress of a group of Spark jobs until the context ends.

    Parameters
    ----------
    group : str
        The group of jobs; not used with Spark Connect, which reports all jobs of the session.
    title : str
        Start of the line.
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


def is_visible() -> bool:
    """Return whether a user can see the line: in a terminal or a notebook."""
    if os.environ.get(_VARIABLE, "1") == "0":
        return False
    ipython = sys.modules.get("IPython")
    with suppress(Exception):
        if ipython is not None and ipython.get_ipython() is not None:
            return True
        return sys.stderr.isatty()
    return False


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

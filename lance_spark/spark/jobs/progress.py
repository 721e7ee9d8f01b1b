"""How far a Spark job is, on a line of a terminal or notebook: ``lance optimize /t: rewrite groups:
12 of 40 tasks``.

Shown on stderr, if that is a terminal or in a notebook, and the environment's LANCE_SPARK_PROGRESS
is not 0. What goes wrong with it never disturbs the job.
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

#: Seconds between two looks.
_INTERVAL = 0.5
_VARIABLE = "LANCE_SPARK_PROGRESS"


@contextmanager
def shown(spark: SparkSession, group: str, title: str) -> Iterator[None]:
    """Show a line on the jobs of a group for as long as the context lasts.

    Parameters
    ----------
    spark : SparkSession
    group : str
        Of Spark's jobs; unused through Spark Connect, whose session tells of all that it runs.
    title : str
        What is going on.
    """
    if not is_wanted():
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


def is_wanted() -> bool:
    """Tell whether somebody looks."""
    if os.environ.get(_VARIABLE, "1") == "0":
        return False
    kernel = sys.modules.get("IPython")
    with suppress(Exception):
        if kernel is not None and kernel.get_ipython() is not None:
            return True
        return sys.stderr.isatty()
    return False


class Line:
    """A line on stderr that is written over.

    Parameters
    ----------
    title : str
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._width = 0

    def show(self, done: int, total: int) -> None:
        """Show how many tasks are done."""
        if not total:
            return
        text = f"{self._title}: {done:,} of {total:,} tasks"
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Leave an empty line."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


def _follow(spark: Any, group: str, line: Line) -> Callable[[], None]:
    """Begin to show the line; return what ends it."""
    if hasattr(spark, "registerProgressHandler") and is_connect(spark):

        def handle(stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
            with suppress(Exception):
                line.show(
                    sum(item.num_completed_tasks for item in stages),
                    sum(item.num_tasks for item in stages),
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
                numbers = {stage for info in infos if info for stage in info.stageIds}
                stages = [item for item in map(tracker.getStageInfo, numbers) if item]
                line.show(
                    sum(item.numCompletedTasks for item in stages),
                    sum(item.numTasks for item in stages),
                )

    thread = threading.Thread(target=watch, name="lance progress", daemon=True)
    thread.start()

    def stop() -> None:
        ended.set()
        thread.join(2 * _INTERVAL)

    return stop

"""Failed and superfluous attempts of tasks: their errors, and waiting for their end.

A job ends for its driver when each task has succeeded once, or all attempts of a task have failed.
Other attempts may still run: Spark interrupts them, which Python does not notice, and kills their
Python workers some seconds later. Until then they write files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from lance_spark import errors
from lance_spark.errors import LanceError, UncertainCommitError

#: Spark checks every two seconds whether a task is interrupted, and kills its Python worker after
#: spark.python.task.killTimeout, by default two more seconds.
_PATIENCE = 10.0
_INTERVAL = 0.05
_RAISED = re.compile(r"^lance_spark\.errors\.(\w+): ", re.MULTILINE)
#: Text after an error that was not the last one of the traceback.
_LATER_ERROR = re.compile(r"^(Traceback |The above exception |During handling of )", re.MULTILINE)
_JAVA = re.compile(r"\n+(Driver stacktrace:|\tat )")


def raised_by_task(error: BaseException) -> LanceError | None:
    """Return the `LanceError` that a task raised, restored from Spark's error on the driver.

    Parameters
    ----------
    error : BaseException
        Spark's error. Its text has the traceback of the last attempt.

    Returns
    -------
    LanceError or None
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

    Parameters
    ----------
    jobs : collection of int
        Spark's numbers of the jobs.
    patience : float
        Maximum time to wait in seconds.

    Returns
    -------
    bool
        Whether all attempts have ended.
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
        time.sleep(_INTERVAL)


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

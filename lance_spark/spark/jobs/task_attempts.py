"""Attempts of tasks that Spark has no use for: what they raised, and whether they are at an end.

A job is over for its driver when each task has succeeded once, or one has failed as often as it
may. Other attempts may run on: Spark interrupts them, which Python does not notice, and kills their
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

#: Spark looks every two seconds whether a task is interrupted, and kills its Python worker after
#: spark.python.task.killTimeout, another two by default.
_PATIENCE = 10.0
_INTERVAL = 0.05
_RAISED = re.compile(r"^lance_spark\.errors\.(\w+): ", re.MULTILINE)
#: What follows a message if it is not the last one.
_AFTER = re.compile(r"^(Traceback |The above exception |During handling of )", re.MULTILINE)
_JAVA = re.compile(r"\n+(Driver stacktrace:|\tat )")


def raised_by_task(error: BaseException) -> LanceError | None:
    """Return the error of ours that a task raised, by what Spark tells of it; None if it was none
    of ours.

    Parameters
    ----------
    error : BaseException
        What Spark raised on the driver, with the traceback of the last attempt as its text.
    """
    text = str(error)
    result = list(_RAISED.finditer(text))
    if not result:
        return None
    message = text[result[-1].end() :]
    if _AFTER.search(message):
        return None
    kind = getattr(errors, result[-1][1], None)
    if not isinstance(kind, type) or not issubclass(kind, LanceError):
        return None
    if issubclass(kind, UncertainCommitError):
        # Tasks commit nothing.
        return None
    with suppress(TypeError):
        made: LanceError = kind(_JAVA.split(message)[0].strip())
        return made
    return None


def wait_for_attempts(tracker: Any, jobs: Collection[int], patience: float = _PATIENCE) -> bool:
    """Wait until no attempt of the tasks of some jobs is running.

    Parameters
    ----------
    tracker : StatusTracker
    jobs : collection of int
        Numbers of Spark's jobs.
    patience : float
        How many seconds to wait at most.

    Returns
    -------
    bool
        Whether they are all at an end.
    """
    infos = [tracker.getJobInfo(job) for job in jobs]
    stages = {stage for info in infos if info for stage in info.stageIds}
    end = time.monotonic() + patience
    while True:
        result = {stage: tracker.getStageInfo(stage) for stage in stages}
        stages = {stage for stage, info in result.items() if info and info.numActiveTasks > 0}
        if not stages:
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(_INTERVAL)

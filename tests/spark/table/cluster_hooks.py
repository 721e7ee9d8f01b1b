"""Hooks that delay or fail tasks on executors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext

#: Longer than any run of the tests: a task that sleeps so long is interrupted, or the test fails.
FOR_EVER = 100.0


def is_first(marker: str) -> bool:
    """Return whether this is the first call for a marker, among all processes."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class Slow:
    """Runs a task. The first attempt writes its files only after the table has another version.

    Attributes
    ----------
    run : callable
    marker : str
    versions : str
        Folder of the manifests.
    """

    run: Callable[[Any], Any]
    marker: str
    versions: str

    def __call__(self, task: Any) -> Any:
        """Run it."""
        if is_first(self.marker):
            before = len(os.listdir(self.versions))
            end = time.monotonic() + FOR_EVER
            while len(os.listdir(self.versions)) == before and time.monotonic() < end:
                time.sleep(0.02)
            time.sleep(0.5)
            result = self.run(task)
            time.sleep(FOR_EVER)
            return result
        return self.run(task)


@dataclass(frozen=True)
class Failing:
    """Runs a task and fails, before other tasks write their files.

    Attributes
    ----------
    run : callable
    error : BaseException
    attempts : int
        So many that fail end the job.
    marker : str
    """

    run: Callable[[Any], Any]
    error: BaseException
    attempts: int
    marker: str

    def __call__(self, task: Any) -> Any:
        """Run the task."""
        if is_first(self.marker):
            # This task must still be running when the job has failed.
            place = Path(self.marker)
            while not list(place.parent.glob(f"{place.name}.failed.*.{self.attempts}")):
                time.sleep(0.02)
            time.sleep(0.5)
            result = self.run(task)
            time.sleep(FOR_EVER)
            return result
        self.run(task)
        context = TaskContext.get()
        assert context is not None
        Path(f"{self.marker}.failed.{context.partitionId()}.{context.attemptNumber() + 1}").touch()
        raise self.error

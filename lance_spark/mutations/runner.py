"""Who runs the tasks of a change: this machine, or a cluster.

A change is planned, its tasks run, and it is committed once, whoever runs them: a runner is what differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from lance_spark.mutations.retry import run_all
from lance_spark.table.open import OpenTable

_T = TypeVar("_T")
_R = TypeVar("_R")


class Runner(ABC):
    """Runs the tasks of a change.

    Attributes
    ----------
    tag : bytes
        Ends the names of the files that tasks write, so that they can be found again; empty for none.
    """

    tag: bytes = b""

    @abstractmethod
    def run(
        self, tasks: Sequence[_T], run: Callable[[_T], _R], undo: Callable[[_R], object]
    ) -> list[_R]:
        """Run tasks.

        Parameters
        ----------
        tasks : sequence
        run : callable
            Runs one of them; for a cluster a function of a module, or a method of a class of a module.
        undo : callable
            Deletes what a task wrote, by its result, if another one fails.

        Returns
        -------
        list
            Results in the order of the tasks.
        """


class LocalRunner(Runner):
    """Runs tasks on this machine.

    Parameters
    ----------
    local : bool
        Whether the table's store is: tasks of remote ones run side by side.
    threads : int, optional
        How many run at the same time.
    """

    def __init__(self, local: bool, threads: int | None = None) -> None:
        self._local = local
        self._threads = threads

    def run(
        self, tasks: Sequence[_T], run: Callable[[_T], _R], undo: Callable[[_R], object]
    ) -> list[_R]:
        """Run tasks; see `Runner.run`."""
        return run_all(tasks, run, undo, local=self._local, threads=self._threads)


def runner_for(table: OpenTable, runner: Runner | None, threads: int | None = None) -> Runner:
    """Return the runner that is given, or this machine."""
    return runner or LocalRunner(table.store.is_local, threads)

"""Runners: where the tasks of a mutation run, in this process or on a cluster.

A mutation is planned, its tasks run and it is committed once, wherever the tasks run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.table.open import OpenTable

#: Tasks that run at the same time where the store is remote.
_REMOTE_THREADS = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


class Runner(ABC):
    """Runs the tasks of a mutation.

    Attributes
    ----------
    tag : bytes
        Ends the names of the files that tasks write, so that a sweep finds them; empty for none.
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
            Runs one task; for a cluster a function of a module, or a method of a class of a module.
        undo : callable
            Deletes the files of a task, given its result, if another task fails.

        Returns
        -------
        list
            Results in the order of the tasks.
        """


class LocalRunner(Runner):
    """Runs tasks in this process.

    Parameters
    ----------
    local : bool
        Whether the table's store is local: tasks of remote stores run at the same time.
    threads : int, optional
        Number of tasks that run at the same time.
    """

    def __init__(self, local: bool, threads: int | None = None) -> None:
        self._threads = threads or (1 if local else _REMOTE_THREADS)

    def run(
        self, tasks: Sequence[_T], run: Callable[[_T], _R], undo: Callable[[_R], object]
    ) -> list[_R]:
        """Run tasks; see `Runner.run`."""
        pool = ThreadPoolExecutor(self._threads)
        futures = [pool.submit(run, task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            for future in futures:
                if not future.cancelled() and future.exception() is None:
                    with suppress(StorageError):
                        undo(future.result())
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def runner_for(table: OpenTable, runner: Runner | None, threads: int | None = None) -> Runner:
    """Return the given runner, or one that runs tasks in this process."""
    return runner or LocalRunner(table.store.is_local, threads)


def check_once(table: OpenTable, fragment_ids: Iterable[int]) -> None:
    """Refuse two results of one fragment: a task that ran twice would double its rows.

    Parameters
    ----------
    table : OpenTable
    fragment_ids : iterable of int
        The fragments of the results.

    Raises
    ------
    InvalidInputError
    """
    twice = [number for number, times in Counter(fragment_ids).items() if times > 1]
    if twice:
        raise InvalidInputError(
            f"{table.store.display}: two results are about fragment {twice[0]}; give one result of "
            "each task, the first if it ran twice"
        )

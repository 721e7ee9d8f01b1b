"""Runners of the tasks of a mutation: in this process, or on a cluster.

Plan, tasks and commit of a mutation are the same with all runners.
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
        Tag in the names of the files that tasks write, so that a sweep finds them; can be empty.
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
            Runs one task. A cluster needs a function of a module, or a method of a class of one.
        undo : callable
            Deletes the files of a task by its result. Called if another task fails.

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
    """Raise an error for two results of one fragment: the rows of a repeated task would double.

    Parameters
    ----------
    table : OpenTable
    fragment_ids : iterable of int
        The fragments of the results.

    Raises
    ------
    InvalidInputError
    """
    repeated = [number for number, count in Counter(fragment_ids).items() if count > 1]
    if repeated:
        raise InvalidInputError(
            f"{table.store.display}: two results are of fragment {repeated[0]}; give one result of "
            "each task, the first if it ran twice"
        )

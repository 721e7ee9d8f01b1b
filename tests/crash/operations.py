"""Every change of a table, each as a function of its path; and a process that is killed in the middle of one.

A step is a call that the process makes to the file system below the table: opening, making, linking, renaming, removing, listing,
syncing. Nothing here imports pylance: the processes are forks, which its threads do not survive.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import lance_spark
import lance_spark.table.write_job

#: What the process exits with if it is not killed.
DONE = 7
_EVENTS = {
    "open",
    "os.link",
    "os.listdir",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.scandir",
    "os.truncate",
    "shutil.rmtree",
}


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "word": [f"w{i}" for i in ids]})


def append(path: str) -> None:
    lance_spark.write_dataset(rows(100, 5), path, mode="append")


def append_files(path: str) -> None:
    lance_spark.write_dataset(rows(200, 6), path, mode="append", max_rows_per_file=2)


def overwrite(path: str) -> None:
    lance_spark.write_dataset(rows(300, 4), path, mode="overwrite")


#: By name. None of them leaves the rows as they were.
OPERATIONS: dict[str, Callable[[str], None]] = {
    "append": append,
    "append_files": append_files,
    "overwrite": overwrite,
}


def run(path: str, operation: str, last_step: int) -> None:
    """Run an operation and kill this process before step `last_step`, counted from 0; exit with `DONE` otherwise."""
    steps = 0

    def step() -> None:
        nonlocal steps
        if steps == last_step:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS and any(
            isinstance(one, str) and one.startswith(path) for one in arguments
        ):
            step()

    sync = os.fsync

    def fsync(descriptor: int) -> None:
        step()
        sync(descriptor)

    sys.addaudithook(hook)
    os.fsync = fsync
    OPERATIONS[operation](path)
    os._exit(DONE)

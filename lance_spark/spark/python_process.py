"""The Python processes that Spark starts: those that plan data sources, and those that run tasks.

Spark forks such a process for each step of planning and for each task that runs at a time, and uses
it for many of them. Two things make each step or task wait, and are avoided here:

- Spark collects all garbage after each. The modules of pyspark, Arrow and this package have some
  hundred thousand objects, so that the collection takes longer than a small query.
- Spark sends a task in two parts over TCP. It holds the second part back until the first is
  acknowledged (Nagle's algorithm), and the kernel of the receiver waits 40 milliseconds for data to
  send the acknowledgement with.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from lance_spark.spark.jvm.shims.pyspark_names import (
    HIDE_TRACEBACK,
    PLANNING_MODULES,
    STREAM_PROGRAM,
    TASKS_MODULE,
)

#: First argument of a process that runs all steps of planning: a module of this package.
_SHARED = "pyspark_lance.worker"
#: File descriptors among which the connection to the JVM is searched. It is one of the first.
_DESCRIPTORS = range(3, 32)
#: The number of modules that were loaded when objects were left out last.
_frozen = {"modules": 0}
#: Whether the process knows the folder for ranges of files.
_is_shared = {"known": False}


class TaskObject:
    """An object that tasks of Spark get. A task unpickles it before it reads its rows."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        begin_task()
        self.__dict__.update(state)


def begin_task() -> None:
    """Prepare a process that runs tasks; other processes are left as they are.

    The part of the task that Spark has sent is acknowledged, modules are left out of the collection
    of garbage, and the workers of the executor share ranges of files.
    """
    if _runs(TASKS_MODULE):
        _acknowledge()
        leave_modules_uncollected()
        _share_ranges()


def leave_modules_uncollected() -> None:
    """Leave the objects of loaded modules out of the collection of garbage, in such a process.

    It is called when a step or a task begins, while no table is open. The collector keeps what it
    does not look at, so it is called again only after modules were loaded, and other processes,
    such as a driver, are left as they are.
    """
    if len(sys.modules) != _frozen["modules"] and _runs(PLANNING_MODULES, _SHARED, TASKS_MODULE):
        _frozen["modules"] = len(sys.modules)
        gc.freeze()


@contextmanager
def plain_messages() -> Iterator[None]:
    """Let Spark show the message of a `LanceError` without a traceback before it.

    Spark's message about a stream or a task that failed holds the whole text. The process ends
    after an error, so that no other step or task sees the variable.
    """
    # The lookup of the format imports this module, and nothing that it does not need.
    from lance_spark.errors import LanceError

    try:
        yield
    except LanceError:
        if _runs(PLANNING_MODULES, _SHARED, TASKS_MODULE) or sys.argv[0].endswith(STREAM_PROGRAM):
            os.environ[HIDE_TRACEBACK] = "1"
        raise


def _runs(*modules: str) -> bool:
    return len(sys.argv) > 1 and sys.argv[1].startswith(modules)


def _share_ranges() -> None:
    """Keep ranges of files in the executor's folder on the local disk, if Spark may write there.

    Spark removes the folder with the executor. It names the folder in the environment of Python
    workers, and sends the settings of the application with each task of a query. Without these, it
    is not known whether the application encrypts what it writes to local disks, and nothing is kept
    there.
    """
    if _is_shared["known"]:
        return
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or context.getLocalProperty("spark.app.id") is None:
        return
    from lance_spark.storage.disk_ranges import use_by_default

    _is_shared["known"] = True
    encrypts = context.getLocalProperty("spark.io.encryption.enabled") or "false"
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    if encrypts.strip().lower() == "false" and os.path.isabs(folder):
        use_by_default(folder)


def _acknowledge() -> None:
    """Acknowledge what the connections of this process have received. Only Linux lets it."""
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    for descriptor in _DESCRIPTORS:
        # A file, a closed descriptor, or a socket of another kind.
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            connection = socket.socket(fileno=descriptor)
            try:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            finally:
                # The descriptor stays open.
                connection.detach()

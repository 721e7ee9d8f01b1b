"""Every change of a table, each as a function of its path; and a process that is killed in the
middle of a change.

A step is a call that the process makes to the file system below the table: opening, making,
linking, renaming, removing, listing, syncing. Nothing here imports pylance: the processes are
forks, which its threads do not survive.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa

import lance_spark

_NOT_IMPORTED = ("lance_spark.spark", "lance_spark.loaders.", "lance_spark.__main__")
# Otherwise each process would import modules again that the package imports late. Loaders need
# packages that are not installed for tests.
for _module in pkgutil.walk_packages(lance_spark.__path__, "lance_spark."):
    if not _module.name.startswith(_NOT_IMPORTED):
        importlib.import_module(_module.name)

#: The exit status of a process that was not killed.
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


# pyarrow imports pandas when it first makes an array.
rows(0, 1)


def append(path: str) -> None:
    lance_spark.write_dataset(rows(100, 5), path, mode="append")


def append_files(path: str) -> None:
    lance_spark.write_dataset(rows(200, 6), path, mode="append", max_rows_per_file=2)


def overwrite(path: str) -> None:
    lance_spark.write_dataset(rows(300, 4), path, mode="overwrite")


def delete(path: str) -> None:
    lance_spark.open_dataset(path).delete([("id", "in", [0, 4])])


def delete_fragment(path: str) -> None:
    lance_spark.open_dataset(path).delete([("id", "<", 3)])


def update_rows(path: str) -> None:
    lance_spark.open_dataset(path).update({"word": "new"}, [("id", "in", [2, 7])])


def update_columns(path: str) -> None:
    lance_spark.open_dataset(path).update({"word": "new"}, [("id", ">", 4)], mode="columns")


def compact(path: str) -> None:
    lance_spark.open_dataset(path).compact_files()


def add_columns(path: str) -> None:
    lance_spark.open_dataset(path).add_columns({"more": 7})


def drop_columns(path: str) -> None:
    lance_spark.open_dataset(path).drop_columns(["word"])


def cast_column(path: str) -> None:
    lance_spark.open_dataset(path).alter_columns({"path": "id", "data_type": pa.int32()})


def update_config(path: str) -> None:
    lance_spark.open_dataset(path).update_config({"owner": "somebody"})


def restore(path: str) -> None:
    lance_spark.open_dataset(path, 1).restore()


def create_tag(path: str) -> None:
    lance_spark.open_dataset(path).tags.create("release", 2)


def update_tag(path: str) -> None:
    lance_spark.open_dataset(path).tags.update("first", 2)


def delete_tag(path: str) -> None:
    lance_spark.open_dataset(path).tags.delete("first")


def create_branch(path: str) -> None:
    lance_spark.open_dataset(path).create_branch("work")


def delete_branch(path: str) -> None:
    lance_spark.open_dataset(path).branches.delete("old")


def write_to_branch(path: str) -> None:
    # The table is a copy, whose branch reads the original.
    allowed = {"allow_foreign_branch_bases": "true"}
    more = rows(400, 3)
    lance_spark.write_dataset(more, path, mode="append", branch="old", storage_options=allowed)


def cleanup(path: str) -> None:
    lance_spark.open_dataset(path).cleanup_old_versions(
        timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )


#: Operations by name. Each operation changes the table.
OPERATIONS: dict[str, Callable[[str], None]] = {
    operation.__name__: operation
    for operation in (
        append,
        append_files,
        overwrite,
        delete,
        delete_fragment,
        update_rows,
        update_columns,
        compact,
        add_columns,
        drop_columns,
        cast_column,
        update_config,
        restore,
        create_tag,
        update_tag,
        delete_tag,
        create_branch,
        delete_branch,
        write_to_branch,
        cleanup,
    )
}
#: Operations of many steps: their partial result is sound, and a second run completes them.
GRADUAL = frozenset({"cleanup"})


def run(path: str, operation: str, last_step: int) -> None:
    """Run an operation and kill this process before step `last_step`, counted from 0; exit with
    `DONE` otherwise.
    """
    steps = 0

    def step() -> None:
        nonlocal steps
        if steps == last_step:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS and any(
            isinstance(argument, str) and argument.startswith(path) for argument in arguments
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

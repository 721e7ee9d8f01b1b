"""Changes that are planned on one version and committed on another: tried again, if they do not fit; cleaned up after.

Deletion files and data files are written before the commit. Nothing refers to those of a change that was not committed; and a
deletion file that was merged with that of somebody else is not the one that is committed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from lance_spark.arguments import check_least
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    StorageError,
    UncertainCommitError,
    UnsupportedFeatureError,
    naming,
)
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES, commit
from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments import file_versions
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.fragments.writer import delete_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.operations.data.delete import Delete
from lance_spark.table.operations.data.row_deletions import deletion_paths
from lance_spark.table.operations.data.update import Update
from lance_spark.table.paths import TablePaths

#: How often a change is planned anew by default, as in pylance.
DEFAULT_CONFLICT_RETRIES = 10
_FIRST_WAIT = 0.01
_LONGEST_WAIT = 3.0
#: Tasks of a remote store that run at the same time.
_AT_ONCE = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


def at_version(table: OpenTable, manifest: Manifest) -> OpenTable:
    """Return a table at another of its versions."""
    store = table.store
    paths = TablePaths(store, manifest.base_paths, store.options)
    return OpenTable(paths, manifest, table.target_bases)


def retry_on_conflict(
    table: OpenTable,
    change: Callable[[OpenTable], Manifest],
    conflict_retries: int,
    *,
    whatever: bool = False,
    again: Callable[[OpenTable], None] | None = None,
) -> OpenTable:
    """Make a change; plan it again on the newest version as often as others commit what it does not fit.

    Parameters
    ----------
    table : OpenTable
        At the version that it is planned on first.
    change : callable
        Plans and commits; returns the new version.
    conflict_retries : int
        How often to plan it again.
    whatever : bool
        Whether it is planned from nothing but the version it gets, so that it holds whatever others have made of the table: then it is
        planned again on what it contradicts too, such as an overwrite.
    again : callable, optional
        Gets each newer version before the change is planned on it; what it raises ends the change, whatever was said.

    Returns
    -------
    OpenTable
        At the new version.

    Raises
    ------
    CommitConflictError
        It contradicts what others committed, or did not fit `conflict_retries` + 1 times.
    InvalidInputError
        `conflict_retries` is negative.
    LanceError
        What `change` and `again` raise.
    """
    check_least("conflict_retries", conflict_retries, 0)
    wait = _FIRST_WAIT
    for left in range(conflict_retries, -1, -1):
        started = time.monotonic()
        try:
            with naming(table.store.display):
                return at_version(table, change(table))
        except CommitConflictError as error:
            if not left or not (error.retryable or (whatever and _is_overtaken(table))):
                raise
        # The time that it takes is the measure of how many writers can take turns in a while.
        wait = min(max(2 * wait, time.monotonic() - started), _LONGEST_WAIT)
        time.sleep(random.uniform(0, wait))  # noqa: S311 - no secret
        table = at_version(table, read_latest(table.store))
        if again is not None:
            again(table)
    raise AssertionError("the last attempt returns or raises")


def _is_overtaken(table: OpenTable) -> bool:
    return read_latest(table.store).version > table.version


def commit_rows(
    table: OpenTable,
    operation: Delete | Update,
    *,
    properties: Mapping[str, str] | None = None,
    max_retries: int = DEFAULT_MAX_RETRIES,
    once: WriteToken | None = None,
    keep_new_fragments: bool = False,
) -> Manifest:
    """Commit a change of rows, and delete the files that it turned out not to need.

    Parameters
    ----------
    table : OpenTable
        At the version that it was planned on.
    operation : Delete or Update
        Its deletion files, and new data files, are written.
    properties : mapping of str to str, optional
        Of the transaction.
    max_retries : int
        How often to start again after other writers were faster.
    once : Once, optional
        The change must not be made if it has been before.
    keep_new_fragments : bool
        Whether the files of new fragments stay if it is not committed: it may be planned anew with them.

    Raises
    ------
    LanceError
        What `commit` raises. Nothing else is left behind, unless it is not certain that it was not committed.
    """
    transaction = Transaction.new(table.version, operation, properties)
    try:
        manifest = commit(
            table.store, transaction, table.manifest, max_retries=max_retries, once=once
        )
    except UncertainCommitError:
        raise
    except LanceError:
        if keep_new_fragments and isinstance(operation, Update):
            operation = replace(operation, new_fragments=())
        discard(table, operation)
        raise
    touched = operation.touched_fragments
    used = set(deletion_paths(one for one in manifest.fragments if one.id in touched))
    with suppress(StorageError):
        table.store.delete(_new_deletion_files(table, operation) - used)
    return manifest


def run_all(
    tasks: Sequence[_T],
    run: Callable[[_T], _R],
    undo: Callable[[_R], object],
    *,
    local: bool,
    threads: int | None = None,
) -> list[_R]:
    """Run tasks here, those of remote stores side by side.

    Parameters
    ----------
    tasks : sequence
    run : callable
        Runs one of them.
    undo : callable
        Deletes what a task wrote, by its result, if another one fails.
    local : bool
        Whether the store is.
    threads : int, optional
        How many run at the same time.

    Returns
    -------
    list
        Results in the order of the tasks.
    """
    pool = ThreadPoolExecutor(threads or (1 if local else _AT_ONCE))
    futures = [pool.submit(run, task) for task in tasks]
    try:
        return [future.result() for future in futures]
    except BaseException:
        pool.shutdown(cancel_futures=True)
        done = [one for one in futures if not one.cancelled() and one.exception() is None]
        for future in done:
            with suppress(StorageError):
                undo(future.result())
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def check_once(table: OpenTable, fragment_ids: Iterable[int]) -> None:
    """Refuse results of which two are about one fragment: of a task that ran twice, its rows would be there twice.

    Parameters
    ----------
    table : OpenTable
    fragment_ids : iterable of int
        The fragments that each result is about.

    Raises
    ------
    InvalidInputError
    """
    twice = [number for number, times in Counter(fragment_ids).items() if times > 1]
    if twice:
        raise InvalidInputError(
            f"{table.store.display}: two results are about fragment {twice[0]}; give one result of each task, the first if it ran "
            "twice"
        )


def discard(table: OpenTable, operation: Delete | Update) -> None:
    """Delete the files of an operation that is not committed; what cannot be deleted is left to cleanup."""
    with suppress(StorageError):
        table.store.delete(_new_deletion_files(table, operation))
    if isinstance(operation, Update):
        known = {file.path for one in table.manifest.fragments for file in one.files}
        files = [file for one in operation.fragments for file in one.files]
        new = Fragment(0, [file for file in files if file.path not in known], 0)
        with suppress(StorageError):
            delete_fragments(table.paths, [*operation.new_fragments, new])


def _new_deletion_files(table: OpenTable, operation: Delete | Update) -> set[str]:
    """Return the paths of the deletion files that were written for an operation: fragments that get columns keep older ones."""
    touched = operation.touched_fragments
    known = deletion_paths(one for one in table.manifest.fragments if one.id in touched)
    return set(operation.deletion_files) - set(known)


def check_rows_writable(table: OpenTable, *, data_files: bool) -> None:
    """Refuse to plan what the commit would refuse.

    Parameters
    ----------
    table : OpenTable
    data_files : bool
        Whether data files are to be written, and not just deletion files.

    Raises
    ------
    UnsupportedFeatureError
    CorruptTableError
        Two fragments have one id.
    """
    manifest, name = table.manifest, table.store.display
    manifest.check_writable(name)
    check_unique(manifest.message.fragments, manifest.name)
    version = manifest.data_storage_version
    if data_files and version not in file_versions.WRITABLE:
        raise UnsupportedFeatureError(
            f"{name}: data files of version {file_versions.text(version)} are not written, only "
            f"{file_versions.writable()}; overwrite the table with data storage version 2.2, or change its rows with pylance"
        )

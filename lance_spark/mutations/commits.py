"""Commits of mutations: checks before a plan, commits, plans after a conflict, and files after a
failure.

Deletion files and data files are written before the commit. If the commit fails, no version
refers to them, and they are deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from lance_spark import progress
from lance_spark.arguments import check_least
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    StorageError,
    UncertainCommitError,
    UnsupportedFeatureError,
    error_context,
)
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import Backoff, CommitOptions, replan_on_conflict
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.constraints import unaffected
from lance_spark.table.fragments import files as file_versions
from lance_spark.table.fragments.fragment import Fragment, check_unique
from lance_spark.table.fragments.writer import delete_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.columns import DataOverlay
from lance_spark.table.operations.update import Delete, Update, deletion_paths
from lance_spark.table.paths import TablePaths

_DEFAULT = CommitOptions()
_Result = TypeVar("_Result")


def at_version(table: OpenTable, manifest: Manifest) -> OpenTable:
    """Return a table at another of its versions."""
    store = table.store
    paths = TablePaths(store, manifest.base_paths, store.options)
    if manifest.base_paths == table.manifest.base_paths:
        # Most fragments keep their deletion files, whose names are never used again.
        paths.deletions = table.paths.deletions
    return OpenTable(paths, manifest, table.target_bases)


def newest(table: OpenTable) -> OpenTable:
    """Return a table at the newest version of its branch, which is looked up."""
    return at_version(table, read_latest(table.store))


def retry_on_conflict(
    table: OpenTable,
    change: Callable[[OpenTable], _Result],
    options: CommitOptions,
    *,
    replan_always: bool = False,
    before_replan: Callable[[OpenTable], None] | None = None,
) -> _Result:
    """Make a change; plan it again on the newest version after each conflict.

    - `change`: Plans the change on a version and commits it.
    - `options`: Its `conflict_retries` and `retry_timeout` say how often the change is planned
      again.
    - `replan_always`: If true, the change depends only on the version passed in, so it is planned
      again even after an incompatible commit such as an overwrite.
    - `before_replan`: Receives each newer version before the change is planned on it. Its errors
      end the change.

    Raises CommitConflictError: the change is incompatible with another commit, or had a conflict
    `conflict_retries` + 1 times, or the time for retries is over. Raises InvalidInputError:
    `conflict_retries` is negative. Raises LanceError: errors of `change` and `before_replan`.
    """
    check_least("conflict_retries", options.conflict_retries, 0)
    backoff = Backoff()
    timeout = options.retry_timeout
    started = time.monotonic()

    def attempt(current: OpenTable) -> _Result:
        with error_context(current.store.display):
            return change(current)

    def replan(current: OpenTable, error: CommitConflictError) -> OpenTable | None:
        if not (error.retryable or (replan_always and _is_overtaken(current))):
            return None
        if timeout is not None and time.monotonic() - started > timeout.total_seconds():
            raise CommitConflictError(
                f"{error}; the time for retries, {timeout}, is over", retryable=True
            ) from error
        backoff.wait()
        newest = at_version(current, read_latest(current.store))
        if before_replan is not None:
            before_replan(newest)
        return newest

    return replan_on_conflict(attempt, table, replan, options.conflict_retries)


def _is_overtaken(table: OpenTable) -> bool:
    return read_latest(table.store).version > table.version


def commit_operation(
    table: OpenTable, operation: Operation, options: CommitOptions = _DEFAULT
) -> Manifest:
    """Commit an operation that was planned on the version that a table is open at.

    Raises LanceError: errors of `commit`.
    """
    transaction = Transaction.new(table.version, operation, options.properties)
    return commit(
        table.store,
        transaction,
        table.manifest,
        max_retries=options.max_retries,
        write_token=options.write_token,
        checked_constraints=options.checked_constraints,
    )


def with_unaffected(
    table: OpenTable, options: CommitOptions, written: Collection[int]
) -> CommitOptions:
    """Return options for a commit that moves rows, and gives only some fields new values.

    - `written`: Ids of these fields. Conditions that name none of them need no check.
    """
    message = table.manifest.message
    kept = unaffected(message.config, message.fields, written, table.store.display)
    checked = {**kept, **options.checked_constraints}
    return replace(options, checked_constraints=checked) if kept else options


@contextmanager
def after_failure(clean_up: Callable[[], object]) -> Iterator[None]:
    """Call `clean_up` if a commit fails, unless the commit is uncertain."""
    try:
        yield
    except UncertainCommitError:
        raise
    except BaseException as error:
        # No callback is called while a commit is under way.
        if isinstance(error, LanceError) or progress.raised(error):
            clean_up()
        raise


def commit_rows(
    table: OpenTable,
    operation: Delete | Update | DataOverlay,
    options: CommitOptions = _DEFAULT,
    *,
    keep_new_fragments: bool = False,
) -> Manifest:
    """Commit a change of rows, and delete the files that the new version does not use.

    A deletion file is not used if the commit merged it with that of another client.

    - `operation`: Its deletion files and new data files are written.
    - `keep_new_fragments`: Whether the files of new fragments stay after a failure, for the next
      plan.

    Raises LanceError: errors of `commit`. The files are deleted, unless the commit is uncertain.
    """
    unneeded = operation
    if keep_new_fragments and isinstance(operation, Update):
        unneeded = replace(operation, new_fragments=())
    with after_failure(lambda: _discard(table, unneeded)):
        manifest = commit_operation(table, operation, options)
    touched = operation.touched_fragments
    used = set(
        deletion_paths(fragment for fragment in manifest.fragments if fragment.id in touched)
    )
    with suppress(StorageError):
        table.store.delete(_new_deletion_files(table, operation) - used)
    return manifest


def change_schema(
    table: OpenTable, plan: Callable[[OpenTable], Operation], options: CommitOptions = _DEFAULT
) -> OpenTable:
    """Commit an operation that needs no new files; plan it again after a conflict.

    - `plan`: Returns the operation for a version; writes no files.

    Raises LanceError: errors of `plan` and `commit`.
    """
    check_rows_writable(table, data_files=False)

    def change(current: OpenTable) -> Manifest:
        return commit_operation(current, plan(current), options)

    return at_version(table, retry_on_conflict(table, change, options))


def check_writable(table: OpenTable) -> None:
    """Raise UnsupportedFeatureError for a table that the commit would refuse."""
    table.manifest.check_writable(table.store.display)


def check_rows_writable(table: OpenTable, *, data_files: bool) -> None:
    """Raise an error for a change of rows that the commit would refuse.

    - `data_files`: Whether the change writes data files, and not only deletion files.

    Raises UnsupportedFeatureError. Raises CorruptTableError: two fragments have the same id.
    """
    manifest = table.manifest
    check_writable(table)
    check_unique(manifest.message.fragments, manifest.name)
    version = manifest.data_storage_version
    if data_files and version not in file_versions.WRITABLE:
        raise UnsupportedFeatureError(
            f"{table.store.display}: data files of version {file_versions.text(version)} are not "
            f"written, only {file_versions.writable()}; overwrite the table with data storage "
            "version 2.2, or change its rows with pylance"
        )


def check_names(columns: object, argument: str) -> list[str]:
    """Return a given list of names of columns.

    Raises InvalidInputError: the value is not a list of strings.
    """
    if not isinstance(columns, list | tuple) or not all(isinstance(name, str) for name in columns):
        raise InvalidInputError(f"{argument} must be a list of names, not {columns!r}")
    return list(columns)


def _discard(table: OpenTable, operation: Delete | Update | DataOverlay) -> None:
    """Delete the files of an operation that is not committed; cleanup deletes what stays."""
    with suppress(StorageError):
        table.store.delete(_new_deletion_files(table, operation))
    if isinstance(operation, DataOverlay):
        with suppress(StorageError):
            delete_fragments(table.paths, [Fragment(0, operation.files, 0)])
    if isinstance(operation, Update):
        existing = {file.path for fragment in table.manifest.fragments for file in fragment.files}
        files = [file for fragment in operation.fragments for file in fragment.files]
        new = Fragment(0, [file for file in files if file.path not in existing], 0)
        with suppress(StorageError):
            delete_fragments(table.paths, [*operation.new_fragments, new])


def _new_deletion_files(table: OpenTable, operation: Delete | Update | DataOverlay) -> set[str]:
    """Return the deletion files of an operation that the version does not have yet."""
    touched = operation.touched_fragments
    existing = deletion_paths(
        fragment for fragment in table.manifest.fragments if fragment.id in touched
    )
    return set(operation.deletion_files) - set(existing)

"""Mutations that are planned again on a newer version after a conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lance_spark.arguments import check_least
from lance_spark.errors import CommitConflictError, naming
from lance_spark.table.commit.options import Backoff, replan_on_conflict
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.paths import TablePaths

_Result = TypeVar("_Result")


def at_version(table: OpenTable, manifest: Manifest) -> OpenTable:
    """Return a table at another of its versions."""
    store = table.store
    paths = TablePaths(store, manifest.base_paths, store.options)
    return OpenTable(paths, manifest, table.target_bases)


def retry_on_conflict(
    table: OpenTable,
    change: Callable[[OpenTable], _Result],
    conflict_retries: int,
    *,
    replan_always: bool = False,
    before_replan: Callable[[OpenTable], None] | None = None,
) -> _Result:
    """Make a change; plan it again on the newest version after each conflict.

    Parameters
    ----------
    table : OpenTable
        The version that the change is planned on first.
    change : callable
        Plans the change on a version and commits it.
    conflict_retries : int
        Number of times the change is planned again.
    replan_always : bool
        If true, the change depends only on the version passed in, so it is planned again even
        after an incompatible commit such as an overwrite.
    before_replan : callable, optional
        Receives each newer version before the change is planned on it. Its errors end the change.

    Returns
    -------
    object
        What `change` returned.

    Raises
    ------
    CommitConflictError
        The change is incompatible with another commit, or had a conflict
        `conflict_retries` + 1 times.
    InvalidInputError
        `conflict_retries` is negative.
    LanceError
        Errors of `change` and `before_replan`.
    """
    check_least("conflict_retries", conflict_retries, 0)
    backoff = Backoff()

    def attempt(current: OpenTable) -> _Result:
        with naming(current.store.display):
            return change(current)

    def replan(current: OpenTable, error: CommitConflictError) -> OpenTable | None:
        if not (error.retryable or (replan_always and _is_overtaken(current))):
            return None
        backoff.wait()
        newest = at_version(current, read_latest(current.store))
        if before_replan is not None:
            before_replan(newest)
        return newest

    return replan_on_conflict(attempt, table, replan, conflict_retries)


def _is_overtaken(table: OpenTable) -> bool:
    return read_latest(table.store).version > table.version

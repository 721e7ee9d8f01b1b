"""Committing an operation on the version that a table is open at, and changes that are planned anew on newer ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.retry import retry_on_conflict
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES, commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment import check_unique
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.base import Operation


def commit_operation(
    table: OpenTable,
    operation: Operation,
    *,
    properties: Mapping[str, str] | None = None,
    max_retries: int = DEFAULT_MAX_RETRIES,
) -> Manifest:
    """Commit an operation that was planned on the version that a table is open at.

    Parameters
    ----------
    table : OpenTable
    operation : Operation
    properties : mapping of str to str, optional
        Of the transaction; see `with_message`.
    max_retries : int
        How often to start again after other writers were faster.

    Raises
    ------
    LanceError
        What `commit` raises.
    """
    transaction = Transaction.new(table.version, operation, properties)
    return commit(table.store, transaction, table.manifest, max_retries=max_retries)


def change_schema(
    table: OpenTable,
    plan: Callable[[OpenTable], Operation],
    *,
    properties: Mapping[str, str] | None = None,
    conflict_retries: int = 10,
    max_retries: int = DEFAULT_MAX_RETRIES,
) -> OpenTable:
    """Commit what is planned from a table alone; plan it anew if others commit what it does not fit.

    Parameters
    ----------
    table : OpenTable
        At the version that it is planned on first.
    plan : callable
        Writes no files.
    properties : mapping of str to str, optional
    conflict_retries, max_retries : int

    Returns
    -------
    OpenTable
        At the new version.

    Raises
    ------
    LanceError
        What `plan` and `commit` raise.
    """
    check_writable(table)
    check_unique(table.manifest.message.fragments, table.manifest.name)

    def change(current: OpenTable) -> Manifest:
        return commit_operation(
            current, plan(current), properties=properties, max_retries=max_retries
        )

    return retry_on_conflict(table, change, conflict_retries)


def check_writable(table: OpenTable) -> None:
    """Refuse a table that the commit would refuse.

    Raises
    ------
    UnsupportedFeatureError
    """
    table.manifest.check_writable(table.store.display)


def names_of(columns: object, what: str) -> list[str]:
    """Return names of columns that a caller gives.

    Raises
    ------
    InvalidInputError
        They are no list of strings.
    """
    if isinstance(columns, str) or not isinstance(columns, list | tuple):
        raise InvalidInputError(f"{what} must be a list of names, not {columns!r}")
    if not all(isinstance(one, str) for one in columns):
        raise InvalidInputError(f"{what} must be a list of names, not {columns!r}")
    return list(columns)

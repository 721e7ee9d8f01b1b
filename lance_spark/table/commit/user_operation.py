"""Commits of operations that a user built without the mutation methods of `Dataset`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace

from lance_spark.errors import InvalidInputError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.options import DEFAULT_MAX_RETRIES
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import open_table, read_latest
from lance_spark.table.operations.append import Append, Overwrite
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.metadata import Clone
from lance_spark.table.paths import DATA
from lance_spark.table.refs.clones import shallow_clone

#: Operations that do not depend on the version that they were planned on.
_INDEPENDENT = ("overwrite", "restore")


def commit_user_operation(
    store: ObjectStore,
    change: Operation | Transaction,
    planned_on: int | None = None,
    *,
    detached: bool = False,
    max_retries: int = DEFAULT_MAX_RETRIES,
    properties: Mapping[str, str] | None = None,
    enable_stable_row_ids: bool = False,
    timeout: datetime.timedelta | None = None,
) -> int:
    """Commit an operation and return the number of the new version; see `Dataset.commit`.

    Raises InvalidInputError: `planned_on` is missing, or 0 for another operation than an overwrite,
    or `change` is not an operation or transaction, or its fragments were written to another table
    or branch. Raises LanceError: the errors of `commit`.
    """
    transaction = _transaction(store, change, planned_on)
    if isinstance(transaction.operation, Clone) and transaction.operation.is_table:
        return _clone(store, transaction.operation).version
    if properties:
        transaction = replace(transaction, properties={**transaction.properties, **properties})
    base: Manifest | None = None
    if not transaction.read_version and transaction.operation.name not in _INDEPENDENT:
        raise InvalidInputError(
            f"{store.display}: the operation {transaction.operation.name} was not planned on a "
            f"version (read_version {transaction.read_version}), and only an overwrite creates a "
            "table; give the version that it was planned on"
        )
    if transaction.read_version:
        base = read_version(store, transaction.read_version)
    _check_place(store, transaction.operation)
    return commit(
        store,
        transaction,
        base,
        max_retries=max_retries,
        enable_stable_row_ids=enable_stable_row_ids,
        detached=detached,
        timeout=timeout,
    ).version


def _check_place(store: ObjectStore, operation: Operation) -> None:
    """Check that the first file of new fragments is below the root.

    Fragments that were written to another branch would make the table unreadable.
    """
    if not isinstance(operation, Append | Overwrite):
        return
    files = (file for fragment in operation.fragments for file in fragment.files)
    first = next((file.path for file in files if file.base_id is None), None)
    if first is not None and not store.exists(f"{DATA}/{first}"):
        raise InvalidInputError(
            f"{store.display}: the data file {first} of the new fragments was not found there; "
            "write the fragments to the table and branch to which they are committed"
        )


def _clone(store: ObjectStore, operation: Clone) -> Manifest:
    """Create a table that shares the files of a version.

    Raises TableExistsError, VersionNotFoundError, UncertainCommitError, StorageError.
    """
    source = open_table(
        operation.ref_path,
        version=operation.ref_version,
        branch=operation.ref_name,
        storage_options=store.options,
    )
    return shallow_clone(source, store)


def _transaction(
    store: ObjectStore, change: Operation | Transaction, planned_on: int | None
) -> Transaction:
    if isinstance(change, Transaction):
        return change
    if not isinstance(change, Operation):
        raise InvalidInputError(
            f"operation must be an Operation or a Transaction, not {type(change).__name__}"
        )
    if planned_on is None:
        if change.name not in _INDEPENDENT:
            raise InvalidInputError(
                f"{store.display}: the operation {change.name} needs read_version, "
                "the version that it was planned on"
            )
        newest = versions.newest(store)
        planned_on = 0 if newest is None else read_latest(store, newest).version
    return Transaction.new(planned_on, change)

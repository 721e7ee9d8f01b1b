"""Commits operations that a user built without the methods of `Dataset`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lance_spark.errors import InvalidInputError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES, commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import read_latest
from lance_spark.table.operations.base import Operation

#: Operations that do not need a read version.
_FREE = ("overwrite", "restore")


def commit_user_operation(
    store: ObjectStore,
    change: Operation | Transaction,
    planned_on: int | None = None,
    *,
    detached: bool = False,
    max_retries: int = DEFAULT_MAX_RETRIES,
    properties: Mapping[str, str] | None = None,
    enable_stable_row_ids: bool = False,
) -> int:
    """Commit a change; see `TableHandle.commit`. Return the number of the version.

    Raises
    ------
    InvalidInputError
        The version that the change was planned on is missing.
    LanceError
        What `commit` raises.
    """
    transaction = _transaction(store, change, planned_on)
    if properties:
        transaction = replace(transaction, properties={**transaction.properties, **properties})
    base: Manifest | None = None
    if transaction.read_version:
        base = read_version(store, transaction.read_version)
    return commit(
        store,
        transaction,
        base,
        max_retries=max_retries,
        enable_stable_row_ids=enable_stable_row_ids,
        detached=detached,
    ).version


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
        if change.kind not in _FREE:
            raise InvalidInputError(
                f"{store.display}: a change of the kind {change.kind} needs read_version, the "
                "version that it was planned on"
            )
        result = versions.newest(store)
        planned_on = 0 if result is None else read_latest(store, result).version
    return Transaction.new(planned_on, change)

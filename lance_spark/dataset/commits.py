"""Commits of operations that a caller planned."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError, error_context
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.commit.user_operation import commit_user_operation
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.operations.append import Append
from lance_spark.table.operations.base import Operation


def commit_operation(
    uri: str,
    storage_options: Mapping[str, Any],
    operation: Operation | Transaction,
    read_version: int | None,
    commit: CommitOptions,
    *,
    detached: bool,
    enable_stable_row_ids: bool,
    timeout: datetime.timedelta | None,
) -> OpenTable:
    """Commit an operation to a table; see `Dataset.commit`.

    Returns the version that was committed.
    """
    store = ObjectStore.from_uri(uri, storage_options)
    with error_context(store.display):
        version = commit_user_operation(
            store,
            operation,
            read_version,
            detached=detached,
            max_retries=commit.max_retries,
            properties=commit.properties,
            enable_stable_row_ids=enable_stable_row_ids,
            timeout=timeout,
        )
    return open_table(store.uri, version=version, storage_options=storage_options)


def merged_appends(transactions: Sequence[Transaction]) -> Transaction:
    """Return the transaction that appends the rows of several; see `Dataset.commit_batch`.

    Raises InvalidInputError: there is no transaction. Raises UnsupportedFeatureError: a transaction
    is not an append.
    """
    if not transactions:
        raise InvalidInputError("transactions must not be empty")
    fragments: list[Fragment] = []
    properties: dict[str, str] = {}
    for transaction in transactions:
        operation = transaction.operation
        if not isinstance(operation, Append):
            raise UnsupportedFeatureError(
                f"commit_batch takes only transactions that append, not {operation.name}; "
                "commit the others one by one"
            )
        fragments += operation.fragments
        properties.update(transaction.properties)
    oldest = min(transaction.read_version for transaction in transactions)
    return Transaction.new(oldest, Append(tuple(fragments)), properties)

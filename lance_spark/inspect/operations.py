"""Names of operations as users of SQL know them, and what is known of their parameters.

A transaction has the name of what it does to files: a statement ``MERGE`` and a statement
``UPDATE`` are both an ``update``. Changes of this package record the statement among the properties
of the transaction (`CommitOptions.with_operation`). For other changes, and those of other clients,
the name follows from the transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from lance_spark.table.commit.options import OPERATION
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.operations.append import Overwrite
from lance_spark.table.operations.indexes import CreateIndex
from lance_spark.table.operations.metadata import Clone, MapUpdate, Restore, UpdateConfig
from lance_spark.table.operations.update import Delete

#: Names of transactions whose parameters are not known, or have no name among users.
_NAMES = {
    "append": "WRITE",
    "overwrite": "WRITE",
    "delete": "DELETE",
    "update": "UPDATE",
    "data_replacement": "UPDATE",
    "data_overlay": "UPDATE",
    "merge": "CHANGE COLUMNS",
    "project": "CHANGE COLUMNS",
    "rewrite": "OPTIMIZE",
    "reserve_fragments": "RESERVE FRAGMENTS",
    "restore": "RESTORE",
    "clone": "CLONE",
    "update_config": "SET TBLPROPERTIES",
    "update_bases": "ADD BASES",
    "update_mem_wal_state": "UPDATE MEM WAL",
}


def user_operation(transaction: Transaction | None) -> tuple[str, dict[str, str]]:
    """Return the name of the operation of a transaction, and its parameters, for users.

    An unknown transaction has an empty name. A parameter ``predicate`` is a JSON list with the text
    of the condition, empty without one.
    """
    if transaction is None:
        return "", {}
    name, parameters = _of_transaction(transaction)
    recorded = transaction.properties.get(OPERATION)
    if recorded is None:
        return name, parameters
    prefix = f"{OPERATION}."
    return recorded, parameters | {
        key.removeprefix(prefix): value
        for key, value in transaction.properties.items()
        if key.startswith(prefix)
    }


def _of_transaction(transaction: Transaction) -> tuple[str, dict[str, str]]:
    operation = transaction.operation
    name = _NAMES.get(operation.name, operation.name)
    if operation.name == "append":
        return name, {"mode": "Append"}
    if isinstance(operation, Overwrite):
        if transaction.read_version:
            return name, {"mode": "Overwrite"}
        return (name, {"mode": "Create"}) if operation.fragments else ("CREATE TABLE", {})
    if isinstance(operation, Delete):
        predicate = [operation.predicate] if operation.predicate else []
        return name, {"predicate": json.dumps(predicate, ensure_ascii=False)}
    if isinstance(operation, Restore):
        return name, {"version": str(operation.version)}
    if isinstance(operation, Clone):
        return name, {
            "source": operation.ref_path,
            "sourceVersion": str(operation.ref_version),
            "isShallow": str(operation.is_shallow).lower(),
        }
    if isinstance(operation, CreateIndex):
        created = {index.name for index in operation.new_indices}
        names = sorted(created or {index.name for index in operation.removed_indices})
        return "CREATE INDEX" if created else "DROP INDEX", {"indexes": json.dumps(names)}
    if isinstance(operation, UpdateConfig):
        return _of_config(operation)
    return name, {}


def _of_config(operation: UpdateConfig) -> tuple[str, dict[str, str]]:
    entries = {**_entries(operation.config), **_entries(operation.table_metadata)}
    if not entries:
        return "CHANGE COLUMNS", {}
    given = {key: value for key, value in entries.items() if value is not None}
    name = "SET TBLPROPERTIES" if given else "UNSET TBLPROPERTIES"
    return name, {"properties": json.dumps(given or sorted(entries), ensure_ascii=False)}


def _entries(update: MapUpdate | None) -> Mapping[str, str | None]:
    return {} if update is None else update.entries

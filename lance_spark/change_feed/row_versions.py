"""Whether the last updated versions of rows say which rows a restore changed.

A row that two versions have with the same last updated version has the same values in both, if all
changes between them recorded the rows that they updated. Changes of other clients may not have.

| change | records the rows that it updated |
| --- | --- |
| update that moves rows, or that lists the rows it updated in place | yes |
| update in place without this list, as of `fragment.update_columns` in pylance | no |
| overlay | yes; but an update of pylance that was planned before it takes that back |
| replaced files | not in all releases |
| appends, deletes, overwrites; changes without changed rows | yes |
"""

from __future__ import annotations

from lance_spark.errors import VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import read_operation
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.data.update import Update, UpdateMode
from lance_spark.table.operations.metadata.restore import Restore

#: The maximum number of versions that are looked at.
_MOST_VERSIONS = 1_000


def show_changes(
    store: ObjectStore, restored: int, newest: int, without_changes: frozenset[str]
) -> bool:
    """Return whether last updated versions show which rows differ between two versions.

    Reads all versions between them. After another restore between them, also those from the version
    that it restored.

    Parameters
    ----------
    restored, newest : int
        The earlier and the later version.
    without_changes : frozenset of str
        Operations that change no row.

    Returns
    -------
    bool
        False if that is unknown, because versions were removed or are too many.

    Raises
    ------
    CorruptTableError, StorageError
    """
    oldest, version = restored, newest
    while version > oldest:
        if newest - oldest > _MOST_VERSIONS:
            return False
        try:
            operation = read_operation(store, read_version(store, version))
        except VersionNotFoundError:
            return False
        if isinstance(operation, Restore):
            oldest = min(oldest, operation.version)
        elif operation is None or not _records_updates(operation, without_changes):
            return False
        version -= 1
    return True


def _records_updates(operation: Operation, without_changes: frozenset[str]) -> bool:
    if isinstance(operation, Update):
        in_place = operation.mode is UpdateMode.REWRITE_COLUMNS or operation.fields_modified
        return not in_place or all(
            fragment.id in operation.updated_offsets for fragment in operation.fragments
        )
    return operation.name in without_changes or operation.name in (
        "append",
        "delete",
        "merge",
        "overwrite",
    )

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

from lance_spark.change_feed.taken_back import OlderVersions
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.data.update import Update, UpdateMode
from lance_spark.table.operations.metadata.restore import Restore


def show_changes(taken_back: OlderVersions | None, without_changes: frozenset[str]) -> bool:
    """Return whether last updated versions show which rows a restore changed.

    - `taken_back`: The versions that the restore takes back (`versions_taken_back`); None if they
      are unknown.
    - `without_changes`: Operations that change no row.
    """
    return taken_back is not None and all(
        isinstance(operation, Restore)
        or (operation is not None and _records_updates(operation, without_changes))
        for _, operation in taken_back
    )


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

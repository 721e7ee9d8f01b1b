"""Rows that are named by where they are, while others change the table.

A change that is planned again looks for its rows in a newer version. An id that a row keeps finds
it there, and so does a value; a place finds nothing, or another row, once the row has moved. Nobody
would notice: the change would be made, of no row.

| committed meanwhile | rows leave their places |
| --- | --- |
| appends, deletes, indexes, configuration, new values where rows are | none |
| updates and merges that write rows to new fragments | rows of the fragments that lose rows |
| compactions | those of the fragments that they rewrite |
| new columns | those of fragments that it does not go on with |
| overwrites, restores, what this release does not know, versions that have been cleaned up | all |

Positions in the table's order change with deletes too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from lance_spark.errors import CommitConflictError
from lance_spark.scan.fragment.row_meta import FRAGMENT_ID, ROW_ADDRESS, ROW_ID, ROW_OFFSET
from lance_spark.table.manifest.history import manifests_with_transactions
from lance_spark.table.manifest.versions import list_since
from lance_spark.table.open import OpenTable

if TYPE_CHECKING:
    from lance_spark.table.operations.base import Operation

_STAY = frozenset(
    {
        "append",
        "create_index",
        "data_overlay",
        "data_replacement",
        "delete",
        "project",
        "reserve_fragments",
        "update_bases",
        "update_config",
        "update_mem_wal_state",
    }
)
_ROW_CHANGES = frozenset({"delete", "update"})


class RowAddressGuard:
    """Where rows were at a version, and what others have made of these places since.

    Parameters
    ----------
    table : OpenTable
        At the version that a change was planned on first.

    Attributes
    ----------
    left : dict of int to str
        Fragments of that version that rows have left for others, as far as `follow` has looked, and
        what says so.
    """

    def __init__(self, table: OpenTable) -> None:
        self._first = table
        self._fragments = frozenset(fragment.id for fragment in table.manifest.fragments)
        self._seen = table.version
        self._shifted: str | None = None
        self.left: dict[int, str] = {}

    def follow(self, table: OpenTable) -> None:
        """Look at the versions up to a newer one, each of them once.

        Raises
        ------
        CorruptTableError, StorageError
        """
        if table.version == self._seen:
            return
        after = [item for item in list_since(table.store, self._seen) if item.version > self._seen]
        located = [item for item in after if item.version <= table.version]
        read = 0
        for manifest, transaction in manifests_with_transactions(table.store, located):
            operation = None if transaction is None else transaction.operation
            kind = "" if operation is None else operation.name
            self._note(operation, f"version {manifest.version} ({kind or 'unknown operation'})")
            read += 1
        if read != table.version - self._seen:
            self._note(None, f"one of the versions up to {table.version}, which is cleaned up")
        self._seen = table.version

    def check(self, table: OpenTable, names: Iterable[str]) -> None:
        """Refuse to look for rows again by where they are, if they may be elsewhere now.

        Parameters
        ----------
        table : OpenTable
            At a newer version, that the change is to be planned on.
        names : iterable of str
            The columns by which it chooses rows; nothing is looked at if none of them is about
            places.

        Raises
        ------
        CommitConflictError
            It cannot be planned again.
        CorruptTableError, StorageError
        """
        places = _about_places(self._first, names)
        if not places:
            return
        self.follow(table)
        told = next(iter(self.left.values()), None)
        if told is None and ROW_OFFSET.name in places:
            told = self._shifted
        if told is None:
            return
        raise CommitConflictError(
            f"{table.store.display}: the change names rows of version {self._first.version} by "
            f"{', '.join(places)}, and rows were moved "
            f"or removed by others meanwhile, in {told}; nothing was changed, find the rows again "
            "in the newest version",
            retryable=False,
        )

    def _note(self, operation: Operation | None, told: str) -> None:
        for number in _left_by(operation, self._fragments):
            self.left.setdefault(number, told)
        if operation is None or operation.name not in _ROW_CHANGES or self._shifted is not None:
            return
        if operation.name == "delete" or operation.moves_rows:
            self._shifted = told if operation.touched_fragments & self._fragments else None


def _about_places(table: OpenTable, names: Iterable[str]) -> list[str]:
    """Return those names that say of rows where they are; not those of columns of the table
    itself.
    """
    places = {ROW_ADDRESS.name, ROW_OFFSET.name, FRAGMENT_ID.name}
    if not table.manifest.flags.stable_row_ids:
        places.add(ROW_ID.name)
    own = set(table.schema.names)
    return [name for name in dict.fromkeys(names) if name in places and name not in own]


def _left_by(operation: Operation | None, fragments: frozenset[int]) -> Collection[int]:
    """Return those of some fragments that have rows which an operation may have taken elsewhere."""
    from lance_spark.table.operations.data.merge import Merge
    from lance_spark.table.operations.data.rewrite import Rewrite
    from lance_spark.table.operations.data.update import Update

    if isinstance(operation, Rewrite):
        return fragments & operation.touched_fragments
    if isinstance(operation, Update):
        # What writes no new fragment has deleted rows, or changed them where they are.
        moves = operation.moves_rows and operation.new_fragments
        return fragments & operation.touched_fragments if moves else ()
    if isinstance(operation, Merge):
        return fragments - {fragment.id for fragment in operation.fragments}
    return () if operation is not None and operation.name in _STAY else fragments

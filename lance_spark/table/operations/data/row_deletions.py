"""Rows that an operation deletes, against rows that others deleted meanwhile; common to `Delete`
and `Update`.

A deletion file has all deleted rows of its fragment, so that of two operations on one fragment the
later one has to write a file with the rows of both. That is right if they are different rows of the
same data files; otherwise the later one has seen values that are no more, and has to be planned
anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from lance_spark.errors import CommitConflictError
from lance_spark.table.fragments.files import DeletionFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.paths import deletion_path
from lance_spark.table.rows.deletions import Offsets, read_deletions

#: Rows that an error names at most.
_NAMED_ROWS = 5


def conflict_with_rows(
    updated: Mapping[int, Fragment],
    removed: Collection[int],
    affected: Mapping[int, Offsets] | None,
    committed: Operation,
) -> Conflict:
    """Tell what a committed Delete or Update means for an operation that deletes rows.

    Parameters
    ----------
    updated : mapping of int to Fragment
        The fragments that the operation gives deletion files.
    removed : collection of int
        Ids of those that it removes.
    affected : mapping of int to int64 array, optional
        Offsets of the rows that it deletes, by fragment; without them no two sets can be merged.
    committed : Operation
    """
    overlap = committed.touched_fragments & (updated.keys() | set(removed))
    if not overlap:
        return Conflict.COMPATIBLE
    # Whoever removes a fragment deletes every row of it, those that the other one touched among
    # them.
    if affected is None or overlap & set(removed) or overlap & committed.removed_fragments:
        return Conflict.RETRYABLE
    for number in overlap:
        if committed.updated_fragments[number].files != updated[number].files:
            return Conflict.RETRYABLE
    return Conflict.REBASE


def merge_deletions(
    rebase: Rebase, updated: Iterable[Fragment], affected: Mapping[int, Offsets], kind: str
) -> tuple[tuple[Fragment, ...], tuple[int, ...]]:
    """Bring fragments with new deletion files on top of the newest version.

    Parameters
    ----------
    rebase : Rebase
    updated : iterable of Fragment
    affected : mapping of int to int64 array
        Offsets of the rows that the operation deletes, by fragment.
    kind : str
        What errors call the operation.

    Returns
    -------
    tuple of Fragment
        Those that keep rows, as the newest version has them, with deletion files for the rows of
        all.
    tuple of int
        Ids of those that do not.

    Raises
    ------
    CommitConflictError
        A row, or the data files of a fragment, changed meanwhile; retryable.
    CorruptFileError, StorageError
    """
    before = {fragment.id: fragment for fragment in rebase.base.fragments}
    newest = {fragment.id: fragment for fragment in rebase.newest.fragments}
    merged: list[Fragment] = []
    gone: list[int] = []
    for fragment in updated:
        now, then = newest.get(fragment.id), before.get(fragment.id)
        if now is None or then is None or now.files != then.files:
            raise _conflict(rebase, kind, f"fragment {fragment.id} was changed or removed")
        if now.deletion_file == then.deletion_file:
            merged.append(with_deletion_file(now, fragment.deletion_file))
            continue
        others = read_deletions(rebase.paths, now)
        own = affected.get(fragment.id, np.empty(0, np.int64))
        both = np.intersect1d(own, others, assume_unique=True)
        if len(both):
            rows = ", ".join(str(row) for row in both[:_NAMED_ROWS].tolist())
            raise _conflict(rebase, kind, f"rows {rows} of fragment {fragment.id} were changed too")
        union = np.union1d(own, others)
        rows_in_files = now.physical_rows or fragment.physical_rows
        if len(union) == rows_in_files:
            gone.append(fragment.id)
            continue
        file = rebase.write_deletions(fragment.id, union)
        merged.append(with_deletion_file(now, file))
    return tuple(merged), tuple(gone)


def with_deletion_file(fragment: Fragment, file: DeletionFile | None) -> Fragment:
    """Return a fragment with another deletion file."""
    proto = fragment.to_proto()
    proto.ClearField("deletion_file")
    if file is not None:
        proto.deletion_file.CopyFrom(file.to_proto())
    return Fragment.from_proto(proto, "fragment with new deletions")


def deletion_paths(fragments: Iterable[Fragment]) -> Iterable[str]:
    """Yield the paths of fragments' deletion files below the table's root."""
    for fragment in fragments:
        file = fragment.deletion_file
        if file is not None and file.base_id is None:
            yield deletion_path(file, fragment.id)


def _conflict(rebase: Rebase, kind: str, what: str) -> CommitConflictError:
    return CommitConflictError(
        f"{rebase.newest.name}: this {kind} was overtaken: {what} since version "
        f"{rebase.base.version}, which it was "
        "planned on; plan it again on the newest version",
        retryable=True,
    )

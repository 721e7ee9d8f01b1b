"""Merging of rows that two operations delete at the same time, for `Delete` and `Update`.

A deletion file has all deleted rows of its fragment. If two operations delete rows of one fragment,
the later one must write a file with the rows of both. This is possible only if they delete
different rows and the data files are the same. Otherwise the later operation was planned on values
that have changed, and must be planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.files import DeletionFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.paths import deletion_path
from lance_spark.table.rows.deletions import Offsets, read_deletions

#: Maximum number of rows that an error names.
_NAMED_ROWS = 5


class FragmentChange(Operation):
    """An operation that changes fragments, and may delete some of their rows."""

    #: Changed fragments that stay in the table, with new deletion files or data files.
    fragments: tuple[Fragment, ...]
    #: Offsets of the rows that this operation deletes, by fragment.
    affected: Mapping[int, Offsets] | None

    @cached_property
    def updated_fragments(self) -> Mapping[int, Fragment]:
        return {fragment.id: fragment for fragment in self.fragments}

    @property
    def deletion_files(self) -> Iterable[str]:
        return deletion_paths(self.fragments)

    def conflict_with_rows(self, committed: Operation) -> Conflict:
        """Return the outcome of a committed `Delete` or `Update` for this operation."""
        overlap = committed.touched_fragments & self.touched_fragments
        if not overlap:
            return Conflict.COMPATIBLE
        # An operation that removes a fragment deletes all its rows, so both delete the same rows.
        removed = self.removed_fragments | committed.removed_fragments
        if self.affected is None or overlap & removed:
            return Conflict.RETRYABLE
        updated = self.updated_fragments
        if any(committed.updated_fragments[n].files != updated[n].files for n in overlap):
            return Conflict.RETRYABLE
        return Conflict.REBASE


def merge_deletions(
    rebase: Rebase, updated: Iterable[Fragment], affected: Mapping[int, Offsets], operation: str
) -> tuple[tuple[Fragment, ...], tuple[int, ...]]:
    """Merge the new deletion files of fragments with the deletion files of the newest version.

    Parameters
    ----------
    updated : iterable of Fragment
        The changed fragments, with their new deletion files.
    affected : mapping of int to int64 array
        Offsets of the rows that the operation deletes, by fragment.
    operation : str
        Name of the operation, for errors.

    Returns
    -------
    tuple of Fragment
        The fragments of the newest version that still have rows, with merged deletion files.
    tuple of int
        Ids of the fragments that lose all rows.

    Raises
    ------
    CommitConflictError
        Another client changed one of the rows, or the data files of a fragment; retryable.
    CorruptFileError, StorageError
    """
    base_fragments = {fragment.id: fragment for fragment in rebase.base.fragments}
    newest_fragments = {fragment.id: fragment for fragment in rebase.newest.fragments}
    merged: list[Fragment] = []
    removed: list[int] = []
    for fragment in updated:
        newest, base = newest_fragments.get(fragment.id), base_fragments.get(fragment.id)
        if newest is None or base is None or newest.files != base.files:
            raise _conflict(rebase, operation, f"fragment {fragment.id} was changed or removed")
        if newest.deletion_file == base.deletion_file:
            merged.append(with_deletion_file(newest, fragment.deletion_file))
            continue
        deleted = read_deletions(rebase.paths, newest)
        new_deletions = affected.get(fragment.id, np.empty(0, np.int64))
        common = np.intersect1d(new_deletions, deleted, assume_unique=True)
        if len(common):
            rows = ", ".join(str(row) for row in common[:_NAMED_ROWS].tolist())
            change = f"rows {rows} of fragment {fragment.id} were changed too"
            raise _conflict(rebase, operation, change)
        union = np.union1d(new_deletions, deleted)
        rows_in_files = newest.physical_rows or fragment.physical_rows
        if len(union) == rows_in_files:
            removed.append(fragment.id)
            continue
        file = rebase.write_deletions(fragment.id, union)
        merged.append(with_deletion_file(newest, file))
    return tuple(merged), tuple(removed)


def check_no_rows_return(
    fragment: Fragment, current: table_pb2.DataFragment, operation: str
) -> None:
    """Refuse a new state of a fragment that has fewer deleted rows than the table.

    Indexes can lack the rows that would come back. A user who commits fragments of an older version
    as if they were planned on the newest one would undo deletes of other clients. Raises
    InvalidInputError.
    """
    # Early writers did not record these numbers.
    deleted = current.deletion_file.num_deleted_rows
    count = 0 if fragment.deletion_file is None else fragment.deletion_file.num_deleted_rows
    if count < deleted:
        raise InvalidInputError(
            f"this {operation} has fragment {fragment.id} with {count} deleted rows, but {deleted} "
            "of its rows are deleted in the table, and would come back; plan it again on the "
            "newest version, or restore an older one"
        )


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


def _conflict(rebase: Rebase, operation: str, change: str) -> CommitConflictError:
    return CommitConflictError(
        f"{rebase.newest.name}: this {operation} was overtaken: {change} since version "
        f"{rebase.base.version}, which it was planned on; plan it again on the newest version",
        retryable=True,
    )

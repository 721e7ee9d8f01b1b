"""Delete: fragments get new deletion files, or go.

| field of `Delete` | content |
| --- | --- |
| updated_fragments | fragments that lose rows, with their new deletion files |
| deleted_fragment_ids | fragments that have no row left |
| predicate | which rows were meant, as text |

Indexes stay as they are, but for segments that nothing is left of: readers leave out what they find
in fragments that are gone, and rows that are deleted. Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from lance_spark.errors import CommitConflictError
from lance_spark.proto import transaction_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.operations.data.row_deletions import (
    conflict_with_rows,
    deletion_paths,
    merge_deletions,
)
from lance_spark.table.rows.deletions import Offsets

KIND = "delete"
_FRAGMENT_CHANGES = frozenset({"rewrite", "data_replacement"})
_ROW_CHANGES = frozenset({"delete", "update"})


@dataclass(frozen=True)
class Delete(Operation):
    """Delete rows.

    Attributes
    ----------
    fragments : tuple of Fragment
        Those that lose rows and keep others, with their new deletion files.
    deleted_fragment_ids : tuple of int
        Those that lose all.
    predicate : str
    affected : mapping of int to int64 array, optional
        Offsets of the rows that this operation deletes, by fragment, those of earlier ones not
        among them. Not part of the transaction. Without them it holds on top of no other change of
        these fragments.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.COMPATIBLE,
        "delete": Conflict.REBASE,
        "overwrite": Conflict.INCOMPATIBLE,
        "create_index": Conflict.COMPATIBLE,
        "rewrite": Conflict.RETRYABLE,
        "merge": Conflict.RETRYABLE,
        "restore": Conflict.INCOMPATIBLE,
        "reserve_fragments": Conflict.COMPATIBLE,
        "update": Conflict.REBASE,
        "project": Conflict.COMPATIBLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.RETRYABLE,
        "update_mem_wal_state": Conflict.INCOMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.COMPATIBLE,
    }

    fragments: tuple[Fragment, ...]
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""
    affected: Mapping[int, Offsets] | None = field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @cached_property
    def updated_fragments(self) -> Mapping[int, Fragment]:
        """New states of fragments that stay, by id."""
        return {fragment.id: fragment for fragment in self.fragments}

    @property
    def removed_fragments(self) -> frozenset[int]:
        """Ids of fragments that go."""
        return frozenset(self.deleted_fragment_ids)

    @property
    def deletion_files(self) -> Iterable[str]:
        """Paths below the table's root of the deletion files that it brings along."""
        return deletion_paths(self.fragments)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Delete, source: str) -> Delete:
        """Parse the message; `source` is what errors call its file."""
        return cls(
            fragments=tuple(Fragment.from_proto(p, source) for p in message.updated_fragments),
            deleted_fragment_ids=tuple(message.deleted_fragment_ids),
            predicate=message.predicate,
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        message = transaction.delete
        message.SetInParent()
        message.updated_fragments.extend(fragment.to_proto() for fragment in self.fragments)
        message.deleted_fragment_ids.extend(self.deleted_fragment_ids)
        message.predicate = self.predicate

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if committed.kind in _ROW_CHANGES:
            return conflict_with_rows(
                self.updated_fragments, self.removed_fragments, self.affected, committed
            )
        if committed.kind in _FRAGMENT_CHANGES:
            apart = self.touched_fragments.isdisjoint(committed.touched_fragments)
            return Conflict.COMPATIBLE if apart else Conflict.RETRYABLE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def rebase(self, rebase: Rebase) -> Delete:
        """Merge the deleted rows with those that others deleted.

        Raises
        ------
        CommitConflictError
            Some are the same.
        CorruptFileError, StorageError
        """
        merged, gone = merge_deletions(rebase, self.fragments, self.affected or {}, KIND)
        return replace(
            self, fragments=merged, deleted_fragment_ids=(*self.deleted_fragment_ids, *gone)
        )

    def apply(self, draft: ManifestBuilder) -> None:
        """Note the deletion files, and take out the fragments that have no row left.

        Raises
        ------
        CommitConflictError
            A fragment is not there.
        """
        for fragment in self.fragments:
            result = draft.fragment(fragment.id)
            if result is None:
                raise CommitConflictError(
                    f"the table has no fragment {fragment.id} any more; delete again",
                    retryable=True,
                )
            # Whatever else changed about the fragment meanwhile has nothing to do with which rows
            # it has.
            result.deletion_file.CopyFrom(fragment.to_proto().deletion_file)
            result.physical_rows = result.physical_rows or fragment.physical_rows
        draft.remove_fragments(self.deleted_fragment_ids)
        if draft.has_indices:
            fields, live = draft.proto.fields, (item.id for item in draft.proto.fragments)
            index_updates.retain_relevant(draft.indices, fields, live)

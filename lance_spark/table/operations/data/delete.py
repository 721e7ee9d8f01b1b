"""Delete: fragments get new deletion files, or are removed.

| field of `Delete` | content |
| --- | --- |
| updated_fragments | fragments that lose some rows, with their new deletion files |
| deleted_fragment_ids | fragments that lose all rows |
| predicate | the condition of the delete, as text |

Indexes do not change, because readers ignore index entries of deleted rows and removed fragments.
Only segments that cover no fragment of the table are removed. Specification:
table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from lance_spark.errors import CommitConflictError
from lance_spark.proto import transaction_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.operations.data.row_deletions import (
    FragmentChange,
    check_no_rows_return,
    merge_deletions,
)
from lance_spark.table.rows.deletions import Offsets

_FRAGMENT_CHANGES = frozenset({"rewrite", "data_replacement"})
_ROW_CHANGES = frozenset({"delete", "update"})


@dataclass(frozen=True)
class Delete(FragmentChange):
    """Delete rows.

    - `fragments`: The fragments that lose some rows, with their new deletion files.
    - `deleted_fragment_ids`: The fragments that lose all rows.
    - `affected`: Offsets of the rows that this operation deletes, by fragment, without rows that
      were deleted before. Not part of the transaction. Without them, the operation cannot be
      rebased onto another change of these fragments.
    """

    name: ClassVar[str] = "delete"

    fragments: tuple[Fragment, ...]
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""
    affected: Mapping[int, Offsets] | None = field(default=None, compare=False)

    @property
    def removed_fragments(self) -> frozenset[int]:
        return frozenset(self.deleted_fragment_ids)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Delete, source: str) -> Delete:
        return cls(
            fragments=tuple(Fragment.from_proto(p, source) for p in message.updated_fragments),
            deleted_fragment_ids=tuple(message.deleted_fragment_ids),
            predicate=message.predicate,
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.delete
        message.SetInParent()
        message.updated_fragments.extend(fragment.to_proto() for fragment in self.fragments)
        message.deleted_fragment_ids.extend(self.deleted_fragment_ids)
        message.predicate = self.predicate

    def conflict(self, committed: Operation) -> Conflict:
        if committed.name in _ROW_CHANGES:
            return self.conflict_with_rows(committed)
        if committed.name in _FRAGMENT_CHANGES:
            disjoint = self.touched_fragments.isdisjoint(committed.touched_fragments)
            return Conflict.COMPATIBLE if disjoint else Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def rebase(self, rebase: Rebase) -> Delete:
        """Merge the deleted rows with the rows that other clients deleted.

        Raises CorruptFileError, StorageError. Raises CommitConflictError: another client deleted
        some of the same rows.
        """
        merged, removed = merge_deletions(rebase, self.fragments, self.affected or {}, self.name)
        return replace(
            self, fragments=merged, deleted_fragment_ids=(*self.deleted_fragment_ids, *removed)
        )

    def apply(self, builder: ManifestBuilder) -> None:
        """Set the deletion files, and remove the fragments that lose all rows.

        Raises CommitConflictError: a fragment was removed. Raises InvalidInputError: deleted rows
        would come back.
        """
        for fragment in self.fragments:
            current = builder.fragment(fragment.id)
            if current is None:
                raise CommitConflictError(
                    f"fragment {fragment.id}, whose rows the delete removes, was removed; "
                    "delete again",
                    retryable=True,
                )
            # The fragment may have changed otherwise since, but it has the same rows.
            check_no_rows_return(fragment, current, self.name)
            # A fragment of a user's operation can have lost no rows, and have no deletion file.
            current.ClearField("deletion_file")
            deletions = fragment.to_proto()
            if deletions.HasField("deletion_file"):
                current.deletion_file.CopyFrom(deletions.deletion_file)
            current.physical_rows = current.physical_rows or fragment.physical_rows
        builder.remove_fragments(self.deleted_fragment_ids)
        if builder.has_indices:
            live = (fragment.id for fragment in builder.proto.fragments)
            index_updates.retain_relevant(builder.indices, builder.proto.fields, live)

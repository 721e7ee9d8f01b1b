"""DataOverlay: overlay files with new values of single cells of fragments.

| field of `DataOverlay` | content |
| --- | --- |
| groups | for each fragment, the overlays to add above its existing overlays |

The commit sets `committed_version` of each overlay. A table with overlays has feature flag 64. By
default, other clients refuse such a table. Specification: table/commit/transaction.md.

| committed meanwhile, in the same fragment | a raw operation | an exclusive operation |
| --- | --- | --- |
| delete, of any rows | kept | kept |
| rows moved to other fragments | kept if it moved other rows | the same |
| new values in place of the same rows | kept; the overlay hides them | planned again |
| compaction, new columns, removal of the fragment | planned again | the same |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.proto import transaction_pb2
from lance_spark.table.fragments.bitmaps import parse_bitmap
from lance_spark.table.fragments.files import DataFile, Overlay
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.rows.deletions import bitmap_of, read_deletions

#: Operations that can give rows new values where they are.
_CHANGES_IN_PLACE = frozenset({"update", "data_replacement", "data_overlay"})


@dataclass(frozen=True)
class DataOverlay(Operation):
    """Replace single cells.

    - `groups`: The messages must not be modified.
    - `exclusive`: Whether the new values depend on the old rows, so that the operation must be
      planned again if another client gave the same rows new values. Not part of the transaction.
    """

    name: ClassVar[str] = "data_overlay"

    groups: tuple[transaction_pb2.Transaction.DataOverlayGroup, ...]
    exclusive: bool = field(default=False, compare=False)

    @cached_property
    def touched_fragments(self) -> frozenset[int]:
        return frozenset(group.fragment_id for group in self.groups)

    @cached_property
    def modified_fields(self) -> frozenset[int]:
        return frozenset(
            field_id
            for group in self.groups
            for overlay in group.overlays
            for field_id in overlay.data_file.fields
        )

    @property
    def files(self) -> list[DataFile]:
        """The files with the new values."""
        return [
            DataFile.from_proto(overlay.data_file)
            for group in self.groups
            for overlay in group.overlays
        ]

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.DataOverlay, source: str
    ) -> DataOverlay:
        return cls(tuple(message.groups))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.data_overlay.SetInParent()
        transaction.data_overlay.groups.extend(self.groups)

    def conflict(self, committed: Operation) -> Conflict:
        if committed.can_add_required_columns:
            return Conflict.RETRYABLE
        if self.touched_fragments & committed.removed_fragments:
            return Conflict.RETRYABLE
        overlap = self.touched_fragments & committed.touched_fragments
        if overlap and committed.name == "rewrite":
            return Conflict.RETRYABLE
        if self.exclusive and self._is_overtaken(committed, overlap):
            return Conflict.RETRYABLE
        if overlap and committed.moves_rows:
            # The transaction does not say which rows have moved, but the new version does.
            return Conflict.REBASE
        return self.conflict_by_matrix(committed)

    def _is_overtaken(self, committed: Operation, overlap: frozenset[int]) -> bool:
        """Return whether an operation changed the same rows in place, or dropped a field."""
        remaining = committed.remaining_fields
        if remaining is not None and not self.modified_fields <= remaining:
            return True
        if committed.name not in _CHANGES_IN_PLACE or committed.moves_rows:
            return False
        return any(
            changed is None or not self.changed_rows(number).isdisjoint(changed)
            for number, changed in ((number, committed.changed_rows(number)) for number in overlap)
        )

    def changed_rows(self, fragment_id: int) -> BitMap:
        rows = BitMap()
        for group in self.groups:
            if group.fragment_id == fragment_id:
                for overlay in group.overlays:
                    rows |= _covered_rows(Overlay.from_proto(overlay))
        return rows

    def rebase(self, rebase: Rebase) -> DataOverlay:
        """Check that no other client moved the same rows to other fragments.

        Raises CorruptFileError, StorageError. Raises CommitConflictError: rows with new values were
        moved, or deleted beside a move; retryable.
        """
        moved = {
            number
            for operation in rebase.committed
            if operation.moves_rows
            for number in operation.touched_fragments
        }
        base = {fragment.id: fragment for fragment in rebase.base.fragments}
        for fragment in rebase.newest.fragments:
            if fragment.id not in moved or fragment.id not in self.touched_fragments:
                continue
            gone = bitmap_of(read_deletions(rebase.paths, fragment))
            if fragment.id in base:
                gone -= bitmap_of(read_deletions(rebase.paths, base[fragment.id]))
            if not gone.isdisjoint(self.changed_rows(fragment.id)):
                raise CommitConflictError(
                    f"{rebase.newest.name}: another client moved rows of fragment {fragment.id} "
                    "whose cells the change replaces; plan it again on the newest version",
                    retryable=True,
                )
        return self

    def apply(self, builder: ManifestBuilder) -> None:
        """Add the overlays to their fragments.

        Raises CommitConflictError: a fragment was removed. Raises InvalidInputError: a fragment
        does not have a row of an overlay. Raises CorruptTableError: the rows of an overlay cannot
        be decoded.
        """
        for group in self.groups:
            fragment = builder.fragment(group.fragment_id)
            if fragment is None:
                raise CommitConflictError(
                    f"fragment {group.fragment_id}, whose cells the change replaces, was removed; "
                    "plan the change again",
                    retryable=True,
                )
            for overlay in group.overlays:
                rows = _covered_rows(Overlay.from_proto(overlay))
                if rows and rows.max() >= fragment.physical_rows:
                    raise InvalidInputError(
                        f"overlay {overlay.data_file.path!r} has a value for row {rows.max()}, but "
                        f"fragment {fragment.id} has {fragment.physical_rows} rows; give offsets "
                        "of its rows"
                    )
                added = fragment.overlays.add()
                added.CopyFrom(overlay)
                added.committed_version = builder.version
                if builder.stable_row_ids:
                    schema_changes.note_change(fragment, builder.version, rows, builder.paths)
        if builder.has_indices:
            # Readers know for the named fields which rows have overlays. But pylance keeps an index
            # of a list, with the old lists, when it compacts the fragment.
            index_updates.prune_fields(
                builder.indices,
                self.touched_fragments,
                self.modified_fields,
                builder.proto.fields,
                unnamed_only=True,
            )


def _covered_rows(overlay: Overlay) -> BitMap:
    """Return the rows for which an overlay has a new value."""
    rows = BitMap()
    for data in overlay.bitmaps:
        rows |= parse_bitmap(data, f"overlay {overlay.data_file.path!r}")
    return rows

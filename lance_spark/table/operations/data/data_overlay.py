"""DataOverlay: overlay files with new values of single cells of fragments.

| field of `DataOverlay` | content |
| --- | --- |
| groups | for each fragment, the overlays to add above its existing overlays |

The commit sets `committed_version` of each overlay. A table with overlays has feature flag 64. By
default, other clients refuse such a table. Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError
from lance_spark.proto import transaction_pb2
from lance_spark.table.fragments.files import Overlay
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation
from lance_spark.table.rows.deletions import parse_bitmap


@dataclass(frozen=True)
class DataOverlay(Operation):
    """Replace single cells.

    Attributes
    ----------
    groups : tuple of transaction_pb2.Transaction.DataOverlayGroup
        The messages must not be modified.
    """

    name: ClassVar[str] = "data_overlay"

    groups: tuple[transaction_pb2.Transaction.DataOverlayGroup, ...]

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
        # The transaction does not always say which rows have moved.
        if self.touched_fragments & committed.touched_fragments and (
            committed.moves_rows or committed.name == "rewrite"
        ):
            return Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Add the overlays to their fragments.

        Raises
        ------
        CommitConflictError
            A fragment was removed.
        CorruptTableError
            The rows of an overlay cannot be decoded.
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
                added = fragment.overlays.add()
                added.CopyFrom(overlay)
                added.committed_version = builder.version
                if builder.stable_row_ids:
                    schema_changes.note_change(fragment, builder.version, rows, builder.paths)


def _covered_rows(overlay: Overlay) -> BitMap:
    """Return the rows for which an overlay has a new value."""
    rows = BitMap()
    for data in overlay.bitmaps:
        rows |= parse_bitmap(data, f"overlay {overlay.data_file.path!r}")
    return rows

"""DataOverlay: files with new values of single cells of fragments.

| field of `DataOverlay` | content |
| --- | --- |
| groups | for each fragment the overlays that come on top of those that it has |

The commit notes in each overlay the version that it came with. Tables with overlays have flag 64:
other clients refuse them unless they are told not to. Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, CorruptTableError
from lance_spark.proto import transaction_pb2
from lance_spark.table.fragments.files import Overlay
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation

KIND = "data_overlay"


@dataclass(frozen=True)
class DataOverlay(Operation):
    """Replace single cells.

    Attributes
    ----------
    groups : tuple of transaction_pb2.Transaction.DataOverlayGroup
        Nobody changes the messages any more.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.COMPATIBLE,
        "delete": Conflict.COMPATIBLE,
        "overwrite": Conflict.INCOMPATIBLE,
        "create_index": Conflict.COMPATIBLE,
        "rewrite": Conflict.COMPATIBLE,
        "merge": Conflict.RETRYABLE,
        "restore": Conflict.INCOMPATIBLE,
        "reserve_fragments": Conflict.COMPATIBLE,
        "update": Conflict.COMPATIBLE,
        "project": Conflict.COMPATIBLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.COMPATIBLE,
        "update_mem_wal_state": Conflict.INCOMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.COMPATIBLE,
    }

    groups: tuple[transaction_pb2.Transaction.DataOverlayGroup, ...]

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @cached_property
    def touched_fragments(self) -> frozenset[int]:
        """Ids of the fragments that it changes."""
        return frozenset(group.fragment_id for group in self.groups)

    @cached_property
    def modified_fields(self) -> frozenset[int]:
        """Ids of fields whose values change."""
        return frozenset(
            field
            for group in self.groups
            for overlay in group.overlays
            for field in overlay.data_file.fields
        )

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.DataOverlay, source: str
    ) -> DataOverlay:
        """Parse the message; `source` is what errors call its file."""
        return cls(tuple(message.groups))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        transaction.data_overlay.SetInParent()
        transaction.data_overlay.groups.extend(self.groups)

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        mine = self.touched_fragments
        if committed.can_add_required_columns:
            return Conflict.RETRYABLE
        if mine & committed.removed_fragments:
            return Conflict.RETRYABLE
        # Which rows moved away the transaction does not tell for sure.
        if mine & committed.touched_fragments and (
            committed.moves_rows or committed.kind == "rewrite"
        ):
            return Conflict.RETRYABLE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def apply(self, draft: ManifestBuilder) -> None:
        """Add the overlays to those that their fragments have.

        Raises
        ------
        CommitConflictError
            A fragment is gone.
        CorruptTableError
            An overlay cannot be one.
        """
        for group in self.groups:
            fragment = draft.fragment(group.fragment_id)
            if fragment is None:
                raise CommitConflictError(
                    f"fragment {group.fragment_id}, some cells of which were to be replaced, is "
                    "gone; plan the change again",
                    retryable=True,
                )
            for overlay in group.overlays:
                rows = _covered(Overlay.from_proto(overlay))
                added = fragment.overlays.add()
                added.CopyFrom(overlay)
                added.committed_version = draft.version
                if draft.stable_row_ids:
                    schema_changes.note_change(fragment, draft.version, rows, draft.paths)


def _covered(overlay: Overlay) -> BitMap:
    """Return the rows that an overlay has a new value of."""
    rows = BitMap()
    for data in overlay.bitmaps:
        try:
            rows |= BitMap.deserialize(data)
        except (ValueError, IndexError, MemoryError) as error:
            raise CorruptTableError(
                f"overlay {overlay.data_file.path!r}: no readable set of rows: {error}"
            ) from None
    return rows

"""CreateIndex: segments of indexes come, and go.

| field of `CreateIndex` | content |
| --- | --- |
| new_indices | segments whose files are written already; one with the id of another takes its place |
| removed_indices | segments that go, told by their ids |

An index is dropped by removing all its segments. It is replaced by removing them and bringing
others of the same name; new segments of that name beside the old ones add to it.

What was committed since an index was built can have changed rows of it. Rows that were deleted or
moved by an update do not matter: the index finds them in fragments where they are no more. Columns
that were written anew in fragments that stay do, so these fragments are taken out of the new
segments' bitmaps; fragments that were rewritten as a whole make it necessary to build it again,
unless the fragment reuse index tells where their rows have gone.

Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation, Rebase

KIND = "create_index"
_REWRITES_COLUMNS = frozenset({"update", "merge", "data_replacement"})


@dataclass(frozen=True, slots=True)
class CreateIndex(Operation):
    """Add and remove segments of indexes.

    Attributes
    ----------
    new_indices, removed_indices : tuple of table_pb2.IndexMetadata
        Nobody changes them any more.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.COMPATIBLE,
        "delete": Conflict.COMPATIBLE,
        "overwrite": Conflict.INCOMPATIBLE,
        "create_index": Conflict.RETRYABLE,
        "rewrite": Conflict.RETRYABLE,
        "merge": Conflict.REBASE,
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

    new_indices: tuple[table_pb2.IndexMetadata, ...]
    removed_indices: tuple[table_pb2.IndexMetadata, ...] = ()

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @property
    def new_indexes(self) -> Sequence[table_pb2.IndexMetadata]:
        """The segments of indexes that it brings."""
        return self.new_indices

    @property
    def removed_indexes(self) -> Sequence[table_pb2.IndexMetadata]:
        """The segments of indexes that it takes away."""
        return self.removed_indices

    @property
    def indexed_fields(self) -> frozenset[int]:
        """Ids of the fields that the new segments are about."""
        return frozenset(field for index in self.new_indices for field in index.fields)

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.CreateIndex, source: str
    ) -> CreateIndex:
        """Parse the message; `source` is what errors call its file."""
        return cls(tuple(message.new_indices), tuple(message.removed_indices))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        transaction.create_index.SetInParent()
        transaction.create_index.new_indices.extend(self.new_indices)
        transaction.create_index.removed_indices.extend(self.removed_indices)

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        kind = committed.kind
        kept = committed.kept_fields
        if kept is not None and not self.indexed_fields <= kept:
            # The id of a column that was dropped can be that of a new column by now.
            return Conflict.RETRYABLE
        if not self._is_mem_wal and kind in ("merge", "update_mem_wal_state"):
            return self.conflicts[kind]
        if kind in ("merge", "update_mem_wal_state"):
            return Conflict.RETRYABLE
        if kind == KIND:
            apart = _names(self, brings=True).isdisjoint(_names(committed))
            apart = apart and _names(self).isdisjoint(_names(committed, brings=True))
            return Conflict.COMPATIBLE if apart else Conflict.RETRYABLE
        if kind == "rewrite":
            return self._conflict_with_rewrite(BitMap(committed.removed_fragments))
        if kind == "data_replacement":
            fields = {number for index in self._of_columns for number in index.fields}
            apart = fields.isdisjoint(committed.modified_fields)
            # Files name the items of a list, or a packed struct, where the index names the list, or
            # a child.
            return Conflict.REBASE if apart else Conflict.RETRYABLE
        return self.conflicts.get(kind, Conflict.RETRYABLE)

    def _conflict_with_rewrite(self, gone: BitMap) -> Conflict:
        if indexes.FRAGMENT_REUSE in _names(self):
            # The rewrite may have brought another entry than the one that this one was made from.
            return Conflict.RETRYABLE
        if indexes.MEM_WAL in _names(self, brings=True):
            return Conflict.RETRYABLE
        answer = Conflict.COMPATIBLE
        for index in self._of_columns:
            covered = indexes.fragment_bitmap(index)
            if covered is not None and covered.isdisjoint(gone):
                continue
            # Pylance does not build on the reuse index for these.
            if covered is None or indexes.type_of_index(index) == "NGRAM":
                return Conflict.RETRYABLE
            answer = Conflict.REBASE
        return answer

    @property
    def _of_columns(self) -> list[table_pb2.IndexMetadata]:
        return [index for index in self.new_indices if not indexes.is_system(index)]

    @property
    def _is_mem_wal(self) -> bool:
        return indexes.MEM_WAL in _names(self)

    def rebase(self, rebase: Rebase) -> CreateIndex:
        """Take fragments out of bitmaps where indexed columns were written anew; look whether rows
        that moved can be followed.

        Raises
        ------
        CommitConflictError
            Some cannot.
        CorruptTableError, StorageError
        """
        self._check_moves(rebase)
        if not any(item.kind in _REWRITES_COLUMNS for item in rebase.committed):
            return self
        newest = rebase.newest.message
        section = table_pb2.IndexSection(indices=self.new_indices)
        before = rebase.base.message.fragments
        index_updates.prune_rewritten_columns(section, before, newest.fragments, newest.fields)
        return replace(self, new_indices=tuple(section.indices))

    def _check_moves(self, rebase: Rebase) -> None:
        gone = BitMap(
            number
            for item in rebase.committed
            if item.kind == "rewrite"
            for number in item.removed_fragments
        )
        entry = fragment_reuse.find_entry(indexes.section_of(rebase.newest))
        known: list[tuple[BitMap, int]] = []
        if entry is not None and gone and not fragment_reuse.is_tagged(entry):
            content = fragment_reuse.read_content(rebase.paths, entry)
            known = [
                (BitMap(digest.id for digest in group.old_fragments), version.dataset_version)
                for version in content.legacy_versions
                for group in version.groups
            ]
        # A rewrite makes overlays part of the rows, and nothing tells then that the index is older.
        overlaid = BitMap(
            number
            for item in rebase.committed
            if item.kind == "data_overlay"
            for number in item.touched_fragments
        )
        new_values = frozenset().union(*(item.modified_fields for item in rebase.committed))
        anywhere = any(item.kind == "merge" for item in rebase.committed)
        for index in self._of_columns:
            covered = indexes.fragment_bitmap(index) or BitMap()
            moved = covered & gone
            if not moved:
                continue
            fields = indexes.related_fields(rebase.newest.message.fields, index.fields)
            told = BitMap()
            for old, version in known:
                if old.issubset(covered) and index.dataset_version < version:
                    told |= old
            # Bitmaps do not tell which of the new fragments have rows that got new values before
            # they moved, or after.
            stale = anywhere or not fields.isdisjoint(new_values)
            if stale or not moved.issubset(told - overlaid):
                raise CommitConflictError(
                    f"index {index.name!r}: rows that it covers were moved to other fragments "
                    "since it was built; build it again",
                    retryable=True,
                )

    def apply(self, draft: ManifestBuilder) -> None:
        """Make the change.

        Raises
        ------
        CommitConflictError
            A field of a new index is not there any more, or a segment that goes has another id now.
        CorruptTableError
        """
        present = {field.id for field in draft.proto.fields}
        for index in self._of_columns:
            if not present.issuperset(index.fields):
                raise CommitConflictError(
                    f"index {index.name!r}: one of its fields {list(index.fields)} was dropped "
                    "since it was built",
                    retryable=True,
                )
        there = {item.uuid.uuid: item.name for item in draft.indices.indices}
        names = frozenset(there.values())
        for index in self.removed_indices:
            # A compaction that remaps an index gives its segments other ids.
            if index.uuid.uuid not in there and index.name in names:
                raise CommitConflictError(
                    f"index {index.name!r}: a segment that was to go was rewritten since; drop or "
                    "replace the index again",
                    retryable=True,
                )
        gone = {item.uuid.uuid for item in (*self.removed_indices, *self.new_indices)}
        kept = [item for item in draft.indices.indices if item.uuid.uuid not in gone]
        index_updates.replace_segments(draft.indices, [*kept, *self.new_indices])


def _names(operation: Operation, *, brings: bool = False) -> frozenset[str]:
    """Return the names of the indexes that an operation brings segments of, or takes some away."""
    removed = () if brings else operation.removed_indexes
    return frozenset(item.name for item in (*operation.new_indexes, *removed))

"""Operations on index sections: segments are added and removed; compacted SSTables are recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, VersionNotFoundError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.subjects import MEM_WAL_PROGRESS, load
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.operations.base import Conflict, Operation, Rebase

# --------------------------------------------------------------------------------------------------
# CreateIndex: segments of indexes are added and removed.
#
# | field of `CreateIndex` | content |
# | --- | --- |
# | new_indices | new segments, whose files exist; a segment replaces another one with the same id |
# | removed_indices | segments to remove, identified by their ids |
#
# To drop an index, all its segments are removed. To replace an index, its segments are removed and
# segments of the same name are added. To extend an index, segments of its name are added.
#
# Another client may have changed rows while the index was built:
#
# | change | new segments |
# | --- | --- |
# | rows were deleted, or moved by an update | do not change; readers ignore their old addresses |
# | columns of fragments were rewritten | no longer cover these fragments |
# | fragments were rewritten | must be built again without an entry of the fragment reuse index |
#
# Specification: table/commit/transaction.md.

_REWRITES_COLUMNS = frozenset({"update", "merge", "data_replacement"})


@dataclass(frozen=True, slots=True)
class CreateIndex(Operation):
    """Add and remove segments of indexes.

    - `new_indices`, `removed_indices`: The messages must not be modified.
    """

    name: ClassVar[str] = "create_index"

    new_indices: tuple[table_pb2.IndexMetadata, ...]
    removed_indices: tuple[table_pb2.IndexMetadata, ...] = ()

    @property
    def new_indexes(self) -> Sequence[table_pb2.IndexMetadata]:
        return self.new_indices

    @property
    def removed_indexes(self) -> Sequence[table_pb2.IndexMetadata]:
        return self.removed_indices

    @property
    def indexed_fields(self) -> frozenset[int]:
        return frozenset(field_id for index in self.new_indices for field_id in index.fields)

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.CreateIndex, source: str
    ) -> CreateIndex:
        return cls(tuple(message.new_indices), tuple(message.removed_indices))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.create_index.SetInParent()
        transaction.create_index.new_indices.extend(self.new_indices)
        transaction.create_index.removed_indices.extend(self.removed_indices)

    def conflict(self, committed: Operation) -> Conflict:
        name = committed.name
        remaining = committed.remaining_fields
        if remaining is not None and not self.indexed_fields <= remaining:
            # A new column may have the id of a dropped one.
            return Conflict.RETRYABLE
        if not self.changes_mem_wal and name in ("merge", "update_mem_wal_state"):
            return self.conflict_by_matrix(committed)
        if name in ("merge", "update_mem_wal_state"):
            return Conflict.RETRYABLE
        if name == self.name:
            disjoint = _index_names(self, added=True).isdisjoint(_index_names(committed))
            disjoint = disjoint and _index_names(self).isdisjoint(
                _index_names(committed, added=True)
            )
            return Conflict.COMPATIBLE if disjoint else Conflict.RETRYABLE
        if name == "rewrite":
            return self._conflict_with_rewrite(BitMap(committed.removed_fragments))
        if name == "data_replacement":
            fields = {field_id for index in self._column_indexes for field_id in index.fields}
            disjoint = fields.isdisjoint(committed.modified_fields)
            # An index names a list, or a child of a packed struct, but a data file names the items
            # of the list, or the struct. The rebase compares them.
            return Conflict.REBASE if disjoint else Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def _conflict_with_rewrite(self, removed: BitMap) -> Conflict:
        if indexes.FRAGMENT_REUSE in _index_names(self):
            # The new entry was built from an entry that the rewrite may have replaced.
            return Conflict.RETRYABLE
        if indexes.MEM_WAL in _index_names(self, added=True):
            return Conflict.RETRYABLE
        outcome = Conflict.COMPATIBLE
        for index in self._column_indexes:
            covered = indexes.fragment_bitmap(index)
            if covered is not None and covered.isdisjoint(removed):
                continue
            # pylance does not use the fragment reuse index for n-gram indexes, and zones of moved
            # rows do not exist any more.
            if (
                covered is None
                or indexes.is_zoned(index)
                or indexes.type_of_files(index) == "NGRAM"
            ):
                return Conflict.RETRYABLE
            outcome = Conflict.REBASE
        return outcome

    @property
    def _column_indexes(self) -> list[table_pb2.IndexMetadata]:
        return [index for index in self.new_indices if not indexes.is_system(index)]

    def rebase(self, rebase: Rebase) -> CreateIndex:
        """Remove fragments with rewritten columns from the coverage of the new segments.

        Raises CorruptTableError, StorageError. Raises CommitConflictError: covered rows moved, and
        the fragment reuse index does not have their new addresses.
        """
        self._check_moved_rows(rebase)
        if not any(operation.name in _REWRITES_COLUMNS for operation in rebase.committed):
            return self
        newest = rebase.newest.message
        section = table_pb2.IndexSection(indices=self.new_indices)
        base = rebase.base.message.fragments
        index_updates.prune_rewritten_columns(section, base, newest.fragments, newest.fields)
        known = BitMap(fragment.id for fragment in base)
        for index in section.indices:
            covered = None if indexes.is_system(index) else indexes.fragment_bitmap(index)
            if covered is not None and not covered.issubset(known):
                _prune_later_fragments(index, covered, known, rebase)
        return replace(self, new_indices=tuple(section.indices))

    def _check_moved_rows(self, rebase: Rebase) -> None:
        rewritten = BitMap(
            fragment_id
            for operation in rebase.committed
            if operation.name == "rewrite"
            for fragment_id in operation.removed_fragments
        )
        entry = fragment_reuse.find_entry(indexes.section_of(rebase.newest))
        remapped_groups: list[tuple[BitMap, int]] = []
        if entry is not None and rewritten and not fragment_reuse.is_tagged(entry):
            content = fragment_reuse.read_content(rebase.paths, entry)
            remapped_groups = [
                (BitMap(digest.id for digest in group.old_fragments), version.dataset_version)
                for version in content.legacy_versions
                for group in version.groups
            ]
        # A rewrite copies the values of overlays to the new fragments. After that, no overlay shows
        # that an index is older than these values.
        overlaid = BitMap(
            fragment_id
            for operation in rebase.committed
            if operation.name == "data_overlay"
            for fragment_id in operation.touched_fragments
        )
        new_values = frozenset().union(*(op.modified_fields for op in rebase.committed))
        any_merge = any(operation.name == "merge" for operation in rebase.committed)
        for index in self._column_indexes:
            covered = indexes.fragment_bitmap(index) or BitMap()
            moved = covered & rewritten
            if not moved:
                continue
            fields = indexes.related_fields(rebase.newest.message.fields, index.fields)
            remapped = BitMap()
            for old, version in remapped_groups:
                if old.issubset(covered) and index.dataset_version < version:
                    remapped |= old
            # The bitmaps do not say which new fragments have rows that got new values.
            stale = any_merge or not fields.isdisjoint(new_values)
            if stale or not moved.issubset(remapped - overlaid):
                raise CommitConflictError(
                    f"index {index.name!r}: rows that it covers moved to other fragments after it "
                    "was built; build it again",
                    retryable=True,
                )

    def apply(self, builder: ManifestBuilder) -> None:
        """Add and remove the segments.

        Raises CorruptTableError. Raises CommitConflictError: a field of a new index was dropped, or
        a segment to remove has another id now.
        """
        table_fields = {field.id for field in builder.proto.fields}
        for index in self._column_indexes:
            if not table_fields.issuperset(index.fields):
                raise CommitConflictError(
                    f"index {index.name!r}: one of its fields {list(index.fields)} was dropped "
                    "after it was built; build it again",
                    retryable=True,
                )
        existing = {segment.uuid.uuid: segment.name for segment in builder.indices.indices}
        names = frozenset(existing.values())
        for index in self.removed_indices:
            # A compaction that remaps an index gives its segments other ids.
            if index.uuid.uuid not in existing and index.name in names:
                raise CommitConflictError(
                    f"index {index.name!r}: a segment to remove was rewritten; drop or replace the "
                    "index again",
                    retryable=True,
                )
        removed = {segment.uuid.uuid for segment in (*self.removed_indices, *self.new_indices)}
        kept = [segment for segment in builder.indices.indices if segment.uuid.uuid not in removed]
        index_updates.replace_segments(builder.indices, [*kept, *self.new_indices])


def _prune_later_fragments(
    index: table_pb2.IndexMetadata, covered: BitMap, known: BitMap, rebase: Rebase
) -> None:
    """Remove fragments with rewritten columns that are newer than the base of a rebase.

    Segments that are committed together can be built on different versions: the base is the oldest
    one.

    - `index`: Modified in place.
    - `covered`: The fragments that it covers.
    - `known`: The fragments of the base.
    """
    built_on = None
    if rebase.base.version < index.dataset_version <= rebase.newest.version:
        with suppress(VersionNotFoundError):
            built_on = read_version(rebase.paths.store, index.dataset_version)
    if built_on is not None:
        newest, before = rebase.newest.message, built_on.message.fragments
        section = table_pb2.IndexSection(indices=[index])
        index_updates.prune_rewritten_columns(section, before, newest.fragments, newest.fields)
        covered = indexes.fragment_bitmap(section.indices[0]) or BitMap()
        known = known | BitMap(fragment.id for fragment in before)
    # Of other fragments, nothing shows which columns were rewritten since the segment was built.
    indexes.set_fragment_bitmap(index, covered & known)


def _index_names(operation: Operation, *, added: bool = False) -> frozenset[str]:
    """Return the names of the indexes with new segments, and without `added` also with removed
    segments.
    """
    removed = () if added else operation.removed_indexes
    return frozenset(segment.name for segment in (*operation.new_indexes, *removed))


# --------------------------------------------------------------------------------------------------
# UpdateMemWalState: records which SSTables of the MemWAL are now in the table.
#
# | field of `UpdateMemWalState` | content |
# | --- | --- |
# | compacted_sstables | for each shard, the newest generation that is in the table |
#
# Compactions here record their progress with an `Update`, because appends of other clients are
# incompatible with this operation. Specification: table/mem_wal.md.


@dataclass(frozen=True)
class UpdateMemWalState(Operation):
    """Record the generations of the MemWAL that are in the table.

    - `compacted_sstables`: The messages must not be modified.
    """

    name: ClassVar[str] = "update_mem_wal_state"

    compacted_sstables: tuple[table_pb2.CompactedSsTable, ...]

    @property
    def compacted_generations(self) -> Mapping[bytes, int]:
        return {table.shard_id.uuid: table.generation for table in self.compacted_sstables}

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.UpdateMemWalState, source: str
    ) -> UpdateMemWalState:
        return cls(tuple(message.compacted_sstables))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.update_mem_wal_state.SetInParent()
        transaction.update_mem_wal_state.compacted_sstables.extend(self.compacted_sstables)

    def conflict(self, committed: Operation) -> Conflict:
        if committed.changes_mem_wal:
            # The progress is that of another MemWAL, which may have had the same shards.
            return Conflict.INCOMPATIBLE
        if committed.compacted_generations:
            stale = self.is_stale_after(committed)
            return Conflict.INCOMPATIBLE if stale else Conflict.COMPATIBLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Record the generations.

        Raises CorruptTableError. Raises InvalidInputError: the table has no MemWAL, or a shard is
        given twice. Raises CommitConflictError: a generation is stale.
        """
        load(MEM_WAL_PROGRESS)(builder, self.compacted_sstables)

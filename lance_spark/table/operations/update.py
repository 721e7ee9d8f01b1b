"""Update: rows get new values, in new fragments or in new data files; rows may be inserted.

| field of `Update` | content |
| --- | --- |
| removed_fragment_ids | fragments that lose all rows |
| updated_fragments | fragments with new deletion files, or with new files for some columns |
| new_fragments | rows with new values, and inserted rows; ids are 0 until the commit assigns ids |
| fields_modified | fields that have new files in `updated_fragments` |
| compacted_sstables | SSTables of the MemWAL that are now in the table |
| fields_for_preserving_frag_bitmap | fields whose values changed in rows that moved |
| update_mode | rows (moved to new fragments) or columns (updated in place) |
| inserted_rows | keys of the inserted rows |
| updated_fragment_offsets, updated_fragment_offset_bitmaps | rows updated in place, by fragment |

In tables with stable row ids, a new fragment contains the ids of its moved rows, which come before
inserted rows. Each commit attempt assigns new ids to inserted rows. Moved rows keep the version
that created them, and are last updated in the committed version. Of rows updated in place, only the
last updated version changes. Specification: table/commit/transaction.md, table/row_id_lineage.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import ClassVar

import numpy as np
from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, CorruptTableError, InvalidInputError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.subjects import MEM_WAL_PROGRESS, load
from lance_spark.table.fragments.files import DeletionFile, Lineage, parse_bitmap
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, InsertedKeys, Operation, Rebase
from lance_spark.table.paths import deletion_path
from lance_spark.table.rows import ids as row_ids
from lance_spark.table.rows.deletions import Offsets, bitmap_of, read_deletions

# --------------------------------------------------------------------------------------------------
# Merging of rows that two operations delete at the same time, for `Delete` and `Update`.
#
# A deletion file has all deleted rows of its fragment. If two operations delete rows of one
# fragment, the later one must write a file with the rows of both. This is possible only if they
# delete different rows and the data files are the same. Otherwise the later operation was planned
# on values that have changed, and must be planned again.

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


# --------------------------------------------------------------------------------------------------
# Delete: fragments get new deletion files, or are removed.
#
# | field of `Delete` | content |
# | --- | --- |
# | updated_fragments | fragments that lose some rows, with their new deletion files |
# | deleted_fragment_ids | fragments that lose all rows |
# | predicate | the condition of the delete, as text |
#
# Indexes do not change, because readers ignore index entries of deleted rows and removed fragments.
# Only segments that cover no fragment of the table are removed. Specification:
# table/commit/transaction.md.

_REWRITES = frozenset({"rewrite", "data_replacement"})
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
        if committed.name in _REWRITES:
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


# --------------------------------------------------------------------------------------------------
# Update: rows get new values, in new fragments or in new data files; rows may be inserted.

_FRAGMENT_CHANGES = frozenset({"rewrite", "data_replacement", "data_overlay"})


class UpdateMode(Enum):
    """What the update rewrites; the value is the number in the protobuf message."""

    REWRITE_ROWS = 0
    REWRITE_COLUMNS = 1


@dataclass(frozen=True)
class Update(FragmentChange):
    """Change rows.

    Attributes
    ----------
    fragments : tuple of Fragment
        Changed fragments that stay in the table, with new deletion files or data files.
    new_fragments : tuple of Fragment
        With the ids of moved rows and the versions that created these. The transaction has only
        the ids.
    updated_offsets : mapping of int to BitMap
        Rows updated in place, by fragment.
    compacted_sstables : tuple of table_pb2.CompactedSsTable
        The messages must not be modified.
    affected : mapping of int to int64 array, optional
        Offsets of the rows that this operation deletes, by fragment, without rows that were
        deleted before. Not part of the transaction. Without them, the operation cannot be rebased
        onto another change of these fragments.
    """

    name: ClassVar[str] = "update"

    fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()
    removed_fragment_ids: tuple[int, ...] = ()
    fields_modified: tuple[int, ...] = ()
    fields_for_preserving_frag_bitmap: tuple[int, ...] = ()
    mode: UpdateMode = UpdateMode.REWRITE_ROWS
    inserted_rows: InsertedKeys | None = None
    updated_offsets: Mapping[int, BitMap] = field(default_factory=dict, compare=False)
    compacted_sstables: tuple[table_pb2.CompactedSsTable, ...] = ()
    affected: Mapping[int, Offsets] | None = field(default=None, compare=False)

    @property
    def update_mode(self) -> str:
        """The name of the `mode`, as in pylance."""
        return self.mode.name.lower()

    @property
    def updated_fragment_offsets(self) -> dict[int, bytes]:
        """The `updated_offsets` as Roaring bitmaps, by pylance's name."""
        return {number: rows.serialize() for number, rows in self.updated_offsets.items()}

    @property
    def removed_fragments(self) -> frozenset[int]:
        return frozenset(self.removed_fragment_ids)

    @property
    def modified_fields(self) -> frozenset[int]:
        """Ids of fields whose values are updated in place."""
        return frozenset(self.fields_modified)

    def written_fields(self, base: table_pb2.Manifest) -> frozenset[int] | None:
        if self.new_fragments:
            return None
        updated = self.updated_fragments
        # A user can have left fields out of `fields_modified`.
        written = set(self.fields_modified)
        for proto in base.fragments if updated else ():
            if proto.id in updated:
                written |= _rewritten_fields(proto, updated[proto.id])
        return frozenset(written)

    @property
    def moves_rows(self) -> bool:
        return self.mode is UpdateMode.REWRITE_ROWS and bool(self.touched_fragments)

    def changed_rows(self, fragment_id: int) -> BitMap | None:
        return self.updated_offsets.get(fragment_id)

    @property
    def inserted_keys(self) -> InsertedKeys | None:
        return self.inserted_rows

    @property
    def compacted_generations(self) -> Mapping[bytes, int]:
        return {table.shard_id.uuid: table.generation for table in self.compacted_sstables}

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Update, source: str) -> Update:
        try:
            mode = UpdateMode(message.update_mode)
        except ValueError:
            raise CorruptTableError(
                f"{source}: the update mode {message.update_mode} is unknown"
            ) from None
        offsets = {
            fragment_id: BitMap(rows.values)
            for fragment_id, rows in message.updated_fragment_offsets.items()
        }
        for fragment_id, bitmap in message.updated_fragment_offset_bitmaps.items():
            offsets[fragment_id] = parse_bitmap(
                bitmap, f"{source}: updated rows of fragment {fragment_id}"
            )
        return cls(
            fragments=tuple(Fragment.from_proto(p, source) for p in message.updated_fragments),
            new_fragments=tuple(Fragment.from_proto(p, source) for p in message.new_fragments),
            removed_fragment_ids=tuple(message.removed_fragment_ids),
            fields_modified=tuple(message.fields_modified),
            fields_for_preserving_frag_bitmap=tuple(message.fields_for_preserving_frag_bitmap),
            mode=mode,
            inserted_rows=InsertedKeys.from_proto(message.inserted_rows, source)
            if message.HasField("inserted_rows")
            else None,
            updated_offsets=offsets,
            compacted_sstables=tuple(message.compacted_sstables),
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.update
        message.SetInParent()
        message.updated_fragments.extend(fragment.to_proto() for fragment in self.fragments)
        message.new_fragments.extend(map(_without_versions, self.new_fragments))
        message.removed_fragment_ids.extend(self.removed_fragment_ids)
        message.fields_modified.extend(self.fields_modified)
        message.fields_for_preserving_frag_bitmap.extend(self.fields_for_preserving_frag_bitmap)
        message.update_mode = self.mode.value  # type: ignore[assignment]
        message.compacted_sstables.extend(self.compacted_sstables)
        if self.inserted_rows is not None:
            message.inserted_rows.CopyFrom(self.inserted_rows.to_proto())
        for fragment_id, offsets in self.updated_offsets.items():
            message.updated_fragment_offset_bitmaps[fragment_id] = offsets.serialize()

    def conflict(self, committed: Operation) -> Conflict:
        if committed.can_add_required_columns:
            return Conflict.RETRYABLE
        if committed.name == "append" and (self.inserted_rows is not None or self._replaces_keys):
            return Conflict.RETRYABLE
        if self.compacted_sstables and committed.changes_mem_wal:
            # The SSTables are those of another MemWAL, which may have had the same shards.
            return Conflict.RETRYABLE
        if self.is_stale_after(committed):
            return Conflict.INCOMPATIBLE
        if committed.name == "update_mem_wal_state":
            return Conflict.COMPATIBLE
        if committed.name in _ROW_CHANGES:
            if committed.name == self.name and self._may_insert_same_key(committed):
                return Conflict.RETRYABLE
            return self.conflict_with_rows(committed)
        if committed.name in _FRAGMENT_CHANGES:
            disjoint = self.touched_fragments.isdisjoint(committed.touched_fragments)
            if committed.name == "data_overlay" and self.mode is UpdateMode.REWRITE_COLUMNS:
                disjoint = disjoint or self.modified_fields.isdisjoint(committed.modified_fields)
            elif committed.name == "data_overlay":
                disjoint = disjoint or self._moves_other_rows(committed)
            return Conflict.COMPATIBLE if disjoint else Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def _moves_other_rows(self, overlay: Operation) -> bool:
        """Return whether none of the rows that move got new values by a committed overlay."""
        for number in self.touched_fragments & overlay.touched_fragments:
            moved, covered = (self.affected or {}).get(number), overlay.changed_rows(number)
            if moved is None or covered is None or not covered.isdisjoint(bitmap_of(moved)):
                return False
        return True

    @property
    def _replaces_keys(self) -> bool:
        """Whether the update brings SSTables into a table that has a primary key.

        Their keys replace those of all rows, also if they insert none. Without a primary key, a
        compaction inserts all rows, and records no keys.
        """
        only_inserts = bool(self.new_fragments) and not self.touched_fragments
        has_key = self.inserted_rows is not None or not only_inserts
        return bool(self.compacted_sstables) and has_key

    def _may_insert_same_key(self, committed: Operation) -> bool:
        theirs = committed.inserted_keys
        if self._replaces_keys and theirs is not None and not committed.compacted_generations:
            # The recorded keys lack those that SSTables replace or delete. SSTables of another
            # shard have other keys.
            return True
        if self.inserted_rows is None:
            return False
        return theirs is None or self.inserted_rows.may_share_key(theirs)

    def rebase(self, rebase: Rebase) -> Update:
        """Merge the deleted rows with the rows that other clients deleted.

        Raises
        ------
        CommitConflictError
            Another client deleted some of the same rows.
        CorruptFileError, StorageError
        """
        merged, removed = merge_deletions(rebase, self.fragments, self.affected or {}, self.name)
        return replace(
            self, fragments=merged, removed_fragment_ids=(*self.removed_fragment_ids, *removed)
        )

    def apply(self, builder: ManifestBuilder) -> None:
        """Change, remove and add fragments, and update the indexes.

        Raises
        ------
        CommitConflictError
            A fragment was removed.
        InvalidInputError, CorruptTableError
        """
        table_fields = frozenset(field.id for field in builder.proto.fields)
        modified = indexes.related_fields(builder.proto.fields, self.fields_modified)
        existing = map(builder.fragment, self.touched_fragments)
        had_overlays = {proto.id: bool(proto.overlays) for proto in existing if proto is not None}
        rewritten: dict[frozenset[int], list[int]] = {}
        for fragment in self.fragments:
            proto = builder.fragment(fragment.id)
            if proto is None:
                raise CommitConflictError(
                    f"fragment {fragment.id}, whose rows the update changes, was removed; "
                    "update again",
                    retryable=True,
                )
            # A user can have left fields out of `fields_modified`.
            more = frozenset(_rewritten_fields(proto, fragment) - modified)
            if more:
                more = indexes.related_fields(builder.proto.fields, more)
                rewritten.setdefault(more, []).append(fragment.id)
            self._change_fragment(proto, fragment, builder, table_fields)
            if modified or more:
                schema_changes.hide_overlays(proto, modified | more, builder.planned_on)
        new_fragments = self._with_created_versions(builder)
        builder.remove_fragments(self.removed_fragment_ids)
        first = len(builder.proto.fragments)
        builder.add_fragments(new_fragments, has_moved_rows=True)
        if builder.has_indices:
            for more, numbers in rewritten.items():
                index_updates.prune_fields(builder.indices, numbers, more, builder.proto.fields)
            self._change_indexes(builder, builder.proto.fragments[first:], had_overlays)
        if self.compacted_sstables:
            load(MEM_WAL_PROGRESS)(builder, self.compacted_sstables)

    def _with_created_versions(self, builder: ManifestBuilder) -> Sequence[Fragment]:
        """Return the new fragments with the versions that created their moved rows.

        A transaction does not contain versions. For an update that was read from a transaction
        file, or that pylance planned, the versions are looked up by row id.
        """
        paths = builder.paths
        if (
            not builder.stable_row_ids
            or paths is None
            or all(map(_has_created_versions, self.new_fragments))
        ):
            return self.new_fragments
        protos = [builder.fragment(fragment_id) for fragment_id in sorted(self.touched_fragments)]
        old = [Fragment.from_proto(proto, "the table") for proto in protos if proto is not None]
        created = row_ids.created_versions_by_id(old, paths)
        return [
            fragment
            if _has_created_versions(fragment)
            else row_ids.with_created_versions(fragment, created, builder.version)
            for fragment in self.new_fragments
        ]

    def _change_indexes(
        self,
        builder: ManifestBuilder,
        added: Sequence[table_pb2.DataFragment],
        had_overlays: Mapping[int, bool],
    ) -> None:
        """Update the indexes; `had_overlays` has an entry for each changed or removed fragment."""
        fields, section = builder.proto.fields, builder.indices
        index_updates.prune_fields(section, self.updated_fragments, self.fields_modified, fields)
        # The new files of moved rows have the values of the overlays, which an index may lack.
        if (
            builder.stable_row_ids
            and self.mode is UpdateMode.REWRITE_ROWS
            and not any(had_overlays.values())
        ):
            # A fragment to which the commit added row ids has inserted rows, which no index has.
            moved = [
                proto.id
                for proto, fragment in zip(added, self.new_fragments, strict=True)
                if fragment.inline_lineage(Lineage.ROW_IDS) == proto.inline_row_ids
            ]
            changed = self.fields_for_preserving_frag_bitmap
            index_updates.extend_to_moved_rows(section, moved, had_overlays, changed, fields)
        index_updates.retain_relevant(
            section, fields, (fragment.id for fragment in builder.proto.fragments)
        )

    def _change_fragment(
        self,
        proto: table_pb2.DataFragment,
        fragment: Fragment,
        builder: ManifestBuilder,
        table_fields: Collection[int],
    ) -> None:
        check_no_rows_return(fragment, proto, self.name)
        new = fragment.to_proto()
        # Another client may have dropped columns since, and files with them.
        live = [file for file in new.files if schema_changes.is_live(file, table_fields)]
        schema_changes.set_files(proto, live or new.files[:1])
        proto.ClearField("deletion_file")
        if new.HasField("deletion_file"):
            proto.deletion_file.CopyFrom(new.deletion_file)
        proto.physical_rows = proto.physical_rows or new.physical_rows
        offsets = self.updated_offsets.get(fragment.id)
        if (
            self.mode is UpdateMode.REWRITE_COLUMNS
            and builder.stable_row_ids
            and offsets is not None
        ):
            _set_updated_versions(proto, fragment, offsets, builder)


def _rewritten_fields(current: table_pb2.DataFragment, fragment: Fragment) -> set[int]:
    """Return the ids of the fields in data files that a fragment of the table does not have yet."""
    paths = {file.path for file in current.files}
    new = (file for file in fragment.files if file.path not in paths)
    return {field_id for file in new for field_id in file.fields if field_id >= 0}


def _set_updated_versions(
    proto: table_pb2.DataFragment, fragment: Fragment, offsets: BitMap, builder: ManifestBuilder
) -> None:
    """Set the last updated version of some rows to the new version."""
    group, inline, _ = Lineage.UPDATED.value
    planned = fragment.inline_lineage(Lineage.UPDATED)
    if proto.WhichOneof(group) != inline and planned is not None:
        # The versions are in a file, which cannot be changed. The plan has read them from there.
        proto.inline_last_updated_at_versions = planned
    schema_changes.note_change(proto, builder.version, offsets, builder.paths)


def _has_created_versions(fragment: Fragment) -> bool:
    """Return whether a new fragment has the created version of each moved row."""
    return not fragment.inline_lineage(Lineage.ROW_IDS) or fragment.has_lineage(Lineage.CREATED)


def _without_versions(fragment: Fragment) -> table_pb2.DataFragment:
    """Return the message of a new fragment for a transaction; the commit sets the row versions."""
    proto = fragment.to_proto()
    for lineage in (Lineage.CREATED, Lineage.UPDATED):
        proto.ClearField(lineage.value[1])
    return proto

"""Update: values of rows change, in new fragments or in new data files of their own; rows may come
along.

| field of `Update` | content |
| --- | --- |
| removed_fragment_ids | fragments that have no row left |
| updated_fragments | fragments with new deletion files, or with new files for some columns |
| new_fragments | rows with their new values, and inserted ones; ids are 0 until the commit gives them some |
| fields_modified | fields that have new files in `updated_fragments` |
| compacted_sstables | parts of the write-ahead log that are now in the table |
| fields_for_preserving_frag_bitmap | fields whose values changed in rows that moved |
| update_mode | rows (rewritten in new fragments) or columns (rewritten where they are) |
| inserted_rows | keys of the inserted rows |
| updated_fragment_offsets, updated_fragment_offset_bitmaps | rows that changed where they are, by fragment |

Tables with stable row ids: a new fragment brings the ids of rows that moved, which come first. The
others get new ones, and each attempt to commit gives them anew. Moved rows keep the version that
they were created in; that of their last change is the version that is committed. Rows that changed
where they are only get the latter. Specification: table/commit/transaction.md,
table/row_id_lineage.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import ClassVar

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, CorruptTableError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.operations.data.inserted_keys import InsertedKeys
from lance_spark.table.operations.data.row_deletions import (
    conflict_with_rows,
    deletion_paths,
    merge_deletions,
)
from lance_spark.table.rows import ids as row_ids
from lance_spark.table.rows.deletions import Offsets

KIND = "update"
_FRAGMENT_CHANGES = frozenset({"rewrite", "data_replacement", "data_overlay"})
_ROW_CHANGES = frozenset({"delete", "update"})


class UpdateMode(Enum):
    """What was written anew; the value is the protobuf's."""

    REWRITE_ROWS = 0
    REWRITE_COLUMNS = 1


@dataclass(frozen=True)
class Update(Operation):
    """Change rows.

    Attributes
    ----------
    fragments : tuple of Fragment
        Those that stay and change: with new deletion files, or new data files.
    new_fragments : tuple of Fragment
        With the ids of rows that moved, and the versions that these were created in. The
        transaction has the ids only.
    removed_fragment_ids : tuple of int
    fields_modified : tuple of int
    fields_for_preserving_frag_bitmap : tuple of int
    mode : UpdateMode
    inserted_rows : InsertedKeys, optional
    updated_offsets : mapping of int to BitMap
        Rows that changed where they are, by fragment.
    compacted_sstables : tuple of table_pb2.CompactedSsTable
        Nobody changes the messages any more.
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
        "update_mem_wal_state": Conflict.COMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.RETRYABLE,
    }

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
        return frozenset(self.removed_fragment_ids)

    @property
    def modified_fields(self) -> frozenset[int]:
        """Ids of fields whose values change in rows that stay where they are."""
        return frozenset(self.fields_modified)

    @property
    def moves_rows(self) -> bool:
        """Whether rows of the fragments that it touches live on in others."""
        return self.mode is UpdateMode.REWRITE_ROWS and bool(self.touched_fragments)

    @property
    def inserted_keys(self) -> InsertedKeys | None:
        """The keys that a merge inserted, if it noted them."""
        return self.inserted_rows

    @property
    def compacted_shards(self) -> frozenset[bytes]:
        """Ids of the shards of the write-ahead log whose state it notes."""
        return frozenset(
            compacted_sstable.shard_id.uuid for compacted_sstable in self.compacted_sstables
        )

    @property
    def deletion_files(self) -> Iterable[str]:
        """Paths below the table's root of the deletion files that it brings along."""
        return deletion_paths(self.fragments)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Update, source: str) -> Update:
        """Parse the message; `source` is what errors call its file.

        Raises
        ------
        CorruptTableError
        """
        try:
            mode = UpdateMode(message.update_mode)
        except ValueError:
            raise CorruptTableError(
                f"{source}: an update of unknown mode {message.update_mode}"
            ) from None
        offsets = {
            number: BitMap(rows.values) for number, rows in message.updated_fragment_offsets.items()
        }
        for number, bitmap in message.updated_fragment_offset_bitmaps.items():
            offsets[number] = _decode_offsets(bitmap, number, source)
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
        """Set the operation of a transaction's message."""
        message = transaction.update
        message.SetInParent()
        message.updated_fragments.extend(fragment.to_proto() for fragment in self.fragments)
        message.new_fragments.extend(
            _without_versions(new_fragment) for new_fragment in self.new_fragments
        )
        message.removed_fragment_ids.extend(self.removed_fragment_ids)
        message.fields_modified.extend(self.fields_modified)
        message.fields_for_preserving_frag_bitmap.extend(self.fields_for_preserving_frag_bitmap)
        message.update_mode = self.mode.value  # type: ignore[assignment]
        message.compacted_sstables.extend(self.compacted_sstables)
        if self.inserted_rows is not None:
            message.inserted_rows.CopyFrom(self.inserted_rows.to_proto())
        for number, offsets in self.updated_offsets.items():
            message.updated_fragment_offset_bitmaps[number] = offsets.serialize()

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if committed.can_add_required_columns:
            return Conflict.RETRYABLE
        if committed.kind == "append" and self.inserted_rows is not None:
            return Conflict.RETRYABLE
        if committed.kind == "update_mem_wal_state":
            apart = self.compacted_shards.isdisjoint(committed.compacted_shards)
            return Conflict.COMPATIBLE if apart else Conflict.RETRYABLE
        if committed.kind in _ROW_CHANGES:
            if committed.kind == KIND and self._inserts_keys_of(committed):
                return Conflict.RETRYABLE
            return conflict_with_rows(
                self.updated_fragments, self.removed_fragments, self.affected, committed
            )
        if committed.kind in _FRAGMENT_CHANGES:
            apart = self.touched_fragments.isdisjoint(committed.touched_fragments)
            if committed.kind == "data_overlay" and self.mode is UpdateMode.REWRITE_COLUMNS:
                apart = apart or self.modified_fields.isdisjoint(committed.modified_fields)
            return Conflict.COMPATIBLE if apart else Conflict.RETRYABLE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def _inserts_keys_of(self, committed: Operation) -> bool:
        if self.inserted_rows is None:
            return False
        theirs = committed.inserted_keys
        return theirs is None or self.inserted_rows.may_meet(theirs)

    def rebase(self, rebase: Rebase) -> Update:
        """Merge the deleted rows with those that others deleted.

        Raises
        ------
        CommitConflictError
            Some are the same.
        CorruptFileError, StorageError
        """
        merged, gone = merge_deletions(rebase, self.fragments, self.affected or {}, KIND)
        return replace(
            self, fragments=merged, removed_fragment_ids=(*self.removed_fragment_ids, *gone)
        )

    def apply(self, draft: ManifestBuilder) -> None:
        """Make the change.

        Raises
        ------
        CommitConflictError
            A fragment is not there.
        InvalidInputError, CorruptTableError
        """
        kept = frozenset(item.id for item in draft.proto.fields)
        modified = indexes.related_fields(draft.proto.fields, self.fields_modified)
        found_ones = map(draft.fragment, self.touched_fragments)
        touched = {item.id: bool(item.overlays) for item in found_ones if item is not None}
        for fragment in self.fragments:
            result = draft.fragment(fragment.id)
            if result is None:
                raise CommitConflictError(
                    f"the table has no fragment {fragment.id} any more; update again",
                    retryable=True,
                )
            self._change(result, fragment, draft, kept)
            if modified:
                schema_changes.hide_overlays(result, modified, draft.planned_on)
        new_fragments = self._with_created_versions(draft)
        draft.remove_fragments(self.removed_fragment_ids)
        first = len(draft.proto.fragments)
        draft.add_fragments(new_fragments)
        if draft.has_indices:
            self._change_indices(draft, draft.proto.fragments[first:], touched)

    def _with_created_versions(self, draft: ManifestBuilder) -> Sequence[Fragment]:
        """Return the new fragments with the versions that moved rows were created in.

        Transactions have no versions: those that were read from a file, or come from pylance, are
        looked up by row id.
        """
        paths = draft.paths
        if not draft.stable_row_ids or paths is None or all(map(_is_dated, self.new_fragments)):
            return self.new_fragments
        messages = [draft.fragment(number) for number in sorted(self.touched_fragments)]
        old = [Fragment.from_proto(item, "the table") for item in messages if item is not None]
        known = row_ids.created_versions_by_id(old, paths)
        return [
            item if _is_dated(item) else row_ids.with_created_versions(item, known, draft.version)
            for item in self.new_fragments
        ]

    def _change_indices(
        self,
        draft: ManifestBuilder,
        added: Sequence[table_pb2.DataFragment],
        touched: Mapping[int, bool],
    ) -> None:
        """Adjust the indexes; `touched` are the fragments that changed or went, with whether they
        had overlays.
        """
        fields, section = draft.proto.fields, draft.indices
        index_updates.prune_fields(section, self.updated_fragments, self.fields_modified, fields)
        # What overlays said of rows that moved stands in their new files, and an index can be older
        # than that.
        if (
            draft.stable_row_ids
            and self.mode is UpdateMode.REWRITE_ROWS
            and not any(touched.values())
        ):
            # Rows without an id of their own are new ones, which no index has.
            moved = [
                new.id
                for new, given in zip(added, self.new_fragments, strict=True)
                if given.inline_lineage(Lineage.ROW_IDS) == new.inline_row_ids
            ]
            changed = self.fields_for_preserving_frag_bitmap
            index_updates.extend_to_moved_rows(section, moved, touched, changed, fields)
        index_updates.retain_relevant(
            section, fields, (fragment.id for fragment in draft.proto.fragments)
        )

    def _change(
        self,
        found: table_pb2.DataFragment,
        fragment: Fragment,
        draft: ManifestBuilder,
        kept: Collection[int],
    ) -> None:
        given = fragment.to_proto()
        # Columns may have been dropped since, and files with them.
        live = [file for file in given.files if schema_changes.is_live(file, kept)]
        schema_changes.set_files(found, live or given.files[:1])
        found.ClearField("deletion_file")
        if given.HasField("deletion_file"):
            found.deletion_file.CopyFrom(given.deletion_file)
        found.physical_rows = found.physical_rows or given.physical_rows
        offsets = self.updated_offsets.get(fragment.id)
        if self.mode is UpdateMode.REWRITE_COLUMNS and draft.stable_row_ids and offsets is not None:
            _advance(found, fragment, offsets, draft)


def _advance(
    found: table_pb2.DataFragment, fragment: Fragment, offsets: BitMap, draft: ManifestBuilder
) -> None:
    """Note the version of the last change of some rows."""
    group, inline, _ = Lineage.UPDATED.value
    planned = fragment.inline_lineage(Lineage.UPDATED)
    if found.WhichOneof(group) != inline and planned is not None:
        # They were in a file, which cannot be changed: the plan has read them from there.
        found.inline_last_updated_at_versions = planned
    schema_changes.note_change(found, draft.version, offsets, draft.paths)


def _is_dated(fragment: Fragment) -> bool:
    """Tell whether the versions are known that rows which bring their ids were created in."""
    return not fragment.inline_lineage(Lineage.ROW_IDS) or fragment.has_lineage(Lineage.CREATED)


def _without_versions(fragment: Fragment) -> table_pb2.DataFragment:
    """Return the message of a new fragment as transactions have it: the commit tells the versions
    of its rows.
    """
    proto = fragment.to_proto()
    for kind in (Lineage.CREATED, Lineage.UPDATED):
        proto.ClearField(kind.value[1])
    return proto


def _decode_offsets(data: bytes, fragment_id: int, source: str) -> BitMap:
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptTableError(
            f"{source}: no readable bitmap of updated rows of fragment {fragment_id}: {error}"
        ) from None

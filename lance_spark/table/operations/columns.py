"""Operations on columns: merge, data replacement, data overlay, projection."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import ClassVar

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, InvalidInputError, UnsupportedFeatureError
from lance_spark.proto import file_pb2, table_pb2, transaction_pb2
from lance_spark.table.fragments.files import DataFile, Lineage, Overlay, parse_bitmap
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import SCHEMA_METADATA, Conflict, Operation, Rebase
from lance_spark.table.operations.update import check_no_rows_return
from lance_spark.table.rows.deletions import bitmap_of, read_deletions

# --------------------------------------------------------------------------------------------------
# Merge: a new schema, with new data files for new columns of all fragments.
#
# | field of `Merge` | content |
# | --- | --- |
# | fragments | all fragments of the new version: existing with their new files, then new fragments
#     |
# | schema | the new schema; new fields have ids that no field ever had |
# | schema_metadata | keys to set in the metadata of the schema |
# | preserves_nullability | rows written for the old schema are valid under the new one |
#
# Fragments keep their rows. With stable row ids, the rows of fragments with new files count as
# updated. New fragments have id 0; the commit assigns ids and row ids. The commit removes data
# files without a column of the schema, and indexes on removed columns. Specification:
# table/commit/transaction.md.


@dataclass(frozen=True)
class Merge(Operation):
    """Change the schema, and the data files of fragments.

    - `fragments`: The fragments of the table in their order, then new fragments.
    - `schema`: The messages must not be modified.
    - `preserves_nullability`: If false, rows that another client writes for the old schema at the
      same time cause a conflict.
    - `by_user`: Whether a user made the schema: its fields may have been numbered again. Then a
      field must not get the name of another field, or become required, as in pylance. Not part of
      the transaction.
    """

    name: ClassVar[str] = "merge"

    fragments: tuple[Fragment, ...]
    schema: tuple[file_pb2.Field, ...]
    schema_metadata: Mapping[str, bytes] = dataclass_field(default_factory=dict)
    preserves_nullability: bool = False
    by_user: bool = dataclass_field(default=False, compare=False)

    @cached_property
    def remaining_fields(self) -> frozenset[int]:
        return frozenset(field.id for field in self.schema)

    @property
    def can_add_required_columns(self) -> bool:
        return not self.preserves_nullability

    def written_fields(self, base: table_pb2.Manifest) -> frozenset[int] | None:
        if len(self.fragments) > len(base.fragments):
            return None
        existing, new = _paths(base.fields), _paths(self.schema)
        old_files = {proto.id: {file.path for file in proto.files} for proto in base.fragments}
        in_new_files = {
            number
            for fragment in self.fragments
            for file in fragment.files
            if file.path not in old_files.get(fragment.id, ())
            for number in file.fields
        }
        # A column whose values are cast has another id and the same path.
        ids = {path: number for number, path in existing.items()}
        cast = {ids[path] for number, path in new.items() if path in ids and ids[path] != number}
        return frozenset((in_new_files & existing.keys()) | cast)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Merge, source: str) -> Merge:
        return cls(
            fragments=tuple(Fragment.from_proto(proto, source) for proto in message.fragments),
            schema=tuple(message.schema),
            schema_metadata=dict(message.schema_metadata),
            preserves_nullability=message.preserves_nullability,
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.merge
        message.SetInParent()
        message.fragments.extend(fragment.to_proto() for fragment in self.fragments)
        message.schema.extend(self.schema)
        message.schema_metadata.update(self.schema_metadata)
        message.preserves_nullability = self.preserves_nullability

    def conflict(self, committed: Operation) -> Conflict:
        if committed.name == "update_config" and committed.metadata_targets:
            # The schema of this merge has the older metadata.
            return Conflict.RETRYABLE
        if any(index.name == indexes.MEM_WAL for index in committed.new_indexes):
            return Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Set the schema and the fragments.

        Raises CorruptTableError. Raises InvalidInputError: fragments of the table are missing or
        changed, or a new field has an id that another field has or had, or a field of a user's
        schema has the name of another field.
        """
        if not self.schema:
            raise InvalidInputError("a table must have at least one column")
        count = len(builder.proto.fragments)
        old, new = self.fragments[:count], self.fragments[count:]
        self._check_fragments(builder, old, new)
        schema_changes.check_new_fields(builder.proto, self.schema)
        if self.by_user:
            self._check_names(builder)
        schema_changes.set_fields(builder, self.schema)
        builder.proto.schema_metadata.update(self.schema_metadata)
        old_paths = {
            fragment.id: {file.path for file in fragment.files}
            for fragment in builder.proto.fragments
        }
        builder.replace_fragments(old)
        proto = builder.proto
        if builder.stable_row_ids:
            for fragment in proto.fragments:
                if any(file.path not in old_paths[fragment.id] for file in fragment.files):
                    schema_changes.note_change(fragment, builder.version)
        if builder.has_indices and builder.base is not None:
            index_updates.prune_rewritten_columns(
                builder.indices, builder.base.message.fragments, proto.fragments, proto.fields
            )
        if new:
            builder.add_fragments(new)
        schema_changes.drop_dead_files(builder)
        schema_changes.drop_dead_indexes(builder)

    def _check_fragments(
        self, builder: ManifestBuilder, old: tuple[Fragment, ...], new: tuple[Fragment, ...]
    ) -> None:
        by_id = {fragment.id: fragment for fragment in old}
        if len(by_id) < len(old):
            raise InvalidInputError("a merge lists a fragment twice; list each fragment once")
        for proto in builder.proto.fragments:
            fragment = by_id.get(proto.id)
            if fragment is None:
                raise InvalidInputError(
                    "a merge must list all fragments of the table first, but fragment "
                    f"{proto.id} is not among the first {len(old)}; use a delete to remove "
                    "fragments"
                )
            check_no_rows_return(fragment, proto, self.name)
            merged = fragment.to_proto()
            if merged.physical_rows != proto.physical_rows:
                raise InvalidInputError(
                    f"a merge must keep the rows of a fragment, but fragment {proto.id} has "
                    f"{proto.physical_rows} rows and would have {merged.physical_rows}"
                )
            if merged.WhichOneof("row_id_sequence") != proto.WhichOneof("row_id_sequence"):
                raise InvalidInputError(f"a merge must keep the row ids of fragment {proto.id}")
        if any(fragment.id for fragment in new):
            raise InvalidInputError(
                "new fragments of a merge must have the id 0; the commit assigns their ids"
            )
        if any(fragment.has_lineage(Lineage.ROW_IDS) for fragment in new):
            raise InvalidInputError(
                "new fragments of a merge must not have row ids, which the commit assigns; write "
                "the rows with write_fragments"
            )

    def _check_names(self, builder: ManifestBuilder) -> None:
        """Refuse a field that would show the values of another one, or that could have nulls."""
        existing = _paths(builder.proto.fields)
        used = {path: number for number, path in existing.items()}
        required = {field.id for field in builder.proto.fields if not field.nullable}
        schema = _paths(self.schema)
        structs = {field.parent_id for field in self.schema}
        for proto in self.schema:
            if proto.id not in existing:
                if schema[proto.id] in used and proto.id not in structs:
                    self._check_has_values(proto.id, schema[proto.id])
                continue
            old, new = existing[proto.id], schema[proto.id]
            if old != new and new in used:
                raise InvalidInputError(
                    f"a merge must keep the ids of fields, but the field {proto.id} is "
                    f"{'.'.join(old)!r}, and would become {'.'.join(new)!r}, which is the field "
                    f"{used[new]}: it would show the values of {'.'.join(old)!r}; make the schema "
                    "of dataset.lance_schema, whose fields have their ids"
                )
            if not proto.nullable and proto.id not in required:
                raise InvalidInputError(
                    f"a merge must not make the existing field {'.'.join(new)!r} required, which "
                    "can have nulls; use Dataset.alter_columns, which looks for nulls"
                )

    def _check_has_values(self, field_id: int, path: tuple[str, ...]) -> None:
        """Refuse another id for an existing field, if a fragment has no values of this id."""
        for fragment in self.fragments:
            if all(field_id not in file.fields for file in fragment.files):
                raise InvalidInputError(
                    f"the merge gives the existing field {'.'.join(path)!r} the id {field_id}, but "
                    f"fragment {fragment.id} has no file with this field, so its values would be "
                    "null; make the schema of dataset.lance_schema, whose fields have their ids"
                )


def _paths(fields: Iterable[file_pb2.Field]) -> dict[int, tuple[str, ...]]:
    """Return the path of each field by id, from messages in depth-first order."""
    paths: dict[int, tuple[str, ...]] = {}
    for proto in fields:
        paths[proto.id] = (*paths.get(proto.parent_id, ()), proto.name)
    return paths


# --------------------------------------------------------------------------------------------------
# DataReplacement: new data files for whole columns of fragments.
#
# | field of `DataReplacement` | content |
# | --- | --- |
# | replacements | for each fragment one file, which has all rows of the fragment |
#
# All files have the same columns. In older files of the fragments, the ids of these fields become
# -2, so that their values are no longer read. A file without other fields is removed from its
# fragment. Overlays of these columns that existed when the operation was planned are hidden in the
# same way. A column that was added without values gets values. Indexes on these columns no longer
# cover these fragments. Specification: table/commit/transaction.md.


@dataclass(frozen=True)
class DataReplacement(Operation):
    """Replace columns of fragments.

    - `replacements` (tuple of (int, DataFile)): Fragment id and new file.
    """

    name: ClassVar[str] = "data_replacement"

    replacements: tuple[tuple[int, DataFile], ...]

    @cached_property
    def touched_fragments(self) -> frozenset[int]:
        return frozenset(fragment_id for fragment_id, _ in self.replacements)

    @cached_property
    def modified_fields(self) -> frozenset[int]:
        return frozenset(field_id for _, file in self.replacements for field_id in file.fields)

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.DataReplacement, source: str
    ) -> DataReplacement:
        return cls(
            tuple(
                (group.fragment_id, DataFile.from_proto(group.new_file))
                for group in message.replacements
            )
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.data_replacement
        message.SetInParent()
        for fragment_id, file in self.replacements:
            message.replacements.add(fragment_id=fragment_id, new_file=file.to_proto())

    def conflict(self, committed: Operation) -> Conflict:
        name = committed.name
        if name in ("delete", "update") and self.touched_fragments & committed.removed_fragments:
            return Conflict.INCOMPATIBLE
        if committed.can_add_required_columns:
            return Conflict.RETRYABLE
        remaining = committed.remaining_fields or frozenset()
        if name == "project" and not self.modified_fields <= remaining:
            return Conflict.INCOMPATIBLE
        same_fragments = self.touched_fragments & committed.touched_fragments
        same_fields = self.modified_fields & committed.modified_fields
        if name == "update" and same_fragments and committed.moves_rows:
            return Conflict.RETRYABLE
        if name in ("update", self.name) and same_fragments and same_fields:
            return Conflict.RETRYABLE
        if name == "rewrite" and same_fragments:
            return Conflict.RETRYABLE
        if name == "create_index" and self.modified_fields & committed.indexed_fields:
            return Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Add the files to their fragments, and hide the replaced values.

        Raises CorruptTableError. Raises InvalidInputError: the files have different fields, or
        fields that the table does not have, or two files are for one fragment. Raises
        CommitConflictError: a fragment was removed.
        """
        self._check(builder)
        table_fields = {field.id for field in builder.proto.fields}
        for fragment_id, file in self.replacements:
            fragment = builder.fragment(fragment_id)
            if fragment is None:
                raise CommitConflictError(
                    f"fragment {fragment_id}, whose columns the change replaces, was removed; "
                    "plan the change again",
                    retryable=True,
                )
            _replace_columns(fragment, file, table_fields)
            schema_changes.hide_overlays(fragment, file.fields, builder.planned_on)
            if builder.stable_row_ids:
                schema_changes.note_change(fragment, builder.version)
        if builder.has_indices:
            index_updates.prune_fields(
                builder.indices, self.touched_fragments, self.modified_fields, builder.proto.fields
            )

    def _check(self, builder: ManifestBuilder) -> None:
        if len(self.touched_fragments) < len(self.replacements):
            raise InvalidInputError("a fragment has two files with new columns; give it one file")
        field_sets = {file.fields for _, file in self.replacements}
        if len(field_sets) > 1:
            raise InvalidInputError(
                f"the files have different fields: {', '.join(map(str, sorted(field_sets)))}; use "
                "one commit for each set of fields"
            )
        unknown = self.modified_fields - {field.id for field in builder.proto.fields}
        if unknown or () in field_sets:
            raise InvalidInputError(
                f"the files have the fields {sorted(unknown)}, which the table does not have"
                if unknown
                else "a file has no fields"
            )


def _replace_columns(
    fragment: table_pb2.DataFragment, new: DataFile, table_fields: Collection[int]
) -> None:
    replaced = frozenset(new.fields)
    for file in fragment.files:
        if replaced.isdisjoint(file.fields):
            continue
        has_same_layout = (
            tuple(file.fields) == new.fields
            and file.file_major_version == new.file_major_version
            and file.file_minor_version == new.file_minor_version
        )
        if has_same_layout:
            # The new file stands at the position of the old one.
            file.CopyFrom(new.to_proto())
            return
    for file in fragment.files:
        if DataFile.from_proto(file).version == (0, 1) and schema_changes.loses_first(
            file.fields, replaced
        ):
            raise UnsupportedFeatureError(
                f"data file {file.path} has file version 0.1 and would lose its first column but "
                "not the others, which pylance would then misread; replace all columns of the file"
            )
        file.fields[:] = [
            schema_changes.TOMBSTONE if field_id in replaced else field_id
            for field_id in file.fields
        ]
    files = [file for file in fragment.files if schema_changes.is_live(file, table_fields)]
    schema_changes.set_files(fragment, [*files, new.to_proto()])


# --------------------------------------------------------------------------------------------------
# DataOverlay: overlay files with new values of single cells of fragments.
#
# | field of `DataOverlay` | content |
# | --- | --- |
# | groups | for each fragment, the overlays to add above its existing overlays |
#
# The commit sets `committed_version` of each overlay. A table with overlays has feature flag 64. By
# default, other clients refuse such a table. Specification: table/commit/transaction.md.
#
# | committed meanwhile, in the same fragment | a raw operation | an exclusive operation |
# | --- | --- | --- |
# | delete, of any rows | kept | kept |
# | rows moved to other fragments | kept if it moved other rows | the same |
# | new values in place of the same rows | kept; the overlay hides them | planned again |
# | compaction, new columns, removal of the fragment | planned again | the same |

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
    exclusive: bool = dataclass_field(default=False, compare=False)

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


# --------------------------------------------------------------------------------------------------
# Project: a new schema over the same files, which drops, renames or reorders columns.
#
# | field of `Project` | content |
# | --- | --- |
# | schema | the new schema, with the existing field ids |
# | preserves_nullability | rows written for the old schema are valid under the new one |
#
# A project may also make columns nullable or required. Data files are not rewritten. The commit
# removes data files without a column of the schema, and indexes on removed columns. Metadata of the
# schema stays. Specification: table/commit/transaction.md.


@dataclass(frozen=True)
class Project(Operation):
    """Change only the schema.

    - `schema`: The messages must not be modified.
    - `preserves_nullability`: If false, rows that another client writes for the old schema at the
      same time cause a conflict.
    """

    name: ClassVar[str] = "project"

    schema: tuple[file_pb2.Field, ...]
    preserves_nullability: bool = False

    @cached_property
    def remaining_fields(self) -> frozenset[int]:
        return frozenset(field.id for field in self.schema)

    @property
    def can_add_required_columns(self) -> bool:
        return not self.preserves_nullability

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Project, source: str) -> Project:
        return cls(tuple(message.schema), message.preserves_nullability)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.project
        message.SetInParent()
        message.schema.extend(self.schema)
        message.preserves_nullability = self.preserves_nullability

    def conflict(self, committed: Operation) -> Conflict:
        if self.can_add_required_columns and committed.name in schema_changes.WRITES_ROWS:
            return Conflict.RETRYABLE
        if committed.metadata_targets - {SCHEMA_METADATA}:
            # The fields of this schema have the older metadata.
            return Conflict.REBASE
        return self.conflict_by_matrix(committed)

    def rebase(self, rebase: Rebase) -> Project:
        """Copy new metadata of fields whose metadata the projection does not change."""
        base = {field.id: field.metadata for field in rebase.base.message.fields}
        newest = {field.id: field.metadata for field in rebase.newest.message.fields}
        schema = []
        for field in self.schema:
            if field.id in newest and dict(field.metadata) == dict(base.get(field.id, {})):
                schema.append(_with_metadata(field, newest[field.id]))
            else:
                schema.append(field)
        return replace(self, schema=tuple(schema))

    def apply(self, builder: ManifestBuilder) -> None:
        """Change the schema.

        Raises CorruptTableError. Raises InvalidInputError: the schema is empty, or has a field that
        the table does not have, or that has another type there.
        """
        if not self.schema:
            raise InvalidInputError("a table must have at least one column")
        unknown = self.remaining_fields - {field.id for field in builder.proto.fields}
        if unknown:
            raise InvalidInputError(
                f"a projection has the fields {sorted(unknown)}, which the table does not have; a "
                "projection cannot add fields"
            )
        # The files and indexes stay, with values of the type before.
        schema_changes.check_new_fields(builder.proto, self.schema)
        schema_changes.set_fields(builder, self.schema)
        schema_changes.drop_dead_files(builder)
        schema_changes.drop_dead_indexes(builder)


def _with_metadata(field: file_pb2.Field, metadata: Mapping[str, bytes]) -> file_pb2.Field:
    changed = file_pb2.Field()
    changed.CopyFrom(field)
    changed.ClearField("metadata")
    changed.metadata.update(metadata)
    return changed

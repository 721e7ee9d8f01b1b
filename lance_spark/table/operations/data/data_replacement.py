"""DataReplacement: new data files for whole columns of fragments.

| field of `DataReplacement` | content |
| --- | --- |
| replacements | for each fragment one file, which has all rows of the fragment |

All files have the same columns. In older files of the fragments, the ids of these fields become -2,
so that their values are no longer read. A file without other fields is removed from its fragment.
Overlays of these columns that existed when the operation was planned are hidden in the same way. A
column that was added without values gets values. Indexes on these columns no longer cover these
fragments. Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from lance_spark.errors import CommitConflictError, InvalidInputError, UnsupportedFeatureError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation


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

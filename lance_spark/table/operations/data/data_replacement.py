"""DataReplacement: new data files for whole columns of fragments.

| field of `DataReplacement` | content |
| --- | --- |
| replacements | for each fragment a file, with as many rows as the fragment has, and all columns in it |

All files have the same columns. The columns' values in the files of before count no more: the
field's id becomes -2 there, and a file without any other goes out of the fragment. A column that
has no values yet, because it was added without, gets some. The same holds for overlays of the
columns that there were when it was planned. Indexes on them cover these fragments no more.
Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

KIND = "data_replacement"


@dataclass(frozen=True)
class DataReplacement(Operation):
    """Replace columns of fragments.

    Attributes
    ----------
    replacements : tuple of (int, DataFile)
        Fragment ids, and the file of each.
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

    replacements: tuple[tuple[int, DataFile], ...]

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @cached_property
    def touched_fragments(self) -> frozenset[int]:
        """Ids of the fragments that it changes."""
        return frozenset(number for number, _ in self.replacements)

    @cached_property
    def modified_fields(self) -> frozenset[int]:
        """Ids of fields whose values change."""
        return frozenset(field for _, file in self.replacements for field in file.fields)

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.DataReplacement, source: str
    ) -> DataReplacement:
        """Parse the message; `source` is what errors call its file.

        Raises
        ------
        CorruptTableError
        """
        return cls(
            tuple(
                (group.fragment_id, DataFile.from_proto(group.new_file))
                for group in message.replacements
            )
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        message = transaction.data_replacement
        message.SetInParent()
        for fragment_id, file in self.replacements:
            message.replacements.add(fragment_id=fragment_id, new_file=file.to_proto())

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        kind = committed.kind
        mine, theirs = self.touched_fragments, committed.touched_fragments
        if kind in ("delete", "update") and mine & committed.removed_fragments:
            return Conflict.INCOMPATIBLE
        if committed.can_add_required_columns:
            return Conflict.RETRYABLE
        if kind == "project" and not self.modified_fields <= (committed.kept_fields or frozenset()):
            return Conflict.INCOMPATIBLE
        if kind == "update" and mine & theirs and committed.moves_rows:
            return Conflict.RETRYABLE
        same_fields = self.modified_fields & committed.modified_fields
        if kind in ("update", KIND) and mine & theirs and same_fields:
            return Conflict.RETRYABLE
        if kind == "rewrite" and mine & theirs:
            return Conflict.RETRYABLE
        if kind == "create_index" and self.modified_fields & committed.indexed_fields:
            return Conflict.RETRYABLE
        return self.conflicts.get(kind, Conflict.RETRYABLE)

    def apply(self, draft: ManifestBuilder) -> None:
        """Put the files in.

        Raises
        ------
        InvalidInputError
            The files have different columns, or some that the table does not have, or two are for
            one fragment.
        CommitConflictError
            A fragment is not there.
        CorruptTableError
        """
        self._check(draft)
        kept = {field.id for field in draft.proto.fields}
        for fragment_id, file in self.replacements:
            fragment = draft.fragment(fragment_id)
            if fragment is None:
                raise CommitConflictError(
                    f"the table has no fragment {fragment_id}, whose columns are to be replaced",
                    retryable=True,
                )
            _replace(fragment, file, kept)
            schema_changes.hide_overlays(fragment, file.fields, draft.planned_on)
            if draft.stable_row_ids:
                schema_changes.note_change(fragment, draft.version)
        if draft.has_indices:
            index_updates.prune_fields(
                draft.indices, self.touched_fragments, self.modified_fields, draft.proto.fields
            )

    def _check(self, draft: ManifestBuilder) -> None:
        if len(self.touched_fragments) < len(self.replacements):
            raise InvalidInputError("columns of a fragment are replaced by one file, not by two")
        layouts = {file.fields for _, file in self.replacements}
        if len(layouts) > 1:
            raise InvalidInputError(
                f"the files have different fields: {', '.join(map(str, sorted(layouts)))}; use a "
                "commit for each"
            )
        unknown = self.modified_fields - {field.id for field in draft.proto.fields}
        if unknown or () in layouts:
            raise InvalidInputError(
                f"the files have the fields {sorted(unknown)}, which the table does not have"
                if unknown
                else "a file has no fields"
            )


def _replace(fragment: table_pb2.DataFragment, new: DataFile, kept: Collection[int]) -> None:
    replaced = frozenset(new.fields)
    for file in fragment.files:
        if replaced.isdisjoint(file.fields):
            continue
        same = (
            tuple(file.fields) == new.fields
            and file.file_major_version == new.file_major_version
            and file.file_minor_version == new.file_minor_version
        )
        if same:
            # The file keeps its place.
            file.CopyFrom(new.to_proto())
            return
    for file in fragment.files:
        if DataFile.from_proto(file).version == (0, 1) and schema_changes.loses_first(
            file.fields, replaced
        ):
            raise UnsupportedFeatureError(
                f"data file {file.path} is of version 0.1 and would lose its first column alone, "
                "without which pylance "
                "misreads the others; replace all columns of the file"
            )
        left = [schema_changes.TOMBSTONE if field in replaced else field for field in file.fields]
        file.fields[:] = left
    files = [file for file in fragment.files if schema_changes.is_live(file, kept)]
    schema_changes.set_files(fragment, [*files, new.to_proto()])

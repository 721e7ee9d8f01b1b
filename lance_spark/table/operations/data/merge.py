"""Merge: a new schema, with new data files for new columns of all fragments.

| field of `Merge` | content |
| --- | --- |
| fragments | all fragments of the new version: existing with their new files, then new fragments |
| schema | the new schema; new fields have ids that no field ever had |
| schema_metadata | keys to set in the metadata of the schema |
| preserves_nullability | rows written for the old schema are valid under the new one |

Fragments keep their rows. With stable row ids, the rows of fragments with new files count as
updated. New fragments have id 0; the commit assigns ids and row ids. The commit removes data files
without a column of the schema, and indexes on removed columns. Specification:
table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from lance_spark.errors import InvalidInputError
from lance_spark.proto import file_pb2, transaction_pb2
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation
from lance_spark.table.operations.data.row_deletions import check_no_rows_return


@dataclass(frozen=True)
class Merge(Operation):
    """Change the schema, and the data files of fragments.

    Attributes
    ----------
    fragments : tuple of Fragment
        The fragments of the table in their order, then new fragments.
    schema : tuple of file_pb2.Field
        The messages must not be modified.
    preserves_nullability : bool
        If false, rows that another client writes for the old schema at the same time cause a
        conflict.
    """

    name: ClassVar[str] = "merge"

    fragments: tuple[Fragment, ...]
    schema: tuple[file_pb2.Field, ...]
    schema_metadata: Mapping[str, bytes] = field(default_factory=dict)
    preserves_nullability: bool = False

    @cached_property
    def remaining_fields(self) -> frozenset[int]:
        return frozenset(field.id for field in self.schema)

    @property
    def can_add_required_columns(self) -> bool:
        return not self.preserves_nullability

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

        Raises
        ------
        InvalidInputError
            Fragments of the table are missing or changed, or a new field has an id that another
            field has or had.
        CorruptTableError
        """
        if not self.schema:
            raise InvalidInputError("a table must have at least one column")
        count = len(builder.proto.fragments)
        old, new = self.fragments[:count], self.fragments[count:]
        self._check_fragments(builder, old, new)
        schema_changes.check_new_fields(builder.proto, self.schema)
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

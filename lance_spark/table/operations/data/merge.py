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

from collections.abc import Iterable, Mapping
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
    schema_metadata: Mapping[str, bytes] = field(default_factory=dict)
    preserves_nullability: bool = False
    by_user: bool = field(default=False, compare=False)

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

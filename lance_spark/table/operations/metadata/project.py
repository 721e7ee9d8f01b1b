"""Project: a new schema over the same files, which drops, renames or reorders columns.

| field of `Project` | content |
| --- | --- |
| schema | the new schema, with the existing field ids |
| preserves_nullability | rows written for the old schema are valid under the new one |

A project may also make columns nullable or required. Data files are not rewritten. The commit
removes data files without a column of the schema, and indexes on removed columns. Metadata of the
schema stays. Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from lance_spark.errors import InvalidInputError
from lance_spark.proto import file_pb2, transaction_pb2
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import SCHEMA_METADATA, Conflict, Operation, Rebase


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

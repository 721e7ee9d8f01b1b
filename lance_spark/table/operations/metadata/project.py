"""Project: another schema over the same files: columns are dropped, renamed, reordered, or may be
null.

| field of `Project` | content |
| --- | --- |
| schema | the columns there are afterwards, with the field ids that they have |
| preserves_nullability | no column becomes one that rows written for the schema of before could break |

Data files are not rewritten. Those that no column is left of go out of their fragments; indexes on
columns that are gone go too. Metadata of the schema stays. Specification:
table/commit/transaction.md.
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
from lance_spark.table.operations.base import (
    SCHEMA_METADATA,
    Conflict,
    Operation,
    Rebase,
)

KIND = "project"


@dataclass(frozen=True)
class Project(Operation):
    """Change the schema alone.

    Attributes
    ----------
    schema : tuple of file_pb2.Field
        Nobody changes the messages any more.
    preserves_nullability : bool
        Without this promise, no rows that were written meanwhile for the schema of before are
        accepted.
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
        "project": Conflict.RETRYABLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.COMPATIBLE,
        "update_mem_wal_state": Conflict.INCOMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.COMPATIBLE,
    }

    schema: tuple[file_pb2.Field, ...]
    preserves_nullability: bool = False

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @cached_property
    def kept_fields(self) -> frozenset[int]:
        """Ids of the fields that there are afterwards."""
        return frozenset(item.id for item in self.schema)

    @property
    def can_add_required_columns(self) -> bool:
        """Whether columns could come in, or become such, that rows written without them break."""
        return not self.preserves_nullability

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Project, source: str) -> Project:
        """Parse the message; `source` is what errors call its file."""
        return cls(tuple(message.schema), message.preserves_nullability)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        message = transaction.project
        message.SetInParent()
        message.schema.extend(self.schema)
        message.preserves_nullability = self.preserves_nullability

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if self.can_add_required_columns and committed.kind in schema_changes.WRITES_ROWS:
            return Conflict.RETRYABLE
        if committed.metadata_targets - {SCHEMA_METADATA}:
            # The schema here was planned with the metadata that its fields had before.
            return Conflict.REBASE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def rebase(self, rebase: Rebase) -> Project:
        """Take over what became of the metadata of fields, where the projection leaves it alone."""
        before = {item.id: item.metadata for item in rebase.base.message.fields}
        after = {item.id: item.metadata for item in rebase.newest.message.fields}
        schema = []
        for item in self.schema:
            if item.id in after and dict(item.metadata) == dict(before.get(item.id, {})):
                schema.append(_with_metadata(item, after[item.id]))
            else:
                schema.append(item)
        return replace(self, schema=tuple(schema))

    def apply(self, draft: ManifestBuilder) -> None:
        """Change the schema.

        Raises
        ------
        InvalidInputError
            There is no column, or one that the table does not have.
        CorruptTableError
        """
        if not self.schema:
            raise InvalidInputError("a table has at least one column")
        unknown = self.kept_fields - {field.id for field in draft.proto.fields}
        if unknown:
            raise InvalidInputError(
                f"a projection has the fields {sorted(unknown)}, which the table does not have; it "
                "writes no data for them"
            )
        schema_changes.set_fields(draft, self.schema)
        schema_changes.drop_dead_files(draft)
        schema_changes.drop_dead_indexes(draft)


def _with_metadata(one: file_pb2.Field, metadata: Mapping[str, bytes]) -> file_pb2.Field:
    changed = file_pb2.Field()
    changed.CopyFrom(one)
    changed.ClearField("metadata")
    for key, value in metadata.items():
        changed.metadata[key] = value
    return changed

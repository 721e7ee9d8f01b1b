"""Merge: another schema, with new data files for new columns of all fragments.

| field of `Merge` | content |
| --- | --- |
| fragments | all fragments of the new version: those there are, with their new files, and new ones behind them |
| schema | the columns there are afterwards; new ones have ids that no field ever had |
| schema_metadata | set beside what the schema has |
| preserves_nullability | rows written for the schema of before stay valid |

Fragments keep their rows; with stable row ids, those of fragments with new files count as changed.
New fragments, of the id 0, get ids and row ids from the commit. Data files that no column is left
of go out of their fragments; indexes on columns that are gone go too. Specification:
table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from lance_spark.errors import InvalidInputError
from lance_spark.proto import file_pb2, transaction_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation

KIND = "merge"


@dataclass(frozen=True)
class Merge(Operation):
    """Change the schema, and the files of fragments with it.

    Attributes
    ----------
    fragments : tuple of Fragment
        Those of the table, in its order, then new ones.
    schema : tuple of file_pb2.Field
        Nobody changes the messages any more.
    schema_metadata : mapping of str to bytes
    preserves_nullability : bool
        Without this promise, no rows that were written meanwhile for the schema of before are
        accepted.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.RETRYABLE,
        "delete": Conflict.RETRYABLE,
        "overwrite": Conflict.INCOMPATIBLE,
        "create_index": Conflict.COMPATIBLE,
        "rewrite": Conflict.RETRYABLE,
        "merge": Conflict.RETRYABLE,
        "restore": Conflict.INCOMPATIBLE,
        "reserve_fragments": Conflict.COMPATIBLE,
        "update": Conflict.RETRYABLE,
        "project": Conflict.INCOMPATIBLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.RETRYABLE,
        "update_mem_wal_state": Conflict.INCOMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.RETRYABLE,
    }

    fragments: tuple[Fragment, ...]
    schema: tuple[file_pb2.Field, ...]
    schema_metadata: Mapping[str, bytes] = field(default_factory=dict)
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
    def from_proto(cls, message: transaction_pb2.Transaction.Merge, source: str) -> Merge:
        """Parse the message; `source` is what errors call its file."""
        return cls(
            fragments=tuple(Fragment.from_proto(proto, source) for proto in message.fragments),
            schema=tuple(message.schema),
            schema_metadata=dict(message.schema_metadata),
            preserves_nullability=message.preserves_nullability,
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        message = transaction.merge
        message.SetInParent()
        message.fragments.extend(fragment.to_proto() for fragment in self.fragments)
        message.schema.extend(self.schema)
        for key, value in self.schema_metadata.items():
            message.schema_metadata[key] = value
        message.preserves_nullability = self.preserves_nullability

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if committed.kind == "update_config" and committed.metadata_targets:
            # The schema here was planned with the metadata of before.
            return Conflict.RETRYABLE
        if any(index.name == indexes.MEM_WAL for index in committed.new_indexes):
            return Conflict.RETRYABLE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def apply(self, draft: ManifestBuilder) -> None:
        """Change schema and fragments.

        Raises
        ------
        InvalidInputError
            The fragments are not those of the table, or a new field has the id of one that there is
            or was.
        CorruptTableError
        """
        if not self.schema:
            raise InvalidInputError("a table has at least one column")
        there = len(draft.proto.fragments)
        old, new = self.fragments[:there], self.fragments[there:]
        self._check_fragments(draft, old, new)
        schema_changes.check_new_fields(draft.proto, self.schema)
        schema_changes.set_fields(draft, self.schema)
        for key, value in self.schema_metadata.items():
            draft.proto.schema_metadata[key] = value
        before = {
            fragment.id: {file.path for file in fragment.files}
            for fragment in draft.proto.fragments
        }
        draft.replace_fragments(old)
        if draft.stable_row_ids:
            for fragment in draft.proto.fragments:
                if any(file.path not in before[fragment.id] for file in fragment.files):
                    schema_changes.note_change(fragment, draft.version)
        if draft.has_indices and draft.base is not None:
            replaced, now = draft.base.message.fragments, draft.proto.fragments
            index_updates.prune_rewritten_columns(draft.indices, replaced, now, draft.proto.fields)
        if new:
            draft.add_fragments(new)
        schema_changes.drop_dead_files(draft)
        schema_changes.drop_dead_indexes(draft)

    def _check_fragments(
        self, draft: ManifestBuilder, old: tuple[Fragment, ...], new: tuple[Fragment, ...]
    ) -> None:
        given = {fragment.id: fragment for fragment in old}
        if len(given) < len(old):
            raise InvalidInputError("a merge lists a fragment twice")
        for proto in draft.proto.fragments:
            fragment = given.get(proto.id)
            if fragment is None:
                raise InvalidInputError(
                    f"a merge lists all fragments of the table first, but fragment {proto.id} is "
                    "not among the first "
                    f"{len(old)}; removing fragments is a delete"
                )
            merged = fragment.to_proto()
            if merged.physical_rows != proto.physical_rows:
                raise InvalidInputError(
                    f"a merge keeps the rows of a fragment, but fragment {proto.id} with "
                    f"{proto.physical_rows} rows would "
                    f"have {merged.physical_rows}"
                )
            if merged.WhichOneof("row_id_sequence") != proto.WhichOneof("row_id_sequence"):
                raise InvalidInputError(f"a merge keeps the row ids of fragment {proto.id}")
        if any(fragment.id for fragment in new):
            raise InvalidInputError(
                "new fragments of a merge have the id 0; the commit numbers them"
            )

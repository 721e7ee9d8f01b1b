"""Append: new fragments behind the fragments of the newest version.

| field of `Append` | content |
| --- | --- |
| fragments | the new fragments; their ids are 0 until the commit assigns ids |

An append is compatible with every change that does not change the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.proto import file_pb2, transaction_pb2
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment, check_new
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation, Rebase

#: Field ids, by path.
FieldPaths = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class Append(Operation):
    """Add fragments.

    - `planned_fields`: Paths and ids of the fields of the new rows; by default the ids that their
      files name. Not part of the transaction. If another client changes the type of a column, the
      column gets a new id. Without these paths, the values of the new rows would be lost, as in
      pylance.
    - `dropped_fields`: Ids of planned fields that another client dropped. The append fails if a new
      column has such an id, because the column would show the values of the dropped one. Not part
      of the transaction.
    """

    name: ClassVar[str] = "append"

    fragments: tuple[Fragment, ...]
    planned_fields: FieldPaths | None = field(default=None, compare=False)
    dropped_fields: frozenset[int] = field(default=frozenset(), compare=False)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Append, source: str) -> Append:
        return cls(tuple(Fragment.from_proto(proto, source) for proto in message.fragments))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.append.SetInParent()
        transaction.append.fragments.extend(fragment.to_proto() for fragment in self.fragments)

    def conflict(self, committed: Operation) -> Conflict:
        if committed.can_add_required_columns:
            return Conflict.RETRYABLE
        outcome = self.conflict_by_matrix(committed)
        if outcome is Conflict.COMPATIBLE and self._dropped_by(committed):
            return Conflict.REBASE
        return outcome

    def _dropped_by(self, committed: Operation) -> frozenset[int]:
        if committed.remaining_fields is None:
            return frozenset()
        return self._written_fields() - committed.remaining_fields

    def _written_fields(self) -> frozenset[int]:
        if self.planned_fields is not None:
            return frozenset(self.planned_fields.values())
        files = (file for fragment in self.fragments for file in fragment.files)
        return frozenset(number for file in files for number in file.fields if number >= 0)

    def rebase(self, rebase: Rebase) -> Append:
        """Record the columns that other clients have dropped.

        Raises CommitConflictError: the type of a column was changed.
        """
        dropped = self.dropped_fields
        for committed in rebase.committed:
            missing = self._dropped_by(committed) - dropped
            # A merge does not drop columns. If it lacks a field id, it changed the type of the
            # column, whose values have a new id.
            if missing and committed.name == "merge":
                raise self._type_changed(missing)
            dropped |= missing
        return replace(self, dropped_fields=dropped)

    def _type_changed(self, ids: frozenset[int]) -> CommitConflictError:
        paths = [path for path, planned in (self.planned_fields or {}).items() if planned in ids]
        column = f"column {'.'.join(min(paths))!r}" if paths else f"the column of field {min(ids)}"
        return CommitConflictError(
            f"the type of {column} was changed after the rows were written; write them again",
            retryable=True,
        )

    def apply(self, builder: ManifestBuilder) -> None:
        """Add the fragments.

        Raises InvalidInputError. Raises CommitConflictError: the type of a column was changed, or a
        new column has the id of a dropped one.
        """
        if self.planned_fields is not None:
            current = field_paths(builder.proto.fields)
            for path, planned in self.planned_fields.items():
                if current.get(path, planned) != planned:
                    raise self._type_changed(frozenset([planned]))
        reused = self.dropped_fields.intersection(field.id for field in builder.proto.fields)
        if reused:
            raise CommitConflictError(
                f"columns with the field ids {sorted(reused)} were dropped after the rows were "
                "written, and other columns have these ids now; write the rows again",
                retryable=True,
            )
        self._check_row_ids(builder)
        builder.add_fragments(self.fragments)

    def _check_row_ids(self, builder: ManifestBuilder) -> None:
        """Refuse rows that have row ids of live rows, or row ids that no row has had yet.

        Only fragments that a user takes from an older version have row ids. Raises
        InvalidInputError, CorruptTableError, CorruptFileError, MissingFileError, StorageError.
        """
        old = [fragment for fragment in self.fragments if fragment.has_lineage(Lineage.ROW_IDS)]
        if not old or not builder.stable_row_ids or builder.paths is None:
            return
        # Imported here because it imports numpy, which other appends do not need.
        from lance_spark.table.rows.ids import row_ids_of
        from lance_spark.table.rows.index import RowIndex

        for fragment in old:
            check_new(fragment, builder.proto.fragments)
        existing = Fragment.from_protos(builder.proto.fragments, "the table")
        index = RowIndex.build(builder.paths, existing)
        for fragment in old:
            ids = row_ids_of(fragment, builder.paths)
            if ids is None or not len(ids):
                continue
            is_live, _ = index.addresses(ids)
            if is_live.any() or int(ids.max()) >= builder.proto.next_row_id:
                raise InvalidInputError(
                    f"an append has fragment {fragment.id} of an older version, whose row ids "
                    f"belong to live rows, such as {int(ids[is_live.argmax()])}; write copies of "
                    "the rows with write_fragments"
                    if is_live.any()
                    else f"an append has the row id {int(ids.max())}, which the table has not "
                    "assigned; write copies of the rows with write_fragments"
                )


def field_paths(fields: Iterable[file_pb2.Field]) -> dict[tuple[str, ...], int]:
    """Return the ids of fields by path, from their messages in depth-first order."""
    paths: dict[int, tuple[str, ...]] = {}
    for proto in fields:
        paths[proto.id] = (*paths.get(proto.parent_id, ()), proto.name)
    return {path: field_id for field_id, path in paths.items()}

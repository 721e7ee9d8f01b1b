"""Append: new fragments behind those of the newest version.

| field of `Append` | content |
| --- | --- |
| fragments | the new fragments; their ids are 0 until the commit gives them some |

The rows hold on top of every change that leaves the schema's columns and their meaning alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from lance_spark.errors import CommitConflictError
from lance_spark.proto import file_pb2, transaction_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation, Rebase

KIND = "append"
#: Field ids, by path.
FieldPaths = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class Append(Operation):
    """Add fragments.

    Attributes
    ----------
    fragments : tuple of Fragment
    planned_fields : mapping of tuple of str to int, optional
        The fields that the fragments have, with the ids they are written under; by default those
        that their files name. Not part of the transaction. A column that was given another type
        meanwhile has another id: without this check its values would be lost, as pylance loses
        them.
    dropped_fields : frozenset of int
        Those of them that others have dropped meanwhile. Their ids can be given again, to columns
        that must not show what the fragments have under them. Not part of the transaction.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.COMPATIBLE,
        "delete": Conflict.COMPATIBLE,
        "overwrite": Conflict.INCOMPATIBLE,
        "create_index": Conflict.COMPATIBLE,
        "rewrite": Conflict.COMPATIBLE,
        "merge": Conflict.COMPATIBLE,
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

    fragments: tuple[Fragment, ...]
    planned_fields: FieldPaths | None = field(default=None, compare=False)
    dropped_fields: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Append, source: str) -> Append:
        """Parse the message; `source` is what errors call its file."""
        return cls(tuple(Fragment.from_proto(proto, source) for proto in message.fragments))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        transaction.append.SetInParent()
        transaction.append.fragments.extend(fragment.to_proto() for fragment in self.fragments)

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if committed.can_add_required_columns:
            return Conflict.RETRYABLE
        answer = self.conflicts.get(committed.kind, Conflict.RETRYABLE)
        if answer is Conflict.COMPATIBLE and self._dropped_by(committed):
            return Conflict.REBASE
        return answer

    def _dropped_by(self, committed: Operation) -> frozenset[int]:
        if committed.kept_fields is None:
            return frozenset()
        return self._written_fields() - committed.kept_fields

    def _written_fields(self) -> frozenset[int]:
        if self.planned_fields is not None:
            return frozenset(self.planned_fields.values())
        files = (file for fragment in self.fragments for file in fragment.files)
        return frozenset(number for file in files for number in file.fields if number >= 0)

    def rebase(self, rebase: Rebase) -> Append:
        """Remember which columns others have dropped.

        Raises
        ------
        CommitConflictError
            A column was given another type, and another name with it perhaps.
        """
        dropped = self.dropped_fields
        for committed in rebase.committed:
            gone = self._dropped_by(committed) - dropped
            # A merge drops no column: one that it does not have any more has its values under
            # another id now.
            if gone and committed.kind == "merge":
                raise self._given_another_type(gone)
            dropped |= gone
        return replace(self, dropped_fields=dropped)

    def _given_another_type(self, ids: frozenset[int]) -> CommitConflictError:
        paths = [path for path, planned in (self.planned_fields or {}).items() if planned in ids]
        what = f"column {'.'.join(min(paths))!r}" if paths else f"the column of field {min(ids)}"
        return CommitConflictError(
            f"{what} was given another type since the rows were written; write them again",
            retryable=True,
        )

    def apply(self, draft: ManifestBuilder) -> None:
        """Add the fragments.

        Raises
        ------
        CommitConflictError
            A column has become another one.
        InvalidInputError
        """
        if self.planned_fields is not None:
            current = field_paths(draft.proto.fields)
            for path, planned in self.planned_fields.items():
                if current.get(path, planned) != planned:
                    raise self._given_another_type(frozenset([planned]))
        again = self.dropped_fields.intersection(one.id for one in draft.proto.fields)
        if again:
            raise CommitConflictError(
                f"columns with the field ids {sorted(again)} were dropped since the rows were "
                "written, and other columns have "
                "these ids now; write the rows again",
                retryable=True,
            )
        draft.add_fragments(self.fragments)


def field_paths(fields: Iterable[file_pb2.Field]) -> dict[tuple[str, ...], int]:
    """Return the ids of fields by path, from their messages in depth-first order."""
    paths: dict[int, tuple[str, ...]] = {}
    for one in fields:
        paths[one.id] = (*paths.get(one.parent_id, ()), one.name)
    return {path: number for number, path in paths.items()}

"""UpdateBases: more roots that files of the table may lie below, or other paths of those that it
has.

| field of `UpdateBases` | content |
| --- | --- |
| new_bases | the roots; those of the id 0 get the first free ones from 1 on |

Names and paths are unique within a table, and so are ids. Specification:
table/commit/transaction.md.

The message has no field that says whether a root is new. pylance builds the next manifest by ids: a
root with an id that the table has takes the place of that one. So a root gets another path by the
same message (`replaces`). Older versions keep the path that they have. To other changes it does not
look like a contradiction, in pylance neither; here, a change that was planned with the old path is
planned again (`lance_spark.table.commit.commit`), and so is this one, whatever was committed
meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from lance_spark.errors import InvalidInputError
from lance_spark.proto import transaction_pb2
from lance_spark.storage.uri import parse_uri
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation
from lance_spark.table.paths import BasePath

KIND = "update_bases"


@dataclass(frozen=True, slots=True)
class UpdateBases(Operation):
    """Add roots, or give roots other paths.

    Attributes
    ----------
    new_bases : tuple of BasePath
    replaces : bool
        Whether they take the places of those with the same ids; not part of the message.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.COMPATIBLE,
        "delete": Conflict.COMPATIBLE,
        "overwrite": Conflict.COMPATIBLE,
        "create_index": Conflict.COMPATIBLE,
        "rewrite": Conflict.COMPATIBLE,
        "merge": Conflict.COMPATIBLE,
        "restore": Conflict.COMPATIBLE,
        "reserve_fragments": Conflict.COMPATIBLE,
        "update": Conflict.COMPATIBLE,
        "project": Conflict.COMPATIBLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.COMPATIBLE,
        "update_mem_wal_state": Conflict.COMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.COMPATIBLE,
    }

    new_bases: tuple[BasePath, ...]
    replaces: bool = False

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.UpdateBases, source: str
    ) -> UpdateBases:
        """Parse the message; `source` is what errors call its file."""
        return cls(tuple(BasePath.from_proto(proto) for proto in message.new_bases))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        transaction.update_bases.SetInParent()
        transaction.update_bases.new_bases.extend(base.to_proto() for base in self.new_bases)

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if isinstance(committed, UpdateBases) and any(
            _meet(mine, theirs) for mine in self.new_bases for theirs in committed.new_bases
        ):
            return Conflict.INCOMPATIBLE
        if self.replaces:
            # It was looked for the files of another version.
            return Conflict.RETRYABLE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def apply(self, draft: ManifestBuilder) -> None:
        """Add the roots.

        Raises
        ------
        InvalidInputError
            There is one of that name, path or id.
        """
        if self.replaces:
            self._replace(draft)
            return
        there = [BasePath.from_proto(proto) for proto in draft.proto.base_paths]
        for base in self.new_bases:
            for other in there:
                if _meet(base, other):
                    raise InvalidInputError(
                        f"base path {base.name or parse_uri(base.path).display!r}: the table has "
                        "one of that name, path or id: "
                        f"{other.id}, {other.name!r}, {parse_uri(other.path).display}"
                    )
            added = base.to_proto()
            if not added.id:
                taken = {other.id for other in there}
                added.id = next(number for number in count(1) if number not in taken)
            draft.proto.base_paths.append(added)
            there.append(BasePath.from_proto(added))

    def _replace(self, draft: ManifestBuilder) -> None:
        protos = {proto.id: proto for proto in draft.proto.base_paths}
        for base in self.new_bases:
            proto = protos.get(base.id)
            if proto is None:
                raise InvalidInputError(f"the table has no base path with the id {base.id}")
            others = [BasePath.from_proto(item) for item in protos.values() if item.id != base.id]
            for other in others:
                if _meet(base, other):
                    raise InvalidInputError(
                        f"base path {base.id}: the table has another one of that name or path: "
                        f"{other.id}, {other.name!r}"
                    )
            proto.CopyFrom(base.to_proto())


def _meet(one: BasePath, other: BasePath) -> bool:
    return bool(
        (one.id and one.id == other.id)
        or (one.name is not None and one.name == other.name)
        or one.path == other.path
    )

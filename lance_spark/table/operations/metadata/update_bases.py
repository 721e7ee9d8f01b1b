"""UpdateBases: base paths are added to the table, or get other paths.

| field of `UpdateBases` | content |
| --- | --- |
| new_bases | the base paths; a base path with id 0 gets the first unused id from 1 on |

Ids, names and paths are unique within a table. Specification: table/commit/transaction.md.

The message does not say whether a base path is new. In pylance, a base path with an existing id
replaces the existing one. This package gives a base path another path by the same message
(`replaces`). Older versions keep the old path. The conflict matrix, like pylance, has no conflict
for this change. But a change that was planned with the old path is planned again
(`lance_spark.table.commit.commit`), and so is a replacement after any other change.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from lance_spark.errors import InvalidInputError
from lance_spark.proto import transaction_pb2
from lance_spark.storage.uri import parse_uri
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation
from lance_spark.table.paths import BasePath


@dataclass(frozen=True, slots=True)
class UpdateBases(Operation):
    """Add or replace base paths.

    - `replaces`: Whether they replace the base paths with the same ids. Not part of the
      transaction.
    """

    name: ClassVar[str] = "update_bases"

    new_bases: tuple[BasePath, ...]
    replaces: bool = False

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.UpdateBases, source: str
    ) -> UpdateBases:
        return cls(tuple(BasePath.from_proto(proto) for proto in message.new_bases))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.update_bases.SetInParent()
        transaction.update_bases.new_bases.extend(base.to_proto() for base in self.new_bases)

    def conflict(self, committed: Operation) -> Conflict:
        if isinstance(committed, UpdateBases) and any(
            _is_duplicate(mine, theirs) for mine in self.new_bases for theirs in committed.new_bases
        ):
            return Conflict.INCOMPATIBLE
        if self.replaces:
            # The plan has checked that the files of an older version exist below the new path.
            return Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Add or replace the base paths.

        Raises InvalidInputError: the table has a base path with the same name, path or id.
        """
        if self.replaces:
            self._replace_bases(builder)
            return
        existing = [BasePath.from_proto(proto) for proto in builder.proto.base_paths]
        for base in self.new_bases:
            for other in existing:
                if _is_duplicate(base, other):
                    raise InvalidInputError(
                        f"base path {base.name or parse_uri(base.path).display!r}: the table "
                        "already has one with the same name, path or id: "
                        f"{other.id}, {other.name!r}, {parse_uri(other.path).display}"
                    )
            added = base.to_proto()
            if not added.id:
                used = {other.id for other in existing}
                added.id = next(base_id for base_id in count(1) if base_id not in used)
            builder.proto.base_paths.append(added)
            existing.append(BasePath.from_proto(added))

    def _replace_bases(self, builder: ManifestBuilder) -> None:
        protos = {proto.id: proto for proto in builder.proto.base_paths}
        for base in self.new_bases:
            proto = protos.get(base.id)
            if proto is None:
                raise InvalidInputError(f"the table has no base path with the id {base.id}")
            others = [
                BasePath.from_proto(other_proto)
                for other_proto in protos.values()
                if other_proto.id != base.id
            ]
            for other in others:
                if _is_duplicate(base, other):
                    raise InvalidInputError(
                        f"base path {base.id}: the table has another one with the same name or "
                        f"path: {other.id}, {other.name!r}"
                    )
            proto.CopyFrom(base.to_proto())


def _is_duplicate(base: BasePath, other: BasePath) -> bool:
    return bool(
        (base.id and base.id == other.id)
        or (base.name is not None and base.name == other.name)
        or base.path == other.path
    )

"""Restore: the content of an older version becomes the newest version.

| field of `Restore` | content |
| --- | --- |
| version | the version to restore |

Schema, fragments, indexes, configuration, metadata and base paths are restored. The counters of
fragment ids, row ids and field ids are not: new ids still follow the greatest ids ever used.
Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.proto import transaction_pb2
from lance_spark.table.manifest import flags
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.codec import check_identity
from lance_spark.table.operations.base import Conflict, Operation


@dataclass(frozen=True, slots=True)
class Restore(Operation):
    """Make an older version the newest.

    - `identity`: `Manifest.identity` of that version, to detect that another version has its number
      now. Not part of the transaction.
    """

    name: ClassVar[str] = "restore"

    version: int
    identity: tuple[int, str | None] | None = field(default=None, compare=False)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Restore, source: str) -> Restore:
        return cls(message.version)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.restore.version = self.version
        transaction.restore.SetInParent()

    def conflict(self, committed: Operation) -> Conflict:
        if committed.metadata_targets:
            # The restore would silently undo the change of the metadata.
            return Conflict.INCOMPATIBLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Replace the content of the table with the content of the version.

        Raises CorruptTableError, StorageError. Raises VersionNotFoundError: the version was removed
        by cleanup, or never existed, or another version has its number. Raises
        UnsupportedFeatureError: the version needs a feature that this release does not have, or
        lacks a feature that the table cannot give up.
        """
        restored = builder.read_version(self.version)
        check_identity(restored.name, restored, self.identity)
        restored.check_writable(restored.name)
        lost = 0 if builder.base is None else builder.base.flags.writer & ~restored.flags.writer
        if lost & flags.STABLE_FIELD_IDS:
            raise UnsupportedFeatureError(
                f"{restored.name}: version {self.version} cannot be restored: the table now never "
                "reuses a field id, and that version does not record which field ids were used; "
                "restore a version with writer flag 32768"
            )
        builder.restore(restored)

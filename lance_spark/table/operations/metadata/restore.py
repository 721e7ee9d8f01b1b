"""Restore: what an older version holds becomes the newest version.

| field of `Restore` | content |
| --- | --- |
| version | the version to restore |

Schema, fragments, indexes, configuration, metadata and base paths are those of that version. Ids
are not: those of fragments, rows and fields go on after the greatest ones ever given.
Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.proto import transaction_pb2
from lance_spark.table.manifest import flags
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.codec import check_identity
from lance_spark.table.operations.base import Conflict, Operation

KIND = "restore"


@dataclass(frozen=True, slots=True)
class Restore(Operation):
    """Make an older version the newest.

    Attributes
    ----------
    version : int
    identity : (int, str or None) or None
        `Manifest.identity` of that version, if it is known. Not stored.
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
        "update_mem_wal_state": Conflict.INCOMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.COMPATIBLE,
    }

    version: int
    identity: tuple[int, str | None] | None = field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Restore, source: str) -> Restore:
        """Parse the message; `source` is what errors call its file."""
        return cls(message.version)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        transaction.restore.version = self.version
        transaction.restore.SetInParent()

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if committed.metadata_targets:
            # It would be undone unseen.
            return Conflict.INCOMPATIBLE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def apply(self, draft: ManifestBuilder) -> None:
        """Put the version's content in the place of what there is.

        Raises
        ------
        VersionNotFoundError
            The version has been cleaned up, or never was; or it is another one of that number.
        UnsupportedFeatureError
            The version needs more than this release does, or is older than a decision that cannot
            be taken back.
        CorruptTableError, StorageError
        """
        restored = draft.read_version(self.version)
        check_identity(restored.name, restored, self.identity)
        restored.check_writable(restored.name)
        fixed = flags.STABLE_FIELD_IDS
        if draft.base is not None and draft.base.flags.writer & ~restored.flags.writer & fixed:
            raise UnsupportedFeatureError(
                f"{restored.name}: version {self.version} cannot be restored: since then the table "
                "has promised never to use "
                "a field id again, and in that version nobody noted which ones there were"
            )
        draft.restore(restored)

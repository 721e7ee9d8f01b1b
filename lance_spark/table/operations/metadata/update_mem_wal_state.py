"""UpdateMemWalState: records which SSTables of the MemWAL are now in the table.

| field of `UpdateMemWalState` | content |
| --- | --- |
| compacted_sstables | for each shard, the newest generation that is in the table |

Compactions here record their progress with an `Update`, because appends of other clients are
incompatible with this operation. Specification: table/mem_wal.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.subjects import MEM_WAL_PROGRESS, load
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation


@dataclass(frozen=True)
class UpdateMemWalState(Operation):
    """Record the generations of the MemWAL that are in the table.

    Attributes
    ----------
    compacted_sstables : tuple of table_pb2.CompactedSsTable
        The messages must not be modified.
    """

    name: ClassVar[str] = "update_mem_wal_state"

    compacted_sstables: tuple[table_pb2.CompactedSsTable, ...]

    @property
    def compacted_generations(self) -> Mapping[bytes, int]:
        return {table.shard_id.uuid: table.generation for table in self.compacted_sstables}

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.UpdateMemWalState, source: str
    ) -> UpdateMemWalState:
        return cls(tuple(message.compacted_sstables))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.update_mem_wal_state.SetInParent()
        transaction.update_mem_wal_state.compacted_sstables.extend(self.compacted_sstables)

    def conflict(self, committed: Operation) -> Conflict:
        if committed.changes_mem_wal:
            # The progress is that of another MemWAL, which may have had the same shards.
            return Conflict.INCOMPATIBLE
        if committed.compacted_generations:
            stale = self.is_stale_after(committed)
            return Conflict.INCOMPATIBLE if stale else Conflict.COMPATIBLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Record the generations.

        Raises
        ------
        InvalidInputError
            The table has no MemWAL, or a shard is given twice.
        CommitConflictError
            A generation is stale.
        CorruptTableError
        """
        load(MEM_WAL_PROGRESS)(builder, self.compacted_sstables)

"""UpdateMemWalState: records which parts of the write-ahead log are now in the table.

| field of `UpdateMemWalState` | content |
| --- | --- |
| compacted_sstables | for each shard of the log, the newest generation that is in the table |

The state is stored in the details of the index `__lance_mem_wal`, which must exist. A generation
never decreases. Specification: table/mem_wal.md.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.indexes.sections import MEM_WAL
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation


@dataclass(frozen=True)
class UpdateMemWalState(Operation):
    """Record the generations of the write-ahead log that are in the table.

    Attributes
    ----------
    compacted_sstables : tuple of table_pb2.CompactedSsTable
        The messages must not be modified.
    """

    name: ClassVar[str] = "update_mem_wal_state"

    compacted_sstables: tuple[table_pb2.CompactedSsTable, ...]

    @cached_property
    def compacted_shards(self) -> frozenset[bytes]:
        return frozenset(table.shard_id.uuid for table in self.compacted_sstables)

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.UpdateMemWalState, source: str
    ) -> UpdateMemWalState:
        return cls(tuple(message.compacted_sstables))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.update_mem_wal_state.SetInParent()
        transaction.update_mem_wal_state.compacted_sstables.extend(self.compacted_sstables)

    def conflict(self, committed: Operation) -> Conflict:
        if committed.compacted_shards:
            disjoint = self.compacted_shards.isdisjoint(committed.compacted_shards)
            return Conflict.COMPATIBLE if disjoint else Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Set the generations.

        Raises
        ------
        InvalidInputError
            The table has no write-ahead log.
        CorruptTableError
        """
        index = next((index for index in builder.indices.indices if index.name == MEM_WAL), None)
        if index is None:
            raise InvalidInputError(f"the table has no index {MEM_WAL}, and so no write-ahead log")
        details = table_pb2.MemWalIndexDetails()
        try:
            details.ParseFromString(index.index_details.value)
        except DecodeError as error:
            raise CorruptTableError(
                f"index {MEM_WAL}: its details are not valid: {error}"
            ) from None
        newest = {table.shard_id.uuid: table.generation for table in details.compacted_sstables}
        for table in self.compacted_sstables:
            shard = table.shard_id.uuid
            newest[shard] = max(newest.get(shard, 0), table.generation)
        details.ClearField("compacted_sstables")
        for shard, generation in newest.items():
            details.compacted_sstables.add(
                shard_id=table_pb2.UUID(uuid=shard), generation=generation
            )
        index.index_details.value = details.SerializeToString()
        index.uuid.uuid = uuid.uuid4().bytes
        index.dataset_version = builder.version
        index.created_at = time.time_ns() // 1_000_000

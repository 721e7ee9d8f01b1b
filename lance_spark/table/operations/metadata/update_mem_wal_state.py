"""UpdateMemWalState: notes which parts of the write-ahead log are now in the table.

| field of `UpdateMemWalState` | content |
| --- | --- |
| compacted_sstables | for each shard of the log, the newest generation that is in the table |

The state is kept in the details of the index `__lance_mem_wal`, which has to be there. A generation
never goes back. Specification: table/mem_wal.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation

KIND = "update_mem_wal_state"
INDEX = "__lance_mem_wal"


@dataclass(frozen=True)
class UpdateMemWalState(Operation):
    """Note what came from the log.

    Attributes
    ----------
    compacted_sstables : tuple of table_pb2.CompactedSsTable
        Nobody changes the messages any more.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.INCOMPATIBLE,
        "delete": Conflict.INCOMPATIBLE,
        "overwrite": Conflict.INCOMPATIBLE,
        "create_index": Conflict.COMPATIBLE,
        "rewrite": Conflict.COMPATIBLE,
        "merge": Conflict.INCOMPATIBLE,
        "restore": Conflict.INCOMPATIBLE,
        "reserve_fragments": Conflict.COMPATIBLE,
        "update": Conflict.INCOMPATIBLE,
        "project": Conflict.INCOMPATIBLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.INCOMPATIBLE,
        "update_mem_wal_state": Conflict.COMPATIBLE,
        "clone": Conflict.INCOMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.INCOMPATIBLE,
    }

    compacted_sstables: tuple[table_pb2.CompactedSsTable, ...]

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @cached_property
    def compacted_shards(self) -> frozenset[bytes]:
        """Ids of the shards of the write-ahead log whose state it notes."""
        return frozenset(
            compacted_sstable.shard_id.uuid for compacted_sstable in self.compacted_sstables
        )

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.UpdateMemWalState, source: str
    ) -> UpdateMemWalState:
        """Parse the message; `source` is what errors call its file."""
        return cls(tuple(message.compacted_sstables))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        transaction.update_mem_wal_state.SetInParent()
        transaction.update_mem_wal_state.compacted_sstables.extend(self.compacted_sstables)

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if committed.compacted_shards:
            apart = self.compacted_shards.isdisjoint(committed.compacted_shards)
            return Conflict.COMPATIBLE if apart else Conflict.RETRYABLE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def apply(self, draft: ManifestBuilder) -> None:
        """Note the generations.

        Raises
        ------
        InvalidInputError
            The table has no write-ahead log.
        CorruptTableError
        """
        result = [item for item in draft.indices.indices if item.name == INDEX]
        if not result:
            raise InvalidInputError(f"the table has no index {INDEX}, and so no write-ahead log")
        index = result[0]
        details = table_pb2.MemWalIndexDetails()
        try:
            details.ParseFromString(index.index_details.value)
        except DecodeError as error:
            raise CorruptTableError(f"index {INDEX}: no readable details: {error}") from None
        newest = {item.shard_id.uuid: item.generation for item in details.compacted_sstables}
        for item in self.compacted_sstables:
            shard = item.shard_id.uuid
            newest[shard] = max(newest.get(shard, 0), item.generation)
        details.ClearField("compacted_sstables")
        for shard, generation in newest.items():
            details.compacted_sstables.add(
                shard_id=table_pb2.UUID(uuid=shard), generation=generation
            )
        index.index_details.value = details.SerializeToString()
        index.uuid.uuid = uuid.uuid4().bytes
        index.dataset_version = draft.version
        index.created_at = time.time_ns() // 1_000_000

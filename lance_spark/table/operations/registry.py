"""The one place that knows which class stands for which field of `Transaction.operation`."""

from __future__ import annotations

from lance_spark.proto import transaction_pb2
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.data import (
    append,
    data_overlay,
    data_replacement,
    delete,
    merge,
    overwrite,
    rewrite,
    update,
)
from lance_spark.table.operations.data.append import Append
from lance_spark.table.operations.data.data_overlay import DataOverlay
from lance_spark.table.operations.data.data_replacement import DataReplacement
from lance_spark.table.operations.data.delete import Delete
from lance_spark.table.operations.data.merge import Merge
from lance_spark.table.operations.data.overwrite import Overwrite
from lance_spark.table.operations.data.rewrite import Rewrite
from lance_spark.table.operations.data.update import Update
from lance_spark.table.operations.metadata import (
    clone,
    create_index,
    project,
    reserve_fragments,
    restore,
    update_bases,
    update_config,
    update_mem_wal_state,
)
from lance_spark.table.operations.metadata.clone import Clone
from lance_spark.table.operations.metadata.create_index import CreateIndex
from lance_spark.table.operations.metadata.project import Project
from lance_spark.table.operations.metadata.reserve_fragments import ReserveFragments
from lance_spark.table.operations.metadata.restore import Restore
from lance_spark.table.operations.metadata.unknown import OtherOperation
from lance_spark.table.operations.metadata.update_bases import UpdateBases
from lance_spark.table.operations.metadata.update_config import UpdateConfig
from lance_spark.table.operations.metadata.update_mem_wal_state import UpdateMemWalState

#: The operations that this release commits, by kind.
OPERATIONS: dict[str, type[Operation]] = {
    append.KIND: Append,
    clone.KIND: Clone,
    create_index.KIND: CreateIndex,
    delete.KIND: Delete,
    overwrite.KIND: Overwrite,
    update_mem_wal_state.KIND: UpdateMemWalState,
    update_config.KIND: UpdateConfig,
    update_bases.KIND: UpdateBases,
    reserve_fragments.KIND: ReserveFragments,
    restore.KIND: Restore,
    rewrite.KIND: Rewrite,
    project.KIND: Project,
    merge.KIND: Merge,
    data_replacement.KIND: DataReplacement,
    data_overlay.KIND: DataOverlay,
    update.KIND: Update,
}

#: Every kind that the format has.
KINDS: tuple[str, ...] = tuple(
    field.name
    for field in transaction_pb2.Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields
)


def operation_of(transaction: transaction_pb2.Transaction, source: str) -> Operation:
    """Return the operation of a transaction's message.

    Parameters
    ----------
    transaction : transaction_pb2.Transaction
        Nobody changes it any more.
    source : str
        What errors call the file that it is from.
    """
    kind = transaction.WhichOneof("operation")
    known = OPERATIONS.get(kind or "")
    if known is None:
        return OtherOperation(transaction)
    return known.from_proto(getattr(transaction, kind), source)

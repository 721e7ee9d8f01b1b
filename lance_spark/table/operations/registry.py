"""The operation classes by name, and the parser of transaction messages."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.unknown_fields import UnknownFieldSet

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.proto import transaction_pb2
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.append import Append, Overwrite
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.columns import DataOverlay, DataReplacement, Merge, Project
from lance_spark.table.operations.indexes import CreateIndex, UpdateMemWalState
from lance_spark.table.operations.metadata import Clone, Restore, UpdateBases, UpdateConfig
from lance_spark.table.operations.rewrite import ReserveFragments, Rewrite
from lance_spark.table.operations.update import Delete, Update

#: The operations that this release commits, by name.
OPERATIONS: dict[str, type[Operation]] = {
    operation.name: operation
    for operation in (
        Append, Clone, CreateIndex, DataOverlay, DataReplacement, Delete, Merge, Overwrite, Project,
        ReserveFragments, Restore, Rewrite, Update, UpdateBases, UpdateConfig, UpdateMemWalState,
    )
}  # fmt: skip


#: The first field number of an operation in a transaction, and the names of operations that came
#: after pylance 14.
_FIRST_NUMBER = 100
_LATER = {116: "append_fri_transitions"}


@dataclass(frozen=True, slots=True)
class UnknownOperation(Operation):
    """An operation that another client committed and that this release does not implement.

    - `message`: The complete transaction; it must not be modified.
    """

    message: transaction_pb2.Transaction

    @property
    def name(self) -> str:
        known: str | None = self.message.WhichOneof("operation")
        if known is not None:
            return known
        unknown = UnknownFieldSet(self.message)
        numbers = [unknown[position].field_number for position in range(len(unknown))]
        number = max(numbers, default=0)
        if number < _FIRST_NUMBER:
            return ""
        return _LATER.get(number, f"unknown operation {number}")

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        operation = transaction_pb2.Transaction()
        operation.CopyFrom(self.message)
        for name in ("read_version", "uuid", "tag", "transaction_properties"):
            operation.ClearField(name)
        transaction.MergeFrom(operation)

    def apply(self, builder: ManifestBuilder) -> None:
        """Raise an error: this release does not commit the operation.

        Raises UnsupportedFeatureError.
        """
        raise UnsupportedFeatureError(
            f"this release cannot commit the operation {self.name or 'unknown'!r}"
        )


def operation_of(transaction: transaction_pb2.Transaction, source: str) -> Operation:
    """Return the operation of a transaction's message.

    - `transaction`: It must not be modified afterwards.
    - `source`: The file of the transaction, for errors.
    """
    name = transaction.WhichOneof("operation")
    operation = OPERATIONS.get(name or "")
    if operation is None:
        return UnknownOperation(transaction)
    return operation.from_proto(getattr(transaction, name), source)

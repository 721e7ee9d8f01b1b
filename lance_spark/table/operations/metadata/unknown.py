"""Committed operations that this release does not make itself: known by kind, kept as their
message.
"""

from __future__ import annotations

from dataclasses import dataclass

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.proto import transaction_pb2
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Operation


@dataclass(frozen=True, slots=True)
class OtherOperation(Operation):
    """An operation that others commit.

    Attributes
    ----------
    message : transaction_pb2.Transaction
        The whole transaction; nobody changes it any more.
    """

    message: transaction_pb2.Transaction

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`; empty if it is unknown to this release."""
        return self.message.WhichOneof("operation") or ""

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        one = transaction_pb2.Transaction()
        one.CopyFrom(self.message)
        for name in ("read_version", "uuid", "tag", "transaction_properties"):
            one.ClearField(name)
        transaction.MergeFrom(one)

    def apply(self, draft: ManifestBuilder) -> None:
        """Refuse.

        Raises
        ------
        UnsupportedFeatureError
        """
        raise UnsupportedFeatureError(
            f"this release does not commit transactions of the kind {self.kind or 'unknown'!r}"
        )

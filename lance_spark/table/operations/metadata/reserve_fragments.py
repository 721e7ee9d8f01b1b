"""ReserveFragments: fragment ids are reserved for a later commit.

| field of `ReserveFragments` | content |
| --- | --- |
| num_fragments | the number of ids |

The greatest fragment id of the table grows by this number; the new ids are reserved. A compaction
needs the ids of its fragments before its commit, because indexes contain the new row addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lance_spark.proto import transaction_pb2
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Operation


@dataclass(frozen=True, slots=True)
class ReserveFragments(Operation):
    """Reserve fragment ids."""

    name: ClassVar[str] = "reserve_fragments"

    num_fragments: int

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.ReserveFragments, source: str
    ) -> ReserveFragments:
        return cls(message.num_fragments)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.reserve_fragments.SetInParent()
        transaction.reserve_fragments.num_fragments = self.num_fragments

    def apply(self, builder: ManifestBuilder) -> None:
        """Reserve the ids.

        Raises InvalidInputError: the table does not have that many unused ids.
        """
        builder.reserve_fragments(self.num_fragments)

"""ReserveFragments: ids are set aside for fragments that a later commit brings.

| field of `ReserveFragments` | content |
| --- | --- |
| num_fragments | how many |

The greatest id ever given grows by the number; the last ids up to it are reserved. A compaction has
to know the ids of its fragments before it commits them, for what it tells indexes about the new
addresses of rows.

"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lance_spark.proto import transaction_pb2
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation

KIND = "reserve_fragments"


@dataclass(frozen=True, slots=True)
class ReserveFragments(Operation):
    """Set fragment ids aside.

    Attributes
    ----------
    num_fragments : int
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.COMPATIBLE,
        "delete": Conflict.COMPATIBLE,
        "overwrite": Conflict.INCOMPATIBLE,
        "create_index": Conflict.COMPATIBLE,
        "rewrite": Conflict.COMPATIBLE,
        "merge": Conflict.COMPATIBLE,
        "restore": Conflict.INCOMPATIBLE,
        "reserve_fragments": Conflict.COMPATIBLE,
        "update": Conflict.COMPATIBLE,
        "project": Conflict.COMPATIBLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.COMPATIBLE,
        "update_mem_wal_state": Conflict.COMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.COMPATIBLE,
    }

    num_fragments: int

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.ReserveFragments, source: str
    ) -> ReserveFragments:
        """Parse the message; `source` is what errors call its file."""
        return cls(message.num_fragments)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        transaction.reserve_fragments.SetInParent()
        transaction.reserve_fragments.num_fragments = self.num_fragments

    def apply(self, draft: ManifestBuilder) -> None:
        """Make the change.

        Raises
        ------
        InvalidInputError
            The ids are used up.
        """
        draft.reserve_fragments(self.num_fragments)

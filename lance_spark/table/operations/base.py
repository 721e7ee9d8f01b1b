"""What every operation of a transaction knows, and what two of them can be to one another.

An operation is one file in this folder. It knows its protobuf message, how the next manifest is built from the newest
one, and against which committed operations it holds. A commit that lost a race asks the operation about every
transaction committed since the version it was planned on:

| answer | what the commit does |
| --- | --- |
| compatible | builds on top of the newer version |
| retryable | gives up; the same change, planned anew on the newest version, can succeed |
| incompatible | gives up; the two changes contradict one another |

A committed operation that this release does not know is retryable for all: nobody knows what it changed, and planning
anew looks at everything it left behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from lance_spark.proto import transaction_pb2
from lance_spark.table.draft import Draft


class Conflict(Enum):
    """What a committed operation means for one that is yet to be committed."""

    COMPATIBLE = "compatible"
    RETRYABLE = "retryable"
    INCOMPATIBLE = "incompatible"


class Operation(ABC):
    """A change of a table. Immutable."""

    __slots__ = ()

    #: Whether the table gets a new schema, with field ids from 0 on.
    replaces_schema: ClassVar[bool] = False
    #: The answer for each kind of committed operation, where nothing but the kind matters.
    conflicts: ClassVar[Mapping[str, Conflict]] = {}

    @property
    @abstractmethod
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`; empty if it is unknown to this release."""

    @property
    def config_keys(self) -> frozenset[str]:
        """Keys of the table's configuration that are set or deleted."""
        return frozenset()

    @property
    def can_add_required_columns(self) -> bool:
        """Whether columns could come in, or become such, that rows written without them break."""
        return False

    @abstractmethod
    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""

    @abstractmethod
    def apply(self, draft: Draft) -> None:
        """Make the change.

        Raises
        ------
        InvalidInputError
            It does not fit the table.
        CommitConflictError
            It was planned on a table that looked otherwise.
        """

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what an operation means that was committed after the version this one was planned on."""
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

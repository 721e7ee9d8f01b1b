"""Options of a commit: what the transaction records, and how often the commit is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.transaction import with_message

#: Number of times a commit starts again after other writers were faster.
DEFAULT_MAX_RETRIES = 20
#: Number of times a change is planned again after a conflict, as in pylance.
DEFAULT_CONFLICT_RETRIES = 10


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Options that a change hands on to its commit.

    Attributes
    ----------
    properties : mapping of str to str
        Properties of the transaction, the commit message among them.
    max_retries : int
        Number of times the commit starts again after other writers were faster.
    conflict_retries : int
        Number of times the change is planned again after a conflict.
    once : WriteToken, optional
        The change is not committed if the history already has this token.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    max_retries: int = DEFAULT_MAX_RETRIES
    conflict_retries: int = DEFAULT_CONFLICT_RETRIES
    once: WriteToken | None = None

    @classmethod
    def of(
        cls,
        message: str | None,
        properties: Mapping[str, str] | None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
        *,
        max_retries: int = DEFAULT_MAX_RETRIES,
    ) -> Self:
        """Return the options that a public method was called with.

        Raises
        ------
        InvalidInputError
            A key or a value of the properties is not a string.
        """
        return cls(with_message(properties, message), max_retries, conflict_retries)

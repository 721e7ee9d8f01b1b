"""Options of a commit: what the transaction records, and how often the commit is tried.

Also the attempts after the first one: the waits between them, and changes that are planned again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Self, TypedDict, TypeVar, Unpack

from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.keywords import Keyword
from lance_spark.progress import ProgressKeywords
from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.transaction import with_message

#: Number of times a commit starts again after other writers were faster.
DEFAULT_MAX_RETRIES = 20
#: Number of times a change is planned again after a conflict, as in pylance.
DEFAULT_CONFLICT_RETRIES = 10
_FIRST_WAIT = 0.01
_LONGEST_WAIT = 3.0
_State = TypeVar("_State")
_Result = TypeVar("_Result")


class PropertyKeywords(TypedDict, total=False):
    """What a program stores in the transaction of a commit."""

    transaction_properties: Annotated[
        Mapping[str, str] | None, Keyword("Stored in the transaction.")
    ]


class MessageKeywords(TypedDict, total=False):
    """What a person says in a commit."""

    commit_message: Annotated[str | None, Keyword("Stored in the transaction.")]


class MessageRetryKeywords(MessageKeywords, total=False):
    """A message, and how often the commit is tried."""

    max_retries: Annotated[
        int,
        Keyword(
            "Maximum number of times to retry a commit after other clients committed first.",
            DEFAULT_MAX_RETRIES,
            minimum=0,
        ),
    ]


class CommitKeywords(MessageRetryKeywords, PropertyKeywords, total=False):
    """Keywords of calls that commit."""


class RetryKeywords(CommitKeywords, total=False):
    """Keywords of calls that plan a change, and plan it again after a conflict."""

    conflict_retries: Annotated[
        int,
        Keyword(
            "Maximum number of times to replan the change on the newest version after another "
            "client committed a conflicting change.",
            DEFAULT_CONFLICT_RETRIES,
            minimum=0,
        ),
    ]
    retry_timeout: Annotated[
        timedelta | None,
        Keyword("Time after which the change is not replanned; no limit by default."),
    ]


class RetryProgressKeywords(RetryKeywords, ProgressKeywords, total=False):
    """Keywords of calls that plan a change, and report their progress."""


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Options that a change hands on to its commit.

    - `properties`: Properties of the transaction, the commit message among them.
    - `max_retries`: Number of times the commit starts again after other writers were faster.
    - `conflict_retries`: Number of times the change is planned again after a conflict.
    - `retry_timeout`: Time after which the change is not planned again; no limit by default.
    - `write_token`: The change is not committed if the history already has this token.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    max_retries: int = DEFAULT_MAX_RETRIES
    conflict_retries: int = DEFAULT_CONFLICT_RETRIES
    retry_timeout: timedelta | None = None
    write_token: WriteToken | None = None

    @classmethod
    def of(cls, **keywords: Unpack[RetryProgressKeywords]) -> Self:
        """Return the options that a public method was called with.

        Raises InvalidInputError: a key or a value of the properties is not a string, or the time is
        not a timedelta.
        """
        timeout = keywords.get("retry_timeout")
        check_timeout("retry_timeout", timeout)
        message = keywords.get("commit_message")
        return cls(
            with_message(keywords.get("transaction_properties"), message),
            keywords.get("max_retries", DEFAULT_MAX_RETRIES),
            keywords.get("conflict_retries", DEFAULT_CONFLICT_RETRIES),
            timeout,
        )


def check_timeout(name: str, timeout: object) -> None:
    """Raise InvalidInputError for an argument that is neither a timedelta nor None."""
    if not isinstance(timeout, timedelta | None):
        raise InvalidInputError(f"{name} must be a timedelta, not {type(timeout).__name__}")


class Backoff:
    """Waits of random length between attempts. Create it when the first attempt starts.

    - `earlier`: Number of waits before, by other objects.
    """

    def __init__(self, earlier: int = 0) -> None:
        self._longest = min(_FIRST_WAIT * 2**earlier, _LONGEST_WAIT)
        self._started = time.monotonic()

    def wait(self) -> None:
        """Wait after an attempt; the next attempt starts now."""
        # The duration of an attempt says how many writers can take turns in a while.
        seconds = time.monotonic() - self._started
        self._longest = min(max(2 * self._longest, seconds), _LONGEST_WAIT)
        time.sleep(random.uniform(0, self._longest))  # noqa: S311 - no secret
        self._started = time.monotonic()


def replan_on_conflict(
    attempt: Callable[[_State], _Result],
    state: _State,
    replan: Callable[[_State, CommitConflictError], _State | None],
    retries: int,
) -> _Result:
    """Call `attempt`, and again with what `replan` returns after each conflict.

    - `attempt`: Plans and commits from a state.
    - `state`: State of the first attempt.
    - `replan`: Returns the state of the next attempt from the last one and its conflict; None if
      the change cannot be planned again.
    - `retries`: Number of attempts after the first one.

    Raises CommitConflictError: the conflict of the last attempt.
    """
    for retries_left in range(retries, -1, -1):
        try:
            return attempt(state)
        except CommitConflictError as error:
            newer = replan(state, error) if retries_left else None
            if newer is None:
                raise
        state = newer
    raise AssertionError("the last attempt returns or raises")

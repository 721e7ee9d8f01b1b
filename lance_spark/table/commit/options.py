"""Options of a commit: what the transaction records, and how often the commit is tried.

Also the attempts after the first one: the waits between them, and changes that are planned again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated, Self, TypedDict, TypeVar, Unpack

from lance_spark.errors import (
    AlreadyCommittedError,
    CommitConflictError,
    InvalidInputError,
    MissingFileError,
)
from lance_spark.keywords import Keyword
from lance_spark.progress import ProgressKeywords
from lance_spark.storage.parallel import read_each
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import Transaction, read_transaction, with_message
from lance_spark.table.constraints import CheckedConstraints
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import read_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation

# --------------------------------------------------------------------------------------------------
# Idempotent commits: a change that is tried several times is committed only once.
#
# Examples are the batch of a stream, or the run of a job. A writer has an id, and numbers its
# changes in increasing order. Both are properties of the transaction, so they are committed
# atomically with the change.
#
# | property | value |
# | --- | --- |
# | `id_key` | the id of the writer: a query of a stream, an application |
# | `number_key` | the number of the change, in decimal digits |
#
# A change was committed before if the history has a transaction with the same id, and with the same
# or a greater number. The search starts at the version that the change is planned on and goes back
# to the newest transaction with this id. It reads one manifest if no other client writes. For the
# first change of an id it reads all versions up to the lookback, sixteen at a time in remote
# stores.
#
# `commit` checks the versions that other clients commit meanwhile. If two writers try the same
# change at the same time, the later one finds the commit of the earlier one.
#
# The search does not cover versions that cleanup removed, and not the source of a branch.

#: The transaction properties of writes that an application numbers.
APP_ID, APP_VERSION = "lance.txn.appId", "lance.txn.version"
#: The maximum number of versions that are searched for an id.
DEFAULT_LOOKBACK = 1_000
_INT64_MAX = 2**63 - 1
#: The transaction property with the statement of a change; its parameters have this prefix.
OPERATION = "lance_spark.operation"


@dataclass(frozen=True, slots=True)
class WriteToken:
    """The identity of a change: the id of its writer, and its number.

    - `id_key`: The transaction property with the id.
    - `number_key`: The transaction property with the number.
    - `number`: 0 or more. Later changes with the same id have greater numbers.
    - `lookback`: The maximum number of versions that are searched for the id.

    Raises InvalidInputError: the id is empty, or a number is out of range.
    """

    id_key: str
    id: str
    number_key: str
    number: int
    lookback: int = DEFAULT_LOOKBACK

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidInputError(f"{self.id_key} is empty: an idempotent change needs an id")
        if not 0 <= self.number <= _INT64_MAX:
            raise InvalidInputError(
                f"{self.number_key} must be a whole number from 0 to {_INT64_MAX}, "
                f"not {self.number}"
            )
        if self.lookback < 1:
            raise InvalidInputError(f"lookback must be 1 version or more, not {self.lookback}")

    @classmethod
    def of_app(cls, app_id: str | None, version: int | None) -> WriteToken | None:
        """Return the token of a write that an application numbers; None if both are None.

        Raises InvalidInputError: only one of the arguments is given, or its value is not valid.
        """
        if (app_id is None) != (version is None):
            raise InvalidInputError(
                "txnAppId and txnVersion (txn_app_id and txn_version) must be given together: "
                "the id of the application, and the number of its write"
            )
        if app_id is None or version is None:
            return None
        return cls(APP_ID, app_id, APP_VERSION, version)

    def properties(self) -> dict[str, str]:
        """Return the properties of the transaction."""
        return {self.id_key: self.id, self.number_key: str(self.number)}

    def number_of(self, transaction: Transaction | None) -> int | None:
        """Return the number of a transaction with the same id; None for other transactions."""
        if transaction is None or transaction.properties.get(self.id_key) != self.id:
            return None
        text = transaction.properties.get(self.number_key, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else None

    def is_committed_by(self, transaction: Transaction | None) -> bool:
        """Return whether a transaction is this change, or a later change of the same writer."""
        number = self.number_of(transaction)
        return number is not None and number >= self.number

    def error(self, store: ObjectStore, version: int) -> AlreadyCommittedError:
        """Return the error for a change that `version` contains."""
        return AlreadyCommittedError(
            f"{store.display}: version {version} has change {self.number} of {self.id!r} "
            f"({self.id_key}), or a later change, already: nothing was committed",
            version=version,
        )


def stale_batch_error(
    store: ObjectStore, query_id: str, newest: int, number: int
) -> InvalidInputError:
    """Return the error for a batch of a stream whose table has a later one.

    Spark repeats only the last batch, so the rows of this one may never have been written.
    """
    return InvalidInputError(
        f"{store.display}: batch {number} of the streaming query {query_id!r} was not written, "
        f"because the table has its batch {newest}: the checkpoint was set back to an older state, "
        "or another query has the same streamingQueryId. Start the query with a new "
        "checkpointLocation, without streamingQueryId or with a new one, from the first row that "
        "the table lacks"
    )


def find_committed_version(
    store: ObjectStore, manifest: Manifest, write_token: WriteToken
) -> int | None:
    """Return the version that contains a change; None if it was not found.

    - `manifest`: The version at which the search begins.

    Raises CorruptTableError, StorageError.
    """
    transaction = read_transaction(store, manifest)
    if write_token.number_of(transaction) is not None:
        return manifest.version if write_token.is_committed_by(transaction) else None
    older = [
        location
        for location in versions.list_manifests(store)
        if location.version < manifest.version
    ]
    searched = older[: -write_token.lookback : -1] if write_token.lookback > 1 else []
    for version, transaction in _read_transactions(store, searched):
        if write_token.number_of(transaction) is not None:
            return version if write_token.is_committed_by(transaction) else None
    return None


def _read_transactions(
    store: ObjectStore, locations: Sequence[ManifestLocation]
) -> Iterator[tuple[int, Transaction | None]]:
    """Yield versions and their transactions in the given order, from newer to older versions.

    Ends at a version that cleanup removed: it has removed the older versions too.
    """

    def read(location: ManifestLocation) -> Transaction | None:
        return read_transaction(store, read_manifest(store, location))

    with suppress(MissingFileError):
        transactions = read_each(read, locations, local=store.is_local)
        for location, transaction in zip(locations, transactions, strict=True):
            yield location.version, transaction


# --------------------------------------------------------------------------------------------------
# Options of a commit: what the transaction records, and how often the commit is tried.

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
    - `checked_constraints`: The conditions that Spark has checked the new rows against, by the
      names of the constraints.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    max_retries: int = DEFAULT_MAX_RETRIES
    conflict_retries: int = DEFAULT_CONFLICT_RETRIES
    retry_timeout: timedelta | None = None
    write_token: WriteToken | None = None
    checked_constraints: CheckedConstraints = field(default_factory=dict)

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

    def with_operation(self, name: str, **parameters: str) -> Self:
        """Return the same options for a change that `LanceTable.history` shows under a name.

        - `name`: Statement of the change, such as ``MERGE``.
        - `parameters`: What the statement names, such as its condition.
        """
        named = {f"{OPERATION}.{key}": value for key, value in parameters.items()}
        return replace(self, properties={OPERATION: name, **named, **self.properties})


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

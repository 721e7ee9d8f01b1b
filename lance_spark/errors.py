"""The errors of lance_spark: one root, and one class for each reaction of the caller.

Every message names what is wrong (table, file, column, page, option), says what was expected and,
where possible, what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "AlreadyCommittedError",
    "AmbiguousMergeError",
    "CommitConflictError",
    "CorruptError",
    "CorruptFileError",
    "CorruptTableError",
    "EvaluationError",
    "InvalidInputError",
    "InvalidOptionError",
    "LanceError",
    "MissingFileError",
    "SchemaMismatchError",
    "StorageError",
    "TableExistsError",
    "TableNotFoundError",
    "UncertainCommitError",
    "UnsupportedEncodingError",
    "UnsupportedError",
    "UnsupportedFeatureError",
    "UnsupportedTypeError",
    "VersionNotFoundError",
]


class LanceError(Exception):
    """Root of all errors that this package raises deliberately."""


@contextmanager
def naming(table: str) -> Iterator[None]:
    """Prefix the message of each `LanceError` with the name of the table, unless it has it.

    The error object stays the same, with its class, attributes and cause. Errors of stores and
    files contain full paths, which begin with that of the table. Other errors are raised where only
    a part of the table is known: a page, a column, a fragment.

    Parameters
    ----------
    table : str
        The root of the table in errors (`ObjectStore.display`), without secrets.
    """
    try:
        yield
    except LanceError as error:
        message = str(error)
        if table not in message:
            error.args = (f"{table}: {message}",)
        raise


class TableNotFoundError(LanceError):
    """The path has no table: create it, or correct the path."""


class TableExistsError(LanceError):
    """The path of a new table has a table already: append, overwrite, or choose another path."""


class VersionNotFoundError(LanceError):
    """A version, tag or timestamp was not found: choose an existing version."""


class SchemaMismatchError(LanceError):
    """The schema of the data does not match the table: change the data, or overwrite the table."""


class InvalidOptionError(LanceError, ValueError):
    """An option is unknown, or its value cannot be used: correct the option."""


class InvalidInputError(LanceError, ValueError):
    """An argument or a value of the data cannot be used: correct the call."""


class EvaluationError(InvalidInputError):
    """An expression fails for a row: it overflows, divides by zero, or a cast is impossible."""


class UnsupportedError(LanceError):
    """The table is valid, but this release lacks a feature: use another client or a newer
    release.
    """


class UnsupportedFeatureError(UnsupportedError):
    """A feature flag or an operation that this release does not support."""


class UnsupportedEncodingError(UnsupportedError):
    """The encoding of a page is not supported by this release."""


class UnsupportedTypeError(UnsupportedError):
    """A data type has no counterpart on the other side."""


class CorruptError(LanceError):
    """Bytes on storage contradict the format: restore the file, or go back to an older version."""


class CorruptFileError(CorruptError):
    """A data or deletion file contradicts the format."""


class CorruptTableError(CorruptError):
    """A manifest, transaction or reference of a table contradicts the format."""


class StorageError(LanceError):
    """The store refused or failed a request: check path, credentials and endpoint, then try
    again.
    """


class MissingFileError(StorageError):
    """A file is missing: cleanup or another client removed it, or the path is wrong."""


class UncertainCommitError(StorageError):
    """The store failed during a commit, and it is unknown whether the commit happened.

    Keep the written files, and check whether one of the newest versions has the transaction.
    """


class CommitConflictError(LanceError):
    """Another client committed first, and this change cannot follow its change.

    Attributes
    ----------
    retryable : bool
        True if the change can succeed when it is planned again on the newest version; False if the
        two changes contradict each other.
    """

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_conflict, (str(self), self.retryable)


def _rebuild_conflict(message: str, retryable: bool) -> CommitConflictError:
    return CommitConflictError(message, retryable=retryable)


class AmbiguousMergeError(LanceError):
    """Several source rows of a merge match one row of the table: make the source keys unique."""


class AlreadyCommittedError(LanceError):
    """A change that must happen only once was committed before: nothing is left to do.

    Attributes
    ----------
    version : int
        The version that has the change.
    """

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_already_committed, (str(self), self.version)


def _rebuild_already_committed(message: str, version: int) -> AlreadyCommittedError:
    return AlreadyCommittedError(message, version=version)

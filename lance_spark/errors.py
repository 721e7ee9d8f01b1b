"""The errors of lance_spark: one root class, and one class for each thing that the caller can do.

Every message names the thing at fault (table, file, column, page, option) and says what was
expected. It says what to do where the caller can do something.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "AlreadyCommittedError",
    "AmbiguousMergeError",
    "ArgumentTypeError",
    "CommitConflictError",
    "CorruptError",
    "CorruptFileError",
    "CorruptTableError",
    "EvaluationError",
    "InvalidInputError",
    "InvalidOptionError",
    "LanceError",
    "MissingFileError",
    "NamespaceExistsError",
    "NamespaceNotEmptyError",
    "NamespaceNotFoundError",
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
    """Root of every error this package raises on purpose."""


@contextmanager
def error_context(table: str) -> Iterator[None]:
    """Prefix the message of each `LanceError` with the table, unless the message contains it.

    The error stays the same object, with its class, attributes and cause. Errors about files
    contain a full path, which begins with the path of the table. Other errors come from code that
    only knows a part of the table: a page, a column, a fragment.

    - `table`: The root of the table as messages show it (`ObjectStore.display`), without secrets.
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


class PathNotFoundError(TableNotFoundError):
    """The path does not exist."""


class TableExistsError(LanceError):
    """The path of a new table has a table already: append, overwrite, or choose another path."""


class NamespaceNotFoundError(LanceError):
    """The namespace was not found."""


class NamespaceExistsError(LanceError):
    """The namespace exists already."""


class NamespaceNotEmptyError(LanceError):
    """The namespace has tables or namespaces, so it cannot be dropped."""


class VersionNotFoundError(LanceError):
    """The table does not have the version, branch or tag: choose one that it has."""


class SchemaMismatchError(LanceError):
    """The schema of the data does not fit the table: change the data, or overwrite the table."""


class InvalidOptionError(LanceError, ValueError):
    """An option is unknown or its value is invalid: correct the option."""


class InvalidInputError(LanceError, ValueError):
    """An argument or a value of the data is invalid: correct the call."""


class ArgumentTypeError(InvalidInputError, TypeError):
    """An argument has a wrong type, or lacks a value: correct the call."""


class EvaluationError(InvalidInputError):
    """A filter expression failed for a row: an overflow, a division by zero or a failed cast."""


class UnsupportedError(LanceError):
    """The table is valid, but needs a feature that this release does not have.

    Use another client or a newer release.
    """


class UnsupportedFeatureError(UnsupportedError):
    """The table has a feature flag or an operation that this release does not know."""


class UnsupportedEncodingError(UnsupportedError):
    """A page has an encoding that this release does not read."""


class UnsupportedTypeError(UnsupportedError):
    """A data type of Arrow, Spark or Lance has no counterpart on the other side."""


class CorruptError(LanceError):
    """Stored bytes contradict the format: restore the file, or go back to an older version."""


class CorruptFileError(CorruptError):
    """A data or deletion file contradicts the format."""


class CorruptTableError(CorruptError):
    """A manifest, transaction or reference of a table contradicts the format."""


class StorageError(LanceError):
    """A request to the store failed: check path, credentials and endpoint, then try again."""


class MissingFileError(StorageError):
    """A file was not found: cleanup or another client removed it, or the path is wrong."""


class UncertainCommitError(StorageError):
    """The store failed during a commit, and the version may or may not exist.

    Keep the written files, and check whether one of the newest versions has the transaction.
    """


class CommitConflictError(LanceError):
    """Another client committed a change that this change cannot follow.

    Attributes
    ----------
    retryable : bool
        True if the same change can succeed after it is planned again on the newest version; False
        if the two changes are incompatible.
    """

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_conflict, (str(self), self.retryable)


def _rebuild_conflict(message: str, retryable: bool) -> CommitConflictError:
    return CommitConflictError(message, retryable=retryable)


class AmbiguousMergeError(LanceError):
    """Several source rows of a merge match one row of the table: make the source's keys unique."""


class AlreadyCommittedError(LanceError):
    """A change that must be committed only once was committed before: do nothing.

    Attributes
    ----------
    version : int
        The version that contains the change.
    """

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_already_committed, (str(self), self.version)


def _rebuild_already_committed(message: str, version: int) -> AlreadyCommittedError:
    return AlreadyCommittedError(message, version=version)

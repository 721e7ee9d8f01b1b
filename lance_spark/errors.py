"""The errors of lance_spark: one root, and one class for each thing the caller can do about it.

Every message names the thing at fault (table, file, column, page, option), says what was expected
and, where there is one, the way out.
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
    """Root of every error this package raises on purpose."""


@contextmanager
def naming(table: str) -> Iterator[None]:
    """Put the name of a table before the message of each `LanceError` that does not have it.

    The error stays the same object, with its class, attributes and cause. Errors of the store and
    of files have full paths, which begin with the table's. Others are raised where only a part of
    the table is known: a page, a column, a fragment.

    Parameters
    ----------
    table : str
        The root of the table as messages show it (`ObjectStore.display`), without secrets.
    """
    try:
        yield
    except LanceError as error:
        message = str(error)
        if table not in message:
            error.args = (f"{table}: {message}",)
        raise


class TableNotFoundError(LanceError):
    """There is no table at the path: create it, or correct the path."""


class TableExistsError(LanceError):
    """A table already stands where a new one was asked for: append, overwrite, or choose another
    path.
    """


class VersionNotFoundError(LanceError):
    """The table has no such version, tag or timestamp: choose one that it has."""


class SchemaMismatchError(LanceError):
    """The data's schema does not fit the table's: change the data, or overwrite the table."""


class InvalidOptionError(LanceError, ValueError):
    """An option is unknown, or its value cannot be used: correct the option."""


class InvalidInputError(LanceError, ValueError):
    """An argument or a value of the data cannot be used: correct the call."""


class EvaluationError(InvalidInputError):
    """An expression of a filter has no value for a row: it overflows, divides by zero, or a cast
    fails.
    """


class UnsupportedError(LanceError):
    """The table is sound, but needs something this release does not do: use another client, or a
    newer release.
    """


class UnsupportedFeatureError(UnsupportedError):
    """A feature flag or a kind of transaction that this release does not know."""


class UnsupportedEncodingError(UnsupportedError):
    """A page is encoded in a way that this release does not read."""


class UnsupportedTypeError(UnsupportedError):
    """A data type has no counterpart on the other side."""


class CorruptError(LanceError):
    """Bytes on storage contradict the format: restore the file, or go back to an older version."""


class CorruptFileError(CorruptError):
    """A data or deletion file contradicts the format."""


class CorruptTableError(CorruptError):
    """A manifest, transaction or reference of a table contradicts the format."""


class StorageError(LanceError):
    """The store refused or failed a request: check path, credentials and endpoint, then try again."""


class MissingFileError(StorageError):
    """A file is not there: cleanup or somebody else removed it, or the path is wrong."""


class UncertainCommitError(StorageError):
    """The store failed while a commit was under way, and nobody knows whether it happened.

    Keep what was written, and look whether the table's newest versions carry the transaction.
    """


class CommitConflictError(LanceError):
    """Another writer committed first, and this change cannot be placed on top of it.

    Attributes
    ----------
    retryable : bool
        True if the same change, planned anew against the newest version, can succeed; False if the
        two changes contradict one another.
    """

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_conflict, (str(self), self.retryable)


def _rebuild_conflict(message: str, retryable: bool) -> CommitConflictError:
    return CommitConflictError(message, retryable=retryable)


class AmbiguousMergeError(LanceError):
    """Several source rows of a merge would change one row of the table: make the source's keys
    unique.
    """


class AlreadyCommittedError(LanceError):
    """A change that must be made once only has been made before: nothing is left to do.

    Attributes
    ----------
    version : int
        The version that has it.
    """

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_already_committed, (str(self), self.version)


def _rebuild_already_committed(message: str, version: int) -> AlreadyCommittedError:
    return AlreadyCommittedError(message, version=version)

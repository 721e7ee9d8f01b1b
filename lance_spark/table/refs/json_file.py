"""Fields of the small JSON files of tags and branches: read with their types checked, written as other clients do.

Files are written with two blanks of indentation and all characters as they are. Times are RFC 3339 in UTC, with as many
groups of three digits after the point as they need. Fields that are not known are passed over.
"""

from __future__ import annotations

import datetime
import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any

from lance_spark.errors import (
    CorruptFileError,
    CorruptTableError,
    InvalidInputError,
    LanceError,
    MissingFileError,
    StorageError,
    UncertainCommitError,
)
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.retry import seen_whole
from lance_spark.storage.store import ObjectStore
from lance_spark.table.refs import names as ref_names

#: No tag or branch is as long.
MAX_BYTES = 16 * 1024 * 1024
_NANOS = 1_000_000_000
_MAX_U64 = 2**64 - 1


class Fields:
    """The fields of a JSON object.

    Parameters
    ----------
    data : bytes
    name : str
        What errors call the file.
    what : str
        What it should be, for errors: "tag" or "branch".

    Raises
    ------
    CorruptTableError
        It is no JSON object.
    """

    def __init__(self, data: bytes, name: str, what: str) -> None:
        self._name = name
        self._what = what
        try:
            content: Any = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CorruptTableError(f"{name}: no readable {what}: {error}") from None
        if not isinstance(content, dict):
            raise CorruptTableError(f"{name}: a {what} is a JSON object")
        self._content = content

    def get(self, key: str) -> Any:
        """Return a field as it is; None if it is missing."""
        return self._content.get(key)

    def number(self, key: str, default: int | None = None) -> int:
        """Return an unsigned 64-bit number.

        Raises
        ------
        CorruptTableError
            It is none, or is missing and has no default.
        """
        value = self._content.get(key, default)
        if type(value) is not int or not 0 <= value <= _MAX_U64:
            raise self.wrong(key, "a whole number from 0 to 2**64 - 1")
        return value

    def text(self, key: str) -> str | None:
        """Return a string; None if it is missing or null.

        Raises
        ------
        CorruptTableError
        """
        value = self._content.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "a string or null")
        return value

    def time(self, key: str) -> str | None:
        """Return a time as it is written; None if it is missing or null.

        Raises
        ------
        CorruptTableError
        """
        value = self.text(key)
        if value is not None:
            try:
                parse_time(value)
            except (ValueError, OverflowError):
                raise self.wrong(key, "an RFC 3339 time") from None
        return value

    def texts(self, key: str) -> dict[str, str]:
        """Return an object of strings; an empty one if it is missing.

        Raises
        ------
        CorruptTableError
        """
        value = self._content.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self.wrong(key, "an object of strings")
        return dict(value)

    def wrong(self, key: str, wanted: str) -> CorruptTableError:
        """Return the error for a field of the wrong kind."""
        shown = repr(self._content.get(key))
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return CorruptTableError(f"{self._name}: {key} of a {self._what} is {wanted}, not {shown}")


def read(store: ObjectStore, path: str) -> bytes:
    """Return the content of the file of a tag or branch.

    Raises
    ------
    MissingFileError
        There is none.
    CorruptTableError
        It is far too long.
    StorageError
    """
    try:
        return store.read_bytes(path, MAX_BYTES)
    except CorruptFileError as error:
        raise CorruptTableError(str(error)) from None


def create(store: ObjectStore, path: str, data: bytes) -> bool:
    """Create the file of a tag or branch; return False and change nothing if there is another.

    Raises
    ------
    UncertainCommitError
        The store failed, and nobody knows whether it was created.
    StorageError
        The store refused, and it was not.
    """
    try:
        if store.put_if_absent(path, data):
            return True
    except StorageError as error:
        if is_refusal(error):
            raise
        raise _uncertain("created", error) from error
    # Repeated by the store's client because the answer was lost, the request meets its own file.
    try:
        return seen_whole(lambda: store.read_bytes(path, MAX_BYTES), data) == data
    except CorruptFileError:
        return False
    except StorageError as error:
        if store.is_local and isinstance(error, MissingFileError):
            return False
        # If it is gone by now, it can have been the own one.
        raise _uncertain("created", error) from error


def replace(store: ObjectStore, path: str, data: bytes) -> None:
    """Replace the file of a tag or branch.

    Raises
    ------
    UncertainCommitError
        The store failed, and nobody knows whether it was replaced.
    StorageError
        The store refused, and it was not.
    """
    try:
        store.write_bytes(path, data)
    except StorageError as error:
        # What is refused in the end can have been carried out before it was repeated.
        if is_refusal(error) and _shows(lambda: store.read_bytes(path, MAX_BYTES) != data):
            raise
        raise _uncertain("replaced", error) from error


def remove(store: ObjectStore, path: str) -> None:
    """Delete the file of a tag or branch, if there is one.

    Raises
    ------
    UncertainCommitError
        The store failed, and nobody knows whether it was deleted.
    StorageError
        The store refused, and it was not.
    """
    try:
        store.delete([path])
    except StorageError as error:
        if is_refusal(error) and _shows(lambda: store.exists(path)):
            raise
        raise _uncertain("deleted", error) from error


def _shows(look: Callable[[], bool]) -> bool:
    try:
        return look()
    except LanceError:
        return False


def _uncertain(what: str, error: StorageError) -> UncertainCommitError:
    return UncertainCommitError(
        f"{error}; nobody knows whether the file was {what}: look whether it was before trying again"
    )


def branch_in(fields: Fields, key: str, name: str) -> str | None:
    """Return the branch that a field names; None for the main one.

    Raises
    ------
    CorruptTableError
    """
    branch = fields.text(key)
    if branch is None or branch == ref_names.MAIN:
        return None
    try:
        return ref_names.check_branch_name(branch)
    except InvalidInputError as error:
        raise CorruptTableError(f"{name}: {key}: {error}") from None


def nearest(name: str, names: list[str]) -> str:
    """Return which names there are that could be meant, for messages."""
    if not names:
        return "it has none"
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f"did you mean {' or '.join(repr(other) for other in near)}?"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"it has {', '.join(repr(other) for other in names[:5])}{more}"


def write(content: Mapping[str, object]) -> bytes:
    """Return the bytes of a file."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def check_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of what a user gives as metadata.

    Raises
    ------
    InvalidInputError
        Not only strings.
    """
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInputError(f"metadata are strings by strings, not {key!r}: {value!r}")
    return dict(metadata)


def format_time(nanos: int) -> str:
    """Return nanoseconds since 1970 as RFC 3339."""
    seconds, rest = divmod(nanos, _NANOS)
    stamp = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    digits = f"{rest:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    point = "." if digits else ""
    return f"{stamp:%Y-%m-%dT%H:%M:%S}{point}{digits}Z"


def parse_time(text: str) -> datetime.datetime:
    """Return an RFC 3339 time in UTC, cut to microseconds.

    Raises
    ------
    ValueError, OverflowError
    """
    parsed = datetime.datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError("no time zone")
    return parsed.astimezone(datetime.UTC)

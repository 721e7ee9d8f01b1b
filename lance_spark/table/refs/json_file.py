"""The JSON files of tags and branches: checked reads, and atomic creation, replacement and removal.

Files have the form that other clients write: an indentation of two spaces, non-ASCII characters
unescaped. Times are RFC 3339 in UTC, with 0, 3, 6 or 9 digits after the point. Readers ignore
unknown fields.
"""

from __future__ import annotations

import datetime
import difflib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from lance_spark.errors import (
    CorruptFileError,
    CorruptTableError,
    InvalidInputError,
    LanceError,
    MissingFileError,
    StorageError,
    UncertainCommitError,
    VersionNotFoundError,
)
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.parallel import read_each
from lance_spark.storage.retry import seen_whole
from lance_spark.storage.store import ObjectStore
from lance_spark.table.refs import names as ref_names

#: A longer file is not read. Tags and branches are far shorter.
MAX_BYTES = 16 * 1024 * 1024
_NANOS = 1_000_000_000
_MAX_U64 = 2**64 - 1
#: The content of a file: `Tag` or `Branch`.
_Ref = TypeVar("_Ref")


class Fields:
    """The fields of the JSON object in the file of a tag or branch, with checked types.

    - `name`: Name of the file, for errors.
    - `label`: "tag" or "branch", for errors.

    Raises CorruptTableError: the data is not a JSON object.
    """

    def __init__(self, data: bytes, name: str, label: str) -> None:
        self._name = name
        self._label = label
        try:
            content: Any = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CorruptTableError(f"{name}: the {label} is not valid JSON: {error}") from None
        if not isinstance(content, dict):
            raise CorruptTableError(f"{name}: the {label} must be a JSON object")
        self._content = content

    def get(self, key: str) -> Any:
        """Return a field without a check; None if it is missing."""
        return self._content.get(key)

    def number(self, key: str, default: int | None = None) -> int:
        """Return an unsigned 64-bit integer field.

        Raises CorruptTableError: the value is not such an integer, or it is missing and has no
        default.
        """
        value = self._content.get(key, default)
        if type(value) is not int or not 0 <= value <= _MAX_U64:
            raise self.error(key, "an integer from 0 to 2**64 - 1")
        return value

    def text(self, key: str) -> str | None:
        """Return a string field; None if it is missing or null. Raises CorruptTableError."""
        value = self._content.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, "a string or null")
        return value

    def time(self, key: str) -> str | None:
        """Return a time field as its RFC 3339 text; None if it is missing or null.

        Raises CorruptTableError.
        """
        value = self.text(key)
        if value is not None:
            try:
                parse_time(value)
            except (ValueError, OverflowError):
                raise self.error(key, "an RFC 3339 time") from None
        return value

    def branch(self, key: str) -> str | None:
        """Return the name of a branch; None for the main branch. Raises CorruptTableError."""
        branch = self.text(key)
        if branch is None or branch == ref_names.MAIN:
            return None
        try:
            return ref_names.check_branch_name(branch)
        except InvalidInputError as error:
            raise CorruptTableError(f"{self._name}: {key}: {error}") from None

    def texts(self, key: str) -> dict[str, str]:
        """Return a field that maps strings to strings; an empty dict if it is missing.

        Raises CorruptTableError.
        """
        value = self._content.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self.error(key, "an object of strings")
        return dict(value)

    def error(self, key: str, expected: str) -> CorruptTableError:
        """Return the error for a field with a wrong type or value."""
        shown = repr(self._content.get(key))
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return CorruptTableError(
            f"{self._name}: {key} of a {self._label} must be {expected}, not {shown}"
        )


class RefFiles(Generic[_Ref]):
    """The files of all tags, or of all branches, of a table.

    In all methods, `store` is the table's main root.

    - `label`: "tag" or "branch", for errors.
    - `check_name`: Returns a valid name; raises InvalidInputError for any other text.
    - `parse`: Returns the content of a file; raises CorruptTableError.
    """

    def __init__(
        self,
        label: str,
        folder: str,
        check_name: Callable[[str], str],
        parse: Callable[[Fields], _Ref],
    ) -> None:
        self._label = label
        self._folder = folder
        self._check_name = check_name
        self._parse = parse

    def path(self, name: str) -> str:
        """Return the path of a file. Raises InvalidInputError if the name is not valid."""
        return ref_names.file_of(self._folder, self._check_name(name))

    def names(self, store: ObjectStore) -> list[str]:
        """Return the sorted names of all files.

        Raises StorageError. Raises CorruptTableError: a file name does not encode a valid name.
        """
        names = []
        for file in store.list_names(self._folder):
            suffix = ref_names.SUFFIX
            if not file.endswith(suffix) or (file.startswith(".") and file.endswith(".tmp")):
                continue
            name = unquote(file.removesuffix(suffix))
            path = f"{self._folder}/{file}"
            try:
                if self.path(name) != path:
                    raise InvalidInputError(f"the file name does not encode {name!r} canonically")
            except InvalidInputError as error:
                raise CorruptTableError(f"{store.name(path)}: {error}") from None
            names.append(name)
        return sorted(names)

    def find(self, store: ObjectStore, name: str) -> _Ref | None:
        """Read a file; return None if it does not exist.

        Raises InvalidInputError, CorruptTableError, StorageError.
        """
        path = self.path(name)
        try:
            return self.decode(store.read_bytes(path, MAX_BYTES), store.name(path))
        except MissingFileError:
            return None
        except CorruptFileError as error:
            raise CorruptTableError(str(error)) from None

    def read(self, store: ObjectStore, name: str) -> _Ref:
        """Read a file.

        Raises StorageError. Raises VersionNotFoundError: the file does not exist; the message
        suggests similar names. Raises InvalidInputError: the name is not valid. Raises
        CorruptTableError: the file contradicts the format, or is longer than `MAX_BYTES`.
        """
        content = self.find(store, name)
        if content is None:
            raise self.not_found(store, name)
        return content

    def read_all(self, store: ObjectStore) -> dict[str, _Ref]:
        """Read all files; return their contents by name, in the order of the names.

        Raises CorruptTableError, StorageError.
        """
        names = self.names(store)
        contents = read_each(partial(self.find, store), names, local=store.is_local)
        # None: deleted after the listing.
        return {
            name: content
            for name, content in zip(names, contents, strict=True)
            if content is not None
        }

    def check_exists(self, store: ObjectStore, name: str) -> None:
        """Raise an error if a file does not exist.

        Raises VersionNotFoundError, InvalidInputError, StorageError.
        """
        if not store.exists(self.path(name)):
            raise self.not_found(store, name)

    def not_found(self, store: ObjectStore, name: str) -> VersionNotFoundError:
        """Return the error for a name that has no file."""
        hint = _suggestion(name, self.names(store))
        return VersionNotFoundError(f"{store.display}: {self._label} {name!r} not found: {hint}")

    def decode(self, data: bytes, name: str) -> _Ref:
        """Parse the content of a file; errors call it `name`. Raises CorruptTableError."""
        return self._parse(Fields(data, name, self._label))


def create(store: ObjectStore, path: str, data: bytes) -> bool:
    """Create the file of a tag or branch; return False if another client's file exists.

    Raises UncertainCommitError: the store failed, and it is unknown whether the file was created.
    Raises StorageError: the store refused. The file was not created.
    """
    try:
        if store.put_if_absent(path, data):
            return True
    except StorageError as error:
        if is_refusal(error):
            raise
        raise _uncertain("created", error) from error
    # The store's client repeats a request whose answer was lost: then the file that exists is our
    # own.
    try:
        return seen_whole(lambda: store.read_bytes(path, MAX_BYTES), data) == data
    except CorruptFileError:
        return False
    except StorageError as error:
        if store.is_local and isinstance(error, MissingFileError):
            return False
        # A file that was removed meanwhile may have been the own one.
        raise _uncertain("created", error) from error


def replace(store: ObjectStore, path: str, data: bytes) -> None:
    """Replace the file of a tag or branch.

    Raises UncertainCommitError: the store failed, and it is unknown whether the file was replaced.
    Raises StorageError: the store refused. The file was not replaced.
    """
    try:
        store.write_bytes(path, data)
    except StorageError as error:
        # If the client repeated the request, an earlier attempt may have succeeded before this
        # refusal.
        if is_refusal(error) and _holds(lambda: store.read_bytes(path, MAX_BYTES) != data):
            raise
        raise _uncertain("replaced", error) from error


def remove(store: ObjectStore, path: str) -> None:
    """Delete the file of a tag or branch, if it exists.

    Raises UncertainCommitError: the store failed, and it is unknown whether the file was deleted.
    Raises StorageError: the store refused. The file was not deleted.
    """
    try:
        store.delete([path])
    except StorageError as error:
        if is_refusal(error) and _holds(lambda: store.exists(path)):
            raise
        raise _uncertain("deleted", error) from error


def _holds(condition: Callable[[], bool]) -> bool:
    """Return the value of a condition; False if it cannot be evaluated."""
    try:
        return condition()
    except LanceError:
        return False


def _uncertain(change: str, error: StorageError) -> UncertainCommitError:
    return UncertainCommitError(
        f"{error}; it is unknown whether the file was {change}: check that before trying again"
    )


def _suggestion(name: str, names: list[str]) -> str:
    """Return the end of an error about an unknown name: similar names, or some names that exist."""
    if not names:
        return "the table has none"
    similar = difflib.get_close_matches(name, names, n=3)
    if similar:
        return f"did you mean {' or '.join(repr(similar_name) for similar_name in similar)}?"
    suffix = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"the table has {', '.join(repr(existing_name) for existing_name in names[:5])}{suffix}"


def encode(content: Mapping[str, object]) -> bytes:
    """Return the bytes of the file with this content."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def check_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of a user's metadata.

    Raises InvalidInputError: a key or value is not a string.
    """
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInputError(
                f"metadata must map strings to strings, not {key!r} to {value!r}"
            )
    return dict(metadata)


def format_time(nanos: int) -> str:
    """Return a time, in nanoseconds since 1970, as RFC 3339 text."""
    seconds, fraction = divmod(nanos, _NANOS)
    stamp = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    digits = f"{fraction:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    point = "." if digits else ""
    return f"{stamp:%Y-%m-%dT%H:%M:%S}{point}{digits}Z"


def parse_time(text: str) -> datetime.datetime:
    """Parse an RFC 3339 time; return it in UTC, truncated to microseconds.

    Raises ValueError, OverflowError.
    """
    parsed = datetime.datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError("no time zone")
    return parsed.astimezone(datetime.UTC)

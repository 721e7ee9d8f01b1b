"""Tags: names for versions, one small JSON file each in `_refs/tags/` of the table's main root.

| key | value |
| --- | --- |
| version | number of the version |
| branch | the branch that it is on, null for the main one |
| createdAt, updatedAt | RFC 3339 |
| manifestSize | bytes of the version's manifest |
| metadata | an object of strings |

A branch named b keeps its versions in `tree/{b}/`, as a table of its own that refers to the files of its parent. Cleanup
by other clients leaves tagged versions alone.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    MissingFileError,
    VersionNotFoundError,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import check_relative
from lance_spark.table import versions

FOLDER = "_refs/tags"
_SUFFIX = ".json"
_MAX_VERSION = 2**63


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for a version.

    Attributes
    ----------
    version : int
    branch : str, optional
        The branch that the version is on; None for the main one.
    manifest_size : int
        Bytes of the version's manifest; 0 = unknown.
    metadata : mapping of str to str
    """

    version: int
    branch: str | None = None
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """Folder of the branch below the table's main root; empty for the main one."""
        return branch_root(self.branch) if self.branch is not None else ""


def branch_root(branch: str) -> str:
    """Return the folder of a branch below the table's main root."""
    return f"tree/{branch}"


def tag_names(store: ObjectStore) -> list[str]:
    """Return the names of all tags, sorted.

    Raises
    ------
    StorageError
    """
    names = store.list_names(FOLDER)
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def read_tag(store: ObjectStore, name: str) -> Tag:
    """Read a tag.

    Raises
    ------
    VersionNotFoundError
        There is none of that name; the message names those that are near.
    InvalidInputError
        No tag can have that name.
    CorruptTableError
        The file contradicts the format.
    StorageError
    """
    path = _path(name)
    try:
        data = store.read_bytes(path)
    except MissingFileError:
        raise VersionNotFoundError(
            f"{store.display} has no tag {name!r}: {_nearest(name, tag_names(store))}"
        ) from None
    return decode(data, store.name(path))


def read_tags(store: ObjectStore) -> dict[str, Tag]:
    """Read all tags.

    Raises
    ------
    CorruptTableError, StorageError
    """
    tags = {}
    for name in tag_names(store):
        try:
            tags[name] = read_tag(store, name)
        except VersionNotFoundError:
            # Deleted meanwhile.
            continue
    return tags


def create_tag(store: ObjectStore, name: str, version: int) -> Tag:
    """Name a version of the main branch.

    Raises
    ------
    InvalidInputError
        No tag can have that name, or there is one of that name already.
    VersionNotFoundError
        There is no such version.
    StorageError
    """
    path = _path(name)
    location = versions.find(store, version)
    tag = Tag(version, manifest_size=len(store.read_bytes(location.path)))
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    content: dict[str, object] = {
        "branch": tag.branch,
        "version": tag.version,
        "createdAt": now,
        "updatedAt": now,
        "manifestSize": tag.manifest_size,
        "metadata": {},
    }
    if not store.put_if_absent(path, json.dumps(content, indent=2).encode()):
        raise InvalidInputError(
            f"{store.display} has a tag {name!r} already; delete it or choose another name"
        )
    return tag


def delete_tag(store: ObjectStore, name: str) -> None:
    """Take the name from a version.

    Raises
    ------
    VersionNotFoundError
        There is no such tag.
    InvalidInputError, StorageError
    """
    read_tag(store, name)
    store.delete([_path(name)])


def decode(data: bytes, name: str) -> Tag:
    """Parse the file of a tag; `name` is what errors call it.

    Raises
    ------
    CorruptTableError
    """
    try:
        content: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptTableError(f"{name}: no readable tag: {error}") from None
    if not isinstance(content, dict):
        raise CorruptTableError(f"{name}: a tag is a JSON object")
    version, branch = content.get("version"), content.get("branch")
    size, metadata = content.get("manifestSize"), content.get("metadata")
    if type(version) is not int or not 0 < version < _MAX_VERSION:
        raise CorruptTableError(f"{name}: {version!r} is no version")
    if branch is not None:
        try:
            branch = check_relative(str(branch))
        except InvalidInputError as error:
            raise CorruptTableError(f"{name}: branch: {error}") from None
    return Tag(
        version,
        branch,
        size if type(size) is int and size > 0 else 0,
        {str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {},
    )


def _path(name: str) -> str:
    if (
        not all(char.isalnum() or char in "._-" for char in name)
        or not name
        or name.startswith(".")
        or name.endswith((".", ".lock"))
        or ".." in name
    ):
        raise InvalidInputError(
            f"{name!r} cannot be the name of a tag: letters, digits, '.', '-' and '_' can be in it, "
            "but no '.' at either end, no '..', and no '.lock' at the end"
        )
    return f"{FOLDER}/{name}{_SUFFIX}"


def _nearest(name: str, names: list[str]) -> str:
    if not names:
        return "it has none"
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f"did you mean {' or '.join(repr(other) for other in near)}?"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"it has {', '.join(repr(other) for other in names[:5])}{more}"

"""Tags: names for versions, one small JSON file each in `_refs/tags/` of the table's main root.

| key | value |
| --- | --- |
| branch | the branch that the version is on, null for the main one |
| version | number of the version; may be that of a detached one |
| createdAt, updatedAt | RFC 3339 in nanoseconds; files of early releases have none |
| manifestSize | bytes of the version's manifest |
| metadata | an object of strings |

Branches are in `branches.py`. Cleanup leaves tagged versions alone; who meets one that is removing the version takes the tag back (`marks`).
So does who meets the deletion of the branch that the version is on.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lance_spark.errors import (
    InvalidInputError,
    MissingFileError,
    TableNotFoundError,
    VersionNotFoundError,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.refs import json_file as ref_json
from lance_spark.table.refs import names as ref_names
from lance_spark.table.refs.branch_store import Branch, check_exists, check_same, read_branch
from lance_spark.table.refs.names import branch_root, branch_store
from lance_spark.table.refs.removal_guard import check_named, check_stays, taken_back

__all__ = ["FOLDER", "Tag", "branch_root"]

FOLDER = ref_names.TAGS


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
    created, updated : str, optional
        RFC 3339.
    """

    version: int
    branch: str | None = None
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    created: str | None = None
    updated: str | None = None

    @property
    def root(self) -> str:
        """Folder of the branch below the table's main root; empty for the main one."""
        return branch_root(self.branch) if self.branch is not None else ""

    @property
    def created_at(self) -> datetime.datetime | None:
        """When the tag was made, in UTC, cut to microseconds."""
        return None if self.created is None else ref_json.parse_time(self.created)

    @property
    def updated_at(self) -> datetime.datetime | None:
        """When the tag was last put on another version, in UTC, cut to microseconds."""
        return None if self.updated is None else ref_json.parse_time(self.updated)

    def is_same(self, other: Tag) -> bool:
        """Tell whether it is another tag only by its metadata, if at all: a name can be moved, or deleted and made again."""
        return replace(self, metadata=other.metadata) == other

    def encode(self) -> bytes:
        """Return the bytes of the tag's file."""
        return ref_json.write(
            {
                "branch": self.branch,
                "version": self.version,
                "createdAt": self.created,
                "updatedAt": self.updated,
                "manifestSize": self.manifest_size,
                "metadata": dict(self.metadata),
            }
        )


def tag_names(store: ObjectStore) -> list[str]:
    """Return the names of all tags, sorted.

    Parameters
    ----------
    store : ObjectStore
        The table's main root, here and in the other functions.

    Raises
    ------
    CorruptTableError
        A file has a name that no tag can have.
    StorageError
    """
    return ref_names.names_in(store, FOLDER)


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
    found = _find_tag(store, name)
    if found is None:
        raise _no_tag(store, name)
    return found


def _find_tag(store: ObjectStore, name: str) -> Tag | None:
    path = _path(name)
    try:
        return decode(ref_json.read(store, path), store.name(path))
    except MissingFileError:
        return None


def _no_tag(store: ObjectStore, name: str) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"{store.display} has no tag {name!r}: {ref_json.nearest(name, tag_names(store))}"
    )


def read_tags(store: ObjectStore) -> dict[str, Tag]:
    """Read all tags, by their names, which are sorted.

    Raises
    ------
    CorruptTableError, StorageError
    """
    tags = {}
    for name in tag_names(store):
        found = _find_tag(store, name)
        # Else deleted meanwhile.
        if found is not None:
            tags[name] = found
    return tags


def create_tag(
    store: ObjectStore,
    name: str,
    version: int,
    branch: str | None = None,
    *,
    manifest: Manifest | None = None,
) -> Tag:
    """Name a version.

    Parameters
    ----------
    store : ObjectStore
    name : str
    version : int
    branch : str, optional
        The branch that the version is on; none for the main one.
    manifest : Manifest, optional
        That of the version, if it is at hand; else it is read.

    Raises
    ------
    InvalidInputError
        No tag can have that name, or there is one of that name already.
    VersionNotFoundError
        There is no such version, a cleanup is removing it, or its branch has been deleted meanwhile.
    UncertainCommitError
        The store failed, and nobody knows whether the tag was made.
    CorruptTableError, StorageError
    """
    if not name.isascii():
        # pylance writes a file for it and then fails to list any tag of the table.
        raise InvalidInputError(
            f"{name!r} cannot be the name of a new tag: not only ASCII is in it"
        )
    path = _path(name)
    found = _branch(store, branch)
    root = branch_store(store, branch)
    manifest, size = _known(root, version, manifest)
    now = ref_json.format_time(time.time_ns())
    tag = Tag(version, branch, size, {}, now, now)
    if not ref_json.create(store, path, tag.encode()):
        raise InvalidInputError(
            f"{store.display} has a tag {name!r} already; update it, delete it, or choose another name"
        )
    _check(store, tag, found, manifest, lambda: _take_back(store, name, tag))
    return tag


def _branch(store: ObjectStore, name: str | None) -> Branch | None:
    return None if name is None else read_branch(store, name)


def _check(
    store: ObjectStore,
    tag: Tag,
    branch: Branch | None,
    manifest: Manifest,
    take_back: Callable[[], None],
) -> None:
    """Look whether version and branch of a tag that is written stay, and take it back if they do not, or nobody knows."""
    if tag.branch is not None and branch is not None:
        # A deletion looks for tags once the branch has lost its name.
        with taken_back(take_back):
            check_same(store, tag.branch, branch)
    check_named(branch_store(store, tag.branch), manifest, take_back)


def _take_back(store: ObjectStore, name: str, tag: Tag) -> None:
    """Delete a tag that has just been made, unless somebody else has moved or deleted it, and maybe made another of that name."""
    found = _find_tag(store, name)
    if found is not None and found.is_same(tag):
        ref_json.remove(store, _path(name))


def update_tag(
    store: ObjectStore,
    name: str,
    version: int,
    branch: str | None = None,
    *,
    manifest: Manifest | None = None,
) -> Tag:
    """Put a tag on another version; see `create_tag`.

    Raises
    ------
    VersionNotFoundError
        There is no such tag or version, a cleanup is removing it, or its branch has been deleted meanwhile.
    UncertainCommitError
        The store failed, and nobody knows which version the tag names; or the version that it named was removed meanwhile.
    InvalidInputError, CorruptTableError, StorageError
    """
    old = read_tag(store, name)
    found = _branch(store, branch)
    root = branch_store(store, branch)
    manifest, size = _known(root, version, manifest)
    # Once the tag is on another version, nothing keeps the old one: better not to begin.
    check_stays(root, manifest)
    now = ref_json.format_time(time.time_ns())
    tag = replace(old, version=version, branch=branch, manifest_size=size, updated=now)
    ref_json.replace(store, _path(name), tag.encode())
    _check(store, tag, found, manifest, lambda: _put_back(store, name, tag, old))
    return tag


def _put_back(store: ObjectStore, name: str, tag: Tag, old: Tag) -> None:
    """Put a tag back on the version that it named, unless somebody else has moved or deleted it meanwhile.

    Raises
    ------
    VersionNotFoundError
        That version goes, too, or has gone.
    CorruptTableError, StorageError
    """
    found = _find_tag(store, name)
    if found is None or not found.is_same(tag):
        return
    root = branch_store(store, old.branch)
    try:
        manifest = read_version(root, old.version)
    except (VersionNotFoundError, TableNotFoundError):
        ref_json.remove(store, _path(name))
        raise VersionNotFoundError(
            f"{root.display}: version {old.version}, which the tag {name!r} named, has been removed meanwhile, so that the tag is deleted"
        ) from None
    back = replace(old, metadata=found.metadata)
    ref_json.replace(store, _path(name), back.encode())
    # Between the two writes a cleanup saw no tag on it, nor did a deletion of its branch.
    check_stays(root, manifest)
    if old.branch is not None:
        check_exists(store, old.branch)


def replace_tag_metadata(store: ObjectStore, name: str, metadata: Mapping[str, str]) -> Tag:
    """Give a tag other metadata instead of what it has.

    Raises
    ------
    VersionNotFoundError
        There is no such tag.
    UncertainCommitError
        The store failed, and nobody knows which metadata the tag has.
    InvalidInputError, CorruptTableError, StorageError
    """
    tag = replace(read_tag(store, name), metadata=ref_json.check_metadata(metadata))
    ref_json.replace(store, _path(name), tag.encode())
    return tag


def delete_tag(store: ObjectStore, name: str) -> None:
    """Take the name from a version.

    Raises
    ------
    VersionNotFoundError
        There is no such tag.
    UncertainCommitError
        The store failed, and nobody knows whether the tag is there.
    InvalidInputError, StorageError
    """
    path = _path(name)
    if not store.exists(path):
        raise _no_tag(store, name)
    ref_json.remove(store, path)


def decode(data: bytes, name: str) -> Tag:
    """Parse the file of a tag; `name` is what errors call it.

    Raises
    ------
    CorruptTableError
    """
    fields = ref_json.Fields(data, name, "tag")
    version = fields.number("version")
    if not version:
        raise fields.wrong("version", "a version, from 1 on")
    return Tag(
        version,
        ref_json.branch_in(fields, "branch", name),
        fields.number("manifestSize", 0),
        fields.texts("metadata"),
        fields.time("createdAt"),
        fields.time("updatedAt"),
    )


def manifest_size(store: ObjectStore, version: int) -> int:
    """Return the bytes of a version's manifest.

    Raises
    ------
    VersionNotFoundError, TableNotFoundError, StorageError
    """
    if not versions.is_detached(version):
        for location in versions.candidates(store, version):
            # The store is asked for the size anyway, and so tells whether there is one.
            with suppress(MissingFileError):
                return _size(store, location.path)
    return _size(store, versions.find(store, version).path)


def _size(store: ObjectStore, path: str) -> int:
    source = store.open(path)
    try:
        return source.size
    finally:
        source.close()


def _known(store: ObjectStore, version: int, manifest: Manifest | None) -> tuple[Manifest, int]:
    """Return the manifest of a version, which is read unless it is at hand, and its bytes."""
    if manifest is not None:
        return manifest, manifest_size(store, version)
    manifest = read_version(store, version)
    return manifest, manifest.size_bytes


def _path(name: str) -> str:
    return ref_names.file_of(FOLDER, ref_names.check_tag_name(name))

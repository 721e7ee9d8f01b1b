"""Tags: one small JSON file per tag in `_refs/tags/` of the table's main root.

| key | value |
| --- | --- |
| branch | the branch of the version, null for the main branch |
| version | number of the version; may be a detached version |
| createdAt, updatedAt | RFC 3339 in nanoseconds; missing in files of early releases |
| manifestSize | bytes of the version's manifest |
| metadata | an object of strings |

Cleanup keeps tagged versions. A client that writes a tag checks afterwards that neither cleanup is
removing the version (`removal_guard`) nor another client is deleting its branch, and otherwise
undoes the change.
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
from lance_spark.storage.parallel import call_all
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.refs import json_file as ref_json
from lance_spark.table.refs import names as ref_names
from lance_spark.table.refs.branch_store import BRANCHES, Branch, check_same
from lance_spark.table.refs.names import branch_root, branch_store
from lance_spark.table.refs.removal_guard import check_named, check_stays, undo_on_error


@dataclass(frozen=True, slots=True)
class Tag:
    """The content of a tag file.

    - `branch`: The branch of the version; None for the main branch.
    - `manifest_size`: Bytes of the version's manifest; 0 if unknown.
    - `created`, `updated`: RFC 3339 times at which the tag was created and last moved to another
      version.
    """

    version: int
    branch: str | None = None
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    created: str | None = None
    updated: str | None = None

    @property
    def root(self) -> str:
        """Folder of the branch, relative to the table's main root; empty for the main branch."""
        return branch_root(self.branch) if self.branch is not None else ""

    @property
    def created_at(self) -> datetime.datetime | None:
        """Time at which the tag was created, in UTC, truncated to microseconds."""
        return None if self.created is None else ref_json.parse_time(self.created)

    @property
    def updated_at(self) -> datetime.datetime | None:
        """Time at which the tag was last moved, in UTC, truncated to microseconds."""
        return None if self.updated is None else ref_json.parse_time(self.updated)

    def is_same(self, other: Tag) -> bool:
        """Return whether the tag was neither moved nor replaced. Metadata may differ."""
        return replace(self, metadata=other.metadata) == other

    def encode(self) -> bytes:
        """Return the bytes of the tag file."""
        return ref_json.encode(
            {
                "branch": self.branch,
                "version": self.version,
                "createdAt": self.created,
                "updatedAt": self.updated,
                "manifestSize": self.manifest_size,
                "metadata": dict(self.metadata),
            }
        )


def create_tag(
    store: ObjectStore,
    name: str,
    version: int,
    branch: str | None = None,
    *,
    manifest: Manifest | None = None,
    check: Callable[[], object] | None = None,
) -> Tag:
    """Create a tag on a version.

    - `branch`: The branch of the version; None for the main branch.
    - `manifest`: The manifest of the version, if the caller has it; by default it is read.
    - `check`: Raises an error if this client may not write. It is called together with the first
      reads.

    Raises CorruptTableError, StorageError. Raises InvalidInputError: the name is not valid, or a
    tag of that name exists. Raises VersionNotFoundError: the version does not exist, a cleanup is
    removing it, or its branch was deleted meanwhile. Raises UncertainCommitError: the store failed,
    and it is unknown whether the tag was created.
    """
    if not name.isascii():
        # pylance writes a file for it and then fails to list any tag of the table.
        raise InvalidInputError(
            f"{name!r} cannot be the name of a new tag: use ASCII characters only"
        )
    path = TAGS.path(name)
    _, known_branch, (manifest, size) = call_all(
        (check or _no_check, *_reads_of(store, version, branch, manifest)), local=store.is_local
    )
    now = ref_json.format_time(time.time_ns())
    tag = Tag(version, branch, size, {}, now, now)
    if not ref_json.create(store, path, tag.encode()):
        raise InvalidInputError(
            f"{store.display}: tag {name!r} already exists; update it, delete it, or choose "
            "another name"
        )
    _check_written(store, tag, known_branch, manifest, lambda: _undo_create(store, name, tag))
    return tag


def _no_check() -> None:
    pass


def _reads_of(
    store: ObjectStore, version: int, branch: str | None, manifest: Manifest | None
) -> tuple[Callable[[], Branch | None], Callable[[], tuple[Manifest, int]]]:
    """Return functions that read the branch of a version, and its manifest with the size."""
    return (
        lambda: None if branch is None else BRANCHES.read(store, branch),
        lambda: _manifest_and_size(branch_store(store, branch), version, manifest),
    )


def _check_written(
    store: ObjectStore,
    tag: Tag,
    branch: Branch | None,
    manifest: Manifest,
    undo: Callable[[], None],
) -> None:
    """Check that the version and branch of a written tag stay, and undo the tag if they do not."""
    if tag.branch is not None and branch is not None:
        # A deletion of the branch looks for tags after it deleted the branch file.
        with undo_on_error(undo):
            check_same(store, tag.branch, branch)
    check_named(branch_store(store, tag.branch), manifest, undo)


def _undo_create(store: ObjectStore, name: str, tag: Tag) -> None:
    """Delete a tag that was just created, unless another client moved, deleted or replaced it."""
    current = TAGS.find(store, name)
    if current is not None and current.is_same(tag):
        ref_json.remove(store, TAGS.path(name))


def update_tag(
    store: ObjectStore,
    name: str,
    version: int,
    branch: str | None = None,
    *,
    manifest: Manifest | None = None,
    check: Callable[[], object] | None = None,
) -> Tag:
    """Move a tag to another version; see `create_tag` for the parameters.

    Raises InvalidInputError, CorruptTableError, StorageError. Raises VersionNotFoundError: the tag
    or version does not exist, a cleanup is removing the version, or its branch was deleted
    meanwhile. Raises UncertainCommitError: the store failed, and it is unknown which version has
    the tag; or the tag was to be moved back, and the old version was removed meanwhile.
    """
    old: Tag
    _, old, known_branch, (manifest, size) = call_all(
        (
            check or _no_check,
            lambda: TAGS.read(store, name),
            *_reads_of(store, version, branch, manifest),
        ),
        local=store.is_local,
    )
    root = branch_store(store, branch)
    # Checked before as well: once the tag is moved, nothing protects the old version.
    check_stays(root, manifest)
    now = ref_json.format_time(time.time_ns())
    tag = replace(old, version=version, branch=branch, manifest_size=size, updated=now)
    ref_json.replace(store, TAGS.path(name), tag.encode())
    _check_written(store, tag, known_branch, manifest, lambda: _move_back(store, name, tag, old))
    return tag


def _move_back(store: ObjectStore, name: str, tag: Tag, old: Tag) -> None:
    """Move a tag back to its old version, unless another client moved or deleted it meanwhile.

    Raises CorruptTableError, StorageError. Raises VersionNotFoundError: the old version was removed
    or is being removed.
    """
    current = TAGS.find(store, name)
    if current is None or not current.is_same(tag):
        return
    root = branch_store(store, old.branch)
    try:
        manifest = read_version(root, old.version)
    except (VersionNotFoundError, TableNotFoundError):
        ref_json.remove(store, TAGS.path(name))
        raise VersionNotFoundError(
            f"{root.display}: version {old.version}, the old version of tag {name!r}, was removed "
            "meanwhile; the tag was deleted"
        ) from None
    restored = replace(old, metadata=current.metadata)
    ref_json.replace(store, TAGS.path(name), restored.encode())
    # Between the two writes, neither a cleanup nor a deletion of the branch saw a tag on the old
    # version.
    check_stays(root, manifest)
    if old.branch is not None:
        BRANCHES.check_exists(store, old.branch)


def replace_tag_metadata(
    store: ObjectStore,
    name: str,
    metadata: Mapping[str, str],
    *,
    check: Callable[[], object] | None = None,
) -> Tag:
    """Replace the metadata of a tag; see `create_tag` for `check`.

    Raises InvalidInputError, CorruptTableError, StorageError. Raises VersionNotFoundError: the tag
    does not exist. Raises UncertainCommitError: the store failed, and it is unknown which metadata
    the tag has.
    """
    old: Tag
    _, old = call_all((check or _no_check, lambda: TAGS.read(store, name)), local=store.is_local)
    tag = replace(old, metadata=ref_json.check_metadata(metadata))
    ref_json.replace(store, TAGS.path(name), tag.encode())
    return tag


def delete_tag(store: ObjectStore, name: str, *, check: Callable[[], object] | None = None) -> None:
    """Delete a tag; see `create_tag` for `check`. The version stays.

    Raises InvalidInputError, StorageError. Raises VersionNotFoundError: the tag does not exist.
    Raises UncertainCommitError: the store failed, and it is unknown whether the tag still exists.
    """
    call_all((check or _no_check, lambda: TAGS.check_exists(store, name)), local=store.is_local)
    ref_json.remove(store, TAGS.path(name))


def _parse(fields: ref_json.Fields) -> Tag:
    version = fields.number("version")
    if not version:
        raise fields.error("version", "at least 1")
    return Tag(
        version,
        fields.branch("branch"),
        fields.number("manifestSize", 0),
        fields.texts("metadata"),
        fields.time("createdAt"),
        fields.time("updatedAt"),
    )


def manifest_size(store: ObjectStore, version: int) -> int:
    """Return the size of a version's manifest in bytes.

    Raises VersionNotFoundError, TableNotFoundError, StorageError.
    """
    if not versions.is_detached(version):
        for location in versions.candidates(store, version):
            # Opening the file also shows whether it exists: no listing is needed.
            with suppress(MissingFileError):
                return _size(store, location.path)
    return _size(store, versions.find(store, version).path)


def _size(store: ObjectStore, path: str) -> int:
    source = store.open(path)
    try:
        return source.size
    finally:
        source.close()


def _manifest_and_size(
    store: ObjectStore, version: int, manifest: Manifest | None
) -> tuple[Manifest, int]:
    """Return the manifest of a version, read unless it is given, and its size in bytes."""
    if manifest is not None:
        return manifest, manifest_size(store, version)
    manifest = read_version(store, version)
    return manifest, manifest.size_bytes


#: The tag files.
TAGS = ref_json.RefFiles("tag", ref_names.TAGS, ref_names.check_tag_name, _parse)
read_tag = TAGS.read
read_tags = TAGS.read_all

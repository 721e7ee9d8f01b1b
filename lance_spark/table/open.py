"""An open table: one version, and the function that opens it by number, tag, branch or time."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidOptionError, MissingFileError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.bases import TargetBases
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import read_manifest, read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation
from lance_spark.table.paths import TablePaths
from lance_spark.table.refs import names as ref_names
from lance_spark.table.refs.foreign_branches import check_branch_bases

if TYPE_CHECKING:
    from lance_spark.file.schema.schema import Schema

#: Attempts to read the newest version: cleanup can remove it between the listing and the read.
_ATTEMPTS = 3
_NO_TARGETS = TargetBases()


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table at one version. Can be pickled.

    Attributes
    ----------
    paths : TablePaths
        Opens the table's files.
    manifest : Manifest
    target_bases : TargetBases
        The choice of base paths for new data files; see `lance_spark.table.placement`.
    """

    paths: TablePaths
    manifest: Manifest
    target_bases: TargetBases = _NO_TARGETS

    @property
    def store(self) -> ObjectStore:
        """The table's root."""
        return self.paths.store

    @property
    def branch(self) -> str | None:
        """The branch of the version.

        None for the main branch, and for a branch that was copied to a folder of its own.
        """
        return self.manifest.branch if self.main is not self.store else None

    @property
    def main(self) -> ObjectStore:
        """The root of the main branch, which has the tags and branches."""
        return ref_names.main_store(self.store, self.manifest.branch)

    @property
    def version(self) -> int:
        """The number of the version."""
        return self.manifest.version

    @property
    def schema(self) -> Schema:
        """The columns, with field ids."""
        return self.manifest.schema


def open_table(
    uri: str,
    *,
    version: int | None = None,
    branch: str | None = None,
    tag: str | None = None,
    timestamp: datetime.datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> OpenTable:
    """Open a table at its newest version, or at a given version, tag or time.

    Parameters
    ----------
    uri : str
        Path or URI of the root of the table, or of one of its branches.
    version : int, optional
        May be the number of a detached version.
    branch : str, optional
        ``main`` for the main branch. By default the branch whose root `uri` is.
    tag : str, optional
        May name a version of a branch.
    timestamp : datetime, optional
        Opens the newest version that was committed at or before this time. Needs a time zone.
    storage_options : mapping, optional
        Credentials, endpoint and other settings, with the names that other Lance clients use; see
        docs/reference/stores.md.

    Raises
    ------
    TableNotFoundError
        The path has no table.
    VersionNotFoundError
        The branch, version or tag does not exist, or all versions are newer than `timestamp`.
    InvalidOptionError
        More than one of version, tag and timestamp is given, or the tag names a version of another
        branch.
    InvalidInputError
        The name of the branch or tag is not valid.
    UnsupportedFeatureError
        The version needs a feature that this release does not read.
    CorruptTableError
        A file contradicts the format, or the version is on a branch of a copied table and refers to
        files of the original table.
    StorageError
    """
    arguments = {"version": version, "tag": tag, "timestamp": timestamp}
    names = [name for name, value in arguments.items() if value is not None]
    if len(names) > 1:
        raise InvalidOptionError(
            f"{' and '.join(names)} are given, but only one of version, tag and timestamp can be"
        )
    store = ObjectStore.from_uri(uri, storage_options)
    if branch is not None or tag is not None:
        main = _main_store(store)
        branch_name = None if branch == ref_names.MAIN else branch
        if tag is not None:
            from lance_spark.table.refs.tag_store import read_tag

            target = read_tag(main, tag)
            if branch is not None and branch_name != target.branch:
                raise InvalidOptionError(
                    f"tag {tag!r} names a version on branch {target.branch or ref_names.MAIN!r}, "
                    f"not on {branch!r}"
                )
            branch_name, version = target.branch, target.version
        elif branch_name is not None:
            from lance_spark.table.refs.branch_store import check_exists

            check_exists(main, branch_name)
        store = ref_names.branch_store(main, branch_name)
    if timestamp is not None:
        from lance_spark.table.manifest.history import manifest_as_of

        manifest = manifest_as_of(store, timestamp)
    elif version is not None:
        manifest = read_version(store, version)
    else:
        manifest = read_latest(store)
    check_branch_bases(store, manifest)
    return OpenTable(TablePaths(store, manifest.base_paths, storage_options), manifest)


def branch_of(store: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the root of a branch, from any root of the table; `store` itself without a branch.

    Raises
    ------
    VersionNotFoundError
        The branch does not exist.
    TableNotFoundError, InvalidInputError, CorruptTableError, StorageError
    """
    if branch is None:
        return store
    main = _main_store(store)
    if branch == ref_names.MAIN:
        return main
    from lance_spark.table.refs.branch_store import check_exists

    check_exists(main, branch)
    return ref_names.branch_store(main, branch)


def _main_store(store: ObjectStore) -> ObjectStore:
    """Return the root of the main branch, from any root of the table."""
    root = os.path.realpath(store.uri) if store.is_local else store.uri
    if f"/{ref_names.TREE}/" in root:
        return ref_names.main_store(store, read_latest(store).branch)
    if versions.newest(store) is None:
        raise versions.not_a_table(store)
    return store


def read_latest(store: ObjectStore, newest: ManifestLocation | None = None) -> Manifest:
    """Read the newest version of a table.

    Parameters
    ----------
    store : ObjectStore
        The table's root.
    newest : ManifestLocation, optional
        The newest manifest, if the caller has listed the versions just before.

    Raises
    ------
    TableNotFoundError, UnsupportedFeatureError, CorruptTableError, StorageError
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return read_manifest(store, newest or versions.latest(store))
        except MissingFileError:
            # Another client committed, and cleanup removed this version, since the listing.
            newest = None
    return read_manifest(store, versions.latest(store))

"""Opens a table at one of its versions."""

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

#: Attempts to find the newest version when cleanup removes it between listing and reading.
_TRIES = 3
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
        Requested base paths of new data files; `lance_spark.table.placement` has the default.
    """

    paths: TablePaths
    manifest: Manifest
    target_bases: TargetBases = _NO_TARGETS

    @property
    def store(self) -> ObjectStore:
        """The root of the table."""
        return self.paths.store

    @property
    def branch(self) -> str | None:
        """The branch of the version; None for main, and for a copied branch."""
        return self.manifest.branch if self.main is not self.store else None

    @property
    def main(self) -> ObjectStore:
        """The main root of the table, with its tags and branches."""
        return ref_names.main_store(self.store, self.manifest.branch)

    @property
    def version(self) -> int:
        """The version."""
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
    """Open a table at its newest version, or at a version, tag or timestamp.

    Parameters
    ----------
    uri : str
        Root of the table, or of one of its branches: a path or a URI.
    version : int, optional
        Also the number of a detached version.
    branch : str, optional
        ``main`` for the main branch; by default the branch whose root is `uri`.
    tag : str, optional
        Name of a version, which can be on a branch.
    timestamp : datetime, optional
        Selects the newest version committed until this time. Requires a time zone.
    storage_options : mapping, optional
        Credentials, endpoint and the like, by the names that other Lance clients use; see
        docs/reference/stores.md.

    Raises
    ------
    TableNotFoundError
        The table does not exist.
    VersionNotFoundError
        The branch, version or tag does not exist, or all versions are newer.
    InvalidOptionError
        More than one of version, tag and timestamp is given, or the tag names a version on another
        branch.
    InvalidInputError
        The name is not valid for a branch or tag.
    UnsupportedFeatureError
        The version needs features that this release cannot read.
    CorruptTableError
        The table contradicts the format; or the version is on a branch of a copied table, and
        refers to files of the original.
    StorageError
    """
    given = {"version": version, "tag": tag, "timestamp": timestamp}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidOptionError(
            f"{' and '.join(named)} are given, but only one of version, tag and timestamp can be"
        )
    store = ObjectStore.from_uri(uri, storage_options)
    if branch is not None or tag is not None:
        main = main_of(store)
        wanted = None if branch == ref_names.MAIN else branch
        if tag is not None:
            from lance_spark.table.refs.tag_store import read_tag

            result = read_tag(main, tag)
            if branch is not None and wanted != result.branch:
                raise InvalidOptionError(
                    f"tag {tag!r} names a version on branch {result.branch or ref_names.MAIN!r}, "
                    f"not on {branch!r}"
                )
            wanted, version = result.branch, result.version
        elif wanted is not None:
            from lance_spark.table.refs.branch_store import check_exists

            check_exists(main, wanted)
        store = ref_names.branch_store(main, wanted)
    if timestamp is not None:
        from lance_spark.table.manifest.history import manifest_as_of

        return _opened(store, manifest_as_of(store, timestamp), storage_options)
    if version is not None:
        return _opened(store, read_version(store, version), storage_options)
    return _opened(store, read_latest(store), storage_options)


def branch_of(store: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the root of a branch, from any root of the table; `store` without a branch.

    Raises
    ------
    VersionNotFoundError
        The branch does not exist.
    TableNotFoundError, InvalidInputError, CorruptTableError, StorageError
    """
    if branch is None:
        return store
    main = main_of(store)
    if branch == ref_names.MAIN:
        return main
    from lance_spark.table.refs.branch_store import check_exists

    check_exists(main, branch)
    return ref_names.branch_store(main, branch)


def main_of(store: ObjectStore) -> ObjectStore:
    """Return the main root of a table, from any of its roots.

    Raises
    ------
    TableNotFoundError, UnsupportedFeatureError, CorruptTableError, StorageError
    """
    root = os.path.realpath(store.uri) if store.is_local else store.uri
    if f"/{ref_names.TREE}/" in root:
        return ref_names.main_store(store, read_latest(store).branch)
    if versions.newest(store) is None:
        raise versions.not_a_table(store)
    return store


def read_latest(store: ObjectStore, newest: ManifestLocation | None = None) -> Manifest:
    """Read the newest version of a table; `newest` is its location, if just listed.

    Raises
    ------
    TableNotFoundError, UnsupportedFeatureError, CorruptTableError, StorageError
    """
    for _ in range(_TRIES - 1):
        try:
            return read_manifest(store, newest or versions.latest(store))
        except MissingFileError:
            # Other clients committed and cleaned up since the listing.
            newest = None
    return read_manifest(store, versions.latest(store))


def _opened(
    store: ObjectStore, manifest: Manifest, storage_options: Mapping[str, Any] | None
) -> OpenTable:
    check_branch_bases(store, manifest)
    return OpenTable(TablePaths(store, manifest.base_paths, storage_options), manifest)

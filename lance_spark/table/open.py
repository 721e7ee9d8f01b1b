"""An open table: one version, opened by number, tag, branch or time, or by a reference of a user.

| reference | version |
| --- | --- |
| `None` | the open version |
| number | that version of the open branch; may be a detached version |
| string | the version with the tag of that name |
| `(branch, number)` | that version of that branch; branch None or "main" is the main branch |
| `(branch, None)` | the newest version of that branch |
"""

from __future__ import annotations

import datetime
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    LanceError,
    MissingFileError,
    VersionNotFoundError,
)
from lance_spark.storage.options import FOREIGN_BRANCH_BASES, family_of, parse_flag
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.bases import TargetBases
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import read_manifest, read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.refs import names as ref_names
from lance_spark.table.refs.branch_store import check_exists
from lance_spark.table.refs.tags import Tag, read_tag

if TYPE_CHECKING:
    from lance_spark.file.schema.schema import Schema


#: Attempts to read the newest version: cleanup can remove it between the listing and the read.
_ATTEMPTS = 3
_NO_TARGETS = TargetBases()
#: The newest manifest of tables on object stores, by their roots, as it was read last.
_seen: OrderedDict[str, ManifestLocation] = OrderedDict()
_MOST_SEEN = 1000

Reference: TypeAlias = int | str | tuple[str | None, int | None]


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table at one version. Can be pickled.

    - `paths`: Opens the table's files.
    - `target_bases`: The choice of base paths for new data files; see
      `lance_spark.table.placement`.
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
    manifest_tag: str | None = None,
) -> OpenTable:
    """Open a table at its newest version, or at a given version, tag or time.

    - `uri`: Path or URI of the root of the table, or of one of its branches.
    - `version`: May be the number of a detached version.
    - `branch`: ``main`` for the main branch. By default the branch whose root `uri` is.
    - `tag`: May name a version of a branch.
    - `timestamp`: Opens the newest version that was committed at or before this time. Needs a time
      zone.
    - `storage_options`: Credentials, endpoint and other settings, with the names that other Lance
      clients use; see docs/reference/stores.md.
    - `manifest_tag`: `Manifest.tag` of the version, if it was read before; see `read_version`.

    Raises StorageError. Raises TableNotFoundError: the path has no table. Raises
    VersionNotFoundError: the branch, version or tag does not exist, or all versions are newer than
    `timestamp`. Raises InvalidOptionError: more than one of version, tag and timestamp is given, or
    the tag names a version of another branch. Raises InvalidInputError: the version is no number,
    or the name of the branch or tag is not valid. Raises UnsupportedFeatureError: the version needs
    a feature that this release does not read. Raises CorruptTableError: a file contradicts the
    format, or the version is on a branch of a copied table and refers to files of the original
    table.
    """
    arguments = {"version": version, "tag": tag, "timestamp": timestamp}
    names = [name for name, value in arguments.items() if value is not None]
    if len(names) > 1:
        raise InvalidOptionError(
            f"{' and '.join(names)} are given, but only one of version, tag and timestamp can be"
        )
    if version is not None:
        if not _is_number(version):
            raise InvalidInputError(
                f"version must be a number or the name of a tag, not {version!r}; "
                "branch is an argument of its own"
            )
        # An integer of numpy has bounds of its own.
        version = int(version)
    store = ObjectStore.from_uri(uri, storage_options)
    if branch is not None or tag is not None:
        main = _main_store(store)
        branch_name = None if branch == ref_names.MAIN else branch
        if tag is not None:
            target = _read_tag(main, tag)
            if branch is not None and branch_name != target.branch:
                raise InvalidOptionError(
                    f"tag {tag!r} names a version on branch {target.branch or ref_names.MAIN!r}, "
                    f"not on {branch!r}"
                )
            branch_name, version = target.branch, target.version
        elif branch_name is not None:
            check_exists(main, branch_name)
        store = ref_names.branch_store(main, branch_name)
    if timestamp is not None:
        from lance_spark.table.manifest.history import manifest_as_of

        manifest = manifest_as_of(store, timestamp)
    elif version is not None:
        manifest = read_version(store, version, manifest_tag)
    else:
        return open_newest(store, storage_options)
    return _opened(store, manifest, storage_options)


def open_newest(
    store: ObjectStore,
    storage_options: Mapping[str, Any] | None = None,
    newest: ManifestLocation | None = None,
) -> OpenTable:
    """Open the newest version of a branch; see `read_latest`."""
    return _opened(store, read_latest(store, newest), storage_options)


def _opened(
    store: ObjectStore, manifest: Manifest, storage_options: Mapping[str, Any] | None
) -> OpenTable:
    check_branch_bases(store, manifest)
    return OpenTable(TablePaths(store, manifest.base_paths, storage_options), manifest)


def _read_tag(main: ObjectStore, name: str) -> Tag:
    """Return a tag. The error about one that is not found says whether a branch has its name."""
    try:
        return read_tag(main, name)
    except VersionNotFoundError as error:
        with suppress(VersionNotFoundError, InvalidInputError):
            check_exists(main, name)
            error.args = (f"{error}; {name!r} is a branch: name it by branch, not by version",)
        raise


def branch_of(store: ObjectStore, branch: str | None) -> ObjectStore:
    """Return the root of a branch, from any root of the table; `store` itself without a branch.

    Raises TableNotFoundError, InvalidInputError, CorruptTableError, StorageError. Raises
    VersionNotFoundError: the branch does not exist.
    """
    if branch is None:
        return store
    main = _main_store(store)
    if branch == ref_names.MAIN:
        return main
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

    - `newest`: The newest manifest, if the caller has listed the versions just before.

    Raises TableNotFoundError, UnsupportedFeatureError, CorruptTableError, StorageError.
    """
    for attempt in range(_ATTEMPTS):
        location = newest or versions.latest(store)
        try:
            manifest = read_manifest(store, location)
        except MissingFileError:
            # Another client committed, and cleanup removed this version, since the listing.
            if attempt == _ATTEMPTS - 1:
                raise
            newest = None
            continue
        _note(store, location)
        return manifest
    raise AssertionError("the last attempt returns or raises")


def _note(store: ObjectStore, newest: ManifestLocation) -> None:
    """Note the newest manifest of a table, if a listing can show whether it is the same."""
    if newest.tag is None:
        return
    _seen[store.uri] = newest
    if len(_seen) > _MOST_SEEN:
        _seen.popitem(last=False)


def last_seen(store: ObjectStore) -> ManifestLocation | None:
    """Return the manifest that was read as the newest last, if the process keeps its content."""
    location = _seen.get(store.uri)
    if location is None or location.tag is None or not store.is_kept(location.path, location.tag):
        return None
    return location


def check_newest_writable(table: OpenTable) -> None:
    """Raise an error if this release cannot write the open version, or the newest of its branch.

    For changes that commit no version, such as those of tags: the open version can be older than
    the feature that the table needs. Raises UnsupportedFeatureError, TableNotFoundError,
    StorageError.
    """
    table.manifest.check_writable(table.store.display)
    # A damaged version says nothing of features. The other versions stay usable.
    with suppress(CorruptTableError):
        newest = versions.latest(table.store)
        if newest.version != table.version:
            read_latest(table.store, newest).check_writable(table.store.display)


def check_branch_bases(store: ObjectStore, manifest: Manifest) -> None:
    """Raise an error if a version of a branch reads files of the table's old location.

    A branch is a shallow clone in a folder of its table. It refers to the files that it shares with
    other branches by a base path, which is absolute. In a copy of the table, the base path of the
    branch still points to the original. Reading such a branch would return rows of the original's
    files, or fail once the original is gone. Readers therefore refuse the branch until its base
    paths point to the copy (`lance_spark.table.refs.branches`). pylance reads the original's
    files.

    - `store`: Root of the branch, or of a table.

    Raises CorruptTableError.
    """
    branch = manifest.branch
    main = ref_names.main_store(store, branch)
    if branch is None or main is store or _is_allowed(store.options):
        return
    bases = manifest.base_paths
    foreign = foreign_roots(main, bases)
    if len(foreign) == sum(base.is_dataset_root for base in bases.values()):
        used_ids = {file.base_id for fragment in manifest.fragments for file in fragment.files}
        used = [base for number, base in foreign.items() if number in used_ids]
        if used:
            raise CorruptTableError(
                f"{store.display}: version {manifest.version} of branch {branch!r} reads files "
                f"below {parse_uri(used[0].path).display} and no files below its own table's "
                "root: the table was copied or moved. Repair its branches by "
                "Dataset.repair_branches or LanceTable.repair_branches; if both paths lead to the "
                f"same table, read it with the storage option {FOREIGN_BRANCH_BASES}=true"
            )


def foreign_roots(main: ObjectStore, bases: Mapping[int, BasePath]) -> dict[int, BasePath]:
    """Return the base paths, by id, that are roots of other tables and of their branches."""
    root = canonical(main.base_uri)
    return {
        number: base
        for number, base in bases.items()
        if base.is_dataset_root
        and not f"{canonical(base.path)}/".startswith(f"{root}/{ref_names.TREE}/")
        and canonical(base.path) != root
    }


def canonical(path: str) -> str:
    """Return a form of a path or URI that is equal for different spellings of the same location."""
    location = parse_uri(path).objects
    if location.is_local:
        return os.path.realpath(location.uri)
    family = family_of(location.scheme)
    remainder = location.uri.partition("://")[2]
    if family is None:
        remainder = remainder.partition("?")[0]
    host, slash, folder = remainder.rstrip("/").partition("/")
    if family == "azure":
        host = host.partition("@")[0]
    return f"{family or location.scheme}://{host}{slash}{folder}"


def _is_allowed(options: Mapping[str, Any]) -> bool:
    for name, value in options.items():
        if name.lower() == FOREIGN_BRANCH_BASES:
            return parse_flag(FOREIGN_BRANCH_BASES, str(value))
    return False


def resolve(table: OpenTable, reference: Reference | None) -> tuple[str | None, int | None]:
    """Return the branch and version number of a reference; version None stands for the newest.

    Raises CorruptTableError, StorageError. Raises VersionNotFoundError: the tag or branch does not
    exist. Raises InvalidInputError: the reference has another form, or is not a valid name.
    """
    if reference is None:
        return table.branch, table.version
    if isinstance(reference, str):
        tag = read_tag(table.main, reference)
        return tag.branch, tag.version
    if _is_number(reference):
        return table.branch, reference  # type: ignore[return-value]
    if isinstance(reference, tuple) and len(reference) == 2:
        branch, version = reference
        if (branch is None or isinstance(branch, str)) and (version is None or _is_number(version)):
            if branch is None or branch == ref_names.MAIN:
                return None, version
            check_exists(table.main, branch)
            return branch, version
    raise InvalidInputError(
        "reference must be a version number, the name of a tag, or (branch, number), not "
        f"{reference!r}"
    )


def resolve_version(table: OpenTable, reference: Reference | None) -> tuple[str | None, int]:
    """Return the branch and version number of a reference; looks up the number of the newest."""
    branch, version = resolve(table, reference)
    if version is None:
        version = versions.latest(ref_names.branch_store(table.main, branch)).version
    return branch, version


def open_reference(
    table: OpenTable,
    reference: Reference | None,
    storage_options: Mapping[str, Any] | None = None,
) -> OpenTable:
    """Open the version of a reference.

    Raises VersionNotFoundError, InvalidInputError, UnsupportedFeatureError, CorruptTableError,
    StorageError.
    """
    if reference is None:
        return table
    branch, version = resolve(table, reference)
    store = table.store if branch == table.branch else ref_names.branch_store(table.main, branch)
    return open_table(store.uri, version=version, storage_options=storage_options)


def _is_number(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


# --------------------------------------------------------------------------------------------------
# Reads of the newest version that begin before a listing has shown which one it is.
#
# A process that has opened a table knows which version was the newest. Mostly it still is. So a
# read can be planned on this version while the listing is under way, and need not wait for it
# first. The result counts only if the listing, which is sent when the read begins, shows the same
# manifest by its entity tag. Otherwise the read is planned again. So a read returns what it would
# have returned after the listing.

_Result = TypeVar("_Result")

#: Listings that `presume_newest` has not used yet, and how many of them are kept.
_expected: OrderedDict[tuple[str, ...], Future[ManifestLocation]] = OrderedDict()
_MOST_EXPECTED = 32


class SupersededError(LanceError):
    """Another version is the newest. The error does not leave this module's callers."""


@dataclass(frozen=True, slots=True)
class PresumedTable:
    """The version that was the newest before, and the listing that shows whether it still is.

    - `table`: That version.
    """

    table: OpenTable
    _location: ManifestLocation
    _listing: Future[ManifestLocation]
    _storage_options: Mapping[str, Any] | None

    def check(self) -> None:
        """Raise SupersededError if the listing has shown another version already."""
        listing = self._listing
        if listing.done() and (listing.exception() is not None or not self._is(listing.result())):
            raise SupersededError(f"{self.table.store.display}: there is a newer version")

    def result_of(self, read: Callable[[OpenTable], _Result]) -> _Result:
        """Return what a function returns for the newest version.

        The function is called with the presumed version first. If that is not the newest, the
        result or error is dropped, and it is called again. Raises TableNotFoundError,
        UnsupportedFeatureError, CorruptTableError, StorageError: as `open_table`.
        """
        error: Exception | None = None
        result: list[_Result] = []
        try:
            result.append(read(self.table))
        except Exception as raised:
            error = raised
        newest = self._listing.result()
        if not self._is(newest):
            return read(open_newest(self.table.store, self._storage_options, newest))
        if error is not None:
            raise error
        return result[0]

    def _is(self, newest: ManifestLocation) -> bool:
        return newest == self._location and newest.tag == self._location.tag


def presume_newest(
    uri: str, storage_options: Mapping[str, Any] | None, query: str | None = None
) -> PresumedTable | None:
    """Return the version that was the newest before; None if the process does not keep it.

    A listing of the versions is sent, unless `expect_newest` has sent it.

    - `uri`: Root of the table, or of one of its branches.
    - `storage_options`: As for `open_table`.
    - `query`: As for `expect_newest`.
    """
    store = ObjectStore.from_uri(uri, storage_options)
    location = last_seen(store)
    if location is None:
        return None
    expected = None
    if query is not None:
        expected = _expected.pop(_key(uri, storage_options, query), None)
    listing = expected or _listed(store)
    try:
        table = open_newest(store, storage_options, location)
    except LanceError:
        # The caller opens the newest version, which may be another one.
        return None
    return PresumedTable(table, location, listing, storage_options)


def expect_newest(uri: str, storage_options: Mapping[str, Any] | None, query: str) -> None:
    """Send the listing of a table that a query reads soon, if its newest version is presumed.

    - `query`: A random text. Only a `presume_newest` with the same text uses the listing.
    """
    store = ObjectStore.from_uri(uri, storage_options)
    if last_seen(store) is None:
        return
    _expected[_key(uri, storage_options, query)] = _listed(store)
    while len(_expected) > _MOST_EXPECTED:
        _expected.popitem(last=False)


def _key(uri: str, storage_options: Mapping[str, Any] | None, query: str) -> tuple[str, ...]:
    options = json.dumps(dict(storage_options or {}), sort_keys=True, default=repr)
    return uri, options, query


def _listed(store: ObjectStore) -> Future[ManifestLocation]:
    pool = ThreadPoolExecutor(1)
    listing = pool.submit(versions.latest, store)
    pool.shutdown(wait=False)
    return listing

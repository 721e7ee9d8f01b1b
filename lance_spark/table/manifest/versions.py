"""Names and listing of the manifests of a table, in its folder `_versions/`.

| scheme | name of version n | note |
| --- | --- | --- |
| V1 | `{n}.manifest` | |
| V2 | `{2**64 - 1 - n:020}.manifest` | the newest is listed first |
| detached | `d{n}.manifest`, bit 63 of n set | not part of the history, ignored |

Scheme: A table uses one scheme. The length of a name says which one. During a migration from V1 to
V2 (`migrate.py`) a version can have both names, for the same bytes.

Newest version: It is the greatest listed version. Where the store lists names in order, as S3 does,
it is the first V2 name. Otherwise each writer writes `latest_version_hint.json` (`{"version": n}`)
after its commit. The hint may be stale. A reader uses it only where listings can lag behind, and
only if it names a newer version than the listing and this manifest exists. The hint cannot replace
the listing: cleanup can remove versions around a tagged one, so a hint and a gap after it do not
prove that the hinted version is the newest.

External manifest store (`external.py`): The table has the versions in the manifest store, and those
that were committed as files before it had one. The files are listed before the store is queried, as
a commit creates the entry before the file.

Early releases wrote a copy of the newest manifest to `_latest.manifest`. It is read only if
`_versions/` does not have a manifest.
"""

from __future__ import annotations

import errno
import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from lance_spark.errors import (
    CorruptTableError,
    LanceError,
    MissingFileError,
    PathNotFoundError,
    StorageError,
    TableNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_spark.storage.commit import ManifestEntry, ManifestStore
from lance_spark.storage.errors import is_refusal, translated
from lance_spark.storage.kept_ranges import Tagged
from lance_spark.storage.parallel import call_all
from lance_spark.storage.store import ObjectStore

# --------------------------------------------------------------------------------------------------
# Commits with an external manifest store, in four steps that any client can finish.
#
# | step | what is written | by |
# | --- | --- | --- |
# | 1 | the manifest, to a staging file `{path}-{uuid4}` | the writer |
# | 2 | an entry with the staging file, unless the version has one: this is the commit | the writer
#     |
# | 3 | a copy of the staging file, to the final path of the manifest | writer or reader |
# | 4 | the final path, to the entry; then the staging file is deleted | writer or reader |
#
# After step 2 the version exists, even if the writer fails. Each client that finds an entry with a
# staging file does the steps 3 and 4. Several clients can do them at once and repeat them, because
# the content is always the same. A missing staging file means that another client has finished.
#
# If step 3 fails, a reader refuses the version: a copy of the table's folder would not contain it.
# Only a reader without permission to write reads the staging file. No writer commits on a version
# that has not been copied. If step 4 fails, the manifest is in its final path, and the next client
# repeats the step.
#
# Specification: table format, transactions, external manifest store.

_STAGING = re.compile(
    r"(?P<path>_versions/[0-9]{1,20}\.manifest)(-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?",
    re.ASCII,
)


def create(
    store: ObjectStore, external: ManifestStore, version: int, path: str, data: bytes
) -> bool:
    """Commit a version; return False and change nothing if the version exists.

    - `path`: The final path of the manifest.
    - `data`: The manifest.

    Raises StorageError: a store failed. If the error has a cause, the version may or may not be
    committed. If it has no cause, the version is not committed.
    """
    entry = ManifestEntry(version, f"{path}-{uuid.uuid4()}", len(data))
    try:
        store.write_bytes(entry.path, data)
    except StorageError as error:
        # No entry names the file yet, so the version is certainly not committed.
        raise StorageError(str(error)) from None
    root = store.object_uri
    try:
        with translated(store.name(path), store.options):
            created = external.put_if_absent(root, entry)
    except StorageError as error:
        # The store may still execute the request; then the staging file is the version.
        if not is_refusal(error):
            raise
        # The refusal may answer a repeated request after the credentials expired, and the first
        # request may have succeeded.
        if not _has_entry(store, external, entry):
            _delete(store, entry.path)
            raise
        created = True
    if not created:
        # If the answer to the first request was lost, the repeated request finds the own entry.
        created = _has_entry(store, external, entry)
    if not created:
        _delete(store, entry.path)
        return False
    # The version is committed. If it cannot be copied now, the next client copies it.
    with suppress(StorageError):
        _finish(store, external, entry, path)
    return True


def _has_entry(store: ObjectStore, external: ManifestStore, entry: ManifestEntry) -> bool:
    """Return whether the manifest store has exactly this entry for the version.

    Raises StorageError: always with a cause, and the cause is not a refusal.
    """
    try:
        with translated(store.name(entry.path), store.options):
            existing = external.get(store.object_uri, entry.version)
    except LanceError as error:
        # Also a refusal leaves open whether the store has the entry.
        raise StorageError(str(error)) from error
    return existing is not None and existing.path == entry.path


def newest_recorded(store: ObjectStore, external: ManifestStore) -> tuple[int, str] | None:
    """Return the newest version and the path of its manifest; None for an unknown table.

    Raises CorruptTableError: the path of the entry is not the path of a manifest. Raises
    StorageError: a store failed, or the manifest could not be copied to its final path.
    """
    with translated(store.display, store.options):
        entry = external.latest(store.object_uri)
    return None if entry is None else _resolve(store, external, entry)


def find_recorded(
    store: ObjectStore, external: ManifestStore, version: int
) -> tuple[int, str] | None:
    """Return a version and the path of its manifest; None without an entry. Raises as `newest`."""
    with translated(store.display, store.options):
        entry = external.get(store.object_uri, version)
    return None if entry is None else _resolve(store, external, entry)


def recorded_since(
    store: ObjectStore, external: ManifestStore, version: int
) -> list[tuple[int, str]]:
    """Return the versions with an entry, from `version` on, oldest first. Raises as `newest`."""
    with translated(store.display, store.options):
        entries = external.since(store.object_uri, version)
    return [_resolve(store, external, entry) for entry in entries]


def _resolve(store: ObjectStore, external: ManifestStore, entry: ManifestEntry) -> tuple[int, str]:
    """Return the version and manifest path of an entry, after the steps 3 and 4 where needed."""
    match = _STAGING.fullmatch(entry.path)
    if match is None:
        raise CorruptTableError(
            f"{store.display}: the manifest store has the path {entry.path!r} for version "
            f"{entry.version}, which is not a manifest of the table; correct its entry"
        )
    path = match["path"]
    if path == entry.path:
        return entry.version, path
    try:
        _finish(store, external, entry, path)
    except StorageError as error:
        if _is_forbidden(error):
            return entry.version, entry.path
        raise StorageError(
            f"{store.display}: version {entry.version} is committed, but its manifest could not be "
            f"copied to {path} ({error}); try again"
        ) from error
    return entry.version, path


def _finish(store: ObjectStore, external: ManifestStore, entry: ManifestEntry, path: str) -> None:
    """Do the steps 3 and 4 of a commit.

    Raises StorageError: the manifest could not be copied to its final path.
    """
    try:
        store.copy(entry.path, path)
    except MissingFileError:
        # Another client has finished the commit.
        return
    with suppress(LanceError):
        with translated(store.name(path), store.options):
            # The store may give the copy another entity tag.
            external.put_final(store.object_uri, replace(entry, path=path, e_tag=None))
        store.delete([entry.path])


def _is_forbidden(error: StorageError) -> bool:
    """Return whether the error means that this client must not write."""
    cause = error.__cause__
    return isinstance(cause, PermissionError) or (
        isinstance(cause, OSError) and cause.errno == errno.EROFS
    )


def _delete(store: ObjectStore, path: str) -> None:
    # If this fails, cleanup removes the file: no version refers to it.
    with suppress(StorageError):
        store.delete([path])


# --------------------------------------------------------------------------------------------------
# Names and listing of the manifests of a table, in its folder `_versions/`.

FOLDER = "_versions"
#: A copy of the newest manifest, written by early releases.
LATEST = "_latest.manifest"
HINT = f"{FOLDER}/latest_version_hint.json"
_SUFFIX = ".manifest"
_MAX_U64 = 2**64 - 1
_DETACHED = 2**63
_V2_DIGITS = 20
_V2_LENGTH = _V2_DIGITS + len(_SUFFIX)
#: A name that follows all V2 names in a listing.
_AFTER_V2 = f"{_MAX_U64}/"
_MAX_HINT = 4096
_FIRST_PAGE = 16
_PAGE = 1000


class NamingScheme(Enum):
    """A scheme for the names of manifests."""

    V1 = 1
    V2 = 2

    def name_of(self, version: int) -> str:
        """Return the file name of the manifest of a version."""
        if self is NamingScheme.V1:
            return f"{version}{_SUFFIX}"
        return f"{_MAX_U64 - version:0{_V2_DIGITS}}{_SUFFIX}"

    def locate(self, version: int) -> ManifestLocation:
        """Return the location of the manifest of a version."""
        return ManifestLocation(version, f"{FOLDER}/{self.name_of(version)}", self)


@dataclass(frozen=True, slots=True)
class ManifestLocation:
    """A manifest file: its version, its path below the table's root, and its naming scheme.

    - `tag`: By which the manifest is known that a process has read before (`storage.kept_ranges`).
    """

    version: int
    path: str
    scheme: NamingScheme
    tag: str | None = field(default=None, compare=False)

    @property
    def is_staged(self) -> bool:
        """Whether it is a staging file: the manifest is not in its final path yet."""
        return not self.path.endswith(_SUFFIX)


def parse_name(name: str) -> ManifestLocation | None:
    """Parse a file name in `_versions/`; None if it is not the name of a version in the history."""
    stem = name.removesuffix(_SUFFIX)
    if stem == name or not (stem.isascii() and stem.isdigit()) or len(stem) > _V2_DIGITS:
        return None
    scheme = NamingScheme.V2 if len(stem) == _V2_DIGITS else NamingScheme.V1
    version = _MAX_U64 - int(stem) if scheme is NamingScheme.V2 else int(stem)
    # 0 means "no version"; numbers with bit 63 belong to detached versions.
    if not 0 < version < _DETACHED:
        return None
    return ManifestLocation(version, f"{FOLDER}/{name}", scheme)


def list_manifests(store: ObjectStore) -> list[ManifestLocation]:
    """Return the manifests of a table, oldest first; an empty list without a table.

    Raises StorageError.
    """
    if store.manifest_store is not None:
        names = store.list_names(FOLDER)
        listed = _parse_names(names)
        newest = listed[-1].version if listed else 1
        listed_versions = {location.version for location in listed}
        # If a copy to the final path failed, a staged version can be older than a listed one.
        staged = _staged_versions(names, listed_versions)
        return [
            location
            for location in _with_entries(store, listed, min(newest, *staged, newest))
            if location.version >= newest
            or location.version in listed_versions
            # The store also has the entries of versions that cleanup removed.
            or (location.version in staged and store.exists(location.path))
        ]
    listed = _list_files(store)
    if listed and not store.is_consistent:
        hinted = _read_hint(store, listed[-1])
        if hinted is not None:
            if hinted.version > listed[-1].version + 1:
                # Other clients committed the versions between them after the listing.
                listed = _list_files(store) or listed
            if hinted.version > listed[-1].version:
                listed.append(hinted)
    return listed


def list_since(store: ObjectStore, version: int) -> list[ManifestLocation]:
    """Return the manifests from `version` on, oldest first.

    The result contains older manifests too, if the listing returns them without further requests.
    Raises StorageError. Raises CorruptTableError: the external manifest store has an invalid entry.
    """
    external = store.manifest_store
    if external is not None:
        entries = [_location(*entry) for entry in recorded_since(store, external, version)]
        if entries and entries[0].version == version:
            return entries
        # Versions before the first entry exist only as files.
        return _with_entries(store, _parse_since(store.list_names(FOLDER), version), version)
    if store.lists_in_order:
        since = _list_since_in_order(store, version)
        if since is not None:
            return since
    if store.is_consistent:
        return _parse_since(store.list_names(FOLDER), version)
    return list_manifests(store)


def newest(store: ObjectStore) -> ManifestLocation | None:
    """Return the newest manifest, with one request if possible; None without a manifest.

    Raises as `list_newest`.
    """
    manifests = list_newest(store)
    return manifests[-1] if manifests else None


def list_newest(store: ObjectStore) -> list[ManifestLocation]:
    """Return the newest manifest as the last item; an empty list without a manifest.

    Older manifests are before it, if the listing returns them without further requests. Raises
    StorageError. Raises CorruptTableError: the external manifest store has an invalid entry.
    """
    external = store.manifest_store
    if external is not None:
        entry = newest_recorded(store, external)
        if entry is not None:
            return [_location(*entry)]
    elif store.lists_in_order:
        for location in _locations_in_order(store, 1):
            if location is not None:
                if location.scheme is NamingScheme.V2:
                    return [location]
                break
        else:
            return []
    elif store.is_consistent:
        return _list_newest_files(store)
    return list_manifests(store)


def _list_since_in_order(store: ObjectStore, version: int) -> list[ManifestLocation] | None:
    """Return the manifests from `version` on; None if a name of scheme V1 was listed."""
    locations: list[ManifestLocation] = []
    for location in _locations_in_order(store, _FIRST_PAGE):
        if location is None:
            continue
        if location.scheme is not NamingScheme.V2:
            return None
        if location.version < version:
            break
        locations.append(location)
        if location.version == version:
            break
    return locations[::-1]


def _locations_in_order(store: ObjectStore, first_page: int) -> Iterator[ManifestLocation | None]:
    """Yield the manifests in the order of their names, and None for each other file."""
    limit, after = first_page, ""
    while files := store.list_first(FOLDER, limit, after):
        yield from map(_parse_tagged, files)
        if len(files) < limit:
            return
        limit, after = _PAGE, files[-1].name


def _parse_tagged(file: Tagged) -> ManifestLocation | None:
    location = parse_name(file.name)
    return None if location is None else replace(location, tag=file.tag)


def _with_entries(
    store: ObjectStore, files: list[ManifestLocation], version: int
) -> list[ManifestLocation]:
    """Merge listed files with the entries of the external manifest store from `version` on."""
    external = store.manifest_store
    assert external is not None
    entries = [_location(*entry) for entry in recorded_since(store, external, version)]
    merged = {location.version: location for location in (*files, *entries)}
    return [merged[number] for number in sorted(merged)]


def _staged_versions(names: list[str], listed: set[int]) -> set[int]:
    """Return the versions that have a staging file, but no file in the final path."""
    staged = (parse_name(name.partition("-")[0]) for name in names if f"{_SUFFIX}-" in name)
    return {location.version for location in staged if location is not None} - listed


def _location(version: int, path: str) -> ManifestLocation:
    """Return the location that an entry of an external manifest store names."""
    # The name of a staging file begins with the final name.
    name = path.rpartition("/")[2].partition(_SUFFIX)[0] + _SUFFIX
    location = parse_name(name)
    if location is None or location.version != version:
        raise CorruptTableError(
            f"the manifest store has the path {path} for version {version}, "
            "which is the name of another version; correct its entry"
        )
    return ManifestLocation(version, path, location.scheme)


def _list_newest_files(store: ObjectStore) -> list[ManifestLocation]:
    tags = {} if store.is_local else dict(store.list_tagged(FOLDER))
    names = store.list_names(FOLDER) if store.is_local else list(tags)
    first = min((name for name in names if len(name) == _V2_LENGTH), default="")
    newest = parse_name(first)
    listed = _parse_names(names) if newest is None else _parse_since(names, newest.version)
    if listed and tags:
        name = listed[-1].path.rpartition("/")[2]
        listed[-1] = replace(listed[-1], tag=tags[name])
    return listed


def _list_files(store: ObjectStore) -> list[ManifestLocation]:
    return _parse_names(store.list_names(FOLDER))


def _parse_since(names: list[str], version: int) -> list[ManifestLocation]:
    """Return the manifests from `version` on; all manifests if there are V1 names.

    Does not parse the V2 names of older versions: a table can have very many.
    """
    if any(len(name) != _V2_LENGTH and parse_name(name) is not None for name in names):
        return _parse_names(names)
    # V2 names have the same length, and newer versions have smaller names.
    oldest = NamingScheme.V2.name_of(version)
    return _parse_names([name for name in names if name <= oldest])


def _parse_names(names: list[str]) -> list[ManifestLocation]:
    """Return the manifests with these names, oldest first. A V2 name hides the V1 name."""
    locations = [m for name in names if (m := parse_name(name)) is not None]
    # During a migration, the V2 name exists before the V1 name is deleted.
    locations.sort(key=lambda m: (m.version, m.scheme.value))
    if all(m.scheme is locations[0].scheme for m in locations):
        return locations
    return list({m.version: m for m in locations}.values())


def latest(store: ObjectStore) -> ManifestLocation:
    """Return the newest manifest; version 0 is the copy `_latest.manifest` of early releases.

    Raises TableNotFoundError: the table does not have a manifest.
    """
    location = newest(store)
    if location is None:
        if store.exists(LATEST):
            return ManifestLocation(0, LATEST, NamingScheme.V1)
        raise _no_manifest(store)
    return location


def is_detached(version: int) -> bool:
    """Return whether a number belongs to a detached version."""
    return version >= _DETACHED


def detached_location(version: int) -> ManifestLocation:
    """Return the location of the manifest of a detached version."""
    return ManifestLocation(version, f"{FOLDER}/d{version}{_SUFFIX}", NamingScheme.V2)


def find(store: ObjectStore, version: int) -> ManifestLocation:
    """Return the existing manifest of a version, also of a detached one.

    Raises TableNotFoundError. Raises VersionNotFoundError: the table does not have the version.
    """
    if is_detached(version):
        location = detached_location(version)
        if version > _MAX_U64 or not store.exists(location.path):
            raise VersionNotFoundError(f"{store.display} has no detached version {version}")
        return location
    # The V2 name is tried again: a migration can rename the manifest between two requests.
    for location in (*candidates(store, version), NamingScheme.V2.locate(version)):
        if store.exists(location.path):
            return location
    raise not_found(store, version)


def candidates(store: ObjectStore, version: int) -> Iterator[ManifestLocation]:
    """Yield the possible locations of the manifest of a version, likely locations first.

    Detached versions do not have any. Raises CorruptTableError, StorageError.
    """
    if not 0 < version < _DETACHED:
        return
    external = store.manifest_store
    if external is not None:
        entry = find_recorded(store, external, version)
        if entry is not None:
            yield _location(*entry)
            return
    yield NamingScheme.V2.locate(version)
    yield NamingScheme.V1.locate(version)


def not_found(store: ObjectStore, version: int) -> LanceError:
    """Return the error for a version that a table does not have, or for a root without a table."""
    manifests = list_manifests(store)
    if not manifests:
        return not_a_table(store)
    return VersionNotFoundError(
        f"{store.display} has no version {version}: it has {describe(manifests)}"
    )


def describe(manifests: list[ManifestLocation]) -> str:
    """Describe the existing versions in a message."""
    first, last = manifests[0].version, manifests[-1].version
    if first == last:
        return f"version {first} only"
    gaps = ", some of them cleaned up" if len(manifests) < last - first + 1 else ""
    return f"the versions {first} to {last}{gaps}"


@dataclass(frozen=True, slots=True)
class CommitListing:
    """The manifests of a table before a commit.

    - `manifests`: All manifests, or those since some version; oldest first.
    - `after_v2`: The first file that the store lists after the names of scheme V2.
    """

    manifests: list[ManifestLocation]
    after_v2: list[Tagged]

    def scheme(self, store: ObjectStore) -> NamingScheme:
        """Return the naming scheme of the next manifest: that of the table, V2 for a new table.

        Raises CorruptTableError: the table uses both schemes. Two writers could then create a
        version under two names. Raises StorageError: a manifest is not in its final path, and this
        client must not copy it.
        """
        staged = next((location for location in self.manifests if location.is_staged), None)
        if staged is not None:
            raise StorageError(
                f"{store.display}: the manifest of version {staged.version} has not been copied to "
                f"{FOLDER}/, which this client is not allowed to do, so no version can follow it; "
                "open the table with a client that may write"
            )
        schemes = {location.scheme for location in self.manifests}
        if NamingScheme.V2 in schemes:
            # V1 names before the V2 names are among the listed manifests.
            locations = map(_parse_tagged, self.after_v2)
            schemes.update(location.scheme for location in locations if location is not None)
        if len(schemes) > 1:
            raise CorruptTableError(
                f"{store.display}/{FOLDER} has manifests of two naming schemes, as an unfinished "
                "migration leaves them; finish it with Dataset.migrate_manifest_paths_v2 before "
                "writing"
            )
        return schemes.pop() if schemes else NamingScheme.V2


def list_for_commit(
    store: ObjectStore,
    listing: Callable[[], list[ManifestLocation]],
    meanwhile: Callable[[], object] | None = None,
    *,
    complete: bool = False,
) -> CommitListing:
    """List the manifests, and what shows the naming scheme of the next one, at the same time.

    - `listing`: Lists the manifests.
    - `meanwhile`: Another request that can run at the same time; it runs to its end in any case.
    - `complete`: Whether `listing` returns all manifests, or their scheme does not matter.

    Raises CorruptTableError, StorageError.
    """
    calls: list[Callable[[], object]] = [listing]
    # An external manifest store has only one entry for a version, under any name.
    asks_after_v2 = not complete and store.lists_in_order and store.manifest_store is None
    if asks_after_v2:
        calls.append(partial(store.list_first, FOLDER, 1, _AFTER_V2))
    if meanwhile is not None:
        calls.append(meanwhile)
    manifests, *others = call_all(calls, local=store.is_local)
    return CommitListing(manifests, others[0] if asks_after_v2 else [])


def create_manifest(store: ObjectStore, location: ManifestLocation, data: bytes) -> bool:
    """Create the manifest of a version atomically; return False if the version exists.

    Raises StorageError: the store failed, and the manifest may or may not exist.
    """
    external = store.manifest_store
    if external is not None:
        return create(store, external, location.version, location.path, data)
    return store.put_if_absent(location.path, data)


def write_hint(store: ObjectStore, version: int) -> None:
    """Write the hint to the newest version, if the store is of a sort that needs it."""
    if store.lists_in_order or store.manifest_store is not None:
        return
    # The commit has succeeded; a missing hint must not make it fail.
    with suppress(LanceError):
        store.write_bytes(HINT, b'{"version":%d}' % version, durable=False)


def not_a_table(store: ObjectStore) -> LanceError:
    """Return the error for a root without a manifest."""
    if store.exists(LATEST):
        return UnsupportedError(
            f"{store.display} is a Lance table of an early release of which only {LATEST} is left: "
            "its newest version can be read, but not changed. Write its rows to another path"
        )
    return _no_manifest(store)


def _no_manifest(store: ObjectStore) -> TableNotFoundError:
    # A client may be allowed to list the versions only.
    with suppress(StorageError):
        if store.is_missing_folder():
            return PathNotFoundError(
                f"{store.display} is not a Lance table: the path does not exist; create the table, "
                "or correct the path"
            )
    return TableNotFoundError(
        f"{store.display} is not a Lance table: it has no manifest in {FOLDER}/"
    )


def _read_hint(store: ObjectStore, listed: ManifestLocation) -> ManifestLocation | None:
    """Return the manifest that the hint names, if it exists and is newer than the listed one."""
    try:
        version = json.loads(store.read_bytes(HINT, _MAX_HINT))["version"]
    except (LanceError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(version, int) or not listed.version < version < _DETACHED:
        return None
    location = listed.scheme.locate(version)
    return location if store.exists(location.path) else None

"""Finds the manifests of a table in `_versions/`, under one of two naming schemes.

| scheme | name of version n | note |
| --- | --- | --- |
| V1 | `{n}.manifest` | |
| V2 | `{2**64 - 1 - n:020}.manifest` | the newest is listed first |
| detached | `d{n}.manifest`, bit 63 of n set | not part of the history |

A table has one scheme, except during a migration from V1 to V2 (`migrate`): then a version can have
both names with the same bytes. The length of a name shows its scheme. The newest version is the
greatest listed one. Every writer writes `latest_version_hint.json` (`{"version": n}`) after its
commit; it may be stale. It is used only if it names a newer version than the listing and that
manifest exists, on stores with delayed listings. It never replaces the listing: cleanup can remove
versions around a tagged one, so a gap after the hint proves nothing. Where names are listed in
order, as on S3, the first V2 name is the newest version, and no hint is used.

A table with an external manifest store (`external`) has the versions of the store, and versions
that were committed before it used one, which exist only as files. The store is read after the
listing, as entries are written first.

Early releases stored a copy of the newest manifest in `_latest.manifest`. It is read only if
`_versions/` is empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from lance_spark.errors import (
    CorruptTableError,
    LanceError,
    StorageError,
    TableNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import external as manifest_store

FOLDER = "_versions"
#: A copy of the newest manifest, written by early releases.
LATEST = "_latest.manifest"
HINT = f"{FOLDER}/latest_version_hint.json"
_SUFFIX = ".manifest"
_MAX_U64 = 2**64 - 1
_DETACHED = 2**63
_V2_DIGITS = 20
_V2_LENGTH = _V2_DIGITS + len(_SUFFIX)
#: Sorts after all V2 names.
_AFTER_V2 = f"{_MAX_U64}/"
_MAX_HINT = 4096
_FIRST_PAGE = 16
_PAGE = 1000


class NamingScheme(Enum):
    """The naming scheme of the manifests of a table."""

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
    """A manifest file: its version, its path below the root, and its naming scheme."""

    version: int
    path: str
    scheme: NamingScheme

    @property
    def is_staged(self) -> bool:
        """Whether it is a staging file of an external manifest store that was not copied yet."""
        return not self.path.endswith(_SUFFIX)


def parse_name(name: str) -> ManifestLocation | None:
    """Parse a file name in `_versions/`; None for other files."""
    stem = name.removesuffix(_SUFFIX)
    if stem == name or not (stem.isascii() and stem.isdigit()) or len(stem) > _V2_DIGITS:
        return None
    scheme = NamingScheme.V2 if len(stem) == _V2_DIGITS else NamingScheme.V1
    version = _MAX_U64 - int(stem) if scheme is NamingScheme.V2 else int(stem)
    # 0 means "no version yet"; bit 63 marks detached versions.
    if not 0 < version < _DETACHED:
        return None
    return ManifestLocation(version, f"{FOLDER}/{name}", scheme)


def list_manifests(store: ObjectStore) -> list[ManifestLocation]:
    """Return the manifests of a table, oldest first; empty if the table does not exist.

    Raises
    ------
    StorageError
    """
    if store.manifest_store is not None:
        names = store.list_names(FOLDER)
        located = _parsed(names)
        newest = located[-1].version if located else 1
        # If the store failed while a version was copied, newer ones can be at their final paths.
        listed = {item.version for item in located}
        staged = _staged(names, listed)
        return [
            item
            for item in _with_known(store, located, min(newest, *staged, newest))
            if item.version >= newest
            or item.version in listed
            # Entries of removed versions still exist.
            or (item.version in staged and store.exists(item.path))
        ]
    located = _listed(store)
    if located and not store.is_consistent:
        hinted = _hinted(store, located[-1])
        if hinted is not None:
            if hinted.version > located[-1].version + 1:
                # Versions in between were committed meanwhile.
                located = _listed(store) or located
            if hinted.version > located[-1].version:
                located.append(hinted)
    return located


def list_since(store: ObjectStore, version: int) -> list[ManifestLocation]:
    """Return the manifests from `version` on, oldest first; also older ones if listed anyway.

    Raises
    ------
    CorruptTableError
        An external manifest store has an entry that is none.
    StorageError
    """
    external = store.manifest_store
    if external is not None:
        known = [_located(*result) for result in manifest_store.since(store, external, version)]
        if known and known[0].version == version:
            return known
        # Versions before the first entry are unknown to the store.
        return _with_known(store, _parsed_since(store.list_names(FOLDER), version), version)
    if store.lists_in_order:
        since = _since_in_order(store, version)
        if since is not None:
            return since
    if store.is_consistent:
        return _parsed_since(store.list_names(FOLDER), version)
    return list_manifests(store)


def newest(store: ObjectStore) -> ManifestLocation | None:
    """Return the newest manifest, by one request if possible; None without any.

    Raises as `list_newest`.
    """
    manifests = list_newest(store)
    return manifests[-1] if manifests else None


def list_newest(store: ObjectStore) -> list[ManifestLocation]:
    """Return the newest manifest, preceded by older ones if listed anyway; empty without any.

    Raises
    ------
    CorruptTableError
        An external manifest store has an entry that is none.
    StorageError
    """
    external = store.manifest_store
    if external is not None:
        result = manifest_store.newest(store, external)
        if result is not None:
            return [_located(*result)]
    elif store.lists_in_order:
        for name in _in_order(store, 1):
            location = parse_name(name)
            if location is not None:
                if location.scheme is NamingScheme.V2:
                    return [location]
                break
        else:
            return []
    elif store.is_consistent:
        return _newest_listed(store)
    return list_manifests(store)


def _since_in_order(store: ObjectStore, version: int) -> list[ManifestLocation] | None:
    """Return the manifests from `version` on; None if some names are of V1."""
    located: list[ManifestLocation] = []
    for name in _in_order(store, _FIRST_PAGE):
        location = parse_name(name)
        if location is None:
            continue
        if location.scheme is not NamingScheme.V2:
            return None
        if location.version < version:
            break
        located.append(location)
        if location.version == version:
            break
    return located[::-1]


def _in_order(store: ObjectStore, first: int) -> Iterator[str]:
    limit, after = first, ""
    while names := store.list_first(FOLDER, limit, after):
        yield from names
        if len(names) < limit:
            return
        limit, after = _PAGE, names[-1]


def _with_known(
    store: ObjectStore, files: list[ManifestLocation], version: int
) -> list[ManifestLocation]:
    """Add the manifests from `version` on of the external manifest store to listed ones."""
    external = store.manifest_store
    assert external is not None
    known = [_located(*result) for result in manifest_store.since(store, external, version)]
    merged = {item.version: item for item in (*files, *known)}
    return [merged[number] for number in sorted(merged)]


def _staged(names: list[str], listed: set[int]) -> set[int]:
    """Return the versions that exist only as a staging file."""
    result = (parse_name(name.partition("-")[0]) for name in names if f"{_SUFFIX}-" in name)
    return {item.version for item in result if item is not None} - listed


def _located(version: int, path: str) -> ManifestLocation:
    # A staging file, read without permission to write, has the same naming scheme.
    name = path.rpartition("/")[2].partition(_SUFFIX)[0] + _SUFFIX
    location = parse_name(name)
    if location is None or location.version != version:
        raise CorruptTableError(
            f"the manifest store says that version {version} is {path}, which is the name of "
            "another; correct its entry"
        )
    return ManifestLocation(version, path, location.scheme)


def _newest_listed(store: ObjectStore) -> list[ManifestLocation]:
    names = store.list_names(FOLDER)
    first = min((name for name in names if len(name) == _V2_LENGTH), default="")
    newest = parse_name(first)
    return _parsed(names) if newest is None else _parsed_since(names, newest.version)


def _listed(store: ObjectStore) -> list[ManifestLocation]:
    return _parsed(store.list_names(FOLDER))


def _parsed_since(names: list[str], version: int) -> list[ManifestLocation]:
    """Return the manifests from `version` on by a partial listing; all if V1 names exist."""
    if any(len(name) != _V2_LENGTH and parse_name(name) is not None for name in names):
        return _parsed(names)
    # V2 names have equal lengths, and the newest is the first.
    oldest = NamingScheme.V2.name_of(version)
    return _parsed([name for name in names if name <= oldest])


def _parsed(names: list[str]) -> list[ManifestLocation]:
    located = [m for name in names if (m := parse_name(name)) is not None]
    # A migration from V1 to V2 creates the new name before it removes the old one.
    located.sort(key=lambda m: (m.version, m.scheme.value))
    if all(m.scheme is located[0].scheme for m in located):
        return located
    return list({m.version: m for m in located}.values())


def latest(store: ObjectStore) -> ManifestLocation:
    """Return the newest manifest; as version 0 the copy of early releases, without any other.

    Raises
    ------
    TableNotFoundError
        The table does not exist.
    """
    location = newest(store)
    if location is None:
        if store.exists(LATEST):
            return ManifestLocation(0, LATEST, NamingScheme.V1)
        raise not_a_table(store)
    return location


def is_detached(version: int) -> bool:
    """Tell whether a number belongs to a detached version."""
    return version >= _DETACHED


def detached_location(version: int) -> ManifestLocation:
    """Return the location of the manifest of a detached version."""
    return ManifestLocation(version, f"{FOLDER}/d{version}{_SUFFIX}", NamingScheme.V2)


def find(store: ObjectStore, version: int) -> ManifestLocation:
    """Return the manifest of a version, also of a detached one.

    Raises
    ------
    VersionNotFoundError
        The version does not exist.
    TableNotFoundError
    """
    if is_detached(version):
        location = detached_location(version)
        if version > _MAX_U64 or not store.exists(location.path):
            raise VersionNotFoundError(f"{store.display} has no detached version {version}")
        return location
    # A migration can rename it between two requests.
    for location in (*candidates(store, version), NamingScheme.V2.locate(version)):
        if store.exists(location.path):
            return location
    raise not_found(store, version)


def candidates(store: ObjectStore, version: int) -> Iterator[ManifestLocation]:
    """Yield the possible locations of the manifest of a version, the likely ones first.

    Raises
    ------
    CorruptTableError, StorageError
    """
    if not 0 < version < _DETACHED:
        return
    external = store.manifest_store
    if external is not None:
        result = manifest_store.find(store, external, version)
        if result is not None:
            yield _located(*result)
            return
    yield NamingScheme.V2.locate(version)
    yield NamingScheme.V1.locate(version)


def not_found(store: ObjectStore, version: int) -> LanceError:
    """Return the error for a missing version, or for a root without manifests."""
    manifests = list_manifests(store)
    if not manifests:
        return not_a_table(store)
    return VersionNotFoundError(
        f"{store.display} has no version {version}: it has {describe(manifests)}"
    )


def describe(manifests: list[ManifestLocation]) -> str:
    """Describe the existing versions, for errors."""
    first, last = manifests[0].version, manifests[-1].version
    if first == last:
        return f"version {first} only"
    gaps = ", some of them cleaned up" if len(manifests) < last - first + 1 else ""
    return f"the versions {first} to {last}{gaps}"


def scheme_for_commit(store: ObjectStore, manifests: list[ManifestLocation]) -> NamingScheme:
    """Return the naming scheme of the next manifest: that of the table, or V2 if it is new.

    Parameters
    ----------
    store : ObjectStore
    manifests : list of ManifestLocation
        All manifests, or those since some version.

    Raises
    ------
    CorruptTableError
        The table has both schemes: two writers could create one version under two names.
    StorageError
        A version was not copied to its final path, and this client lacks permission to copy it.
    """
    staged = next((item for item in manifests if item.is_staged), None)
    if staged is not None:
        raise StorageError(
            f"{store.display}: the manifest of version {staged.version} has not been copied to its "
            f"place in {FOLDER}/, which this "
            "client is not allowed to do, so nothing can be committed after it; open the table "
            "with a client that may write"
        )
    schemes = {location.scheme for location in manifests}
    # An external manifest store has one entry for a version, under any name.
    if NamingScheme.V2 in schemes and store.lists_in_order and store.manifest_store is None:
        # V1 names come either before all others, when all were listed, or here.
        others = (parse_name(name) for name in store.list_first(FOLDER, 1, _AFTER_V2))
        schemes.update(item.scheme for item in others if item is not None)
    if len(schemes) > 1:
        raise CorruptTableError(
            f"{store.display}/{FOLDER} has manifests of two naming schemes, as an unfinished "
            "migration leaves them; "
            "finish it with Dataset.migrate_manifest_paths_v2 before writing"
        )
    return schemes.pop() if schemes else NamingScheme.V2


def create_manifest(store: ObjectStore, location: ManifestLocation, data: bytes) -> bool:
    """Create the manifest of a version atomically; return False and change nothing if it exists.

    Raises
    ------
    StorageError
        The store failed, and the manifest may exist or not.
    """
    external = store.manifest_store
    if external is not None:
        return manifest_store.create(store, external, location.version, location.path, data)
    return store.put_if_absent(location.path, data)


def write_hint(store: ObjectStore, version: int) -> None:
    """Write the hint of the newest version, where it helps. Errors are ignored: the commit is
    done.
    """
    if store.lists_in_order or store.manifest_store is not None:
        return
    with suppress(LanceError):
        store.write_bytes(HINT, b'{"version":%d}' % version, durable=False)


def not_a_table(store: ObjectStore) -> LanceError:
    """Return the error for a root without manifests."""
    if store.exists(LATEST):
        return UnsupportedError(
            f"{store.display} is a Lance table of an early release, of which nothing but {LATEST} "
            "is left: only its "
            "newest version can be read, and nothing written. Write its rows to another path"
        )
    return TableNotFoundError(
        f"{store.display} is not a Lance table: no manifest found in {FOLDER}/"
    )


def _hinted(store: ObjectStore, listed: ManifestLocation) -> ManifestLocation | None:
    try:
        version = json.loads(store.read_bytes(HINT, _MAX_HINT))["version"]
    except (LanceError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(version, int) or not listed.version < version < _DETACHED:
        return None
    location = listed.scheme.locate(version)
    return location if store.exists(location.path) else None

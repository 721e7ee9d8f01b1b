"""Where the manifests of a table are: `_versions/`, under one of two naming schemes.

| scheme | name of version n | note |
| --- | --- | --- |
| V1 | `{n}.manifest` | |
| V2 | `{2**64 - 1 - n:020}.manifest` | the newest is listed first |
| detached | `d{n}.manifest`, bit 63 of n set | not part of the history, passed over |

A table keeps to one scheme, but for a migration from V1 to V2 that is under way (`migrate.py`): then a version can have
both names, which stand for the same bytes. Which scheme it is, is told from the length of the names. The newest version is the greatest one
listed. `latest_version_hint.json` (`{"version": n}`) is written by every committer after its commit and may be stale;
it is believed only if it names a newer version than a listing and that manifest exists, as happens on stores whose
listings lag behind. It never takes the listing's place: older versions can be cleaned up around a tagged one, so that a
hint and a gap after it prove nothing. Early releases kept a copy of the newest manifest in `_latest.manifest`: it is read only if
`_versions/` has none at all.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from lance_spark.errors import (
    CorruptTableError,
    LanceError,
    TableNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_spark.storage.store import ObjectStore

FOLDER = "_versions"
#: A copy of the newest manifest, which early releases kept beside those of the versions.
LATEST = "_latest.manifest"
HINT = f"{FOLDER}/latest_version_hint.json"
_SUFFIX = ".manifest"
_MAX_U64 = 2**64 - 1
_DETACHED = 2**63
_V2_DIGITS = 20


class NamingScheme(Enum):
    """How the manifests of a table are named."""

    V1 = 1
    V2 = 2

    def name_of(self, version: int) -> str:
        """Return the file name of a version's manifest."""
        if self is NamingScheme.V1:
            return f"{version}{_SUFFIX}"
        return f"{_MAX_U64 - version:0{_V2_DIGITS}}{_SUFFIX}"

    def locate(self, version: int) -> ManifestLocation:
        """Return where a version's manifest is."""
        return ManifestLocation(version, f"{FOLDER}/{self.name_of(version)}", self)


@dataclass(frozen=True, slots=True)
class ManifestLocation:
    """A manifest file: its version, its path below the table's root, and the scheme of its name."""

    version: int
    path: str
    scheme: NamingScheme


def parse_name(name: str) -> ManifestLocation | None:
    """Return the manifest that a file name in `_versions/` stands for; None for any other file."""
    stem = name.removesuffix(_SUFFIX)
    if stem == name or not (stem.isascii() and stem.isdigit()) or len(stem) > _V2_DIGITS:
        return None
    scheme = NamingScheme.V2 if len(stem) == _V2_DIGITS else NamingScheme.V1
    version = _MAX_U64 - int(stem) if scheme is NamingScheme.V2 else int(stem)
    # 0 is "no version yet"; from bit 63 on a number is that of a detached version.
    if not 0 < version < _DETACHED:
        return None
    return ManifestLocation(version, f"{FOLDER}/{name}", scheme)


def list_manifests(store: ObjectStore) -> list[ManifestLocation]:
    """Return the manifests of a table, oldest first; none if there is no table.

    Raises
    ------
    StorageError
    """
    located = _listed(store)
    if located and not store.is_local:
        hinted = _hinted(store, located[-1])
        if hinted is not None:
            if hinted.version > located[-1].version + 1:
                # Versions between the two were committed while we looked.
                located = _listed(store) or located
            if hinted.version > located[-1].version:
                located.append(hinted)
    return located


def _listed(store: ObjectStore) -> list[ManifestLocation]:
    located = [m for name in store.list_names(FOLDER) if (m := parse_name(name)) is not None]
    # A migration from V1 to V2 makes the new name before it takes the old one away.
    located.sort(key=lambda m: (m.version, m.scheme.value))
    if all(m.scheme is located[0].scheme for m in located):
        return located
    return list({m.version: m for m in located}.values())


def latest(store: ObjectStore) -> ManifestLocation:
    """Return the newest manifest; of a table whose versions are gone, the copy of it, as version 0.

    Raises
    ------
    TableNotFoundError
        There is none.
    """
    manifests = list_manifests(store)
    if not manifests:
        if store.exists(LATEST):
            return ManifestLocation(0, LATEST, NamingScheme.V1)
        raise not_a_table(store)
    return manifests[-1]


def is_detached(version: int) -> bool:
    """Tell whether a number is that of a version outside of the history."""
    return version >= _DETACHED


def detached_location(version: int) -> ManifestLocation:
    """Return where the manifest of a detached version is."""
    return ManifestLocation(version, f"{FOLDER}/d{version}{_SUFFIX}", NamingScheme.V2)


def find(store: ObjectStore, version: int) -> ManifestLocation:
    """Return the manifest of a version, which may be a detached one.

    Raises
    ------
    VersionNotFoundError
        The table has no such version.
    TableNotFoundError
    """
    if is_detached(version):
        location = detached_location(version)
        if version > _MAX_U64 or not store.exists(location.path):
            raise VersionNotFoundError(f"{store.display} has no detached version {version}")
        return location
    manifests = list_manifests(store)
    if not manifests:
        raise not_a_table(store)
    for location in reversed(manifests):
        if location.version == version:
            return location
    raise VersionNotFoundError(
        f"{store.display} has no version {version}: it has {describe(manifests)}"
    )


def describe(manifests: list[ManifestLocation]) -> str:
    """Return which versions there are, for messages."""
    first, last = manifests[0].version, manifests[-1].version
    if first == last:
        return f"version {first} only"
    gaps = ", some of them cleaned up" if len(manifests) < last - first + 1 else ""
    return f"the versions {first} to {last}{gaps}"


def scheme_for_commit(store: ObjectStore, manifests: list[ManifestLocation]) -> NamingScheme:
    """Return the scheme that the next manifest is named by: the table's, or V2 for a new table.

    Raises
    ------
    CorruptTableError
        The table has both. Two writers could then create one version under two names.
    """
    schemes = {location.scheme for location in manifests}
    if len(schemes) > 1:
        raise CorruptTableError(
            f"{store.display}/{FOLDER} has manifests of two naming schemes, as an unfinished migration leaves them; "
            "finish it with Dataset.migrate_manifest_paths_v2 before writing"
        )
    return schemes.pop() if schemes else NamingScheme.V2


def create_manifest(store: ObjectStore, location: ManifestLocation, data: bytes) -> bool:
    """Create the manifest of a version in one atomic step; return False and change nothing if there is one.

    Raises
    ------
    StorageError
        The store failed, and the manifest may or may not be there.
    """
    return store.put_if_absent(location.path, data)


def write_hint(store: ObjectStore, version: int) -> None:
    """Note the newest version. Best effort: the hint is only a hint, and the commit has happened."""
    with suppress(LanceError):
        store.write_bytes(HINT, b'{"version":%d}' % version, durable=False)


def not_a_table(store: ObjectStore) -> LanceError:
    """Return the error for a root without any manifest."""
    if store.exists(LATEST):
        return UnsupportedError(
            f"{store.display} is a Lance table of an early release, of which nothing but {LATEST} is left: only its "
            "newest version can be read, and nothing written. Write its rows to another path"
        )
    return TableNotFoundError(
        f"{store.display} is no Lance table: there is no manifest in {FOLDER}/"
    )


def _hinted(store: ObjectStore, listed: ManifestLocation) -> ManifestLocation | None:
    try:
        version = json.loads(store.read_bytes(HINT))["version"]
    except (LanceError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(version, int) or not listed.version < version < _DETACHED:
        return None
    location = listed.scheme.locate(version)
    return location if store.exists(location.path) else None

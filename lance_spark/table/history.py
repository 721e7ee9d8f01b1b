"""The versions of a table and when they were committed.

Timestamps are by the clocks of the writers, so that a later version can have an earlier one. "The table as of t" is the
newest version whose timestamp is not after t, whatever those of older versions are; no order is relied on.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lance_spark.errors import InvalidInputError, VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import Manifest, find_manifest
from lance_spark.table.versions import ManifestLocation, list_manifests, not_a_table

_READ_AT_ONCE = 16
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """A version, and when it was committed.

    Attributes
    ----------
    version : int
    timestamp : datetime
        In UTC, cut to microseconds.
    """

    version: int
    timestamp: datetime.datetime


def list_versions(store: ObjectStore) -> list[VersionInfo]:
    """Return all versions that there still are, oldest first. Reads every manifest.

    Raises
    ------
    TableNotFoundError, CorruptTableError, StorageError
    """
    located = list_manifests(store)
    if not located:
        raise not_a_table(store)
    return [VersionInfo(m.version, m.timestamp) for m in _manifests(store, located)]


def manifest_as_of(store: ObjectStore, timestamp: datetime.datetime) -> Manifest:
    """Return the newest version that was committed at or before a time.

    Reads manifests from the newest backwards, up to the one that is returned.

    Parameters
    ----------
    store : ObjectStore
    timestamp : datetime
        With a time zone; timestamps of versions are compared cut to microseconds.

    Raises
    ------
    VersionNotFoundError
        All versions that there still are, are newer.
    InvalidInputError
        The time has no zone.
    TableNotFoundError, CorruptTableError, StorageError
    """
    if timestamp.tzinfo is None:
        raise InvalidInputError(
            f"timestamp {timestamp.isoformat()} has no time zone; give one, for example UTC"
        )
    limit = (timestamp - _EPOCH) // _MICROSECOND
    located = list_manifests(store)
    if not located:
        raise not_a_table(store)
    oldest = None
    for manifest in _manifests(store, located[::-1]):
        if manifest.timestamp_ns // 1000 <= limit:
            return manifest
        oldest = manifest
    first = f"version {oldest.version} of {oldest.timestamp.isoformat()}" if oldest else "none"
    raise VersionNotFoundError(
        f"{store.display} has no version as of {timestamp.isoformat()}: the oldest is {first}"
    )


def _manifests(store: ObjectStore, located: Sequence[ManifestLocation]) -> Iterator[Manifest]:
    """Yield the manifests in order; those that are cleaned up meanwhile are left out."""
    if store.is_local:
        for location in located:
            manifest = find_manifest(store, location)
            if manifest is not None:
                yield manifest
        return
    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        for at in range(0, len(located), _READ_AT_ONCE):
            some = located[at : at + _READ_AT_ONCE]
            for manifest in pool.map(lambda one: find_manifest(store, one), some):
                if manifest is not None:
                    yield manifest

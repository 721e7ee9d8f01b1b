"""The history of a table: its versions, their timestamps and transactions.

Timestamps come from the clocks of the writers, so a later version can have an earlier timestamp.
The table as of a time is the newest version whose timestamp is not later. No order is assumed.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from lance_spark.errors import InvalidInputError, MissingFileError, VersionNotFoundError
from lance_spark.storage.read.parallel_reads import read_each
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import MESSAGE, Transaction, read_transaction
from lance_spark.table.manifest.codec import find_manifest, read_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.summary import summarize
from lance_spark.table.manifest.versions import ManifestLocation, find, list_manifests, not_a_table

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class VersionInfo:
    """A version and its timestamp. Further facts are read on first use.

    Attributes
    ----------
    version : int
    timestamp : datetime
        In UTC, cut to microseconds.
    """

    version: int
    timestamp: datetime.datetime
    _store: ObjectStore | None = field(default=None, repr=False, compare=False)
    _location: ManifestLocation | None = field(default=None, repr=False, compare=False)

    @cached_property
    def metadata(self) -> dict[str, str]:
        """Numbers of fragments, files, rows and bytes; see `summarize`.

        Raises
        ------
        VersionNotFoundError
            Cleanup has removed the version meanwhile.
        StorageError
        """
        return summarize(self._read())

    @cached_property
    def transaction(self) -> Transaction | None:
        """The transaction of the version; None if its writer did not store it.

        Raises
        ------
        VersionNotFoundError
            Cleanup has removed the version meanwhile.
        CorruptTableError, StorageError
        """
        manifest = self._read()
        return None if self._store is None else read_transaction(self._store, manifest)

    @property
    def operation(self) -> str | None:
        """The kind of operation, for example ``append``; None if unknown."""
        return None if self.transaction is None else self.transaction.operation.kind or None

    @property
    def transaction_properties(self) -> dict[str, str]:
        """The properties of the transaction."""
        return {} if self.transaction is None else dict(self.transaction.properties)

    @property
    def message(self) -> str | None:
        """The commit message, or None."""
        return self.transaction_properties.get(MESSAGE)

    def _read(self) -> Manifest:
        assert self._store is not None
        assert self._location is not None
        try:
            return read_manifest(self._store, self._location)
        except MissingFileError:
            raise VersionNotFoundError(
                f"{self._store.display}: version {self.version} has been cleaned up meanwhile"
            ) from None


def list_versions(store: ObjectStore) -> list[VersionInfo]:
    """Return all existing versions, oldest first. Reads every manifest.

    Raises
    ------
    TableNotFoundError, CorruptTableError, StorageError
    """
    located = list_manifests(store)
    if not located:
        raise not_a_table(store)
    places = {location.version: location for location in located}
    return [
        VersionInfo(m.version, m.timestamp, store, places[m.version])
        for m in _manifests(store, located)
    ]


def transaction_of(store: ObjectStore, version: int) -> Transaction | None:
    """Return the transaction of a version; None if its writer did not store it.

    Raises
    ------
    VersionNotFoundError
        The version does not exist.
    CorruptTableError, StorageError
    """
    try:
        return read_transaction(store, read_manifest(store, find(store, version)))
    except MissingFileError:
        raise VersionNotFoundError(
            f"{store.display}: version {version} has just been cleaned up"
        ) from None


def transactions(store: ObjectStore, version: int, limit: int) -> list[Transaction | None]:
    """Return the transactions of a version and earlier ones, newest first; None if not stored.

    Raises
    ------
    TableNotFoundError, CorruptTableError, StorageError
    """
    located = [item for item in list_manifests(store) if item.version <= version]
    newest = located[::-1][:limit] if limit > 0 else []
    return [read_transaction(store, manifest) for manifest in _manifests(store, newest)]


def manifests_with_transactions(
    store: ObjectStore, located: Sequence[ManifestLocation]
) -> Iterator[tuple[Manifest, Transaction | None]]:
    """Yield versions and their transactions in the given order; removed versions are skipped.

    One manifest is in memory at a time. The transaction is None if its writer did not store it.

    Raises
    ------
    CorruptTableError, StorageError
    """
    for manifest in _manifests(store, located):
        yield manifest, read_transaction(store, manifest)


def manifest_as_of(store: ObjectStore, timestamp: datetime.datetime) -> Manifest:
    """Return the newest version that was committed at or before a time.

    Reads manifests from the newest backwards, up to the returned one.

    Parameters
    ----------
    store : ObjectStore
    timestamp : datetime
        With a time zone; timestamps of versions are compared cut to microseconds.

    Raises
    ------
    VersionNotFoundError
        All existing versions are newer.
    InvalidInputError
        The timestamp has no time zone.
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
    """Yield the manifests in order; removed versions are skipped."""
    for manifest in read_each(partial(find_manifest, store), located, local=store.is_local):
        if manifest is not None:
            yield manifest

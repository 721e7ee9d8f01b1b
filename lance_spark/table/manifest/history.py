"""The history of a table: its versions with commit times, transactions and row counts.

Timestamps come from the clocks of the writers, so a later version can have an earlier timestamp.
The table as of a time is the newest version whose timestamp is not after this time. The timestamps
of older versions do not matter.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from lance_spark.errors import InvalidInputError, MissingFileError, VersionNotFoundError
from lance_spark.storage.parallel import read_each
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import MESSAGE, Transaction, read_transaction
from lance_spark.table.manifest.codec import find_manifest, read_manifest, read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, list_manifests, not_a_table

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True)
class VersionInfo:
    """A version and its commit time. The properties read the manifest at their first use.

    Attributes
    ----------
    version : int
    timestamp : datetime
        In UTC, truncated to microseconds.
    """

    version: int
    timestamp: datetime.datetime
    _store: ObjectStore | None = field(default=None, repr=False, compare=False)
    _location: ManifestLocation | None = field(default=None, repr=False, compare=False)
    _manifest: Manifest | None = field(default=None, repr=False, compare=False)

    @cached_property
    def metadata(self) -> dict[str, str]:
        """Numbers of fragments, files, rows and bytes; see `summarize`.

        Raises
        ------
        VersionNotFoundError
            Cleanup has removed the version.
        StorageError
        """
        return summarize(self._read())

    @cached_property
    def transaction(self) -> Transaction | None:
        """The transaction that created the version; None if its writer did not record it.

        Raises
        ------
        VersionNotFoundError
            Cleanup has removed the version.
        CorruptTableError, StorageError
        """
        manifest = self._read()
        return None if self._store is None else read_transaction(self._store, manifest)

    @property
    def operation(self) -> str | None:
        """The name of the operation, for example ``append``; None if it is unknown."""
        return None if self.transaction is None else self.transaction.operation.name or None

    @property
    def transaction_properties(self) -> dict[str, str]:
        """The properties of the transaction."""
        return {} if self.transaction is None else dict(self.transaction.properties)

    @property
    def message(self) -> str | None:
        """The commit message, if there is one."""
        return self.transaction_properties.get(MESSAGE)

    def _read(self) -> Manifest:
        if self._manifest is not None:
            return self._manifest
        assert self._store is not None
        assert self._location is not None
        try:
            return read_manifest(self._store, self._location)
        except MissingFileError:
            raise VersionNotFoundError(
                f"{self._store.display}: cleanup has removed version {self.version}"
            ) from None


def list_versions(store: ObjectStore) -> list[VersionInfo]:
    """Return all existing versions, oldest first. Reads every manifest.

    Raises TableNotFoundError, CorruptTableError, StorageError.
    """
    locations = list_manifests(store)
    if not locations:
        raise not_a_table(store)
    by_version = {location.version: location for location in locations}
    return [
        VersionInfo(manifest.version, manifest.timestamp, store, by_version[manifest.version])
        for manifest in _manifests(store, locations)
    ]


def transaction_of(store: ObjectStore, version: int) -> Transaction | None:
    """Return the transaction that created a version; None if its writer did not record it.

    Raises CorruptTableError, StorageError. Raises VersionNotFoundError: the version does not exist.
    """
    return read_transaction(store, read_version(store, version))


def transactions(store: ObjectStore, version: int, limit: int) -> list[Transaction | None]:
    """Return the transactions of a version and of the versions before it, newest first.

    None stands for a transaction that a writer did not record.
    Raises TableNotFoundError, CorruptTableError, StorageError.
    """
    locations = [location for location in list_manifests(store) if location.version <= version]
    newest = locations[::-1][:limit] if limit > 0 else []
    return [read_transaction(store, manifest) for manifest in _manifests(store, newest)]


def manifests_with_transactions(
    store: ObjectStore, locations: Sequence[ManifestLocation]
) -> Iterator[tuple[Manifest, Transaction | None]]:
    """Yield manifests and their transactions, in the given order, one at a time in memory.

    Versions that cleanup removes meanwhile are left out. None stands for a transaction that a
    writer did not record. Raises CorruptTableError, StorageError.
    """
    for manifest in _manifests(store, locations):
        yield manifest, read_transaction(store, manifest)


def summarize(manifest: Manifest) -> dict[str, str]:
    """Count fragments, files, rows and bytes of a version. Reads no other file.

    Returns the keys of pylance's `versions()`: ``total_fragments``, ``total_rows`` (not deleted),
    ``total_data_files``, ``total_data_file_rows``, ``total_deletion_files``,
    ``total_deletion_file_rows`` and ``total_files_size`` (bytes of data files with a known size).
    The values are numbers as text.
    """
    files = rows = deletion_files = deleted = size = 0
    fragments = manifest.message.fragments
    for fragment in fragments:
        files += len(fragment.files)
        rows += fragment.physical_rows
        size += sum(file.file_size_bytes for file in fragment.files)
        if fragment.HasField("deletion_file"):
            deletion_files += 1
            deleted += fragment.deletion_file.num_deleted_rows
    numbers = {
        "total_data_file_rows": rows,
        "total_data_files": files,
        "total_deletion_file_rows": deleted,
        "total_deletion_files": deletion_files,
        "total_files_size": size,
        "total_fragments": len(fragments),
        "total_rows": rows - deleted,
    }
    return {name: str(number) for name, number in numbers.items()}


def manifest_as_of(store: ObjectStore, timestamp: datetime.datetime) -> Manifest:
    """Return the newest version that was committed at or before a time.

    Reads manifests from the newest backwards, up to the returned one.

    - `timestamp`: Needs a time zone. It is compared with timestamps that are truncated to
      microseconds.

    Raises TableNotFoundError, CorruptTableError, StorageError. Raises VersionNotFoundError: all
    existing versions are newer. Raises InvalidInputError: the time does not have a time zone.
    """
    if timestamp.tzinfo is None:
        raise InvalidInputError(
            f"timestamp {timestamp.isoformat()} has no time zone; give one, for example UTC"
        )
    limit = (timestamp - _EPOCH) // _MICROSECOND
    locations = list_manifests(store)
    if not locations:
        raise not_a_table(store)
    oldest = None
    for manifest in _manifests(store, locations[::-1]):
        if manifest.timestamp_ns // 1000 <= limit:
            return manifest
        oldest = manifest
    first = f"version {oldest.version} of {oldest.timestamp.isoformat()}" if oldest else "none"
    raise VersionNotFoundError(
        f"{store.display} has no version as of {timestamp.isoformat()}: the oldest is {first}"
    )


def _manifests(store: ObjectStore, locations: Sequence[ManifestLocation]) -> Iterator[Manifest]:
    """Yield the manifests in order, without versions that cleanup removes meanwhile."""
    for manifest in read_each(partial(find_manifest, store), locations, local=store.is_local):
        if manifest is not None:
            yield manifest

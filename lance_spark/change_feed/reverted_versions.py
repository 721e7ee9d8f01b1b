"""The versions that a restore takes back."""

from __future__ import annotations

from lance_spark.errors import VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import read_operation
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.metadata import Restore

#: Versions with their operations, oldest first; None for an operation that is not recorded.
OlderVersions = tuple[tuple[Manifest, Operation | None], ...]

#: The maximum number of versions that are looked at.
_MOST_VERSIONS = 1_000


def versions_taken_back(
    store: ObjectStore, manifest: Manifest, operation: Operation | None
) -> OlderVersions | None:
    """Return the versions between a restore and the version that it restored.

    If one of them is a restore, too, they begin after the version that this one restored.

    - `store`: Root of the branch.
    - `manifest`: The version of the restore.
    - `operation`: Its operation. Any other operation takes back no version.

    None if versions were removed, or are too many. Raises CorruptTableError, StorageError.
    """
    if not isinstance(operation, Restore):
        return ()
    versions: list[tuple[Manifest, Operation | None]] = []
    oldest, version = operation.version, manifest.version - 1
    while version > oldest:
        if manifest.version - oldest > _MOST_VERSIONS:
            return None
        try:
            older = read_version(store, version)
        except VersionNotFoundError:
            return None
        older_operation = read_operation(store, older)
        versions.append((older, older_operation))
        if isinstance(older_operation, Restore):
            oldest = min(oldest, older_operation.version)
        version -= 1
    return tuple(reversed(versions))

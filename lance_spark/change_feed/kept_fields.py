"""Field ids that mean the same columns in a version and in the version before it.

| operation of the version | ids that mean the same |
| --- | --- |
| overwrite, clone, unknown | none: other columns may have got them |
| restore | those that all versions since the restored one have |
| any other | all that both versions have |

So a column that was renamed is known in the versions before a restore, too, under each of its
names.
"""

from __future__ import annotations

from collections.abc import Mapping

from lance_spark.change_feed.older_fields import field_ids
from lance_spark.errors import VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import read_operation
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.metadata.restore import Restore

#: Operations after which field ids may mean other columns.
_RESETS_FIELD_IDS = frozenset({"overwrite", "clone"})
#: The maximum number of versions that are looked at for a restore.
_MOST_VERSIONS = 1_000


def kept_ids(store: ObjectStore, manifest: Manifest, operation: Operation | None) -> frozenset[int]:
    """Return the ids of a version that mean the same columns in the version before it.

    The version before may lack some of them. No id is kept by a restore if versions since the
    restored one were removed, or are too many.

    Parameters
    ----------
    store : ObjectStore
        Root of the branch.
    manifest : Manifest
        The version.
    operation : Operation or None
        Its operation; None if it is not recorded.

    Raises
    ------
    CorruptTableError, StorageError
    """
    if not isinstance(operation, Restore):
        return _of_plain(manifest, operation)
    between: dict[int, tuple[Manifest, Operation | None]] = {}
    oldest, version = operation.version, manifest.version - 1
    try:
        # After another restore, also from the version that it restored.
        while version > oldest:
            if manifest.version - oldest > _MOST_VERSIONS:
                return frozenset()
            older = read_version(store, version)
            older_operation = read_operation(store, older)
            between[version] = older, older_operation
            if isinstance(older_operation, Restore):
                oldest = min(oldest, older_operation.version)
            version -= 1
    except VersionNotFoundError:
        return frozenset()
    kept: dict[int, frozenset[int]] = {}
    for version in sorted(between):
        older, older_operation = between[version]
        if isinstance(older_operation, Restore):
            kept[version] = _of_restore(older, older_operation, kept)
        else:
            kept[version] = _of_plain(older, older_operation)
    return _of_restore(manifest, operation, kept)


def _of_plain(manifest: Manifest, operation: Operation | None) -> frozenset[int]:
    """Return the ids that a version keeps which is no restore."""
    if operation is None or operation.name in _RESETS_FIELD_IDS:
        return frozenset()
    return field_ids(manifest)


def _of_restore(
    manifest: Manifest, restore: Restore, kept: Mapping[int, frozenset[int]]
) -> frozenset[int]:
    """Return the ids that a restore keeps; `kept` has the ids of the versions between."""
    ids = field_ids(manifest)
    for version in range(restore.version + 1, manifest.version):
        ids &= kept[version]
    return ids

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
from lance_spark.table.commit.transaction import read_transaction
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.metadata.restore import Restore

#: Operations after which field ids may mean other columns.
_RESETS_FIELD_IDS = frozenset({"overwrite", "clone", ""})
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
            transaction = read_transaction(store, older)
            change = None if transaction is None else transaction.operation
            between[version] = older, change
            if isinstance(change, Restore):
                oldest = min(oldest, change.version)
            version -= 1
    except VersionNotFoundError:
        return frozenset()
    kept: dict[int, frozenset[int]] = {}
    for version in sorted(between):
        older, change = between[version]
        if isinstance(change, Restore):
            kept[version] = _of_restore(older, change, kept)
        else:
            kept[version] = _of_plain(older, change)
    return _of_restore(manifest, operation, kept)


def _of_plain(manifest: Manifest, operation: Operation | None) -> frozenset[int]:
    is_reset = operation is None or operation.name in _RESETS_FIELD_IDS
    return frozenset() if is_reset else field_ids(manifest)


def _of_restore(
    manifest: Manifest, restore: Restore, kept: Mapping[int, frozenset[int]]
) -> frozenset[int]:
    ids = field_ids(manifest)
    for version in range(restore.version + 1, manifest.version):
        ids &= kept[version]
    return ids

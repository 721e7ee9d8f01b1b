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
from lance_spark.change_feed.taken_back import OlderVersions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.metadata.restore import Restore

#: Operations after which field ids may mean other columns.
_RESETS_FIELD_IDS = frozenset({"overwrite", "clone"})


def kept_ids(
    manifest: Manifest, operation: Operation | None, taken_back: OlderVersions | None
) -> frozenset[int]:
    """Return the ids of a version that mean the same columns in the version before it.

    The version before may lack some of them.

    - `manifest`: The version.
    - `operation`: Its operation; None if it is not recorded.
    - `taken_back`: The versions that a restore takes back (`versions_taken_back`). If they are
      unknown, the restore keeps no id.
    """
    if taken_back is None:
        return frozenset()
    kept: dict[int, frozenset[int]] = {}
    for older, older_operation in (*taken_back, (manifest, operation)):
        if isinstance(older_operation, Restore):
            kept[older.version] = _of_restore(older, older_operation, kept)
        else:
            kept[older.version] = _of_plain(older, older_operation)
    return kept[manifest.version]


def _of_plain(manifest: Manifest, operation: Operation | None) -> frozenset[int]:
    """Return the ids that a version keeps if its operation is no restore."""
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

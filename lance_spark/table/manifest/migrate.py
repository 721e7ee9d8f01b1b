"""Migration of the names of manifests from scheme V1 to scheme V2.

Each manifest gets its new name, then loses the old one. The newest version is renamed first: from
then on, writers see names of both schemes and refuse to commit, so that no version is created under
two names. A writer that listed the versions earlier can still do so; therefore no client should
write during a migration. Readers find every version at any time: they read the new name of a
version with two names. After a crash, call the migration again. A migrated table is not changed.
"""

from __future__ import annotations

from lance_spark.errors import CorruptTableError, MissingFileError, UnsupportedError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.versions import FOLDER, ManifestLocation, NamingScheme
from lance_spark.table.open import read_latest

_MAX_ROUNDS = 10


def migrate_to_v2(store: ObjectStore) -> int:
    """Rename all manifests of a table to names of scheme V2; return how many were renamed.

    - `store`: The root of the table, or of a branch. Each branch has manifests of its own.

    Raises TableNotFoundError, StorageError. Raises UnsupportedError: the table has an external
    manifest store, which records the names. Raises UnsupportedFeatureError: the newest version
    needs a feature that this release does not write. Raises CorruptTableError: two manifests of the
    same version differ.
    """
    if store.manifest_store is not None:
        raise UnsupportedError(
            f"{store.display}: manifests cannot be renamed, because an external manifest store "
            "records their names"
        )
    read_latest(store).check_writable(store.display)
    renamed = 0
    for _ in range(_MAX_ROUNDS):
        parsed = [versions.parse_name(name) for name in store.list_names(FOLDER)]
        locations = [location for location in parsed if location is not None]
        if not locations:
            raise versions.not_a_table(store)
        old = [location for location in locations if location.scheme is NamingScheme.V1]
        if not old:
            break
        for location in sorted(old, key=lambda location: -location.version):
            renamed += _rename(store, location)
    return renamed


def _rename(store: ObjectStore, old: ManifestLocation) -> bool:
    new = NamingScheme.V2.locate(old.version)
    try:
        data = store.read_bytes(old.path)
    except MissingFileError:
        # Another client migrates the table too, and has renamed this manifest.
        return False
    if not store.put_if_absent(new.path, data) and store.read_bytes(new.path) != data:
        raise CorruptTableError(
            f"{store.display}: version {old.version} has two different manifests, {old.path} and "
            f"{new.path}; find out which of them is valid, and delete the other one"
        )
    store.delete([old.path])
    return True

"""Migrates manifests from the naming scheme V1 to V2: each is copied to its new name first.

The newest version is migrated first. From then on writers see both schemes and refuse to commit, so
no version can be created under two names. A writer that listed the versions before can still
commit, so no client should write during a migration. Readers find every version at any time: they
prefer the new name. After a crash the migration can be repeated; a migrated table is not changed.
"""

from __future__ import annotations

from lance_spark.errors import CorruptTableError, MissingFileError, UnsupportedError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.versions import FOLDER, ManifestLocation, NamingScheme
from lance_spark.table.open import read_latest

_MAX_ROUNDS = 10


def migrate_to_v2(store: ObjectStore) -> int:
    """Rename all manifests of a table to scheme V2.

    Parameters
    ----------
    store : ObjectStore
        Root of the table or of a branch, which has its own manifests.

    Returns
    -------
    int
        Number of renamed manifests.

    Raises
    ------
    TableNotFoundError
        The table does not exist.
    UnsupportedError
        An external manifest store records the names.
    UnsupportedFeatureError
        The newest version needs features that this release cannot write.
    CorruptTableError
        A version has two manifests that differ.
    StorageError
    """
    if store.manifest_store is not None:
        raise UnsupportedError(
            f"{store.display}: an external manifest store names the manifests, which keep their "
            "names"
        )
    read_latest(store).check_writable(store.display)
    renamed = 0
    for _ in range(_MAX_ROUNDS):
        names = [versions.parse_name(name) for name in store.list_names(FOLDER)]
        located = [item for item in names if item is not None]
        if not located:
            raise versions.not_a_table(store)
        old = [item for item in located if item.scheme is NamingScheme.V1]
        if not old:
            break
        for location in sorted(old, key=lambda item: -item.version):
            renamed += _rename(store, location)
    return renamed


def _rename(store: ObjectStore, old: ManifestLocation) -> bool:
    new = NamingScheme.V2.locate(old.version)
    try:
        data = store.read_bytes(old.path)
    except MissingFileError:
        # Another migration was faster.
        return False
    if not store.put_if_absent(new.path, data) and store.read_bytes(new.path) != data:
        raise CorruptTableError(
            f"{store.display}: version {old.version} has two manifests that differ, {old.path} and "
            f"{new.path}; "
            "find out which one its readers need, and remove the other"
        )
    store.delete([old.path])
    return True

"""From names of scheme V1 to those of V2: each manifest gets its new name, then loses the old one.

The newest version goes first. From then on writers see both schemes and refuse to commit, so that
no version can be created under two names; one that had already listed the versions can still do so,
which is why nobody should write meanwhile. Readers find every version at any time: of a version
with two names they take the new one. After a crash the migration can be called again, and a table
that has been migrated stays as it is.
"""

from __future__ import annotations

from lance_spark.errors import CorruptTableError, MissingFileError, UnsupportedError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.versions import FOLDER, ManifestLocation, NamingScheme
from lance_spark.table.open import read_latest

_MAX_ROUNDS = 10


def migrate_to_v2(store: ObjectStore) -> int:
    """Give all manifests of a table names of scheme V2.

    Parameters
    ----------
    store : ObjectStore
        Root of the table, or of a branch, which has names of its own.

    Returns
    -------
    int
        How many were renamed.

    Raises
    ------
    TableNotFoundError
        There is no table.
    UnsupportedError
        An external manifest store knows the names.
    UnsupportedFeatureError
        The newest version needs a writer that does more than this release.
    CorruptTableError
        Two manifests of one version differ.
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
            "find out which one its readers need, and take the other away"
        )
    store.delete([old.path])
    return True

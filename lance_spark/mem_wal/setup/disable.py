"""Takes a MemWAL from a table.

1. The rows of its shards are brought into the base table.
2. The shards are sealed: no writer adds rows to them. If a writer was faster than step 1, the
   shards are opened again, and the MemWAL stays.
3. A commit removes the entry `__lance_mem_wal` from the index section.
4. The files below `_mem_wal/` are deleted.

After an interruption, the function removes what is left.
"""

from __future__ import annotations

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.writing.claims import change_status, seal
from lance_spark.mem_wal.writing.flush import flush_logs
from lance_spark.mutations.commits import at_version, change_schema
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.mem_wal import names
from lance_spark.table.mem_wal.details import MemWalDetails, details_of, find_index
from lance_spark.table.mem_wal.fresh_rows import has_fresh_rows, shards_with_fresh_rows
from lance_spark.table.mem_wal.shard_manifest import ShardManifest, ShardStatus, list_shards
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.operations.metadata.create_index import CreateIndex
from lance_spark.table.removal import delete_files


def disable_mem_wal(table: OpenTable, options: CommitOptions, *, compact: bool = True) -> OpenTable:
    """Remove the MemWAL of a table, and its files; see `Dataset.disable_mem_wal`.

    Parameters
    ----------
    compact : bool
        Whether rows that are not in the base table are brought there, instead of refused.

    Raises
    ------
    UnsupportedFeatureError
        A shard has rows that are not in the base table. Its writers can go on.
    CommitConflictError
        Another client claims a shard at the same time.
    StorageError
        The store fails. Call the function again, which removes what is left.
    CorruptFileError, CorruptTableError
    """
    store = table.store
    newest = at_version(table, read_latest(store))
    details = details_of(newest.manifest)
    if details is None and not list_shards(store):
        raise InvalidInputError(f"{store.display}: the table has no MemWAL")
    if details is not None:
        if compact and any(shards_with_fresh_rows(store, details.compacted)):
            flush_logs(newest)
            compact_mem_wal(newest, options)
            newest = at_version(table, read_latest(store))
            details = details_of(newest.manifest) or details
        _seal_shards(store, details)
        newest = change_schema(newest, _removal, options)
    delete_files(store, names.FOLDER, _files(store), (), manifests_first=False)
    return newest


def _removal(current: OpenTable) -> CreateIndex:
    index = find_index(section_of(current.manifest))
    if index is None:
        raise InvalidInputError(f"{current.store.display}: another client disabled the MemWAL")
    return CreateIndex((), (index,))


def _files(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list_tree(names.FOLDER)]


def _seal_shards(store: ObjectStore, details: MemWalDetails) -> None:
    """Seal all shards; open them again if one has rows that are not compacted."""
    sealed: list[ShardManifest] = []
    fresh: ShardManifest | None = None
    for shard in list_shards(store):
        manifest = seal(store, shard)
        if manifest is None:
            continue
        sealed.append(manifest)
        if has_fresh_rows(store, manifest, details.compacted.get(shard, 0)):
            fresh = manifest
            break
    if fresh is None:
        return
    for manifest in sealed:
        change_status(store, manifest, ShardStatus.ACTIVE)
    raise UnsupportedFeatureError(
        f"{store.display}: the MemWAL cannot be disabled: shard {fresh.shard} has rows that are "
        "not in the base table; stop its writers and compact it before (Dataset.compact_mem_wal, "
        "LanceTable.compactMemWal)"
    )

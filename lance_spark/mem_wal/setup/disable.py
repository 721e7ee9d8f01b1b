"""Takes a MemWAL from a table.

1. The rows of its shards are brought into the base table.
2. The shards are sealed: no writer adds rows to them.
3. A commit removes the entry `__lance_mem_wal` from the index section.
4. The shards are listed again, and those that writers have made since step 2 are sealed.
5. The files below `_mem_wal/` are deleted.

If a writer was faster than step 1, or claims a shard during step 2, the shards are opened again,
and the MemWAL stays. The same happens if the commit is refused. If a shard has rows in step 4,
another commit puts the entry back first.

After an interruption, the function removes what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    StorageError,
    UnsupportedFeatureError,
)
from lance_spark.mem_wal.compaction import compact_mem_wal, read_shards
from lance_spark.mem_wal.inherited import check_generations
from lance_spark.mem_wal.writing.claims import change_status, seal
from lance_spark.mem_wal.writing.flush import flush_logs
from lance_spark.mutations.commits import at_version, change_schema
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.mem_wal import names
from lance_spark.table.mem_wal.details import MemWalDetails, details_of, find_index, new_index
from lance_spark.table.mem_wal.fresh_rows import has_fresh_rows, shards_with_fresh_rows
from lance_spark.table.mem_wal.shard_manifest import ShardManifest, ShardStatus, list_shards
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.operations.metadata.create_index import CreateIndex
from lance_spark.table.removal import delete_files


def disable_mem_wal(table: OpenTable, options: CommitOptions, *, compact: bool = True) -> OpenTable:
    """Remove the MemWAL of a table, and its files; see `Dataset.disable_mem_wal`.

    - `compact`: Whether rows that are not in the base table are brought there, instead of refused.

    Raises CorruptFileError, CorruptTableError. Raises UnsupportedFeatureError: a shard has rows
    that are not in the base table. Its writers can go on. Raises CommitConflictError: another
    client claims a shard at the same time. Raises StorageError: the store fails. Call the function
    again, which removes what is left.
    """
    store = table.store
    newest = at_version(table, read_latest(store))
    details = details_of(newest.manifest)
    if details is None and not (list_shards(store) or _files(store)):
        raise InvalidInputError(
            f"{store.display}: the table has no MemWAL, and no files of one; nothing is left to do"
        )
    if details is not None:
        check_generations(store, read_shards(newest), details.compacted)
        if compact and any(shards_with_fresh_rows(store, details.compacted)):
            flush_logs(newest)
            compact_mem_wal(newest, options)
            newest = at_version(table, read_latest(store))
            details = details_of(newest.manifest) or details
        sealed: list[ShardManifest] = []
        try:
            _seal_shards(store, details, sealed)
            newest = change_schema(newest, _removal, options)
        except (CommitConflictError, UnsupportedFeatureError):
            _open_again(store, sealed)
            raise
        try:
            _seal_shards(store, details, sealed)
        except LanceError as error:
            _put_back(newest, details, options, error)
            _open_again(store, sealed)
            raise
    files = _files(store)
    # Before the logs: a reader takes a log as whole if its shard manifest still exists.
    store.delete([path for path in files if names.is_in_manifest_folder(path)])
    delete_files(store, names.FOLDER, files, (), manifests_first=False)
    if store.is_local:
        _remove_folders(store, names.FOLDER)
    return newest


def _removal(current: OpenTable) -> CreateIndex:
    index = find_index(section_of(current.manifest))
    if index is None:
        raise InvalidInputError(
            f"{current.store.display}: another client has disabled the MemWAL at the same time; "
            "disable it again to remove the files that are left"
        )
    return CreateIndex((), (index,))


def _put_back(
    table: OpenTable, details: MemWalDetails, options: CommitOptions, cause: LanceError
) -> None:
    """Give the table its MemWAL again, for the rows of a late writer.

    Raises StorageError: it failed, so that no reader finds these rows.
    """

    def plan(current: OpenTable) -> CreateIndex:
        if find_index(section_of(current.manifest)) is not None:
            raise InvalidInputError("another client has initialized a MemWAL")
        return CreateIndex((new_index(details, current.version),))

    try:
        change_schema(table, plan, options)
    except LanceError as error:
        raise StorageError(
            f"{cause}; and the MemWAL, which is removed from the table, could not be put back "
            f"({error}): readers do not find what was put into new shards meanwhile, and the next "
            "call of disable_mem_wal deletes it; put these rows again"
        ) from error


def _remove_folders(store: ObjectStore, folder: str) -> None:
    """Remove empty folders, which an interrupted deletion has left without their files."""
    for name in store.list_folders(folder):
        _remove_folders(store, f"{folder}/{name}")
    store.remove_folder(folder)


def _files(store: ObjectStore) -> list[str]:
    return [info.path for info in store.list_tree(names.FOLDER)]


def _seal_shards(store: ObjectStore, details: MemWalDetails, sealed: list[ShardManifest]) -> None:
    """Seal all other shards, and add them to `sealed`; refuse one with rows that are not compacted.

    Raises CommitConflictError, UnsupportedFeatureError: Shards of `sealed` stay sealed.
    """
    known = {manifest.shard for manifest in sealed}
    for shard in list_shards(store):
        if shard in known:
            continue
        manifest = seal(store, shard)
        if manifest is None:
            continue
        sealed.append(manifest)
        if has_fresh_rows(store, manifest, details.compacted.get(shard, 0)):
            raise UnsupportedFeatureError(
                f"{store.display}: the MemWAL cannot be disabled: shard {shard} has rows that are "
                "not in the base table; stop its writers and compact it before "
                "(Dataset.compact_mem_wal, LanceTable.compact_mem_wal)"
            )


def _open_again(store: ObjectStore, sealed: Iterable[ShardManifest]) -> None:
    """Let shards take writers again. A shard that cannot be opened stays sealed."""
    for manifest in sealed:
        with suppress(CommitConflictError, StorageError):
            change_status(store, manifest, ShardStatus.ACTIVE)

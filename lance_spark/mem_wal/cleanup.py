"""Removes files of a MemWAL that no reader or writer needs any more, by their age.

| file | removed if, for the whole grace time, |
| --- | --- |
| SSTable | no newest shard manifest listed it: it was compacted, or its flush failed |
| WAL entry with rows | it was at or before `replay_after` of the newest shard manifest |
| temporary file, staged rows | it was there: its writer was killed |

A fresh read goes on with the shard manifest that it has read. So a file stays until all shard
manifests that list it, or that do not cover it, were replaced a grace time ago.

Sentinels stay for ever: a writer that was fenced finds its next position taken, however late it
tries. If the position were free, its rows would be acknowledged and never read. Shard manifests
stay, too: a client that finds no hint tries versions from 1 on. Specification: table/mem_wal.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.mem_wal.compaction import mem_wal_of
from lance_spark.mem_wal.entries import read_entry
from lance_spark.mem_wal.staging import STAGED
from lance_spark.mem_wal.table import shard_manifest
from lance_spark.mem_wal.table.shard_manifest import (
    ShardManifest,
    list_shards,
    read_latest_manifest,
    read_manifest,
)
from lance_spark.storage.listing import FileInfo
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup.plan import TEMPORARY
from lance_spark.table.open import OpenTable
from lance_spark.table.removal import delete_files

DEFAULT_GRACE = timedelta(days=7)
#: A sentinel has about 200 bytes; larger entries need not be read.
_MAX_SENTINEL = 2048


@dataclass(frozen=True, slots=True)
class MemWalCleanup:
    """What a cleanup removed.

    Attributes
    ----------
    bytes_removed : int
    sstables_removed, entries_removed : int
    """

    bytes_removed: int = 0
    sstables_removed: int = 0
    entries_removed: int = 0


def clean_mem_wal(table: OpenTable, older_than: timedelta = DEFAULT_GRACE) -> MemWalCleanup:
    """Remove files that no reader or writer needs any more.

    - `table`: The newest version.
    - `older_than`: The grace time. It must be longer than any fresh read, and any flush, takes.

    Raises CorruptFileError, UnsupportedFeatureError, StorageError. Raises InvalidInputError: the
    grace time is negative, or the table has no MemWAL.
    """
    if older_than < timedelta():
        raise InvalidInputError(f"older_than must not be negative, but is {older_than}")
    mem_wal_of(table)
    table.manifest.check_writable(table.store.display)
    cutoff = time.time() - older_than.total_seconds()
    staged = [info for info in table.store.list_tree(STAGED) if _is_old(info, cutoff)]
    table.store.delete([info.path for info in staged])
    parts = [_clean_shard(table.store, shard, cutoff) for shard in list_shards(table.store)]
    return MemWalCleanup(
        sum(part.bytes_removed for part in parts) + sum(info.size for info in staged),
        sum(part.sstables_removed for part in parts),
        sum(part.entries_removed for part in parts),
    )


def _clean_shard(store: ObjectStore, shard: uuid.UUID, cutoff: float) -> MemWalCleanup:
    # Files are listed before the newest manifest is read, so that it lists those that are complete.
    files = store.list_tree(shard_manifest.shard_path(shard))
    newest = read_latest_manifest(store, shard)
    if newest is None:
        return MemWalCleanup()
    folders: dict[str, list[FileInfo]] = {}
    prefix = len(shard_manifest.shard_path(shard)) + 1
    for info in files:
        folders.setdefault(info.path[prefix:].partition("/")[0], []).append(info)
    listed = _files_of(folders, shard_manifest.manifest_folder(shard))
    manifests = [newest, *_in_use(store, newest, listed, cutoff)]
    kept = {part.folder for manifest in manifests for part in manifest.sstables}
    covered = min(manifest.replay_after for manifest in manifests)

    entries_folder = _files_of(folders, shard_manifest.wal_folder(shard))
    old = [info for info in files if _is_old(info, cutoff)]
    temporary = [info for info in old if TEMPORARY.fullmatch(info.path.rpartition("/")[2])]
    entries = [
        info
        for info in entries_folder
        if _is_old(info, cutoff)
        and 0 < (shard_manifest.number_of(info.path.rpartition("/")[2]) or 0) <= covered
        and not _is_sentinel(store, shard, info)
    ]
    unused = {
        name: infos
        for name, infos in folders.items()
        if name.rpartition("_")[0].endswith("_gen")
        and name not in kept
        and all(_is_old(info, cutoff) for info in infos)
    }
    for name, infos in unused.items():
        paths = [info.path for info in infos]
        path = shard_manifest.sstable_path(shard, name)
        delete_files(store, path, paths, (), manifests_first=True)
    in_folders = {info.path for infos in unused.values() for info in infos}
    alone = [info for info in (*entries, *temporary) if info.path not in in_folders]
    store.delete([info.path for info in alone])
    removed = [*alone, *(info for infos in unused.values() for info in infos)]
    return MemWalCleanup(sum(info.size for info in removed), len(unused), len(entries))


def _files_of(folders: dict[str, list[FileInfo]], folder: str) -> list[FileInfo]:
    return folders.get(folder.rpartition("/")[2], [])


def _in_use(
    store: ObjectStore, newest: ShardManifest, files: Iterable[FileInfo], cutoff: float
) -> list[ShardManifest]:
    """Return the older versions that were the newest one at some time since `cutoff`."""
    by_version = {shard_manifest.number_of(info.path.rpartition("/")[2]): info for info in files}
    listed = [version for version in by_version if version and version < newest.version]
    versions = [*sorted(listed), newest.version]
    if newest.version not in by_version:
        # Another client has created this version, and maybe others, since the files were listed.
        since = range(max(listed, default=0) + 1, newest.version)
        versions = sorted({*versions, *since})
    in_use = [
        read_manifest(store, newest.shard, version)
        for version, following in pairwise(versions)
        if following not in by_version or not _is_old(by_version[following], cutoff)
    ]
    return [manifest for manifest in in_use if manifest is not None]


def _is_old(info: FileInfo, cutoff: float) -> bool:
    # A file of unknown age may be new.
    return info.modified is not None and info.modified < cutoff


def _is_sentinel(store: ObjectStore, shard: uuid.UUID, info: FileInfo) -> bool:
    """Return whether an entry is a sentinel, or may be one."""
    if info.size > _MAX_SENTINEL:
        return False
    position = shard_manifest.number_of(info.path.rpartition("/")[2])
    assert position is not None
    try:
        entry = read_entry(store, shard, position)
    except CorruptFileError:
        return True
    return entry is None or entry.is_sentinel

"""Shard manifests: the state of one shard of a MemWAL, in versions that never change.

A version is the protobuf message `ShardManifest` in a file of its own (`names`). A change creates
the file of the next version, if it is absent: of several clients, one succeeds. All others read the
shard again.

| field | content |
| --- | --- |
| version | the number in the name of the file |
| writer_epoch | number of the last claim; 0 before the first |
| replay_after_wal_entry_position | last WAL position whose rows are in SSTables |
| wal_entry_position_last_seen | a hint, which readers do not need |
| current_generation | generation of the next SSTable |
| sstables | SSTables whose rows may not be in the base table yet |
| shard_spec_id, shard_field_entries | the sharding, and the values that select this shard |
| status | a sealed shard has no writers |
| publication_id | random bytes: no two writers create equal files |

The newest version is found from `version_hint.json`: the hinted version must exist, and versions
above it are tried until two in a row are missing. Without a usable hint the folder is listed.
"""

from __future__ import annotations

import enum
import json
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from lance_spark.errors import (
    CorruptError,
    CorruptFileError,
    InvalidInputError,
    MissingFileError,
    StorageError,
    UnsupportedFeatureError,
)
from lance_spark.proto import table_pb2
from lance_spark.storage.retry import seen_whole
from lance_spark.storage.store import ObjectStore

# --------------------------------------------------------------------------------------------------
# Paths of the files of a MemWAL, below the root of a branch.
#
# | path below `_mem_wal/{shard}/` | content |
# | --- | --- |
# | `manifest/{number}.binpb` | version `number` of the shard manifest; created once, never changed
#     |
# | `manifest/version_hint.json` | a recent version, `{"version":N}`; may be missing or wrong |
# | `wal/{number}.arrow` | the WAL entry at position `number`; created once, never changed |
# | `{8 hex digits}_gen_{generation}/` | an SSTable |
#
# `shard` is a UUID with hyphens. `number` is written as 64 binary digits, the lowest first: 1 is
# "1" and 63 zeros. Versions, positions and generations start at 1; 0 means that there is none.

FOLDER = "_mem_wal"
#: Column of logs and SSTables, which a table with a MemWAL cannot have.
TOMBSTONE = "_tombstone"
_DIGITS = 64
_NUMBER = re.compile(r"[01]{64}")
_SSTABLE = re.compile(r"[A-Za-z0-9_.-]{1,255}")
_MANIFEST = ".binpb"
_ENTRY = ".arrow"


def shard_path(shard: uuid.UUID) -> str:
    """Return the path of the folder of a shard."""
    return f"{FOLDER}/{shard}"


def shard_of(name: str) -> uuid.UUID | None:
    """Return the shard that a folder in `_mem_wal/` belongs to; None for other folders."""
    try:
        shard = uuid.UUID(name)
    except ValueError:
        return None
    return shard if str(shard) == name else None


def manifest_folder(shard: uuid.UUID) -> str:
    """Return the path of the folder of the shard manifests."""
    return f"{shard_path(shard)}/manifest"


def manifest_path(shard: uuid.UUID, version: int) -> str:
    """Return the path of one version of a shard manifest."""
    return f"{manifest_folder(shard)}/{digits_of(version)}{_MANIFEST}"


def is_in_manifest_folder(path: str) -> bool:
    """Return whether a path is that of a shard manifest, or of the hint at one."""
    return path.rpartition("/")[0].endswith("/manifest")


def hint_path(shard: uuid.UUID) -> str:
    """Return the path of the file that names a recent version of a shard manifest."""
    return f"{manifest_folder(shard)}/version_hint.json"


def wal_folder(shard: uuid.UUID) -> str:
    """Return the path of the folder of the WAL entries of a shard."""
    return f"{shard_path(shard)}/wal"


def wal_path(shard: uuid.UUID, position: int) -> str:
    """Return the path of a WAL entry."""
    return f"{wal_folder(shard)}/{digits_of(position)}{_ENTRY}"


def new_sstable_folder(generation: int) -> str:
    """Return a new name for the folder of an SSTable. Each attempt of a flush has another name."""
    return f"{uuid.uuid4().hex[:8]}_gen_{generation}"


def sstable_path(shard: uuid.UUID, folder: str) -> str:
    """Return the path of an SSTable.

    - `folder`: Name of its folder, as the shard manifest has it.
    """
    return f"{shard_path(shard)}/{folder}"


def is_sstable_folder(name: str) -> bool:
    """Return whether a shard manifest can name a folder so: it must be one folder of the shard."""
    return _SSTABLE.fullmatch(name) is not None and name not in (".", "..", "manifest", "wal")


def digits_of(number: int) -> str:
    """Return a number of 64 bits as binary digits, the lowest first."""
    return format(number, f"0{_DIGITS}b")[::-1]


def number_of(name: str) -> int | None:
    """Return the number in the name of a shard manifest or WAL entry; None for other names."""
    stem, dot, extension = name.rpartition(".")
    if dot + extension not in (_MANIFEST, _ENTRY) or _NUMBER.fullmatch(stem) is None:
        return None
    return int(stem[::-1], 2)


# --------------------------------------------------------------------------------------------------
# Shard manifests: the state of one shard of a MemWAL, in versions that never change.

#: A longer shard manifest is not read. One SSTable takes about 40 bytes.
MAX_BYTES = 16 * 1024 * 1024
_MAX_HINT = 4096
_MAX_U64 = 2**64 - 1
#: Missing versions that end the search for the newest one. pylance tries two at once.
_MISSING = 2


class ShardStatus(enum.Enum):
    """Whether a shard takes writers; the value is the number in the protobuf message."""

    ACTIVE = 0
    SEALED = 1


@dataclass(frozen=True, slots=True)
class SsTable:
    """An SSTable of a shard.

    - `generation`: Starts at 1.
    - `folder`: Name of its folder below that of the shard.
    - `in_memory_bytes`, `physical_rows`, `primary_key_bytes`: Size of the rows in memory, their
      number with replaced rows and tombstones, and the size of their keys.
    """

    generation: int
    folder: str
    in_memory_bytes: int | None = None
    physical_rows: int | None = None
    primary_key_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """One version of the state of a shard.

    - `version`: Starts at 1.
    - `replay_after`: The last position of the log whose rows are in SSTables.
    - `last_seen`: A hint at the last position of the log.
    - `sstables`: In increasing order of their generations.
    - `spec_id`: 0 for a shard that was made by hand.
    - `field_entries` (tuple of (str, bytes)): Name of each sharding field, and the little-endian
      bytes of its value.
    - `message`: As it was read, with fields that this release does not know. Must not be modified.
    """

    shard: uuid.UUID
    version: int = 1
    writer_epoch: int = 0
    replay_after: int = 0
    last_seen: int = 0
    current_generation: int = 1
    sstables: tuple[SsTable, ...] = ()
    spec_id: int = 0
    field_entries: tuple[tuple[str, bytes], ...] = ()
    status: ShardStatus = ShardStatus.ACTIVE
    message: table_pb2.ShardManifest = field(
        default_factory=table_pb2.ShardManifest, compare=False, repr=False
    )


def list_shards(store: ObjectStore) -> list[uuid.UUID]:
    """Return the shards of a branch in order. Folders with other names are ignored.

    - `store`: Root of the branch.

    Raises StorageError.
    """
    shards = map(shard_of, store.list_folders(FOLDER))
    return sorted(shard for shard in shards if shard is not None)


def read_latest_manifest(store: ObjectStore, shard: uuid.UUID) -> ShardManifest | None:
    """Read the newest version of a shard manifest; None if the shard has none.

    - `store`: Root of the branch.

    Raises CorruptFileError, StorageError. Raises UnsupportedFeatureError: the status of the shard
    is unknown.
    """
    hint = _read_hint(store, shard)
    newest = None if hint is None else read_manifest(store, shard, hint)
    if newest is None:
        listed = map(number_of, store.list_names(manifest_folder(shard)))
        version = max((number for number in listed if number is not None), default=0)
        newest = read_manifest(store, shard, version) if version else None
    if newest is None:
        return None
    return read_newer(store, newest)


def publish(store: ObjectStore, manifest: ShardManifest) -> ShardManifest | None:
    """Create a version of a shard manifest; return it as stored, or None if another client has.

    - `store`: Root of the branch.
    - `manifest`: Usually a version that was read, with changes and the next version number.

    Raises InvalidInputError: numbers or names are not valid. Raises StorageError: the store failed,
    and it is unknown whether the version was created.
    """
    try:
        message = encode(manifest)
        stored = decode(message, manifest.shard, manifest.version, "the new shard manifest")
    except (CorruptFileError, ValueError) as error:
        # Protobuf raises ValueError for a number of more than 64 bits.
        raise InvalidInputError(f"{store.display}: shard {manifest.shard}: {error}") from None
    path = manifest_path(manifest.shard, manifest.version)
    if not store.put_if_absent(path, message) and not _is_own(store, path, message):
        return None
    # The hint spares readers a listing. Without it they find the version, too.
    with suppress(StorageError):
        hint = b'{"version":%d}' % manifest.version
        store.write_bytes(hint_path(manifest.shard), hint, durable=False)
    return stored


def _is_own(store: ObjectStore, path: str, message: bytes) -> bool:
    """Return whether an existing version was created by this call.

    The packages of Google Cloud Storage and Azure repeat a request whose answer was lost, and the
    store refuses the repeated request. Raises StorageError.
    """
    if store.is_local:
        return False
    try:
        return seen_whole(lambda: store.read_bytes(path, len(message)), message) == message
    except CorruptFileError:
        # It is longer.
        return False


def encode(manifest: ShardManifest) -> bytes:
    """Return the bytes of a new version. Each call returns other bytes."""
    message = table_pb2.ShardManifest()
    message.CopyFrom(manifest.message)
    message.version = manifest.version
    message.writer_epoch = manifest.writer_epoch
    message.replay_after_wal_entry_position = manifest.replay_after
    message.wal_entry_position_last_seen = manifest.last_seen
    message.current_generation = manifest.current_generation
    known = {table.generation: table for table in manifest.message.sstables}
    message.ClearField("sstables")
    for table in manifest.sstables:
        stored = message.sstables.add()
        if table.generation in known:
            stored.CopyFrom(known[table.generation])
        stored.generation, stored.path = table.generation, table.folder
        for name in ("in_memory_bytes", "physical_rows", "primary_key_bytes"):
            value = getattr(table, name)
            if value is None:
                stored.ClearField(name)
            else:
                setattr(stored, name, value)
    message.shard_spec_id = manifest.spec_id
    message.shard_id.uuid = manifest.shard.bytes
    message.ClearField("shard_field_entries")
    for field_id, value in manifest.field_entries:
        message.shard_field_entries.add(field_id=field_id, value=value)
    message.status = manifest.status.value  # type: ignore[assignment]
    # After a lost answer of a store, a file with the same bytes counts as the own one. Two clients
    # that claim a shard at once would otherwise write the same bytes.
    message.publication_id = uuid.uuid4().bytes
    return message.SerializeToString()


def decode(data: bytes, shard: uuid.UUID, version: int, name: str) -> ShardManifest:
    """Parse and check the bytes of a shard manifest.

    - `shard`, `version`: As the path of the file has them.
    - `name`: Name of the file, for errors.

    Raises CorruptFileError. Raises UnsupportedFeatureError: the status of the shard is unknown.
    """
    try:
        message = table_pb2.ShardManifest.FromString(data)
    except DecodeError as error:
        raise CorruptFileError(f"{name}: the shard manifest cannot be decoded: {error}") from None
    if message.version != version:
        raise CorruptFileError(
            f"{name}: the shard manifest has version {message.version}, but its name has {version}"
        )
    if message.shard_id.uuid != shard.bytes:
        raise CorruptFileError(
            f"{name}: the shard manifest has shard {message.shard_id.uuid.hex()!r}, but its path "
            f"has {shard}"
        )
    if not message.current_generation:
        raise CorruptFileError(f"{name}: the current generation is 0, but generations start at 1")
    statuses = {status.value: status for status in ShardStatus}
    if message.status not in statuses:
        raise UnsupportedFeatureError(
            f"{name}: the shard has status {message.status}; this release knows 0 (active) and 1 "
            "(sealed)"
        )
    return ShardManifest(
        shard=shard,
        version=version,
        writer_epoch=message.writer_epoch,
        replay_after=message.replay_after_wal_entry_position,
        last_seen=message.wal_entry_position_last_seen,
        current_generation=message.current_generation,
        sstables=_sstables(message, name),
        spec_id=message.shard_spec_id,
        field_entries=tuple((entry.field_id, entry.value) for entry in message.shard_field_entries),
        status=statuses[message.status],
        message=message,
    )


def _sstables(message: table_pb2.ShardManifest, name: str) -> tuple[SsTable, ...]:
    tables: dict[int, SsTable] = {}
    for table in message.sstables:
        generation = table.generation
        if not 0 < generation < message.current_generation or generation in tables:
            raise CorruptFileError(
                f"{name}: an SSTable has generation {generation}; generations must be distinct, "
                f"from 1 to below the current generation, {message.current_generation}"
            )
        if not is_sstable_folder(table.path):
            raise CorruptFileError(
                f"{name}: the SSTable of generation {generation} has the folder {table.path!r}, "
                "which cannot be the name of a folder of the shard"
            )
        tables[generation] = SsTable(
            generation,
            table.path,
            table.in_memory_bytes if table.HasField("in_memory_bytes") else None,
            table.physical_rows if table.HasField("physical_rows") else None,
            table.primary_key_bytes if table.HasField("primary_key_bytes") else None,
        )
    return tuple(tables[generation] for generation in sorted(tables))


def _read_hint(store: ObjectStore, shard: uuid.UUID) -> int | None:
    try:
        content = json.loads(store.read_bytes(hint_path(shard), _MAX_HINT))
        version = content["version"]
    except (StorageError, CorruptError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return version if type(version) is int and 0 < version <= _MAX_U64 else None


def read_newer(store: ObjectStore, newest: ShardManifest) -> ShardManifest:
    """Return the newest version of a shard manifest, from one that exists on.

    Raises CorruptFileError, UnsupportedFeatureError, StorageError.
    """
    version = newest.version
    while version < newest.version + _MISSING and version < _MAX_U64:
        version += 1
        manifest = read_manifest(store, newest.shard, version)
        newest = newest if manifest is None else manifest
    return newest


def read_manifest(store: ObjectStore, shard: uuid.UUID, version: int) -> ShardManifest | None:
    """Read a version of a shard manifest; None if it does not exist.

    Raises CorruptFileError, UnsupportedFeatureError, StorageError.
    """
    path = manifest_path(shard, version)
    try:
        data = store.read_bytes(path, MAX_BYTES)
    except MissingFileError:
        return None
    return decode(data, shard, version, store.name(path))

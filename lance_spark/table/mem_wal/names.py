"""Paths of the files of a MemWAL, below the root of a branch.

| path below `_mem_wal/{shard}/` | content |
| --- | --- |
| `manifest/{number}.binpb` | version `number` of the shard manifest; created once, never changed |
| `manifest/version_hint.json` | a recent version, `{"version":N}`; may be missing or wrong |
| `wal/{number}.arrow` | the WAL entry at position `number`; created once, never changed |
| `{8 hex digits}_gen_{generation}/` | an SSTable |

`shard` is a UUID with hyphens. `number` is written as 64 binary digits, the lowest first: 1 is "1"
and 63 zeros. Versions, positions and generations start at 1; 0 means that there is none.
"""

from __future__ import annotations

import re
import uuid

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

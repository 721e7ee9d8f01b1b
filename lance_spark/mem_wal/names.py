"""Paths of the files of a MemWAL, below the root of a branch."""

from __future__ import annotations

import uuid

MEM_WAL = "_mem_wal"


def binary_name(number: int) -> str:
    """Return the 64 binary digits of a number, lowest first."""
    return format(number, "064b")[::-1]


def wal_path(shard: uuid.UUID, position: int) -> str:
    """Return the path of a WAL entry."""
    return f"{MEM_WAL}/{shard}/wal/{binary_name(position)}.arrow"

"""The memory that this process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Files with the limit of a container.
_CONTAINER_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a process keeps in a cache, and how often it was used.

    Attributes
    ----------
    entries : int
        Files with kept ranges, kept parts of indexes, or ranges on the disk.
    nbytes, max_bytes : int
        Bytes that are kept, and their limit.
    hits, misses : int
        How often a reader found what it asked for, and how often it did not.
    """

    entries: int = 0
    nbytes: int = 0
    max_bytes: int = 0
    hits: int = 0
    misses: int = 0

    def __add__(self, other: CacheStats) -> CacheStats:
        return CacheStats(
            self.entries + other.entries,
            self.nbytes + other.nbytes,
            self.max_bytes + other.max_bytes,
            self.hits + other.hits,
            self.misses + other.misses,
        )


def process_memory() -> int:
    """Return the bytes of memory that this process may use; 0 if unknown.

    That is the least of the memory of the machine, the limit of its container, and the limit that
    Spark sets for Python workers (`spark.executor.pyspark.memory`).
    """
    limits = []
    with suppress(ValueError, OSError, AttributeError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in _CONTAINER_LIMITS:
        # Without a limit, the file has the text "max".
        with suppress(ValueError, OSError):
            limits.append(int(Path(file).read_text()))
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits, default=0)


def memory_share(share: int, least: int, most: int) -> int:
    """Return one part of `share` equal parts of `process_memory`, from `least` to `most` bytes."""
    return min(max(process_memory() // share, least), most)


def cache_limit(variable: str, share: int, least: int, most: int) -> int:
    """Return the most bytes of a cache: those of an environment variable, or a part of the memory.

    - `variable`: Name of the variable, which has MiB.
    - `share`, `least`, `most`: See `memory_share`.
    """
    text = os.environ.get(variable, "").strip()
    return int(text) << 20 if text.isdecimal() else memory_share(share, least, most)

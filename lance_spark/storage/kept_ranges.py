"""Short ranges of files that a process keeps: footers, page lists, tables of chunks, dictionaries.

Data files, deletion files and files of indexes never change, and their names are never used again.
So what one read has fetched serves all later reads of the process, by any dataset or task. Files of
local disks are not kept: the operating system does that.

Files are known by file system, path and size. The files that were used longest ago are dropped when
all ranges have more than `default_bytes`: a 64th of the memory of the process, from 16 MiB to 64
MiB. The environment variable `LANCE_SPARK_KEPT_MIB` sets another limit; 0 keeps nothing.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from lance_spark._forks import after_fork
from lance_spark.storage.memory import process_memory
from lance_spark.storage.source import ByteRange, Bytes

#: Longer ranges hold values, which are not read again as often. As long as the end of a file that
#: is read when it is opened.
MAX_LENGTH = 64 * 1024
#: The limit in MiB.
LIMIT_VARIABLE = "LANCE_SPARK_KEPT_MIB"
_SHARE = 64
_LEAST_BYTES, _MOST_BYTES = 16 << 20, 64 << 20
#: Bytes that a range takes besides its own.
_OVERHEAD = 256


def default_bytes() -> int:
    """Return the limit in bytes."""
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if text.isdecimal():
        return int(text) << 20
    return min(max(process_memory() // _SHARE, _LEAST_BYTES), _MOST_BYTES)


@dataclass(frozen=True, slots=True)
class KeptStats:
    """What is kept, and how often it was used.

    Attributes
    ----------
    files, nbytes : int
        Files, and the bytes of their ranges.
    hits, misses : int
        Ranges that were there when a reader asked for them, and ranges that were not.
    """

    files: int = 0
    nbytes: int = 0
    hits: int = 0
    misses: int = 0


class KeptRanges:
    """Ranges by file. Threads share it.

    Parameters
    ----------
    max_bytes : int, optional
        By default `default_bytes`.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        """Drop all ranges, and replace the lock, which another thread may hold."""
        self._lock = threading.Lock()
        self._files: OrderedDict[Hashable, dict[ByteRange, Bytes]] = OrderedDict()
        self._bytes = self._hits = self._misses = 0

    def stats(self) -> KeptStats:
        """Return the counts."""
        with self._lock:
            return KeptStats(len(self._files), self._bytes, self._hits, self._misses)

    def get(self, file: Hashable, byte_range: ByteRange) -> Bytes | None:
        """Return the bytes of a range of a file; None if they are not kept."""
        with self._lock:
            ranges = self._files.get(file)
            data = None if ranges is None else ranges.get(byte_range)
            if data is None:
                self._misses += 1
            else:
                self._hits += 1
                self._files.move_to_end(file)
            return data

    def has(self, file: Hashable, byte_range: ByteRange) -> bool:
        """Return whether the bytes of a range are kept; it is not counted."""
        with self._lock:
            return byte_range in self._files.get(file, ())

    def put(self, file: Hashable, byte_range: ByteRange, data: Bytes) -> None:
        """Keep the bytes of a range, unless they are too many."""
        if len(data) > MAX_LENGTH:
            return
        if self._max_bytes is None:
            self._max_bytes = default_bytes()
        if self._max_bytes <= 0:
            return
        if data.base is not None and not isinstance(data.base, bytes):
            # A view would keep the whole answer of a store in memory.
            data = np.frombuffer(data.tobytes(), np.uint8)
        elif isinstance(data.base, bytes) and len(data.base) != len(data):
            data = np.frombuffer(data.tobytes(), np.uint8)
        with self._lock:
            ranges = self._files.setdefault(file, {})
            if byte_range in ranges:
                return
            ranges[byte_range] = data
            self._files.move_to_end(file)
            self._bytes += len(data) + _OVERHEAD
            while self._bytes > self._max_bytes:
                _, dropped = self._files.popitem(last=False)
                self._bytes -= sum(len(part) + _OVERHEAD for part in dropped.values())


KEPT = KeptRanges()
after_fork(KEPT.clear)

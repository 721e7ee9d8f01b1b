"""Counts of the reads and writes of files below a root, by all stores of this process.

| counted | as |
| --- | --- |
| a read of merged ranges of a file | `read_iops`, `read_bytes` |
| a read of a whole small file | `read_iops`, `read_bytes` |
| a file that is written, whole or in parts | `write_iops`, `written_bytes` |

Listings, deletions and requests that are repeated after an error are not counted.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from lance_spark._forks import after_fork


@dataclass(frozen=True, slots=True)
class IOStats:
    """Numbers of reads and writes, and their bytes.

    Attributes
    ----------
    read_iops, read_bytes, write_iops, written_bytes : int
    """

    read_iops: int = 0
    read_bytes: int = 0
    write_iops: int = 0
    written_bytes: int = 0

    def __sub__(self, earlier: IOStats) -> IOStats:
        return IOStats(
            self.read_iops - earlier.read_iops,
            self.read_bytes - earlier.read_bytes,
            self.write_iops - earlier.write_iops,
            self.written_bytes - earlier.written_bytes,
        )


class IoCounts:
    """Counts of one root; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads = self._read_bytes = self._writes = self._written_bytes = 0

    def add_reads(self, number: int, size: int) -> None:
        """Count reads, of `size` bytes together."""
        with self._lock:
            self._reads += number
            self._read_bytes += size

    def add_write(self, size: int) -> None:
        """Count a file that was written."""
        with self._lock:
            self._writes += 1
            self._written_bytes += size

    def stats(self) -> IOStats:
        """Return the counts."""
        with self._lock:
            return IOStats(self._reads, self._read_bytes, self._writes, self._written_bytes)


class _CountsByUri:
    """The counts of a process by the URI of the root, as long as a store of this root exists."""

    lock = threading.Lock()
    by_uri: ClassVar[WeakValueDictionary[str, IoCounts]] = WeakValueDictionary()


def counts_of(uri: str) -> IoCounts:
    """Return the counts of a root."""
    with _CountsByUri.lock:
        counts = _CountsByUri.by_uri.get(uri)
        if counts is None:
            counts = _CountsByUri.by_uri[uri] = IoCounts()
        return counts


@after_fork
def _renew_locks() -> None:
    # Another thread of the parent may have held a lock.
    _CountsByUri.lock = threading.Lock()
    for counts in list(_CountsByUri.by_uri.values()):
        counts._lock = threading.Lock()


class CountedOutput:
    """A file that is being written, and counted when it is closed; see `OutputFile`."""

    def __init__(self, output: Any, counts: IoCounts) -> None:
        self._output = output
        self._counts = counts
        self._is_open = True
        self.name: str = output.name

    def write(self, buffer: Any) -> None:
        """Append bytes."""
        self._output.write(buffer)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return int(self._output.tell())

    def close(self) -> None:
        """Make the file durable, and count it."""
        size = self.tell() if self._is_open else 0
        self._output.close()
        if self._is_open:
            self._is_open = False
            self._counts.add_write(size)

    def abort(self) -> None:
        """Delete the file, unless it is closed."""
        self._is_open = False
        self._output.abort()

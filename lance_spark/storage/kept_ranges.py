"""Short ranges of files that a process keeps: footers, page lists, tables of chunks, dictionaries.

Data files, deletion files and files of indexes never change, and their names are never used again.
So what one read has fetched serves all later reads of the process, by any dataset or task. Files of
local disks are not kept: the operating system does that. The name of a manifest is used again if
its table is created again: a kept manifest is used only if a listing shows its tag
(`storage.entity_tags`).

A range can also be under way: `expect` has requested it, and readers that need it wait for this one
request.

Processes of a machine can share ranges on its disk, too (`disk_ranges`). A `KeptFile` looks for a
range in both places.

Files are known by file system, path, and size or tag. The files that were used longest ago are
dropped when all ranges have more than `default_bytes`: a 64th of the memory of the process, from 16
MiB to 64 MiB. The environment variable `LANCE_SPARK_KEPT_MIB` sets another limit; 0 keeps nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from lance_spark._forks import after_fork
from lance_spark.storage.disk_ranges import DiskFile
from lance_spark.storage.memory import CacheStats, cache_limit
from lance_spark.storage.scheduler import ReadRequest
from lance_spark.storage.source import ByteRange, Bytes

# --------------------------------------------------------------------------------------------------
# Tags of files: texts by which a listing shows that a file is still the one that was read.
#
# A store gives each object that is written an entity tag, and Google Cloud Storage a generation.
# The tag of this package has the size and the time of the write, too: an object whose bytes were
# restored from a copy has another tag. Without an entity tag a file has no tag, because another
# file of the same size can be written within the second that times are rounded to.

#: Names of entity tags in listings of s3fs, adlfs and obstore, and of gcsfs.
_ENTITY = ("ETag", "etag", "e_tag", "generation")
_OTHERS = ("size", "Size", "LastModified", "last_modified", "updated")
_LENGTH = 12


class Tagged(NamedTuple):
    """A file of a listing.

    - `tag`: None if the listing has no entity tags.
    """

    name: str
    tag: str | None


def tag_of(entry: Mapping[str, Any]) -> str | None:
    """Return the tag of a file, from its entry in a listing; None without an entity tag."""
    entity = [str(entry[name]) for name in _ENTITY if entry.get(name)]
    if not entity:
        return None
    parts = (*entity, *(str(entry.get(name)) for name in _OTHERS))
    return blake2b("\n".join(parts).encode(), digest_size=_LENGTH).hexdigest()


# --------------------------------------------------------------------------------------------------
# Short ranges of files that a process keeps: footers, page lists, tables of chunks, dictionaries.

#: Longer ranges hold values, which are not read again as often. As long as the end of a file that
#: is read when it is opened.
MAX_LENGTH = 64 * 1024
#: Most bytes of a small file that is read whole, as deletion files are, and its range.
MAX_FILE = 1024 * 1024
WHOLE = ByteRange(0, -1)
#: The limit in MiB.
LIMIT_VARIABLE = "LANCE_SPARK_KEPT_MIB"
_SHARE = 64
_LEAST_BYTES, _MOST_BYTES = 16 << 20, 64 << 20
#: Bytes that a range takes besides its own.
_OVERHEAD = 256
#: Most expected ranges that wait for their first use.
_MOST_UNUSED = 1 << 16


def default_bytes() -> int:
    """Return the limit in bytes."""
    return cache_limit(LIMIT_VARIABLE, _SHARE, _LEAST_BYTES, _MOST_BYTES)


class KeptRanges:
    """Ranges by file. Threads share it.

    - `max_bytes`: By default `default_bytes`.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        """Drop all ranges, and replace the lock, which another thread may hold."""
        self._lock = threading.Lock()
        self._files: OrderedDict[Hashable, dict[ByteRange, Bytes]] = OrderedDict()
        self._under_way: dict[tuple[Hashable, ByteRange], ReadRequest] = {}
        self._unused: set[tuple[Hashable, ByteRange]] = set()
        self._bytes = self._hits = self._misses = 0

    def stats(self) -> CacheStats:
        """Return the counts; an entry is a file."""
        limit = self._limit()
        with self._lock:
            return CacheStats(len(self._files), self._bytes, limit, self._hits, self._misses)

    def _limit(self) -> int:
        if self._max_bytes is None:
            self._max_bytes = default_bytes()
        return self._max_bytes

    def knows(self, file: Hashable, byte_range: ByteRange) -> bool:
        """Return whether a range is kept or under way. This is not counted."""
        with self._lock:
            return (file, byte_range) in self._under_way or byte_range in self._files.get(file, ())

    def expect(self, file: Hashable, byte_range: ByteRange, request: ReadRequest) -> bool:
        """Return whether a range is neither kept nor under way, so that the request is sent."""
        key = file, byte_range
        with self._lock:
            if key in self._under_way or byte_range in self._files.get(file, ()):
                return False
            self._under_way[key] = request
            self._unused.add(key)
        request.add_done_callback(lambda _: self._arrived(key, request))
        return True

    def forget(self, file: Hashable) -> None:
        """Drop the ranges of a file, which may have arrived damaged."""
        with self._lock:
            # What is under way may have arrived, and not be kept yet.
            for key in [key for key in self._under_way if key[0] == file]:
                del self._under_way[key]
            dropped = self._files.pop(file, {})
            self._bytes -= sum(len(part) + _OVERHEAD for part in dropped.values())

    def is_first_use(self, file: Hashable, byte_range: ByteRange) -> bool:
        """Return whether an expected range is used for the first time: this reader counts it."""
        key = file, byte_range
        with self._lock:
            is_first = key in self._unused
            self._unused.discard(key)
            return is_first

    def _arrived(self, key: tuple[Hashable, ByteRange], request: ReadRequest) -> None:
        file, (offset, length) = key
        is_complete = not request.cancelled() and request.exception() is None
        if is_complete and (length < 0 or len(request.result()) == length):
            data = np.frombuffer(request.result(), np.uint8)
            self.put(file, ByteRange(offset, length), data, request)
        with self._lock:
            # After `clear`, another request can have the place.
            if self._under_way.get(key) is request:
                del self._under_way[key]

    def get(self, file: Hashable, byte_range: ByteRange) -> Bytes | ReadRequest | None:
        """Return the bytes of a range of a file, or the request for them; None if neither."""
        with self._lock:
            request = self._under_way.get((file, byte_range))
            if request is not None:
                self._hits += 1
                return request
            ranges = self._files.get(file)
            data = None if ranges is None else ranges.get(byte_range)
            if data is None:
                self._misses += 1
            else:
                self._hits += 1
                self._files.move_to_end(file)
            return data

    def has(self, file: Hashable, byte_range: ByteRange) -> bool:
        """Return whether a range of a file is kept. This is not counted."""
        with self._lock:
            return byte_range in self._files.get(file, ())

    def put(
        self, file: Hashable, byte_range: ByteRange, data: Bytes, request: ReadRequest | None = None
    ) -> None:
        """Keep the bytes of a range, unless they are too many.

        - `request`: The request for them, which was expected: they are kept unless the file was
          forgotten.
        """
        if len(data) > (MAX_FILE if byte_range == WHOLE else MAX_LENGTH):
            return
        limit = self._limit()
        if limit <= 0:
            return
        is_whole = isinstance(data.base, bytes) and len(data.base) == len(data)
        if data.base is not None and not is_whole:
            # A view would keep the whole answer of a store in memory.
            data = np.frombuffer(data.tobytes(), np.uint8)
        with self._lock:
            if request is not None and self._under_way.get((file, byte_range)) is not request:
                return
            ranges = self._files.setdefault(file, {})
            if byte_range in ranges:
                return
            ranges[byte_range] = data
            self._files.move_to_end(file)
            self._bytes += len(data) + _OVERHEAD
            while self._bytes > limit:
                _, dropped = self._files.popitem(last=False)
                self._bytes -= sum(len(part) + _OVERHEAD for part in dropped.values())
                if len(self._unused) > _MOST_UNUSED:
                    self._unused.clear()


KEPT = KeptRanges()
after_fork(KEPT.clear)


class Keep(Enum):
    """What is kept of a file that never changes.

    A process keeps all short ranges. On the disk are ranges that describe a data file, and all
    ranges of an index file.
    """

    DATA_FILE = "data file"
    INDEX_FILE = "index file"


class KeptFile:
    """The ranges of a file that this process keeps, and those on the disk.

    - `key`: The file in `KEPT`.
    - `keeps_all`: Whether the disk has all ranges of the file, not only those that describe it.
    """

    def __init__(
        self, key: Hashable, disk: DiskFile | None = None, *, keeps_all: bool = False
    ) -> None:
        self._key = key
        self._disk = disk
        self.keeps_all = disk is not None and keeps_all

    def get(self, byte_range: ByteRange, *, on_disk: bool) -> Bytes | ReadRequest | None:
        """Return the bytes of a range, or the request for them; None if neither.

        - `on_disk`: Whether the range describes the file, so that the disk can have it.
        """
        found = KEPT.get(self._key, byte_range)
        if found is None and (on_disk or self.keeps_all):
            found = self._from_disk(byte_range)
        return found

    def _from_disk(self, byte_range: ByteRange) -> Bytes | None:
        data = None if self._disk is None else self._disk.read(byte_range)
        if data is not None:
            KEPT.put(self._key, byte_range, data)
        return data

    def is_first_use(self, byte_range: ByteRange) -> bool:
        """Return whether an expected range is used for the first time."""
        return KEPT.is_first_use(self._key, byte_range)

    def expect(self, byte_range: ByteRange, request: ReadRequest) -> bool:
        """Return whether a range that describes the file is unknown: the request is sent."""
        if KEPT.knows(self._key, byte_range) or self._from_disk(byte_range) is not None:
            return False
        if not KEPT.expect(self._key, byte_range, request):
            return False
        if self._disk is not None:
            self.put_later(byte_range, request)
        return True

    def put(self, byte_range: ByteRange, data: Bytes, *, on_disk: bool) -> None:
        """Keep the bytes of a range; see `get`."""
        KEPT.put(self._key, byte_range, data)
        if self._disk is not None and (on_disk or self.keeps_all):
            self._disk.write(byte_range, data)

    def get_values(self, byte_range: ByteRange) -> Bytes | None:
        """Return a range of any length that is on the disk only; None if it is not."""
        return None if self._disk is None else self._disk.read(byte_range)

    def put_later(self, byte_range: ByteRange, request: ReadRequest) -> None:
        """Write the bytes of a request to the disk when they are there."""
        disk, length = self._disk, byte_range.length

        def arrived(_: object) -> None:
            if disk is None or request.cancelled() or request.exception() is not None:
                return
            if length in (len(request.result()), -1):
                disk.write(byte_range, np.frombuffer(request.result(), np.uint8))

        request.add_done_callback(arrived)

    def forget(self) -> None:
        """Drop the ranges of the file, which may have arrived damaged."""
        KEPT.forget(self._key)
        if self._disk is not None:
            self._disk.forget()

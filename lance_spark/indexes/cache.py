"""The cache of index files, shared by all plans of a process: parsed parts of them, and open files.

The files never change, and their names are never used again. A forked process starts with an empty
cache: a lock that another thread held would stay locked there. `files.IndexFiles` is the entrance.

The cache takes a sixteenth of the memory, from 64 MiB to 1 GiB. The environment variable
`LANCE_SPARK_INDEX_CACHE_MIB` sets another limit: a machine that searches a large vector index
should have room for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lance_spark._forks import after_fork
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.file.open_files import OpenFiles
from lance_spark.storage.memory import CacheStats, cache_limit

#: Limit of the cache. It drops the entry that was used longest ago.
MAX_ENTRIES = 1 << 16
#: The part of the memory that the cache takes, and its limits.
_SHARE = 16
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 1 << 30
#: The limit in MiB.
LIMIT_VARIABLE = "LANCE_SPARK_INDEX_CACHE_MIB"

#: Most rows of an index file: some for each byte, and some that a file of any size may have.
_ROWS_PER_BYTE = 64
_MIN_ROWS = 1 << 16

#: Root, path, and part of the file: None for its only parsed content.
_Key = tuple[str, str, int | None]
_T = TypeVar("_T")


def default_bytes() -> int:
    """Return the limit of the cache in bytes."""
    return cache_limit(LIMIT_VARIABLE, _SHARE, _LEAST_BYTES, _MOST_BYTES)


class IndexCache:
    """Parsed contents of files, and open files, by root and path. Threads can share it.

    - `max_entries`, `max_bytes`: Past these limits the content that was used longest ago is
      dropped. A content larger than `max_bytes` is not kept. By default `default_bytes`.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int | None = None) -> None:
        self._max_entries = max_entries
        self._max_bytes = default_bytes() if max_bytes is None else max_bytes
        self.open_files = OpenFiles()
        self.clear()

    def clear(self) -> None:
        """Drop all entries, and replace the lock, which another thread may hold."""
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, tuple[Any, int]] = OrderedDict()
        self._bytes = self._hits = self._misses = 0
        self.open_files.clear()

    def stats(self) -> CacheStats:
        """Return the counts; an entry is a parsed part of a file."""
        with self._lock:
            entries = len(self._entries)
            return CacheStats(entries, self._bytes, self._max_bytes, self._hits, self._misses)

    @property
    def nbytes(self) -> int:
        """Bytes of all contents."""
        with self._lock:
            return self._bytes

    def get(self, key: _Key, read: Callable[[], _T], size: Callable[[_T], int]) -> _T:
        """Return the content of a file.

        - `key` (tuple of (str, str, int or None)): Root, path and part of the file.
        - `read`: Reads the file if the cache does not have it. Its errors are passed on. Two
          threads may read the same file at once.
        - `size`: Returns the bytes of a content.
        """
        return self.get_all([key], lambda _: [read()], size)[0]

    def get_all(
        self,
        keys: Sequence[_Key],
        read: Callable[[Sequence[_Key]], Sequence[_T]],
        size: Callable[[_T], int],
    ) -> list[_T]:
        """Return several contents; those that the cache does not have are read in one call.

        - `keys` (sequence of (str, str, int or None)): Distinct; see `get`.
        - `read`: Returns the contents of some of the keys.
        """
        contents_by_key: dict[_Key, _T] = {}
        with self._lock:
            for key in keys:
                if key in self._entries:
                    self._entries.move_to_end(key)
                    contents_by_key[key] = self._entries[key][0]
            self._hits += len(contents_by_key)
            self._misses += len(keys) - len(contents_by_key)
        missing = [key for key in keys if key not in contents_by_key]
        if missing:
            contents = read(missing)
            contents_by_key.update(zip(missing, contents, strict=True))
            sizes = [size(content) for content in contents]
            with self._lock:
                for key, content, nbytes in zip(missing, contents, sizes, strict=True):
                    self._add(key, content, nbytes)
        return [contents_by_key[key] for key in keys]

    def has_all(self, keys: Sequence[_Key]) -> bool:
        """Return whether all contents are there."""
        with self._lock:
            return all(key in self._entries for key in keys)

    def _add(self, key: _Key, content: object, nbytes: int) -> None:
        """Add a content, and drop others past the limits. The caller holds the lock."""
        if nbytes > self._max_bytes or key in self._entries:
            return
        self._entries[key] = content, nbytes
        self._bytes += nbytes
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._bytes -= self._entries.popitem(last=False)[1][1]


CACHE = IndexCache()
after_fork(CACHE.clear)


def all_rows(file: DataFileReader) -> range:
    """Return the rows of an index file that is read whole.

    Raises CorruptFileError: the file claims more rows than an index file of its size can hold.
    """
    # Constant pages take the same few bytes for any number of rows.
    if file.num_rows > _MIN_ROWS + _ROWS_PER_BYTE * file.source.size:
        raise CorruptFileError(
            f"{file.source.name}: {file.num_rows} rows in {file.source.size} bytes are too many; "
            "rebuild the index"
        )
    return range(file.num_rows)

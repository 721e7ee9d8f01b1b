"""What small files of indexes hold, kept from one plan to the next: these files never change, and their names are never used again.

One cache serves the process. It is empty in a process that is forked off: a lock that another thread held would stay locked there.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from lance_spark.errors import CorruptFileError, MissingFileError
from lance_spark.file.open import DataFileReader
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import INDICES, TablePaths

_LOG = logging.getLogger(__name__)

#: What is kept at most; those that were asked for last.
MAX_ENTRIES = 32
MAX_BYTES = 16 * 1024 * 1024

#: A file of an index has some bits for each of its rows; so many rows are believed all the same.
_FEW_ROWS = 1 << 16
_ROWS_OF_A_BYTE = 64

_Key = tuple[str, str]
_T = TypeVar("_T")


class IndexCache:
    """Contents of files by their place. Threads can share it.

    Parameters
    ----------
    max_entries, max_bytes : int
        The content used longest ago is forgotten if there is more; what is larger alone is not kept.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        """Forget everything, locks that others hold included."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: _Key, read: Callable[[], _T], size: Callable[[_T], int]) -> _T:
        """Return the content of a file.

        Parameters
        ----------
        key : tuple of str
            Root and path of the file.
        read : callable
            Reads it, if it is not known; what it raises is passed on. Two threads may read the same file at once.
        size : callable
            Tells the bytes of a content.
        """
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                known: _T = found[0]
                return known
        content = read()
        nbytes = size(content)
        if nbytes > self._max_bytes:
            return content
        with self._lock:
            if key not in self._kept:
                self._kept[key] = content, nbytes
                self._bytes += nbytes
            while len(self._kept) > self._max_entries or self._bytes > self._max_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return content


_CACHE = IndexCache()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CACHE.clear)


def cached(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    file: str,
    read: Callable[[TablePaths, int | None, str], _T],
    size: Callable[[_T], int],
) -> _T | None:
    """Return what a file of an index holds, from the cache of the process if it is there; None if a file is missing.

    Parameters
    ----------
    paths : TablePaths
    index : IndexMetadata
        The segment.
    file : str
        The file's name.
    read : callable
        Reads it, given `paths`, the id of the base path that the segment lies below, if not in the table itself, and its folder.
    size : callable
        As for `IndexCache.get`.
    """
    base = index.base_id if index.HasField("base_id") else None
    folder = indexes.uuid_of(index)
    store, path = paths.locate(base, INDICES, f"{folder}/{file}")
    try:
        return _CACHE.get((store.uri, path), partial(read, paths, base, folder), size)
    except MissingFileError as error:
        # Whoever has the values knows without it.
        _LOG.warning("index %r is passed over: %s", index.name, error)
        return None


def all_rows(file: DataFileReader) -> range:
    """Return the rows of a file of an index that is read at once.

    Raises
    ------
    CorruptFileError
        It claims more rows than such a file can hold: constant pages take the same few bytes for any number.
    """
    most = _FEW_ROWS + _ROWS_OF_A_BYTE * file.source.size
    if file.num_rows > most:
        raise CorruptFileError(
            f"{file.source.name}: {file.num_rows} rows in {file.source.size} bytes; rebuild the index"
        )
    return range(file.num_rows)

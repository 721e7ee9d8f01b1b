"""A cache of decoded deletion files, so that repeated reads of a table read each file once.

Deletion files are immutable and their names are never reused, so entries cannot become stale.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from lance_spark.table.fragments.files import DeletionFile

#: Default size of a cache.
MAX_BYTES = 32 * 1024 * 1024

#: Fragment id and deletion file.
_Key = tuple[int, DeletionFile]
_Offsets = npt.NDArray[np.int64]


class DeletionCache:
    """A least-recently-used cache of the offsets of deleted rows.

    Threads can share a cache. A pickled cache is empty when it is unpickled.

    Parameters
    ----------
    max_bytes : int
        Bytes of offsets that are kept.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, _Offsets] = OrderedDict()
        self._bytes = 0

    def get(self, key: _Key) -> _Offsets | None:
        """Return the offsets of a file, or None if they are not cached."""
        with self._lock:
            offsets = self._entries.get(key)
            if offsets is not None:
                self._entries.move_to_end(key)
            return offsets

    def put(self, key: _Key, offsets: _Offsets) -> None:
        """Cache the offsets of a file and make them read-only; ignore very large ones."""
        offsets.flags.writeable = False
        if offsets.nbytes > self._max_bytes:
            return
        with self._lock:
            if key in self._entries:
                return
            self._entries[key] = offsets
            self._bytes += offsets.nbytes
            while self._bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= dropped.nbytes

    def __reduce__(self) -> tuple[type[DeletionCache], tuple[int]]:
        return DeletionCache, (self._max_bytes,)

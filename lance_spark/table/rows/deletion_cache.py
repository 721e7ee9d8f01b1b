"""Deleted rows that were read before: whoever takes rows from a table again and again reads each deletion file once.

Deletion files are never changed, and their names never used again, so that nothing here can be stale.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from lance_spark.table.fragments.files import DeletionFile

#: What is kept at most; those that were asked for last.
MAX_BYTES = 32 * 1024 * 1024

_Key = tuple[int, DeletionFile]
_Offsets = npt.NDArray[np.int64]


class DeletionCache:
    """Offsets of deleted rows by fragment and deletion file. Threads can share it; it is empty where it is sent to.

    Parameters
    ----------
    max_bytes : int
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, _Offsets] = OrderedDict()
        self._bytes = 0

    def get(self, key: _Key) -> _Offsets | None:
        """Return what is known of a file; None if it is not kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: _Key, offsets: _Offsets) -> None:
        """Keep what a file holds, and forget what was not asked for the longest; what is too large is not kept."""
        offsets.flags.writeable = False
        if offsets.nbytes > self._max_bytes:
            return
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = offsets
            self._bytes += offsets.nbytes
            while self._bytes > self._max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.nbytes

    def __reduce__(self) -> tuple[type[DeletionCache], tuple[int]]:
        return DeletionCache, (self._max_bytes,)

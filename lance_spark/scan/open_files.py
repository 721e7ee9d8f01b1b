"""Data files that takes have opened and that the next take finds open.

Opening a file costs up to three reads one after the other; a row of an open file costs two at most. What is kept of a file is its end: the
bytes that were read at once, the footer and the metadata of the columns that were asked for, but nothing of its pages.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from lance_spark.file.open import DataFileReader

#: Files that are kept open for each table: that many file descriptors, and 64 KiB of memory and what was parsed for each.
_LIMIT = 64


class OpenFiles:
    """Open data files of one version of a table, those used last. Can be used by several threads, and pickled without files.

    A file is in the hands of one reader at a time: who takes it out gives it back, or closes it.

    Parameters
    ----------
    limit : int
        Files that are kept at most.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._files: OrderedDict[tuple[int | None, str], DataFileReader] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[int]]:
        return OpenFiles, (self._limit,)

    def take_out(self, base_id: int | None, path: str) -> DataFileReader | None:
        """Return a file, if it is open and nobody uses it."""
        with self._lock:
            return self._files.pop((base_id, path), None)

    def give_back(self, base_id: int | None, path: str, reader: DataFileReader) -> None:
        """Keep a file open; it is closed if another reader has given back the same, and the one used longest ago if there are many."""
        reader.forget_pages()
        surplus = []
        with self._lock:
            known = self._files.setdefault((base_id, path), reader)
            if known is not reader:
                surplus.append(reader)
            self._files.move_to_end((base_id, path))
            while len(self._files) > self._limit:
                surplus.append(self._files.popitem(last=False)[1])
        for file in surplus:
            file.close()

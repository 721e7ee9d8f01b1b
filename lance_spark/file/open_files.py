"""The cache of open files that a read leaves open for the next read.

Opening a file costs up to three reads one after the other; a row of an open file costs at most two.
The cache keeps the end of a file: its last bytes as they were read, the footer, and the metadata of
the columns that were read; of their pages only search structures of a few bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from weakref import WeakValueDictionary

from lance_spark._forks import ForkLock
from lance_spark.file.open import DataFileReader
from lance_spark.file.reader import FileReader

#: Maximum open files of a cache. Each costs a file descriptor, 64 KiB of memory, its parsed parts,
#: and at most 256 KiB of its pages.
_LIMIT = 64


class OpenFiles:
    """The last used open files, by a key of the caller.

    Several threads may use it. It is pickled without files. A thread takes a file out, and gives it
    back or closes it. Meanwhile other threads share a local file, and open another.

    - `limit`: Most files that are kept.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self.clear()

    def clear(self) -> None:
        """Forget all files."""
        self._files: OrderedDict[Hashable, DataFileReader] = OrderedDict()
        # Files that were given back once, and that a thread may have taken out.
        self._known: WeakValueDictionary[Hashable, DataFileReader] = WeakValueDictionary()
        self._lock = ForkLock()

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[int]]:
        return OpenFiles, (self._limit,)

    def take_out(self, key: Hashable) -> DataFileReader | None:
        """Return an open file and remove it from the cache; None if it must be opened.

        If another thread has taken out a local file, a reader that shares it is returned.
        """
        with self._lock:
            reader = self._files.pop(key, None)
            if reader is not None:
                return reader
            known = self._known.get(key)
        return known.shared() if isinstance(known, FileReader) else None

    def give_back(self, key: Hashable, reader: DataFileReader) -> None:
        """Add a file. It is closed if the cache has it already; past the limit, the oldest is."""
        reader.forget_pages()
        surplus = []
        with self._lock:
            cached = self._files.setdefault(key, reader)
            if cached is reader:
                self._known[key] = reader
            else:
                surplus.append(reader)
            self._files.move_to_end(key)
            while len(self._files) > self._limit:
                surplus.append(self._files.popitem(last=False)[1])
        for file in surplus:
            file.close()


class FilesOfTable(OpenFiles):
    """The open files of one table, in a cache that several tables share.

    - `table`: Key of the table.
    """

    def __init__(self, shared: OpenFiles, table: Hashable) -> None:
        self._shared, self._table = shared, table

    def take_out(self, key: Hashable) -> DataFileReader | None:
        """Return an open file and remove it from the cache; None if the cache does not have it."""
        return self._shared.take_out((self._table, key))

    def give_back(self, key: Hashable, reader: DataFileReader) -> None:
        """Add a file, as `OpenFiles.give_back` does."""
        self._shared.give_back((self._table, key), reader)

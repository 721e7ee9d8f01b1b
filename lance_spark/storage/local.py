"""Files on local disks: read through memory maps, written with fsync.

Crash safety rests on two calls: fsync of a file makes its bytes durable, fsync of its folder makes
its name durable.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import uuid
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from typing import BinaryIO

import numpy as np

from lance_spark.errors import CorruptFileError
from lance_spark.storage.errors import translated
from lance_spark.storage.source import ByteRange, Bytes, ReadCounts, outside

#: Bytes read of a map before the process releases their pages. Where memory is limited, the pages
#: count as memory of the process.
_RESIDENT_BYTES = 128 * 1024 * 1024
#: Files of at most this size are read into memory: a memory map takes longer to create and release.
_SMALL_BYTES = 64 * 1024
#: Without this flag, Windows translates line ends.
_BINARY = getattr(os, "O_BINARY", 0)


class LocalSource:
    """A local file as a memory map, or in memory if it is small.

    `read` returns read-only views, which stay valid after `close`.

    Parameters
    ----------
    path : str
        Absolute path.
    size : int, optional
        Length that the file must have, in bytes.

    Attributes
    ----------
    resident_bytes, most_resident_bytes : int
        Bytes of the map that were read since their pages were released, and after how many that
        happens.

    Raises
    ------
    CorruptFileError
        The file has another length.
    MissingFileError, StorageError
    """

    def __init__(self, path: str, size: int | None = None) -> None:
        self.name = path
        self.counts = ReadCounts()
        self._map: mmap.mmap | None = None
        with translated(path):
            # A descriptor, as a file object costs more: small fragments are opened by the thousand.
            descriptor = _open_at_once(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | _BINARY)
            try:
                self.size = _file_size(descriptor)
                check_size(path, self.size, size)
                content: mmap.mmap | bytes
                if self.size > _SMALL_BYTES:
                    content = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_READ)
                    self._map = content
                else:
                    content = _read_all(descriptor, self.size)
            finally:
                os.close(descriptor)
        # The file can have lost bytes after its size was read.
        check_size(path, len(content), self.size)
        self._data: Bytes = np.frombuffer(content, dtype=np.uint8)
        self.resident_bytes, self.most_resident_bytes = 0, _RESIDENT_BYTES

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return views of the ranges."""
        data, size = self._data, self.size
        views = []
        total = 0
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > size:
                raise outside(self.name, size, offset, length)
            views.append(data[offset : offset + length])
            total += length
        self.counts.add(len(views), total)
        # A page that is read again is mapped once.
        self.resident_bytes = min(self.resident_bytes + total, size)
        if self.resident_bytes > self.most_resident_bytes:
            self.release_pages()
            self.resident_bytes = total
        return views

    def release_pages(self) -> None:
        """Release the pages that were read. Views stay valid: the system reads them again."""
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if self._map is not None and advice is not None:
            self._map.madvise(advice)
            self.resident_bytes = 0

    def shared(self) -> LocalSource | None:
        """Return another source of the same map, with its own counts; None if it is closed.

        Another thread may close this source meanwhile.
        """
        data, size = self._data, self.size
        if len(data) != size or not size:
            return None
        source = copy(self)
        source.counts = ReadCounts(total=self.counts.total)
        source._data, source.size = data, size
        return source

    def close(self) -> None:
        """Release the map; the system removes it with the last view."""
        self._data = np.empty(0, dtype=np.uint8)
        self._map = None
        self.size = 0


def open_file(path: str) -> BinaryIO:
    """Open a file for reading. A pipe would block and a device has no end, so both are refused.

    Raises OSError.
    """
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115
    try:
        _file_size(file.fileno())
    except OSError:
        file.close()
        raise
    return file


def _file_size(descriptor: int) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe or device, not a file")
    return status.st_size


def _read_all(descriptor: int, size: int) -> bytes:
    content = os.read(descriptor, size)
    while len(content) < size and (chunk := os.read(descriptor, size - len(content))):
        content += chunk
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def check_size(name: str, actual: int, expected: int | None) -> None:
    """Raise CorruptFileError if the length of a file is not the expected one."""
    if expected is not None and actual != expected:
        damage = "truncated" if actual < expected else "too long"
        raise CorruptFileError(
            f"{name}: the file is {damage}: {actual} bytes instead of {expected}; restore it"
        )


def write_whole(path: str, data: bytes, *, durable: bool) -> None:
    """Create or replace a file atomically: readers see the old bytes or the new bytes."""
    with translated(path):
        make_folder(os.path.dirname(path))
        temporary = write_temporary(path, data, durable=durable)
        try:
            os.replace(temporary, path)
        except BaseException:
            remove(temporary)
            raise
        if durable:
            sync_folder(os.path.dirname(path))


def temporary_path(path: str) -> str:
    """Return the path of a hidden file beside `path` that does not exist yet."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")


def write_temporary(path: str, data: bytes, *, durable: bool) -> str:
    """Write `data` to a new hidden file beside `path` and return its path."""
    temporary = temporary_path(path)
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        remove(temporary)
        raise
    return temporary


def make_folder(folder: str) -> None:
    """Make a folder and its missing parents, with durable names."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    for new in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(new)
        sync_folder(os.path.dirname(new))


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable, where the file system supports it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not have this call. Their names are durable at once.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Delete a file if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def list_names(folder: str, *, folders: bool = False) -> list[str]:
    """Return the names of the files, or of the folders, in a folder; empty if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir() is folders]
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_files(folder: str) -> list[tuple[str, int]]:
    """Return name and size of the files in a folder; empty if it does not exist."""
    files = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                # Another process may delete a file meanwhile.
                with suppress(FileNotFoundError):
                    if not entry.is_dir():
                        files.append((entry.name, entry.stat().st_size))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return files

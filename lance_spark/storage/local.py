"""Files on local disks: maps of memory for reading, fsync before a file counts for writing.

Crash safety rests on two calls: fsync of a file makes its bytes durable, fsync of its folder makes its name durable.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np

from lance_spark.errors import CorruptFileError
from lance_spark.storage.errors import translated
from lance_spark.storage.source import ByteRange, Bytes, ReadCounts

_WRITE_BUFFER = 1024 * 1024
#: Bytes of a map that are read before the process gives their pages back. They count as its own where memory is limited.
_RESIDENT_BYTES = 128 * 1024 * 1024
#: Files of at most so many bytes are read at once: a map of memory takes longer to make and to give back.
_SMALL_BYTES = 64 * 1024
#: Without it, one system changes the bytes it reads.
_BINARY = getattr(os, "O_BINARY", 0)


class LocalSource:
    """A local file as a map of memory, or, if it is small, in memory; `read` returns read-only views of it, valid after `close` too.

    Parameters
    ----------
    path : str
        Absolute path.
    size : int, optional
        Length that the file must have.

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
            # No file object: small fragments are opened by the ten thousand.
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
        # A file that lost bytes since its size was seen.
        check_size(path, len(content), self.size)
        self._data: Bytes = np.frombuffer(content, dtype=np.uint8)
        self._resident = 0

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
        self._resident += total
        if self._resident > _RESIDENT_BYTES:
            self._let_go()
            self._resident = total
        return views

    def _let_go(self) -> None:
        """Give back the memory of what was read: views stay valid, their pages come from the system's cache again."""
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if self._map is not None and advice is not None:
            self._map.madvise(advice)

    def close(self) -> None:
        """Let go of the map; it goes away with the last view."""
        self._data = np.empty(0, dtype=np.uint8)
        self._map = None
        self.size = 0


def open_file(path: str) -> BinaryIO:
    """Open a file for reading; refuse a pipe, which would be waited for, and a device, which has no end.

    Raises
    ------
    OSError
    """
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115
    try:
        _file_size(file.fileno())
    except OSError:
        file.close()
        raise
    return file


def _file_size(descriptor: int) -> int:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no file but a pipe or device")
    return found.st_size


def _read_all(descriptor: int, size: int) -> bytes:
    content = os.read(descriptor, size)
    while len(content) < size and (more := os.read(descriptor, size - len(content))):
        content += more
    return content


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def check_size(name: str, actual: int, expected: int | None) -> None:
    """Raise CorruptFileError if a file has not the length it should have."""
    if expected is not None and actual != expected:
        kind = "truncated" if actual < expected else "too long"
        raise CorruptFileError(
            f"{name}: the file is {kind}: {actual} bytes instead of {expected}; restore it"
        )


def outside(name: str, size: int, offset: int, length: int) -> CorruptFileError:
    """Return the error for a range that a file does not have."""
    return CorruptFileError(
        f"{name}: bytes {offset} to {offset + length} lie outside the file of {size} bytes; "
        "it is truncated or corrupt"
    )


class LocalOutput:
    """A new local file; see `OutputFile`.

    Parameters
    ----------
    path : str
        Absolute path.
    replace : bool
        Whether the file takes the place of another when it is closed, instead of refusing to begin if there is one.
    """

    def __init__(self, path: str, *, replace: bool = False) -> None:
        self.name = path
        self._written = 0
        self._place = temporary_path(path) if replace else path
        with translated(path):
            make_folder(os.path.dirname(path))
            # "x": data files have names of their own, one that exists must not be lost.
            self._file: BinaryIO | None = open(  # noqa: SIM115
                self._place, "xb", buffering=_WRITE_BUFFER
            )

    def write(self, buffer: Any) -> None:
        """Append the bytes of a buffer."""
        assert self._file is not None, f"{self.name} is closed"
        view = memoryview(buffer).cast("B")
        with translated(self.name):
            self._file.write(view)
        self._written += len(view)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._written

    def close(self) -> None:
        """Make the file and its name durable."""
        if self._file is None:
            return
        try:
            with translated(self.name):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                if self._place != self.name:
                    os.replace(self._place, self.name)
                sync_folder(os.path.dirname(self.name))
        except BaseException:
            self.abort()
            raise
        self._file = None

    def abort(self) -> None:
        """Delete the file unless it is closed."""
        if self._file is None:
            return
        file, self._file = self._file, None
        # Closing flushes, which fails again on a full disk.
        with suppress(OSError):
            file.close()
        with suppress(OSError):
            os.unlink(self._place)


def write_whole(path: str, data: bytes, *, durable: bool) -> None:
    """Create or replace a file; readers see the old bytes or the new ones, never a part."""
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
    """Return the path of a hidden file beside `path` that there is not yet."""
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
    """Make a folder and those above it, with durable names."""
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
    """Make the names in a folder durable, where the file system can."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call; their names are durable at once.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Delete a file if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def list_names(folder: str) -> list[str]:
    """Return the names of the files in a folder; none if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_folders(folder: str) -> list[str]:
    """Return the names of the folders in a folder; none if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_files(folder: str) -> list[tuple[str, int]]:
    """Return name and size of the files in a folder; none if there is no such folder."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                # Another process may delete a file while we look.
                with suppress(FileNotFoundError):
                    if not entry.is_dir():
                        found.append((entry.name, entry.stat().st_size))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return found

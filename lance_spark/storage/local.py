"""Files on local disks: read by their descriptors, written with fsync.

Files are not mapped into memory, unless the variable `LANCE_SPARK_MAP_LOCAL_FILES` of the process
is `1`. A mapped file that loses bytes, or a disk that fails, ends the process by a signal, and a
change of the file changes arrays that the reader has returned. Searches of vectors that the system
has in memory take a third less processor time with mapped files.

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
import pyarrow as pa

from lance_spark._forks import ForkLock
from lance_spark.errors import CorruptFileError
from lance_spark.storage.errors import translated
from lance_spark.storage.source import ByteRange, Bytes, ReadCounts, outside

#: Reading this many unneeded bytes costs less than another call.
_MAX_GAP = 8 * 1024
#: Ranges that are merged by a loop over them.
_FEW_RANGES = 64
#: Most bytes of a part of a file that shares its memory with others.
_SHARED_BYTES = 64 * 1024
#: The variable of the environment by which files are mapped.
MAP_VARIABLE = "LANCE_SPARK_MAP_LOCAL_FILES"
_EMPTY: Bytes = np.frombuffer(b"", np.uint8)
#: Files of at most this size are read into memory when they are opened.
_SMALL_BYTES = 64 * 1024
#: Without this flag, Windows translates line ends.
_BINARY = getattr(os, "O_BINARY", 0)


class LocalSource:
    """A local file that is read by its descriptor, or in memory if it is small.

    `read` returns read-only arrays of their own, which no later change of the file changes, unless
    files are mapped.

    - `path`: Absolute path.
    - `size`: Length that the file must have, in bytes.

    Raises MissingFileError, StorageError. Raises CorruptFileError: the file has another length.
    """

    def __init__(self, path: str, size: int | None = None) -> None:
        self.name = path
        self.counts = ReadCounts()
        self._file: _Descriptor | _Mapped | None = None
        self._data: Bytes | None = None
        with translated(path):
            file = _Descriptor(path)
            self.size = _file_size(file.number)
            check_size(path, self.size, size)
            if self.size > _SMALL_BYTES:
                self._file = _Mapped(file, self.size) if _maps_files() else file
            else:
                content = _read_all(file.number, self.size)
                # The file can have lost bytes after its size was read.
                check_size(path, len(content), self.size)
                self._data = np.frombuffer(content, dtype=np.uint8)

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the ranges."""
        size, file, data = self.size, self._file, self._data
        total = 0
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > size:
                raise outside(self.name, size, offset, length)
            total += length
        if data is not None:
            arrays = [data[offset : offset + length] for offset, length in ranges]
        elif file is None or not total:
            arrays = [_EMPTY] * len(ranges)
        else:
            with translated(self.name):
                parts = file.read(ranges)
            if parts is None:
                raise CorruptFileError(
                    f"{self.name}: the file lost bytes while it was read: it had {size} bytes; "
                    "restore it"
                )
            arrays = parts
        self.counts.add(len(ranges), total)
        return arrays

    def shared(self) -> LocalSource | None:
        """Return another source of the same open file, with its own counts; None if it is closed.

        Another thread may close this source meanwhile.
        """
        file, data, size = self._file, self._data, self.size
        if not size or (file is None and data is None):
            return None
        source = copy(self)
        source.counts = ReadCounts(total=self.counts.total)
        source._file, source._data, source.size = file, data, size
        return source

    def close(self) -> None:
        """Release the file; the last source that shares it closes it."""
        self._data, self._file, self.size = None, None, 0


class _Descriptor:
    """An open file, which is closed with the last reference to it."""

    def __init__(self, path: str) -> None:
        # A descriptor, as a file object costs more: small fragments are opened by the thousand.
        self.number = _open_at_once(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | _BINARY)

    def __del__(self) -> None:
        with suppress(AttributeError):
            os.close(self.number)

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """Return the bytes of ranges; None if the file ends before. Raises OSError."""
        if len(ranges) == 1:
            ((start, length),) = ranges
            return self._parts([start], [length])
        if len(ranges) <= _FEW_RANGES:
            return self._few(ranges)
        bounds = np.array(ranges, np.int64)
        starts, lengths = bounds[:, 0], bounds[:, 1]
        order = np.argsort(starts, kind="stable")
        begins, reached = starts[order], np.maximum.accumulate((starts + lengths)[order])
        is_first = np.append(True, begins[1:] > reached[:-1] + _MAX_GAP)
        part_starts = begins[is_first]
        part_stops = reached[np.append(is_first[1:], True)]
        parts = self._parts(part_starts.tolist(), (part_stops - part_starts).tolist())
        if parts is None:
            return None
        part_of = np.empty(len(ranges), np.int64)
        part_of[order] = np.cumsum(is_first) - 1
        places = (starts - part_starts[part_of]).tolist()
        return [
            parts[part][place : place + length]
            for part, place, length in zip(part_of.tolist(), places, lengths.tolist(), strict=True)
        ]

    def _few(self, ranges: Sequence[ByteRange]) -> list[Bytes] | None:
        """Return what `read` does, for so few ranges that calls of numpy cost more than a loop."""
        starts: list[int] = []
        stops: list[int] = []
        part_of = [0] * len(ranges)
        for index in sorted(range(len(ranges)), key=ranges.__getitem__):
            start, length = ranges[index]
            if not starts or start > stops[-1] + _MAX_GAP:
                starts.append(start)
                stops.append(start + length)
            elif start + length > stops[-1]:
                stops[-1] = start + length
            part_of[index] = len(starts) - 1
        lengths = [stop - start for start, stop in zip(starts, stops, strict=True)]
        parts = self._parts(starts, lengths)
        if parts is None:
            return None
        return [
            parts[part][start - starts[part] : start - starts[part] + length]
            for (start, length), part in zip(ranges, part_of, strict=True)
        ]

    def _parts(self, starts: Sequence[int], lengths: Sequence[int]) -> list[Bytes] | None:
        """Return the bytes of parts of the file. Short parts share their memory.

        The memory of short parts is numpy's: caches keep some, for longer than a memory pool that
        the caller has set for Arrow may live.
        """
        number = self.number
        short = np.empty(sum(length for length in lengths if length <= _SHARED_BYTES), np.uint8)
        target = short.data
        short.flags.writeable = False
        position = 0
        parts = []
        for start, length in zip(starts, lengths, strict=True):
            if length <= _SHARED_BYTES:
                stop = position + length
                view, part = target[position:stop], short[position:stop]
                position = stop
            else:
                buffer = pa.allocate_buffer(length)
                view, part = memoryview(buffer), np.frombuffer(buffer, np.uint8)
                part.flags.writeable = False
            done = _read_into(number, view, start)
            while done < length:
                count = _read_into(number, view[done:], start + done)
                if not count:
                    return None
                done += count
            parts.append(part)
        return parts


class _Mapped:
    """A file that is mapped into memory."""

    def __init__(self, file: _Descriptor, size: int) -> None:
        # The system removes the map with the last array of its bytes.
        content = mmap.mmap(file.number, size, access=mmap.ACCESS_READ)
        self._data: Bytes = np.frombuffer(content, np.uint8)

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the bytes of ranges."""
        return [self._data[start : start + length] for start, length in ranges]


def _maps_files() -> bool:
    return os.environ.get(MAP_VARIABLE) == "1"


if hasattr(os, "preadv"):

    def _read_into(descriptor: int, target: memoryview, offset: int) -> int:
        return os.preadv(descriptor, (target,), offset)

else:
    # Windows reads at the position of the descriptor, which threads share.
    _POSITION = ForkLock()

    def _read_into(descriptor: int, target: memoryview, offset: int) -> int:
        with _POSITION:
            os.lseek(descriptor, offset, os.SEEK_SET)
            data = os.read(descriptor, len(target))
        target[: len(data)] = data
        return len(data)


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

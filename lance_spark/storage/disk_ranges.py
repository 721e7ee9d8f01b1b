"""Ranges of files that never change, kept on the local disk by all processes of a machine together.

A process looks for a range in its memory first (`kept_ranges`), then here, then in the store. What
it has fetched, a thread writes to the disk; readers do not wait for that.

| in the folder | content |
| --- | --- |
| `usage` | the bytes of all entries, and the start of the machine; locked while it is changed |
| `ab/NAME-OFFSET-LENGTH` | an entry: the bytes of a range, and a digest of its name and the bytes |
| `ab/.NAME` | an entry that is being written |

- An entry is written to a new file, which is renamed when it is complete. A reader believes an
  entry only if its digest is right, so no crash and no fault of the disk can give wrong bytes.
- The bytes of an entry count before it is written, under the lock. So the entries never have more
  than the limit together, whatever number of processes writes, and whenever one is killed. Past the
  limit, those that were used longest ago are deleted until a quarter is free.
- Only this user may write to the folder (`own_files`).
- The name of a file in the cache is a digest of the store with its options, credentials included
  (`identity_of`), the URI and the size. So another server, or another user of a server, has other
  entries.
- Only files whose names are never used again are kept: see `is_never_reused`. Manifests are not.

Any error of the disk counts as a missing entry. After one, nothing is written for a minute.

fsspec's caching file systems cannot do this. `blockcache` keeps the map of the blocks of all files
in one file, which processes overwrite without a lock; it marks blocks as present before they are
there, and does not see the range reads of asynchronous file systems. `filecache` and `simplecache`
copy whole files, to names at which other processes find them before they are complete. None of them
has a limit of bytes, or notices damaged bytes.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lance_spark._forks import after_fork
from lance_spark.errors import InvalidOptionError
from lance_spark.last_used import LastUsed
from lance_spark.storage.memory import CacheStats
from lance_spark.storage.options import DISK_CACHE, DISK_CACHE_BYTES, DISK_CACHE_DATA
from lance_spark.storage.own_files import HAVE_OWNERS, open_file, open_folder
from lance_spark.storage.source import ByteRange, Bytes

_LOG = logging.getLogger(__name__)

OFF = "off"
#: The limit, if none is given.
DEFAULT_BYTES = 256 << 20
#: Longer ranges are not kept: they would push out too many others.
MAX_LENGTH = 16 << 20
_MOST_SHARE = 8
#: What an entry takes on the disk is a multiple of this.
_BLOCK = 4096
#: The least free part of the disk, and the free bytes that always suffice.
_FREE_SHARE, _FREE_BYTES = 20, 1 << 30
#: Bytes that wait to be written. Others are not kept.
_MOST_QUEUED = 32 << 20
#: Seconds without a write after which the thread ends, and for which a process that ends waits.
_IDLE_SECONDS, _END_SECONDS = 2.0, 2.0
#: Seconds without writes after an error.
_PAUSE_SECONDS = 60.0
#: Damaged files of which a process writes no entries.
_MOST_DAMAGED = 1024
#: The time of the last use of an entry is recorded in steps of so many seconds.
_USE_SECONDS = 60
_DIGEST = hashlib.sha256
_DIGEST_BYTES = _DIGEST().digest_size
_USAGE = "usage"
_ENTRY = re.compile(r"\.?[0-9a-f]{30}(-\d+--?\d+)?")
_FOLDER = re.compile(r"[0-9a-f]{2}")
#: Environment variables that decide what a store is if no option does.
_VARIABLES = re.compile(r"(AWS|AZURE|AZURITE|GOOGLE|GCS|GCSFS|STORAGE)_.*|HADOOP_CONF_DIR")
#: A UUID, 128 random bits as all Lance clients write them, or the random number of a deletion file.
_NEVER_REUSED = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}|"
    r"^_deletions/\d+-\d+-\d{12,}\.(arrow|bin)$"
)


class DiskSettings(NamedTuple):
    """What the options say.

    - `folder`: The cache is a folder in it.
    - `keeps_data`: Whether also the values of data files are kept.
    - `is_default`: Whether no option names the folder. It must exist.
    """

    folder: str
    max_bytes: int
    keeps_data: bool
    is_default: bool


class _Process:
    """The caches of this process, by folder and limit."""

    lock = threading.Lock()
    caches: ClassVar[dict[tuple[str, int], DiskRanges]] = {}
    #: The folder if no option names one.
    default: ClassVar[str | None] = None
    #: The number of readers that want to see the files of the store.
    bypassed = 0


def use_by_default(folder: str | None) -> None:
    """Keep ranges in a folder if no option says where; None for nowhere."""
    _Process.default = folder


def parse_settings(options: Mapping[str, Any]) -> DiskSettings | None:
    """Return what the storage options and the environment say; None if nothing is kept.

    Raises InvalidOptionError.
    """
    folder, label = _value(options, DISK_CACHE)
    is_default = folder is None
    if folder is None:
        folder = _Process.default
    if folder is None or folder.strip().lower() == OFF or not HAVE_OWNERS:
        return None
    if not os.path.isabs(folder):
        raise InvalidOptionError(
            f"{label} must be the absolute path of a folder or {OFF!r}, not {folder!r}"
        )
    size, label = _value(options, DISK_CACHE_BYTES)
    if size is not None and not (size.isascii() and size.isdigit() and len(size) < 19):
        raise InvalidOptionError(f"{label} must be a number of bytes of at least 0, not {size!r}")
    max_bytes = DEFAULT_BYTES if size is None else int(size)
    data, label = _value(options, DISK_CACHE_DATA)
    if data is not None and data.lower() not in ("true", "false"):
        raise InvalidOptionError(f"{label} must be one of 'true', 'false', not {data!r}")
    if not max_bytes:
        return None
    return DiskSettings(folder, max_bytes, (data or "").lower() == "true", is_default)


def _value(options: Mapping[str, Any], name: str) -> tuple[str | None, str]:
    """Return the text of an option or its environment variable, and what errors call it."""
    value = options.get(name)
    if value is not None:
        return str(value), f"storage option {name}"
    variable = f"LANCE_SPARK_{name.upper()}"
    return os.environ.get(variable) or None, f"environment variable {variable}"


def is_never_reused(path: str) -> bool:
    """Return whether no other file will have this path below the same root, even if the table is
    created again.

    Data files, and folders of indexes, have 128 random bits in their names. Deletion files have 64.
    Other names may come from a program that numbers its files.
    """
    return _NEVER_REUSED.search(path) is not None


def identity_of(scheme: str, options: Mapping[str, Any], source: str | None) -> bytes | None:
    """Return a digest of all that decides which store a process sees; None if that is unknown.

    - `options`: Arguments of the file system, without those that expire.
    - `source`: Where credentials that expire come from.
    """
    import fsspec.config

    variables = {
        name: value for name, value in os.environ.items() if _VARIABLES.fullmatch(name.upper())
    }
    try:
        text = json.dumps([scheme, options, source, variables, fsspec.config.conf], sort_keys=True)
    except (TypeError, ValueError):
        # An object: another process cannot know whether it has the same.
        return None
    return _DIGEST(text.encode("utf-8", "surrogatepass")).digest()


@contextmanager
def bypassed() -> Iterator[None]:
    """Read all files from the store in a block, in all threads."""
    with _Process.lock:
        _Process.bypassed += 1
    try:
        yield
    finally:
        with _Process.lock:
            _Process.bypassed -= 1


class DiskRanges:
    """The ranges in a folder. Threads and processes share it."""

    def __init__(self, settings: DiskSettings) -> None:
        self._settings = settings
        self._max_bytes = settings.max_bytes
        self._path = os.path.join(settings.folder, f"lance_spark-{os.geteuid()}")
        self._directory: int | None = None
        self._tried_at = self._failed_at = -_PAUSE_SECONDS
        self.forked()

    @classmethod
    def of(cls, settings: DiskSettings) -> DiskRanges:
        """Return the cache of this process in a folder."""
        key = settings.folder, settings.max_bytes
        with _Process.lock:
            ranges = _Process.caches.get(key)
            if ranges is None:
                ranges = _Process.caches[key] = DiskRanges(settings)
            return ranges

    def forked(self) -> None:
        """Begin again in a forked process, where no thread writes."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queue: deque[tuple[str, Bytes | None]] = deque()
        self._queued = 0
        self._has_thread = False
        self._damaged: LastUsed[str, bool] = LastUsed(_MOST_DAMAGED)
        self._hits = self._misses = 0

    # -- what readers call -------------------------------------------------------------------------
    def read(self, name: str, length: int) -> Bytes | None:
        """Return the bytes of an entry; None if it is missing or damaged.

        - `length`: The number of its bytes; -1 if it is unknown.
        """
        if _Process.bypassed:
            return None
        data = None
        directory = self._opened()
        if directory is not None:
            with suppress(OSError):
                data = self._read(directory, name, length)
        with self._lock:
            if data is None:
                self._misses += 1
            else:
                self._hits += 1
        return None if data is None else np.frombuffer(data, np.uint8)

    def write(self, name: str, data: Bytes) -> None:
        """Write an entry soon, unless too much is waiting."""
        size = len(data)
        if not 0 < size <= min(MAX_LENGTH, self._max_bytes // _MOST_SHARE):
            return
        is_whole = isinstance(data.base, bytes) and len(data.base) == size
        if data.base is not None and not is_whole:
            # A view would hold the whole answer of a store.
            data = np.frombuffer(data.tobytes(), np.uint8)
        digest = name.replace("/", "").partition("-")[0]
        with self._changed:
            if self._damaged.get(digest):
                return
            if self._queued + size > _MOST_QUEUED or time.monotonic() < self._failed_at + (
                _PAUSE_SECONDS
            ):
                return
            self._append(name, data)

    def forget(self, digest: str) -> None:
        """Delete the entries of a file, which may be damaged in the store, and keep none of it.

        A request for a part of it may end just now, and then writes an entry.
        """
        with self._changed:
            self._damaged.put(digest, True)
            if self._queue:
                # An entry of the file may wait there, or be written now.
                self._append(digest, None)
        self._delete(digest)

    def _append(self, name: str, data: Bytes | None) -> None:
        """Let the thread write an entry, or delete those of a file. The caller holds the lock."""
        self._queue.append((name, data))
        self._queued += 0 if data is None else len(data)
        if not self._has_thread:
            self._has_thread = True
            threading.Thread(target=self._write_all, name="lance-disk", daemon=True).start()
        self._changed.notify_all()

    def _delete(self, digest: str) -> None:
        directory = self._opened()
        if directory is None:
            return
        with suppress(OSError):
            for _, _, name in self._entries(directory, digest[:2]):
                if name.startswith(digest[:2] + "/" + digest[2:]):
                    os.unlink(name, dir_fd=directory)

    def stats(self) -> CacheStats:
        """Return the counts of this process, and the entries of all processes."""
        entries: list[tuple[float, int, str]] = []
        directory = self._opened()
        if directory is not None:
            with suppress(OSError):
                entries = self._entries(directory)
        nbytes = sum(size for _, size, _ in entries)
        with self._lock:
            return CacheStats(len(entries), nbytes, self._max_bytes, self._hits, self._misses)

    def drain(self, seconds: float) -> bool:
        """Wait until all that waits is written, at most some seconds; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue, seconds)

    # -- the folder --------------------------------------------------------------------------------
    def _opened(self) -> int | None:
        """Return a descriptor of the folder; None if it cannot be used."""
        if self._directory is None and time.monotonic() >= self._tried_at + _PAUSE_SECONDS:
            with self._lock:
                if self._directory is None:
                    self._tried_at = time.monotonic()
                    self._directory = self._open()
        return self._directory

    def _open(self) -> int | None:
        try:
            if not self._settings.is_default:
                Path(self._settings.folder).mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                # Spark removes its folder with the executor: it is not made again.
                os.mkdir(self._path, 0o700)
            return open_folder(self._path)
        except (OSError, ValueError) as error:
            level = logging.DEBUG if self._settings.is_default else logging.WARNING
            _LOG.log(level, "nothing is kept on the disk: %s", error)
            return None

    def _read(self, directory: int, name: str, length: int) -> bytes | None:
        descriptor, status = open_file(directory, name)
        try:
            size = status.st_size - _DIGEST_BYTES
            data = digest = b""
            if 0 < size <= MAX_LENGTH and length in (size, -1):
                data = os.read(descriptor, size)
                digest = os.read(descriptor, _DIGEST_BYTES)
            if len(data) != size or digest != _digest(name, data):
                os.unlink(name, dir_fd=directory)
                return None
            if status.st_mtime < time.time() - _USE_SECONDS:
                os.utime(descriptor)
            return data
        finally:
            os.close(descriptor)

    def _entries(self, directory: int, only: str | None = None) -> list[tuple[float, int, str]]:
        """Return time of the last use, bytes and name of each entry.

        - `only`: The only folder whose entries are returned.
        """
        entries = []
        folders = [only] if only is not None else os.listdir(directory)
        for folder in filter(_FOLDER.fullmatch, folders):
            with suppress(OSError):
                descriptor = open_folder(folder, directory=directory)
                try:
                    with os.scandir(descriptor) as found:
                        for entry in found:
                            if _ENTRY.fullmatch(entry.name):
                                with suppress(OSError):
                                    status = entry.stat(follow_symlinks=False)
                                    size = _on_disk(status.st_size)
                                    name = f"{folder}/{entry.name}"
                                    entries.append((status.st_mtime, size, name))
                finally:
                    os.close(descriptor)
        return entries

    # -- the thread that writes --------------------------------------------------------------------
    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue, _IDLE_SECONDS)
                if not self._queue:
                    self._has_thread = False
                    return
                name, data = self._queue[0]
            try:
                if data is None:
                    self._delete(name)
                else:
                    self._write(name, data)
            except (OSError, ValueError) as error:
                _LOG.debug("a range is not kept on the disk: %s", error)
                self._failed_at = time.monotonic()
            with self._changed:
                if self._queue:
                    self._queue.popleft()
                    self._queued -= 0 if data is None else len(data)
                self._changed.notify_all()

    def _write(self, name: str, data: Bytes) -> None:
        directory = self._opened()
        if directory is None or _exists(directory, name):
            return
        size = len(data) + _DIGEST_BYTES
        descriptor, temporary = self._reserve(directory, name[:2], size)
        if descriptor is None:
            return
        try:
            try:
                _write_whole(descriptor, data.data)
                _write_whole(descriptor, memoryview(_digest(name, data.data)))
            finally:
                os.close(descriptor)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
                with self._locked(directory) as usage:
                    _record(usage, max(self._used(directory, usage) - _on_disk(size), 0))
            raise

    def _reserve(self, directory: int, folder: str, size: int) -> tuple[int | None, str]:
        """Return a new file of a size, open for writing, and its name; the bytes count already."""
        free = os.fstatvfs(directory)
        least = min(_FREE_BYTES, free.f_blocks * free.f_frsize // _FREE_SHARE)
        if free.f_bavail * free.f_frsize < least + size:
            return None, ""
        name = f"{folder}/.{secrets.token_hex(15)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        if not _exists(directory, folder):
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700, dir_fd=directory)
        with self._locked(directory) as usage:
            used = self._used(directory, usage) + _on_disk(size)
            if used > self._max_bytes:
                most = self._max_bytes * 3 // 4
                used = self._clean(directory, most - _on_disk(size)) + _on_disk(size)
            _record(usage, used)
            descriptor = os.open(name, flags, 0o600, dir_fd=directory)
            # Another process that counts the entries sees all bytes.
            os.truncate(descriptor, size)
        return descriptor, name

    @contextmanager
    def _locked(self, directory: int) -> Iterator[int]:
        """Lock the folder, and return a descriptor of the file with the bytes of all entries.

        The system ends the lock of a process that is killed.
        """
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(_USAGE, flags, 0o600, dir_fd=directory)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _used(self, directory: int, usage: int) -> int:
        """Return the bytes of all entries, or more."""
        start, _, text = os.pread(usage, 100, 0).decode("ascii", "replace").partition(" ")
        if start == _machine_start() and text.strip().isdigit():
            return int(text)
        # After a crash of the machine, entries may be there that were not counted.
        return sum(size for _, size, _ in self._entries(directory))

    def _clean(self, directory: int, most: int) -> int:
        """Delete the entries that were used longest ago; return the bytes of the others."""
        entries = sorted(self._entries(directory))
        used = sum(size for _, size, _ in entries)
        for _, size, name in entries:
            if used <= most:
                break
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
            used -= size
        return used


class DiskFile:
    """The kept ranges of a file.

    - `identity`: The digest of the store.
    - `uri`: The file.
    - `size`: Its length, if it is known when the ranges are read.
    """

    def __init__(self, ranges: DiskRanges, identity: bytes, uri: str, size: int | None) -> None:
        self._ranges = ranges
        text = f"{uri}\n{size}".encode("utf-8", "surrogatepass")
        self._digest = _DIGEST(identity + text).hexdigest()[:32]

    def _name(self, byte_range: ByteRange) -> str:
        digest = self._digest
        return f"{digest[:2]}/{digest[2:]}-{byte_range.offset}-{byte_range.length}"

    def read(self, byte_range: ByteRange) -> Bytes | None:
        """Return the bytes of a range; None if they are not kept."""
        return self._ranges.read(self._name(byte_range), byte_range.length)

    def write(self, byte_range: ByteRange, data: Bytes) -> None:
        """Keep the bytes of a range."""
        self._ranges.write(self._name(byte_range), data)

    def forget(self) -> None:
        """Drop all ranges."""
        self._ranges.forget(self._digest)


def disk_stats() -> CacheStats:
    """Return the counts of all folders that this process uses, together."""
    with _Process.lock:
        caches = list(_Process.caches.values())
    total = CacheStats()
    for ranges in caches:
        total += ranges.stats()
    return total


def drain(seconds: float = _END_SECONDS) -> bool:
    """Wait until what waits is written; see `DiskRanges.drain`."""
    return all(ranges.drain(seconds) for ranges in list(_Process.caches.values()))


def _write_whole(descriptor: int, data: memoryview) -> None:
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])


def _digest(name: str, data: bytes | memoryview) -> bytes:
    digest = _DIGEST(name.encode() + b"\0")
    digest.update(data)
    return digest.digest()


def _on_disk(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _record(usage: int, used: int) -> None:
    """Write the bytes of all entries; a crash in between leaves the old text or the new one."""
    os.pwrite(usage, f"{_machine_start()} {used}".ljust(80).encode(), 0)


@cache
def _machine_start() -> str:
    """Return a text that another start of the machine does not have."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"


@after_fork
def _forked() -> None:
    # Another thread of the parent may have held a lock.
    _Process.lock = threading.Lock()
    _Process.bypassed = 0
    for ranges in _Process.caches.values():
        ranges.forked()


atexit.register(drain)

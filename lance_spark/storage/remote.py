"""Files behind fsspec: range reads with neighbours merged, and uploads."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from lance_spark.errors import CorruptFileError, InvalidOptionError
from lance_spark.storage.errors import translated
from lance_spark.storage.objects import objects_of
from lance_spark.storage.retry import Retries, Tries, is_beyond_end, is_transient, protocols
from lance_spark.storage.source import ByteRange, Bytes, ReadCounts, outside

#: Reading this many unneeded bytes costs less than another request.
MAX_GAP = 64 * 1024
#: Most bytes of a merged read.
MAX_READ = 64 * 1024 * 1024
#: Bytes of a part. A longer read is split into parallel requests: one connection is slower than
#: the store.
PART = 2 * 1024 * 1024
#: Storage option: number of parallel reads.
IO_THREADS = "io_threads"
DEFAULT_IO_THREADS = 16
_MOST_IO_THREADS = 1024
#: Protocols whose file systems have one connection, which answers requests one after the other.
_ONE_AFTER_ANOTHER = frozenset({"ftp", "sftp", "ssh", "smb"})


class MergedRead(NamedTuple):
    """One request for bytes `start` to `stop` that serves the ranges numbered in `members`."""

    start: int
    stop: int
    members: list[int]


def coalesce(ranges: Sequence[ByteRange]) -> list[MergedRead]:
    """Merge ranges that overlap or are at most `MAX_GAP` apart into reads of at most `MAX_READ`
    bytes.

    A longer range becomes a read of its own. Empty ranges are left out.
    """
    reads: list[MergedRead] = []
    for index in sorted(range(len(ranges)), key=lambda i: ranges[i]):
        offset, length = ranges[index]
        if not length:
            continue
        if reads:
            last = reads[-1]
            stop = max(last.stop, offset + length)
            if offset - last.stop <= MAX_GAP and stop - last.start <= MAX_READ:
                last.members.append(index)
                reads[-1] = last._replace(stop=stop)
                continue
        reads.append(MergedRead(offset, offset + length, [index]))
    return reads


class RemoteSource:
    """A file behind fsspec; see `ByteSource`."""

    def __init__(
        self,
        fs: Any,
        path: str,
        name: str,
        size: int | None = None,
        options: Mapping[str, object] | None = None,
        io_threads: int = DEFAULT_IO_THREADS,
        retries: Retries | None = None,
    ) -> None:
        self._fs = fs
        self._retries = Retries.of({}, fs) if retries is None else retries
        self._path = path
        self._options = options
        self._io_threads = reads_at_once(fs, io_threads)
        self.name = name
        self.counts = ReadCounts()
        if size is None:
            with translated(name, options):
                size = self._retries.call(file_size, fs, path)
        if not isinstance(size, int):
            raise CorruptFileError(f"{name}: the store does not report the size of the file")
        self.size = size

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Fetch the ranges: neighbours are merged, and reads run in parallel where possible."""
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > self.size:
                raise outside(self.name, self.size, offset, length)
        reads = coalesce(ranges)
        answer = [np.empty(0, dtype=np.uint8)] * len(ranges)
        for read, data in zip(reads, self._fetch(reads), strict=True):
            merged = self._checked(data, read.start, read.stop)
            for index in read.members:
                offset, length = ranges[index]
                answer[index] = merged[offset - read.start : offset - read.start + length]
        return answer

    def threads(self) -> ThreadPoolExecutor:
        """Return the threads of this process that fetch; their number is that of parallel reads."""
        return _pool(os.getpid(), self._io_threads)

    def read_part(self, start: int, stop: int) -> Bytes:
        """Return a range of the file by one request, which is not counted. Thread-safe."""
        with translated(self.name, self._options):
            (data,) = fetch_parts(self._fs, self._path, [(start, stop)], 1, self._retries)
        return self._checked(data, start, stop)

    def _checked(self, data: Any, start: int, stop: int) -> Bytes:
        if len(data) != stop - start:
            raise CorruptFileError(
                f"{self.name}: the store returned {len(data)} of the {stop - start} bytes from "
                f"{start} "
                "on; the file is truncated"
            )
        return np.frombuffer(data, dtype=np.uint8)

    def _fetch(self, reads: Sequence[MergedRead]) -> list[Any]:
        parts = [part for read in reads for part in self._parts(read)]
        self.counts.add(len(parts), sum(stop - start for start, stop in parts))
        if not parts:
            return []
        begun = perf_counter_ns()
        with translated(self.name, self._options):
            fetched = fetch_parts(self._fs, self._path, parts, self._io_threads, self._retries)
        self.counts.nanoseconds += perf_counter_ns() - begun
        if len(fetched) == len(reads):
            return fetched
        answers: list[Any] = []
        first = 0
        for read in reads:
            end = first + len(self._parts(read))
            parts_of_read = fetched[first:end]
            answers.append(parts_of_read[0] if end == first + 1 else b"".join(parts_of_read))
            first = end
        return answers

    def _parts(self, read: MergedRead) -> list[tuple[int, int]]:
        size = read.stop - read.start
        count = min(-(-size // PART), self._io_threads) if size > 2 * PART else 1
        edges = [read.start + size * index // count for index in range(count + 1)]
        return list(pairwise(edges))

    def close(self) -> None:
        """Do nothing: no resources are held."""


def parse_io_threads(options: Mapping[str, Any]) -> int:
    """Return the number of parallel reads that the storage options ask for.

    Raises InvalidOptionError.
    """
    value = options.get(IO_THREADS, DEFAULT_IO_THREADS)
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        count = 0
    if not 1 <= count <= _MOST_IO_THREADS:
        raise InvalidOptionError(
            f"storage option {IO_THREADS} must be a number from 1 to {_MOST_IO_THREADS}, not "
            f"{value!r}"
        )
    return count


def fetch_parts(
    fs: Any,
    path: str,
    parts: Sequence[tuple[int, int]],
    io_threads: int,
    retries: Retries,
) -> list[Any]:
    """Return ranges of a file, given by first byte and end; at most `io_threads` in parallel.

    A range is requested again after a transient error. A range that arrives too short is requested
    once more, and returned as it is if it is short again.
    """
    fetched: list[Any] = [None] * len(parts)
    missing, short = list(range(len(parts))), set[int]()
    tries = retries.tries()
    while missing:
        answers = _fetch_each(fs, path, [parts[index] for index in missing], io_threads)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        wait = _wait_after(errors, tries)
        incomplete: list[int] = []
        for index, answer in zip(missing, answers, strict=True):
            size = parts[index][1] - parts[index][0]
            failed = isinstance(answer, BaseException)
            if failed or (len(answer) != size and _is_first_cut(fs, index, short)):
                incomplete.append(index)
            else:
                fetched[index] = answer
        missing = incomplete
        time.sleep(wait)
    return fetched


def _wait_after(errors: Sequence[BaseException], tries: Tries) -> float:
    """Return the seconds to wait after parallel requests failed. Raises the first lasting error."""
    if not errors:
        return 0
    worst = next((error for error in errors if not is_transient(error)), errors[0])
    wait = tries.wait_after(worst)
    if wait is None:
        raise worst
    return wait


def _is_first_cut(fs: Any, index: int, short: set[int]) -> bool:
    """Return whether a range is short for the first time, perhaps cut by the network."""
    if index in short or not getattr(fs, "async_impl", False):
        return False
    short.add(index)
    return True


def _fetch_each(
    fs: Any, path: str, parts: Sequence[tuple[int, int]], io_threads: int
) -> Sequence[Any]:
    """Return the bytes of each range, or the error."""
    starts, stops = [start for start, _ in parts], [stop for _, stop in parts]
    if len(parts) > 1 and getattr(fs, "async_impl", False):
        answers: list[Any] = fs.cat_ranges(
            [path] * len(parts), starts, stops, on_error="return", batch_size=io_threads
        )
        return [b"" if is_beyond_end(answer) else answer for answer in answers]
    fetch = partial(_fetch_one, fs, path)
    if len(parts) == 1 or io_threads == 1:
        return [fetch(start, stop) for start, stop in parts]
    return list(_pool(os.getpid(), io_threads).map(fetch, starts, stops))


def _fetch_one(fs: Any, path: str, start: int, stop: int) -> Any:
    try:
        return fs.cat_file(path, start=start, end=stop)
    except Exception as error:
        return b"" if is_beyond_end(error) else error


def file_size(fs: Any, path: str) -> Any:
    """Return the length of a file, if the store reports it. Raises FileNotFoundError."""
    return objects_of(fs).head(path)["size"]


def reads_at_once(fs: Any, io_threads: int) -> int:
    """Return how many reads a file system answers in parallel, at most `io_threads`; 1 if local."""
    is_parallel = fs is not None and _ONE_AFTER_ANOTHER.isdisjoint(protocols(fs))
    return io_threads if is_parallel else 1


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads that fetch in a process: a forked process does not inherit them."""
    return ThreadPoolExecutor(threads, "lance-io")


def read_whole(fs: Any, path: str, limit: int | None = None) -> bytes:
    """Return the content of a file by one request, where possible at most `limit` + 1 bytes."""
    return objects_of(fs).read_start(path, None if limit is None else limit + 1)

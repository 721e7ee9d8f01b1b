"""Files behind fsspec: range reads with neighbours merged, and uploads."""

from __future__ import annotations

import os
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import blake2b
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError, InvalidOptionError
from lance_spark.storage.errors import translated
from lance_spark.storage.kept_ranges import MAX_LENGTH, WHOLE, KeptFile
from lance_spark.storage.memory import memory_share
from lance_spark.storage.objects import objects_of
from lance_spark.storage.options import IO_THREADS, READ_AHEAD_BYTES, family_of
from lance_spark.storage.retry import Retries, protocols
from lance_spark.storage.scheduler import Group, ReadRequest, Scheduler, stop_all
from lance_spark.storage.source import ByteRange, Bytes, ReadCounts, outside

#: Reading this many unneeded bytes costs less than another request.
MAX_GAP = 64 * 1024
#: Most bytes of a merged read.
MAX_READ = 64 * 1024 * 1024
#: Bytes of a part. A longer read is split into parallel requests: one connection is slower than
#: the store.
PART = 2 * 1024 * 1024
#: Reads at the same time, by default.
DEFAULT_IO_THREADS = 64
#: The same of a file system without an event loop, where each takes a thread.
_DEFAULT_THREADS = 16
_MOST_IO_THREADS = 1024
#: Merged reads of a file that stay in memory, and the most bytes of each.
_MERGED_READS = 4
_MERGED_BYTES = 256 * 1024
#: The part of the memory that a scan may hold ahead of its consumer, and its limits.
_AHEAD_SHARE = 16
_LEAST_AHEAD, _MOST_AHEAD = 32 << 20, 128 << 20
#: The attribute of a file system with its part of the keys of files.
_KEY = "_lance_key"
_KEY_BYTES = 16
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
    """A file behind fsspec; see `ByteSource`.

    - `keep`: Returns what is kept of a file that never changes, given its size.
    """

    def __init__(
        self,
        fs: Any,
        path: str,
        name: str,
        size: int | None = None,
        options: Mapping[str, object] | None = None,
        io_threads: int = DEFAULT_IO_THREADS,
        retries: Retries | None = None,
        *,
        keep: Callable[[int], KeptFile] | None = None,
    ) -> None:
        self._fs = fs
        self._retries = Retries.of({}, fs) if retries is None else retries
        self._path = path
        self._options = options
        self._io_threads = reads_at_once(fs, io_threads)
        self._scheduler = Scheduler.of(fs, self._io_threads)
        self.name = name
        self.counts = ReadCounts()
        if size is None:
            with translated(name, options):
                size = self._retries.call(file_size, fs, path)
        if not isinstance(size, int):
            raise CorruptFileError(f"{name}: the store does not report the size of the file")
        self.size = size
        self._kept = keep(size) if keep else None
        #: Most bytes at the end of the file that are read when it is opened.
        self.end_bytes = MAX_LENGTH
        self._end: ReadRequest | None = None
        # The last merged reads with bytes between their ranges: mostly the next ranges.
        self._merged: deque[tuple[int, int, Bytes]] = deque(maxlen=_MERGED_READS)

    @property
    def end(self) -> ReadRequest | None:
        """The request for the end of the file, which has been answered; None before."""
        return self._end

    def keep_end(self, data: Bytes) -> None:
        """Serve the bytes at the end of the file, which the caller has read and holds, from memory.

        The pages of the last columns are there, too.
        """
        self._end = ReadRequest(self.group(), self._path, self.size - len(data), self.size)
        self._end.is_taken = True
        self._end.set_result(data)

    def expect(self, byte_range: ByteRange) -> None:
        """Begin to fetch a short range inside the file that describes it, and is read later."""
        if self._kept is None or not byte_range.length:
            return
        stop = byte_range.offset + byte_range.length
        request = ReadRequest(self.group(), self._path, byte_range.offset, stop)
        if self._kept.expect(self._kept_as(byte_range), request):
            self._scheduler.send([request], ahead=True)

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Fetch the ranges: neighbours are merged, and reads run in parallel where possible.

        Ranges that are kept, or that are under way, are not fetched.
        """
        return self.request(ranges)()

    def read_description(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Fetch ranges that describe the file, such as its footer: all of them are kept."""
        return self._requested(ranges, describe=True)()

    def request(self, ranges: Sequence[ByteRange]) -> Callable[[], list[Bytes]]:
        """Send the requests of `read`; see `RemoteRanges`."""
        return self._requested(ranges, describe=False)

    def _requested(
        self, ranges: Sequence[ByteRange], *, describe: bool
    ) -> Callable[[], list[Bytes]]:
        known = [self._known(byte_range, describe) for byte_range in ranges]
        missing = [number for number, data in enumerate(known) if data is None]
        fetched = self._request(ranges, missing)
        return partial(self._finish, ranges, known, missing, fetched, describe)

    def _finish(
        self,
        ranges: Sequence[ByteRange],
        known: Sequence[Bytes | ReadRequest | None],
        missing: Sequence[int],
        fetched: Callable[[], list[Bytes]],
        describe: bool,
    ) -> list[Bytes]:
        """Wait for ranges that are known or have been requested."""
        answer: list[Any] = list(known)
        under_way = [number for number, data in enumerate(known) if isinstance(data, ReadRequest)]
        for number in under_way:
            answer[number] = self._arrived(answer[number], ranges[number].length)
        failed = [number for number in under_way if answer[number] is None]
        again = self._request(ranges, failed) if failed else list
        for numbers, wait in ((missing, fetched), (failed, again)):
            for number, data in zip(numbers, wait(), strict=True):
                answer[number] = data
                if self._kept is not None:
                    self._kept.put(self._kept_as(ranges[number]), data, on_disk=describe)
        return answer

    def _kept_as(self, byte_range: ByteRange) -> ByteRange:
        """Return the range as which a range is kept: a small file that is read whole has one of
        its own.
        """
        is_whole = MAX_LENGTH < byte_range.length == self.size <= self.end_bytes
        return WHOLE if is_whole else byte_range

    def _known(self, byte_range: ByteRange, describe: bool) -> Bytes | ReadRequest | None:
        """Return a range that is kept, or the request if it is under way; None if neither."""
        offset, length = byte_range
        end = self._end
        if end is not None and (end.start or 0) <= offset <= offset + length <= self.size:
            data: Bytes = end.result()
            begin = offset - (end.start or 0)
            return data[begin : begin + length]
        for start, stop, merged in self._merged:
            if start <= offset and offset + length <= stop:
                return merged[offset - start : offset - start + length]
        if self._kept is None:
            return None
        as_kept = self._kept_as(byte_range)
        kept = self._kept.get(as_kept, on_disk=describe)
        if kept is not None and self._kept.is_first_use(as_kept):
            self.counts.add(1, length)
        return kept

    def _arrived(self, request: ReadRequest, length: int) -> Bytes | None:
        """Wait for a request of any reader; return None if it failed."""
        begun = perf_counter_ns()
        self.need([request])
        data = arrived(request)
        self.counts.nanoseconds += perf_counter_ns() - begun
        if data is None or len(data) != length:
            return None
        return np.frombuffer(data, np.uint8)

    def _request(
        self, all_ranges: Sequence[ByteRange], numbers: Sequence[int]
    ) -> Callable[[], list[Bytes]]:
        """Request some of the ranges."""
        if not numbers:
            return list
        ranges = [all_ranges[number] for number in numbers]
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > self.size:
                raise outside(self.name, self.size, offset, length)
        reads = coalesce(ranges)
        parts_of = [self._parts(read) for read in reads]
        parts = [part for parts in parts_of for part in parts]
        self.counts.add(len(parts), sum(stop - start for start, stop in parts))
        requests = self._scheduler.submit(self.group(), self._path, parts) if parts else []

        def finish() -> list[Bytes]:
            answer = [np.empty(0, dtype=np.uint8)] * len(ranges)
            fetched = iter(self._results(requests))
            for read, parts in zip(reads, parts_of, strict=True):
                datas = [next(fetched) for _ in parts]
                data = datas[0] if len(datas) == 1 else b"".join(datas)
                merged = self._checked(data, read.start, read.stop)
                needed = sum(ranges[index][1] for index in read.members)
                if needed < len(merged) <= _MERGED_BYTES:
                    self._merged.append((read.start, read.stop, merged))
                for index in read.members:
                    offset, length = ranges[index]
                    answer[index] = merged[offset - read.start : offset - read.start + length]
            return answer

        return finish

    def group(self) -> Group:
        """Return a new group of requests."""
        return Group(self._retries)

    def begin(
        self, group: Group, parts: Sequence[tuple[int, int]], *, ahead: bool = False
    ) -> list[ReadRequest]:
        """Request parts of the file, given by first byte and end; they are not counted.

        - `ahead`: Whether the parts are not needed yet.
        """
        if self._kept is None or not self._kept.keeps_all:
            return self._scheduler.submit(group, self._path, parts, ahead=ahead)
        requests, sent = [], []
        for start, stop in parts:
            request = ReadRequest(group, self._path, start, stop)
            byte_range = ByteRange(start, stop - start)
            data = self._kept.get_values(byte_range)
            if data is None:
                self._kept.put_later(byte_range, request)
                sent.append(request)
            else:
                request.answer(data)
            requests.append(request)
        if sent:
            self._scheduler.send(sent, ahead=ahead)
        return requests

    def need(self, requests: Sequence[ReadRequest]) -> None:
        """Send requests before those of other readers that do not wait yet."""
        self._scheduler.need(requests)

    def result(self, request: ReadRequest) -> Bytes:
        """Wait for the bytes of a request."""
        with translated(self.name, self._options):
            data = request.result()
        return self._checked(data, request.start or 0, request.stop or self.size)

    def _checked(self, data: Any, start: int, stop: int) -> Bytes:
        if len(data) != stop - start:
            raise CorruptFileError(
                f"{self.name}: the store returned {len(data)} of the {stop - start} bytes from "
                f"{start} "
                "on; the file is truncated"
            )
        return np.frombuffer(data, dtype=np.uint8)

    def _results(self, requests: Sequence[ReadRequest]) -> list[Any]:
        """Wait for requests of one group."""
        begun = perf_counter_ns()
        try:
            with translated(self.name, self._options):
                return [request.result() for request in requests]
        except BaseException:
            stop_all(requests)
            raise
        finally:
            self.counts.nanoseconds += perf_counter_ns() - begun

    def _parts(self, read: MergedRead) -> list[tuple[int, int]]:
        size = read.stop - read.start
        count = min(-(-size // PART), self._io_threads) if size > 2 * PART else 1
        edges = [read.start + size * index // count for index in range(count + 1)]
        return list(pairwise(edges))

    def forget(self) -> None:
        """Drop what is kept of the file, which may have arrived damaged."""
        if self._kept is not None:
            self._kept.forget()

    def close(self) -> None:
        """Release the last reads."""
        self._merged.clear()
        self._end = None


def parse_io_threads(options: Mapping[str, Any], scheme: str) -> int:
    """Return the number of parallel reads that the storage options of a store ask for.

    Raises InvalidOptionError.
    """
    default = _DEFAULT_THREADS if family_of(scheme) is None else DEFAULT_IO_THREADS
    value = options.get(IO_THREADS, default)
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


def parse_ahead_bytes(options: Mapping[str, Any]) -> int:
    """Return the bytes that a scan may hold besides those of the part that its consumer reads.

    Raises InvalidOptionError.
    """
    value = options.get(READ_AHEAD_BYTES)
    if value is None:
        return default_ahead_bytes()
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        count = -1
    if count < 0:
        raise InvalidOptionError(
            f"storage option {READ_AHEAD_BYTES} must be a number of bytes of at least 0, not "
            f"{value!r}"
        )
    return count


def file_key(fs: Any, path: str, mark: int | str | None) -> Hashable:
    """Return the key of a file in `KEPT`; the mark is its size or tag.

    fsspec makes a file system for each thread. All with the same arguments have the same files.
    """
    known = vars(fs)
    if _KEY not in known:
        known[_KEY] = _key_of(fs)
    return known[_KEY], path, mark


def _key_of(fs: Any) -> bytes:
    options = getattr(fs, "storage_options", None)
    if options is None or not fs.cachable:
        return os.urandom(_KEY_BYTES)
    arguments = repr((type(fs), fs.storage_args, options)).encode()
    # A digest, because arguments may be secrets.
    return blake2b(arguments, digest_size=_KEY_BYTES).digest()


def arrived(request: ReadRequest) -> Any:
    """Wait for a request of any reader; return None if it failed, so that it is sent once more."""
    try:
        return request.result()
    except (Exception, CancelledError):
        # The reader that sent it may have stopped; and errors shall name the own file.
        return None


@cache
def default_ahead_bytes() -> int:
    """Return the bytes that a scan reads ahead if no option says how many."""
    return memory_share(_AHEAD_SHARE, _LEAST_AHEAD, _MOST_AHEAD)


def file_size(fs: Any, path: str) -> Any:
    """Return the length of a file, if the store reports it. Raises FileNotFoundError."""
    return objects_of(fs).head(path)["size"]


def reads_at_once(fs: Any, io_threads: int) -> int:
    """Return how many reads a file system answers in parallel, at most `io_threads`; 1 if local."""
    is_parallel = fs is not None and _ONE_AFTER_ANOTHER.isdisjoint(protocols(fs))
    return io_threads if is_parallel else 1


def read_whole(fs: Any, path: str, limit: int | None = None) -> bytes:
    """Return the content of a file by one request, where possible at most `limit` + 1 bytes."""
    return objects_of(fs).read_start(path, None if limit is None else limit + 1)


# --------------------------------------------------------------------------------------------------
# Prefetches parts of a file behind fsspec before readers request them.
#
# The caller announces the ranges of each *step*, buffer by buffer, as rows are read. The ranges
# need not be exact: missing bytes are fetched on request. No byte is fetched twice as long as
# requests follow the order of the file.


class BufferRange(NamedTuple):
    """Bytes `start` to `stop` of a buffer of a file."""

    buffer: ByteRange
    start: int
    stop: int


class _Piece(NamedTuple):
    """Bytes `start` to `stop` of the file, fetched by one request."""

    start: int
    stop: int
    request: ReadRequest


@dataclass(slots=True)
class _Buffer:
    """The fetched part of a buffer: from its first piece up to `stop`.

    Pieces can begin before the buffer and end after it.
    """

    byte_range: ByteRange
    stop: int
    steps: int = 0
    pieces: list[_Piece] = field(default_factory=list)

    def add(self, pieces: Sequence[_Piece]) -> None:
        """Add fetched pieces. Pieces that were merged with pieces of a neighbour extend `stop`."""
        self.pieces += pieces
        end = self.byte_range.offset + self.byte_range.length
        self.stop = max(self.stop, min(pieces[-1].stop, end))


class AheadSource:
    """A `Ranges` over a file, for one thread at a time.

    - `source`: Not closed together with this object. It counts the reads of this object too.
    """

    def __init__(self, source: RemoteSource) -> None:
        self._source = source
        # After an error, a request ahead would repeat as often as the failed one.
        self._ahead = source.group()
        self._requests: list[ReadRequest] = []
        self._buffers: dict[ByteRange, _Buffer] = {}
        self._byte_ranges: list[ByteRange] = []
        self._steps: deque[list[_Buffer]] = deque()

    def expect(self, parts: Sequence[BufferRange]) -> int:
        """Begin to fetch the ranges of the next step that are not being fetched yet.

        Returns bytes that this call fetches.
        """
        new_ranges: list[ByteRange] = []
        lacking: list[_Buffer] = []
        step: list[_Buffer] = []
        for byte_range, first, last in parts:
            # A little more than announced, as a further request would cost more.
            stop = min(last + MAX_GAP, byte_range.offset + byte_range.length)
            buffer = self._buffers.get(byte_range)
            if buffer is None:
                start = max(first - MAX_GAP, byte_range.offset)
                buffer = self._buffers[byte_range] = _Buffer(byte_range, start)
                insort(self._byte_ranges, byte_range)
            buffer.steps += 1
            step.append(buffer)
            if stop > buffer.stop:
                new_ranges.append(ByteRange(buffer.stop, stop - buffer.stop))
                lacking.append(buffer)
                buffer.stop = stop
        self._steps.append(step)
        fetched = self._fetch(new_ranges, self._ahead)
        for buffer, pieces in zip(lacking, fetched, strict=True):
            buffer.add(pieces)
        return sum(size for _, size in new_ranges)

    def finish(self) -> None:
        """Release the buffers that only the oldest step needed: it has been read."""
        for buffer in self._steps.popleft():
            buffer.steps -= 1
            if not buffer.steps:
                del self._buffers[buffer.byte_range]
                del self._byte_ranges[bisect_right(self._byte_ranges, buffer.byte_range) - 1]

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        return self.request(ranges)()

    def request(self, ranges: Sequence[ByteRange]) -> Callable[[], list[Bytes]]:
        """Request the bytes that are not being fetched; see `RemoteRanges`."""
        buffers = [self._buffer_at(byte_range) for byte_range in ranges]
        missing: list[ByteRange] = []
        lacking: list[int] = []
        for number, (byte_range, buffer) in enumerate(zip(ranges, buffers, strict=True)):
            end = byte_range.offset + byte_range.length
            if buffer is None:
                missing.append(byte_range)
                lacking.append(number)
            elif end > buffer.stop:
                missing.append(ByteRange(buffer.stop, end - buffer.stop))
                lacking.append(number)
                buffer.stop = end
        alone: dict[int, list[_Piece]] = {}
        for number, pieces in zip(lacking, self._fetch(missing, self._source.group()), strict=True):
            buffer = buffers[number]
            if buffer is None:
                alone[number] = pieces
            else:
                buffer.add(pieces)
        return lambda: self._finish(ranges, buffers, alone)

    def _finish(
        self,
        ranges: Sequence[ByteRange],
        buffers: Sequence[_Buffer | None],
        alone: Mapping[int, Sequence[_Piece]],
    ) -> list[Bytes]:
        """Wait for ranges, which are in buffers or fetched alone."""
        begun = perf_counter_ns()
        answer = [
            self._cut(alone[number] if buffer is None else buffer.pieces, byte_range)
            for number, (byte_range, buffer) in enumerate(zip(ranges, buffers, strict=True))
        ]
        self._source.counts.nanoseconds += perf_counter_ns() - begun
        for byte_range, buffer in zip(ranges, buffers, strict=True):
            if buffer is not None:
                # The next range may begin in the last chunk of this one.
                keep_from = byte_range.offset + byte_range.length - MAX_GAP
                buffer.pieces = [piece for piece in buffer.pieces if piece.stop > keep_from]
        return answer

    def close(self) -> None:
        """Cancel waiting requests, wait for running requests, and release all buffers."""
        stop_all(self._requests)
        self._requests.clear()
        self._buffers.clear()
        self._byte_ranges.clear()
        self._steps.clear()

    def _buffer_at(self, byte_range: ByteRange) -> _Buffer | None:
        """Return the buffer that holds the beginning of a range; None if it is not fetched."""
        offset, length = byte_range
        number = bisect_right(self._byte_ranges, ByteRange(offset, self._source.size)) - 1
        if number < 0 or not length:
            return None
        buffer = self._buffers[self._byte_ranges[number]]
        if (
            offset + length > buffer.byte_range.offset + buffer.byte_range.length
            or offset > buffer.stop
        ):
            return None
        first = buffer.pieces[0].start if buffer.pieces else buffer.stop
        return buffer if first <= offset else None

    def _fetch(self, ranges: Sequence[ByteRange], group: Group) -> list[list[_Piece]]:
        """Begin to fetch ranges, merged with neighbours; return the pieces of each range."""
        pieces_of: list[list[_Piece]] = [[] for _ in ranges]
        self._requests = [request for request in self._requests if not request.done()]
        count = total = 0
        end = self._source.end
        for read in coalesce(ranges):
            if end is not None and end.start is not None and end.start <= read.start:
                for member in read.members:
                    pieces_of[member] = [_Piece(end.start, self._source.size, end)]
                continue
            size = read.stop - read.start
            parts = max(size // PART, 1)
            edges = [read.start + size * index // parts for index in range(parts + 1)]
            requests = self._source.begin(group, list(pairwise(edges)), ahead=group is self._ahead)
            pieces = [
                _Piece(*edge, request)
                for edge, request in zip(pairwise(edges), requests, strict=True)
            ]
            self._requests += requests
            for member in read.members:
                offset, length = ranges[member]
                pieces_of[member] = [
                    piece
                    for piece in pieces
                    if piece.stop > offset and piece.start < offset + length
                ]
            sent = [piece.stop - piece.start for piece in pieces if not piece.request.is_kept]
            count, total = count + len(sent), total + sum(sent)
        if count:
            self._source.counts.add(count, total)
        return pieces_of

    def _cut(self, pieces: Sequence[_Piece], byte_range: ByteRange) -> Bytes:
        """Return a range from its pieces, which overlap or follow each other."""
        position, end = byte_range.offset, byte_range.offset + byte_range.length
        needed: list[_Piece] = []
        for piece in pieces:
            if position < min(piece.stop, end):
                needed.append(piece)
                position = min(piece.stop, end)
        self._source.need([piece.request for piece in needed])
        position = byte_range.offset
        cuts: list[Bytes] = []
        for start, stop, request in needed:
            cuts.append(self._source.result(request)[position - start : end - start])
            position = min(stop, end)
        if len(cuts) < 2:
            return cuts[0] if cuts else np.empty(0, np.uint8)
        # Arrow returns this memory to the system; the C library would keep it for each thread.
        joined = np.frombuffer(pa.allocate_buffer(byte_range.length), np.uint8)
        return np.concatenate(cuts, out=joined)

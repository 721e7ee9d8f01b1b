"""Prefetches parts of a file behind fsspec before readers request them.

The caller announces the ranges of each *step*, buffer by buffer, as rows are read. The ranges need
not be exact: missing bytes are fetched on request. No byte is fetched twice as long as requests
follow the order of the file.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lance_spark.storage.remote import MAX_GAP, PART, RemoteSource, coalesce
from lance_spark.storage.scheduler import Group, ReadRequest, stop_all
from lance_spark.storage.source import ByteRange, Bytes


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

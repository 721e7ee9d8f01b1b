"""A file behind fsspec of which parts are fetched before they are asked for.

What will be asked for is told buffer by buffer and *step* by step, as rows are read: of each buffer
that a step needs, from where to where. That need not be exact. What turns out to lack is fetched
when it is asked for, and nothing is fetched twice as long as ranges are asked for in the order of
the file.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lance_spark.storage.remote import MAX_GAP, PART, RemoteSource, coalesce
from lance_spark.storage.source import ByteRange, Bytes


class Part(NamedTuple):
    """Bytes `start` to `stop` of a file, which lie in a buffer of it."""

    buffer: ByteRange
    start: int
    stop: int


class _Piece(NamedTuple):
    """Bytes `start` to `stop` of the file: one request."""

    start: int
    stop: int
    data: Future[Bytes]


@dataclass(slots=True)
class _Buffer:
    """What is fetched of a buffer: all bytes from that of the first piece on up to `stop`; pieces
    can begin before it and end behind.
    """

    place: ByteRange
    stop: int
    steps: int = 0
    pieces: list[_Piece] = field(default_factory=list)

    def add(self, pieces: Sequence[_Piece]) -> None:
        """Add what was fetched of the bytes up to `stop`, and of those behind with a neighbour."""
        self.pieces += pieces
        end = self.place.offset + self.place.length
        self.stop = max(self.stop, min(pieces[-1].stop, end))


class AheadSource:
    """A `Ranges` over a file; made, used and closed by one thread at a time.

    Parameters
    ----------
    source : RemoteSource
        It is not closed with this one. Counts what is read here too.
    """

    def __init__(self, source: RemoteSource) -> None:
        self._source = source
        self._threads = source.threads()
        self._asked: list[Future[Bytes]] = []
        self._buffers: dict[ByteRange, _Buffer] = {}
        self._places: list[ByteRange] = []
        self._steps: deque[list[_Buffer]] = deque()
        self._error: BaseException | None = None

    def expect(self, parts: Sequence[Part]) -> int:
        """Begin to fetch what the next step will ask for, as far as that is not under way.

        Returns
        -------
        int
            How many bytes are fetched.
        """
        wanted: list[ByteRange] = []
        lacking: list[_Buffer] = []
        step: list[_Buffer] = []
        for place, first, last in parts:
            # A little more than was said, as one more request would cost more.
            stop = min(last + MAX_GAP, place.offset + place.length)
            buffer = self._buffers.get(place)
            if buffer is None:
                start = max(first - MAX_GAP, place.offset)
                buffer = self._buffers[place] = _Buffer(place, start)
                insort(self._places, place)
            buffer.steps += 1
            step.append(buffer)
            if stop > buffer.stop:
                wanted.append(ByteRange(buffer.stop, stop - buffer.stop))
                lacking.append(buffer)
                buffer.stop = stop
        self._steps.append(step)
        fetched = self._fetch(wanted, self._read_expected)
        for buffer, pieces in zip(lacking, fetched, strict=True):
            buffer.add(pieces)
        return sum(size for _, size in wanted)

    def finish(self) -> None:
        """Let go of what no step but the oldest needs: it has been read."""
        for buffer in self._steps.popleft():
            buffer.steps -= 1
            if not buffer.steps:
                del self._buffers[buffer.place]
                del self._places[bisect_right(self._places, buffer.place) - 1]

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the bytes of each range, in order; see `ByteSource`."""
        buffers = [self._buffer_at(place) for place in ranges]
        wanted: list[ByteRange] = []
        lacking: list[int] = []
        for number, (place, buffer) in enumerate(zip(ranges, buffers, strict=True)):
            end = place.offset + place.length
            if buffer is None:
                wanted.append(place)
                lacking.append(number)
            elif end > buffer.stop:
                wanted.append(ByteRange(buffer.stop, end - buffer.stop))
                lacking.append(number)
                buffer.stop = end
        alone: dict[int, list[_Piece]] = {}
        for number, pieces in zip(
            lacking, self._fetch(wanted, self._source.read_part), strict=True
        ):
            buffer = buffers[number]
            if buffer is None:
                alone[number] = pieces
            else:
                buffer.add(pieces)
        answer = [
            _cut(alone[number] if buffer is None else buffer.pieces, place)
            for number, (place, buffer) in enumerate(zip(ranges, buffers, strict=True))
        ]
        for place, buffer in zip(ranges, buffers, strict=True):
            if buffer is not None:
                # What begins where this ends may share a chunk with it.
                kept = place.offset + place.length - MAX_GAP
                buffer.pieces = [piece for piece in buffer.pieces if piece.stop > kept]
        return answer

    def close(self) -> None:
        """Let go of everything, and wait for the requests that are under way; those that wait are
        not sent.
        """
        wait([one for one in self._asked if not one.cancel()])
        self._asked.clear()
        self._buffers.clear()
        self._places.clear()
        self._steps.clear()

    def _buffer_at(self, place: ByteRange) -> _Buffer | None:
        """Return the buffer of which a range, or its first part, is fetched; None if there is none."""
        offset, length = place
        number = bisect_right(self._places, ByteRange(offset, self._source.size)) - 1
        if number < 0 or not length:
            return None
        buffer = self._buffers[self._places[number]]
        if offset + length > buffer.place.offset + buffer.place.length or offset > buffer.stop:
            return None
        first = buffer.pieces[0].start if buffer.pieces else buffer.stop
        return buffer if first <= offset else None

    def _read_expected(self, start: int, stop: int) -> Bytes:
        if self._error is not None:
            # It would be tried as often as the one before it, while somebody waits to be told.
            raise self._error
        try:
            return self._source.read_part(start, stop)
        except BaseException as error:
            self._error = error
            raise

    def _fetch(
        self, ranges: Sequence[ByteRange], read_part: Callable[[int, int], Bytes]
    ) -> list[list[_Piece]]:
        """Begin to fetch ranges, neighbours together; return the pieces that hold each."""
        found: list[list[_Piece]] = [[] for _ in ranges]
        self._asked = [one for one in self._asked if not one.done()]
        count = total = 0
        for read in coalesce(ranges):
            size = read.stop - read.start
            parts = max(size // PART, 1)
            edges = [read.start + size * at // parts for at in range(parts + 1)]
            pieces = [
                _Piece(start, stop, self._threads.submit(read_part, start, stop))
                for start, stop in pairwise(edges)
            ]
            self._asked += [piece.data for piece in pieces]
            for member in read.members:
                offset, length = ranges[member]
                found[member] = [
                    piece
                    for piece in pieces
                    if piece.stop > offset and piece.start < offset + length
                ]
            count, total = count + parts, total + size
        if count:
            self._source.counts.add(count, total)
        return found


def _cut(pieces: Sequence[_Piece], place: ByteRange) -> Bytes:
    """Return a range that pieces hold: each begins in the one before it, or at its end."""
    at, end = place.offset, place.offset + place.length
    found: list[Bytes] = []
    for start, stop, data in pieces:
        if at < min(stop, end):
            found.append(data.result()[at - start : end - start])
            at = min(stop, end)
    if len(found) < 2:
        return found[0] if found else np.empty(0, np.uint8)
    # Arrow's memory goes back to the system; of what the C library has, each thread's share stays.
    joined = np.frombuffer(pa.allocate_buffer(place.length), np.uint8)
    return np.concatenate(found, out=joined)

"""Byte ranges of one file, requested by read plans and answered in bulk.

A *read plan* is a generator: it yields the byte ranges that it needs next, receives their bytes in
the same order, and returns its result. Plans of many columns run in step, so that the ranges of all
columns in one round are merged into few reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from lance_spark.errors import CorruptFileError
from lance_spark.storage.io_counts import IoCounts

T = TypeVar("T")

#: Bytes for decoders: a one-dimensional, C-contiguous uint8 array, read-only, often a view of a
#: longer one.
Bytes = npt.NDArray[np.uint8]

_ALIGNMENT = 64
_GAP = bytes(_ALIGNMENT)


class ByteRange(NamedTuple):
    """`length` bytes of a file, from byte `offset` on."""

    offset: int
    length: int


@dataclass(slots=True)
class ReadCounts:
    """Counts of a file: calls of `read`, reads after neighbours were merged, bytes, the time
    for which callers waited for them, in nanoseconds, and the file itself.
    """

    requests: int = 0
    reads: int = 0
    bytes: int = 0
    nanoseconds: int = 0
    files: int = 1
    #: The counts of all files of a root.
    total: IoCounts | None = field(default=None, repr=False, compare=False)

    def add(self, reads: int, size: int) -> None:
        """Count one request."""
        self.requests += 1
        self.add_reads(reads, size)

    def add_reads(self, reads: int, size: int) -> None:
        """Count reads of a request that is counted apart."""
        self.reads += reads
        self.bytes += size
        if self.total is not None:
            self.total.add_reads(reads, size)

    def clear(self) -> None:
        """Set all counts to zero."""
        self.requests = self.reads = self.bytes = self.nanoseconds = self.files = 0


ReadPlan = Generator[Sequence[ByteRange], Sequence[Bytes], T]


class Ranges(Protocol):
    """Anything that answers read plans."""

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the bytes of each range, in order; see `ByteSource`."""
        ...


@runtime_checkable
class RemoteRanges(Ranges, Protocol):
    """A `Ranges` that sends its requests before it waits for the answers."""

    def request(self, ranges: Sequence[ByteRange]) -> Callable[[], list[Bytes]]:
        """Request the bytes of each range; the result waits for them, and is called once."""
        ...


class ByteSource(Protocol):
    """A file with random access, for one thread at a time.

    `name` is the name of the file in errors. `size` is its length in bytes.
    """

    name: str
    size: int

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the bytes of each range, in order.

        Raises CorruptFileError: a range lies outside the file, or the store returned too few bytes.
        Raises StorageError: the store failed.
        """
        ...

    def close(self) -> None:
        """Release the resources of the source; arrays returned earlier stay valid."""
        ...


def outside(name: str, size: int, offset: int, length: int) -> CorruptFileError:
    """Return the error for a range outside of a file."""
    return CorruptFileError(
        f"{name}: bytes {offset} to {offset + length} lie outside the file of {size} bytes; "
        "it is truncated or corrupt"
    )


def gather_plans(plans: Sequence[ReadPlan[T]]) -> ReadPlan[list[T]]:
    """Return one plan that runs `plans` in step and returns their results in order."""
    results: list[T | None] = [None] * len(plans)
    waiting: list[tuple[int, Sequence[ByteRange]]] = []
    for index, plan in enumerate(plans):
        try:
            waiting.append((index, next(plan)))
        except StopIteration as stop:
            results[index] = stop.value
    while waiting:
        buffers = yield [r for _, ranges in waiting for r in ranges]
        unfinished: list[tuple[int, Sequence[ByteRange]]] = []
        start = 0
        for index, ranges in waiting:
            answer = buffers[start : start + len(ranges)]
            start += len(ranges)
            try:
                unfinished.append((index, plans[index].send(answer)))
            except StopIteration as stop:
                results[index] = stop.value
        waiting = unfinished
    return results  # type: ignore[return-value]


def run_plans(source: Ranges, plans: Sequence[ReadPlan[T]]) -> list[T]:
    """Run plans in step over one file and return their results in order.

    Each round collects the ranges of all unfinished plans into one `source.read`.
    """
    plan = gather_plans(plans)
    try:
        ranges = next(plan)
        while True:
            ranges = plan.send(source.read(ranges))
    except StopIteration as stop:
        results: list[T] = stop.value
        return results


class JoinedSource:
    """A `ByteSource` over others.

    - `sources`: At least one; closed with this one.
    - `contents`: All bytes of each source, if they are in memory. If all are, they are copied
      together.
    - `ranges`: What each source is read from; by default the source. The requests to all remote
      ones are sent together.
    - `starts`: First byte of each source.
    """

    def __init__(
        self,
        sources: Sequence[ByteSource],
        contents: Sequence[Bytes | None],
        ranges: Sequence[Ranges] | None = None,
    ) -> None:
        self._sources = sources
        self._ranges = sources if ranges is None else ranges
        self._counts = ReadCounts(files=0)
        self.name = sources[0].name
        if len(sources) > 1:
            self.name += f" (and {len(sources) - 1} more)"
        self.starts: list[int] = []
        end = 0
        for source in sources:
            self.starts.append(end)
            end += source.size + -source.size % _ALIGNMENT
        self.size = end
        self._memory: Bytes | None = None
        in_memory = [content for content in contents if content is not None]
        if len(in_memory) == len(sources):
            parts = [
                part for data in in_memory for part in (data.data, _GAP[: -len(data) % _ALIGNMENT])
            ]
            self._memory = np.frombuffer(b"".join(parts), np.uint8)

    @property
    def counts(self) -> ReadCounts:
        """The counts of all sources together."""
        for source in self._sources:
            counts = getattr(source, "counts", None)
            if counts is not None:
                self._counts.requests += counts.requests
                self._counts.reads += counts.reads
                self._counts.bytes += counts.bytes
                self._counts.nanoseconds += counts.nanoseconds
                self._counts.files += counts.files
                counts.clear()
        return self._counts

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        memory = self._memory
        if memory is not None:
            for offset, length in ranges:
                if offset < 0 or length < 0 or offset + length > self.size:
                    raise outside(self.name, self.size, offset, length)
            return [memory[offset : offset + length] for offset, length in ranges]
        indices_by_source: dict[int, list[int]] = {}
        for index, (offset, _) in enumerate(ranges):
            indices_by_source.setdefault(bisect_right(self.starts, offset) - 1, []).append(index)
        waits: list[Callable[[], list[Bytes]]] = []
        for number, indices in indices_by_source.items():
            source, start = self._ranges[number], self.starts[number]
            local = [
                ByteRange(ranges[index].offset - start, ranges[index].length) for index in indices
            ]
            if isinstance(source, RemoteRanges):
                waits.append(source.request(local))
            else:
                waits.append(partial(source.read, local))
        result: list[Bytes] = [np.empty(0, np.uint8)] * len(ranges)
        for indices, wait in zip(indices_by_source.values(), waits, strict=True):
            for index, data in zip(indices, wait(), strict=True):
                result[index] = data
        return result

    def close(self) -> None:
        """Close the sources; arrays returned earlier stay valid."""
        self._memory = None
        for source in self._sources:
            source.close()

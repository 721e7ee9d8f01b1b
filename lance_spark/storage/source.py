"""Byte ranges of one file, requested by read plans and answered in bulk.

A *read plan* is a generator: it yields the byte ranges that it needs next, receives their bytes in
the same order, and returns its result. Plans of many columns run in step, so that the ranges of all
columns in one round are merged into few reads.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

#: Bytes for decoders: a one-dimensional, C-contiguous uint8 array, read-only, often a view of a
#: memory map.
Bytes = npt.NDArray[np.uint8]


class ByteRange(NamedTuple):
    """`length` bytes of a file, from byte `offset` on."""

    offset: int
    length: int


@dataclass(slots=True)
class ReadCounts:
    """Counts of a file: calls of `read`, reads after neighbours were merged, and bytes."""

    requests: int = 0
    reads: int = 0
    bytes: int = 0

    def add(self, reads: int, size: int) -> None:
        """Count one request."""
        self.requests += 1
        self.reads += reads
        self.bytes += size

    def clear(self) -> None:
        """Set all counts to zero."""
        self.requests = self.reads = self.bytes = 0


ReadPlan = Generator[Sequence[ByteRange], Sequence[Bytes], T]


class Ranges(Protocol):
    """Anything that answers read plans."""

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the bytes of each range, in order; see `ByteSource`."""
        ...


class ByteSource(Protocol):
    """A file with random access, for one thread at a time.

    `name` is the name of the file in errors. `size` is its length in bytes.
    """

    name: str
    size: int

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the bytes of each range, in order.

        Raises
        ------
        CorruptFileError
            A range lies outside the file, or the store returned too few bytes.
        StorageError
            The store failed.
        """
        ...

    def close(self) -> None:
        """Release the resources of the source; arrays returned earlier stay valid."""
        ...


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

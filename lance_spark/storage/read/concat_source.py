"""Several files as one: concatenated, each aligned to 64 bytes like the buffers in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from lance_spark.storage.local import outside
from lance_spark.storage.source import ByteRange, Bytes, ByteSource, ReadCounts

_ALIGNMENT = 64
_GAP = bytes(_ALIGNMENT)


class JoinedSource:
    """A `ByteSource` over others.

    Parameters
    ----------
    sources : sequence of ByteSource
        At least one; closed with this one.
    contents : sequence of uint8 array or None
        All bytes of each source, if they are in memory. If all are, they are copied together.
    at_once : int
        Number of sources that are read in parallel.

    Attributes
    ----------
    starts : list of int
        First byte of each source.
    """

    def __init__(
        self,
        sources: Sequence[ByteSource],
        contents: Sequence[Bytes | None],
        at_once: int = 1,
    ) -> None:
        self._sources = sources
        self._at_once = at_once
        self._counts = ReadCounts()
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
                counts.clear()
        return self._counts

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the bytes of each range, in order; see `ByteSource`."""
        memory = self._memory
        if memory is not None:
            for offset, length in ranges:
                if offset < 0 or length < 0 or offset + length > self.size:
                    raise outside(self.name, self.size, offset, length)
            return [memory[offset : offset + length] for offset, length in ranges]
        indices_by_source: dict[int, list[int]] = {}
        for index, (offset, _) in enumerate(ranges):
            indices_by_source.setdefault(bisect_right(self.starts, offset) - 1, []).append(index)

        def answers(number: int) -> list[Bytes]:
            start = self.starts[number]
            local = [ranges[index] for index in indices_by_source[number]]
            return self._sources[number].read(
                [ByteRange(offset - start, size) for offset, size in local]
            )

        if self._at_once > 1 and len(indices_by_source) > 1:
            with ThreadPoolExecutor(min(self._at_once, len(indices_by_source))) as pool:
                answered = list(pool.map(answers, indices_by_source))
        else:
            answered = [answers(number) for number in indices_by_source]
        result: list[Bytes] = [_EMPTY] * len(ranges)
        for indices, arrays in zip(indices_by_source.values(), answered, strict=True):
            for index, data in zip(indices, arrays, strict=True):
                result[index] = data
        return result

    def close(self) -> None:
        """Close the sources; arrays returned earlier stay valid."""
        self._memory = None
        for source in self._sources:
            source.close()


_EMPTY = np.empty(0, np.uint8)

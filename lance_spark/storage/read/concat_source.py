"""Several files as one: their bytes one after the other, each from a multiple of 64 bytes on, as
buffers in them are aligned to.
"""

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
        All bytes of each source, if they are in memory. What is, is copied to one place.
    at_once : int
        How many sources are read at the same time.

    Attributes
    ----------
    starts : list of int
        Where each source begins.
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
        at = 0
        for source in sources:
            self.starts.append(at)
            at += source.size + -source.size % _ALIGNMENT
        self.size = at
        self._memory: Bytes | None = None
        held = [content for content in contents if content is not None]
        if len(held) == len(sources):
            parts = [part for one in held for part in (one.data, _GAP[: -len(one) % _ALIGNMENT])]
            self._memory = np.frombuffer(b"".join(parts), np.uint8)

    @property
    def counts(self) -> ReadCounts:
        """What was read of all sources."""
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
        asked: dict[int, list[int]] = {}
        for index, (offset, _) in enumerate(ranges):
            asked.setdefault(bisect_right(self.starts, offset) - 1, []).append(index)

        def answers(number: int) -> list[Bytes]:
            start = self.starts[number]
            own = [ranges[index] for index in asked[number]]
            return self._sources[number].read([ByteRange(at - start, size) for at, size in own])

        if self._at_once > 1 and len(asked) > 1:
            with ThreadPoolExecutor(min(self._at_once, len(asked))) as pool:
                found = list(pool.map(answers, asked))
        else:
            found = [answers(number) for number in asked]
        result: list[Bytes] = [_NOTHING] * len(ranges)
        for indices, several in zip(asked.values(), found, strict=True):
            for index, data in zip(indices, several, strict=True):
                result[index] = data
        return result

    def close(self) -> None:
        """Close the sources; arrays handed out before stay valid."""
        self._memory = None
        for source in self._sources:
            source.close()


_NOTHING = np.empty(0, np.uint8)

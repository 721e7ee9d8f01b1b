"""Tables whose reads are counted: which files are opened, in how many rounds they are read, and how
many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from lance_spark.storage.source import ByteRange, Bytes, ByteSource
from lance_spark.storage.store import ObjectStore


@dataclass
class Reads:
    """The reads since the last `clear`.

    Attributes
    ----------
    opened : list of str
        Files, as often as they were opened or read whole.
    rounds : list of (str, list of ByteRange)
        File and ranges of each round.
    closed : int
        Files that were closed again.
    """

    opened: list[str] = field(default_factory=list)
    rounds: list[tuple[str, list[ByteRange]]] = field(default_factory=list)
    closed: int = 0

    def clear(self) -> None:
        self.opened.clear()
        self.rounds.clear()
        self.closed = 0

    @property
    def size(self) -> int:
        """Return the bytes of all rounds."""
        return sum(part.length for _, ranges in self.rounds for part in ranges)

    def of(self, folder: str) -> list[str]:
        """Return the names of the opened files in a folder."""
        return [name.rpartition("/")[2] for name in self.opened if name.startswith(f"{folder}/")]


class CountingSource:
    """A `ByteSource` that records its reads."""

    def __init__(self, source: ByteSource, path: str, reads: Reads) -> None:
        self._source = source
        self._path = path
        self._reads = reads
        self.name = source.name
        self.size = source.size

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        self._reads.rounds.append((self._path, list(ranges)))
        return self._source.read(ranges)

    def close(self) -> None:
        self._reads.closed += 1
        self._source.close()


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Count what all stores read from now on."""
    reads = Reads()
    open_file, read_bytes = ObjectStore.open, ObjectStore.read_bytes

    def opened(store: ObjectStore, path: str, size: int | None = None, **named: Any) -> ByteSource:
        reads.opened.append(path)
        return CountingSource(open_file(store, path, size, **named), path, reads)

    def whole(store: ObjectStore, path: str, limit: int | None = None, **named: Any) -> bytes:
        reads.opened.append(path)
        data = read_bytes(store, path, limit, **named)
        reads.rounds.append((path, [ByteRange(0, len(data))]))
        return data

    monkeypatch.setattr(ObjectStore, "open", opened)
    monkeypatch.setattr(ObjectStore, "read_bytes", whole)
    return reads

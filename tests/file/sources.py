"""Files in memory that count reads."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import FileWriter
from lance_spark.storage.source import ByteRange, Bytes


class MemorySource:
    """A `ByteSource` over bytes."""

    def __init__(self, data: bytes, name: str = "memory.lance") -> None:
        self.name = name
        self.size = len(data)
        self.calls: list[list[ByteRange]] = []
        self.closed = False
        self._data = np.frombuffer(data, dtype=np.uint8)

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        self.calls.append(list(ranges))
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > self.size:
                raise CorruptFileError(f"{self.name}: {offset}+{length} of {self.size}")
        return [self._data[offset : offset + length] for offset, length in ranges]

    def close(self) -> None:
        self.closed = True


class StrictSource(MemorySource):
    """A file that refuses ranges before its start."""

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        assert all(offset >= 0 and length >= 0 for offset, length in ranges)
        return super().read(ranges)


class MemoryOutput:
    """An `OutputFile` that keeps the written bytes."""

    name = "new.lance"

    def __init__(self) -> None:
        self._buffer = io.BytesIO()

    @property
    def data(self) -> bytes:
        return self._buffer.getvalue()

    def write(self, buffer: object) -> None:
        view = memoryview(buffer)  # type: ignore[arg-type]
        assert view.nbytes
        self._buffer.write(view.cast("B"))

    def tell(self) -> int:
        return self._buffer.tell()

    def close(self) -> None:
        raise AssertionError("whoever opened the output closes it")

    def abort(self) -> None:
        raise AssertionError


def file_bytes(data: pa.Table | pa.RecordBatch, version: str | tuple[int, int] = (2, 2)) -> bytes:
    """Return a file of this package with the rows of a table. Each batch of the table is written as
    one batch.
    """
    if isinstance(version, str):
        major, minor = map(int, version.split("."))
        version = (major, minor)
    output = MemoryOutput()
    writer = FileWriter(output, Schema.from_arrow(data.schema), version)
    batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return output.data

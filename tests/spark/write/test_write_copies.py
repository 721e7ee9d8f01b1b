"""How often the bytes of a batch from Spark are copied on their way to the file, measured by
allocated memory.
"""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.spark.write import input as write_input
from lance_spark.spark.write.writer import LanceWriter
from lance_spark.table.commit.write import begin_write
from tests.support.spark.allocated import COUNTS_BYTES, counting

BATCH = 10_000


class Here:
    """Writes on the thread of the task, whose memory is counted."""

    def __init__(self, write: Callable[[pa.RecordBatch], None]) -> None:
        self.put = write

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def numbers(rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    return {"score": pa.array(rng.random(rows)), "price": pa.array(rng.random(rows, np.float32))}


def packed(rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    return {
        "id": pa.array(np.arange(rows)),
        "count": pa.array(rng.integers(0, 100_000, rows).astype(np.int32)),
    }


def nullable(rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    return {"maybe": pa.array(rng.integers(0, 2**40, rows), mask=rng.random(rows) < 0.1)}


def lists_of(items: pa.Array, lengths: np.ndarray) -> pa.Array:
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items.slice(0, int(offsets[-1])))


def vectors(rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    items = pa.array(rng.random(rows * 256, np.float32))
    return {"vector": lists_of(items, np.full(rows, 256))}


def lists(rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    items = pa.array(rng.integers(0, 1 << 20, rows * 20))
    return {"tags": lists_of(items, rng.integers(0, 20, rows))}


def strings(rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    # Values that cannot be compressed and are all different.
    ends = np.arange(rows + 1, dtype=np.int32) * 40
    data = pa.py_buffer(rng.bytes(rows * 40))
    return {"text": pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), data])}


def from_spark(batch: pa.RecordBatch) -> io.BytesIO:
    """The batches that a worker reads: messages of 10,000 rows, each with all columns."""
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        for start in range(0, batch.num_rows, BATCH):
            writer.write_batch(batch.slice(start, BATCH))
    stream.seek(0)
    return stream


#: Bytes taken for each byte of values. The batches of a page are joined once, whatever the type;
#: what the encoding makes of that, which is less, is put between the headers of chunks. One more
#: copy of the values anywhere is more than each bound.
CASES = [
    pytest.param(vectors, 40_000, 0.1, id="vectors: from the message to the file"),
    pytest.param(numbers, 2_000_000, 2.7, id="floats: joined, chunks"),
    pytest.param(packed, 2_000_000, 2.8, id="integers: joined, packed, chunks"),
    pytest.param(nullable, 2_000_000, 4.8, id="nulls: joined, filled, packed, levels, chunks"),
    pytest.param(strings, 500_000, 4.0, id="strings: joined, cut, chunks, lengths"),
    pytest.param(lists, 400_000, 7.4, id="lists: joined, packed, levels, chunks"),
]


@COUNTS_BYTES
@pytest.mark.parametrize(("make", "rows", "bound"), CASES)
def test_memory_used_for_each_byte(
    make: Callable[[int, np.random.Generator], dict[str, pa.Array]],
    rows: int,
    bound: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_input, "BackgroundWriter", Here)
    batch = pa.record_batch(make(rows, np.random.default_rng(7)))
    schema = batch.schema
    if make is vectors:
        schema = pa.schema([("vector", pa.list_(pa.float32(), 256))])
    writer = LanceWriter(begin_write(str(tmp_path / "t"), schema, mode="create"), schema.names)
    stream = from_spark(batch)
    with counting() as taken:
        message = writer.write(batches(stream))
    assert sum(fragment.physical_rows for fragment in message.fragments) == rows
    share = taken.total / batch.nbytes
    assert share <= bound, f"{taken.arrow:,} by Arrow, {taken.numpy:,} by numpy"


def batches(stream: io.BytesIO) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(stream) as reader:
        yield from reader


def test_no_batch_of_blobs_is_kept(tmp_path: Path) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    writer = LanceWriter(begin_write(str(tmp_path / "t"), pa.schema([blob]), mode="create"), ["b"])
    made: list[weakref.ref[np.ndarray]] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(5):
            # At most the one that is written, and the last.
            assert sum(each() is not None for each in made) <= 2
            data = np.ones(write_input.MAX_WAITING_BYTES, np.uint8)
            made.append(weakref.ref(data))
            edges = pa.py_buffer(np.array([0, len(data)], np.int32))
            buffers = [None, edges, pa.py_buffer(data)]
            del data
            yield pa.record_batch({"b": pa.Array.from_buffers(pa.binary(), 1, buffers)})

    assert sum(fragment.physical_rows for fragment in writer.write(rows()).fragments) == 5

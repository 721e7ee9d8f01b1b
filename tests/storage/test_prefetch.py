"""Parts of files that are fetched before they are read: the bytes equal the bytes of the file, for
any expectation.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.errors import CorruptFileError, StorageError
from lance_spark.storage import remote
from lance_spark.storage import remote as prefetch
from lance_spark.storage.remote import AheadSource, BufferRange, RemoteSource
from lance_spark.storage.retry import Retries
from lance_spark.storage.source import ByteRange
from tests.support.cells import number_of

GAP = 16
PART = 256
SIZE = 8000
CONTENT = np.random.default_rng(3).integers(0, 256, SIZE, np.uint8).tobytes()


class Store(LocalFileSystem):
    """One file, in memory."""

    protocol = "one"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []
        self.error: Exception | None = None
        self.held = threading.Event()
        self.held.set()
        self.under_way = 0

    def cat_file(self, path: str, start: Any = None, end: Any = None, **more: Any) -> bytes:
        self.ranges.append((start, end))
        self.under_way += 1
        self.held.wait(20)
        self.under_way -= 1
        if self.error is not None:
            raise self.error
        return CONTENT[start:end]


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in [
            (prefetch, "MAX_GAP", GAP),
            (remote, "MAX_GAP", GAP),
            (prefetch, "PART", PART),
        ]:
            patch.setattr(module, name, value)
        yield


def opened(io_threads: int = 3) -> tuple[AheadSource, RemoteSource, Store]:
    store = Store()
    source = RemoteSource(store, "f", "f", SIZE, io_threads=io_threads, retries=Retries(0, 0.0))
    return AheadSource(source), source, store


def part(buffer: ByteRange, first: float, last: float) -> BufferRange:
    offset, length = buffer
    return BufferRange(buffer, offset + int(length * first), offset + int(length * last))


def read(source: AheadSource, ranges: Sequence[ByteRange]) -> None:
    for place, data in zip(ranges, source.read(ranges), strict=True):
        assert data.tobytes() == CONTENT[place.offset : place.offset + place.length]


@given(st.data())
@settings(max_examples=number_of(32, 80), deadline=None)
def test_reads_are_right_for_any_expected_parts(data: st.DataObject) -> None:
    source, file, store = opened()
    in_memory = data.draw(st.integers(0, SIZE) | st.just(SIZE))
    if in_memory:
        file.keep_end(np.frombuffer(CONTENT[-in_memory:], np.uint8))
    edges = sorted(data.draw(st.sets(st.integers(0, SIZE), min_size=2, max_size=6)))
    buffers = [ByteRange(start, stop - start) for start, stop in itertools.pairwise(edges)]
    share = st.floats(0, 1)
    place = st.tuples(st.integers(0, SIZE), st.integers(0, 700)).map(
        lambda at: ByteRange(at[0], min(at[1], SIZE - at[0]))
    )
    try:
        waiting = 0
        for _ in range(data.draw(st.integers(1, 6))):
            several = data.draw(st.lists(st.tuples(st.sampled_from(buffers), share, share)))
            source.expect([part(buffer, *sorted(shares)) for buffer, *shares in several])
            waiting += 1
            for ranges in data.draw(st.lists(st.lists(place, max_size=4), max_size=3)):
                read(source, ranges)
            if data.draw(st.booleans()):
                source.finish()
                waiting -= 1
        for _ in range(waiting):
            source.finish()
        read(source, [ByteRange(0, SIZE)])
    finally:
        source.close()
    # A longer read may reach into the bytes in memory.
    assert in_memory < SIZE or not store.ranges


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=5), st.integers(1, 9), st.randoms())
@settings(max_examples=40, deadline=None)
def test_nothing_is_fetched_twice(lengths: list[int], steps: int, rng: Any) -> None:
    """Buffers are read completely in steps with other parts than expected. Chunks do not end at
    steps.
    """
    source, counted, store = opened()
    starts = [0, *itertools.accumulate(lengths)]
    buffers = [
        ByteRange(start, min(length, SIZE - start))
        for start, length in zip(starts, lengths, strict=False)
        if start < SIZE
    ]
    cuts = {buffer: sorted(rng.random() for _ in range(steps - 1)) for buffer in buffers}
    bounds = {buffer: [0.0, *cuts[buffer], 1.0] for buffer in buffers}

    def expect(step: int) -> int:
        return source.expect([part(buffer, step / steps, (step + 1) / steps) for buffer in buffers])

    try:
        fetched = expect(0)
        for step in range(steps):
            if step + 1 < steps:
                fetched += expect(step + 1)
            taken = [part(buffer, *bounds[buffer][step : step + 2]) for buffer in buffers]
            # A chunk may have rows of two steps.
            shared = [
                (max(start - GAP // 2, byte_range.offset), stop)
                for byte_range, start, stop in taken
            ]
            read(source, [ByteRange(start, stop - start) for start, stop in shared])
            source.finish()
    finally:
        source.close()
    total = sum(length for _, length in buffers)
    assert sum(stop - start for start, stop in store.ranges) == counted.counts.bytes == total
    assert len(store.ranges) == counted.counts.reads
    assert fetched <= total


def test_requests_keep_to_a_number_and_a_length() -> None:
    source, _, store = opened(io_threads=3)
    store.held.clear()
    buffer = ByteRange(0, SIZE)
    assert source.expect([BufferRange(buffer, 0, SIZE)]) == SIZE
    for _ in range(200):
        if len(store.ranges) == 3:
            break
        threading.Event().wait(0.01)
    threading.Event().wait(0.05)
    assert len(store.ranges) == 3
    store.held.set()
    read(source, [buffer])
    source.close()
    assert len(store.ranges) == SIZE // PART
    assert {stop - start for start, stop in store.ranges} <= set(range(PART, 2 * PART))


def test_waiting_requests_are_not_sent_after_close() -> None:
    source, _, store = opened(io_threads=2)
    store.held.clear()
    source.expect([BufferRange(ByteRange(0, SIZE), 0, SIZE)])
    for _ in range(200):
        if store.under_way == 2:
            break
        threading.Event().wait(0.01)
    closing = threading.Thread(target=source.close)
    closing.start()
    # It waits for the two running requests.
    closing.join(0.1)
    assert closing.is_alive()
    store.held.set()
    closing.join(20)
    assert not closing.is_alive()
    assert (len(store.ranges), store.under_way) == (2, 0)


def test_errors_of_prefetched_parts_are_raised_by_the_read() -> None:
    source, _, store = opened(io_threads=1)
    buffer = ByteRange(0, 1000)
    source.expect([BufferRange(buffer, 0, 200)])
    read(source, [ByteRange(0, 200)])
    store.error = PermissionError("no")
    source.expect([BufferRange(buffer, 200, 1000)])
    before = len(store.ranges)
    for _ in range(2):
        with pytest.raises(StorageError, match="f: permission denied"):
            source.read([ByteRange(300, 700)])
    # The later parts were not tried.
    source.close()
    assert len(store.ranges) <= before + 1


def test_a_file_that_ends_early() -> None:
    store = Store()
    source = AheadSource(RemoteSource(store, "f", "f", SIZE + 100, retries=Retries(0, 0.0)))
    source.expect([BufferRange(ByteRange(SIZE - 100, 200), SIZE - 100, SIZE + 100)])
    with pytest.raises(CorruptFileError, match="f: the store returned 100 of the 200 bytes"):
        source.read([ByteRange(SIZE - 50, 100)])
    source.close()

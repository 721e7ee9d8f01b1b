"""Batches are held until their rows make a page, and no more of them than that is worth."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.file.page_buffer import BorrowedBatches, PageBuffer


def message(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return a batch as it is read from a stream: all of its columns lie in one piece of memory."""
    batch = pa.record_batch(columns)
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    stream.seek(0)
    with pa.ipc.open_stream(stream) as reader:
        return reader.read_next_batch()


def wide_and_narrow(step: int) -> pa.RecordBatch:
    rows = np.arange(step * 100, step * 100 + 100)
    flags = pa.array([None if row % 7 == 0 else bool(row % 3) for row in rows.tolist()])
    return message(
        {
            "flag": flags,
            "id": pa.array(rows),
            "text": pa.array([f"{row}" * 20 for row in rows.tolist()]),
            "tags": pa.array([list(range(row % 5)) for row in rows.tolist()]),
        }
    )


@pytest.mark.parametrize("page_bytes", [2_000, 20_000, 200_000])
def test_rows_stay_in_order_and_memory_is_bounded(page_bytes: int) -> None:
    waiting = [PageBuffer(page_bytes) for _ in range(4)]
    pages: list[list[pa.Array]] = [[] for _ in waiting]
    loans = BorrowedBatches(waiting, page_bytes)
    batches = [wide_and_narrow(step) for step in range(200)]
    most = 0
    for batch in batches:
        loan = loans.open(batch.columns)
        for column, array, made in zip(waiting, batch.columns, pages, strict=True):
            if column.add(array, loan):
                made.extend(column.take())
        loans.settle()
        most = max(most, loans.held_bytes)
        assert loans.held_bytes <= sum(column.lent_bytes for column in waiting) + 4 * page_bytes
    # Batches that fill pages at once are not held at all.
    assert (most > 0) == (page_bytes > 2_000)
    table = pa.Table.from_batches(batches)
    for column, made, expected in zip(waiting, pages, table.columns, strict=True):
        made.extend(column.take())
        assert pa.chunked_array(made).equals(expected)
    loans.settle()
    assert loans.held_bytes == 0


def test_rows_that_wait_are_not_copied() -> None:
    waiting = PageBuffer(1_000_000)
    loans = BorrowedBatches([waiting], 1_000_000)
    rows = pa.array(np.arange(10_000))
    batch = pa.record_batch({"id": rows})
    before = pa.default_memory_pool().total_bytes_allocated()
    for _ in range(12):
        assert not waiting.add(rows, loans.open(batch.columns))
        loans.settle()
    # To measure an array takes some memory, too.
    assert pa.default_memory_pool().total_bytes_allocated() - before < rows.nbytes
    assert waiting.add(rows, loans.open(batch.columns))
    (page,) = waiting.take()
    assert len(page) == 130_000
    taken = pa.default_memory_pool().total_bytes_allocated() - before
    assert page.nbytes <= taken < page.nbytes + rows.nbytes


def test_a_few_rows_of_a_large_batch_do_not_hold_it() -> None:
    loans = BorrowedBatches([PageBuffer(1_000_000)], 1_000_000)
    large = pa.record_batch({"id": np.arange(10_000)})
    assert loans.open(large.slice(500, 100).columns) is None
    assert loans.open(large.slice(500, 9_000).columns) is not None


def test_a_narrow_column_does_not_hold_what_a_wide_one_has_written() -> None:
    wide, narrow = PageBuffer(50_000), PageBuffer(50_000)
    loans = BorrowedBatches([wide, narrow], 50_000)
    for _ in range(3):
        batch = message({"wide": pa.array(["x" * 100] * 1_000), "narrow": pa.array([1] * 1_000)})
        loan = loans.open(batch.columns)
        assert wide.add(batch.column(0), loan)
        assert not narrow.add(batch.column(1), loan)
        wide.take()
        loans.settle()
        assert loans.held_bytes == 0
        del batch
    assert narrow.take() == [pa.array([1] * 3_000)]


def test_tiny_batches_are_few_objects() -> None:
    waiting = PageBuffer(1_000_000)
    loans = BorrowedBatches([waiting], 1_000_000)
    for step in range(5_000):
        batch = pa.record_batch({"id": pa.array([step])})
        assert not waiting.add(batch.column(0), loans.open(batch.columns))
        loans.settle()
        assert len(waiting._lent) + sum(map(len, waiting._levels)) < 1_200
    (page,) = waiting.take()
    assert page.to_pylist() == list(range(5_000))

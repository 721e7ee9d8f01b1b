from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.file import page_buffer
from lance_spark.file.page_buffer import BorrowedBatches, PageBuffer, cut, dictionaries, value_bytes
from tests.support.spark.allocated import COUNTS_BYTES


def words(count: int, rows: int) -> pa.DictionaryArray:
    codes = pa.array(np.arange(rows) % count, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array([f"word {i}" * 20 for i in range(count)]))


def nested(array: pa.Array) -> list[pa.Array]:
    n = len(array)
    offsets = pa.array(np.arange(n + 1), pa.int32())
    return [
        array,
        pa.StructArray.from_arrays([array, pa.nulls(n)], ["d", "n"]),
        pa.ListArray.from_arrays(offsets, array),
        pa.FixedSizeListArray.from_arrays(array, 1),
        pa.MapArray.from_arrays(offsets, pa.array(np.arange(n)), array),
    ]


@pytest.mark.parametrize("depth", range(5))
def test_a_dictionary_larger_than_a_page_does_not_cut_pages(depth) -> None:
    array = nested(words(1000, 5000))[depth]
    page = 64 * 1024
    assert sum(d.nbytes for d in dictionaries(array)) > 2 * page
    assert value_bytes(array) < 2 * page
    assert len(list(cut(array, page))) <= 2


@pytest.mark.parametrize("depth", range(5))
def test_a_shared_dictionary_counts_once(depth) -> None:
    array = nested(words(1000, 5000))[depth]
    rows = PageBuffer(300_000)
    assert not any(rows.add(array.slice(start, 50)) for start in range(0, 5000, 50))
    second_buffer = PageBuffer(300_000)
    assert any(second_buffer.add(nested(words(1000, 50))[depth]) for _ in range(3))


def test_slices_are_measured_as_slices() -> None:
    array = pa.array(["x" * 1000] * 1000)
    assert value_bytes(array.slice(10, 5)) < 6000
    parts = nested(words(10, 1000))
    for whole in parts:
        assert value_bytes(whole.slice(500, 10)) < value_bytes(whole) / 50


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 4096, 5000])
def test_rows_of_tiny_batches_stay_in_order_and_are_few_objects(rows) -> None:
    waiting = PageBuffer(10**9)
    for i in range(rows):
        assert not waiting.add(pa.array([i]))
        assert sum(map(len, waiting._levels)) <= 64 * len(waiting._levels) <= 64 * 3
    (page,) = waiting.take()
    assert page.to_pylist() == list(range(rows))
    assert waiting.take() == []


def test_dictionaries_that_cannot_be_joined_stay_in_order() -> None:
    dtype = pa.dictionary(pa.int8(), pa.string())
    waiting = PageBuffer(10**9)
    expected = []
    for start in range(0, 100 * 100, 100):
        texts = [f"{start + i}" for i in range(100)]
        expected += texts
        waiting.add(pa.array(texts).dictionary_encode().cast(dtype))
    assert [text for page in waiting.take() for text in page.to_pylist()] == expected


def test_rows_without_bytes_make_pages_too(monkeypatch) -> None:
    monkeypatch.setattr(page_buffer, "MAX_PAGE_ROWS", 1000)
    waiting = PageBuffer(10**9)
    assert not waiting.add(pa.nulls(999))
    assert waiting.add(pa.nulls(1500))
    assert [len(page) for page in waiting.take()] == [833, 833, 833]


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
    # Batches that fill pages at once are not kept.
    assert (most > 0) == (page_bytes > 2_000)
    table = pa.Table.from_batches(batches)
    for column, made, expected in zip(waiting, pages, table.columns, strict=True):
        made.extend(column.take())
        assert pa.chunked_array(made).equals(expected)
    loans.settle()
    assert loans.held_bytes == 0


@COUNTS_BYTES
def test_rows_that_wait_are_not_copied() -> None:
    waiting = PageBuffer(1_000_000)
    loans = BorrowedBatches([waiting], 1_000_000)
    rows = pa.array(np.arange(10_000))
    batch = pa.record_batch({"id": rows})
    before = pa.default_memory_pool().total_bytes_allocated()
    for _ in range(12):
        assert not waiting.add(rows, loans.open(batch.columns))
        loans.settle()
    # The measurement of an array takes some memory, too.
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

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.file import page_buffer
from lance_spark.file.page_buffer import PageBuffer, cut, dictionaries, value_bytes


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
    other = PageBuffer(300_000)
    assert any(other.add(nested(words(1000, 50))[depth]) for _ in range(3))


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
    kind = pa.dictionary(pa.int8(), pa.string())
    waiting = PageBuffer(10**9)
    expected = []
    for start in range(0, 100 * 100, 100):
        texts = [f"{start + i}" for i in range(100)]
        expected += texts
        waiting.add(pa.array(texts).dictionary_encode().cast(kind))
    assert [text for page in waiting.take() for text in page.to_pylist()] == expected


def test_rows_without_bytes_make_pages_too(monkeypatch) -> None:
    monkeypatch.setattr(page_buffer, "MAX_PAGE_ROWS", 1000)
    waiting = PageBuffer(10**9)
    assert not waiting.add(pa.nulls(999))
    assert waiting.add(pa.nulls(1500))
    assert [len(page) for page in waiting.take()] == [833, 833, 833]

"""Rows that are far from alike: lists over many chunks and pages, long runs of null and empty
lists, wide values in lists.

Every table is read whole, in batches and by position, written by pylance and by us.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from tests.support.interop.tables import assert_same, build, with_nulls


def lists(lengths: np.ndarray, items: pa.Array, nulls: np.ndarray | None = None) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    array = pa.ListArray.from_arrays(pa.array(offsets), items.slice(0, int(offsets[-1])))
    return array if nulls is None else with_nulls(array, nulls)


def numbers(count: int, dtype: pa.DataType | None = None, nulls: float = 0.0) -> pa.Array:
    rng = np.random.default_rng(count)
    return build(dtype or pa.int32(), rng.integers(0, 1 << 30, count), nulls, rng)


def many_rows() -> pa.Array:
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 4, 300_000)
    return lists(lengths, numbers(int(lengths.sum()), pa.int64(), 0.1), rng.random(300_000) < 0.1)


def one_long_row() -> pa.Array:
    lengths = np.array([2, 0, 100_000, 1, 0, 3, 70_001, 5])
    nulls = np.array([False, True, False, False, False, False, False, False])
    return lists(lengths, numbers(int(lengths.sum()), pa.string(), 0.1), nulls)


def rows_over_chunks() -> pa.Array:
    rng = np.random.default_rng(2)
    lengths = rng.choice([0, 1, 4_000, 9_000, 20_000], 200)
    return lists(lengths, numbers(int(lengths.sum()), pa.int64()))


def sparse() -> pa.Array:
    """Return values, then 200,000 null or empty lists, then values."""
    lengths = np.concatenate(
        [[3, 2], np.zeros(200_000, np.int64), [1, 4], np.zeros(70_000, np.int64)]
    )
    nulls = (lengths == 0) & (np.arange(len(lengths)) % 3 != 0)
    return lists(lengths, numbers(10), nulls)


def sparse_inside() -> pa.Array:
    """Return a row of 200,000 null and empty lists with few items, among other rows."""
    inner = np.zeros(200_010, np.int64)
    inner[::40_000] = 2
    nulls = (inner == 0) & (np.arange(len(inner)) % 2 == 0)
    outer = np.array([4, 200_000, 0, 6])
    return lists(outer, lists(inner, numbers(20), nulls))


def vectors_in_lists() -> pa.Array:
    """Full-zip with lists: a row of 5,000 vectors, empty and null lists."""
    rng = np.random.default_rng(3)
    lengths = np.concatenate([rng.integers(0, 4, 500), [5_000], rng.integers(0, 4, 500)])
    items = build(pa.list_(pa.float32(), 96), rng.integers(0, 99, int(lengths.sum())), 0.0, rng)
    items = with_nulls(items, rng.random(len(items)) < 0.2)
    return lists(lengths, items, rng.random(len(lengths)) < 0.2)


def vectors_in_nested_lists() -> pa.Array:
    """Full-zip with lists of lists: a row of 60,000 null and empty lists between vectors."""
    rng = np.random.default_rng(4)
    inner = np.zeros(61_000, np.int64)
    inner[rng.integers(0, 61_000, 2_000)] = 1
    items = build(pa.list_(pa.int64(), 40), rng.integers(0, 99, int(inner.sum())), 0.0, rng)
    middle = lists(inner, items, rng.random(61_000) < 0.3)
    outer = np.concatenate([rng.integers(0, 3, 400), [60_000], rng.integers(0, 2, 100)])
    return lists(outer, middle, rng.random(len(outer)) < 0.2)


def long_strings_in_lists() -> pa.Array:
    rng = np.random.default_rng(5)
    inner = rng.integers(0, 3, 3_000)
    items = build(pa.string(), rng.integers(0, 1 << 40, int(inner.sum())), 0.2, rng, long=True)
    return lists(np.array([1_000, 0, 7, 1_500, 3]), lists(inner, items, rng.random(3_000) < 0.2))


def null_items() -> pa.Array:
    rng = np.random.default_rng(6)
    items = numbers(20_000 * 7, pa.float32(), 0.3)
    return with_nulls(pa.FixedSizeListArray.from_arrays(items, 7), rng.random(20_000) < 0.1)


def wide_null_items() -> pa.Array:
    rng = np.random.default_rng(7)
    items = numbers(2_000 * 100, pa.float64(), 0.3)
    return with_nulls(pa.FixedSizeListArray.from_arrays(items, 100), rng.random(2_000) < 0.1)


def vectors_of_structs() -> pa.Array:
    rng = np.random.default_rng(8)
    dtype = pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]), 3)
    items = build(dtype.value_type, rng.integers(0, 1 << 20, 30_000), 0.0, rng)
    return pa.FixedSizeListArray.from_arrays(items, type=dtype)


#: The versions that can store each case.
CASES: dict[Callable[[], pa.Array], list[str]] = {
    many_rows: ["2.0", "2.1", "2.2"],
    one_long_row: ["2.0", "2.1", "2.2"],
    rows_over_chunks: ["2.1", "2.2"],
    sparse: ["2.0", "2.1", "2.2"],
    sparse_inside: ["2.1", "2.2"],
    vectors_in_lists: ["2.1", "2.2"],
    vectors_in_nested_lists: ["2.1", "2.2"],
    long_strings_in_lists: ["2.1", "2.2"],
    null_items: ["2.1", "2.2"],
    wide_null_items: ["2.1", "2.2"],
    vectors_of_structs: ["2.2"],
}
PAIRS = [(case, version) for case, versions in CASES.items() for version in versions]
NAMES = [f"{case.__name__}-{version}" for case, version in PAIRS]


def check(path: Path, expected: pa.Table) -> None:
    dataset = lance_spark.open_dataset(str(path))
    assert_same(dataset.to_table(), expected)
    count = expected.num_rows
    rng = np.random.default_rng(count)
    for rows in (
        np.unique(np.concatenate([[0, count - 1, count // 2], rng.integers(0, count, 50)])),
        rng.integers(0, count, 5),
        np.arange(count // 4, min(count, count // 4 + 70_000)),
    ):
        assert_same(dataset.take(rows), expected.take(pa.array(rows)), f"take of {len(rows)}")
    size = max(1, count // 7)
    batches = list(dataset.to_batches(batch_size=size))
    assert max(batch.num_rows for batch in batches) <= size
    assert_same(pa.Table.from_batches(batches), expected, "batches")


@pytest.mark.sample(5)
@pytest.mark.parametrize(("case", "version"), PAIRS, ids=NAMES)
def test_pylance_wrote(tmp_path: Path, case: Callable[[], pa.Array], version: str) -> None:
    table = pa.table({"c": case()})
    path = tmp_path / "t.lance"
    lance.write_dataset(table, str(path), data_storage_version=version)
    check(path, lance.dataset(str(path)).to_table() if version == "2.0" else table)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("case", "version"),
    [pair for pair in PAIRS if pair[1] != "2.0"],
    ids=[name for name in NAMES if not name.endswith("2.0")],
)
def test_pylance_reads_written_large_rows(
    tmp_path: Path, case: Callable[[], pa.Array], version: str
) -> None:
    table = pa.table({"c": case()})
    path = tmp_path / "t.lance"
    lance_spark.write_dataset(table, str(path), data_storage_version=version)
    theirs = lance.dataset(str(path))
    assert_same(theirs.to_table(), table, "pylance")
    rows = np.unique(np.random.default_rng(1).integers(0, table.num_rows, 20))
    assert_same(theirs.take(rows.tolist()), table.take(pa.array(rows)), "pylance takes")
    check(path, table)


def dictionaries() -> pa.ChunkedArray:
    """Return dictionary arrays of several pages, each with a dictionary of its own."""
    rng = np.random.default_rng(9)
    dtype = pa.dictionary(pa.int32(), pa.string())
    chunks = []
    for part in range(6):
        items = pa.array([f"part {part}, word {i}" for i in range(50 + part)])
        places = pa.array(rng.integers(0, 50, 20_000), pa.int32(), mask=rng.random(20_000) < 0.1)
        chunks.append(pa.DictionaryArray.from_arrays(places, items).cast(dtype))
    return pa.chunked_array(chunks)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("writer", ["pylance", "we"])
def test_dictionaries(tmp_path: Path, writer: str, version: str) -> None:
    if (writer, version) == ("we", "2.0"):
        pytest.skip("not written")
    table = pa.table({"c": dictionaries()})
    path = tmp_path / "t.lance"
    if writer == "we":
        lance_spark.write_dataset(table, str(path), data_storage_version=version)
    else:
        lance.write_dataset(table, str(path), data_storage_version=version)
    plain = table["c"].cast(pa.string())
    assert lance.dataset(str(path)).to_table()["c"].cast(pa.string()).equals(plain)
    dataset = lance_spark.open_dataset(str(path))
    assert dataset.schema == table.schema
    assert dataset.to_table()["c"].cast(pa.string()).equals(plain)
    rows = np.random.default_rng(2).integers(0, len(plain), 500)
    assert dataset.take(rows)["c"].cast(pa.string()).equals(plain.take(pa.array(rows)))

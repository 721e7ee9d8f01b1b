"""Searches of a BTREE: the answers of a scan, from a part of the index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.encoding.rows import RowRanges
from lance_spark.indexes import cache
from lance_spark.indexes.btree import search

ROWS, PAGE = 12_000, 256


def integers(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers // 3, mask=numbers % 7 == 0)


def floats(numbers: np.ndarray) -> pa.Array:
    values = np.where(numbers % 5 == 0, np.nan, numbers / 4 - 900)
    values[numbers % 97 == 1] = -0.0
    return pa.array(values, mask=numbers % 11 == 0)


def strings(numbers: np.ndarray) -> pa.Array:
    return pa.array([None if n % 13 == 0 else f"w{n // 2:05}" for n in numbers.tolist()])


def repeated(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers // 2_000)


VALUES: dict[str, tuple[Callable[[np.ndarray], pa.Array], Callable[[int], str]]] = {
    "integers": (integers, str),
    "floats": (floats, lambda n: f"{n / 4 - 900}D"),
    "strings": (strings, lambda n: f"'w{n:05}'"),
    "repeated": (repeated, lambda n: str(n // 800)),
}


@pytest.mark.parametrize("name", VALUES)
def test_answers_are_those_of_a_scan(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_FEW_ROWS", 64)
    monkeypatch.setattr(search, "_FEW_PAGES", 2)
    make, literal = VALUES[name]
    rng = np.random.default_rng(3)
    numbers = rng.permutation(ROWS)
    rows = pa.table({"id": numbers, "v": make(numbers)})
    dataset = lance_spark.write_dataset(rows, str(tmp_path), max_rows_per_file=ROWS // 3)
    dataset = dataset.create_scalar_index("v", "BTREE", zone_size=PAGE)
    dataset = dataset.delete("id % 29 = 2")
    some = [literal(int(n)) for n in rng.choice(ROWS // 3, 300, replace=False)]
    near = [literal(n) for n in range(500, 560)]
    conditions = [
        f"v IN ({', '.join(some)})",
        f"v IN ({', '.join(near)})",
        f"v IN ({', '.join([*near, *some[:5], literal(ROWS * 2)])})",
        f"v = {literal(700)}",
        f"v >= {literal(300)} AND v < {literal(1_500)}",
        f"v > {literal(300)} AND v <= {literal(301)}",
        f"v < {literal(400)}",
        f"v >= {literal(ROWS // 3 - 300)}",
        "v IS NULL",
        "v IS NOT NULL AND id < 100",
    ]
    for condition in conditions:
        expected = dataset.to_table(filter=condition, use_scalar_index=False)
        result = dataset.to_table(filter=condition)
        # As text, in which NaN equals NaN.
        assert str(result.to_pydict()) == str(expected.to_pydict()), condition
        text = dataset.explain(filter=condition)
        assert "index: v_idx (BTREE)" in text or not len(expected), condition


def test_a_range_reads_the_values_of_its_first_and_last_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"v": np.random.default_rng(3).permutation(ROWS)})
    dataset = lance_spark.write_dataset(rows, str(tmp_path))
    dataset = dataset.create_scalar_index("v", "BTREE", zone_size=PAGE)
    compared: list[int] = []
    matching = search.matching

    def counted(values: pa.Array, op: str, sides: Any) -> pa.BooleanArray:
        compared.append(len(values))
        return matching(values, op, sides)

    monkeypatch.setattr(search, "matching", counted)
    assert dataset.to_table(filter="v >= 1000 AND v < 5000").num_rows == 4_000
    assert compared == [PAGE, PAGE]


@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "LABEL_LIST", "NGRAM", "ZONEMAP"])
def test_a_query_of_an_unchanged_table_opens_nothing_twice(
    index_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = np.arange(4_000)
    column = {
        "LABEL_LIST": pa.array([[n % 500, n % 7] for n in numbers.tolist()]),
        "NGRAM": pa.array([f"text {n:05}" for n in numbers.tolist()]),
    }.get(index_type, pa.array(numbers // 2))
    condition = {"LABEL_LIST": "array_contains(v, 77)", "NGRAM": "contains(v, '00777')"}.get(
        index_type, "v = 77"
    )
    rows = pa.table({"v": column, "w": numbers})
    dataset = lance_spark.write_dataset(rows, str(tmp_path), max_rows_per_file=2_000)
    options = {"rows_per_zone": 256} if index_type == "ZONEMAP" else {}
    dataset = dataset.create_scalar_index("v", index_type, **options).delete("w = 156")
    cache.CACHE.clear()
    opened: list[str] = []
    store = type(dataset._table.store)
    for name in ("open", "read_bytes"):
        method = getattr(store, name)

        def counted(
            self: Any, path: str, *arguments: Any, _method: Any = method, **options: Any
        ) -> Any:
            opened.append(path)
            return _method(self, path, *arguments, **options)

        monkeypatch.setattr(store, name, counted)
    dataset = lance_spark.open_dataset(str(tmp_path))
    first = dataset.to_table(filter=condition)
    assert first.num_rows
    assert any("_indices" in path for path in opened)
    assert len(set(opened)) == len(opened), opened
    opened.clear()
    assert dataset.to_table(filter=condition).equals(first)
    assert opened == []
    # Another handle of the version reads the manifest and data files again, but no index.
    again = lance_spark.open_dataset(str(tmp_path))
    assert again.to_table(filter=condition).equals(first)
    assert not any("_indices" in path for path in opened)


def test_an_index_that_leaves_rows_everywhere_is_not_used(tmp_path: Path) -> None:
    count = 400_000
    numbers = np.random.default_rng(7).permutation(count)
    rows = pa.table({"v": numbers, "sorted": np.arange(count)})
    dataset = lance_spark.write_dataset(rows, str(tmp_path))
    dataset = dataset.create_scalar_index("v", "BTREE").create_scalar_index("sorted", "BTREE")
    for condition, is_used in (
        ("v < 16000", True),
        ("v < 17000", False),
        ("sorted < 60000", True),
        ("v < 17000 AND sorted < 1000", True),
    ):
        assert ("index: " in dataset.explain(filter=condition)) == is_used, condition
        result = dataset.to_table(filter=condition)
        expected = dataset.to_table(filter=condition, use_scalar_index=False)
        assert result.equals(expected), condition


def test_ranges_count_the_chunks_that_they_touch() -> None:
    ranges = RowRanges.of(
        [range(5, 7), range(900, 1_030), range(2_047, 2_048), range(9_000, 9_001)]
    )
    assert ranges.num_decoded == 3 * 1024
    assert ranges.span == 8_996
    assert ranges.numbers().tolist() == [5, 6, *range(900, 1_030), 2_047, 9_000]
    for rows in (range(20_000), range(901, 9_000), range(7, 10)):
        assert np.flatnonzero(ranges.mask(rows)).tolist() == [
            n - rows.start for n in ranges.numbers().tolist() if n in rows
        ]

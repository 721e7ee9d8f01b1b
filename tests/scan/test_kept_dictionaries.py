"""Scans that keep the dictionaries of strings return the values that pylance reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.scan.task import with_dictionaries

ROWS = 20_000


def words(first: int, rows: int, distinct: int, *, nulls: bool = False) -> pa.Array:
    numbers = np.arange(first, first + rows)
    texts = [f"a word of some length, number {number % distinct}" for number in numbers]
    return pa.array(texts, mask=numbers % 11 == 4 if nulls else None)


def scanned(path: Path, **options: Any) -> tuple[pa.Table, set[bool]]:
    """Return the rows, and whether the batches had dictionaries of the column `word`."""
    dataset = open_dataset(str(path))
    tables, kept = [], set()
    schema = None
    for task in dataset.plan(**options):
        schema = task.schema
        for batch in with_dictionaries(task).batches():
            batch.validate(full=True)
            kept.add(pa.types.is_dictionary(batch.schema.field("word").type))
            tables.append(pa.table(batch).cast(schema))
    assert schema is not None
    return pa.concat_tables(tables), kept


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.binary()], ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_values(tmp_path: Path, version: str, dtype: pa.DataType, nulls: bool) -> None:
    table = pa.table({"id": np.arange(ROWS), "word": words(0, ROWS, 50, nulls=nulls).cast(dtype)})
    lance.write_dataset(table, tmp_path, data_storage_version=version)
    rows, kept = scanned(tmp_path)
    assert rows.equals(lance.dataset(tmp_path).to_table().cast(rows.schema))
    assert kept == {version != "2.0"}


def test_pages_of_which_some_have_a_dictionary(tmp_path: Path) -> None:
    parts = [words(0, 200_000, 20), words(0, 150_000, 150_000), words(7, 200_000, 30)]
    table = pa.table({"word": pa.concat_arrays(parts)})
    lance.write_dataset(table, tmp_path)
    rows, kept = scanned(tmp_path)
    assert rows.equals(table)
    # One window has all pages, and their values are one array.
    assert kept == {False}


def test_many_items_are_not_kept(tmp_path: Path) -> None:
    table = pa.table({"word": words(0, 200_000, 10_000)})
    lance.write_dataset(table, tmp_path)
    rows, kept = scanned(tmp_path)
    assert rows.equals(table)
    assert kept == {False}


def test_small_fragments_that_are_read_together(tmp_path: Path) -> None:
    for part in range(8):
        table = pa.table({"id": np.arange(2_000), "word": words(part, 2_000, 5 + part)})
        lance.write_dataset(table, tmp_path, mode="append")
    lance.dataset(tmp_path).delete("id % 9 = 2")
    rows, kept = scanned(tmp_path)
    assert rows.equals(lance.dataset(tmp_path).to_table())
    assert True in kept


@pytest.mark.parametrize(
    ("condition", "keeps"),
    [
        ("id % 3 = 1", True),
        ("word LIKE '%7'", True),
        ("word LIKE '%7' AND id < 100", False),
        ("id < 5", True),
    ],
)
def test_filters(tmp_path: Path, condition: str, keeps: bool) -> None:
    """A column that a filter has read keeps its dictionary, unless few of its rows are left."""
    table = pa.table({"id": np.arange(ROWS), "word": words(0, ROWS, 50, nulls=True)})
    lance.write_dataset(table, tmp_path, max_rows_per_file=ROWS // 2)
    lance.dataset(tmp_path).delete("id % 7 = 3")
    rows, kept = scanned(tmp_path, filter=condition)
    assert rows.equals(lance.dataset(tmp_path).to_table(filter=condition))
    assert kept == {keeps}


def test_columns_that_were_added_or_are_nested(tmp_path: Path) -> None:
    """A column that a fragment lacks is null, and children of structs are plain."""
    first = pa.table({"id": np.arange(ROWS)})
    lance.write_dataset(first, tmp_path)
    children = pa.StructArray.from_arrays([words(0, ROWS, 9)], ["inner"])
    more = pa.table({"id": np.arange(ROWS), "word": words(0, ROWS, 9), "s": children})
    dataset = lance.dataset(tmp_path)
    dataset.add_columns({"word": "cast(null as string)"})
    dataset.add_columns(pa.schema([pa.field("s", more.schema.field("s").type)]))
    lance.write_dataset(more, tmp_path, mode="append")
    rows, _ = scanned(tmp_path)
    assert rows.equals(lance.dataset(tmp_path).to_table().select(rows.column_names))


@pytest.mark.sample(5)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize(
    "condition",
    [
        "word = 'a word of some length, number 7'",
        "word <> 'a word of some length, number 7'",
        "word IN ('a word of some length, number 7', 'none')",
        "word NOT IN ('a word of some length, number 7', 'none')",
        "word LIKE '%1_' OR id < 100",
        "NOT (word LIKE '%1_' AND id > 100)",
        "word > 'a word of some length, number 3' AND id % 2 = 1",
        "word IS NULL",
        "word IS NOT NULL AND word < other",
        "word = other OR word IS NULL",
    ],
)
def test_filters_evaluate_the_values_of_dictionaries(
    tmp_path: Path, version: str, condition: str
) -> None:
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "word": words(0, ROWS, 40, nulls=True),
            "other": words(3, ROWS, 30),
        }
    )
    lance.write_dataset(table, tmp_path, data_storage_version=version, max_rows_per_file=7_000)
    lance.dataset(tmp_path).delete("id % 9 = 2")
    expected = lance.dataset(tmp_path).to_table(filter=condition)
    assert 0 < len(expected) < ROWS * 8 // 9
    dataset = open_dataset(str(tmp_path))
    for columns in (["id", "word", "other"], ["id"], ["word"]):
        batches = [
            batch for task in dataset.plan(columns, filter=condition) for batch in task.batches()
        ]
        assert pa.Table.from_batches(batches).equals(expected.select(columns))

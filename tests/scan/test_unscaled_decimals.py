"""Scans that return the unscaled values of decimals have the values that pylance reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.encoding.blocks import from_unscaled
from lance_spark.scan.task import with_unscaled

ROWS = 20_000
MONEY = pa.decimal128(12, 2)


def decimals(first: int, values: np.ndarray, *, nulls: bool = False) -> pa.Array:
    array = from_unscaled(pa.array(values.astype(np.int64)), MONEY)
    mask = np.arange(first, first + len(values)) % 11 == 4
    return pa.array(array.to_pylist(), MONEY, mask=mask) if nulls else array


def table(first: int, rows: int, *, nulls: bool = False) -> pa.Table:
    numbers = np.arange(first, first + rows)
    mixed = numbers * 7919 % 1_000_003
    columns = {
        "prices": mixed,
        "signs": np.where(numbers % 3 == 1, -mixed, mixed),
        "large": mixed + (1 << 38),
        "few": numbers * 7 % 5 * 10**10,
        "noise": mixed * 10_007 % (1 << 39) * (1 - numbers % 2 * 2),
        "one": np.full(rows, -5),
    }
    arrays = {name: decimals(first, values, nulls=nulls) for name, values in columns.items()}
    wide = pa.array([int(number) for number in mixed]).cast(pa.decimal128(30, 2))
    return pa.table({"id": numbers, **arrays, "wide": wide})


def scanned(path: Path, **options: Any) -> tuple[pa.Table, set[str]]:
    """Return the rows, and the columns that some batches had unscaled."""
    batches, unscaled = [], set()
    schema = None
    for task in open_dataset(str(path)).plan(**options):
        schema = task.schema
        for batch in with_unscaled(task).batches():
            batch.validate(full=True)
            columns = []
            for field, column in zip(schema, batch.columns, strict=True):
                is_unscaled = column.type == pa.int64() and field.name != "id"
                unscaled |= {field.name} if is_unscaled else set()
                columns.append(from_unscaled(column, field.type) if is_unscaled else column)
            batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    assert schema is not None
    return pa.Table.from_batches(batches, schema), unscaled


EVERY = {"prices", "signs", "large", "few", "noise", "one"}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("by_pylance", [True, False])
@pytest.mark.parametrize("nulls", [False, True])
def test_values(tmp_path: Path, version: str, by_pylance: bool, nulls: bool) -> None:
    rows = table(0, ROWS, nulls=nulls)
    if by_pylance:
        lance.write_dataset(rows, tmp_path, data_storage_version=version)
    else:
        import lance_spark

        lance_spark.write_dataset(rows, str(tmp_path), data_storage_version=version)
    found, unscaled = scanned(tmp_path)
    assert found.equals(rows.cast(found.schema))
    assert unscaled == (set() if version == "2.0" else EVERY)


def test_rows_that_are_left(tmp_path: Path) -> None:
    """Filters, deletions, small fragments and fragments without the column."""
    lance.write_dataset(table(0, ROWS).select(["id"]), tmp_path)
    dataset = lance.dataset(tmp_path)
    dataset.add_columns(table(0, 1).schema.remove(0))
    for first in (0, ROWS, 2 * ROWS):
        lance.write_dataset(table(first, ROWS - first // 3, nulls=True), tmp_path, mode="append")
    dataset = lance.dataset(tmp_path)
    dataset.delete("id % 9 = 2")
    for condition in (
        None,
        "id % 501 = 7",
        "id % 3 = 1",
        "prices > 5000 AND id < 30000",
        "few = 100000000 OR noise < 0",
        "one IS NULL",
    ):
        found, unscaled = scanned(tmp_path, filter=condition)
        assert found.equals(dataset.to_table(filter=condition)), condition
        assert unscaled == EVERY


@pytest.mark.parametrize(
    "condition",
    [
        "few < 3 * few - 150000000",
        "few IN (100000000, 300000000) OR id < 100",
        "NOT (few >= 100000000.5) AND id % 2 = 1",
        "few IS NULL",
        "few <> 200000000 AND prices > 100",
        "signs < -4000",
        "signs < prices",
        "noise IN (100, -200) OR noise >= prices",
        "wide > 5000 AND prices IS NOT NULL",
        "CAST(prices AS double) > 5000.5",
        "one < 0 AND large BETWEEN 2748779100 AND 2748785000",
        "NOT (prices IN (79.19, 158.38) OR prices IS NULL)",
    ],
)
def test_filters_evaluate_unscaled_values_and_dictionaries(tmp_path: Path, condition: str) -> None:
    lance.write_dataset(table(0, ROWS, nulls=True), tmp_path, max_rows_per_file=7_000)
    lance.dataset(tmp_path).delete("id % 9 = 2")
    expected = lance.dataset(tmp_path).to_table(filter=condition)
    assert 0 < len(expected) < ROWS * 8 // 9
    dataset = open_dataset(str(tmp_path))
    for columns in (["id", "few", "prices"], ["id"], ["few"]):
        tasks = dataset.plan(columns, filter=condition)
        batches = [batch for task in tasks for batch in task.batches()]
        assert pa.Table.from_batches(batches).equals(expected.select(columns))

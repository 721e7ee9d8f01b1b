"""Rows of chunked tables: the rows that Arrow takes, in steps of a few bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.mutations.rows import merge as chunked_rows
from lance_spark.mutations.rows.merge import ChunkedRows, Indexes


def _table() -> pa.Table:
    chunks = [
        pa.table({"id": range(start, start + rows), "b": [bytes(size)] * rows})
        for start, rows, size in ((0, 50, 10), (50, 3, 5_000), (53, 200, 20), (253, 47, 1_000))
    ]
    return pa.concat_tables([*chunks[:2], chunks[0].slice(0, 0), *chunks[2:]])


def test_rows_are_those_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_rows, "_STEP_BYTES", 8_000)
    table, rng = _table(), np.random.default_rng(1)
    rows = ChunkedRows(table)
    for numbers in (np.arange(300), rng.permutation(300), rng.integers(0, 300, 90), np.arange(0)):
        taken = rows.take(numbers)
        assert taken.equals(table.take(pa.array(numbers, pa.int64())).combine_chunks())
        steps = list(rows.steps(numbers))
        ids = [number for _, batch in steps for number in batch.column("id").to_pylist()]
        assert ids == numbers.tolist()
        assert [start for start, _ in steps] == [
            sum(batch.num_rows for _, batch in steps[:number]) for number in range(len(steps))
        ]
        assert all(batch.nbytes < 16_000 or batch.num_rows == 1 for _, batch in steps)
    assert rows.take(np.arange(5)).num_rows == 5
    assert ChunkedRows(table.select([])).take(np.arange(5)).num_columns == 0


def test_a_merge_of_more_than_an_array_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is halved until Arrow takes its rows."""
    take, sizes = ChunkedRows.take, []

    def limited(self: ChunkedRows, rows: Indexes) -> pa.Table:
        sizes.append(len(rows))
        if len(rows) > 20:
            raise pa.ArrowInvalid("offset overflow")
        return take(self, rows)

    def merged(name: str) -> Iterator[pa.Table]:
        dataset = lance_spark.write_dataset(_table().slice(0, 100), tmp_path / name)
        merge = dataset.merge_insert("id").when_matched_update_all("target.id > 20")
        source = _table().set_column(1, "b", pa.array([b"new"] * 300))
        result = merge.when_not_matched_insert_all().execute(source)
        assert (result["num_updated_rows"], result["num_inserted_rows"]) == (79, 200)
        yield result["dataset"].to_table().sort_by("id")

    (expected,) = merged("a")
    monkeypatch.setattr(ChunkedRows, "take", limited)
    monkeypatch.setattr(chunked_rows, "_STEP_ROWS", 20)
    assert next(merged("b")).equals(expected)
    monkeypatch.setattr(chunked_rows, "_STEP_ROWS", 100)
    rows = ChunkedRows(_table())
    assert [batch.num_rows for _, batch in rows.steps(np.arange(100))] == [12, 13, 12, 13] * 2
    assert max(sizes) > 20

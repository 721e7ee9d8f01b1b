"""Rows that an index leaves, and that lie anywhere in a fragment: read as a scan reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.scan.fragment import reader

ROWS = 60_000


def table(numbers: np.ndarray) -> pa.Table:
    words = pa.array([f"word {n}" for n in numbers.tolist()])
    return pa.table(
        {
            "id": numbers,
            "key": numbers // 20,
            "word": words,
            "colour": pa.array([("red", "blue", None)[n % 3] for n in numbers.tolist()]),
            "inner": pa.StructArray.from_arrays([pa.array(numbers * 2), words], ["a", "b"]),
            "list": pa.array([[n, n + 1][: n % 3] for n in numbers.tolist()]),
        }
    )


@pytest.fixture(scope="module", params=["2.0", "2.2"])
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> lance_spark.Dataset:
    path = tmp_path_factory.mktemp("scattered") / request.param
    rows = table(np.random.default_rng(5).permutation(ROWS))
    dataset = lance_spark.write_dataset(
        rows, str(path), max_rows_per_file=ROWS, data_storage_version=request.param
    )
    return dataset.create_scalar_index("key", "BTREE").delete("id % 9 = 4")


CONDITIONS = [
    "key = 70",
    "key IN (70, 900, 2000) AND word <> 'word 1402'",
    "key >= 1000 AND key < 1010",
    "key >= 1000 AND key < 1010 AND inner.a % 4 = 2",
    "key = 70 AND id < 0",
    "key IN (3, 5) AND colour IS NULL",
]


@pytest.mark.sample(8)
@pytest.mark.parametrize("together", [0, 64])
@pytest.mark.parametrize("columns", [None, ["word"], ["inner.b", "list"], ["key"], []])
def test_rows_are_those_of_a_scan(
    dataset: lance_spark.Dataset,
    together: int,
    columns: list[str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "_TOGETHER", together)
    for condition in CONDITIONS:
        expected = dataset.to_table(columns, filter=condition, use_scalar_index=False)
        result = dataset.to_table(columns, filter=condition)
        assert result.equals(expected), condition
        with_ids = dataset.to_table(columns, filter=condition, with_row_address=True)
        assert with_ids.drop_columns(["_rowaddr"]).equals(expected), condition


def test_changes_find_rows_by_an_index(dataset: lance_spark.Dataset, tmp_path: Path) -> None:
    rows = dataset.to_table()
    path = tmp_path / "t"
    parts = [rows.slice(start, 10_000) for start in range(0, len(rows), 10_000)]
    copy = lance_spark.write_dataset(parts[0], str(path), max_rows_per_file=10_000)
    for part in parts[1:]:
        copy = lance_spark.write_dataset(part, str(path), mode="append")
    copy = copy.create_scalar_index("id", "BTREE")
    tasks = copy.plan(["id"], filter="id = 30")
    (fragment,) = {piece.fragment.id for task in tasks for piece in task.slices}
    from lance_spark.mutations.rows.delete import plan_delete
    from lance_spark.mutations.rows.update import plan_update

    (deletion,) = plan_delete(copy._table, [("id", "==", 30)])
    (update,) = plan_update(copy._table, {"word": "new"}, [("id", "==", 30)])
    for task in (deletion, update):
        assert [part.id for part in task.fragments] == [fragment]
        assert task.candidates is not None
        assert task.candidates[fragment].num_rows == 1
    ids = [30, 31, 32, 33, 44, 59_999]
    listed = ", ".join(map(str, ids))
    changed = copy.update({"word": "new"}, f"id IN ({listed}) AND key <> 2")
    expected = [n for n in ids if n % 9 != 4 and n // 20 != 2]
    assert sorted(changed.to_table(["id"], filter="word = 'new'")["id"].to_pylist()) == expected
    # The rows that moved are not in the index, and are found.
    rest = changed.delete(f"id IN ({listed})")
    assert rest.count_rows() == len(rows) - len([n for n in ids if n % 9 != 4])
    columns = rest.update({"word": "other"}, "id IN (40, 41, 42)", mode="columns")
    assert sorted(columns.to_table(["id"], filter="word = 'other'")["id"].to_pylist()) == [41, 42]
    assert columns.delete("id = -5").count_rows() == rest.count_rows()

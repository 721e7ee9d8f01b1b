"""Mutations that are planned again after another client changed their columns."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark import Dataset, open_dataset
from lance_spark.errors import CommitConflictError
from lance_spark.mutations.columns import fill as columns
from lance_spark.mutations.rows.partial_overwrite import ReplaceRows
from lance_spark.predicates.sql import parse_predicate
from lance_spark.table.commit.write import begin_write, commit_on_newest
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.operations.indexes import CreateIndex

NUMBERS = pa.table({"a": pa.array([1, 2, 3], pa.int32()), "b": pa.array([10, 20, 30], pa.int32())})


def cast(dataset: Dataset) -> Dataset:
    return dataset.alter_columns({"path": "a", "data_type": pa.int64()})


def add(dataset: Dataset) -> Dataset:
    return dataset.add_columns({"d": lambda rows: pc.add(rows["a"], 1)})


@pytest.mark.parametrize(("change", "name", "expected"), [(cast, "a", 0), (add, "d", 1)])
def test_values_computed_from_another_column_are_discarded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Dataset], Dataset],
    name: str,
    expected: int,
) -> None:
    uri = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(NUMBERS, uri)
    commit = columns.commit_columns

    def overtaken(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(columns, "commit_columns", commit)
        lance_spark.write_dataset(NUMBERS.slice(0, 1), uri, "append")
        open_dataset(uri).alter_columns({"path": "a", "name": "x"}, {"path": "b", "name": "a"})
        return commit(*arguments, **named)

    monkeypatch.setattr(columns, "commit_columns", overtaken)
    table = change(dataset).to_table()
    assert table["x"].to_pylist() == [1, 2, 3, 1]
    assert table[name].to_pylist() == [10 + expected, 20 + expected, 30 + expected, 10 + expected]


def not_null(dataset: Dataset) -> None:
    dataset.alter_columns({"path": "v", "nullable": False})


def required(dataset: Dataset) -> None:
    schema = pa.schema([pa.field("w", pa.int64(), nullable=False)])
    dataset.add_columns({"w": 1}, output_schema=schema)


def another(dataset: Dataset) -> None:
    """Drop a column and add one that gets the same field id."""
    dataset.drop_columns(["v"]).add_columns({"age": pa.scalar(30, pa.int64())})


@pytest.mark.parametrize("concurrent_change", [not_null, required, another])
def test_a_partial_overwrite_refuses_changed_columns(
    tmp_path: Path, concurrent_change: Callable[[Dataset], None]
) -> None:
    uri = str(tmp_path / "t")
    lance_spark.write_dataset(pa.table({"id": pa.array(range(4))}), uri)
    dataset = open_dataset(uri).add_columns({"v": pa.scalar(7, pa.int64())})
    new = pa.table({"id": pa.array([0, 1]), "v": pa.array([None, 5], pa.int64())})
    plain = begin_write(uri, new.schema)
    job = plain.with_strategy(ReplaceRows(parse_predicate("id < 2", plain.schema)))
    writer = job.writer()
    for batch in new.to_batches():
        writer.write(batch)
    concurrent_change(dataset)
    before = open_dataset(uri)
    with pytest.raises(CommitConflictError, match=r"while this overwrite was running; write"):
        commit_on_newest(job, writer.finish())
    after = open_dataset(uri)
    assert after.version == before.version
    assert after.to_table() == before.to_table()


@pytest.mark.parametrize("index_type", ["ZONEMAP", "BTREE"])
@pytest.mark.parametrize("stable", [False, True])
def test_an_index_does_not_cover_the_first_values_of_a_column(
    tmp_path: Path, index_type: str, stable: bool
) -> None:
    """The index was built while the column had no values."""
    uri, copy = str(tmp_path / "t"), str(tmp_path / "c")
    rows = pa.table({"id": pa.array(range(4))})
    lance_spark.write_dataset(rows, uri, enable_stable_row_ids=stable)
    dataset = open_dataset(uri).add_columns(pa.field("c", pa.int64()))
    shutil.copytree(uri, copy)
    lance.dataset(copy).create_scalar_index("c", index_type)
    index = indexes.section_of(open_dataset(copy)._table.manifest).indices[0]
    shutil.copytree(f"{copy}/_indices", f"{uri}/_indices")
    dataset.update({"c": 5}, [("id", "==", 2)], mode="columns")
    indexed = Dataset.commit(uri, CreateIndex((index,)), dataset.version)
    assert indexed.to_table(filter="c = 5")["id"].to_pylist() == [2]
    assert lance.dataset(uri).to_table(filter="c = 5")["id"].to_pylist() == [2]
    assert indexed.delete([("c", "==", 5)]).count_rows() == 3

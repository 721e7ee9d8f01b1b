"""`batch_udf`: functions of batches, with and without a checkpoint."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_spark import Dataset, batch_udf, open_dataset, write_dataset
from lance_spark.errors import InvalidInputError

TABLE = pa.table({"id": range(10), "name": [f"name {i}" * (i % 3) for i in range(10)]})


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"twice": pc.multiply(batch["id"], 2)})


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    write_dataset(TABLE, tmp_path / "t", max_rows_per_file=4)
    return open_dataset(tmp_path / "t").delete("id = 5")


def test_the_columns_are_those_of_pylance(tmp_path: Path, dataset: Dataset) -> None:
    theirs = lance.write_dataset(TABLE, str(tmp_path / "theirs"), max_rows_per_file=4)
    theirs.delete("id = 5")
    theirs.add_columns(lance.batch_udf()(doubled), read_columns=["id"])
    added = dataset.add_columns(batch_udf()(doubled), read_columns=["id"])
    assert added.to_table() == theirs.to_table()
    assert batch_udf()(doubled)(TABLE.to_batches()[0])["twice"].to_pylist()[3] == 6


@pytest.mark.parametrize("form", [pa.Table, dict, "pandas"])
def test_forms_of_results(dataset: Dataset, form: Any) -> None:
    def columns(batch: pa.RecordBatch) -> Any:
        table = pa.Table.from_batches([doubled(batch)])
        if form == "pandas":
            return table.to_pandas()
        return table if form is pa.Table else dict(table.to_pydict())

    schema = pa.schema([pa.field("twice", pa.int64())])
    added = dataset.add_columns(batch_udf(schema)(columns))
    assert added.schema.field("twice").type == pa.int64()
    assert added.to_table()["twice"].to_pylist() == [2 * i for i in range(10) if i != 5]


def test_an_interrupted_run_goes_on(tmp_path: Path, dataset: Dataset) -> None:
    path = tmp_path / "results.sqlite"
    calls: list[list[int]] = []

    def fails_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = batch["id"].to_pylist()
        calls.append(ids)
        if 9 in ids and len(calls) < 6:
            raise KeyboardInterrupt
        return doubled(batch)

    udf = batch_udf(pa.schema([pa.field("twice", pa.int64())]), path)(fails_once)
    with pytest.raises(KeyboardInterrupt):
        dataset.add_columns(udf, ["id"], batch_size=2)
    assert path.exists()
    before = len(calls)
    calls += [[]] * 6
    changed = dataset.checkout_latest().add_columns({"other": 1})
    added = changed.add_columns(udf, ["id"], batch_size=2)
    assert added.to_table()["twice"].to_pylist() == [2 * i for i in range(10) if i != 5]
    assert len(calls) - 6 - before == 1, "the function ran again for a batch that was done"
    assert not path.exists()


def test_results_belong_to_the_values_of_a_batch(tmp_path: Path, dataset: Dataset) -> None:
    """A checkpoint of other rows is of no use, and does no harm."""
    path = tmp_path / "results.sqlite"
    udf = batch_udf(checkpoint_file=path)(doubled)
    udf.compute(pa.record_batch({"id": [100, 101]}))
    udf.close(delete=False)
    added = dataset.add_columns(udf, ["id"], batch_size=2)
    assert added.to_table()["twice"].to_pylist() == [2 * i for i in range(10) if i != 5]


def test_other_files_are_refused(tmp_path: Path, dataset: Dataset) -> None:
    text, other = tmp_path / "text", tmp_path / "other.sqlite"
    text.write_text("not a database, but long enough to be one" * 20)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE results (input INT)")
    connection.close()
    for path in (text, other, tmp_path / "no" / "folder"):
        with pytest.raises(InvalidInputError, match="cannot be used"):
            dataset.add_columns(batch_udf(checkpoint_file=path)(doubled), ["id"])


def test_a_damaged_result_is_computed_again(tmp_path: Path, dataset: Dataset) -> None:
    path = tmp_path / "results.sqlite"
    udf = batch_udf(checkpoint_file=path)(doubled)
    batch = pa.record_batch({"id": [1, 2]})
    udf.compute(batch)
    udf.close(delete=False)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE results SET output = substr(output, 1, 40)")
    connection.close()
    assert udf.compute(batch)["twice"].to_pylist() == [2, 4]


def test_equal_batches_have_results_of_their_own(tmp_path: Path) -> None:
    """A function can make new values, such as random numbers, for each of them."""
    write_dataset(pa.table({"c": ["x"] * 12}), tmp_path / "t", max_rows_per_file=4)
    dataset = open_dataset(tmp_path / "t")
    numbers = itertools.count()
    calls: list[int] = []

    def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return pa.record_batch({"n": [next(numbers) for _ in range(batch.num_rows)]})

    udf = batch_udf(checkpoint_file=tmp_path / "results.sqlite")(numbered)
    with pytest.raises(KeyboardInterrupt):
        dataset.add_columns(udf, ["c"], batch_size=2)
    added = dataset.add_columns(udf, ["c"], batch_size=2)
    assert len(set(added.to_table()["n"].to_pylist())) == 12
    # One call for a sample of four rows, six for the batches, and one that was interrupted.
    assert calls == [4, *[2] * 7]

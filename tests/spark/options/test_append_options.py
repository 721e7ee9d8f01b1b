"""Appends that lack columns or have new columns, and writes that are committed once, as Spark runs
them.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CommitConflictError, InvalidOptionError, SchemaMismatchError
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.types.mapping import to_spark_schema
from lance_spark.spark.write.planning import make_writer
from tests.support.tables.stored_files import data_files

MERGE = {"mergeSchema": "true"}


def rows(first: int, count: int = 3) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.record_batch(
        {"id": pa.array(ids, pa.int64()), "word": pa.array([f"w{i}" for i in ids], pa.string())}
    )


def more(first: int, count: int = 3, *, without: Iterable[str] = ()) -> pa.RecordBatch:
    """Return the columns of `rows`, and two new columns."""
    batch = rows(first, count)
    batch = batch.append_column("score", pa.array([float(i) for i in range(count)]))
    vectors = pa.array([[float(i)] * 2 for i in range(count)], pa.list_(pa.float32()))
    batch = batch.append_column("Vector", vectors)
    return batch.select([name for name in batch.schema.names if name not in without])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("word", pa.string())])
    table = pa.Table.from_batches([rows(0, 6)]).cast(schema)
    lance.write_dataset(table, str(path), max_rows_per_file=3, enable_stable_row_ids=True)
    return path


def writer_for(path: Path, batch: pa.RecordBatch, **options: str) -> Any:
    parsed = WriteOptions.parse({"path": str(path), **{k.lower(): v for k, v in options.items()}})
    made = make_writer(parsed, to_spark_schema(batch.schema), overwrite=False)
    return pickle.loads(pickle.dumps(made))


def append(path: Path, batch: pa.RecordBatch, **options: str) -> None:
    commit(written(path, batch, **options))


def written(path: Path, batch: pa.RecordBatch, **options: str) -> tuple[Any, list[Any]]:
    writer = writer_for(path, batch, **options)
    task = pickle.loads(pickle.dumps(writer))
    return writer, [pickle.loads(pickle.dumps(task.write(iter([batch]))))]


def commit(done: tuple[Any, list[Any]]) -> None:
    writer, messages = done
    writer.commit(messages)


def table_of(path: Path) -> pa.Table:
    """Return the rows by id, which both clients must read alike."""
    dataset = lance.dataset(str(path))
    dataset.validate()
    theirs = dataset.to_table()
    assert open_dataset(str(path)).to_table() == theirs
    return theirs.sort_by("id")


def test_nullable_columns_may_be_missing(path: Path) -> None:
    append(path, rows(6).select(["id"]))
    result = table_of(path)
    assert result["id"].to_pylist() == list(range(9))
    assert result["word"].to_pylist() == [f"w{i}" for i in range(6)] + [None] * 3
    with pytest.raises(SchemaMismatchError, match="the DataFrame has no id"):
        append(path, rows(6).select(["word"]))
    with pytest.raises(SchemaMismatchError, match=r"the table has no score.*mergeSchema"):
        append(path, more(6))


def test_an_append_fills_and_adds_children_of_structs(tmp_path: Path) -> None:
    """Children that the DataFrame lacks are null at any depth, as Delta writes them; new children
    of structs are added.
    """
    path = tmp_path / "nested"
    whole = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int8()))])
    part = pa.struct([("A", pa.int32())])

    def batch(first: int, struct: pa.StructType, value: dict[str, Any]) -> pa.RecordBatch:
        """Return a row with the value in each column, and one without."""
        others = [("q", pa.int8())] if struct is whole else []
        new = [("new", pa.bool_())] if struct is part else []
        columns = {
            "id": ([first, first + 1], pa.int64()),
            "s": ([value, None], pa.struct([*struct, *new])),
            "deep": ([{"p": value}, {"p": None}], pa.struct([("p", struct), *others])),
            "array": ([[value, None], None], pa.list_(struct)),
            "map": ([[("k", value)], []], pa.map_(pa.string(), struct)),
        }
        return pa.record_batch({name: pa.array(*column) for name, column in columns.items()})

    def expected(first: int, value: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "id": first,
                "s": {**value, "new": None},
                "deep": {"p": value, "q": None},
                "array": [value, None],
                "map": [("k", value)],
            },
            {"id": first + 1, "s": None, "deep": {"p": None, "q": None}, "array": None, "map": []},
        ]

    row = {"a": 1, "b": [2]}
    write_dataset(batch(0, whole, row), str(path), data_storage_version="2.2")
    given = batch(2, part, {"A": 5})
    with pytest.raises(SchemaMismatchError, match=r"column s\.b not found"):
        append(path, given)
    append(path, given, **MERGE)
    assert table_of(path).to_pylist() == [*expected(0, row), *expected(2, {"a": 5, "b": None})]
    required = pa.struct([("a", pa.int32()), pa.field("b", pa.int8(), nullable=False)])
    write_dataset(pa.table({"s": pa.array([], required)}), str(tmp_path / "required"))
    with pytest.raises(SchemaMismatchError, match=r"column s\.b not found"):
        append(tmp_path / "required", pa.record_batch({"s": pa.array([{"A": 5}], part)}), **MERGE)


def test_an_append_adds_new_columns(path: Path) -> None:
    """New columns are added in one version, with the metadata of their options. pylance appends to
    the table afterwards.
    """
    append(path, more(6), **MERGE, **{"vector.arrow.fixed-size-list.size": "2"})
    dataset = lance.dataset(str(path))
    assert dataset.version == 2
    assert dataset.schema.names == ["id", "word", "score", "Vector"]
    assert dataset.schema.field("Vector").type == pa.list_(pa.float32(), 2)
    assert not dataset.schema.field("id").nullable
    result = table_of(path)
    assert result["word"].to_pylist() == [f"w{i}" for i in range(9)]
    assert result["score"].to_pylist() == [None] * 6 + [0.0, 1.0, 2.0]
    assert result["Vector"].to_pylist() == [None] * 6 + [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    versions = dataset.to_table(
        columns=["id", "_row_created_at_version", "_row_last_updated_at_version"], with_row_id=True
    ).to_pylist()
    assert [version["_rowid"] for version in versions] == list(range(9))
    for name in ("_row_created_at_version", "_row_last_updated_at_version"):
        assert [version[name] for version in versions] == [1] * 6 + [2] * 3
    lance.write_dataset(dataset.to_table(filter="id = 8"), str(path), mode="append")
    assert table_of(path)["score"].to_pylist() == [None] * 6 + [0.0, 1.0, 2.0, 2.0]


def test_merge_schema_without_new_columns_is_an_append(path: Path) -> None:
    append(path, rows(6), **MERGE)
    assert type(lance.dataset(str(path)).read_transaction(2).operation).__name__ == "Append"
    assert table_of(path)["id"].to_pylist() == list(range(9))


def test_a_dataframe_with_only_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_dataset(pa.Table.from_batches([rows(0)]), str(path))
    append(path, more(0, without=["id", "word"]), **MERGE)
    result = lance.dataset(str(path)).to_table().to_pydict()
    assert result["id"] == [0, 1, 2, None, None, None]
    assert result["score"] == [None, None, None, 0.0, 1.0, 2.0]


def test_mismatched_columns_are_refused_with_merge_schema_too(path: Path) -> None:
    before = data_files(path)
    with pytest.raises(SchemaMismatchError, match="the DataFrame has no id"):
        append(path, more(6, without=["id"]), **MERGE)
    wrong = more(6).set_column(0, "id", pa.array(["a", "b", "c"]))
    with pytest.raises(SchemaMismatchError, match="column id is int64"):
        append(path, wrong, **MERGE)
    assert data_files(path) == before
    assert lance.dataset(str(path)).version == 1


def test_a_missing_table_is_created(tmp_path: Path) -> None:
    append(tmp_path / "made", more(0), **MERGE)
    assert lance.dataset(str(tmp_path / "made")).schema.names == ["id", "word", "score", "Vector"]


def test_concurrent_row_changes_are_kept(path: Path) -> None:
    """The merge is planned again on the newest version. Rows that other clients appended or deleted
    stay so.
    """
    done = written(path, more(6), **MERGE)
    append(path, rows(20))
    open_dataset(str(path)).delete([("id", "<", 2)])
    commit(done)
    result = table_of(path)
    assert result["id"].to_pylist() == [2, 3, 4, 5, 6, 7, 8, 20, 21, 22]
    assert result["score"].to_pylist() == [None] * 4 + [0.0, 1.0, 2.0] + [None] * 3
    assert lance.dataset(str(path)).version == 4


def test_a_concurrent_append_with_the_same_new_column_is_refused(path: Path) -> None:
    """Two appends have the same new column: the second append is refused, and leaves no files."""
    first, second = written(path, more(6), **MERGE), written(path, more(9), **MERGE)
    commit(first)
    kept = data_files(path)
    with pytest.raises(CommitConflictError, match="other columns") as raised:
        commit(second)
    assert raised.value.retryable
    assert len(data_files(path)) == len(kept) - 1
    append(path, more(9), **MERGE)
    assert table_of(path)["id"].to_pylist() == list(range(12))


def test_a_repeated_write_is_skipped(path: Path) -> None:
    txn = {"txnAppId": "nightly", "txnVersion": "4"}
    first, second = written(path, rows(6), **txn), written(path, rows(6), **txn)
    commit(first)
    kept = data_files(path)
    commit(second)
    assert len(data_files(path)) == len(kept) - 1
    append(path, rows(6), **txn)
    append(path, more(6), **txn, **MERGE)
    append(path, rows(6), txnAppId="nightly", txnVersion="0")
    assert table_of(path)["id"].to_pylist() == list(range(9))
    assert lance.dataset(str(path)).version == 2
    assert lance.dataset(str(path)).read_transaction(2).transaction_properties == {
        "lance.txn.appId": "nightly",
        "lance.txn.version": "4",
    }
    append(path, more(9), txnAppId="nightly", txnVersion="5", **MERGE)
    append(path, rows(12), txnAppId="other", txnVersion="0")
    assert table_of(path)["id"].to_pylist() == list(range(15))
    for half in ({"txnAppId": "nightly"}, {"txnVersion": "1"}):
        with pytest.raises(
            InvalidOptionError, match=r"txnAppId and txnVersion .* must be given together"
        ):
            writer_for(path, rows(0), **half)
    with pytest.raises(InvalidOptionError, match="whole number"):
        writer_for(path, rows(0), txnAppId="a", txnVersion="-1")


def test_a_repeated_creation_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t"
    txn = {"txnAppId": "nightly", "txnVersion": "0"}
    first, second = written(path, rows(0), **txn), written(path, rows(0), **txn)
    commit(first)
    commit(second)
    assert table_of(path)["id"].to_pylist() == [0, 1, 2]
    assert len(data_files(path)) == 1


def test_writes_without_spark(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    data = pa.Table.from_batches([rows(0)])
    for _ in range(2):
        made = write_dataset(data, path, mode="append", txn_app_id="job", txn_version=1)
        assert made.version == 1
    write_dataset(data, path, mode="append")
    assert write_dataset(data, path, mode="append", txn_app_id="job", txn_version=0).version == 1
    assert write_dataset(data, path, mode="overwrite", txn_app_id="job", txn_version=2).version == 3
    assert len(data_files(tmp_path / "t")) == 3

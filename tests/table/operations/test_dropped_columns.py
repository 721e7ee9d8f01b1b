"""Columns that are dropped, and whose ids other columns get, during a change that uses them."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.mutations.columns.assignments import parse_assignments
from lance_spark.mutations.rows.update import commit_updates, plan_update
from lance_spark.proto import table_pb2
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.commit.write import begin_write
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.operations.append import Overwrite
from lance_spark.table.operations.columns import Merge, Project
from lance_spark.table.operations.indexes import CreateIndex

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Write a table whose column `a` has data files of its own."""
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.table({"id": [1, 2, 3]}), uri).add_columns({"a": "id * 10"})
    return uri


def field_ids(uri: str) -> dict[str, int]:
    return {field.name: field.id for field in open_table(uri).manifest.message.fields}


def drop(uri: str) -> None:
    lance.dataset(uri).drop_columns(["a"])


def drop_and_add(uri: str, column: pa.Field) -> None:
    """Give the id of a column to another column."""
    number = field_ids(uri)["a"]
    drop(uri)
    lance.dataset(uri).add_columns(pa.schema([column]))
    assert field_ids(uri)[column.name] == number


@pytest.mark.parametrize("column", [pa.field("b", pa.int64()), pa.field("a", pa.string())])
def test_append(table: str, column: pa.Field) -> None:
    job = begin_write(table, SCHEMA, mode="append")
    writer = job.writer()
    writer.write(pa.RecordBatch.from_pylist([{"id": 7, "a": 70}], SCHEMA))
    fragments = writer.finish()
    drop_and_add(table, column)
    with pytest.raises(CommitConflictError, match="field ids") as caught:
        job.commit(fragments)
    assert caught.value.retryable


def test_append_after_a_drop(table: str) -> None:
    job = begin_write(table, SCHEMA, mode="append")
    writer = job.writer()
    writer.write(pa.RecordBatch.from_pylist([{"id": 7, "a": 70}], SCHEMA))
    fragments = writer.finish()
    drop(table)
    job.commit(fragments)
    lance.dataset(table).add_columns(pa.schema([pa.field("b", pa.int64())]))
    assert lance.dataset(table).to_table().to_pydict() == {
        "id": [1, 2, 3, 7],
        "b": [None] * 4,
    }


def index(base: OpenTable) -> table_pb2.IndexMetadata:
    made = table_pb2.IndexMetadata(name="x", fields=[1], dataset_version=base.version)
    made.uuid.uuid = uuid.uuid4().bytes
    return made


def test_index(table: str) -> None:
    base = open_table(table)
    drop_and_add(table, pa.field("b", pa.int64()))
    transaction = Transaction.new(base.version, CreateIndex((index(base),)))
    with pytest.raises(CommitConflictError) as caught:
        commit(base.store, transaction, base.manifest)
    assert caught.value.retryable


def test_update_leaves_files_of_dropped_columns_out(table: str) -> None:
    base = open_table(table)
    updates = {"id": 20}
    results = [task.run() for task in plan_update(base, updates, [("id", "==", 2)])]
    drop(table)
    commit_updates(base, results, parse_assignments(updates, base.schema))
    first = open_table(table).manifest.fragments[0]
    assert [list(file.fields) for file in first.files] == [[0]]
    assert lance_spark.open_dataset(table).to_table().to_pydict() == {"id": [1, 3, 20]}


def test_a_parent_stays_with_its_children(tmp_path: Path) -> None:
    """No client could open a version without this file."""
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.table({"id": [1], "point": [{"x": 1}]}), uri)
    base = open_table(uri)
    fields = [field for field in base.manifest.message.fields if field.name != "point"]
    for operation in (
        Project(tuple(fields)),
        Merge(base.manifest.fragments, tuple(fields)),
        Overwrite((), tuple(fields)),
    ):
        with pytest.raises(InvalidInputError, match="'x'"):
            commit(base.store, Transaction.new(base.version, operation), base.manifest)
    assert lance.dataset(uri).version == 1

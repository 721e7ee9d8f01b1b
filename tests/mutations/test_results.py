"""Results of tasks: repeated results, missing results, and results of fragments without rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.add import AssignedColumns
from lance_spark.mutations.columns.assignments import parse_assignments
from lance_spark.mutations.columns.fill import commit_columns, plan_columns
from lance_spark.mutations.commits import commit_operation
from lance_spark.mutations.compaction.task import commit_compaction, plan_compaction
from lance_spark.mutations.rows.delete import commit_deletes, plan_delete
from lance_spark.mutations.rows.update import commit_updates, plan_update
from lance_spark.table.manifest.manifest import max_field_id
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.operations.update import Delete, with_deletion_file
from lance_spark.table.rows.deletions import write_deletions


@pytest.fixture
def table(tmp_path: Path) -> Dataset:
    data = pa.table({"x": list(range(10)), "y": [str(i) for i in range(10)]})
    return write_dataset(data, str(tmp_path / "t.lance"), max_rows_per_file=5)


def opened(table: Dataset) -> OpenTable:
    return open_table(table.uri)


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_a_repeated_update_task_is_refused(table: Dataset, mode: Any) -> None:
    opened_table = opened(table)
    tasks = plan_update(
        opened_table, {"y": "new"}, [("x", "<", 7)], mode=mode, fragments_per_task=1
    )
    tasks = pickle.loads(pickle.dumps(tasks))
    results = [task.run() for task in [*tasks, tasks[0]]]
    changed = parse_assignments({"y": "new"}, opened_table.schema)
    with pytest.raises(InvalidInputError, match="two results are of fragment 0"):
        commit_updates(opened_table, results, changed, mode=mode)
    commit_updates(opened_table, results[:-1], changed, mode=mode)
    rows = lance.dataset(table.uri).to_table().sort_by("x").to_pydict()
    assert rows == {"x": list(range(10)), "y": ["new"] * 7 + ["7", "8", "9"]}


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_an_update_is_committed_with_the_mode_that_it_was_planned_with(
    table: Dataset, mode: Any
) -> None:
    opened_table = opened(table)
    results = [task.run() for task in plan_update(opened_table, {"y": "new"}, mode=mode)]
    other_mode: Any = "columns" if mode == "rows" else "rows"
    with pytest.raises(InvalidInputError, match=f"not planned with mode '{other_mode}'"):
        commit_updates(
            opened_table,
            results,
            parse_assignments({"y": "new"}, opened_table.schema),
            mode=other_mode,
        )


def test_a_repeated_compaction_task_is_refused(table: Dataset) -> None:
    opened_table = opened(table)
    results = [task.run() for task in plan_compaction(opened_table) * 2]
    with pytest.raises(InvalidInputError, match="two results are of fragment 0"):
        commit_compaction(opened_table, results)
    commit_compaction(opened_table, results[:1])
    assert lance.dataset(table.uri).to_table() == table.to_table()


def test_a_fragment_loses_rows_by_one_result(table: Dataset) -> None:
    opened_table = opened(table)
    results = [
        deletion
        for task in plan_delete(opened_table, [("x", "<", 3)]) * 2
        for deletion in task.run()
    ]
    with pytest.raises(InvalidInputError, match="two results are of fragment 0"):
        commit_deletes(opened_table, results)


def test_columns_are_committed_with_values_for_all_rows(table: Dataset) -> None:
    opened_table = opened(table)
    new = Schema.from_arrow(
        pa.schema([("z", pa.int64())]), max_field_id(opened_table.manifest.to_proto()) + 1
    )
    tasks = plan_columns(
        opened_table, opened_table.schema, new, AssignedColumns(parse_assignments({"z": 1}, new))
    )
    results = [task.run() for task in tasks]
    fields = [*opened_table.manifest.to_proto().fields, *new.to_protos()]
    with pytest.raises(InvalidInputError, match="the result of fragment 1 is missing"):
        commit_columns(opened_table, results[0], fields, preserves_nullability=True)
    with pytest.raises(InvalidInputError, match="two results are of fragment 0"):
        commit_columns(
            opened_table, results[0] * 2 + results[1], fields, preserves_nullability=True
        )
    commit_columns(opened_table, results[0] + results[1], fields, preserves_nullability=True)
    assert lance.dataset(table.uri).to_table(["z"]).to_pydict() == {"z": [1] * 10}


def test_fragments_whose_rows_are_all_deleted_get_columns(table: Dataset) -> None:
    opened_table = opened(table)
    first = opened_table.manifest.fragments[0]
    offsets = np.arange(5)
    file = write_deletions(opened_table.store, first.id, opened_table.version, offsets)
    empty = with_deletion_file(first, file)
    commit_operation(opened_table, Delete((empty,), (), "", affected={0: offsets}))
    changed = open_dataset(table.uri).add_columns({"z": lambda rows: rows["x"]})
    changed = changed.alter_columns({"path": "x", "data_type": pa.int32()})
    changed = changed.update({"z": lambda rows: rows["z"], "y": None}, mode="columns")
    expected = {"x": [5, 6, 7, 8, 9], "y": [None] * 5, "z": [5, 6, 7, 8, 9]}
    assert changed.to_table().to_pydict() == expected
    assert lance.dataset(table.uri).to_table().to_pydict() == expected


def test_filters_on_row_offsets_are_refused(table: Dataset) -> None:
    for change in (table.delete, lambda filters: table.update({"y": "a"}, filters)):
        with pytest.raises(InvalidInputError, match=r"'_rowoffset'.* use _rowaddr"):
            change([("_rowoffset", "<", 3)])


def test_columns_of_several_lengths_are_refused(table: Dataset) -> None:
    with pytest.raises(InvalidInputError, match=r"must return columns: .*length"):
        table.add_columns(lambda rows: {"a": [1], "b": [1, 2]})


@pytest.mark.parametrize("path", ["items.item", "points.item.a"])
def test_list_items_can_be_made_not_nullable(tmp_path: Path, path: str) -> None:
    items = pa.array([[1, 2], None, []])
    points = pa.array([[{"a": 1, "b": None}], None, []])
    data = pa.table({"items": items, "points": points})
    table = write_dataset(data, str(tmp_path / "t.lance"))
    altered = table.alter_columns({"path": path, "nullable": False})
    assert altered.to_table().to_pydict() == data.to_pydict()
    assert lance.dataset(table.uri).to_table().to_pydict() == data.to_pydict()
    with pytest.raises(InvalidInputError, match="has nulls"):
        altered.alter_columns({"path": "points.item.b", "nullable": False})


@pytest.mark.parametrize("blobs", [False, True], ids=["vectors", "blobs"])
def test_new_columns_of_a_large_fragment_go_through_memory_in_pieces(
    tmp_path: Path, blobs: bool
) -> None:
    rows, width = (128, 1 << 20) if blobs else (32_768, 1 << 12)
    field = (
        pa.field("v", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        if blobs
        else pa.field("v", pa.binary(width))
    )
    schema = pa.schema([pa.field("i", pa.int64()), field])
    noise = np.random.default_rng(3).bytes(width)
    batches = (
        pa.record_batch([[i], pa.array([noise], field.type)], schema=schema)
        if blobs
        else pa.record_batch(
            [np.arange(i, i + 256), pa.array([noise] * 256, field.type)], schema=schema
        )
        for i in range(0, rows, 1 if blobs else 256)
    )
    uri = str(tmp_path / "t.lance")
    table = write_dataset(batches, uri, schema=schema, data_storage_version="2.1")
    assert len(opened(table).manifest.fragments) == 1
    peak = []
    for filters in ([], [("i", "<", rows // 2), ("i", "not in", [1, 7])]):
        pool = pa.default_memory_pool()
        before = pool.bytes_allocated()
        seen = 0

        def same(batch: pa.RecordBatch) -> pa.Array:
            nonlocal seen
            seen = max(seen, pool.bytes_allocated() - before)  # noqa: B023
            return batch["v"]

        table = table.update({"v": same}, filters, mode="columns")
        peak.append(seen)
    assert max(peak) < rows * width // 2, peak
    assert table.to_table(["i"], filters=[("i", ">", rows - 3)]).num_rows == 2


def test_a_negative_number_of_retries_is_refused(table: Dataset) -> None:
    with pytest.raises(InvalidOptionError, match="conflict_retries must be at least 0"):
        table.delete([], conflict_retries=-1)


def test_names_of_metadata_columns_are_reserved(table: Dataset) -> None:
    changes: list[Callable[[], Dataset]] = [
        lambda: table.add_columns({"_rowid": 1}),
        lambda: table.add_columns(pa.field("_rowaddr", pa.int64())),
        lambda: table.alter_columns({"path": "x", "name": "_rowid"}),
    ]
    for change in changes:
        with pytest.raises(
            InvalidInputError, match="is reserved for a hidden column of every table"
        ):
            change()


def test_a_struct_and_its_child_are_not_both_cast(tmp_path: Path) -> None:
    table = write_dataset(pa.table({"s": [{"a": 1, "b": 2}]}), str(tmp_path / "t.lance"))
    struct = {"path": "s", "data_type": table.schema.field("s").type}
    child = {"path": "s.a", "data_type": pa.int32()}
    for alterations in ([struct, child], [child, struct]):
        with pytest.raises(InvalidInputError, match=r"'s' and 's\.a' cannot both be cast"):
            table.alter_columns(*alterations)
    assert table.alter_columns(child).to_table().to_pylist() == [{"s": {"a": 1, "b": 2}}]


def test_long_constants_go_through_memory_in_pieces(tmp_path: Path) -> None:
    data = pa.table({"x": range(50_000), "s": ["a"] * 50_000})
    table = write_dataset(data, str(tmp_path / "t.lance"))
    pool = pa.default_memory_pool()
    before = max(pool.max_memory(), pool.bytes_allocated())
    table = table.update({"s": "b" * 4000}, [("x", "!=", 7)], mode="columns")
    assert pool.max_memory() - before < 100_000_000
    assert table.take([7, 8], ["s"])["s"].to_pylist() == ["a", "b" * 4000]

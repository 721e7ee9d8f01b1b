"""The order that `optimize` records: no change of the table leaves a wrong one behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as sf

from lance_spark import LanceTable, open_dataset
from lance_spark.dataset.dataset import Dataset
from lance_spark.spark.table.jobs import sort
from lance_spark.table.sort_order import KEY
from tests.proto.tables import column_file
from tests.support.spark.sorted_tables import ADDED, is_in_order, recorded, reported


@pytest.fixture
def path(sorted_copy: Path) -> Path:
    return sorted_copy


def test_the_commit_records_the_order(sorted_table: Path) -> None:
    dataset = lance.dataset(sorted_table)
    # One commit reserves the fragments, one sorts.
    assert dataset.version == 3
    value = json.loads(dataset.config()[KEY])
    assert [column["field"] for column in value["columns"]] == [0, 1]
    assert value["fragments"] == len(dataset.get_fragments()) == 4
    assert len(dataset.config()[KEY]) < 300


def test_a_procedure_records_the_order(
    spark: Any, pushdown: Callable[..., None], path: Path
) -> None:
    lance.write_dataset(ADDED, path, mode="append")
    spark.sql(f"CALL lance.system.optimize(table => '{path}', sort_by => array('Word', 'id'))")
    assert reported(open_dataset(str(path))) == ["word", "id"]


@pytest.mark.parametrize(
    "value", ["", "1", "[]", "{}", '{"columns": 1}', '{"columns": [{"field": []}]}', "[" * 10_000]
)
def test_other_values_of_the_configuration(path: Path, value: str) -> None:
    lance.dataset(path).update_config({KEY: value})
    assert recorded(path) == ()


def test_sorts_that_are_not_recorded(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.optimize(sort_by=[sf.col("id") % 7, sf.col("id")])
    assert recorded(path) == ()
    table.optimize(sort_by=["id", sf.upper("word"), "value"], target_rows_per_fragment=1_000)
    assert recorded(path) == (0,)
    table.optimize(z_order_by=["id", "value"], target_rows_per_fragment=1_000)
    assert recorded(path) == ()
    table.optimize(where="id is null", sort_by="id")
    assert recorded(path) == ()
    lance.dataset(path).create_scalar_index("id", "BITMAP")
    lance.write_dataset(ADDED, path, mode="append")
    # Fragments with and without the index are sorted alone.
    table.optimize(sort_by="id")
    assert recorded(path) == ()


def test_rows_that_another_client_appends_meanwhile(
    spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = sort.commit_reordered

    def late(*arguments: Any) -> Any:
        lance.write_dataset(ADDED, path, mode="append")
        return commit(*arguments)

    monkeypatch.setattr(sort, "commit_reordered", late)
    LanceTable.forPath(spark, str(path)).optimize(sort_by="word")
    assert len(lance.dataset(path).get_fragments()) == 2
    assert recorded(path) == ()


def _merge(dataset: lance.LanceDataset) -> None:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.execute(ADDED)


def _update_column(left: str, column: str) -> Callable[[lance.LanceDataset], None]:
    """Update a column in place: the fragment keeps its id, and gets one more file."""

    def change(dataset: lance.LanceDataset) -> None:
        fragment = dataset.get_fragments()[1]
        rows = fragment.to_table(columns=[left, column]).slice(100, 5)
        first = pa.array([rows[column][0].as_py()] * 5, rows[column].type)
        source = rows.set_column(1, column, pc.multiply(first, pa.scalar(2, first.type)))
        updated, fields = fragment.update_columns(source, left_on=left)
        operation = lance.LanceOperation.Update(
            [], [updated], [], fields, update_mode="rewrite_columns"
        )
        _commit(dataset, operation)

    return change


def _commit(dataset: lance.LanceDataset, operation: Any) -> None:
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


def _replace_data(dataset: lance.LanceDataset) -> None:
    """Replace the file of a fragment by one with its rows in another order."""
    fragment = dataset.get_fragments()[1]
    rows = fragment.to_table()
    (written,) = lance.fragment.write_fragments(
        rows.take(np.arange(len(rows))[::-1]), dataset.uri, schema=dataset.schema
    )
    group = lance.LanceOperation.DataReplacementGroup(fragment.fragment_id, written.files[0])
    _commit(dataset, lance.LanceOperation.DataReplacement([group]))


def _overlay(column: str, field: int) -> Callable[[lance.LanceDataset], None]:
    def change(dataset: lance.LanceDataset) -> None:
        number = dataset.get_fragments()[1].fragment_id
        values = pa.array([99_999], pa.int32()) if field == 0 else pa.array([0.5])
        file = column_file(dataset, column, values, field)
        overlay = lance.LanceOperation.DataOverlayFile(file, [10])
        group = lance.LanceOperation.DataOverlayGroup(number, [overlay])
        _commit(dataset, lance.LanceOperation.DataOverlay([group]))

    return change


def _reversed(dataset: lance.LanceDataset) -> None:
    fragments = [fragment.metadata for fragment in dataset.get_fragments()][::-1]
    _commit(dataset, lance.LanceOperation.Overwrite(dataset.schema, fragments))


def _restore(version: int) -> Callable[[lance.LanceDataset], None]:
    return lambda dataset: lance.dataset(dataset.uri, version=version).restore()


def _add_again(dataset: lance.LanceDataset) -> None:
    dataset.drop_columns(["id"])
    dataset.add_columns({"id": "cast(value * 1000 as int)"})


#: Changes by pylance, and whether the version is known to be sorted by `id` afterwards.
PYLANCE: dict[str, tuple[Callable[[lance.LanceDataset], Any], bool]] = {
    "append": (lambda d: lance.write_dataset(ADDED, d.uri, mode="append"), False),
    "update": (lambda d: d.update({"id": "id + 1000"}, where="value < 0.1"), False),
    "update another column": (lambda d: d.update({"value": "0.5"}, where="id = 5"), False),
    "merge": (_merge, False),
    "update in place": (_update_column("value", "id"), False),
    "update another column in place": (_update_column("id", "value"), True),
    "delete": (lambda d: d.delete("value < 0.2"), True),
    "delete a fragment": (lambda d: d.delete("id is null or id < 900"), False),
    "compact": (lambda d: d.optimize.compact_files(), False),
    "add a column": (lambda d: d.add_columns({"more": "value * 2"}), True),
    "rename": (lambda d: d.alter_columns({"path": "id", "name": "key"}), True),
    "another type": (lambda d: d.alter_columns({"path": "id", "data_type": pa.int64()}), False),
    "drop another column": (lambda d: d.drop_columns(["value"]), True),
    "drop the column": (lambda d: d.drop_columns(["id"]), False),
    "drop the column and add it again": (_add_again, False),
    "overwrite": (lambda d: lance.write_dataset(ADDED, d.uri, mode="overwrite"), False),
    "restore the unsorted version": (_restore(1), False),
    "restore the sorted version": (
        lambda d: (_restore(1)(d), _restore(3)(d)),
        True,
    ),
    "set a configuration": (lambda d: d.update_config({"a": "b"}), True),
    "replace data": (_replace_data, False),
    "overlay": (_overlay("id", 0), False),
    "overlay of another column": (_overlay("value", 2), True),
    "other fragment order": (_reversed, False),
    "index": (lambda d: d.create_scalar_index("id", "BTREE"), True),
}


@pytest.mark.parametrize("name", PYLANCE)
def test_changes_by_pylance(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this variable, pylance refuses such tables, because they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    change, stays = PYLANCE[name]
    before = lance.dataset(path).config()
    change(lance.dataset(path))
    check(path, stays)
    if name not in ("restore the unsorted version", "overwrite", "set a configuration"):
        assert lance.dataset(path).config() == before


def check(path: Path, stays: bool) -> None:
    dataset = open_dataset(str(path))
    lance.dataset(path).validate()
    order = reported(dataset)
    assert bool(order) == stays
    if order:
        assert order[0] in ("id", "key")
        assert is_in_order(dataset, order[0])


def _copy(method: str, stays: bool) -> tuple[Callable[[Any, Path], Any], bool]:
    def change(_: Any, path: Path) -> Any:
        dataset = open_dataset(str(path))
        target = path.with_name("copy.lance")
        if method == "branch":
            return dataset.create_branch("side")
        return getattr(dataset, method)(str(target))

    return change, stays


#: Changes by this package, as in `PYLANCE`. A change that returns a dataset is checked there.
OWN: dict[str, tuple[Callable[[Any, Path], Any], bool]] = {
    "append": (
        lambda t, p: t.toDF().limit(3).write.format("lance").mode("append").save(str(p)),
        False,
    ),
    "delete": (lambda t, p: t.delete("value < 0.2"), True),
    "delete fragments": (lambda t, p: t.delete("id is null or id < 400 or id > 1300"), True),
    "delete all rows": (lambda t, p: t.delete("true"), True),
    "update": (lambda t, p: t.update("id % 7 = 1", {"id": "id + 5"}, mode="rows"), False),
    "update in place": (lambda t, p: t.update("value < 0.1", {"id": "5"}, mode="columns"), False),
    "update of others in place": (
        lambda t, p: t.update("id % 2 = 1", {"value": "5"}, mode="columns"),
        True,
    ),
    "merge": (
        lambda t, p: (
            t.alias("t")
            .merge(t.toDF().where("id = 7").limit(1).alias("s"), "t.id = s.id + 1")
            .whenMatchedUpdate(set={"value": "s.value"})
            .whenNotMatchedInsertAll()
            .execute()
        ),
        False,
    ),
    "replace rows": (lambda t, p: t.replace_where(t.toDF().where("id = 5"), "id = 5"), False),
    "add a column": (lambda t, p: t.add_columns({"more": "value * 2"}), True),
    "rename": (lambda t, p: t.rename_column("id", "key"), True),
    "another type": (lambda t, p: t.alter_column("id", data_type="long"), False),
    "drop": (lambda t, p: t.drop_columns("id"), False),
    "reorder columns": (lambda t, p: t.reorder_columns("value", "word", "id"), True),
    "compact": (lambda t, p: t.optimize().executeCompaction(), False),
    "restore": (lambda t, p: (t.delete("id < 9"), t.restoreToVersion(3)), True),
    "restore the unsorted version": (lambda t, p: t.restoreToVersion(1), False),
    "branch": _copy("branch", True),
    "shallow clone": _copy("shallow_clone", True),
    "deep clone": _copy("deep_clone", True),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", OWN)
def test_changes_by_this_package(spark: Any, path: Path, name: str) -> None:
    change, stays = OWN[name]
    result = change(LanceTable.forPath(spark, str(path)), path)
    dataset = result if isinstance(result, Dataset) else open_dataset(str(path))
    order = reported(dataset)
    assert bool(order) == stays
    if name == "delete fragments":
        assert 0 < len(dataset.fragments) < 4
    if order:
        assert is_in_order(dataset, order[0])

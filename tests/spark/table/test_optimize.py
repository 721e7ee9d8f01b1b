"""`optimize` through Spark, also beside concurrent changes; `vacuum` and `cleanup`."""

from __future__ import annotations

import datetime
import os
import shutil
import time
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.mutations.compaction import run as compaction
from lance_spark.spark.table import LanceTable
from lance_spark.spark.table.jobs.sort import bounds_of, interleaved, ranks_of
from tests.support.tables.stored_files import files, named

ROWS, FRAGMENTS = 200_000, 50
LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write fifty fragments with stable row ids, an index and deleted rows."""
    path = tmp_path_factory.mktemp("optimize") / "t"
    rng = np.random.default_rng(3)
    ids = np.arange(ROWS)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * 8).astype("f4")), 8)
    data = pa.table(
        {
            "id": ids,
            "g": (ids % 97).astype("i4"),
            "t": pa.array(ids * 1_000_000_007, pa.timestamp("ns")),
            "v": vectors,
        }
    )
    table = lance.write_dataset(
        data, path, max_rows_per_file=ROWS // FRAGMENTS, enable_stable_row_ids=True
    )
    table.create_scalar_index("id", "BTREE")
    table.delete("g = 5 or (id >= 4000 and id < 8000)")
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "t"))


def everything(path: Path) -> pa.Table:
    table = open_dataset(str(path))
    return table.to_table(columns=[*table.schema.names, *LINEAGE]).sort_by("id")


def test_fewer_fragments_and_the_same_rows(spark: Any, path: Path) -> None:
    before = everything(path)
    dataset_before = lance.dataset(path)
    result = LanceTable.forPath(spark, str(path)).optimize(
        target_rows_per_fragment=ROWS // 4, commit_message="tidy", num_threads=3
    )
    assert [(field.name, field.dataType.simpleString()) for field in result.schema] == [
        ("fragments_removed", "bigint"),
        ("fragments_added", "bigint"),
        ("files_removed", "bigint"),
        ("files_added", "bigint"),
    ]
    (row,) = result.collect()
    after = lance.dataset(path)
    assert row.fragments_removed == len(dataset_before.get_fragments())
    assert row.fragments_added == row.files_added == len(after.get_fragments()) < 5
    assert everything(path) == before
    after.validate()
    assert after.to_table(filter="id = 150000", columns=["id"])["id"].to_pylist() == [150_000]
    assert after.scanner(filter="id = 1").explain_plan().count("ScalarIndexQuery") == 1
    assert files(path) == named(path)
    newest = LanceTable.forPath(spark, str(path)).history(1).collect()[0]
    assert (newest.operation, newest.message) == ("OPTIMIZE", "tidy")
    (nothing,) = (
        LanceTable.forPath(spark, str(path)).optimize(target_rows_per_fragment=ROWS // 4).collect()
    )
    assert tuple(nothing) == (0, 0, 0, 0)
    assert lance.dataset(path).version == after.version


@pytest.mark.parametrize("condition", ["g % 97 = 3 and id < 20000", "column"])
def test_only_fragments_with_rows_that_meet_a_condition(
    spark: Any, path: Path, condition: Any
) -> None:
    before = everything(path)
    untouched = {fragment.fragment_id for fragment in lance.dataset(path).get_fragments()[10:]}
    chosen = (F.col("id") < 20_000) & (F.col("g") == 3) if condition == "column" else condition
    (row,) = LanceTable.forPath(spark, str(path)).optimize(chosen).collect()
    # Five fragments have such rows. One of them lost all its rows and was dropped.
    assert row.fragments_removed == 4
    assert untouched <= {fragment.fragment_id for fragment in lance.dataset(path).get_fragments()}
    assert everything(path) == before


def test_concurrent_deletes_are_kept(
    spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits twice, after the tasks have run and before the commit."""
    before = everything(path)
    row = pa.table(before.slice(0, 1).drop_columns(LINEAGE)).set_column(0, "id", pa.array([10**6]))

    def append_and_delete() -> None:
        lance.write_dataset(row, path, mode="append")
        lance.dataset(path).delete("id = 21000")

    concurrent_changes = [
        append_and_delete,
        lambda: lance.dataset(path).delete("id in (150000, 150001)"),
    ]
    rewritten: list[list[int]] = []
    commit = compaction.commit_compaction
    run = compaction.CompactionRun._missing

    def missing(self: Any, *arguments: Any) -> Any:
        tasks = run(self, *arguments)
        rewritten.append([task.fragments[0].id for task in tasks])
        return tasks

    def racing(table: Any, results: Any, **options: Any) -> Any:
        if concurrent_changes:
            concurrent_changes.pop(0)()
        return commit(table, results, **options)

    monkeypatch.setattr(compaction.CompactionRun, "_missing", missing)
    monkeypatch.setattr(compaction, "commit_compaction", racing)
    LanceTable.forPath(spark, str(path)).optimize(target_rows_per_fragment=20_000)
    assert len(rewritten[0]) >= 8
    assert [len(tasks) for tasks in rewritten[1:]] == [1, 1]
    after = everything(path)
    gone = {21_000, 150_000, 150_001}
    assert after["id"].to_pylist() == [n for n in before["id"].to_pylist() if n not in gone] + [
        10**6
    ]
    assert after.slice(0, after.num_rows - 1) == before.filter(
        pc.invert(pc.is_in(before["id"], pa.array(sorted(gone))))
    )
    lance.dataset(path).validate()
    assert files(path) == named(path)


def test_failures_leave_no_files(spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LanceTable.forPath(spark, str(path))
    version, existing = lance.dataset(path).version, files(path)
    with pytest.raises(TypeError, match="Did you mean 'target_rows_per_fragment'"):
        table.optimize(target_rows=5)
    with pytest.raises(InvalidInputError, match="nothing"):
        table.optimize("nothing > 5")
    with pytest.raises(InvalidInputError, match="version 1"):
        table.checkout(version=1).optimize().executeCompaction()

    def refuse(*_: Any, **__: Any) -> Any:
        raise CommitConflictError("always", retryable=True)

    monkeypatch.setattr(compaction, "commit_compaction", refuse)
    with pytest.raises(CommitConflictError, match="always"):
        table.optimize(conflict_retries=1)
    assert lance.dataset(path).version == version
    assert files(path) == existing


def test_vacuum(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.optimize().executeCompaction()
    table.create_tag("kept", 1)
    existing_versions = [version["version"] for version in lance.dataset(path).versions()]
    existing = files(path)
    assert tuple(table.vacuum().collect()[0]) == (0, 0)
    assert tuple(table.vacuum(before_timestamp_millis=0).collect()[0]) == (0, 0)
    planned = table.vacuum(0, dry_run=True)
    assert planned.columns == ["bytes_removed", "old_versions"]
    assert planned.collect()[0].old_versions == len(existing_versions) - 2
    assert files(path) == existing
    with pytest.raises(InvalidInputError, match="kept"):
        table.vacuum(0, error_if_tagged_old_versions=True)
    assert table.vacuum(0, before_version=3).collect()[0].old_versions == 1
    assert table.vacuum(0).collect()[0].old_versions == len(existing_versions) - 3
    remaining = [version["version"] for version in lance.dataset(path).versions()]
    assert remaining == [1, existing_versions[-1]]
    table.delete_tag("kept")
    (row,) = table.vacuum(retain_versions=1).collect()
    assert row.old_versions == 1
    assert row.bytes_removed > 0
    assert files(path) == named(path)
    lance.dataset(path).validate()
    for wrong in ({"retentionHours": -1}, {"retain_versions": 0}):
        with pytest.raises(InvalidInputError):
            table.vacuum(**wrong)


def test_cleanup(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    old = time.time() - 8 * 24 * 3600
    for name, age in (
        ("data/dead.lance", old),
        ("_deletions/0-1-5.arrow", old),
        ("data/new.lance", None),
    ):
        (path / name).write_bytes(b"x" * 100)
        if age is not None:
            os.utime(path / name, (age, age))
    versions = len(lance.dataset(path).versions())
    assert tuple(table.cleanup(dry_run=True).collect()[0]) == (200, 2)
    assert (path / "data/dead.lance").exists()
    assert tuple(table.cleanup().collect()[0]) == (200, 2)
    assert not (path / "data/dead.lance").exists()
    assert tuple(table.cleanup(datetime.timedelta()).collect()[0]) == (100, 1)
    assert files(path) == named(path)
    assert len(lance.dataset(path).versions()) == versions


@pytest.mark.parametrize("where", [None, "id < 20000"])
def test_sorted_rows(spark: Any, path: Path, where: str | None) -> None:
    before = everything(path)
    table = LanceTable.forPath(spark, str(path))
    (row,) = table.optimize(where, ["g", "id"], target_rows_per_fragment=ROWS // 8).collect()
    after = lance.dataset(path)
    after.validate()
    assert everything(path) == before
    assert after.to_table(filter="id = 150000", columns=["id"])["id"].to_pylist() == [150_000]
    new = [fragment for fragment in after.get_fragments() if fragment.fragment_id >= FRAGMENTS]
    assert row.fragments_added == len(new)
    sorted_rows = pa.concat_tables(fragment.to_table(columns=["g", "id"]) for fragment in new)
    assert sorted_rows == sorted_rows.sort_by([("g", "ascending"), ("id", "ascending")])
    if where is None:
        assert len(after.get_fragments()) == len(new) == 8
        # Each fragment has an eighth of the values, so that zone maps can prune it.
        assert max(len(pc.unique(fragment.to_table()["g"])) for fragment in new) < 16
    else:
        assert row.fragments_removed == 4
    assert files(path) == named(path)


def test_sort_by_unknown_columns_is_refused(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    with pytest.raises(InvalidInputError, match="nothing"):
        table.optimize(sort_by="nothing")
    with pytest.raises(InvalidInputError, match="no column"):
        table.optimize(sort_by=[])


def test_z_order(spark: Any, path: Path) -> None:
    before = everything(path)
    table = LanceTable.forPath(spark, str(path))
    table.optimize(z_order_by=["g", F.col("id")], target_rows_per_fragment=ROWS // 16)
    after = lance.dataset(path)
    after.validate()
    assert everything(path) == before
    assert len(after.get_fragments()) == 16
    # A fragment covers a part of both columns. A fragment that is sorted by one column would have
    # all values of the other column.
    for name, value_range in (("g", 97), ("id", ROWS)):
        spans = []
        for fragment in after.get_fragments():
            bounds = pc.min_max(fragment.to_table(columns=[name])[name]).as_py()
            spans.append((bounds["max"] - bounds["min"]) / value_range)
        assert np.median(spans) < 0.55, name
    with pytest.raises(InvalidInputError, match="not both"):
        table.optimize(sort_by="g", z_order_by="g")
    with pytest.raises(InvalidInputError, match="7 columns"):
        table.optimize(z_order_by=["id"] * 7)


@pytest.mark.parametrize(
    "values",
    [
        [5, 1, None, 3, 3, -7],
        ["b", None, "", "a", "zz", "a"],
        [1.5, float("nan"), None, -0.0, 7.0, 1.5],
        [datetime.date(2020, 1, n) for n in (5, 1, 9, 9, 2, 4)],
    ],
    ids=["numbers", "texts", "floats", "dates"],
)
def test_ranks_follow_the_order_of_values(values: list[Any]) -> None:
    array = pa.array(values)
    ranks = ranks_of(bounds_of(pa.chunked_array([array]), "x"), array)
    assert ranks.max() == 1_023
    order = pc.array_sort_indices(array, null_placement="at_start").to_pylist()
    assert [int(ranks[position]) for position in order] == sorted(ranks.tolist())
    numbers = [
        position for position, value in enumerate(values) if str(value) not in ("None", "nan")
    ]
    for position in numbers:
        for other_position in numbers:
            assert (ranks[position] < ranks[other_position]) == (
                values[position] < values[other_position]
            )
    assert all(ranks[position] == 0 for position, value in enumerate(values) if value is None)


def test_bits_are_taken_in_turns() -> None:
    first, second = np.array([0b11, 0b10, 0, 1023]), np.array([0, 0b01, 0b11, 1023])
    assert interleaved([first, second]).tolist() == [0b1010, 0b1001, 0b0101, 2**20 - 1]

"""Runners of tasks, and the removal of the files of jobs that no version refers to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.run import compact
from lance_spark.mutations.rows.delete import DeleteTask, delete_rows, plan_delete
from lance_spark.mutations.rows.update import plan_update, update_rows
from lance_spark.predicates.sql import parse_predicate
from lance_spark.runner import LocalRunner, Runner, delete_orphans, new_tag, write_and_delete
from lance_spark.scan.fragment.row_meta import with_all
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.writer import FragmentWriter
from lance_spark.table.open import OpenTable, open_table
from tests.support.tables.stored_files import files, named

COMMIT = CommitOptions(max_retries=3, conflict_retries=0)


class Twice(Runner):
    """Runs each task twice, in reverse order first, like a cluster that loses its results."""

    def __init__(self) -> None:
        self.tag = new_tag()

    def run(
        self, tasks: Sequence[Any], run: Callable[[Any], Any], undo: Callable[[Any], object]
    ) -> list[Any]:
        for task in reversed(tasks):
            run(task)
        return LocalRunner(local=True).run(tasks, run, undo)


def table_of(path: Path, rows: int = 100, fragments: int = 4) -> OpenTable:
    data = pa.table({"id": range(rows), "text": [f"row {n}" for n in range(rows)]})
    write_dataset(data, str(path), max_rows_per_file=rows // fragments)
    return open_table(str(path))


def test_results_come_in_the_order_of_the_tasks() -> None:
    runner = LocalRunner(local=False, threads=4)
    assert runner.run(range(20), lambda n: n * n, print) == [n * n for n in range(20)]


@pytest.mark.parametrize("change", ["delete", "update rows", "update columns", "add", "compact"])
def test_orphans_of_repeated_tasks_are_deleted(tmp_path: Path, change: str) -> None:
    path = tmp_path / "t"
    table, runner, other_runner = table_of(path), Twice(), Twice()
    delete_rows(table, [("id", "==", 3)], None, COMMIT, other_runner)
    table = open_table(str(path))
    before = named(path)
    if change == "delete":
        table = delete_rows(table, [("id", "in", [4, 30, 60])], None, COMMIT, runner)
    elif change.startswith("update"):
        mode: Any = change.split()[1]
        values = {"text": pa.scalar("new")}
        table = update_rows(table, values, [("id", ">", 40)], mode, COMMIT, runner)
    elif change == "add":
        from lance_spark.mutations.columns.add import add_columns

        table = add_columns(table, {"n": pa.scalar(1)}, options=COMMIT, runner=runner)
    else:
        options = CompactionOptions()
        table, _ = compact(table, options, COMMIT, runner)
    added = files(path) - before
    written = named(path) - before
    assert written < added
    rows = lance.dataset(path).to_table()
    of_other = delete_orphans(
        table, other_runner.tag, committed=open_table(str(path), version=2).manifest
    )
    assert of_other == 1
    assert delete_orphans(table, runner.tag, table.manifest) == len(added - written) - 1
    assert files(path) == named(path)
    lance.dataset(path).validate()
    assert lance.dataset(path).to_table() == rows


def test_overlays_of_the_job_are_no_orphans(tmp_path: Path) -> None:
    table, runner = table_of(tmp_path / "t"), Twice()
    updates = {"text": pa.scalar("new")}
    table = update_rows(table, updates, [("id", ">", 90)], "overlay", COMMIT, runner)
    rows = open_dataset(tmp_path / "t").to_table()
    assert delete_orphans(table, runner.tag, table.manifest) == 1
    assert open_dataset(tmp_path / "t").to_table() == rows


def test_orphaned_blobs_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "t"
    data = pa.table({"id": [1], "b": pa.array([b"x"], pa.large_binary())})
    schema = data.schema.set(1, data.schema.field(1).with_metadata({"lance-encoding:blob": "true"}))
    write_dataset(data.cast(schema), str(path), data_storage_version="2.2")
    table = open_table(str(path))
    before = sorted((path / "data").rglob("*"))
    tag = new_tag()
    writer = FragmentWriter(table.paths, table.schema, (2, 2), tag=tag)
    big = [b"x" * 5_000_000, b"y" * 100_000]
    writer.write(pa.record_batch({"id": [2, 3], "b": pa.array(big, pa.large_binary())}))
    assert len(writer.finish()) == 1
    (folder,) = [file for file in (path / "data").iterdir() if file.is_dir()]
    assert any(folder.iterdir())
    # The task was killed before it wrote its data file.
    (path / "data" / f"{folder.name}.lance").unlink()
    assert delete_orphans(table, tag) == 1
    assert sorted((path / "data").rglob("*")) == before


def test_a_short_tag_deletes_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    with pytest.raises(ValueError, match="6 bytes"):
        delete_orphans(table, b"")
    assert len(files(tmp_path / "t")) == 4


def test_predicates_choose_rows_as_filters_do(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    predicate = parse_predicate("id > 90 OR text LIKE 'row 1%'", with_all(table.schema))
    table = delete_rows(table, [predicate, ("id", "!=", 1)], None, COMMIT, text="said so")
    ids = lance.dataset(tmp_path / "t").to_table()["id"].to_pylist()
    gone = {n for n in range(100) if (n > 90 or str(n).startswith("1")) and n != 1}
    assert ids == [n for n in range(100) if n not in gone]
    assert open_dataset(str(tmp_path / "t")).count_rows() == len(ids)
    table = update_rows(table, {"text": pa.scalar("z")}, [predicate], "rows", COMMIT)
    rows = lance.dataset(tmp_path / "t").to_table(filter="text = 'z'")
    assert rows["id"].to_pylist() == [1]
    position = parse_predicate("_rowoffset = 1", with_all(table.schema))
    with pytest.raises(InvalidInputError, match="_rowoffset"):
        plan_update(table, {"text": pa.scalar("z")}, [position])


def test_rows_can_be_bitmaps(tmp_path: Path) -> None:
    from pyroaring import BitMap

    table = table_of(tmp_path / "t")
    tasks = plan_delete(table, rows={1: BitMap([0, 2]), 3: BitMap([24])})
    deletions = [deletion for task in tasks for deletion in DeleteTask.run(task)]
    assert {deletion.fragment_id: deletion.offsets.tolist() for deletion in deletions} == {
        1: [0, 2],
        3: [24],
    }


def test_deletion_files_are_removed_if_the_new_rows_fail() -> None:
    undone: list[str] = []
    started = threading.Event()

    def failing() -> None:
        raise StorageError("the disk is full")

    def new_rows() -> int:
        started.set()
        return 1

    def deletions() -> str:
        # Neither waits for the other.
        assert started.wait(10)
        return "d"

    assert write_and_delete(new_rows, deletions, undone.append) == (1, "d")
    with pytest.raises(StorageError, match="full"):
        write_and_delete(failing, lambda: "d", undone.append)
    assert undone == ["d"]
    with pytest.raises(StorageError, match="full"):
        write_and_delete(lambda: 1, failing, undone.append)
    assert undone == ["d"]

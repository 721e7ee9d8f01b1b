from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap

import lance_spark
from lance_spark.mutations.rows import delete
from lance_spark.runner import LocalRunner


def test_given_rows_are_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One task gets all of their fragments, whatever their size; deleted rows stay deleted."""
    path = str(tmp_path / "t.lance")
    dataset = lance_spark.write_dataset(pa.table({"id": range(30)}), path, max_rows_per_file=10)
    dataset.delete("id IN (3, 21)")
    monkeypatch.setattr(delete, "matching_offsets", None)
    monkeypatch.setattr(delete, "_TASK_ROWS", 1)
    table = lance_spark.open_dataset(path)._table
    rows = {0: BitMap([2, 3, 10]), 1: BitMap(range(10)), 2: BitMap([1])}

    (task,) = delete.plan_delete(table, rows=rows)
    deletions = delete.run_delete(table, LocalRunner(local=True), rows=rows)

    assert task.run()[0].offsets.tolist() == [2]
    assert [(part.fragment_id, part.num_rows) for part in deletions] == [(0, 1), (1, 10)]
    assert [part.file and part.file.num_deleted_rows for part in deletions] == [2, None]


def test_large_fragments_share_a_local_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes their deletion files at the same time; tasks of a cluster have a fragment each."""
    path = str(tmp_path / "t.lance")
    dataset = lance_spark.write_dataset(pa.table({"id": range(30)}), path, max_rows_per_file=10)
    monkeypatch.setattr(delete, "_TASK_ROWS", 10)
    monkeypatch.setattr(delete, "_LOCAL_TASK_ROWS", 20)
    run = delete.delete_offsets
    written: list[int] = []

    def counting(*arguments: Any) -> list[delete.FragmentDeletion]:
        result = run(*arguments)
        written.append(len(result))
        return result

    monkeypatch.setattr(delete, "delete_offsets", counting)
    tasks = delete.plan_delete(dataset._table, [("id", ">", 5)])
    dataset.delete("id > 5")

    assert len(tasks) == 3
    assert written == [2, 1]
    assert lance_spark.open_dataset(path).to_table().column("id").to_pylist() == list(range(6))

"""`lance_spark.dataset.Compaction`: its errors, and what pylance reads of its commits.

`tests/interop/shadow/cases/operations.py` compares its results with those of pylance.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import Dataset, write_dataset
from lance_spark.dataset import Compaction, CompactionPlan, CompactionTask, RewriteResult
from lance_spark.errors import CommitConflictError, InvalidInputError, InvalidOptionError

ROWS = pa.table({"a": pa.array(range(12), pa.int64())})


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(ROWS, tmp_path / "t.lance", max_rows_per_file=4)


def results_of(dataset: Dataset) -> list[RewriteResult]:
    return [task.execute(dataset) for task in Compaction.plan(dataset, {}).tasks]


def test_a_task_runs_on_a_later_version(dataset: Dataset) -> None:
    (task,) = Compaction.plan(dataset, {}).tasks
    dataset.insert(ROWS)
    newest = dataset.checkout_latest()
    newest, metrics = Compaction.commit(newest, [task.execute(newest)])
    assert metrics.fragments_removed == 3
    assert newest.count_rows() == 24


def test_results_of_several_versions_are_refused(dataset: Dataset) -> None:
    results = results_of(dataset)
    dataset.insert(ROWS)
    newest = dataset.checkout_latest()
    with pytest.raises(InvalidInputError, match="versions 1 and 2"):
        Compaction.commit(newest, [*results, *results_of(newest)])


def test_a_repeated_commit_keeps_the_files_of_the_first(dataset: Dataset) -> None:
    """A program repeats a commit, for example, whose answer it did not get."""
    results = results_of(dataset)
    Compaction.commit(dataset, results)
    with pytest.raises(CommitConflictError):
        Compaction.commit(dataset, results)
    assert dataset.checkout_latest().to_table() == ROWS
    assert lance.dataset(dataset.uri).to_table() == ROWS


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("source", ["main", "other"])
@pytest.mark.parametrize("target", ["main", "branch", "clone", "again"])
def test_results_of_another_branch_or_table_are_refused(
    dataset: Dataset, tmp_path: Path, source: str, target: str, as_json: bool
) -> None:
    """Their new files are below another root, although the old fragments are the same."""
    planned = dataset if source == "main" else dataset.create_branch("other")
    plan = Compaction.plan(planned, {})
    if as_json:
        plan = CompactionPlan.from_json(plan.json())
    results = [task.execute(planned) for task in plan.tasks]
    if as_json:
        results = [RewriteResult.from_json(result.json()) for result in results]
    if target == "again":
        Dataset.drop(dataset.uri)
        there = write_dataset(ROWS, dataset.uri, max_rows_per_file=4)
    elif target == "branch":
        there = dataset.create_branch("b")
    else:
        there = dataset if target == "main" else dataset.shallow_clone(tmp_path / "clone.lance")
    if source == target:
        there, _ = Compaction.commit(there, results)
        assert there.version == 3
    else:
        with pytest.raises(InvalidInputError, match="another table or branch"):
            Compaction.commit(there, results)
        with pytest.raises(InvalidInputError, match="another table or branch"):
            plan.tasks[0].execute(there)
    assert there.checkout_latest().to_table() == ROWS
    assert lance.dataset(there.uri).to_table() == ROWS


def test_pylance_reads_the_new_version_and_its_index(dataset: Dataset) -> None:
    dataset = dataset.create_scalar_index("a", "BTREE")
    dataset, metrics = Compaction.commit(dataset, results_of(dataset))
    assert (metrics.fragments_removed, metrics.fragments_added) == (3, 1)
    theirs = lance.dataset(dataset.uri)
    theirs.validate()
    assert theirs.to_table(filter="a in (3, 11)").to_pylist() == [{"a": 3}, {"a": 11}]
    assert "ScalarIndexQuery" in theirs.scanner(filter="a = 3").explain_plan()


def test_a_fragment_to_exclude_must_exist(dataset: Dataset) -> None:
    assert Compaction.plan(dataset, {"excluded_fragment_ids": {0, 1}}).num_tasks() == 0
    with pytest.raises(InvalidOptionError, match="no fragment 9"):
        Compaction.plan(dataset, {"excluded_fragment_ids": {9}})


@pytest.mark.parametrize(
    "parse", [CompactionPlan.from_json, CompactionTask.from_json, RewriteResult.from_json]
)
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"read_version": 1}', "\x00"])
def test_other_texts_are_refused(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(InvalidInputError, match="JSON"):
        parse(text)


@pytest.mark.parametrize("key", ["original_fragments", "new_fragments", "row_addrs"])
def test_wrong_values_are_refused(dataset: Dataset, key: str) -> None:
    (result,) = results_of(dataset)
    value = json.loads(result.json())
    value[key] = [{"id": "x"}] if key.endswith("fragments") else "?"
    with pytest.raises(InvalidInputError):
        RewriteResult.from_json(json.dumps(value))

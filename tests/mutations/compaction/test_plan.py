"""Compactions that other clients interfere with reuse the fragments that are still valid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import CommitConflictError, InvalidOptionError, StorageError
from lance_spark.mutations.compaction import run as compaction
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.run import compact
from lance_spark.mutations.compaction.task import CompactionMetrics, plan_groups
from lance_spark.runner import LocalRunner, Runner
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import open_table
from lance_spark.table.placement import Placement
from tests.support.tables.stored_files import files, named

OPTIONS = CompactionOptions(target_rows_per_fragment=20)


class Interrupted(Runner):
    """Runs tasks in this process. Other clients commit before it returns. Records all runs."""

    def __init__(self, *concurrent_changes: Callable[[], object]) -> None:
        self._others = list(concurrent_changes)
        self.runs: list[list[list[int]]] = []

    def run(
        self, tasks: Sequence[Any], run: Callable[[Any], Any], undo: Callable[[Any], object]
    ) -> list[Any]:
        self.runs.append([[fragment.id for fragment in task.fragments] for task in tasks])
        results = LocalRunner(local=True).run(tasks, run, undo)
        if self._others:
            self._others.pop(0)()
        return results


def write(path: Path, *, stable: bool = False) -> lance.LanceDataset:
    """Eight fragments of ten rows: four groups of two."""
    data = pa.table({"id": range(80), "text": [f"row {n}" for n in range(80)]})
    return lance.write_dataset(
        data, path, max_rows_per_file=10, max_rows_per_group=10, enable_stable_row_ids=stable
    )


def run(path: Path, runner: Runner, retries: int = 3, **options: Any) -> CompactionMetrics:
    chosen = CompactionOptions(target_rows_per_fragment=20, **options)
    commit_options = CommitOptions(max_retries=5, conflict_retries=retries)
    _, metrics = compact(open_table(str(path)), chosen, commit_options, runner)
    return metrics


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("by", ["delete", "update", "columns"])
def test_only_changed_groups_are_rewritten_again(tmp_path: Path, by: str, stable: bool) -> None:
    path = tmp_path / "t"
    write(path, stable=stable)
    if stable:
        before = open_dataset(str(path)).to_table(columns=["id", "_rowid"])

    def other() -> None:
        if by == "delete":
            lance.dataset(path).delete("id = 33")
        elif by == "update":
            lance.dataset(path).update({"text": "'new'"}, "id = 33")
        else:
            open_dataset(str(path)).update({"text": "new"}, [("id", "==", 33)], mode="columns")

    runner = Interrupted(other)
    metrics = run(path, runner)
    assert runner.runs[0] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    # The row of an update went to a fragment at the end, which is small.
    assert runner.runs[1] == [[2, 3]] or by == "update"
    assert not {0, 1, 4, 5} & {number for group in runner.runs[1] for number in group}
    assert metrics.fragments_removed >= 8
    rows = lance.dataset(path).to_table().sort_by("id").to_pydict()
    expected = [n for n in range(80) if by != "delete" or n != 33]
    assert rows["id"] == expected
    assert rows["text"] == ["new" if n == 33 and by != "delete" else f"row {n}" for n in expected]
    lance.dataset(path).validate()
    assert files(path) == named(path)
    if stable:
        after = open_dataset(str(path)).to_table(columns=["id", "_rowid"])
        ids = dict(zip(*before.to_pydict().values(), strict=True))
        assert {n: ids[n] for n in expected} == dict(zip(*after.to_pydict().values(), strict=True))


def test_several_races_in_a_row(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path)
    deletes = [lambda n=n: lance.dataset(path).delete(f"id = {n}") for n in (5, 25, 45, 65)]
    runner = Interrupted(*deletes)
    run(path, runner, retries=8)
    assert runner.runs[1:] == [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]]
    deleted = (5, 25, 45, 65)
    assert lance.dataset(path).to_table()["id"].to_pylist() == [
        n for n in range(80) if n not in deleted
    ]
    assert files(path) == named(path)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("index", [None, "BITMAP", "deferred BTREE"])
def test_late_changes_leave_groups_out(tmp_path: Path, index: str | None, stable: bool) -> None:
    path = tmp_path / "t"
    table = write(path, stable=stable)
    options: dict[str, Any] = {}
    if index == "deferred BTREE" and stable:
        pytest.skip("no reuse index with stable row ids")
    if index is not None:
        table.create_scalar_index("id", index.rpartition(" ")[2])
        options["defer_index_remap"] = None if stable else True
    deleted = (5, 25, 45)
    deletes = [lambda n=n: lance.dataset(path).delete(f"id = {n}") for n in deleted]
    runner = Interrupted(*deletes)
    metrics = run(path, runner, retries=2, **options)
    assert runner.runs[1:] == [[[0, 1]], [[2, 3]]]
    assert (metrics.fragments_removed, metrics.fragments_added) == (6, 3)
    table = lance.dataset(path)
    table.validate()
    unchanged = {fragment.fragment_id for fragment in table.get_fragments()} & set(range(8))
    assert unchanged == {4, 5}
    assert sorted(table.to_table()["id"].to_pylist()) == [n for n in range(80) if n not in deleted]
    for number in (3, 33, 44, 77):
        rows = table.to_table(filter=f"id = {number}").to_pydict()
        assert rows == {"id": [number], "text": [f"row {number}"]}
    assert files(path) == named(path)
    # The next compaction takes the fragments that were left out.
    later = Interrupted()
    run(path, later)
    assert later.runs[0][0][:2] == [4, 5]
    assert len(lance.dataset(path).get_fragments()) < 5


def test_nothing_is_committed_if_all_is_changed_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path)
    changes = [lambda: lance.dataset(path).delete("id % 20 = 7 and id < 40")] + [
        lambda n=n: lance.dataset(path).delete(f"id % 20 = {n}") for n in (8, 9)
    ]
    before = lance.dataset(path).version
    with pytest.raises(CommitConflictError):
        run(path, Interrupted(*changes), retries=2)
    operation_names = {
        type(transaction.operation).__name__
        for transaction in lance.dataset(path).get_transactions(10)
        if transaction
    }
    assert "Rewrite" not in operation_names
    assert lance.dataset(path).version > before
    assert files(path) == named(path)


def test_groups_of_another_compaction_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path)
    runner = Interrupted(
        lambda: lance.dataset(path).optimize.compact_files(target_rows_per_fragment=40)
    )
    run(path, runner)
    assert lance.dataset(path).to_table()["id"].to_pylist() == list(range(80))
    assert len(lance.dataset(path).get_fragments()) == 2
    assert files(path) == named(path)


def test_an_index_that_covers_a_part_of_a_group(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path)

    def index_some() -> None:
        table = lance.dataset(path)
        table.create_scalar_index("id", "BTREE")
        table.delete("id = 70")

    runner = Interrupted(index_some)
    run(path, runner)
    table = lance.dataset(path)
    assert table.to_table(filter="id = 33").to_pydict() == {"id": [33], "text": ["row 33"]}
    assert table.to_table()["id"].to_pylist() == [n for n in range(80) if n != 70]
    assert files(path) == named(path)


def test_a_failed_compaction_leaves_no_files(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path)
    runner = Interrupted(lambda: lance.dataset(path).delete("id = 33"))
    with pytest.raises(CommitConflictError):
        run(path, runner, retries=0)
    assert files(path) == named(path)
    other_table = pa.table({"id": [1], "text": ["x"]})
    runner = Interrupted(lambda: lance.write_dataset(other_table, path, mode="overwrite"))
    with pytest.raises(CommitConflictError):
        run(path, runner)
    assert files(path) == named(path)


def test_an_interrupt_leaves_files_that_a_version_may_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    write(path)

    def fail(error: type[BaseException]) -> None:
        def commit(*_: Any, **__: Any) -> None:
            raise error("stop")

        monkeypatch.setattr(compaction, "commit_compaction", commit)

    fail(StorageError)
    with pytest.raises(StorageError):
        run(path, Interrupted())
    assert files(path) == named(path)
    fail(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        run(path, Interrupted())
    assert len(files(path) - named(path)) == 4


def test_limits_count_reused_groups(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(path)
    runner = Interrupted(lambda: lance.dataset(path).delete("id = 3"))
    metrics = run(path, runner, max_source_fragments=4)
    assert runner.runs == [[[0, 1], [2, 3]], [[0, 1]]]
    assert (metrics.fragments_removed, metrics.fragments_added) == (4, 2)
    again = run(path, Interrupted(), max_source_fragments=2)
    assert again.fragments_removed == 2


def sized(number: int, rows: int, num_bytes: int) -> Fragment:
    return Fragment(number, [DataFile(f"{number}.lance", (), (), 2, 1, num_bytes)], rows)


def test_fragments_of_so_many_bytes() -> None:
    options = CompactionOptions(target_bytes_per_fragment=1_000)

    def groups(*sizes: tuple[int, int]) -> list[list[int]]:
        fragments = [sized(number, *size) for number, size in enumerate(sizes)]
        return [
            [fragment.id for fragment in group]
            for group in plan_groups(fragments, [], options, Placement())
        ]

    assert groups((10, 500), (10, 500), (10, 1_500), (10, 100), (10, 100)) == [[0, 1], [3, 4]]
    # Few but large rows: these fragments stay.
    assert groups((2, 5_000), (2, 5_000)) == []
    assert groups(*[(10, 500)] * 6) == [[0, 1], [2, 3], [4, 5]]
    assert options.target_rows([sized(0, 10, 500), sized(1, 30, 1_500)]) == 20
    # Without a recorded size, the number of rows decides.
    assert groups((10, 0), (10, 0)) == [[0, 1]]
    assert options.target_rows([sized(0, 10, 0)]) == options.values["target_rows_per_fragment"]
    with pytest.raises(InvalidOptionError, match="target_bytes_per_fragment"):
        CompactionOptions(target_bytes_per_fragment=0)


def test_a_table_gets_fragments_of_so_many_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    values = np.random.default_rng(1).random(64 * 1_600).astype("f4")
    data = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(values), 64)})
    lance.write_dataset(data, path, max_rows_per_file=100, max_rows_per_group=100)
    options = CompactionOptions(target_bytes_per_fragment=100_000)
    for _ in range(2):
        compact(open_table(str(path)), options, CommitOptions(max_retries=5, conflict_retries=0))
        sizes = [fragment.size_bytes for fragment in open_table(str(path)).manifest.fragments]
        assert len(sizes) == 4
        assert all(90_000 < size < 130_000 for size in sizes)
    assert lance.dataset(path).to_table() == data

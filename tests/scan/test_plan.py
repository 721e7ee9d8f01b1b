"""Fragments are packed into tasks; `Dataset.explain` describes the scan that follows."""

from __future__ import annotations

import gc
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lance_spark
from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError
from lance_spark.scan.plan import collection_paused, default_target_rows, pack
from lance_spark.table.fragments.fragment import Fragment

ROWS = 20_000


def fragments(sizes: list[int]) -> list[Fragment]:
    return [Fragment(id=i, files=(), physical_rows=rows) for i, rows in enumerate(sizes)]


@given(st.lists(st.integers(0, 5_000_000), max_size=30), st.integers(1, 2_000_000))
def test_packing_covers_every_row_once_and_in_order(sizes: list[int], target: int) -> None:
    groups = pack(fragments(sizes), max(target, sum(sizes) // 1000 + 1))
    pieces = [(p.fragment.id, p.start, p.stop) for group in groups for p in group]
    expected_id, expected_start = 0, 0
    for fragment_id, start, stop in pieces:
        while expected_start == sizes[expected_id]:
            expected_id, expected_start = expected_id + 1, 0
        assert (fragment_id, start) == (expected_id, expected_start)
        assert stop > start
        expected_start = stop
    assert sum(stop - start for _, start, stop in pieces) == sum(sizes)


def test_ten_thousand_tiny_fragments_make_few_tasks() -> None:
    groups = pack(fragments([100] * 10_000), 100_000)
    assert len(groups) == 10
    assert {sum(p.num_rows for p in group) for group in groups} == {100_000}


def test_one_huge_fragment_is_cut_evenly() -> None:
    groups = pack(fragments([10_000_000]), 1_000_000)
    sizes = [sum(p.num_rows for p in group) for group in groups]
    assert len(sizes) == 10
    assert max(sizes) < 1.05 * min(sizes)


def test_no_group_has_more_than_1_5_times_the_target() -> None:
    groups = pack(fragments([900_000, 900_000, 10, 600_000, 400_000, 1_400_000]), 1_000_000)
    assert all(sum(p.num_rows for p in group) <= 1_500_000 for group in groups)


@given(st.lists(st.integers(0, 3_000_000), max_size=40), st.integers(20_000, 2_000_000))
def test_groups_are_as_many_as_the_target_asks_for(sizes: list[int], target: int) -> None:
    groups = pack(fragments(sizes), target)
    assert len(groups) == (max(1, round(sum(sizes) / target)) if sum(sizes) else 0)
    assert all(sum(p.num_rows for p in group) < 1.5 * target + 4_096 for group in groups)


@pytest.mark.parametrize(
    ("processors", "many"), [(4, 5), (8, 9), (8, 10), (8, 13), (16, 17), (16, 21), (16, 31), (7, 8)]
)
def test_fragments_that_are_no_multiple_of_the_processors_are_shared(
    processors: int, many: int
) -> None:
    rows = 4_000_000
    target = default_target_rows(rows * many, rows * many * 8, processors)
    groups = pack(fragments([rows] * many), target)
    assert len(groups) == processors
    # Whole fragments would be two for one of the processors, and one for most others.
    ideal = rows * many / processors
    assert max(sum(p.num_rows for p in group) for group in groups) < 1.3 * ideal


@pytest.mark.parametrize("whole", [[10, 10, 10], [1, 50, 1], [7, 7, 7, 7, 7, 7]])
def test_whole_fragments_are_not_cut(whole: list[int]) -> None:
    groups = pack(fragments(whole), 12, whole_fragments=True)
    assert [p.num_rows for group in groups for p in group] == whole
    assert len(groups) > 1
    assert all(groups)


def test_rows_that_a_manifest_claims_cost_nothing_in_whole_fragments() -> None:
    groups = pack(fragments([2**32 - 1, 5, 2**32 - 1]), 1, whole_fragments=True)
    assert [[p.num_rows for p in group] for group in groups] == [[2**32 - 1], [5], [2**32 - 1]]


def test_target_shares_the_work_and_is_not_below_the_cost_of_a_task() -> None:
    assert default_target_rows(8_000_000, 64_000_000, 2) == 4_000_000
    # A task has at least so many rows; fewer if rows are wide or have many columns.
    assert default_target_rows(10_000, 80_000, 8) == 512 * 1024
    assert default_target_rows(8_000_000, 64_000_000, 16) == 1024 * 1024
    assert default_target_rows(2_500_000, 20_000_000, 16) == 1024 * 1024
    assert default_target_rows(1_000_000, 8_000_000, 16, num_columns=9) == 256 * 1024
    assert default_target_rows(100_000, 102_400_000, 8) == 48 * 1024
    # Vectors of 4 KiB: 128 MiB are 32,768 rows. 306 such tasks are 308, a multiple of 4.
    assert default_target_rows(10_000_000, 40_960_000_000, 4) == 32_468
    assert default_target_rows(0, 0, 4) == 1


@pytest.mark.parametrize(
    ("rows", "columns", "processors"),
    [(2_880_404, 5, 2), (1_441_548, 8, 2), (1_441_548, 3, 2), (6_001_215, 4, 4)],
)
def test_eight_like_fragments_are_one_task_for_each_processor(
    rows: int, columns: int, processors: int
) -> None:
    # As a repartition by Spark makes them: not of quite the same size.
    sizes = [rows // 8 + (number * 37) % 5 - 2 for number in range(8)]
    target = default_target_rows(sum(sizes), sum(sizes) * 8 * columns, processors, columns)
    groups = pack(fragments(sizes), target)
    assert [len(group) for group in groups] == [8 // processors] * processors


@given(st.integers(1, 50_000_000), st.integers(1, 64), st.integers(1, 40))
def test_number_of_tasks_is_a_multiple_of_the_processors(
    rows: int, processors: int, columns: int
) -> None:
    target = default_target_rows(rows, rows * 8 * columns, processors, columns)
    tasks = -(-rows // target)
    # The target is a whole number of rows.
    assert tasks <= processors or tasks % processors == 0 or tasks * target - rows < tasks
    # A task for each processor takes no more than 128 MiB: there is no second one.
    assert tasks <= processors or rows * 8 * columns > 0.99 * processors * 128 * 1024 * 1024


@pytest.mark.parametrize("stored", [2**45, 2**63])
@pytest.mark.parametrize("columns", [1, 1_000])
def test_claimed_bytes_do_not_make_too_many_tasks(stored: int, columns: int) -> None:
    rows = 2**32 - 1
    target = default_target_rows(rows, stored, 1, columns)
    assert 16_000 < rows / target <= 16 * 1024
    assert len(pack(fragments([rows]), target)) <= 17_000


def test_explain(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    random = np.random.default_rng(1).random(30_000 * 64, np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(random, 64)
    dataset = lance.write_dataset(
        pa.table({"id": range(30_000), "v": vectors}), str(path), max_rows_per_file=10_000
    )
    dataset.delete("id < 10")
    text = lance_spark.open_dataset(str(path)).explain(["v"], rows_per_task=10_000)
    assert text.splitlines() == [
        *(f"Scan of {path}, version 2", "  columns: v", "  tasks: 3, of 10,000 to 10,000 rows"),
        *("  fragments: 3 of 3", "  rows to look at: 30,000 of 30,000"),
        *("  deleted rows in these fragments: 10", "  bytes: about 7.3 MiB"),
    ]
    dataset.create_scalar_index("id", "ZONEMAP")
    ours = lance_spark.open_dataset(str(path))
    text = ours.explain(["v", "id"], filter="id > 25000")
    assert "  filter: id > 25000\n  tasks: 1," in text
    assert "  fragments: 1 of 3\n  rows to look at: 10,000 of 30,000, the others" in text
    assert "up to 2.4 MiB for the other columns" in text
    assert ours.explain(filter="id > 70000").endswith("statistics rule out all rows")
    assert "columns: none" in ours.explain([], filters=[("id", "<", 15)])
    assert "('id', '<', 15)" in ours.explain([], filters=[("id", "<", 15)])


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    """Ten fragments of 20,000 rows."""
    rows = pa.table({"id": np.arange(10 * ROWS)})
    path = str(tmp_path / "t")
    write_dataset(rows, path, max_rows_per_file=ROWS, enable_stable_row_ids=request.param)
    return open_dataset(path)


@pytest.mark.parametrize("target", [None, 3_000, 45_000])
def test_plan_of_some_whole_fragments(dataset: Dataset, target: int | None) -> None:
    ids = [7, 2, 3]
    columns = ["id", "_rowoffset", "_rowid", "_fragid"]
    tasks = dataset.plan(columns, rows_per_task=target, fragment_ids=ids, whole_fragments=True)
    parts = [pa.Table.from_batches(task.batches()) for task in tasks]
    owners = [set(part["_fragid"].to_pylist()) for part in parts]
    assert sum(map(len, owners)) == len(set().union(*owners))
    rows = pa.concat_tables(parts)
    wanted = np.concatenate([np.arange(n * ROWS, (n + 1) * ROWS) for n in sorted(ids)])
    assert rows["id"].to_numpy().tolist() == wanted.tolist()
    # Positions count rows of the whole table.
    assert rows["_rowoffset"].to_numpy().tolist() == wanted.tolist()
    if target == 3_000:
        assert len(tasks) == 3


def test_filters_on_some_and_no_fragments(dataset: Dataset) -> None:
    tasks = dataset.plan(["id"], filter="id > 25000", fragment_ids=range(2))
    assert sum(batch.num_rows for task in tasks for batch in task.batches()) == 2 * ROWS - 25_001
    assert dataset.plan(["id"], fragment_ids=[]) == []
    # Without the option large fragments are cut.
    assert len(dataset.plan(["id"], fragment_ids=[4], rows_per_task=3_000)) > 1


def test_unknown_fragment_ids_are_refused(dataset: Dataset) -> None:
    with pytest.raises(InvalidInputError, match="no fragment 10"):
        dataset.plan(fragment_ids=[3, 10])


def test_threads_that_plan_at_once_leave_the_collector_on() -> None:
    first, second = collection_paused(), collection_paused()
    first.__enter__()
    second.__enter__()
    assert not gc.isenabled()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()

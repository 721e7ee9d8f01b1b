"""Fragments are packed into tasks, and live rows are mapped to row offsets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_spark.scan.plan import default_target_rows, pack
from lance_spark.scan.positions import live_to_physical
from lance_spark.table.fragments.fragment import Fragment


def fragments(sizes: list[int]) -> list[Fragment]:
    return [Fragment(id=i, files=(), physical_rows=rows) for i, rows in enumerate(sizes)]


@given(
    st.lists(st.integers(0, 5_000_000), max_size=30),
    st.integers(1, 2_000_000),
)
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


def test_target_shares_the_work_and_is_not_below_the_cost_of_a_task() -> None:
    assert default_target_rows(8_000_000, 64_000_000, 2) == 4_000_000
    # Fewer rows make no task of their own, and still fewer if they are wide or have many columns.
    assert default_target_rows(10_000, 80_000, 8) == 1024 * 1024
    assert default_target_rows(8_000_000, 64_000_000, 16) == 2 * 1024 * 1024
    assert default_target_rows(2_500_000, 20_000_000, 16) == 1_250_000
    assert default_target_rows(8_000_000, 64_000_000, 16, num_columns=9) == 1024 * 1024
    assert default_target_rows(200_000, 204_800_000, 8) == 96 * 1024
    # Vectors of 4 KiB: 128 MiB are 32,768 rows.
    assert default_target_rows(10_000_000, 40_960_000_000, 4) == 32_768
    assert default_target_rows(0, 0, 4) == 1


@pytest.mark.parametrize("stored", [2**45, 2**63])
@pytest.mark.parametrize("columns", [1, 1_000])
def test_claimed_bytes_do_not_make_too_many_tasks(stored: int, columns: int) -> None:
    rows = 2**32 - 1
    target = default_target_rows(rows, stored, 1, columns)
    assert 16_000 < rows / target <= 16 * 1024
    assert len(pack(fragments([rows]), target)) <= 17_000


@given(st.integers(1, 200), st.data())
def test_live_rows_map_to_physical_offsets(rows: int, data: st.DataObject) -> None:
    deleted = sorted(data.draw(st.sets(st.integers(0, rows - 1), max_size=rows)))
    live = [row for row in range(rows) if row not in set(deleted)]
    got = live_to_physical(np.arange(len(live)), np.array(deleted, dtype=np.int64))
    assert got.tolist() == live

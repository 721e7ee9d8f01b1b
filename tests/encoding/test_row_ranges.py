"""Sets of rows as ranges, compared with sets of numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_spark.encoding.rows import NO_ROWS, RowRanges, in_all, in_any

NUMBERS = st.sets(st.integers(0, 60))


def rows_of(numbers: set[int]) -> RowRanges:
    return RowRanges.of_rows(np.array(sorted(numbers), np.int64))


def numbers_of(rows: RowRanges) -> set[int]:
    return {number for part in rows for number in part}


def is_normal(rows: RowRanges) -> bool:
    bounds = np.stack([rows.starts, rows.stops], axis=1).reshape(-1)
    return bool((np.diff(bounds) > 0).all())


@given(st.lists(NUMBERS, min_size=1, max_size=4))
def test_unions_and_intersections(sets: list[set[int]]) -> None:
    ranges = [rows_of(numbers) for numbers in sets]
    union, intersection = in_any(ranges), in_all(ranges)
    assert union is not None
    assert intersection is not None
    assert numbers_of(union) == set.union(*sets)
    assert numbers_of(intersection) == set.intersection(*sets)
    assert is_normal(union)
    assert is_normal(intersection)


def test_unknown_sets() -> None:
    rows = rows_of({3, 4})
    assert in_all([]) is None
    assert in_all([None, None]) is None
    assert in_any([rows, None]) is None
    known = in_all([None, rows])
    assert known is not None
    assert list(known) == [range(3, 5)]
    nothing = in_any([])
    assert nothing is not None
    assert not nothing.num_ranges


@given(NUMBERS, st.integers(0, 60), st.integers(0, 60))
def test_parts(numbers: set[int], start: int, stop: int) -> None:
    rows = rows_of(numbers)
    inside = {number for number in numbers if start <= number < stop}
    assert rows.num_rows == len(numbers)
    assert numbers_of(rows.within(start, stop)) == inside
    assert numbers_of(rows.shifted(5)) == {number + 5 for number in numbers}
    mask = rows.mask(range(start, max(start, stop)))
    assert set((np.flatnonzero(mask) + start).tolist()) == inside


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_rows_by_their_number(numbers: set[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(numbers) - 1))
    stop = data.draw(st.integers(first + 1, len(numbers) + 3))
    expected = sorted(numbers)[first:stop]
    assert sorted(numbers_of(rows_of(numbers).part(first, stop))) == expected


@given(NUMBERS, st.integers(1, 9))
def test_near_ranges_are_joined(numbers: set[int], gap: int) -> None:
    joined = rows_of(numbers).joined(gap)
    assert numbers <= numbers_of(joined)
    assert (joined.starts[1:] - joined.stops[:-1] >= gap).all()
    added = sorted(numbers_of(joined) - numbers)
    before = np.searchsorted(sorted(numbers), added)
    for number, position in zip(added, before.tolist(), strict=True):
        assert sorted(numbers)[position] - sorted(numbers)[position - 1] <= gap
        assert number > 0


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12))
def test_chosen_blocks(blocks: list[tuple[int, bool]]) -> None:
    bounds = np.cumsum([0, *(size for size, _ in blocks)])
    chosen = np.array([is_chosen for _, is_chosen in blocks], np.bool_)
    expected = {
        number
        for index, (_, is_chosen) in enumerate(blocks)
        if is_chosen
        for number in range(int(bounds[index]), int(bounds[index + 1]))
    }
    rows = RowRanges.of_blocks(bounds, chosen)
    assert numbers_of(rows) == expected
    assert is_normal(rows)


@pytest.mark.parametrize("rows", [NO_ROWS, RowRanges.of([]), RowRanges.of([range(5, 5)])])
def test_empty_sets(rows: RowRanges) -> None:
    assert not rows.num_rows
    assert not rows.within(0, 9).num_ranges
    assert not rows.joined(3).num_ranges
    assert not rows.mask(range(4)).any()

"""Entries of full-zip rows: the vectorised search and the walk find the same entries as a plain
reading of the bytes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.v2_1.layouts.full_zip import Grid, walk_rows
from lance_spark.errors import CorruptFileError
from tests.support.cells import number_of

#: One bit of repetition, two bits of definition. Definition 0 is a value, 1 is a null, others have
#: no value.
GRID = Grid(control=1, bits_def=2, width=3, variable=False, max_visible=1)


def page(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with entries of these definitions; and the positions of the rows, with the end of
    the last row.
    """
    data, edges = bytearray(), [0]
    for row in rows:
        for number, definition in enumerate(row):
            data.append((number == 0) << 2 | definition)
            data += bytes([len(data) % 251] * 3) if definition <= 1 else b""
        edges.append(len(data))
    return np.frombuffer(bytes(data), np.uint8), np.array(edges)


ROW = st.one_of(
    st.just([3]),
    st.lists(st.sampled_from([0, 1]), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
)


@settings(max_examples=number_of(120, 300), deadline=None)
@given(st.lists(ROW, min_size=1, max_size=40))
def test_entries(rows: list[list[int]]) -> None:
    data, edges = page(rows)
    result = walk_rows(GRID, data, edges[:-1], edges[1:])
    controls, places = [], []
    at = 0
    for row in rows:
        for number, definition in enumerate(row):
            controls.append((number == 0) << 2 | definition)
            if definition <= 1:
                places.append(at + 1)
                at += 3
            at += 1
    assert result.control.tolist() == controls
    assert result.value_at.tolist() == places
    assert result.value_size.tolist() == [3] * len(places)


@pytest.mark.parametrize("rows", [[[0, 0], [1]], [[0], [3], [0, 2]], [[3, 3, 3, 3], [0]]])
def test_rows_that_end_elsewhere_are_refused(rows: list[list[int]]) -> None:
    data, edges = page(rows)
    for number in range(1, len(edges) - 1):
        for shift in (-1, 1, 2):
            moved = edges.copy()
            moved[number] += shift
            if (np.diff(moved) <= 0).any() or data[moved[number] - 1] & 3 > 1:
                continue
            with pytest.raises(CorruptFileError):
                walk_rows(GRID, data, moved[:-1], moved[1:])

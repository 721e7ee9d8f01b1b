"""`FragmentIds` behave like sets of integers."""

from __future__ import annotations

import operator
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from lance_spark.table.indexes.sections import FragmentIds

IDS = st.sets(st.integers(0, 2**32 - 1) | st.integers(0, 20))


@given(IDS, IDS | st.sets(st.integers()))
def test_behaves_like_a_set(numbers: set[int], other_numbers: set[int]) -> None:
    ids = FragmentIds(numbers)
    assert ids == numbers
    assert numbers == ids
    assert hash(ids) == hash(frozenset(numbers))
    assert list(ids) == sorted(numbers)
    assert len(ids) == len(numbers)
    assert pickle.loads(pickle.dumps(ids)) == ids
    for combine in (operator.and_, operator.or_, operator.sub, operator.xor, operator.le):
        assert combine(ids, other_numbers) == combine(numbers, other_numbers)
        assert combine(other_numbers, ids) == combine(other_numbers, numbers)
    assert [number in ids for number in other_numbers] == [
        number in numbers for number in other_numbers
    ]


def test_membership() -> None:
    ids = FragmentIds(BitMap([0, 7]))
    assert np.int64(7) in ids
    for value in (-1, 2**32, 2**70, "7", None, 7.5):
        assert value not in ids


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        ([], "FragmentIds()"),
        ([3, 1], "{1, 3}"),
        (range(2**23), f"{{{', '.join(map(str, range(20)))}, ... 8388608 in all}}"),
    ],
)
def test_repr_of_fragment_ids(ids: list[int], shown: str) -> None:
    assert repr(FragmentIds(ids)) == shown

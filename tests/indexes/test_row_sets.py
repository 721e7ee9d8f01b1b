"""Sets of rows in index files."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.indexes.row_sets import RowSet

WORDS = st.sets(st.integers(0, 2**64 - 1) | st.integers(0, 300), max_size=40)


def row_set(words: set[int]) -> RowSet:
    return RowSet.of(np.array(sorted(words), np.uint64))


@given(WORDS)
def test_sets_are_stored_and_read(words: set[int]) -> None:
    stored = row_set(words).encode()
    read = RowSet.decode(stored, "f")
    assert read.num_rows == len(words)
    assert read.row_keys().tolist() == sorted(words)


@given(st.lists(WORDS, max_size=4))
def test_unions(sets: list[set[int]]) -> None:
    union = RowSet.union(map(row_set, sets))
    assert union.row_keys().tolist() == sorted(set().union(*sets))


@given(WORDS, st.data())
def test_truncated_sets_are_errors(words: set[int], data: st.DataObject) -> None:
    stored = bytearray(row_set({*words, 5}).encode())
    kept = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(CorruptFileError, match="rebuild the index"):
        RowSet.decode(bytes(stored[:kept]), "f")


@given(WORDS, st.data())
def test_changed_bytes_do_no_harm(words: set[int], data: st.DataObject) -> None:
    stored = bytearray(row_set({*words, 5}).encode())
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(CorruptFileError, UnsupportedFeatureError):
        RowSet.decode(bytes(stored), "f")


def test_whole_fragments_are_not_read() -> None:
    with pytest.raises(UnsupportedFeatureError, match="all rows of fragment 3"):
        RowSet.decode(struct.pack("<III", 1, 3, 0), "f")

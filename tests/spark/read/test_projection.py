"""Names of columns are found among thousands of others as among few."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lance_spark.spark.read.projection import Finder, find

NAMES = st.text("abAB", max_size=2)


@given(st.lists(NAMES, max_size=8), NAMES)
def test_many_names_are_found_as_one_is(names: list[str], name: str) -> None:
    assert Finder(names)(name) == find(names, name)

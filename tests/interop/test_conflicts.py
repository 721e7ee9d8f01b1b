"""Every pair of changes has the same outcome as in pylance, and as `docs/reference/conflicts.md`
shows.

The tables that come of two changes are compared for one of their orders, and with
`LANCE_SPARK_TEST_CELLS=all` for both.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.conflict_changes import CHANGES
from tests.interop.conflicts import DIFFERENCES, PAGE, Tables, page, try_pair
from tests.support.cells import ALL_CELLS

_ROW = re.compile(r"\| (\d+) ([^|]+) \| (.+) \|")


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables.new(tmp_path_factory.mktemp("conflicts"))


def page_outcomes() -> dict[tuple[str, str], str]:
    """Return the outcome of each pair on the page."""
    rows = [match for match in map(_ROW.fullmatch, PAGE.read_text().splitlines()) if match]
    names = [row[2] for row in rows]
    return {
        (row[2], before): cell.strip().rstrip("*")
        for row in rows
        for before, cell in zip(names, row[3].split("|"), strict=True)
    }


def is_chosen(first: int, before: int) -> bool:
    """Return whether to compare the tables of a pair in this order: one of its two orders is
    chosen.
    """
    return first == before or (first < before) == ((first + before) % 2 == 0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", range(len(CHANGES)), ids=[change.name for change in CHANGES])
def test_pairs(tables: Tables, number: int) -> None:
    first, page_says = CHANGES[number], page_outcomes()
    for before_number, before in enumerate(CHANGES):
        pair = first.name, before.name
        contents = ALL_CELLS or is_chosen(number, before_number)
        outcome = try_pair(tables, first, before, contents=contents)
        assert outcome.ours == page_says[pair], pair
        assert outcome.pylance_on_ours == outcome.pylance, pair
        assert (outcome.ours != outcome.pylance) == (pair in DIFFERENCES), (pair, outcome)


def test_the_page_is_what_the_program_writes() -> None:
    assert page(page_outcomes()) == Path(PAGE).read_text()

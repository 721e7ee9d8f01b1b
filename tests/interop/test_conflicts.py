"""Every pair of changes has the same outcome as in pylance, and as `docs/reference/conflicts.md`
shows.

The tables that come of two changes are compared for one of their orders, and by
`make test-long` for both.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
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


@pytest.mark.parametrize("client", ["pylance", "this package"])
def test_a_change_that_takes_longer_than_old_versions_stay(tmp_path: Path, client: str) -> None:
    """pylance does not compare its change with versions that a cleanup removed."""
    path = str(tmp_path / "t.lance")
    rows = pa.table({"id": [1, 2], "n": [0, 0]})
    stale: Any = lance.write_dataset(rows, path, enable_stable_row_ids=True)
    if client == "this package":
        stale = lance_spark.open_dataset(path)
    for _ in range(3):
        lance.dataset(path).update({"n": "n + 1"}, where="id = 1")
    lance.dataset(path).cleanup_old_versions(timedelta(0))
    if client == "pylance":
        stale.update({"n": "n + 1"}, where="id = 1")
    else:
        stale.update({"n": lambda batch: pc.add(batch["n"], 1)}, "id = 1")
    table = lance.dataset(path).to_table(with_row_id=True)
    result = sorted(zip(*(table[name].to_pylist() for name in ("id", "n", "_rowid")), strict=True))
    if client == "pylance":
        # docs/explanation/reliability.md says so. If pylance refuses it one day, that page changes.
        assert result == [(1, 1, 0), (1, 3, 0), (2, 0, 1)]
    else:
        assert result == [(1, 4, 0), (2, 0, 1)]

"""Indexes of old releases: scans that use them give the rows of scans that do not.

`tests/fixtures/build_indexes.py` made the tables. Neighbouring versions of a table have different
halves of the conditions; `make test-long` tries all on each. `USED` says which columns' indexes a
scan uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lance
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.indexes.aggregates import min_max_from_metadata, value_count
from tests.fixtures.tables import INDEXES, unpack
from tests.support.cells import every_other

FILTERS: dict[str, list[str]] = {
    "bt_int": [
        "bt_int = 4500",
        "bt_int > 4300 AND bt_int < 4600",
        "bt_int IN (5, 4700, 999999)",
        "bt_int < 10",
        "bt_int IS NULL",
        "bt_int IS NOT NULL AND bt_int > 5300",
        "bt_int <> 5 AND bt_int < 30",
        "bt_int = 5 OR bt_int = 4800",
    ],
    "bt_float": [
        "bt_float = 0",
        "bt_float > 180 AND bt_float < 250",
        "bt_float IS NULL",
        "bt_float IN (-0.0, 205.5)",
    ],
    "bt_text": [
        "bt_text = 'w1150'",
        "bt_text >= 'w1050' AND bt_text < 'w1190'",
        "bt_text LIKE 'w120%'",
        "bt_text IS NULL",
        "NOT bt_text > 'w0004' AND bt_text IS NOT NULL",
    ],
    "bm_int": ["bm_int = 3", "bm_int > 37", "bm_int IS NULL", "bm_int IN (1, 99)"],
    "bm_float": ["bm_float = 0", "bm_float = 8.25", "bm_float IS NULL"],
    "bm_text": ["bm_text = 'ünï'", "bm_text = ''", "bm_text IS NULL", "bm_text > 'red'"],
    "ll_text": [
        "array_has(ll_text, 'blue')",
        "array_has_all(ll_text, make_array('red', 'green'))",
        "array_has_any(ll_text, make_array('violet', 'nope'))",
    ],
    "ng_text": [
        "contains(ng_text, 'iole')",
        "ng_text LIKE '%17 of green%'",
        "contains(ng_text, 'em 1')",
    ],
    "zm_int": ["zm_int = 2600", "zm_int IS NULL", "zm_int > 5200", "zm_int < 20"],
    "zm_float": ["zm_float = 0", "zm_float IS NULL", "zm_float > 200 AND zm_float < 300"],
    "bf_int": ["bf_int = 70", "bf_int IN (5, 2100)", "bf_int IS NULL"],
}
ZONED = {"zm_int", "zm_float", "bf_int"}
SEARCHED = set(FILTERS) - ZONED
#: Release -> the columns whose indexes are used. Indexes before 0.31 may lack rows.
USED = {
    "0.20.0": set(),
    "0.25.2": set(),
    "0.29.0": set(),
    "0.33.0": SEARCHED,
    "0.39.0": SEARCHED | ZONED,
    "1.0.4": SEARCHED | ZONED,
    "2.0.1": SEARCHED | ZONED,
}
NOTES: dict[str, Any] = json.loads((INDEXES / "index.json").read_text())
#: Release, table, what was done last, and the version.
STATES = [
    (release, table, state, version)
    for release, notes in NOTES.items()
    for table, facts in notes["tables"].items()
    for state, version in facts["versions"].items()
]
Unpacked = Callable[[str], Path]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """Return the folder of a release's tables, which is unpacked once."""
    return cache(lambda release: unpack(release, tmp_path_factory.mktemp(release), INDEXES))


def ids(table: Any) -> list[Any]:
    return sorted(table["id"].to_pylist())


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("release", "table", "state", "version"), STATES, ids=[" ".join(s[:3]) for s in STATES]
)
def test_answers_are_those_without_indexes(
    release: str, table: str, state: str, version: int, unpacked: Unpacked
) -> None:
    path = str(unpacked(release) / table / "table.lance")
    dataset, oracle = lance_spark.open_dataset(path, version), lance.dataset(path, version=version)
    number, used = version + list(NOTES).index(release), set()
    for texts in FILTERS.values():
        for text in every_other(texts, number):
            expected = ids(dataset.to_table(["id"], filter=text, use_scalar_index=False))
            assert ids(dataset.to_table(["id"], filter=text)) == expected, text
            theirs = oracle.scanner(columns=["id"], filter=text, use_scalar_index=False)
            assert ids(theirs.to_table()) == expected, text
            used |= set(re.findall(r"index: (\w+)_idx", dataset.explain(filter=text)))
    # The zones of early releases have the length of their live rows; those with deleted rows
    # are ignored. So are zones after a compaction.
    assert used - ZONED == USED[release] - ZONED
    assert used <= USED[release]
    if state == "optimized" and release != "0.33.0":
        assert used == USED[release]


@pytest.mark.parametrize("release", NOTES)
@pytest.mark.parametrize("state", ["deleted", "compacted"])
def test_statistics_of_indexes_are_those_of_the_rows(
    release: str, state: str, unpacked: Unpacked
) -> None:
    path = str(unpacked(release) / "plain" / "table.lance")
    version = NOTES[release]["tables"]["plain"]["versions"][state]
    dataset = lance_spark.open_dataset(path, version)
    for name in ("bt_int", "bt_text"):
        column = dataset.to_table([name])[name]
        expected = pc.min_max(column).as_py()
        count = value_count(dataset._table, dataset.fragments, [name])
        assert count in (None, len(column) - column.null_count)
        bounds = min_max_from_metadata(dataset._table, dataset.fragments, [name])
        assert bounds is None or [bound.as_py() for bound in bounds] == list(expected.values())
        if state == "compacted" and USED[release]:
            assert count is not None

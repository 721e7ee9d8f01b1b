"""Scalar indexes: built here and used by pylance, built by pylance and used here.

Indexes of each type by each client are on one of two tables, and indexes of the type by the other
client on the other one. Every second condition is tried on a table. `make test-long` tries
all conditions and all indexes on tables of more versions of files.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from lance_spark.errors import UnsupportedTypeError
from tests.interop.indexes.tables import FILTERS, OWN_FILTERS, change, ids, write
from tests.support.cells import ALL_CELLS, every_other

INDEX_TYPES = ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")
#: Columns that an index type does not take, here or in pylance.
NOT_TAKEN = {"BLOOMFILTER": {"flag", "d", "fix"}}
NOT_TAKEN_BY_PYLANCE = {"BITMAP": {"fix"}}
#: What a Bloom filter answers.
BY_FILTER = re.compile(r"[a-z]+ (=|IN|IS NULL)( .*)?")


@dataclass(frozen=True)
class Indexed:
    """A table with an index of one type on each column that the type takes."""

    path: Path
    index_type: str
    number: int

    def answers(self, column: str, text: str) -> bool:
        """Return whether an index of the type answers a condition."""
        if self.index_type != "BLOOMFILTER":
            return True
        is_taken = column not in NOT_TAKEN[self.index_type]
        return is_taken and " OR " not in text and bool(BY_FILTER.fullmatch(text.replace(".", "")))


def pylance_ids(path: Path, text: str, **options: Any) -> list[Any]:
    return ids(lance.dataset(str(path)).to_table(["id", "x"], filter=text, **options))


def own_ids(path: Path, text: str, **options: Any) -> list[Any]:
    return ids(lance_spark.open_dataset(str(path)).to_table(["id", "x"], filter=text, **options))


SOURCES = [("2.0", False), ("2.2", True)]
if ALL_CELLS:
    SOURCES += [("2.1", False), ("2.2", False)]
#: The numbers of the tables, who builds the indexes, and their types.
CELLS = [
    (number, who, index_type)
    for number, (place, who), index_type in itertools.product(
        range(len(SOURCES)), enumerate(("own", "pylance")), INDEX_TYPES
    )
    if ALL_CELLS or (number + place + INDEX_TYPES.index(index_type)) % 2 == 0
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The tables."""
    folder = tmp_path_factory.mktemp("indexes")
    for number, (version, stable_row_ids) in enumerate(SOURCES):
        write(folder / f"{number}.lance", version, stable_row_ids=stable_row_ids)
    return [folder / f"{number}.lance" for number in range(len(SOURCES))]


@pytest.fixture(
    scope="module",
    params=CELLS,
    ids=[
        f"{who} {index_type}-{SOURCES[number][0]}-{'stable' if SOURCES[number][1] else 'plain'}"
        for number, who, index_type in CELLS
    ],
)
def indexed(
    request: pytest.FixtureRequest, sources: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Indexed:
    """A table with an index of one type on each column, which was changed afterwards."""
    number, who, index_type = request.param
    path = tmp_path_factory.mktemp("built") / "t.lance"
    lance_spark.open_dataset(str(sources[number])).deep_clone(str(path))
    dataset = lance_spark.open_dataset(str(path))
    for column in {**FILTERS, **OWN_FILTERS}:
        if column in NOT_TAKEN.get(index_type, ()):
            with pytest.raises(UnsupportedTypeError, match="does not take column"):
                dataset.create_scalar_index(column, index_type)
        elif who == "own":
            dataset = dataset.create_scalar_index(column, index_type)
        elif column not in NOT_TAKEN_BY_PYLANCE.get(index_type, ()):
            lance.dataset(str(path)).create_scalar_index(column, index_type)
    change(path, SOURCES[number][0])
    return Indexed(path, index_type, number)


@pytest.mark.sample(9)
@pytest.mark.parametrize("column", FILTERS)
def test_both_clients_use_an_index(indexed: Indexed, column: str) -> None:
    path = indexed.path
    oracle = lance.dataset(str(path))
    for text in every_other(FILTERS[column], indexed.number):
        expected = own_ids(path, text, use_scalar_index=False)
        assert own_ids(path, text) == expected, text
        if indexed.answers(column, text):
            assert "  index: " in lance_spark.open_dataset(str(path)).explain(filter=text), text
            # pylance does not use a BITMAP index for prefixes, and no Bloom filter of a child.
            without = {"BTREE": "LIKE", "BITMAP": "LIKE", "BLOOMFILTER": "st."}
            if without.get(indexed.index_type, "none") not in text:
                assert "ScalarIndexQuery" in oracle.scanner(filter=text).explain_plan(), text
        if not text.startswith("f <"):
            # A NaN of negative sign is less than all values for pylance.
            assert pylance_ids(path, text) == expected, text


@pytest.mark.sample(5)
@pytest.mark.parametrize("column", OWN_FILTERS)
def test_conditions_of_this_package(indexed: Indexed, column: str) -> None:
    for text in every_other(OWN_FILTERS[column], indexed.number):
        expected = own_ids(indexed.path, text, use_scalar_index=False)
        assert own_ids(indexed.path, text) == expected, text

"""Scalar indexes: built here and used by pylance, built by pylance and used here.

`LANCE_SPARK_TEST_CELLS=all` takes more versions of files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from lance_spark.errors import UnsupportedTypeError
from tests.interop.indexes.tables import FILTERS, OWN_FILTERS, change, ids, write
from tests.support.interop.tables import ALL_CELLS

KINDS = ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER")
#: Columns that an index type does not take, here or in pylance.
NOT_TAKEN = {"BLOOMFILTER": {"flag", "d", "fix"}}
NOT_TAKEN_BY_PYLANCE = {"BITMAP": {"fix"}}
#: What a Bloom filter answers.
BY_FILTER = re.compile(r"[a-z]+ (=|IN|IS NULL)( .*)?")


@dataclass(frozen=True)
class Indexed:
    """A table with an index of one type on each column that the type takes."""

    path: Path
    kind: str

    def answers(self, column: str, text: str) -> bool:
        """Return whether an index of the type answers a condition."""
        if self.kind != "BLOOMFILTER":
            return True
        is_taken = column not in NOT_TAKEN[self.kind]
        return is_taken and " OR " not in text and bool(BY_FILTER.fullmatch(text.replace(".", "")))


def pylance_ids(path: Path, text: str, **options: Any) -> list[Any]:
    return ids(lance.dataset(str(path)).to_table(["id", "x"], filter=text, **options))


def own_ids(path: Path, text: str, **options: Any) -> list[Any]:
    return ids(lance_spark.open_dataset(str(path)).to_table(["id", "x"], filter=text, **options))


SOURCES = [("2.0", False), ("2.2", True)]
if ALL_CELLS:
    SOURCES += [("2.1", False), ("2.2", False)]


@pytest.fixture(
    scope="module",
    params=SOURCES,
    ids=lambda param: f"{param[0]}-{'stable' if param[1] else 'plain'}",
)
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("indexes") / "t.lance"
    version, stable_row_ids = request.param
    write(path, version, stable_row_ids=stable_row_ids)
    return path, version


@pytest.fixture(
    scope="module", params=[f"{who} {kind}" for who in ("own", "pylance") for kind in KINDS]
)
def indexed(
    request: pytest.FixtureRequest,
    source: tuple[Path, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Indexed:
    """A table with an index of one kind on each column, which was changed afterwards."""
    path = tmp_path_factory.mktemp("built") / "t.lance"
    lance_spark.open_dataset(str(source[0])).deep_clone(str(path))
    who, kind = request.param.split()
    dataset = lance_spark.open_dataset(str(path))
    for column in {**FILTERS, **OWN_FILTERS}:
        if column in NOT_TAKEN.get(kind, ()):
            with pytest.raises(UnsupportedTypeError, match="does not take column"):
                dataset.create_scalar_index(column, kind)
        elif who == "own":
            dataset = dataset.create_scalar_index(column, kind)
        elif column not in NOT_TAKEN_BY_PYLANCE.get(kind, ()):
            lance.dataset(str(path)).create_scalar_index(column, kind)
    change(path, source[1])
    return Indexed(path, kind)


@pytest.mark.parametrize(
    ("column", "text"), [(column, text) for column, texts in FILTERS.items() for text in texts]
)
def test_both_clients_use_an_index(indexed: Indexed, column: str, text: str) -> None:
    path = indexed.path
    expected = own_ids(path, text, use_scalar_index=False)
    assert own_ids(path, text) == expected
    oracle = lance.dataset(str(path))
    if indexed.answers(column, text):
        assert "  index: " in lance_spark.open_dataset(str(path)).explain(filter=text)
        # pylance does not use a BITMAP index for prefixes, and no Bloom filter of a child.
        without = {"BTREE": "LIKE", "BITMAP": "LIKE", "BLOOMFILTER": "st."}
        if without.get(indexed.kind, "none") not in text:
            assert "ScalarIndexQuery" in oracle.scanner(filter=text).explain_plan()
    if not text.startswith("f <"):
        # A NaN of negative sign is less than all values for pylance.
        assert pylance_ids(path, text) == expected


@pytest.mark.parametrize("text", [text for texts in OWN_FILTERS.values() for text in texts])
def test_conditions_of_this_package(indexed: Indexed, text: str) -> None:
    assert own_ids(indexed.path, text) == own_ids(indexed.path, text, use_scalar_index=False)

"""Scalar indexes: built here and used by pylance, built by pylance and used here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from tests.interop.indexes.tables import FILTERS, OWN_FILTERS, change, ids, write

KINDS = ("BTREE", "BITMAP")


def pylance_ids(path: Path, text: str, **options: Any) -> list[Any]:
    return ids(lance.dataset(str(path)).to_table(["id", "x"], filter=text, **options))


def own_ids(path: Path, text: str, **options: Any) -> list[Any]:
    return ids(lance_spark.open_dataset(str(path)).to_table(["id", "x"], filter=text, **options))


@pytest.fixture(
    scope="module",
    params=[("2.0", False), ("2.1", False), ("2.2", False), ("2.2", True)],
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
def path(
    request: pytest.FixtureRequest, source: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A table with an index of one kind on each column, which was changed afterwards."""
    path = tmp_path_factory.mktemp("built") / "t.lance"
    lance_spark.open_dataset(str(source[0])).deep_clone(str(path))
    who, kind = request.param.split()
    dataset = lance_spark.open_dataset(str(path))
    for column in {**FILTERS, **OWN_FILTERS}:
        if who == "own":
            dataset = dataset.create_scalar_index(column, kind)
        elif column != "fix" or kind == "BTREE":
            lance.dataset(str(path)).create_scalar_index(column, kind)
    change(path, source[1])
    return path


@pytest.mark.parametrize("text", [text for texts in FILTERS.values() for text in texts])
def test_both_clients_use_an_index(path: Path, text: str) -> None:
    expected = own_ids(path, text, use_scalar_index=False)
    assert own_ids(path, text) == expected
    assert "  index: " in lance_spark.open_dataset(str(path)).explain(filter=text)
    oracle = lance.dataset(str(path))
    if "LIKE" not in text:
        # pylance does not use a BITMAP index for prefixes.
        assert "ScalarIndexQuery" in oracle.scanner(filter=text).explain_plan()
    if not text.startswith("f <"):
        # A NaN of negative sign is less than all values for pylance.
        assert pylance_ids(path, text) == expected


@pytest.mark.parametrize("text", [text for texts in OWN_FILTERS.values() for text in texts])
def test_conditions_of_this_package(path: Path, text: str) -> None:
    assert own_ids(path, text) == own_ids(path, text, use_scalar_index=False)

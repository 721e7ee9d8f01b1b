"""Tables and names of earlier states: see README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance

import lance_spark
from lance_spark.spark.options import names
from tests.upgrade.conftest import LATER
from tests.upgrade.write import (
    FILE_VERSIONS,
    INDEXES,
    STEP,
    VECTOR_INDEXES,
    indexed_rows,
    rows,
    vector_rows,
)

pytestmark = LATER
#: A condition that each index answers, and its rows.
CONDITIONS: dict[str, tuple[str, Any]] = {
    "BTREE": ("btree = 7", lambda number: number == 7),
    "BITMAP": ("bitmap = 2", lambda number: number % 3 == 2),
    "ZONEMAP": ("zonemap < 2.0", lambda number: number < 4),
    "BLOOMFILTER": ("bloomfilter = 'k5'", lambda number: number == 5),
    "LABEL_LIST": ("array_has_any(label_list, ['t6'])", lambda number: number % 7 == 6),
    "NGRAM": ("contains(ngram, 'word4')", lambda number: str(number).startswith("4")),
    "JSON": ("json_get_int(json, 'n') = 6", lambda number: number == 6),
    "RTREE": (
        "st_intersects(rtree, st_geomfromtext('POLYGON((2.5 2.5, 4.5 2.5, 4.5 4.5, 2.5 4.5, 2.5 2.5))'))",
        lambda number: number in (3, 4),
    ),
}


def test_indexes_are_used_extended_and_checked(folder: Path) -> None:
    path = folder / "indexed.lance"
    lance_spark.write_dataset(indexed_rows(2), path, mode="append")
    assert {
        index.index_type for index in lance_spark.open_dataset(path).describe_indices()
    } != set()
    for last in range(2):
        dataset = lance_spark.open_dataset(path)
        for index_type, (condition, holds) in CONDITIONS.items():
            ids = dataset.to_table(["id"], filter=condition)["id"].to_pylist()
            assert ids == [number for number in range(3 * STEP) if holds(number)], index_type
            assert "  index: " in dataset.explain(filter=condition), index_type
        ids = dataset.to_table(["id"], full_text_query="w3")["id"].to_pylist()
        assert sorted(ids) == [number for number in range(3 * STEP) if number % 5 == 3]
        if not last:
            dataset.optimize_indices()
    assert all(dataset.check_index(f"{name.lower()}_idx").is_valid for name in INDEXES)
    theirs = lance.dataset(str(path))
    for condition, holds in CONDITIONS.values():
        ids = theirs.to_table(["id"], filter=condition)["id"].to_pylist()
        assert sorted(ids) == [number for number in range(3 * STEP) if holds(number)]


def test_vector_indexes_are_used_and_extended(folder: Path) -> None:
    path = folder / "vectors.lance"
    lance_spark.write_dataset(vector_rows(), path, mode="append")
    lance_spark.open_dataset(path).optimize_indices()
    dataset = lance_spark.open_dataset(path)
    for index_type in VECTOR_INDEXES:
        column = index_type.lower()
        nearest = {"column": column, "q": [1.0] * 8, "k": 5}
        exact = dataset.to_table(["_distance"], nearest={**nearest, "use_index": False})
        # Enough to measure all rows again.
        table = dataset.to_table(
            ["_distance"], nearest={**nearest, "nprobes": 2, "refine_factor": 30}
        )
        assert table["_distance"].to_pylist() == exact["_distance"].to_pylist(), index_type
        assert dataset.check_index(f"{column}_idx").is_valid


def test_tags_branches_and_settings(folder: Path) -> None:
    path = folder / "named.lance"
    lance_spark.write_dataset(rows(2), path, mode="append")
    dataset = lance_spark.open_dataset(path)
    # The table is a copy.
    dataset.repair_branches()
    assert dataset.checkout_version("first").to_table() == rows(0)
    assert dataset.checkout_version(("side", None)).count_rows() == 2 * STEP
    assert (
        list(dataset.branches.list()) == list(lance.dataset(str(path)).branches.list()) == ["side"]
    )
    assert dataset.config()["some"] == "setting"


def test_file_versions(folder: Path) -> None:
    for version in FILE_VERSIONS:
        path = folder / f"file_{version}.lance"
        lance_spark.write_dataset(rows(1), path, mode="append")
        lance_spark.open_dataset(path).compact_files()
        dataset = lance_spark.open_dataset(path)
        assert dataset.data_storage_version == version
        assert dataset.count_rows() == lance.dataset(str(path)).count_rows() == 2 * STEP


def test_names_of_options_stay(folder: Path) -> None:
    known = json.loads((folder / "options.json").read_text())
    here = {*names.READ_NAMES, *names.WRITE_NAMES, *names.SYNONYMS, *names.IGNORED}
    for stored in ("read", "write", "synonyms", "ignored"):
        assert set(known[stored]) <= here
    assert set(known["columns"]) <= set(names.COLUMN_KEYS)

"""Indexes of pylance after each change by this package: same results as a scan, same coverage as in
pylance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from tests.support.tables.indexed import (
    ROWS,
    SCALAR,
    build,
    copy,
    indexed_rows,
    rows,
    used,
)

ALL = {*SCALAR, "vec", "vec2"} - {"text"}
#: These indexes are not remapped: pylance leaves compacted fragments uncovered too.
ZONED = {"zone", "bloom"}

#: Each test builds and changes tables with several indexes, of pylance and of this package.
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Change:
    """The same change by this package and by pylance."""

    ours: Callable[[str], object]
    theirs: Callable[[str], object]


def _append(uri: str) -> None:
    write_dataset(rows(5000, 5100), uri, "append")


def _drop(uri: str, columns: list[str]) -> None:
    lance.dataset(uri).drop_columns(columns)


CHANGES = {
    "append": Change(
        _append, lambda uri: lance.write_dataset(rows(5000, 5100), uri, mode="append")
    ),
    "delete": Change(
        lambda uri: open_dataset(uri).delete([("a", ">=", 20), ("a", "<", 150)]),
        lambda uri: lance.dataset(uri).delete("a >= 20 and a < 150"),
    ),
    "delete of a fragment": Change(
        lambda uri: open_dataset(uri).delete([("a", "<", 300)]),
        lambda uri: lance.dataset(uri).delete("a < 300"),
    ),
    "update": Change(
        lambda uri: open_dataset(uri).update({"plain": -1}, [("a", ">=", 650)]),
        lambda uri: lance.dataset(uri).update({"plain": "-1"}, where="a >= 650"),
    ),
    "update of an indexed column": Change(
        lambda uri: open_dataset(uri).update({"bm": 3}, [("a", "<", 200)]),
        lambda uri: lance.dataset(uri).update({"bm": "3"}, where="a < 200"),
    ),
    "drop of a column": Change(
        lambda uri: open_dataset(uri).drop_columns(["plain"]),
        lambda uri: _drop(uri, ["plain"]),
    ),
    "drop of indexed columns": Change(
        lambda uri: open_dataset(uri).drop_columns(["bm", "ng"]),
        lambda uri: _drop(uri, ["bm", "ng"]),
    ),
    "new column": Change(
        lambda uri: open_dataset(uri).add_columns({"twice": "a * 2"}),
        lambda uri: lance.dataset(uri).add_columns({"twice": "a * 2"}),
    ),
}


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable row ids"])
def stable(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def table(stable: bool, tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("indexed") / "table", stable=stable)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", CHANGES)
def test_indexes_stay_right_after_each_change(name: str, table: str, tmp_path: Path) -> None:
    ours, theirs = copy(table, tmp_path / "ours"), copy(table, tmp_path / "theirs")
    CHANGES[name].ours(ours)
    CHANGES[name].theirs(theirs)
    assert indexed_rows(ours) == indexed_rows(theirs)
    if name != "drop of a column":
        assert used(ours) == used(theirs)
    assert used_indexes(ours) == used_indexes(theirs)


def used_indexes(uri: str) -> list[tuple[str, list[int]]]:
    return [
        (index["name"], sorted(index["fragment_ids"]))
        for index in lance.dataset(uri).list_indices()
    ]


def test_overwrite_drops_all_indexes(table: str, tmp_path: Path) -> None:
    uri = copy(table, tmp_path / "table")
    write_dataset(rows(0, 50), uri, "overwrite")
    assert not lance.dataset(uri).describe_indices()


def test_columns_updated_in_place(table: str, tmp_path: Path) -> None:
    uri = copy(table, tmp_path / "table")
    before = indexed_rows(uri)
    open_dataset(uri).update({"bm": 3, "a": 500}, [("a", "<", 100)], mode="columns")
    after = indexed_rows(uri)
    assert {name for name in before if before[name] != after[name]} == {"bm_idx", "a_idx"}
    assert after["bm_idx"] == after["a_idx"] == ROWS - 300
    assert used(uri) == ALL


def test_indexes_stay_right_after_compaction(table: str, stable: bool, tmp_path: Path) -> None:
    uri = copy(table, tmp_path / "table")
    lance.dataset(uri).delete("a >= 20 and a < 150")
    dataset, metrics = open_dataset(uri).compact_files(target_rows_per_fragment=500)
    assert metrics.fragments_removed == 4
    assert metrics.fragments_added == 2
    # Zones of moved rows do not exist any more.
    assert used(uri) == ALL - ZONED
    assert dataset.count_rows() == lance.dataset(uri).count_rows() == ROWS - 130


def test_alternating_compactions_and_changes(table: str, stable: bool, tmp_path: Path) -> None:
    """Each change after a compaction must apply the fragment reuse index to know the coverage."""
    uri = copy(table, tmp_path / "table")
    open_dataset(uri).compact_files(target_rows_per_fragment=500)
    open_dataset(uri).update({"bm": 3}, [("a", "<", 50)], mode="columns")
    used(uri)
    write_dataset(rows(5000, 5100), uri, "append")
    open_dataset(uri).delete([("a", ">=", 20), ("a", "<", 150)])
    open_dataset(uri).compact_files(target_rows_per_fragment=2000)
    used(uri)
    open_dataset(uri).update({"a": 300}, [("a", ">=", 600), ("a", "<", 700)])
    open_dataset(uri).compact_files(target_rows_per_fragment=5000)
    assert used(uri) >= (set() if stable else {"a", "labels", "ng", "vec", "vec2"})
    lance.dataset(uri).optimize.optimize_indices()
    assert used(uri) == ALL
    covered = {rows for name, rows in indexed_rows(uri).items() if not name.startswith("__")}
    assert covered == {lance.dataset(uri).count_rows()}
    lance.dataset(uri).delete("a < 10")
    lance.dataset(uri).optimize.compact_files(
        target_rows_per_fragment=50_000, materialize_deletions_threshold=0.0
    )
    used(uri)


def test_pylance_continues_from_a_fragment_reuse_index(tmp_path: Path) -> None:
    """Rows move twice: in a compaction by this package, and in a compaction by pylance that defers
    the remap as well.
    """
    uri = build(tmp_path / "table", stable=False)
    open_dataset(uri).compact_files(target_rows_per_fragment=500, defer_index_remap=True)
    lance.dataset(uri).delete("a >= 20 and a < 150")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000, defer_index_remap=True)
    assert used(uri) == ALL - ZONED
    lance.dataset(uri).delete("a >= 800 and a < 950")
    open_dataset(uri).compact_files(target_rows_per_fragment=6000)
    assert used(uri) == ALL - ZONED
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=50_000)
    used(uri)


def test_pylance_compacts_after_this_package(tmp_path: Path) -> None:
    """This package makes no fragment reuse index, which would make B-trees lose rows then."""
    uri = build(tmp_path / "table", stable=False)
    open_dataset(uri).compact_files(target_rows_per_fragment=500)
    lance.dataset(uri).delete("a >= 20 and a < 150")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=5000)
    assert used(uri) == ALL - ZONED
    assert not any("reuse" in index["name"] for index in open_dataset(uri).list_indices())


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("index_type", ["FM", "MINHASHLSH"])
def test_indexes_that_are_not_read(index_type: str, stable: bool, tmp_path: Path) -> None:
    """Nothing is known of their files: rows that move leave them, and pylance finds all rows."""
    rows = pa.table({"id": range(40), "n": [0] * 40, "text": [f"word {n}" for n in range(40)]})
    uri = tmp_path / "t"
    lance.write_dataset(rows, uri, max_rows_per_file=10, enable_stable_row_ids=stable)
    lance.dataset(uri).create_scalar_index("text", IndexConfig(index_type.lower(), {}))
    lance.dataset(uri).create_scalar_index("n", "BITMAP")
    ours = open_dataset(uri).update({"n": 1}, "id = 5")
    assert lance.dataset(uri).count_rows("contains(text, 'word')") == 40
    ours.delete("id = 11").compact_files()
    assert lance.dataset(uri).count_rows("contains(text, 'word')") == 39
    covered = {index.name: index.num_rows_indexed for index in open_dataset(uri).describe_indices()}
    assert covered == {"text_idx": 0, "n_idx": 38}


def test_an_index_on_a_dropped_column_is_listed(tmp_path: Path) -> None:
    uri = build(tmp_path / "table", stable=False)
    old = lance.dataset(uri)
    open_dataset(uri).drop_columns(["plain"])
    old.create_scalar_index("plain", "BTREE")
    ours, theirs = open_dataset(uri), lance.dataset(uri)
    (listed,) = (index["fields"] for index in theirs.list_indices() if index["name"] == "plain_idx")
    assert [index["fields"] for index in ours.list_indices() if index["name"] == "plain_idx"] == [
        listed
    ]
    (described,) = (index for index in ours.describe_indices() if index.name == "plain_idx")
    assert described.field_names == tuple(listed)
    dataset, _ = ours.compact_files(target_rows_per_fragment=5000)
    assert dataset.count_rows() == lance.dataset(uri).count_rows() == ROWS

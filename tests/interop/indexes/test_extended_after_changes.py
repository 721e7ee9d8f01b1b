"""pylance finds no row by its value before an update in an index that this package has extended.

It combines the answers of all segments, also for rows that a newer segment has.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark

TYPES = ["BTREE", "BITMAP", "LABEL_LIST", "INVERTED", "NGRAM", "ZONEMAP", "BLOOMFILTER"]


def rows(ids: range, value: int, index_type: str) -> pa.Table:
    values: pa.Array
    if index_type == "LABEL_LIST":
        values = pa.array([[value]] * len(ids), pa.list_(pa.int64()))
    elif index_type in ("INVERTED", "NGRAM"):
        values = pa.array([f"word{value}"] * len(ids))
    else:
        values = pa.array([value] * len(ids), pa.int64())
    return pa.table({"id": pa.array(ids, pa.int64()), "c": values})


def found(dataset: Any, value: int, index_type: str) -> list[int]:
    """Return the ids of the rows that an index finds."""
    if index_type == "INVERTED":
        table = dataset.to_table(full_text_query=f"word{value}")
    else:
        condition = {
            "LABEL_LIST": f"array_has_any(c, [{value}])",
            "NGRAM": f"contains(c, 'word{value}')",
        }.get(index_type, f"c = {value}")
        table = dataset.to_table(filter=condition)
    return sorted(table["id"].to_pylist())


def check(path: str, index_type: str, changed: set[int]) -> None:
    ids = set(lance.dataset(path).to_table()["id"].to_pylist())
    for dataset in (lance.dataset(path), lance_spark.open_dataset(path)):
        assert found(dataset, 1, index_type) == sorted(ids - changed)
        assert found(dataset, 2, index_type) == sorted(changed)
    described = lance_spark.open_dataset(path).describe_indices()
    assert len([index for index in described if index.name == "c_idx"]) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("index_type", TYPES)
@pytest.mark.parametrize("stable", [True, False], ids=["stable", ""])
@pytest.mark.parametrize("change", ["update", "whole fragment", "merge"])
@pytest.mark.parametrize(("segments", "merged"), [(1, 0), (2, 1), (2, 0)])
def test_updated_rows(
    index_type: str, stable: bool, change: str, segments: int, merged: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    lance.write_dataset(
        rows(range(10), 1, index_type), path, enable_stable_row_ids=stable, max_rows_per_file=5
    )
    lance_spark.open_dataset(path).create_scalar_index("c", index_type)
    if segments == 2:
        lance_spark.open_dataset(path).insert(rows(range(20, 25), 1, index_type))
        dataset = lance_spark.open_dataset(path)
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
    dataset = lance_spark.open_dataset(path)
    count = 5 if change == "whole fragment" else 3
    new = rows(range(count), 2, index_type)
    if change == "merge":
        dataset.merge_insert("id").when_matched_update_all().execute(new)
    else:
        dataset.update({"c": new["c"][0].as_py()}, where=f"id < {count}")
    dataset = lance_spark.open_dataset(path)
    dataset.optimize.optimize_indices(num_indices_to_merge=merged)
    check(path, index_type, set(range(count)))


@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
@pytest.mark.parametrize("stable", [True, False], ids=["stable", ""])
@pytest.mark.parametrize("fragment", [0, 1])
def test_a_column_that_pylance_rewrites(
    index_type: str, stable: bool, fragment: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    theirs = lance.write_dataset(
        rows(range(10), 1, index_type), path, enable_stable_row_ids=stable, max_rows_per_file=5
    )
    lance_spark.open_dataset(path).create_scalar_index("c", index_type)
    changed = range(5 * fragment, 5 * fragment + 5)
    updated, fields = theirs.get_fragments()[fragment].update_columns(
        rows(changed, 2, index_type), left_on="id", right_on="id"
    )
    operation = lance.LanceOperation.Update(updated_fragments=[updated], fields_modified=fields)
    lance.LanceDataset.commit(path, operation, read_version=lance.dataset(path).version)
    lance_spark.open_dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    check(path, index_type, set(changed))


#: The client that compacts, and whether indexes keep the old addresses; None if none compacts.
COMPACTIONS = [None, ("own", False), ("own", True), ("pylance", False), ("pylance", True)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "LABEL_LIST", "INVERTED"])
@pytest.mark.parametrize("mode", ["columns", "overlay"])
@pytest.mark.parametrize("compaction", COMPACTIONS, ids=str)
@pytest.mark.parametrize(("segments", "merged"), [(1, 0), (2, 1)])
def test_rows_that_were_compacted_after_they_changed_in_place(
    index_type: str,
    mode: Any,
    compaction: tuple[str, bool] | None,
    segments: int,
    merged: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither their fragments nor their files show that segments have their older values."""
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    path = str(tmp_path / "t")
    data = rows(range(40), 1, index_type)
    # The column has a file of its own, of which nothing stays when the column is rewritten.
    dataset = lance_spark.write_dataset(data.select(["id"]), path, max_rows_per_file=10)
    values = data["c"].combine_chunks()
    dataset = dataset.add_columns({"c": lambda batch: values[: batch.num_rows]})
    dataset = dataset.create_scalar_index("c", index_type)
    if segments == 2:
        dataset.insert(rows(range(40, 45), 1, index_type))
        dataset = lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=0)
    changed, new = range(20, 40), rows(range(40), 2, index_type)["c"].combine_chunks()
    dataset = dataset.update(
        {"c": lambda batch: new[: batch.num_rows]}, f"id IN {tuple(changed)}", mode=mode
    )
    if compaction is None and mode == "overlay" and index_type != "LABEL_LIST":
        pytest.skip("indexes know which rows have overlays")
    if compaction is not None and compaction[0] == "own":
        dataset.compact_files(
            target_rows_per_fragment=20,
            defer_index_remap=compaction[1],
            max_overlays_per_fragment=0,
        )
    elif compaction is not None:
        lance.dataset(path).optimize.compact_files(
            target_rows_per_fragment=20, defer_index_remap=compaction[1]
        )
    dataset = lance_spark.open_dataset(path)
    dataset.optimize_indices(num_indices_to_merge=merged)
    check(path, index_type, set(changed))


def test_a_file_that_was_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(
        rows(range(10), 1, "BTREE").select(["c"]), path, max_rows_per_file=5
    ).create_scalar_index("c", "BTREE")
    dataset = dataset.update({"c": 2}, mode="columns")
    dataset.update({"c": 3}, "_rowid >= 0", mode="columns")
    dataset = lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=0)
    for opened in (dataset, lance.dataset(path)):
        assert [opened.count_rows(f"c = {value}") for value in (1, 2, 3)] == [0, 0, 10]


def test_compacted_segments_lose_values_from_before_a_change(tmp_path: Path) -> None:
    """Also if the versions with the change were cleaned up."""
    path = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(rows(range(40), 1, "BTREE"), path, max_rows_per_file=10)
    dataset = dataset.create_scalar_index("c", "BTREE")
    dataset = dataset.update({"c": 2}, "id >= 20", mode="columns")
    dataset, _ = dataset.compact_files(target_rows_per_fragment=20)
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    dataset = lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=0)
    (index,) = dataset.describe_indices()
    assert len(index.segments) == 2
    assert found(lance.dataset(path), 1, "BTREE") == list(range(20))
    assert found(lance.dataset(path), 2, "BTREE") == list(range(20, 40))


def test_a_merge_that_rewrites_no_value(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(rows(range(10), 1, "BTREE"), path)
    dataset = dataset.create_scalar_index("c", "BTREE").add_columns({"d": 5})
    dataset.insert(rows(range(20, 25), 1, "BTREE"))
    dataset = lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=0)
    (index,) = dataset.describe_indices()
    assert len(index.segments) == 2


def test_appended_rows_are_a_segment_of_their_own(tmp_path: Path) -> None:
    """Nothing is merged without a reason: segments of large indexes are costly to write."""
    path = str(tmp_path / "t")
    lance_spark.write_dataset(
        rows(range(10), 1, "BITMAP"), path, enable_stable_row_ids=True
    ).create_scalar_index("c", "BITMAP")
    for first in (20, 30):
        lance_spark.open_dataset(path).insert(rows(range(first, first + 5), 2, "BITMAP"))
        dataset = lance_spark.open_dataset(path)
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
    (index,) = lance_spark.open_dataset(path).describe_indices()
    assert len(index.segments) == 3


@pytest.mark.parametrize("mode", ["columns", "overlay"])
@pytest.mark.parametrize("merged", [0, 1])
def test_old_values_that_a_compaction_moved(
    merged: int, mode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction writes a BTREE again without the rows that it does not cover any more."""
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    path = str(tmp_path / "t")
    lance.write_dataset(rows(range(40), 1, "BTREE"), path, max_rows_per_file=20)
    dataset = lance_spark.open_dataset(path).create_scalar_index("c", "BTREE")
    dataset = dataset.insert(rows(range(40, 60), 1, "BTREE"))
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    dataset = lance_spark.open_dataset(path).update({"c": 2}, "id = 24", mode=mode)
    # Each fragment is rewritten alone.
    dataset = dataset.delete("id < 40 AND id % 20 < 3")
    dataset.optimize.compact_files(target_rows_per_fragment=17, max_overlays_per_fragment=0)
    dataset = lance_spark.open_dataset(path)
    assert [index["type"] for index in dataset.list_indices()] == ["BTree", "BTree"]
    dataset.optimize.optimize_indices(num_indices_to_merge=merged)
    ids = set(lance.dataset(path).to_table()["id"].to_pylist())
    for current in (lance_spark.open_dataset(path), lance.dataset(path)):
        assert found(current, 1, "BTREE") == sorted(ids - {24})
        assert found(current, 2, "BTREE") == [24]
    assert lance_spark.open_dataset(path).check_index("c_idx").is_valid


@pytest.mark.parametrize("merged", [0, 1])
def test_old_values_whose_change_was_removed_from_the_history(merged: int, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    data = rows(range(40), 1, "BTREE")
    lance.write_dataset(data, path, max_rows_per_file=20, enable_stable_row_ids=True)
    dataset = lance_spark.open_dataset(path).create_scalar_index("c", "BTREE")
    dataset = dataset.insert(rows(range(40, 60), 1, "BTREE"))
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    dataset = lance_spark.open_dataset(path).update({"c": 2}, "id = 24", mode="columns")
    dataset.delete("id < 40 AND id % 20 < 3")
    lance.dataset(path).optimize.compact_files(target_rows_per_fragment=17)
    dataset = lance_spark.open_dataset(path)
    dataset.cleanup_old_versions(timedelta(0))
    dataset.optimize.optimize_indices(num_indices_to_merge=merged)
    check(path, "BTREE", {24})


@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP"])
@pytest.mark.parametrize("merged", [0, 1])
@pytest.mark.parametrize("fragments", [1, 2])
def test_old_values_at_old_addresses(
    fragments: int, merged: int, index_type: str, tmp_path: Path
) -> None:
    """The files of a segment still have rows of a column that was rewritten, and then moved."""
    path = str(tmp_path / "t")
    lance.write_dataset(rows(range(20 * fragments), 1, index_type), path, max_rows_per_file=20)
    dataset = lance_spark.open_dataset(path).create_scalar_index("c", index_type)
    # A BITMAP needs the fragment reuse index.
    dataset = dataset.create_scalar_index("id", "BITMAP")
    dataset = dataset.insert(rows(range(40, 60), 1, index_type))
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    changed = 20 * fragments - 10
    dataset = lance_spark.open_dataset(path).update({"c": 2}, f"id = {changed}", mode="columns")
    dataset = dataset.delete(f"id >= {changed + 1} AND id < {changed + 6}")
    dataset.optimize.compact_files(target_rows_per_fragment=10)
    dataset = lance_spark.open_dataset(path)
    dataset.optimize.optimize_indices(num_indices_to_merge=merged)
    check(path, index_type, {changed})


def test_new_rows_that_moved_are_a_segment_of_their_own(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lance_spark.write_dataset(rows(range(20), 1, "BITMAP"), path).create_scalar_index("c", "BITMAP")
    for first in (20, 30):
        lance_spark.open_dataset(path).insert(rows(range(first, first + 5), 2, "BITMAP"))
    dataset = lance_spark.open_dataset(path)
    dataset.optimize.compact_files()
    dataset = lance_spark.open_dataset(path)
    assert len(dataset.get_fragments()) == 2
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    check(path, "BITMAP", {*range(20, 25), *range(30, 35)})
    (index,) = (
        index
        for index in lance_spark.open_dataset(path).describe_indices()
        if index.name == "c_idx"
    )
    assert len(index.segments) == 2


@pytest.mark.parametrize("stable", [True, False], ids=["stable", ""])
@pytest.mark.parametrize("mode", ["columns", "rows"])
@pytest.mark.parametrize("merged", [0, 1])
def test_geometries_that_were_null(merged: int, mode: Any, stable: bool, tmp_path: Path) -> None:
    """An RTREE answers the filter IS NULL itself."""
    path = str(tmp_path / "t")
    point = pa.struct([pa.field(name, pa.float64(), nullable=False) for name in "xy"])
    field = pa.field("g", point, metadata={"ARROW:extension:name": "geoarrow.point"})
    values = [None if number % 5 == 3 else {"x": number, "y": number} for number in range(20)]
    data = pa.table([range(20), pa.array(values, point)], pa.schema([("id", pa.int64()), field]))
    lance.write_dataset(data, path, enable_stable_row_ids=stable, max_rows_per_file=10)
    dataset = lance_spark.open_dataset(path).create_scalar_index("g", "RTREE")
    dataset = dataset.update({"g": {"x": 90.0, "y": 90.0}}, "id = 3", mode=mode)
    dataset.optimize.optimize_indices(num_indices_to_merge=merged)
    for current in (lance_spark.open_dataset(path), lance.dataset(path)):
        null = current.to_table(["id"], filter="g IS NULL")["id"].to_pylist()
        assert sorted(null) == [8, 13, 18]
        near = current.to_table(["id"], filter="st_intersects(g, 'POINT (90 90)')")
        assert near["id"].to_pylist() == [3]


@pytest.mark.parametrize("index_type", ["ZONEMAP", "BLOOMFILTER"])
@pytest.mark.parametrize("client", ["ours", "pylance"])
def test_zones_that_pylance_keeps_beside_new_ones(
    client: str, index_type: str, tmp_path: Path
) -> None:
    """The file has zones of old and of new values; the new ones come last."""
    path = str(tmp_path / "t.lance")
    table = rows(range(60), 1, index_type)
    lance.write_dataset(table, path, max_rows_per_file=20)
    if client == "ours":
        size = {"ZONEMAP": "rows_per_zone", "BLOOMFILTER": "number_of_items"}[index_type]
        dataset = lance_spark.open_dataset(path)
        dataset.create_scalar_index("c", index_type, **{size: 5})
    else:
        lance.dataset(path).create_scalar_index("c", index_type)
    for changed in ({23, 27}, {23, 27, 50}):
        condition = f"id IN ({', '.join(map(str, changed))})"
        lance_spark.open_dataset(path).update({"c": 2}, condition, mode="columns")
        lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=1)
        check(path, index_type, changed)
        result = lance_spark.open_dataset(path).check_index("c_idx")
        assert (result.missing, result.wrong) == (0, 0)
        assert result.stale

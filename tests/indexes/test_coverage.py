"""Bitmaps that name fragments whose rows a segment does not have: readers find these rows."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap

import lance_spark
from lance_spark.indexes.btree import files
from lance_spark.indexes.cache import CACHE
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import sections
from tests.support.tables.damaged import rewrite_manifest

IDS = [n for n in range(40) if n != 12]


def built(path: Path, *, stable: bool = True) -> None:
    """Write four fragments, and let pylance index them."""
    rows = pa.table({"id": range(40), "b": ["x"] * 40, "tags": [[n] for n in range(40)]})
    dataset = lance.write_dataset(rows, path, max_rows_per_file=10, enable_stable_row_ids=stable)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("tags", "LABEL_LIST")


def name_all(path: Path) -> None:
    """Let the BTREE name all fragments, as pylance 12 and 13 and LanceDB 0.40 do."""
    live = BitMap(fragment.id for fragment in lance_spark.open_dataset(path).fragments)

    def edit(section: table_pb2.IndexSection) -> None:
        index = next(index for index in section.indices if index.name == "id_idx")
        bitmap = sections.fragment_bitmap(index)
        sections.set_fragment_bitmap(index, live if bitmap is None else bitmap | live)

    rewrite_manifest(path, change_indexes=edit)


def forget_fragments(section: table_pb2.IndexSection) -> None:
    for index in section.indices:
        sections.set_fragment_bitmap(index, BitMap())


def forget_old_versions(path: Path) -> None:
    lance.dataset(path).cleanup_old_versions(retain_versions=1)
    CACHE.clear()


def covered(path: Path, name: str = "id_idx") -> set[int]:
    described = {index.name: index for index in lance_spark.open_dataset(path).describe_indices()}
    return {number for part in described[name].segments for number in part.fragment_ids or ()}


def check(path: Path, kept: set[int]) -> None:
    """Compare reads, counts, and changes by the index with the rows."""
    dataset = lance_spark.open_dataset(path)
    assert [n for n in range(40) if dataset.count_rows(f"id = {n}")] == IDS
    assert covered(path) & {fragment.id for fragment in dataset.fragments} == kept
    fragments = [fragment for fragment in dataset.fragments if fragment.id in kept]
    rows = sum(fragment.num_rows for fragment in fragments)
    assert dataset.stats.index_stats("id_idx")["num_indexed_rows"] == rows
    changed = dataset.update({"b": "z"}, "id = 5")
    assert changed.to_table(["id"], filter="b = 'z'")["id"].to_pylist() == [5]


@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize("change", ["update", "compaction"])
def test_addresses_of_rows_that_another_client_moved(
    change: str, cleaned: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    built(path)
    lance.dataset(path).delete("id = 12")
    if change == "update":
        lance.dataset(path).update({"b": "'new'"}, where="id = 5")
    else:
        # pylance leaves the index as it is, if it covers nothing.
        rewrite_manifest(path, change_indexes=forget_fragments)
        lance.dataset(path).optimize.compact_files()
    name_all(path)
    assert lance.dataset(path).count_rows("id = 5") == 0, "pylance misses the row"
    if cleaned:
        forget_old_versions(path)
    assert not lance_spark.open_dataset(path).check_index("id_idx").is_valid
    check(path, {0, 1, 2, 3} if change == "update" else set())
    lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=0)
    dataset = lance_spark.open_dataset(path)
    assert dataset.check_index("id_idx").is_valid
    assert covered(path) == {fragment.id for fragment in dataset.fragments}
    assert [n for n in range(40) if lance.dataset(path).count_rows(f"id = {n}")] == IDS


def test_compaction_after_another_client_moved_rows(tmp_path: Path) -> None:
    path = tmp_path / "t"
    built(path)
    lance.dataset(path).delete("id = 12")
    lance.dataset(path).update({"b": "'new'"}, where="id = 5")
    name_all(path)
    lance_spark.open_dataset(path).compact_files()
    check(path, {5})
    lance_spark.open_dataset(path).optimize_indices()
    assert [n for n in range(40) if lance.dataset(path).count_rows(f"id = {n}")] == IDS


@pytest.mark.parametrize("cleaned", [False, True])
def test_addresses_that_pylance_wrote_again_are_used(
    cleaned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although their fragments are newer than the version that the segment was built on."""
    path = tmp_path / "t"
    built(path)
    lance.dataset(path).delete("id = 12")
    lance.dataset(path).optimize.compact_files()
    lance.write_dataset(lance.dataset(path).to_table(limit=1), path, mode="append")
    lance.dataset(path).optimize.optimize_indices()
    if cleaned:
        forget_old_versions(path)
    (segment,) = sections.read_section(lance_spark.open_dataset(path)._table.manifest).indices[:1]
    assert (segment.index_version, segment.dataset_version) == (1, 1)
    live = {fragment.id for fragment in lance_spark.open_dataset(path).fragments}
    assert covered(path) == live
    assert "index: id_idx" in lance_spark.open_dataset(path).explain(filter="id = 5")
    # Of a larger index, runs of rows are read.
    monkeypatch.setattr(files, "_MAX_ADDRESSES", 8)
    monkeypatch.setattr(files, "_RUN", 2)
    CACHE.clear()
    assert max(live - {max(live)}) in covered(path)


def test_a_btree_has_row_ids_in_every_table(tmp_path: Path) -> None:
    """So all releases of pylance read it, and it stays right when rows move."""
    path = tmp_path / "t"
    rows = pa.table({"id": range(40), "b": ["x"] * 40})
    lance_spark.write_dataset(rows, path, enable_stable_row_ids=True).create_scalar_index(
        "id", "BTREE"
    )
    lance_spark.open_dataset(path).update({"b": "y"}, "id = 5")
    lance.dataset(path).update({"b": "'z'"}, where="id = 6")
    lance_spark.open_dataset(path).delete("id = 12")
    lance.dataset(path).optimize.compact_files()
    (index,) = lance_spark.open_dataset(path).describe_indices()
    assert [segment.index_version for segment in index.segments] == [0]
    assert index.num_rows_indexed == 39
    for dataset in (lance_spark.open_dataset(path), lance.dataset(path)):
        assert [n for n in range(40) if dataset.count_rows(f"id = {n}")] == IDS


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("cleaned", [False, True])
def test_a_list_that_was_rewritten_in_place(stable: bool, cleaned: bool, tmp_path: Path) -> None:
    """Its items are named by the data files, and the list by the index, as pylance 6 has it."""
    path = tmp_path / "t"
    built(path, stable=stable)
    before = sections.read_section(lance_spark.open_dataset(path)._table.manifest)
    new = pa.array([[n + 100] for n in range(40)], pa.list_(pa.int64()))
    dataset = lance_spark.open_dataset(path)
    dataset.update({"tags": lambda batch: new[10 : 10 + batch.num_rows]}, "id = 13", mode="columns")

    def restore(section: table_pb2.IndexSection) -> None:
        section.CopyFrom(before)

    rewrite_manifest(path, change_indexes=restore)
    if cleaned:
        forget_old_versions(path)
    dataset = lance_spark.open_dataset(path)
    assert dataset.count_rows("array_has(tags, 13)") == 0
    assert dataset.count_rows("array_has_any(tags, [110])") == 1
    assert dataset.count_rows("array_has_any(tags, [3])") == 1
    assert covered(path, "tags_idx") == {0, 2, 3}

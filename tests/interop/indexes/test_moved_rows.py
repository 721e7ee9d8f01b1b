"""Indexes that hold the old addresses of rows that a compaction of pylance moved, or old values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import optimize

import lance_spark
from lance_spark.dataset import Compaction
from lance_spark.errors import CommitConflictError
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.operations import rewrite

VECTOR = pa.list_(pa.float32(), 2)
FILTERS = ["x = 5", "x = 2999", "x > 2990", "x < 3 OR x = 1500", "x = 3100", "x IN (1, 2, 950)"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "ZONEMAP"])
@pytest.mark.parametrize("who", ["own", "pylance"])
def test_rows_are_found_by_their_new_addresses(index_type: str, who: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")

    def compare() -> None:
        dataset = lance_spark.open_dataset(path)
        for text in FILTERS:
            expected = dataset.to_table(filter=text, use_scalar_index=False)
            assert dataset.to_table(filter=text) == expected
            assert lance.dataset(path).count_rows(text) == len(expected)

    lance.write_dataset(pa.table({"x": range(3000)}), path, max_rows_per_file=500)
    if who == "own" and index_type != "ZONEMAP":
        lance_spark.open_dataset(path).create_scalar_index("x", index_type)
    else:
        lance.dataset(path).create_scalar_index("x", index_type)
    lance.dataset(path).delete("x % 6 = 1 OR (x < 900 AND x > 100)")
    lance.dataset(path).optimize.compact_files(
        target_rows_per_fragment=1000, defer_index_remap=True
    )
    compare()
    if index_type != "ZONEMAP":
        assert "  index: " in lance_spark.open_dataset(path).explain(filter="x = 5")
    lance.write_dataset(pa.table({"x": range(3000, 3500)}), path, mode="append")
    # The first segment gets the new fragments, and keeps the old addresses.
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    compare()


#: Of what pylance finds rows by old values: after the change of the text, and the type of index.
OLD_VALUES = {("rows", "BITMAP"), ("rows", "LABEL_LIST")} | {
    ("columns", index_type) for index_type in ("BTREE", "BITMAP", "LABEL_LIST")
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "NGRAM", "LABEL_LIST"])
@pytest.mark.parametrize("mode", ["rows", "columns"])
@pytest.mark.parametrize("who", ["own", "pylance"])
def test_values_before_an_update_in_another_segment(
    who: str, mode: str, index_type: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "t.lance")
    words = [f"text {number % 7}" for number in range(400)]
    values = [[word] for word in words] if index_type == "LABEL_LIST" else words
    data = pa.table({"id": range(400), "v": values})
    lance.write_dataset(data, path, max_rows_per_file=100, enable_stable_row_ids=mode == "rows")
    lance_spark.open_dataset(path).create_scalar_index("v", index_type)
    new = ["text 9"] if index_type == "LABEL_LIST" else "text 9"
    lance_spark.open_dataset(path).update({"v": new}, "id IN (3, 113)", mode=mode)
    if who == "own":
        lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=0)
    else:
        lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    text = {
        "NGRAM": "contains(v, 'text 3')",
        "LABEL_LIST": "array_has_any(v, ['text 3'])",
    }.get(index_type, "v = 'text 3'")
    expected = [number for number in range(400) if number % 7 == 3 and number != 3]

    def matching_ids(dataset: Any) -> list[int]:
        return sorted(dataset.to_table(["id"], filter=text)["id"].to_pylist())

    dataset = lance_spark.open_dataset(path)
    assert "  index: v_idx" in dataset.explain(filter=text)
    assert len(dataset.describe_indices()[0].segments) == 2
    assert dataset.check_index("v_idx").is_valid
    assert matching_ids(dataset) == expected
    old = [3] if (mode, index_type) in OLD_VALUES else []
    assert matching_ids(lance.dataset(path)) == sorted(expected + old)
    # One segment has new values only, whoever merges.
    if who == "own":
        dataset.optimize_indices(num_indices_to_merge=2)
    else:
        lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=2)
    dataset = lance_spark.open_dataset(path)
    assert dataset.check_index("v_idx").is_valid
    assert matching_ids(dataset) == matching_ids(lance.dataset(path)) == expected


@pytest.mark.sample(3)
@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "ZONEMAP", "IVF_FLAT"])
@pytest.mark.parametrize("inline", [True, False], ids=["", "in a file"])
def test_overlays_of_rows_that_moved_twice(
    index_type: str, inline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bitmap of an index names the fragments before both compactions."""
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    if not inline:
        monkeypatch.setattr(fragment_reuse, "INLINE_BYTES", 0)
    path = str(tmp_path / "t.lance")
    vectors = pa.array([[float(number)] * 2 for number in range(40)], pa.list_(pa.float32(), 2))
    data = pa.table({"id": range(40), "x": range(40), "v": vectors})
    lance.write_dataset(data, path, max_rows_per_file=20)
    dataset = lance_spark.open_dataset(path)
    # A BITMAP needs the fragment reuse index.
    dataset = dataset.create_scalar_index("id", "BITMAP")
    if index_type == "IVF_FLAT":
        dataset.create_index("v", index_type, num_partitions=1)
    else:
        dataset.create_scalar_index("x", index_type)
    lance_spark.open_dataset(path).optimize.compact_files()
    new = {"x": 1000, "v": [1000.0, 1000.0]}
    lance_spark.open_dataset(path).update(new, "id = 3", mode="overlay")
    lance_spark.open_dataset(path).optimize.compact_files(max_overlays_per_fragment=0)
    for current in (lance_spark.open_dataset(path), lance.dataset(path)):
        assert current.to_table(["id"], filter="x = 3")["id"].to_pylist() == []
        assert current.to_table(["id"], filter="x = 1000")["id"].to_pylist() == [3]
        nearest = {"column": "v", "q": [3.0, 3.0], "k": 40}
        rows = current.to_table(["id", "_distance"], nearest=nearest).to_pydict()
        distances = dict(zip(rows["id"], rows["_distance"], strict=True))
        assert distances == {
            number: 2.0 * ((1000 if number == 3 else number) - 3) ** 2 for number in range(40)
        }


def moved_vectors(batch: pa.RecordBatch) -> pa.Array:
    values: pa.Array = pa.array([[x + 50.0, x] for x in batch["x"].to_pylist()], VECTOR)
    return values


@pytest.mark.parametrize("who", ["own", "unchecked", "pylance"])
def test_a_segment_of_a_part_of_compacted_fragments(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment over fragments that are gone is committed while their rows are compacted again."""
    path = str(tmp_path / "t.lance")

    def rows(start: int, stop: int) -> pa.Table:
        vectors = pa.array([[float(x)] * 2 for x in range(start, stop)], VECTOR)
        return pa.table({"x": range(start, stop), "v": vectors})

    dataset = lance_spark.write_dataset(rows(0, 10), path, max_rows_per_file=5)
    options = {"num_partitions": 1}
    part = dataset.create_index_uncommitted("v", "IVF_FLAT", "i", fragment_ids=[0, 1], **options)
    dataset, _ = dataset.compact_files(target_rows_per_fragment=10, defer_index_remap=True)
    dataset = lance_spark.write_dataset(rows(10, 15), path, mode="append")
    compaction: dict[str, Any] = {"target_rows_per_fragment": 100, "defer_index_remap": True}
    if who != "pylance":
        plan = Compaction.plan(dataset, compaction)
        results = [task.execute(dataset) for task in plan.tasks]
        dataset.commit_existing_index_segments("i", "v", [part])
    if who == "unchecked":
        # Readers are right without the check, too.
        monkeypatch.setattr(rewrite, "_check_covered_groups", lambda *_: None)
        Compaction.commit(dataset, results, compaction)
    elif who == "own":
        with pytest.raises(CommitConflictError, match="only some of the fragments"):
            Compaction.commit(dataset, results, compaction)
        lance_spark.open_dataset(path).compact_files(**compaction)
    else:
        theirs = lance.dataset(path)
        tasks = optimize.Compaction.plan(theirs, options=compaction).tasks
        done = [task.execute(theirs) for task in tasks]
        dataset.commit_existing_index_segments("i", "v", [part])
        optimize.Compaction.commit(theirs, done)
    query = {"column": "v", "q": [3.0, 3.0], "k": 20}
    for _ in range(2):
        dataset = lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=0)
        values = {row["x"]: row["v"] for row in dataset.to_table(["x", "v"]).to_pylist()}
        found = dataset.to_table(["x", "_distance"], nearest=query).to_pydict()
        assert sorted(found["x"]) == list(range(15))
        expected = [sum((item - 3) ** 2 for item in values[x]) for x in found["x"]]
        assert found["_distance"] == pytest.approx(expected)
        dataset.update({"v": moved_vectors}, "x < 5", mode="columns")

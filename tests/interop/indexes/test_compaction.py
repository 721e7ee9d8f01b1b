"""Indexes after compactions of both clients, with addresses remapped at once, later or never."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import lance_spark

ROWS = 6_000
FILTERS = {
    "id": ["id = 2001", "id BETWEEN 100 AND 130", "id IN (1, 2999, 5999)"],
    "g": ["g = 17", "g IS NULL AND id < 900"],
    "s": ["s LIKE '%word 20%'", "contains(s, 'ord 11')"],
    "l": ["array_has(l, 'tag17')"],
}
TYPES = {"id": "BTREE", "g": "BITMAP", "s": "NGRAM", "l": "LABEL_LIST"}


def rows(ids: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "g": pa.array(ids % 100, mask=ids % 31 == 0),
            "s": [f"word {number}" for number in ids.tolist()],
            "l": pa.array([[f"tag{number % 50}"] for number in ids.tolist()]),
        }
    )


def check(path: Path) -> None:
    """Compare each answer with that of a scan without indexes, and with pylance's scan."""
    dataset, oracle = lance_spark.open_dataset(str(path)), lance.dataset(str(path))
    for texts in FILTERS.values():
        for text in texts:
            expected = dataset.to_table(["id"], filter=text, use_scalar_index=False)["id"]
            assert dataset.to_table(["id"], filter=text)["id"].equals(expected), text
            scanned = oracle.to_table(["id"], filter=text, use_scalar_index=False)["id"]
            assert sorted(scanned.to_pylist()) == sorted(expected.to_pylist()), text


def check_files(path: Path) -> None:
    """Compare each index with its column."""
    dataset = lance_spark.open_dataset(str(path))
    for index in dataset.describe_indices():
        if index.index_type != "FragmentReuse":
            result = dataset.check_index(index.name)
            assert result.is_valid, result
            assert result.num_rows == index.num_rows_indexed


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("stable", "defer"),
    [(False, False), (False, True), (True, False)],
    ids=["plain", "deferred", "stable"],
)
@pytest.mark.parametrize(("builder", "compactor"), [("own", "pylance"), ("pylance", "own")])
def test_compacted_tables(
    tmp_path: Path, stable: bool, defer: bool, builder: str, compactor: str
) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(
        rows(np.arange(ROWS)), str(path), max_rows_per_file=500, enable_stable_row_ids=stable
    )
    for column, index_type in TYPES.items():
        if builder == "own":
            lance_spark.open_dataset(str(path)).create_scalar_index(column, index_type)
        else:
            lance.dataset(str(path)).create_scalar_index(column, index_type)
    lance_spark.open_dataset(str(path)).delete("id % 7 = 3")
    check(path)
    options: dict[str, Any] = {"target_rows_per_fragment": 2_000}
    if compactor == "own":
        lance_spark.open_dataset(str(path)).compact_files(**options, defer_index_remap=defer)
    else:
        lance.dataset(str(path)).optimize.compact_files(**options, defer_index_remap=defer)
    check(path)
    check_files(path)
    if defer:
        # The addresses of the index files are old, and the compaction of them is recorded.
        explained = lance_spark.open_dataset(str(path)).explain(filter="id = 2001")
        assert "index: id_idx (BTREE): 1 rows" in explained
    lance.dataset(str(path)).insert(rows(np.arange(ROWS, ROWS + 300)))
    check(path)
    lance.dataset(str(path)).optimize.optimize_indices()
    check(path)
    check_files(path)
    lance_spark.open_dataset(str(path)).optimize_indices(retrain=True)
    check(path)
    dataset = lance_spark.open_dataset(str(path))
    assert all("  index: " in dataset.explain(filter=texts[0]) for texts in FILTERS.values())


@pytest.mark.sample(5)
@pytest.mark.parametrize("builder", ["own", "pylance"])
@pytest.mark.parametrize("compactor", ["own", "pylance"])
def test_zones_of_rows_that_were_moved(tmp_path: Path, builder: str, compactor: str) -> None:
    """The zones have old places, which a check translates as pylance does."""
    path = tmp_path / "t.lance"
    lance.write_dataset(rows(np.arange(ROWS)), str(path), max_rows_per_file=1_000)
    for column, index_type in (("id", "ZONEMAP"), ("g", "BLOOMFILTER")):
        if builder == "own":
            lance_spark.open_dataset(str(path)).create_scalar_index(column, index_type)
        else:
            lance.dataset(str(path)).create_scalar_index(column, index_type)
    lance_spark.open_dataset(str(path)).delete("id % 7 = 3")
    options: dict[str, Any] = {"target_rows_per_fragment": 4_000, "defer_index_remap": True}
    if compactor == "own":
        lance_spark.open_dataset(str(path)).compact_files(**options)
    else:
        lance.dataset(str(path)).optimize.compact_files(**options)
    check_files(path)
    dataset = lance_spark.open_dataset(str(path))
    covered = 0 if compactor == "own" else dataset.count_rows()
    assert dataset.check_index("id_idx").num_rows == covered
    check(path)
    lance.dataset(str(path)).insert(rows(np.arange(ROWS, ROWS + 300)))
    lance.dataset(str(path)).optimize.optimize_indices()
    check_files(path)
    check(path)


@pytest.mark.parametrize("index_type", ["ZONEMAP", "BLOOMFILTER"])
@pytest.mark.parametrize("other", ["BTREE", "BITMAP"])
@pytest.mark.parametrize("defer", [None, True])
def test_recorded_moves_are_not_for_zones(
    tmp_path: Path, index_type: str, other: str, defer: bool | None
) -> None:
    """pylance before 14 applies the moves to zones as well, and finds no row of them."""
    path = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(rows(np.arange(400)), path, max_rows_per_file=100)
    dataset = dataset.create_scalar_index("id", index_type)
    dataset = dataset.create_scalar_index("g", other).delete("id >= 100 AND id < 150")
    dataset, _ = dataset.compact_files(
        target_rows_per_fragment=200, excluded_fragment_ids=[2, 3], defer_index_remap=defer
    )
    has_record = defer is True
    names = {index["name"] for index in dataset.list_indices()}
    assert ("__lance_frag_reuse" in names) is has_record
    (zoned,) = (index for index in dataset.list_indices() if index["name"] == "id_idx")
    remaining = {fragment.fragment_id for fragment in dataset.get_fragments()}
    assert zoned["fragment_ids"] & remaining == {2, 3}
    if has_record:
        assert zoned["fragment_ids"] == {2, 3}
    check(Path(path))
    dataset = dataset.optimize_indices()
    (described,) = (index for index in dataset.describe_indices() if index.name == "id_idx")
    assert described.num_rows_indexed == 350
    check(Path(path))
    check_files(Path(path))


@pytest.mark.parametrize("index_type", ["BTREE", "NGRAM", "JSON", "INVERTED"])
def test_pylance_compacts_after_this_package(tmp_path: Path, index_type: str) -> None:
    """With a fragment reuse index, pylance's compaction makes these indexes lose rows."""
    path = tmp_path / "t.lance"
    numbers = np.arange(600)
    documents = [json.dumps({"a": number % 5}) for number in numbers.tolist()]
    table = pa.table(
        {
            "id": numbers,
            "s": [f"word{number % 5}" for number in numbers.tolist()],
            "js": pa.array(documents, pa.json_()),
        }
    )
    lance.write_dataset(table, str(path), max_rows_per_file=100)
    dataset = lance_spark.open_dataset(str(path))
    condition = "s = 'word2'" if index_type == "BTREE" else "contains(s, 'word2')"
    if index_type == "JSON":
        condition = "json_get_int(js, 'a') = 2"
        config = IndexConfig("json", {"target_index_type": "btree", "path": "a"})
        dataset.create_scalar_index("js", config)
    else:
        dataset.create_scalar_index("s", index_type)

    def check_answers() -> None:
        dataset, oracle = lance_spark.open_dataset(str(path)), lance.dataset(str(path))
        expected = oracle.to_table(["id"], filter=condition, use_scalar_index=False)["id"]
        for client in (dataset, oracle):
            assert sorted(client.to_table(["id"], filter=condition)["id"].to_pylist()) == sorted(
                expected.to_pylist()
            )
        (index,) = dataset.describe_indices()
        assert dataset.check_index(index.name).is_valid
        assert index.num_rows_indexed == dataset.count_rows()

    lance.dataset(str(path)).delete("id >= 100 AND id < 250 AND id % 3 > 0")
    lance_spark.open_dataset(str(path)).compact_files(target_rows_per_fragment=90)
    check_answers()
    lance.dataset(str(path)).delete("id >= 300 AND id < 450 AND id % 3 > 0")
    lance.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=150)
    check_answers()
    lance_spark.open_dataset(str(path)).delete("id < 50 OR id % 5 = 2")
    lance_spark.open_dataset(str(path)).compact_files(target_rows_per_fragment=10_000)
    check_answers()

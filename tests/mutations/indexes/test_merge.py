"""Indexes that are built of parts, and segments that are merged from their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptFileError
from lance_spark.indexes import builds, merges, order, zone_segments
from lance_spark.indexes.files import IndexFiles
from lance_spark.mutations.indexes.optimize import OptimizeRequest, plan_extensions
from lance_spark.table.indexes import sections as indexes

#: The columns of each type of index.
COLUMNS = {
    "BTREE": ["f", "s", "d", "flag", "tag"],
    "BITMAP": ["f", "tag", "g"],
    "LABEL_LIST": ["list"],
    "NGRAM": ["s"],
    "ZONEMAP": ["f", "s", "g"],
    "BLOOMFILTER": ["g", "s"],
}
CASES = [(index_type, name) for index_type, names in COLUMNS.items() for name in names]
#: Conditions that both clients can parse.
FILTERS = {
    "f": ["f = 0.0", "f > 700 AND f < 740", "(f < -240 AND f > -999) OR f IS NULL"],
    "s": ["s = 'word 17'", "s LIKE 'word 29%'", "s IS NULL", "contains(s, 'rd 1')"],
    "d": ["d = 17", "d < -450"],
    "flag": ["flag", "flag IS NULL"],
    "tag": ["tag = 'red'", "tag IN ('', 'x')", "tag IS NULL"],
    "g": ["g = 7", "g IN (1, 90, 4000)", "g IS NULL", "g > 85"],
    "list": ["array_has(list, 'red')", "array_has_any(list, ['x', 'green'])"],
}


def rows(ids: np.ndarray) -> pa.Table:
    f = ids * 0.5 - 250
    f[ids % 97 == 0] = np.nan
    f[ids % 89 == 1] = -0.0
    f[ids % 101 == 5] = np.copysign(np.nan, -1)
    tags = np.array(["red", "green", "", "ünï"])[ids % 4]
    lists: list[Any] = [[tag, "x"] if number % 3 else None for number, tag in enumerate(tags)]
    lists[0] = [None, "red"]
    return pa.table(
        {
            "id": ids,
            "f": pa.array(f, mask=ids % 5 == 0),
            "s": pa.array([f"word {number % 500}" for number in ids], mask=ids % 11 == 4),
            "d": pa.array(ids - 500).cast(pa.decimal128(22, 2)),
            "flag": pa.array(ids % 500 == 1, mask=ids % 10 == 0),
            "tag": pa.array(tags, mask=ids % 13 == 0),
            "g": pa.array((ids % 91).astype(np.int16), mask=ids % 7 == 0),
            "list": pa.array(lists, pa.list_(pa.string())),
        }
    )


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make several parts of few rows, and several windows of each file."""
    monkeypatch.setattr(builds, "PART_BYTES", 4_000)
    monkeypatch.setattr(builds, "_BATCH_ROWS", 300)
    monkeypatch.setattr(merges, "_FIRST_ROWS", 50)
    monkeypatch.setattr(merges, "_WINDOW_BYTES", 20_000)
    monkeypatch.setattr(zone_segments, "_BATCH_BYTES", 1000)


def options_of(index_type: str) -> dict[str, Any]:
    return {"BTREE": {"zone_size": 64}, "ZONEMAP": {"rows_per_zone": 100}}.get(index_type, {})


def build(path: Path, index_type: str, name: str, client: str = "own") -> None:
    if client == "own":
        dataset = lance_spark.open_dataset(str(path))
        dataset.create_scalar_index(name, index_type, "i", **options_of(index_type))
    else:
        lance.dataset(str(path)).create_scalar_index(name, index_type, name="i")


def segments(path: Path) -> list[Any]:
    section = indexes.read_section(lance_spark.open_dataset(str(path))._table.manifest)
    return [index for index in section.indices if index.name == "i"]


def contents(path: Path) -> dict[str, pa.Table]:
    """Return the rows of the files of the only segment."""
    (segment,) = segments(path)
    files = IndexFiles(lance_spark.open_dataset(str(path))._table.paths, segment)
    result = {}
    for file in segment.files:
        with closing(files.open(file.path)) as reader:
            arrays = reader.read(reader.schema.fields, range(reader.num_rows))
            result[file.path] = pa.table(arrays, reader.schema.names)
    return result


def compare(path: Path, name: str) -> None:
    """Compare answers of both clients by the index with those of scans."""
    dataset, oracle = lance_spark.open_dataset(str(path)), lance.dataset(str(path))
    assert dataset.check_index("i").is_valid, dataset.check_index("i")
    for text in FILTERS[name]:
        scanned = oracle.to_table(["id"], filter=text, use_scalar_index=False)
        expected = sorted(scanned["id"].to_pylist())
        assert sorted(oracle.to_table(["id"], filter=text)["id"].to_pylist()) == expected, text
        ids = dataset.to_table(["id"], filter=text)["id"].to_pylist()
        assert sorted(ids) == expected, text


@pytest.mark.sample(5)
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("index_type", "name"), CASES)
def test_an_index_of_parts_is_that_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index_type: str, name: str
) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows(np.arange(2000)), str(path), max_rows_per_file=900)
    lance_spark.open_dataset(str(path)).delete("id % 17 = 3")
    build(path, index_type, name)
    compare(path, name)
    parts = contents(path)
    monkeypatch.setattr(builds, "PART_BYTES", 1 << 30)
    build(path, index_type, name)
    if index_type in ("ZONEMAP", "BLOOMFILTER"):
        # The last zone of a part may have fewer rows.
        assert list(parts) == list(contents(path))
    else:
        # As texts, in which NaN is equal to NaN.
        is_same = str(texts_of(parts)) == str(texts_of(contents(path)))
        assert is_same


def texts_of(files: dict[str, pa.Table]) -> dict[str, Any]:
    """Return the rows of files; those with equal values in the order of their ids."""
    sort = [("page_data.lance", [("values", "ascending"), ("ids", "ascending")])]
    tables = files | {name: files[name].sort_by(keys) for name, keys in sort if name in files}
    return {name: table.to_pydict() for name, table in tables.items()}


@pytest.mark.sample(8)
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("client", ["own", "pylance"])
@pytest.mark.parametrize("stable_row_ids", [False, True], ids=["addresses", "stable"])
@pytest.mark.parametrize(
    ("index_type", "name"),
    [("BTREE", "f"), ("BITMAP", "tag"), ("LABEL_LIST", "list"), ("NGRAM", "s"), ("ZONEMAP", "g"),
     ("BLOOMFILTER", "s")],
)  # fmt: skip
def test_segments_are_merged_without_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    index_type: str,
    name: str,
    stable_row_ids: bool,
    client: str,
) -> None:
    path = tmp_path / "t"
    lance.write_dataset(
        rows(np.arange(2000)),
        str(path),
        max_rows_per_file=500,
        enable_stable_row_ids=stable_row_ids,
    )
    build(path, index_type, name, client)
    lance.write_dataset(rows(np.arange(2000, 2600)), str(path), mode="append")
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=0)
    # A fragment is removed, rows are deleted, and rows with stable ids get new values.
    lance.dataset(str(path)).delete("id >= 500 AND id < 1000")
    lance_spark.open_dataset(str(path)).delete("id % 17 = 3")
    values = {"f": "7.25", "s": "'word 12x'", "tag": "'red'", "g": "8"}
    if name in values:
        lance.dataset(str(path)).update({name: values[name]}, where="id % 40 = 1")
    lance.write_dataset(rows(np.arange(5000, 5300)), str(path), mode="append")
    read: list[int] = []
    scan = builds._batches

    def batches(task: Any, slices: Any, schema: Any) -> Iterator[pa.RecordBatch]:
        if len(schema.fields) > 1:
            read.extend(piece.fragment.id for piece in slices)
        return scan(task, slices, schema)

    monkeypatch.setattr(builds, "_batches", batches)
    dataset = lance_spark.open_dataset(str(path))
    uncovered = {fragment.id for fragment in dataset.fragments} - set(range(5))
    dataset.optimize_indices(num_indices_to_merge=2)
    assert set(read) == uncovered
    assert len(segments(path)) == 1
    compare(path, name)


@pytest.mark.sample(5)
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("defer", [False, True], ids=["remapped", "reused"])
@pytest.mark.parametrize(
    ("index_type", "name"),
    [("BTREE", "s"), ("BITMAP", "g"), ("LABEL_LIST", "list"), ("NGRAM", "s"), ("ZONEMAP", "f")],
)
def test_moved_rows_are_merged_with_their_new_addresses(
    tmp_path: Path, index_type: str, name: str, defer: bool
) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows(np.arange(2000)), str(path), max_rows_per_file=250)
    build(path, index_type, name, "own" if index_type != "ZONEMAP" else "pylance")
    lance.dataset(str(path)).delete("id % 6 = 1 OR (id < 900 AND id > 100)")
    lance.dataset(str(path)).optimize.compact_files(
        target_rows_per_fragment=800, defer_index_remap=defer
    )
    lance.write_dataset(rows(np.arange(2000, 2300)), str(path), mode="append")
    dataset = lance_spark.open_dataset(str(path)).optimize_indices()
    assert len(segments(path)) == 1
    assert segments(path)[0].dataset_version == dataset.version - 1
    compare(path, name)
    # The new segment has the new addresses, and is merged again.
    lance.write_dataset(rows(np.arange(2300, 2400)), str(path), mode="append")
    lance_spark.open_dataset(str(path)).optimize_indices()
    compare(path, name)


def test_small_segments_are_merged_and_large_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows(np.arange(2000)), str(path), max_rows_per_file=500)
    build(path, "BTREE", "f")
    lance.write_dataset(rows(np.arange(2000, 2200)), str(path), mode="append")
    table = lance_spark.open_dataset(str(path))._table
    (extension,) = plan_extensions(table, OptimizeRequest(num_segments=None))
    assert len(extension.tasks) == len(extension.removed) == 1
    monkeypatch.setattr("lance_spark.mutations.indexes.create._MAX_SEGMENT_ROWS", 1500)
    (extension,) = plan_extensions(table, OptimizeRequest(num_segments=None))
    (task,) = extension.tasks
    assert not extension.removed
    assert not task.merged
    assert [fragment.physical_rows for fragment in task.fragments] == [200]


def test_segments_are_merged_though_no_rows_are_new(tmp_path: Path) -> None:
    path = tmp_path / "t"
    lance.write_dataset(rows(np.arange(2000)), str(path), max_rows_per_file=500)
    dataset = lance_spark.open_dataset(str(path))
    dataset = dataset.create_scalar_index("s", "BTREE", "i", num_segments=4)
    assert dataset.optimize_indices().version == dataset.version
    dataset = dataset.optimize_indices(num_indices_to_merge=3)
    assert len(segments(path)) == 2
    dataset.optimize_indices(num_indices_to_merge=2)
    assert len(segments(path)) == 1
    compare(path, "s")


def build_out_of_order(
    path: Path, monkeypatch: pytest.MonkeyPatch, index_type: str, name: str
) -> None:
    lance.write_dataset(rows(np.arange(1000)), str(path))
    by_key = order.order_of
    for module in ("indexes.btree.build", "indexes.bitmap.files"):
        monkeypatch.setattr(f"lance_spark.{module}.order_of", lambda values: by_key(values)[::-1])
    reversed_trigrams = partial(sorted, reverse=True)
    monkeypatch.setattr("lance_spark.indexes.ngram.files.sorted", reversed_trigrams, raising=False)
    build(path, index_type, name)
    monkeypatch.undo()
    lance.write_dataset(rows(np.arange(1000, 1200)), str(path), mode="append")


@pytest.mark.parametrize(("index_type", "name"), [("BITMAP", "g"), ("LABEL_LIST", "list")])
def test_rows_of_sets_out_of_order_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index_type: str, name: str
) -> None:
    path = tmp_path / "t"
    build_out_of_order(path, monkeypatch, index_type, name)
    (before,) = contents(path).values()
    assert before["keys"].to_pylist() != sorted_keys(before)
    dataset = lance_spark.open_dataset(str(path)).optimize_indices()
    (after,) = contents(path).values()
    assert after["keys"].to_pylist() == sorted_keys(after)
    (index,) = dataset.describe_indices()
    assert dataset.check_index(index.name).is_valid
    compare(path, name)


def sorted_keys(content: pa.Table) -> list[Any]:
    keys = content["keys"].to_pylist()
    return [None] * keys.count(None) + sorted(key for key in keys if key is not None)


@pytest.mark.parametrize(("index_type", "name"), [("BTREE", "f"), ("NGRAM", "s")])
def test_a_file_out_of_order_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index_type: str, name: str
) -> None:
    path = tmp_path / "t"
    build_out_of_order(path, monkeypatch, index_type, name)
    version = lance.dataset(str(path)).version
    with pytest.raises(CorruptFileError, match="must ascend; create the index again"):
        lance_spark.open_dataset(str(path)).optimize_indices()
    assert lance.dataset(str(path)).version == version
    folders = {file.parent for file in path.glob("_indices/*/*")}
    assert len(folders) == 1
    lance_spark.open_dataset(str(path)).optimize_indices(retrain=True)
    compare(path, name)

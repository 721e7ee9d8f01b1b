"""Overlays: new values for single cells, written by pylance and read as it reads them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile
from pyroaring import BitMap

import lance_spark
from lance_spark.errors import CorruptTableError, UnsupportedError
from lance_spark.json.jsonb import to_jsonb
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import encode
from lance_spark.table.manifest.versions import NamingScheme
from lance_spark.table.open import read_latest

ROWS = 40
KINDS = pa.schema(
    [
        ("number", pa.int64()),
        ("word", pa.string()),
        ("point", pa.struct([("x", pa.int32()), ("label", pa.string())])),
        ("items", pa.list_(pa.int64())),
        ("vector", pa.list_(pa.float32(), 4)),
        ("flag", pa.bool_()),
    ]
)
#: Return the ids of the fields that a file names for a column.
LEAVES = {"number": [0], "word": [1], "point": [3, 4], "items": [6], "vector": [7], "flag": [8]}


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this variable, pylance refuses such tables, because they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")


def some_rows(start: int, count: int, randomness: random.Random) -> pa.Table:
    def value(name: str, i: int) -> Any:
        if randomness.random() < 0.15:
            return None
        return {
            "number": i,
            "word": f"w{i}" * (i % 4),
            "point": {"x": i, "label": None if i % 3 == 0 else str(i)},
            "items": list(range(i % 5)),
            "vector": [float(i)] * 4,
            "flag": i % 2 == 0,
        }[name]

    ids = range(start, start + count)
    return pa.table({n: [value(n, i) for i in ids] for n in KINDS.names}, KINDS)


def overlay(
    path: Path, name: str, values: pa.Table, offsets: Sequence[Any]
) -> lance.LanceOperation.DataOverlayFile:
    with LanceFileWriter(str(path / "data" / name), values.schema, version="2.2") as writer:
        writer.write_batch(values)
    fields = [leaf for column in values.column_names for leaf in LEAVES[column]]
    file = DataFile(name, fields, list(range(len(fields))), 2, 2)
    return lance.LanceOperation.DataOverlayFile(file, offsets)


def commit(path: Path, fragment: int, *overlays: Any) -> None:
    groups = [lance.LanceOperation.DataOverlayGroup(fragment, list(overlays))]
    version = lance.dataset(str(path)).version
    operation = lance.LanceOperation.DataOverlay(groups)
    lance.LanceDataset.commit(str(path), operation, read_version=version)


def same(path: Path) -> pa.Table:
    expected = lance.dataset(str(path)).to_table()
    ours = lance_spark.open_dataset(str(path))
    ours.validate()
    assert ours.to_table().to_pylist() == expected.to_pylist()
    return expected


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_overlays(tmp_path: Path, seed: int) -> None:
    randomness = random.Random(seed)
    path = tmp_path / "table"
    lance.write_dataset(some_rows(0, 2 * ROWS, randomness), str(path), max_rows_per_file=ROWS)
    for number in range(4):
        columns = randomness.sample(KINDS.names, randomness.randint(1, 3))
        offsets = sorted(randomness.sample(range(ROWS), randomness.randint(1, ROWS)))
        values = some_rows(1000 * (number + 1), len(offsets), randomness).select(columns)
        commit(path, number % 2, overlay(path, f"overlay{number}.lance", values, offsets))
        if number == 1:
            lance.dataset(str(path)).delete("number % 7 = 3")
    expected = same(path)
    ours = lance_spark.open_dataset(str(path))
    positions = sorted(randomness.sample(range(expected.num_rows), 9))
    assert ours.take(positions).to_pylist() == expected.take(positions).to_pylist()
    filtered = ours.to_table(["word"], filters=[("number", ">=", 1000)])
    wanted = lance.dataset(str(path)).to_table(columns=["word"], filter="number >= 1000")
    assert filtered.to_pylist() == wanted.to_pylist()
    batches = list(ours.to_batches(["point.label"], batch_size=7))
    assert [row["point.label"] for batch in batches for row in batch.to_pylist()] == [
        value and value["label"] for value in expected["point"].to_pylist()
    ]


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "table"
    rows = 500
    documents = pa.array([f'{{"a":{k}}}' for k in range(rows)], pa.json_())
    lance.write_dataset(pa.table({"js": documents, "id": range(rows)}), str(path))
    stored = to_jsonb(pa.array(['{"a":1000}', None, '{"a":"x"}']))
    with LanceFileWriter(
        str(path / "data" / "o.lance"), pa.schema({"js": pa.large_binary()}), version="2.2"
    ) as writer:
        writer.write_batch(pa.table({"js": stored}))
    file = DataFile("o.lance", [0], [0], 2, 2)
    commit(path, 0, lance.LanceOperation.DataOverlayFile(file, [100, 200, 300]))
    ours = lance_spark.open_dataset(str(path))
    for text in (
        "json_extract(js, '$.a') = '1000'",
        "json_get(js, 'a') IS NULL",
        "json_get_string(js, 'a') IN ('x', '3', '100', '300')",
    ):
        expected = lance.dataset(str(path)).to_table(filter=text)
        assert ours.to_table(filter=text).to_pylist() == expected.to_pylist(), text
        assert expected.num_rows in (1, 2)


def test_rows_of_each_column(tmp_path: Path) -> None:
    path = tmp_path / "table"
    randomness = random.Random(1)
    lance.write_dataset(some_rows(0, ROWS, randomness), str(path))
    values = some_rows(100, 3, randomness).select(["number", "word"])
    commit(path, 0, overlay(path, "overlay.lance", values, [[1, 2, 3], [3, 20, 39]]))
    same(path)


def test_a_column_that_no_data_file_has(tmp_path: Path) -> None:
    path = tmp_path / "table"
    lance.write_dataset(pa.table({"a": pa.array(range(5), pa.int64())}), str(path))
    lance.dataset(str(path)).add_columns(pa.field("b", pa.int64()))
    with LanceFileWriter(str(path / "data" / "o.lance"), pa.schema([("b", pa.int64())])) as writer:
        writer.write_batch(pa.table({"b": pa.array([10, 30], pa.int64())}))
    file = lance.LanceOperation.DataOverlayFile(DataFile("o.lance", [1], [0], 2, 2), [1, 3])
    commit(path, 0, file)
    assert same(path)["b"].to_pylist() == [None, 10, None, 30, None]


def test_commits_keep_overlays(tmp_path: Path) -> None:
    path = tmp_path / "table"
    randomness = random.Random(2)
    lance.write_dataset(some_rows(0, ROWS, randomness), str(path))
    values = some_rows(100, 2, randomness)
    commit(path, 0, overlay(path, "overlay.lance", values, [7, 30]))
    lance_spark.write_dataset(some_rows(500, 3, randomness), str(path), mode="append")
    assert same(path).num_rows == ROWS + 3
    assert read_latest(ObjectStore.from_uri(path)).flags.reader == 64
    lance_spark.write_dataset(some_rows(500, 3, randomness), str(path), mode="overwrite")
    assert same(path).num_rows == 3
    assert read_latest(ObjectStore.from_uri(path)).flags.reader == 0


@pytest.mark.parametrize("who", ["own", "pylance"])
def test_a_stale_update_beside_an_overlay(tmp_path: Path, who: str) -> None:
    """Only pylance gives rows back the versions of their last update."""
    path = tmp_path / "t"
    rows = some_rows(0, 6, random.Random(7))
    lance.write_dataset(rows, path, data_storage_version="2.2", enable_stable_row_ids=True)
    stale: Any = (lance_spark.open_dataset if who == "own" else lance.dataset)(str(path))
    commit(path, 0, overlay(path, "new.lance", pa.table({"number": [91, 92]}), [1, 2]))
    if who == "own":
        stale.update({"word": "new"}, "_rowid = 4")
    else:
        stale.update({"word": "'new'"}, where="_rowid = 4")
    same(path)
    dataset = lance_spark.open_dataset(str(path))
    assert dataset.version == 3
    columns = ["_rowid", "number", "_row_last_updated_at_version"]
    assert dataset.to_table(columns, filter="_rowid IN (0, 1, 2)").to_pydict() == {
        "_rowid": [0, 1, 2],
        "number": [rows["number"][0].as_py(), 91, 92],
        "_row_last_updated_at_version": [1, 2, 2] if who == "own" else [1, 1, 1],
    }


def broken(path: Path, change: Any) -> None:
    """Change the overlay in the newest manifest."""
    store = ObjectStore.from_uri(path)
    manifest = read_latest(store)
    proto = manifest.to_proto()
    proto.version += 1
    change(proto.fragments[0].overlays[0])
    data = encode(proto, manifest.index_section, manifest.transaction_section)
    store.write_bytes(NamingScheme.V2.locate(proto.version).path, data)


def huge(overlay_message: table_pb2.DataOverlayFile) -> None:
    rows = BitMap()
    rows.add_range(0, 2**32)
    overlay_message.shared_offset_bitmap = rows.serialize()


def truncated(overlay_message: table_pb2.DataOverlayFile) -> None:
    overlay_message.shared_offset_bitmap = overlay_message.shared_offset_bitmap[:-2]


def outside(overlay_message: table_pb2.DataOverlayFile) -> None:
    overlay_message.data_file.path = "../other.lance"


def without_rows(overlay_message: table_pb2.DataOverlayFile) -> None:
    overlay_message.ClearField("coverage")


@pytest.mark.parametrize("change", [huge, truncated, outside, without_rows])
def test_hostile_overlays(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "table"
    randomness = random.Random(3)
    lance.write_dataset(some_rows(0, ROWS, randomness), str(path))
    commit(path, 0, overlay(path, "overlay.lance", some_rows(100, 2, randomness), [7, 30]))
    broken(path, change)
    with pytest.raises(CorruptTableError, match=r"overlay|other\.lance"):
        lance_spark.open_dataset(str(path)).to_table()


def test_blobs_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "table"
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table([pa.array([b"1", b"2"], pa.large_binary())], schema=pa.schema([blob]))
    lance.write_dataset(data, str(path), data_storage_version="2.1")
    with LanceFileWriter(str(path / "data" / "o.lance"), data.schema, version="2.1") as writer:
        writer.write_batch(data)
    file = lance.LanceOperation.DataOverlayFile(DataFile("o.lance", [0], [0], 2, 1), [0, 1])
    commit(path, 0, file)
    with pytest.raises(UnsupportedError, match="blob column"):
        lance_spark.open_dataset(str(path)).to_table()

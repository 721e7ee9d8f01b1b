"""Deletes and updates of tables with external lineage, clones, branches, base paths."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.table.fragments.files import Lineage

LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
COLUMNS = ["id", "word", *LINEAGE]


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"id": numbers, "word": [f"w{i}" for i in numbers]})


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_row_ids_in_hidden_columns(tmp_path: Path, mode: str) -> None:
    path = str(tmp_path)
    theirs = lance.write_dataset(rows(0, 1), path, enable_stable_row_ids=True)
    theirs.update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "16"}
    )
    theirs = lance.write_dataset(rows(1, 999), path, mode="append", max_rows_per_file=300)
    theirs.delete("id % 3 = 0")
    theirs.update({"word": "'x'"}, where="id % 7 = 1")
    theirs.optimize.compact_files(target_rows_per_fragment=800, materialize_deletions_threshold=0.0)
    theirs = lance.dataset(path)
    spilled = lance_spark.open_dataset(path).fragments[0]
    assert spilled.has_lineage(Lineage.UPDATED)
    assert spilled.inline_lineage(Lineage.UPDATED) is None
    before = {row["id"]: row for row in theirs.to_table(columns=COLUMNS).to_pylist()}
    ours = lance_spark.open_dataset(path).delete([("id", "==", 400)])
    ours = ours.update({"word": "y"}, [("id", ">", 300), ("id", "<", 450)], mode=mode)
    theirs = lance.dataset(path)
    theirs.validate()
    read = theirs.to_table(columns=COLUMNS)
    assert ours.to_table(COLUMNS) == read
    after = {row["id"]: row for row in read.to_pylist()}
    assert before.keys() - after.keys() == {400}
    for number, row in after.items():
        changed = {"word": "y", LINEAGE[2]: theirs.version} if 300 < number < 450 else {}
        assert row == {**before[number], **changed}


def test_a_clone_writes_its_own_files(tmp_path: Path) -> None:
    source = lance.write_dataset(rows(0, 30), str(tmp_path / "s"), max_rows_per_file=10)
    source.delete("id = 3")
    lance.dataset(source.uri).shallow_clone(str(tmp_path / "c"), reference=2)
    ours = lance_spark.open_dataset(str(tmp_path / "c"))
    ours = ours.delete([("id", "in", [4, 14])]).update({"word": "a"}, [("id", "==", 5)])
    ours = ours.update({"word": "b"}, [("id", ">", 25)], mode="columns")
    stale = lance.dataset(str(tmp_path / "c"))
    ours.delete([("id", "==", 6)])
    stale.delete("id = 7")
    clone = lance.dataset(str(tmp_path / "c"))
    clone.validate()
    read = {row["id"]: row["word"] for row in clone.to_table().to_pylist()}
    words = {i: "a" if i == 5 else "b" if i > 25 else f"w{i}" for i in range(30)}
    assert read == {i: w for i, w in words.items() if i not in (3, 4, 6, 7, 14)}
    assert lance_spark.open_dataset(str(tmp_path / "c")).to_table() == clone.to_table()
    assert lance.dataset(source.uri).count_rows() == 29
    lance.dataset(source.uri).validate()


def test_references_below_base_paths(tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    names = ["f.bin", "a b%é.bin"]
    for name in names:
        (objects / name).write_bytes(name.encode())
    bases = [lance.DatasetBasePath(objects.as_uri(), name="b", is_dataset_root=False)]
    data = pa.table(
        [pa.array([0, 1]), lance.blob_array([(objects / name).as_uri() for name in names])],
        schema=pa.schema([pa.field("id", pa.int64()), lance.blob_field("blob")]),
    )
    path = str(tmp_path / "t")
    lance.write_dataset(data, path, data_storage_version="2.2", initial_bases=bases)
    before = lance.dataset(path).to_table()["blob"].to_pylist()
    assert all(row["blob_id"] for row in before)
    ours = lance_spark.open_dataset(path).update({"id": lambda r: pc.add(r["id"], 5)})
    assert ours.to_table()["blob"].to_pylist() == before
    theirs = lance.dataset(path)
    theirs.validate()
    blobs = theirs.take_blobs("blob", indices=[0, 1])
    assert [blob.readall() for blob in blobs] == [name.encode() for name in names]


def test_a_store_in_memory() -> None:
    uri = f"memory://{uuid.uuid4().hex}"
    lance_spark.write_dataset(rows(0, 50), uri, max_rows_per_file=10)
    stale = lance_spark.open_dataset(uri)
    ours = stale.delete([("id", "in", [1, 11, 21, 31, 41])])
    ours = ours.update({"word": "x"}, [("id", "<", 15)])
    assert stale.delete([("id", "==", 22)]).version == 4
    ours = stale.update({"word": "y"}, [("id", ">", 45)], mode="columns")
    read = {row["id"]: row["word"] for row in ours.to_table().to_pylist()}
    deleted = {1, 11, 21, 31, 41, 22}
    words = {i: "x" if i < 15 else "y" if i > 45 else f"w{i}" for i in range(50)}
    assert read == {i: w for i, w in words.items() if i not in deleted}


def test_a_change_of_a_branch_does_not_change_main(tmp_path: Path) -> None:
    path = str(tmp_path)
    lance.write_dataset(rows(0, 30), path, max_rows_per_file=10).create_branch("x")
    stale = lance_spark.open_dataset(path, branch="x")
    lance_spark.open_dataset(path, branch="x").delete([("id", "<", 3)])
    stale.delete([("id", "==", 4)]).update({"word": "b"}, [("id", "==", 7)])
    branch = lance.dataset(path).checkout_version(("x", None))
    branch.validate()
    read = {row["id"]: row["word"] for row in branch.to_table().to_pylist()}
    assert read == {i: "b" if i == 7 else f"w{i}" for i in range(5, 30)} | {3: "w3"}
    assert lance.dataset(path).to_table() == rows(0, 30)

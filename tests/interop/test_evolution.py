"""Tables whose fragments do not all have the same data files: columns that pylance added,
dropped, merged and replaced.
"""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from tests.support.interop.tables import assert_same

ROWS = 5_000
VERSIONS = ["2.0", "2.1", "2.2", "2.3"]


def table(first: int = 0) -> pa.Table:
    ids = np.arange(first, first + ROWS)
    a = pa.array(ids * 3, pa.int32(), mask=ids % 5 == 0)
    b = pa.array([f"b{i % 99}" for i in ids.tolist()])
    lists = pa.array([[i, i + 1][: i % 3] for i in ids.tolist()], pa.list_(pa.int64()))
    return pa.table(
        {
            "id": ids,
            "s": pa.StructArray.from_arrays([a, b, lists], ["a", "b", "l"]),
            "text": b,
            "items": pa.ListArray.from_arrays(
                pa.array(np.arange(ROWS + 1), pa.int32()), pa.StructArray.from_arrays([a], ["p"])
            ),
        }
    )


def new_table(path: Path, version: str) -> lance.LanceDataset:
    """Write three fragments, with deleted rows in two of them."""
    dataset = lance.write_dataset(
        table(), str(path), data_storage_version=version, max_rows_per_file=2_000
    )
    dataset.delete("id >= 2500 and id < 3100 or id % 7 = 3")
    return dataset


@pytest.fixture(params=VERSIONS)
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> lance.LanceDataset:
    return new_table(tmp_path / "t.lance", request.param)


@pytest.fixture
def newer(tmp_path: Path) -> lance.LanceDataset:
    """A table of the only version in which pylance adds children to structs."""
    return new_table(tmp_path / "t.lance", "2.2")


def check(theirs: lance.LanceDataset, *selections: list[str]) -> pa.Table:
    """Check everything that pylance reads: by name, by position and in batches."""
    expected = theirs.to_table()
    ours = lance_spark.open_dataset(theirs.uri)
    assert ours.schema.names == theirs.schema.names
    assert_same(ours.to_table(), expected, "all")
    names = expected.column_names
    for columns in (names[::-1], names[-1:], names[1:]):
        assert_same(ours.to_table(columns), expected.select(columns), f"{columns}")
    rng = np.random.default_rng(1)
    for rows in (rng.integers(0, expected.num_rows, 100), np.arange(900, 2_300)):
        assert_same(ours.take(rows), expected.take(pa.array(rows)), "take")
    batches = list(ours.to_batches(batch_size=777))
    assert_same(pa.Table.from_batches(batches), expected, "batches")
    for columns in selections:
        flat = theirs.to_table(columns=columns)
        read = ours.to_table(columns)
        for name in columns:
            checked = pa.concat_arrays(read[name].chunks)
            assert checked.equals(pa.concat_arrays(flat[name].chunks)), f"{name} of {columns}"
    return expected


@pytest.mark.sample(2)
def test_parts_of_structs(theirs: lance.LanceDataset) -> None:
    check(theirs, ["s.b"], ["s.l", "id", "s.a"], ["s.b", "s.a"])


@pytest.mark.sample(2)
def test_columns_added(theirs: lance.LanceDataset) -> None:
    theirs.add_columns({"twice": "id * 2", "upper_text": "upper(text)"})
    checked_table = check(theirs)
    assert checked_table["twice"].to_pylist() == [2 * i for i in checked_table["id"].to_pylist()]
    assert len(theirs.get_fragments()[0].data_files()) == 2


@pytest.mark.sample(3)
def test_columns_added_as_nulls(theirs: lance.LanceDataset) -> None:
    dtype = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    theirs.add_columns(pa.schema([pa.field("later", dtype), pa.field("number", pa.float32())]))
    checked_table = check(theirs)
    assert checked_table["number"].null_count == checked_table.num_rows
    if theirs.data_storage_version == "2.0":
        # This version cannot append null structs.
        return
    lance.write_dataset(
        checked_table.slice(0, 10).set_column(5, "number", pa.array(np.arange(10), pa.float32())),
        theirs.uri,
        mode="append",
    )
    checked_table = check(lance.dataset(theirs.uri))
    assert checked_table["number"].null_count == checked_table.num_rows - 10


@pytest.mark.sample(3)
def test_columns_dropped(theirs: lance.LanceDataset) -> None:
    theirs.add_columns({"twice": "id * 2"})
    theirs.drop_columns(["text"])
    check(theirs)
    theirs.drop_columns(["s.b"])
    assert check(theirs, ["s.l", "s.a"])["s"].type.num_fields == 2
    theirs.drop_columns(["twice"])
    check(theirs)
    with pytest.raises(lance_spark.errors.InvalidInputError, match="text"):
        lance_spark.open_dataset(theirs.uri).to_table(["text"])


@pytest.mark.sample(2)
def test_columns_renamed_and_cast(theirs: lance.LanceDataset) -> None:
    theirs.alter_columns({"path": "text", "name": "words"}, {"path": "id", "data_type": pa.int32()})
    assert check(theirs)["id"].type == pa.int32()


@pytest.mark.sample(2)
def test_columns_merged(theirs: lance.LanceDataset) -> None:
    ids = np.arange(0, ROWS, 2)
    theirs.merge(pa.table({"id": ids, "half": pa.array(ids / 2)}), "id")
    checked_table = check(theirs)
    assert checked_table["half"].null_count == sum(i % 2 for i in checked_table["id"].to_pylist())


@pytest.mark.sample(3)
def test_rows_updated(theirs: lance.LanceDataset) -> None:
    theirs.update({"text": "'new'"}, where="id % 10 = 1")
    check(theirs)
    updates = pa.table({"id": np.arange(5, 50, 5), "text": ["merged"] * 9})
    theirs.merge_insert("id").when_matched_update_all().execute(updates)
    checked_table = check(lance.dataset(theirs.uri))
    assert checked_table["text"].to_pylist().count("merged") == sum(
        i % 5 == 0 and 5 <= i < 50 for i in checked_table["id"].to_pylist()
    )


def test_children_added_as_nulls(newer: lance.LanceDataset) -> None:
    children = [pa.field("c", pa.int64()), pa.field("d", pa.list_(pa.int8()))]
    newer.add_columns(pa.schema([pa.field("s", pa.struct(children))]))
    checked_table = check(newer, ["s.c", "s.a"], ["s.d"])
    assert pa.compute.struct_field(checked_table["s"], "d").null_count == checked_table.num_rows
    newer.drop_columns(["s.a", "s.b"])
    check(newer, ["s.c", "s.l"])


def test_children_added_in_files_of_their_own(newer: lance.LanceDataset) -> None:
    @lance.batch_udf(output_schema=pa.schema([pa.field("s", pa.struct([("c", pa.int64())]))]))
    def added(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pa.StructArray.from_arrays([batch["id"]], ["c"])], ["s"])

    newer.add_columns(added, read_columns=["id"])
    assert [file.fields for file in newer.get_fragments()[0].data_files()][1:] == [[10]]
    checked_table = check(newer, ["s.c"], ["s.b", "s.c"], ["s.c", "s.l", "s.a"])
    assert pa.compute.struct_field(checked_table["s"], "c").equals(checked_table["id"])
    newer.drop_columns(["s.b"])
    check(newer, ["s.c", "s.a"])


@pytest.mark.sample(2)
def test_columns_replaced(theirs: lance.LanceDataset) -> None:
    """The old file has a mark in place of the column. A new file has its field."""
    fragment = theirs.get_fragments()[0]
    ids = pa.array(np.arange(0, 2_000, 3))
    words = pa.array([f"new {i}" for i in ids.to_pylist()])
    updated, fields = fragment.update_columns(pa.table({"id": ids, "text": words}), left_on="id")
    assert any(-2 in file.fields for file in updated.files)
    operation = lance.LanceOperation.Update(updated_fragments=[updated], fields_modified=fields)
    dataset = lance.LanceDataset.commit(theirs.uri, operation, read_version=theirs.version)
    checked_table = check(dataset)
    changed = [text for text in checked_table["text"].to_pylist() if text.startswith("new")]
    assert len(changed) == sum(
        1 for i in checked_table["id"].to_pylist() if i < 2_000 and i % 3 == 0
    )


def test_compacted(theirs: lance.LanceDataset) -> None:
    theirs.add_columns({"twice": "id * 2"})
    theirs.drop_columns(["text"])
    theirs.optimize.compact_files()
    check(lance.dataset(theirs.uri))

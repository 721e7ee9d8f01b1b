"""Packed structs below structs, lists and maps. Data files name such a struct, and not its fields."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from tests.support.interop.tables import assert_same

FIELDS = [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int64(), nullable=False)]
ROWS = pa.StructArray.from_arrays(
    [pa.array([1, 2, 3, 4], pa.int32()), pa.array([5, 6, 7, 8])], fields=FIELDS
)
NUMBERS = pa.array([9, None, 10, 11])
OFFSETS = pa.array([0, 1, 1, 2, 4], pa.int32())


def packed(name: str) -> pa.Field:
    return pa.field(name, ROWS.type, metadata={"lance-encoding:packed": "true"})


COLUMNS = {
    "struct": pa.StructArray.from_arrays([ROWS], fields=[packed("p")]),
    "struct with numbers": pa.StructArray.from_arrays(
        [ROWS, NUMBERS], fields=[packed("p"), pa.field("n", pa.int64())]
    ),
    "list": pa.ListArray.from_arrays(OFFSETS, ROWS, type=pa.list_(packed("item"))),
    "map": pa.MapArray.from_arrays(
        OFFSETS, pa.array(list("klmn")), ROWS, type=pa.map_(pa.string(), packed("value"))
    ),
}
CASES = [
    (name, version)
    for name in COLUMNS
    for version in ("2.0", "2.1", "2.2", "2.3")
    if name != "map" or version >= "2.2"
]


def table(name: str) -> pa.Table:
    return pa.table({"id": [0, 1, 2, 3], "c": COLUMNS[name]})


@pytest.mark.parametrize(("name", "version"), CASES)
@pytest.mark.parametrize("writer", [lance, lance_spark])
def test_packed_structs_are_read(writer: object, name: str, version: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    writer.write_dataset(table(name), path, data_storage_version=version)
    dataset = lance_spark.open_dataset(path)
    assert_same(dataset.to_table(), table(name))
    assert_same(dataset.take([2, 0]), table(name).take([2, 0]))
    assert dataset.count_rows("c IS NULL") == 0
    assert_same(lance.dataset(path).to_table(), table(name))


@pytest.mark.parametrize(("name", "version"), CASES)
def test_rows_with_packed_structs_are_kept(name: str, version: str, tmp_path: Path) -> None:
    """An update and a compaction write rows again that they read."""
    path = str(tmp_path / "t.lance")
    dataset = lance_spark.write_dataset(
        table(name), path, data_storage_version=version, max_rows_per_file=2
    )
    dataset.update({"id": 30}, "id = 3")
    lance_spark.open_dataset(path).optimize.compact_files()
    expected = table(name).set_column(0, "id", pa.array([0, 1, 2, 30]))
    for result in (lance_spark.open_dataset(path), lance.dataset(path)):
        assert_same(result.to_table().sort_by("id"), expected)


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
def test_the_field_beside_a_packed_struct_is_dropped(version: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    dataset = lance_spark.write_dataset(
        table("struct with numbers"), path, data_storage_version=version
    )
    dataset.drop_columns(["c.n"])
    for result in (lance_spark.open_dataset(path), lance.dataset(path)):
        assert_same(result.to_table(), table("struct"))


@pytest.mark.parametrize("version", ["2.0", "2.2", "2.3"])
@pytest.mark.parametrize("key", ["lance-encoding:packed", "packed"])
def test_lists_cannot_be_packed(key: str, version: str, tmp_path: Path) -> None:
    """pylance writes such columns so that no client reads their values."""
    column = pa.array([[1], [2, 3], None])
    schema = pa.schema([pa.field("c", column.type, metadata={key: "true"})])
    data = pa.table([column], schema=schema)
    path = str(tmp_path / "t.lance")
    with pytest.raises(InvalidInputError, match=f"'c' is not a struct, and only structs can have .* '{key}'"):
        lance_spark.write_dataset(data, path, data_storage_version=version)
    lance.write_dataset(data, path, data_storage_version=version)
    with pytest.raises((OSError, ValueError, AssertionError)):
        assert lance.dataset(path).to_table().to_pylist() == data.to_pylist()

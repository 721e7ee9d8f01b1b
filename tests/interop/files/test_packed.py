"""Packed structs below structs, lists and maps. Data files name such a struct, and not its fields."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
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
    with pytest.raises(
        InvalidInputError, match=f"'c' is not a struct, and only structs can have .* '{key}'"
    ):
        lance_spark.write_dataset(data, path, data_storage_version=version)
    lance.write_dataset(data, path, data_storage_version=version)
    with pytest.raises((OSError, ValueError, AssertionError)):
        assert lance.dataset(path).to_table().to_pylist() == data.to_pylist()


VECTORS: dict[str, pa.Array] = {
    "floats": pa.array([1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5], pa.float32()),
    "null items": pa.array([1, None, 3, 4, None, 6, 7, None], pa.int16()),
    "bools": pa.array([True, False] * 16),
    "matrices": pa.FixedSizeListArray.from_arrays(pa.array(range(16)), 2),
}


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("with_null", [False, True])
@pytest.mark.parametrize("items", VECTORS)
def test_fixed_size_lists_in_packed_structs(
    items: str, with_null: bool, version: str, tmp_path: Path
) -> None:
    array = VECTORS[items]
    vectors = pa.FixedSizeListArray.from_arrays(array, len(array) // 4)
    fields = [pa.field("n", pa.int32(), nullable=False), pa.field("v", vectors.type)]
    mask = pa.array([False, True, False, False]) if with_null else None
    column = pa.StructArray.from_arrays([ROWS.field("a"), vectors], fields=fields, mask=mask)
    field = pa.field("c", column.type, metadata={"lance-encoding:packed": "true"})
    data = pa.table([column], schema=pa.schema([field]))
    paths = [str(tmp_path / name) for name in ("theirs", "ours")]
    if version == "2.1":
        with pytest.raises(UnsupportedTypeError, match=r"'c'.* fixed-size lists need file version"):
            lance_spark.write_dataset(data, paths[1], data_storage_version=version)
        return
    for client, path in zip((lance, lance_spark), paths, strict=True):
        client.write_dataset(data, path, data_storage_version=version)
        lance_spark.write_dataset(data, path, mode="append")
        for dataset in (lance.dataset(path), lance_spark.open_dataset(path)):
            assert dataset.to_table().to_pylist() == data.to_pylist() * 2
            assert dataset.take([6, 1]).to_pylist() == data.take([2, 1]).to_pylist()

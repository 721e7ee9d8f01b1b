"""Extension types, both ways: files have stored types, with name and parameters as metadata of the
field, and a `Dataset` gives the extension types as pylance does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.arrow import bfloat16_array

import lance_spark

ROWS = 60
VERSIONS = ("2.0", "2.1", "2.2", "2.3")


class Unknown(pa.ExtensionType):
    """An extension type that neither Arrow nor Lance knows."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "acme.unknown")

    def __arrow_ext_serialize__(self) -> bytes:
        return b'{"p":1}'

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Unknown:
        return cls(storage)


def uuids() -> pa.Array:
    values = [bytes([i]) * 16 if i % 3 else None for i in range(ROWS)]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


def bools() -> pa.Array:
    values = pa.array([i % 2 if i % 3 else None for i in range(ROWS)], pa.int8())
    return pa.ExtensionArray.from_storage(pa.bool8(), values)


def tensors() -> pa.Array:
    dtype = pa.fixed_shape_tensor(pa.float32(), (2, 3), dim_names=["x", "y"], permutation=[1, 0])
    values = pa.array([[i / 2] * 6 for i in range(ROWS)], pa.list_(pa.float32(), 6))
    return pa.ExtensionArray.from_storage(dtype, values)


def opaque() -> pa.Array:
    dtype = pa.opaque(pa.string(), "name", "vendor")
    return pa.ExtensionArray.from_storage(dtype, pa.array([str(i) for i in range(ROWS)]))


def floats(count: int = ROWS) -> pa.Array:
    return bfloat16_array([float(i % 100) for i in range(count)])


def unknown() -> pa.Array:
    values = pa.array([i if i % 3 else None for i in range(ROWS)])
    return pa.ExtensionArray.from_storage(Unknown(pa.int64()), values)


def unknown_structs() -> pa.Array:
    storage = pa.StructArray.from_arrays([pa.array(range(ROWS)), opaque().storage], ["a", "b"])
    return pa.ExtensionArray.from_storage(Unknown(storage.type), storage)


TAGS = {"ARROW:extension:name": "acme.tag", "ARROW:extension:metadata": "of it", "own": "key"}
CASES: dict[str, Callable[[], pa.Array]] = {
    "uuid": uuids,
    "bool8": bools,
    "tensor": tensors,
    "opaque": opaque,
    "bfloat16": floats,
    "vector of bfloat16": lambda: pa.FixedSizeListArray.from_arrays(floats(ROWS * 2), 2),
    "unknown": unknown,
    "unknown structs": unknown_structs,
    "named by metadata": lambda: pa.array(range(ROWS)),
    "list": lambda: pa.ListArray.from_arrays(list(range(0, ROWS + 1, 3)), uuids()),
    "struct": lambda: pa.StructArray.from_arrays([uuids(), bools(), unknown()], ["u", "b", "k"]),
}


def table_of(name: str) -> pa.Table:
    array = CASES[name]()
    metadata = TAGS if name == "named by metadata" else None
    return pa.table([array], schema=pa.schema([pa.field("c", array.type, metadata=metadata)]))


def stored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table whose column of an extension type is one of a stored type with metadata."""
    column = table["c"]
    if not isinstance(column.type, pa.BaseExtensionType):
        return table
    storage = pa.chunked_array([chunk.storage for chunk in column.chunks], schema.field("c").type)
    return pa.table([storage], schema=schema)


@pytest.mark.sample(3)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_both_ways(tmp_path: Path, name: str, version: str) -> None:
    table = table_of(name)
    theirs = lance.write_dataset(table, str(tmp_path / "theirs"), data_storage_version=version)
    dataset = lance_spark.open_dataset(str(tmp_path / "theirs"))
    expected = theirs.to_table()
    read = dataset.to_table()
    for schema in (dataset.schema, dataset.schema_of(), read.schema):
        assert schema.equals(expected.schema, check_metadata=True)
    assert read.equals(expected)
    batches = list(dataset.to_batches(batch_size=7))
    assert pa.Table.from_batches(batches, expected.schema).equals(expected)
    rows = [5, 0, 19, 5]
    assert dataset.take(rows).equals(expected.take(rows))
    assert dataset.scanner(limit=9, offset=3).to_table().equals(expected.slice(3, 9))

    # The table that was read is written again, also with stored types, whose metadata names the
    # extension types.
    tables = (table, read, stored(read, dataset._stored_schema()))
    for number, written in enumerate(tables):
        path = str(tmp_path / f"ours{number}")
        lance_spark.write_dataset(written, path, data_storage_version=version)
        ours = lance.dataset(path)
        ours.validate()
        assert ours.schema.equals(theirs.schema, check_metadata=True)
        assert ours.to_table().equals(expected)


def test_a_stored_type_that_the_extension_type_does_not_have(tmp_path: Path) -> None:
    """pylance writes such a column, and cannot read it."""
    path = str(tmp_path / "t.lance")
    metadata = {"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""}
    wrong = pa.field("wrong", pa.int64(), metadata=metadata)
    child = pa.field("child", pa.struct([pa.field("a", pa.string(), metadata=metadata)]))
    columns = [pa.array(range(ROWS)), uuids(), pa.array([{"a": "x"}] * ROWS, child.type)]
    schema = pa.schema([wrong, pa.field("right", pa.uuid()), child])
    lance.write_dataset(pa.table(columns, schema=schema), path)
    with pytest.raises(pa.ArrowInvalid, match="storage type"):
        lance.dataset(path).to_table()
    dataset = lance_spark.open_dataset(path)
    assert dataset.schema.types == [pa.int64(), pa.uuid(), child.type]
    for rows in (
        dataset.to_table(),
        pa.Table.from_batches(dataset.to_batches(batch_size=7)),
        dataset.take(range(ROWS)),
        dataset.to_table(filter="wrong >= 0"),
    ):
        assert rows.schema.types == dataset.schema.types
        assert rows.schema.field("wrong").metadata[b"ARROW:extension:name"] == b"arrow.uuid"
        assert [column.to_pylist() for column in rows.columns] == [
            column.to_pylist() for column in columns
        ]

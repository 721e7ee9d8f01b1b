"""Rare types and nests, both ways: dictionaries of all indices and values, vectors with nulls at
every depth, structs in vectors, maps in maps, extension types, nulls, structs without children,
tables without rows.

`assert_same` wants equal types too; extension types are compared by what they are stored as.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.arrow import bfloat16_array

import lance_spark
from tests.support.interop.tables import build

ROWS = 1_200
BOTH = ("2.1", "2.2", "2.3")
NEW = ("2.2", "2.3")


def numbers(count: int = ROWS) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 1 << 40, count)


def some(count: int, share: float = 0.2) -> np.ndarray:
    return np.random.default_rng(count).random(count) < share


def made(dtype: pa.DataType, count: int = ROWS, nulls: float = 0.2) -> pa.Array:
    return build(dtype, numbers(count), nulls, np.random.default_rng(2))


def dictionary(index: pa.DataType, values: pa.DataType) -> pa.Array:
    items = pa.array([True, False]) if pa.types.is_boolean(values) else made(values, 90, 0.0)
    positions = np.random.default_rng(3).integers(0, len(items), ROWS)
    indices = pa.array(positions, index, mask=some(ROWS))
    return pa.DictionaryArray.from_arrays(indices, items)


def words() -> pa.Array:
    return dictionary(pa.int16(), pa.string())


def triples(items: pa.Array, nulls: bool = False) -> pa.Array:
    count = len(items) // 3
    offsets = pa.array(np.arange(count + 1) * 3, pa.int32())
    mask = pa.array(some(count)) if nulls else None
    return pa.ListArray.from_arrays(offsets, items, mask=mask)


def vectors(items: pa.Array, size: int, nulls: bool = True) -> pa.Array:
    mask = pa.array(some(len(items) // size)) if nulls else None
    return pa.FixedSizeListArray.from_arrays(items, size, mask=mask)


def decimals(dtype: pa.DataType, nulls: bool = True) -> pa.Array:
    return pa.array(
        [
            None if nulls and i % 5 == 0 else Decimal(i * 7919 % 997 - 400).scaleb(-dtype.scale)
            for i in range(ROWS)
        ],
        dtype,
    )


def half_floats(count: int) -> pa.Array:
    return bfloat16_array([float(value % 256) for value in range(count)])


def structs() -> pa.Array:
    fields = [pa.array(numbers(), mask=some(ROWS)), made(pa.string())]
    return pa.StructArray.from_arrays(fields, ["a", "b"], mask=pa.array(some(ROWS, 0.3)))


def empties(count: int = ROWS) -> pa.Array:
    return pa.array([{}] * count, pa.struct([]))


def deep_vectors(dtype: pa.DataType, sizes: tuple[int, ...]) -> pa.Array:
    array = build(dtype, numbers(), 0.3, np.random.default_rng(5))
    for size in sizes:
        array = vectors(array, size)
    return array


def list_of(dtype: pa.DataType) -> pa.DataType:
    return pa.list_(dtype)


MAP = pa.map_(pa.string(), pa.int32())
CASES: dict[str, tuple[tuple[str, ...], Callable[[], pa.Array]]] = {
    **{
        f"dictionary of strings by {index}": (BOTH, lambda i=index: dictionary(i, pa.string()))
        for index in (
            pa.int8(),
            pa.int16(),
            pa.int32(),
            pa.int64(),
            pa.uint8(),
            pa.uint16(),
            pa.uint32(),
            pa.uint64(),
        )
    },
    **{
        f"dictionary of {values}": (BOTH, lambda v=values: dictionary(pa.int16(), v))
        for values in (
            pa.large_string(),
            pa.binary(),
            pa.large_binary(),
            pa.bool_(),
            pa.int8(),
            pa.uint16(),
            pa.int32(),
            pa.int64(),
            pa.uint64(),
            pa.float16(),
            pa.float32(),
            pa.float64(),
        )
    },
    "dictionary of one item": (
        BOTH,
        lambda: pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(ROWS), pa.int8(), mask=some(ROWS)), pa.array(["only"])
        ),
    ),
    "list of dictionaries": (BOTH, lambda: triples(words(), nulls=True)),
    "struct of dictionaries": (
        BOTH,
        lambda: pa.StructArray.from_arrays([words(), pa.array(numbers())], ["d", "x"]),
    ),
    "list of structs of dictionaries": (
        BOTH,
        lambda: triples(pa.StructArray.from_arrays([words()], ["d"], mask=pa.array(some(ROWS)))),
    ),
    "map to dictionaries": (
        NEW,
        lambda: pa.MapArray.from_arrays(
            pa.array(np.arange(0, ROWS + 1, 3), pa.int32()), made(pa.string(), nulls=0.0), words()
        ),
    ),
    **{
        str(dtype): (BOTH, lambda k=dtype: decimals(k))
        for dtype in (
            pa.decimal128(10, -3),
            pa.decimal128(38, 0),
            pa.decimal128(5, 5),
            pa.decimal256(60, 4),
            pa.decimal256(76, 0),
            pa.decimal256(50, -2),
        )
    },
    "equal decimals of negative scale": (
        BOTH,
        lambda: pa.array([Decimal(5000), None] * 300, pa.decimal128(9, -3)),
    ),
    "decimals of negative scale in vectors": (
        BOTH,
        lambda: vectors(decimals(pa.decimal128(10, -3)), 4),
    ),
    **{
        str(dtype): (BOTH, lambda k=dtype: made(k))
        for dtype in (
            pa.date64(),
            pa.time32("s"),
            pa.time32("ms"),
            pa.time64("us"),
            pa.time64("ns"),
            *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
            *(
                pa.timestamp(unit, zone)
                for unit in ("s", "ms", "us", "ns")
                for zone in (None, "UTC", "+02:00", "Asia/Tokyo")
            ),
        )
    },
    "float16 vectors": (BOTH, lambda: made(pa.list_(pa.float16(), 4), 300)),
    "wide float16 vectors": (BOTH, lambda: made(pa.list_(pa.float16(), 200), 40)),
    "bfloat16": (BOTH, lambda: half_floats(ROWS)),
    "bfloat16 vectors": (BOTH, lambda: vectors(half_floats(ROWS), 4)),
    "wide bfloat16 vectors": (BOTH, lambda: vectors(half_floats(ROWS), 200)),
    "nulls": (BOTH, lambda: pa.nulls(ROWS)),
    "lists of nulls": (BOTH, lambda: triples(pa.nulls(ROWS), nulls=True)),
    "structs of nulls": (
        BOTH,
        lambda: pa.StructArray.from_arrays([pa.nulls(ROWS), pa.array(numbers())], ["n", "x"]),
    ),
    "vectors of nulls": (BOTH, lambda: vectors(pa.nulls(ROWS), 3)),
    "wide vectors of nulls": (BOTH, lambda: vectors(pa.nulls(ROWS), 300)),
    "vectors of vectors of nulls": (BOTH, lambda: vectors(vectors(pa.nulls(ROWS), 3, False), 2)),
    "lists of vectors of nulls": (BOTH, lambda: triples(vectors(pa.nulls(ROWS), 2))),
    "structs without children": (BOTH, empties),
    "structs around them": (
        BOTH,
        lambda: pa.StructArray.from_arrays([pa.array(numbers()), empties()], ["x", "e"]),
    ),
    "structs around them that are null": (
        NEW,
        lambda: pa.StructArray.from_arrays([pa.StructArray.from_arrays([empties()], ["e"])], ["s"]),
    ),
    "lists of lists of lists": (BOTH, lambda: made(list_of(list_of(list_of(pa.int16()))))),
    "strings in lists of lists of lists": (
        BOTH,
        lambda: made(list_of(list_of(list_of(pa.string())))),
    ),
    "lists of lists of lists of lists": (
        BOTH,
        lambda: made(list_of(list_of(list_of(list_of(pa.int8())))), 400),
    ),
    "large lists": (BOTH, lambda: made(pa.large_list(pa.large_list(pa.large_string())))),
    "lists deep in structs": (
        BOTH,
        lambda: made(
            pa.struct([("a", pa.struct([("b", list_of(pa.struct([("c", list_of(pa.int8()))])))]))])
        ),
    ),
    "maps": (NEW, lambda: made(MAP)),
    "maps of maps": (NEW, lambda: made(pa.map_(pa.int64(), MAP))),
    "maps of structs": (
        NEW,
        lambda: made(pa.map_(pa.int64(), pa.struct([("a", pa.int8()), ("b", list_of(MAP))]))),
    ),
    "lists of maps": (NEW, lambda: made(list_of(pa.map_(pa.int8(), pa.float32())))),
    "structs of maps": (NEW, lambda: made(pa.struct([("m", pa.map_(pa.string(), list_of(MAP)))]))),
    "maps of vectors": (NEW, lambda: made(pa.map_(pa.string(), pa.list_(pa.float32(), 3)))),
    "vectors of null items": (BOTH, lambda: deep_vectors(pa.int32(), (4,))),
    "wide vectors of null items": (BOTH, lambda: deep_vectors(pa.int64(), (100,))),
    "vectors of vectors": (BOTH, lambda: deep_vectors(pa.int16(), (2, 3))),
    "vectors of vectors of vectors": (BOTH, lambda: deep_vectors(pa.int8(), (2, 3, 5))),
    "wide vectors of vectors of vectors": (BOTH, lambda: deep_vectors(pa.float64(), (5, 4, 3))),
    "vectors of bools": (BOTH, lambda: deep_vectors(pa.bool_(), (5, 3))),
    "vectors of 8 bools": (BOTH, lambda: deep_vectors(pa.bool_(), (8,))),
    "vectors of decimals": (BOTH, lambda: deep_vectors(pa.decimal128(20, 2), (3,))),
    "vectors of byte strings": (BOTH, lambda: deep_vectors(pa.binary(3), (4,))),
    "lists of vectors": (BOTH, lambda: triples(deep_vectors(pa.int32(), (2, 2)), nulls=True)),
    "structs of vectors": (
        BOTH,
        lambda: pa.StructArray.from_arrays([deep_vectors(pa.int32(), (2, 2))], ["v"]),
    ),
    "vectors of structs": (NEW, lambda: vectors(structs(), 3)),
    "vectors of structs of vectors": (
        NEW,
        lambda: made(pa.list_(pa.struct([("a", pa.list_(pa.float32(), 4))]), 2)),
    ),
    "structs of vectors of structs": (
        NEW,
        lambda: pa.StructArray.from_arrays([vectors(structs(), 3)], ["v"]),
    ),
    "vectors of structs of structs": (
        NEW,
        lambda: vectors(
            pa.StructArray.from_arrays([structs()], ["s"], mask=pa.array(some(ROWS))), 4
        ),
    ),
    "uuids": (BOTH, lambda: pa.ExtensionArray.from_storage(pa.uuid(), made(pa.binary(16)))),
    "tensors": (
        BOTH,
        lambda: pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float32(), (2, 3)), made(pa.list_(pa.float32(), 6), 300)
        ),
    ),
    "bool8": (BOTH, lambda: pa.ExtensionArray.from_storage(pa.bool8(), made(pa.int8()))),
    "opaque": (
        BOTH,
        lambda: pa.ExtensionArray.from_storage(
            pa.opaque(pa.list_(pa.int32()), "name", "vendor"), made(pa.list_(pa.int32()))
        ),
    ),
}
PAIRS = [(name, version) for name, (versions, _) in CASES.items() for version in versions]


def stored(dtype: pa.DataType) -> pa.DataType:
    """Return a type in which storage types replace extension types."""
    if isinstance(dtype, pa.BaseExtensionType):
        return stored(dtype.storage_type)
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(stored(dtype.value_type), dtype.list_size)
    return dtype


def column_of(table: pa.Table) -> pa.Array:
    array = table.column(0).combine_chunks()
    return array if stored(array.type) == array.type else array.cast(stored(array.type))


def check(path: str, expected: pa.Array) -> None:
    dataset = lance_spark.open_dataset(path)
    count = len(expected)
    assert same(column_of(dataset.to_table()), expected)
    rows = np.unique(np.random.default_rng(count).integers(0, count, 12))
    assert same(column_of(dataset.take(rows)), expected.take(pa.array(rows)))
    batches = pa.Table.from_batches(dataset.to_batches(batch_size=97))
    assert same(column_of(batches), expected)


def same(array: pa.Array, expected: pa.Array) -> bool:
    assert array.type == expected.type
    if pa.types.is_dictionary(array.type) or "dictionary" in str(array.type):
        return bool(array.to_pylist() == expected.to_pylist())
    return bool(array.equals(expected))


@pytest.mark.sample(8)
@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_pylance_wrote(tmp_path: Path, name: str, version: str) -> None:
    array = CASES[name][1]()
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"c": array}), path, data_storage_version=version)
    theirs = column_of(lance.dataset(path).to_table())
    expected = column_of(pa.table({"c": array}))
    assert same(theirs, expected)
    check(path, expected)


@pytest.mark.sample(8)
@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_pylance_reads_every_written_type(tmp_path: Path, name: str, version: str) -> None:
    array = CASES[name][1]()
    path = str(tmp_path / "t.lance")
    lance_spark.write_dataset(pa.table({"c": array}), path, data_storage_version=version)
    expected = column_of(pa.table({"c": array}))
    theirs = lance.dataset(path)
    theirs.validate()
    assert same(column_of(theirs.to_table()), expected)
    rows = [0, len(array) // 2, len(array) - 1]
    assert same(column_of(theirs.take(rows)), expected.take(pa.array(rows)))
    check(path, expected)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("writer", ["pylance", "we"])
def test_no_rows(tmp_path: Path, writer: str, version: str) -> None:
    """Tables without rows are read with every type."""
    arrays = {
        name: case()
        for name, (versions, case) in CASES.items()
        if version in versions and not isinstance(case().type, pa.BaseExtensionType)
    }
    # Structs without fields can only be the last columns of a file; see test_empty_structs.
    arrays |= {name: arrays.pop(name) for name in [*arrays] if name.startswith("structs around")}
    arrays |= {name: arrays.pop(name) for name in ["structs without children"]}
    table = pa.table({name.replace(".", " "): array.slice(0, 0) for name, array in arrays.items()})
    path = str(tmp_path / "t.lance")
    if writer == "we":
        lance_spark.write_dataset(table, path, data_storage_version=version)
    else:
        lance.write_dataset(table, path, data_storage_version=version)
    for table_read in (lance.dataset(path).to_table(), lance_spark.open_dataset(path).to_table()):
        assert table_read.num_rows == 0
        assert [stored(dtype) for dtype in table_read.schema.types] == [
            stored(dtype) for dtype in table.schema.types
        ]


@pytest.mark.parametrize("writer", ["pylance", "we"])
def test_beside_vectors_of_structs(tmp_path: Path, writer: str) -> None:
    """pylance writes a column beside such vectors in a struct, but counts its rows wrong when it
    reads them.
    """
    fields = [vectors(structs(), 3), pa.array(range(400))]
    array = pa.StructArray.from_arrays(fields, ["v", "x"])
    path = str(tmp_path / "t.lance")
    if writer == "we":
        lance_spark.write_dataset(pa.table({"c": array}), path, data_storage_version="2.2")
    else:
        lance.write_dataset(pa.table({"c": array}), path, data_storage_version="2.2")
    check(path, array)


@pytest.mark.parametrize("version", BOTH)
def test_struct_without_children_first(tmp_path: Path, version: str) -> None:
    """pylance reads values beside such a struct as null if the struct is the first column. The file
    has the values.
    """
    array = pa.StructArray.from_arrays([empties(), pa.array(numbers())], ["e", "x"])
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"c": array}), path, data_storage_version=version)
    check(path, array)

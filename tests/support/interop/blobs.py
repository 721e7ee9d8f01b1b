"""Tables with blobs of every shape and at every place, and comparisons of what both clients
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.blob import blob_array, blob_field

import lance_spark

MARK = {"lance-encoding:blob": "true"}
HANDLINGS = (None, "all_binary", "blobs_descriptions", "all_descriptions")
#: Limits that are so small that a table of some hundred kilobytes has blobs of every kind, and
#: several packed files.
LIMITS = {
    "inline_size_threshold": 100,
    "dedicated_size_threshold": 5_000,
    "pack_file_size_threshold": 12_000,
}
Values = list[bytes | None]


def random_values(count: int, seed: int = 0, largest: int = 6_500) -> Values:
    """Return values of every kind by `LIMITS`, a tenth of them null and a tenth empty."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(0, np.log(largest), count)).astype(int)
    values: Values = [rng.bytes(int(size)) for size in sizes]
    for index in np.flatnonzero(rng.random(count) < 0.1):
        values[index] = None
    for index in np.flatnonzero(rng.random(count) < 0.1):
        values[index] = b""
    return values


def marked(
    values: Values, dtype: pa.DataType | None = None, name: str = "b"
) -> tuple[pa.Array, pa.Field]:
    """Return a column of blobs that metadata marks."""
    dtype = dtype or pa.large_binary()
    return pa.array(values, dtype), pa.field(name, dtype, metadata=MARK)


def extended(values: Any, name: str = "b", **limits: int) -> tuple[pa.Array, pa.Field]:
    """Return a column of the extension type of blobs."""
    return blob_array(values), blob_field(name, **(limits or LIMITS))


def table(*columns: tuple[pa.Array, pa.Field], ids: bool = True) -> pa.Table:
    """Return a table of columns, with a first column that counts the rows."""
    rows = len(columns[0][0])
    counted = [(pa.array(range(rows), pa.int64()), pa.field("i", pa.int64()))] if ids else []
    arrays, fields = zip(*counted, *columns, strict=True)
    return pa.table(list(arrays), schema=pa.schema(fields))


def in_struct(values: Values, nulls: bool) -> tuple[pa.Array, pa.Field]:
    array, field = marked(values)
    mask = pa.array([nulls and index % 7 == 3 for index in range(len(values))])
    number = pa.array(range(len(values)), pa.int32())
    fields = [pa.field("x", pa.int32()), field, pa.field("plain", pa.large_binary())]
    struct = pa.StructArray.from_arrays([number, array, array], fields=fields, mask=mask)
    return struct, pa.field("s", struct.type)


def in_deep_struct(values: Values, nulls: bool) -> tuple[pa.Array, pa.Field]:
    array, field = in_struct(values, nulls)
    mask = pa.array([nulls and index % 5 == 1 for index in range(len(values))])
    outer = pa.StructArray.from_arrays([array], fields=[field], mask=mask)
    return outer, pa.field("o", outer.type)


def in_list(values: Values, large: bool = False) -> tuple[pa.Array, pa.Field]:
    _, field = marked(values)
    make = pa.large_list if large else pa.list_
    lists = [
        values[index : index + index % 4] if index % 5 else None for index in range(len(values))
    ]
    array = pa.array(lists, make(field.with_name("item")))
    return array, pa.field("l", array.type)


def in_list_of_structs(values: Values) -> tuple[pa.Array, pa.Field]:
    _, field = marked(values)
    struct = pa.struct([pa.field("x", pa.int32()), field])
    items = [{"x": index, "b": value} for index, value in enumerate(values)]
    lists = [
        items[index : index + index % 3] if index % 5 else None for index in range(len(values))
    ]
    array = pa.array(lists, pa.list_(pa.field("item", struct)))
    return array, pa.field("l", array.type)


def in_list_of_lists(values: Values) -> tuple[pa.Array, pa.Field]:
    inner, field = in_list(values)
    lists = [
        inner[index : index + index % 3].to_pylist() if index % 5 else None
        for index in range(len(inner))
    ]
    array = pa.array(lists, pa.list_(pa.field("item", field.type)))
    return array, pa.field("l", array.type)


def in_struct_of_list(values: Values) -> tuple[pa.Array, pa.Field]:
    inner, field = in_list(values)
    mask = pa.array([index % 7 == 3 for index in range(len(inner))])
    array = pa.StructArray.from_arrays([inner], fields=[field.with_name("x")], mask=mask)
    return array, pa.field("l", array.type)


def as_extended(data: pa.Table) -> pa.Table:
    """Return the same table, with the extension type of blobs in place of marked columns, also
    below lists and structs.
    """
    columns = [_extended(column.combine_chunks(), field) for column, field in _columns(data)]
    return pa.table([array for array, _ in columns], schema=pa.schema([f for _, f in columns]))


def without_marks(data: pa.Table) -> pa.Table:
    """Return the same table without the mark of blobs, also below lists and structs."""
    fields = [pa.field(field.name, _unmarked(field.type)) for field in data.schema]
    arrays = [pa.array(column.to_pylist(), f.type) for column, f in zip(data, fields, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


def _columns(data: pa.Table) -> list[tuple[pa.ChunkedArray, pa.Field]]:
    return list(zip(data.columns, data.schema, strict=True))


def _unmarked(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(child.name, _unmarked(child.type)) for child in dtype])
    if pa.types.is_large_list(dtype):
        return pa.large_list(pa.field(dtype.value_field.name, _unmarked(dtype.value_type)))
    if pa.types.is_list(dtype):
        return pa.list_(pa.field(dtype.value_field.name, _unmarked(dtype.value_type)))
    return dtype


def _extended(array: pa.Array, field: pa.Field) -> tuple[pa.Array, pa.Field]:
    dtype = field.type
    if field.metadata and b"lance-encoding:blob" in field.metadata:
        return blob_array(array.to_pylist()), blob_field(field.name)
    mask = array.is_null()
    if pa.types.is_struct(dtype):
        children = [
            _extended(array.field(index), dtype.field(index)) for index in range(dtype.num_fields)
        ]
        arrays, fields = zip(*children, strict=True)
        struct = pa.StructArray.from_arrays(list(arrays), fields=list(fields), mask=mask)
        return struct, pa.field(field.name, struct.type)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        items, item = _extended(array.values, dtype.value_field)
        large = pa.types.is_large_list(dtype)
        make = (pa.large_list if large else pa.list_)(item)
        offsets = array.offsets
        lists = (pa.LargeListArray if large else pa.ListArray).from_arrays(
            offsets, items, type=make, mask=mask
        )
        return lists, pa.field(field.name, make)
    return array, field


Case = Callable[[str], pa.Table | None]


def _lists(version: str, make: Callable[..., Any], *arguments: Any) -> pa.Table | None:
    # Files of version 2.1 do not say where a list of blobs ends.
    return None if version == "2.1" else table(make(random_values(60), *arguments))


def _second(version: str, make: Callable[[], Any]) -> Any:
    return None if version in ("2.0", "2.1") else make()


#: Return the columns of a table, by name; None for a version that cannot store it.
CASES: dict[str, Case] = {
    "marked": lambda _: table(marked(random_values(120))),
    "only": lambda _: table(marked(random_values(40)), ids=False),
    "two": lambda _: table(
        marked(random_values(50)),
        (pa.array(random_values(50, 3)), pa.field("plain", pa.binary())),
        marked(random_values(50, 1), name="c"),
    ),
    "all_null": lambda _: table(marked([None] * 30)),
    "all_empty": lambda _: table(marked([b""] * 30)),
    "nulls_and_empty": lambda _: table(marked([None, b"", None, b"", b""] * 4)),
    "not_null": lambda _: table(
        (pa.array([b"a", b"", b"bcd"] * 5, pa.large_binary()), marked([])[1].with_nullable(False))
    ),
    "no_rows": lambda _: table(marked([])),
    "sliced": lambda _: table(marked(random_values(80))).slice(7, 50),
    "many": lambda _: table(marked(random_values(3_000, 5, 60))),
    "struct": lambda v: table(in_struct(random_values(60), v != "2.0")),
    "deep_struct": lambda v: table(in_deep_struct(random_values(60), v != "2.0")),
    "list": lambda v: _lists(v, in_list),
    "large_list": lambda v: _lists(v, in_list, True),
    "list_of_structs": lambda v: _lists(v, in_list_of_structs),
    "extended": lambda v: _second(v, lambda: table(extended(random_values(200, 2)))),
    "two_extended": lambda v: _second(
        v,
        lambda: table(
            extended(random_values(100, 3)),
            extended(random_values(100, 4), "c", **{**LIMITS, "pack_file_size_threshold": 3_000}),
        ),
    ),
    "minimal": lambda v: _second(v, lambda: table(minimal(random_values(60)))),
    "sliced_extended": lambda v: _second(
        v, lambda: table(extended(random_values(80))).slice(11, 60)
    ),
    "nothing_inline": lambda v: _second(
        v, lambda: table(extended([b"a", b"", None, b"bc"] * 5, inline_size_threshold=0))
    ),
}


def minimal(values: Values) -> tuple[pa.Array, pa.Field]:
    """Return a column of the extension type with two children instead of four."""
    parts = [pa.field("data", pa.large_binary()), pa.field("uri", pa.string())]
    storage = pa.StructArray.from_arrays(
        [pa.array(values, pa.large_binary()), pa.nulls(len(values), pa.string())],
        fields=parts,
        mask=pa.array([value is None for value in values], pa.bool_()),
    )
    blob_type = blob_field("b").type._from_storage_type(storage.type)
    return pa.ExtensionArray.from_storage(blob_type, storage), pa.field("b", blob_type)


def blob_paths(schema: pa.Schema) -> list[str]:
    """Return the dotted paths of the blobs that are not in a list."""
    return [path for field in schema for path in _paths(field, field.name)]


def _paths(field: pa.Field, path: str) -> Iterator[str]:
    named = (field.metadata or {}).get(b"ARROW:extension:name")
    is_extension = isinstance(field.type, pa.BaseExtensionType) or named == b"lance.blob.v2"
    if is_extension or (field.metadata or {}).get(b"lance-encoding:blob") == b"true":
        yield path
    elif pa.types.is_struct(field.type):
        for child in field.type:
            yield from _paths(child, f"{path}.{child.name}")


def same(first: pa.Table, second: pa.Table) -> bool:
    """Return whether tables have the same names, types and values. Blobs are too long for a
    message.
    """
    types = [field.type for field in first.schema] == [field.type for field in second.schema]
    return (
        first.schema.names == second.schema.names
        and types
        and first.to_pylist() == second.to_pylist()
    )


def check_reads(path: Path, seed: int = 0) -> None:
    """Compare what both clients read of a table: all rows, small batches, some rows, some columns,
    files.
    """
    theirs, ours = lance.dataset(str(path)), lance_spark.open_dataset(str(path))
    rows = theirs.count_rows()
    assert ours.count_rows() == rows
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, rows, 40) if rows else np.zeros(0, np.int64)
    for handling in HANDLINGS:
        chosen = {} if handling is None else {"blob_handling": handling}
        expected = theirs.to_table(**chosen)
        expected.validate(full=True)
        table_read = ours.to_table(blob_handling=handling)
        table_read.validate(full=True)
        assert same(table_read, expected), handling
        if handling in HANDLINGS[2:]:
            # These are other names of the first handlings.
            continue
        rows_taken = ours.take(positions, blob_handling=handling)
        rows_taken.validate(full=True)
        assert same(rows_taken, expected.take(pa.array(positions))), handling
        batches = list(ours.to_batches(batch_size=7, blob_handling=handling))
        assert all(0 < batch.num_rows <= 7 for batch in batches)
        assert same(pa.Table.from_batches(batches, table_read.schema), expected), handling
        columns = expected.schema.names[::-1]
        assert same(ours.to_table(columns, blob_handling=handling), expected.select(columns)), (
            handling
        )
    paths = blob_paths(theirs.schema)
    without = ours.to_table(blob_handling="none")
    assert not set(paths) & set(without.schema.names)
    assert without.num_rows == rows
    for column in paths:
        check_files(path, column, positions.tolist())


def check_files(path: Path, column: str, indices: list[int]) -> None:
    """Compare the blobs of a column as files of both clients."""
    theirs, ours = lance.dataset(str(path)), lance_spark.open_dataset(str(path))
    if not indices:
        assert ours.take_blobs(column, indices=[]) == []
        return
    expected = theirs.take_blobs(column, indices=indices)
    _same_files(ours.take_blobs(column, indices=indices), expected)
    locations = theirs.scanner(columns=[], with_row_address=True, with_row_id=True).to_table()
    addresses = locations["_rowaddr"].take(pa.array(indices)).to_pylist()
    _same_files(ours.take_blobs(column, addresses=addresses), expected)
    if not theirs.has_stable_row_ids:
        ids = locations["_rowid"].take(pa.array(indices)).to_pylist()
        _same_files(ours.take_blobs(column, ids=ids), expected)


def _same_files(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for our_file, their_file in zip(ours, theirs, strict=True):
        assert (our_file is None) == (their_file is None)
        if our_file is not None:
            their_file.seek(0)
            assert our_file.size() == their_file.size()
            assert our_file.read() == their_file.read()
            our_file.close()

"""Conversion of batches to a table's schema: order, names, storage types change, values do not."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.schema.schema import Schema
from lance_spark.table.align import align, filled_by

INNER = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.utf8())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("s", INNER),
        pa.field("l", pa.list_(pa.field("item", INNER))),
        pa.field("ll", pa.large_list(pa.field("item", pa.int8()))),
        pa.field("f", pa.list_(pa.field("item", INNER), 2)),
        pa.field("m", pa.map_(pa.utf8(), INNER)),
    ]
)
ROWS = [
    {
        "id": i,
        "s": None if i % 3 == 0 else {"a": i, "b": None if i % 2 else str(i)},
        "l": None if i % 4 == 0 else [{"a": j, "b": str(j)} for j in range(i % 5)],
        "ll": None if i % 5 == 0 else list(range(i % 3)),
        "f": None if i % 6 == 0 else [{"a": i, "b": "x"}, None],
        "m": None if i % 7 == 0 else [(str(j), {"a": j, "b": None}) for j in range(i % 4)],
    }
    for i in range(50)
]


def shuffled() -> pa.RecordBatch:
    """Return the rows in a schema with another order, other names of children and nullability."""
    inner = pa.struct([pa.field("b", pa.utf8()), pa.field("a", pa.int32())])
    schema = pa.schema(
        [
            pa.field("m", pa.map_(pa.utf8(), inner)),
            pa.field("f", pa.list_(pa.field("element", inner), 2)),
            pa.field("ll", pa.large_list(pa.field("element", pa.int8(), nullable=False))),
            pa.field("l", pa.list_(pa.field("element", inner))),
            pa.field("s", inner),
            pa.field("id", pa.int64(), nullable=False),
        ]
    )
    return pa.RecordBatch.from_pylist(ROWS, schema)


@pytest.mark.parametrize(("start", "length"), [(0, 50), (7, 20), (49, 1), (13, 0)])
def test_columns_and_children_are_reordered(start: int, length: int) -> None:
    aligned = align(shuffled().slice(start, length), SCHEMA)
    aligned.validate(full=True)
    assert aligned.schema.equals(SCHEMA, check_metadata=True)
    expected = pa.RecordBatch.from_pylist(ROWS, SCHEMA).slice(start, length)
    assert aligned.to_pylist() == expected.to_pylist()
    assert aligned.equals(expected)


def test_equal_schema_copies_nothing() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    before = pa.total_allocated_bytes()
    aligned = align(batch, SCHEMA)
    assert pa.total_allocated_bytes() == before
    assert aligned.equals(batch)


def test_extension_types_become_storage_types() -> None:
    schema = pa.schema([pa.field("u", pa.binary(16)), pa.field("v", pa.utf8())])
    storage = pa.array([bytes(16), None], pa.binary(16))
    uuid = pa.ExtensionArray.from_storage(pa.uuid(), storage)
    batch = pa.record_batch({"u": uuid, "v": pa.array(["x", None], pa.string_view())})
    aligned = align(batch, schema)
    assert aligned.schema == schema
    assert aligned.column(0).equals(storage)
    assert aligned.column(1).to_pylist() == ["x", None]


def aligned_batch(
    dtype: pa.DataType, values: list[object], wanted: pa.DataType, *, nullable: bool = True
) -> pa.RecordBatch:
    schema = pa.schema([pa.field("c", wanted, nullable)])
    return align(pa.record_batch({"c": pa.array(values, dtype)}), schema)


def test_sizes_of_offsets() -> None:
    """polars has large strings and lists only, and pandas small ones."""
    values = [["a"], None, [], ["b", None, "c"]]
    texts, large = pa.list_(pa.utf8()), pa.large_list(pa.large_utf8())
    views = pa.large_list(pa.string_view())
    for source, wanted in ((texts, large), (large, texts), (views, texts)):
        whole = aligned_batch(source, values, wanted).column(0)
        whole.validate(full=True)
        assert whole.equals(pa.array(values, wanted))
        part = pa.record_batch({"c": pa.array(values, source)}).slice(1, 2)
        assert align(part, pa.schema([("c", wanted)]))["c"].to_pylist() == values[1:3]
        nested = [[None, values], None]
        below = aligned_batch(pa.list_(pa.large_list(source)), nested, pa.list_(pa.list_(wanted)))
        below.validate(full=True)
        assert below["c"].to_pylist() == nested
        schemas = (Schema.from_arrow(pa.schema([("c", dtype)])) for dtype in (wanted, source))
        table, data = schemas
        assert filled_by(table, data, "t") == table
    binary = aligned_batch(pa.binary_view(), [b"a", None], pa.large_binary())
    assert binary["c"].to_pylist() == [b"a", None]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (pa.int32(), pa.int64()),
        (pa.dictionary(pa.int32(), pa.utf8()), pa.utf8()),
        (pa.dictionary(pa.int32(), pa.utf8()), pa.dictionary(pa.int8(), pa.utf8())),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int8(), 3)),
        (pa.list_(pa.int8()), pa.list_(pa.int16())),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int8()), ("b", pa.int8())])),
        (pa.struct([("a", pa.int8())]), pa.struct([])),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
    ],
)
def test_other_types_are_refused(source: pa.DataType, wanted: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="column 'c"):
        aligned_batch(source, [None], wanted)


def test_missing_unknown_and_repeated_columns_are_refused() -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    a = pa.array([1], pa.int8())
    with pytest.raises(SchemaMismatchError, match="does not have the column 'b'"):
        align(pa.record_batch({"a": a}), schema)
    with pytest.raises(SchemaMismatchError, match="has the unknown column 'x'"):
        align(pa.record_batch({"a": a, "b": a, "x": a}), schema)
    with pytest.raises(SchemaMismatchError, match="has two columns of the same name"):
        align(pa.RecordBatch.from_arrays([a, a, a], names=["a", "b", "a"]), schema)


def required(dtype: pa.DataType) -> pa.Field:
    return pa.field("x", dtype, nullable=False)


def test_nulls_in_required_fields_are_refused() -> None:
    struct = pa.struct([required(pa.int8())])
    loose = pa.struct([pa.field("x", pa.int8())])
    with pytest.raises(InvalidInputError, match="'c' must not be null, but 1 of 2 values are"):
        aligned_batch(pa.int8(), [1, None], pa.int8(), nullable=False)
    with pytest.raises(InvalidInputError, match=r"'c\.x' must not be null, but 1 of 1"):
        aligned_batch(loose, [{"x": None}, None], struct)
    with pytest.raises(InvalidInputError, match=r"'c\.x' must not be null"):
        aligned_batch(pa.list_(pa.int8()), [[1], [None]], pa.list_(required(pa.int8())))
    with pytest.raises(InvalidInputError, match=r"'c\.x' must not be null"):
        aligned_batch(pa.list_(pa.int8(), 1), [[1], [None]], pa.list_(required(pa.int8()), 1))
    wanted = pa.map_(pa.utf8(), pa.field("value", pa.int8(), nullable=False))
    with pytest.raises(InvalidInputError, match=r"'c\.value' must not be null"):
        aligned_batch(pa.map_(pa.utf8(), pa.int8()), [[("k", None)]], wanted)


def test_nulls_below_a_null_struct_are_accepted() -> None:
    struct = pa.struct([required(pa.int8())])
    assert aligned_batch(struct, [None, {"x": 1}], struct).num_rows == 2
    fixed = pa.list_(required(pa.int8()), 2)
    assert aligned_batch(pa.list_(pa.int8(), 2), [None, [1, 2]], fixed).num_rows == 2
    # Slices: the null is outside of the slice.
    lists = pa.list_(required(pa.int8()))
    batch = pa.record_batch({"c": pa.array([[None], [1]], pa.list_(pa.int8()))}).slice(1)
    assert align(batch, pa.schema([("c", lists)])).to_pylist() == [{"c": [1]}]
    maps = pa.map_(pa.utf8(), pa.field("value", pa.int8(), nullable=False))
    data = pa.array([[("a", None)], [("b", 1)]], pa.map_(pa.utf8(), pa.int8()))
    sliced = pa.record_batch({"c": data}).slice(1)
    assert align(sliced, pa.schema([("c", maps)])).to_pylist() == [{"c": [("b", 1)]}]


@pytest.mark.parametrize(
    "outer",
    [
        lambda value: pa.map_(pa.string(), value),
        lambda value: pa.list_(pa.map_(pa.string(), pa.list_(value))),
        lambda value: pa.struct([("m", pa.map_(pa.string(), pa.map_(pa.string(), value)))]),
        lambda value: pa.list_(pa.large_list(value)),
        lambda value: pa.large_list(pa.list_(value)),
        lambda value: pa.list_(value, 2),
    ],
    ids=["map", "list", "struct", "list_of_large", "large", "fixed_size"],
)
@pytest.mark.parametrize("names", ["ab", "c"])
def test_missing_fields_that_pylance_needs_are_refused(
    outer: Callable[[pa.DataType], pa.DataType], names: str
) -> None:
    """pylance writes files without such a field, and cannot read them."""

    def schema(names: str) -> Schema:
        value = outer(pa.struct([(name, pa.int64()) for name in names]))
        return Schema.from_arrow(pa.schema([("c", value)]))

    with pytest.raises(
        SchemaMismatchError, match=f"has the field '{'c' if 'a' in names else 'a'}'"
    ):
        filled_by(schema("abc"), schema(names), "t")
    assert filled_by(schema("abc"), schema("cba"), "t") == schema("abc")


def test_fields_missing_in_structs_and_lists_are_left_out() -> None:
    def schema(*names: str) -> Schema:
        value = pa.struct([(name, pa.int64()) for name in names])
        return Schema.from_arrow(pa.schema([("c", pa.list_(pa.struct([("s", value)])))]))

    (field,) = filled_by(schema("a", "b"), schema("b"), "t").fields
    assert [node.name for node in field.walk()] == ["c", "item", "s", "b"]

"""Tables for both clients: every type, every pattern of values, every mix of nulls, and random
nested types.

All values come out of one int64 vector per column, so that a pattern (constant, runs, ...) is the same for every type,
and everything is built by kernels, so that large tables are quick. Null slots keep their values underneath, as real data does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.support.cells import number_of

Vector = np.ndarray

#: Random tables in each suite.
TABLES = number_of(60, 10_000)

PATTERNS: dict[str, Callable[[int, np.random.Generator], Vector]] = {
    "constant": lambda n, rng: np.full(n, 12345, dtype=np.int64),
    "runs": lambda n, rng: np.repeat(rng.integers(0, 9, n // 37 + 1), 37)[:n],
    "low": lambda n, rng: rng.integers(0, 12, n) * 1_000_003,
    "sequential": lambda n, rng: np.arange(n, dtype=np.int64),
    "random": lambda n, rng: rng.integers(-(2**62), 2**62, n),
    "long": lambda n, rng: rng.integers(0, 2**40, n),
}
NULLS = {"none": 0.0, "some": 0.3, "all": 1.0}
SIZES = [0, 1, 1023, 1024, 1025, 70_000]

SCALARS: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32_s": pa.time32("s"),
    "time32_ms": pa.time32("ms"),
    "time64_us": pa.time64("us"),
    "time64_ns": pa.time64("ns"),
    "timestamp_s": pa.timestamp("s"),
    "timestamp_ms": pa.timestamp("ms"),
    "timestamp_us_utc": pa.timestamp("us", "UTC"),
    "timestamp_us_berlin": pa.timestamp("us", "Europe/Berlin"),
    "timestamp_ns": pa.timestamp("ns"),
    "duration_s": pa.duration("s"),
    "duration_us": pa.duration("us"),
    "duration_ns": pa.duration("ns"),
    "decimal128": pa.decimal128(28, 4),
    "decimal128_small": pa.decimal128(7, 2),
    "fsb3": pa.binary(3),
    "fsb16": pa.binary(16),
    "null": pa.null(),
}
VECTORS: dict[str, pa.DataType] = {
    "vec16": pa.list_(pa.float32(), 16),
    "vec128": pa.list_(pa.float32(), 128),
    "vec32_half": pa.list_(pa.float16(), 32),
    "vec4_int8": pa.list_(pa.int8(), 4),
    "vec3_f64": pa.list_(pa.float64(), 3),
    "vec2x3": pa.list_(pa.list_(pa.int16(), 3), 2),
}
NESTED: dict[str, pa.DataType] = {
    "list_int": pa.list_(pa.int32()),
    "list_string": pa.list_(pa.string()),
    "large_list": pa.large_list(pa.int64()),
    "list_list": pa.list_(pa.list_(pa.int16())),
    "list_vec": pa.list_(pa.list_(pa.float32(), 4)),
    "struct": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "struct_struct": pa.struct([("s", pa.struct([("x", pa.float64())])), ("y", pa.bool_())]),
    "struct_list": pa.struct([("l", pa.list_(pa.int64())), ("k", pa.int8())]),
    "list_struct": pa.list_(pa.struct([("p", pa.int32()), ("q", pa.string())])),
    "list_struct_list": pa.list_(pa.struct([("r", pa.list_(pa.string())), ("t", pa.date32())])),
}


def with_nulls(array: pa.Array, mask: np.ndarray) -> pa.Array:
    """Put nulls on an array, and keep the values below them."""
    dtype = array.type
    if not mask.any() or pa.types.is_null(dtype):
        return array
    absent = pa.array(mask)
    if pa.types.is_struct(dtype):
        children = [array.field(i) for i in range(dtype.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(dtype), mask=absent)
    if pa.types.is_fixed_size_list(dtype):
        return pa.FixedSizeListArray.from_arrays(array.values, type=dtype, mask=absent)
    if pa.types.is_large_list(dtype):
        return pa.LargeListArray.from_arrays(array.offsets, array.values, type=dtype, mask=absent)
    if pa.types.is_list(dtype):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=dtype, mask=absent)
    if pa.types.is_map(dtype):
        return pa.MapArray.from_arrays(
            array.offsets, array.keys, array.items, type=dtype, mask=absent
        )
    validity = pa.py_buffer(np.packbits(~mask, bitorder="little").tobytes())
    return pa.Array.from_buffers(dtype, len(array), [validity, *array.buffers()[1:]])


def build(
    dtype: pa.DataType,
    values: Vector,
    null_rate: float,
    rng: np.random.Generator,
    *,
    long: bool = False,
    nullable: bool = True,
) -> pa.Array:
    """Turn an int64 vector into an array of a type, with nulls at every level."""
    array = _build(dtype, values, null_rate, rng, long)
    if not nullable or null_rate == 0:
        return array
    mask = np.ones(len(array), bool) if null_rate >= 1 else rng.random(len(array)) < null_rate
    return with_nulls(array, mask)


def _build(
    dtype: pa.DataType, v: Vector, null_rate: float, rng: np.random.Generator, long: bool
) -> pa.Array:
    n = len(v)
    inner = min(null_rate, 0.5)
    if pa.types.is_null(dtype):
        return pa.nulls(n)
    if pa.types.is_struct(dtype):
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        children = [
            build(f.type, v + i, inner, rng, long=long, nullable=f.nullable)
            for i, f in enumerate(fields)
        ]
        return pa.StructArray.from_arrays(children, fields=fields)
    if pa.types.is_fixed_size_list(dtype):
        size = dtype.list_size
        items = np.repeat(v, size) + np.tile(np.arange(size), n)
        child = build(
            dtype.value_type, items, 0.0, rng, long=long, nullable=dtype.value_field.nullable
        )
        return pa.FixedSizeListArray.from_arrays(child, type=dtype)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_map(dtype):
        lengths = np.abs(v * 7919) % 5
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        items = np.repeat(v, lengths) + np.arange(offsets[-1])
        if pa.types.is_map(dtype):
            keys = build(dtype.key_type, items, 0.0, rng)
            values = build(dtype.item_type, items, inner, rng, long=long)
            return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values, type=dtype)
        child = build(
            dtype.value_type, items, inner, rng, long=long, nullable=dtype.value_field.nullable
        )
        if pa.types.is_large_list(dtype):
            return pa.LargeListArray.from_arrays(pa.array(offsets), child, type=dtype)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), child, type=dtype)
    return _build_leaf(dtype, v, long)


def _build_leaf(dtype: pa.DataType, v: Vector, long: bool) -> pa.Array:
    if pa.types.is_boolean(dtype):
        return pa.array((v & 1).astype(bool))
    if pa.types.is_integer(dtype):
        return pa.array(v.astype(dtype.to_pandas_dtype()), dtype)
    if pa.types.is_float16(dtype):
        return pa.array((v % 4096).astype(np.float16) / np.float16(8), dtype)
    if pa.types.is_floating(dtype):
        return pa.array((v / 7).astype(dtype.to_pandas_dtype()), dtype)
    if pa.types.is_decimal(dtype):
        digits = 10 ** min(dtype.precision, 18)
        integers = pa.array(v % digits).cast(pa.decimal128(19, 0))
        scaled = pc.multiply(integers, pa.scalar(1, pa.decimal128(1, 0)))
        return pa.Array.from_buffers(dtype, len(v), scaled.cast(pa.decimal128(38, 0)).buffers())
    if pa.types.is_fixed_size_binary(dtype):
        width = dtype.byte_width
        raw = np.zeros((len(v), width), np.uint8)
        raw[:, : min(8, width)] = v.view(np.uint8).reshape(-1, 8)[:, :width]
        return pa.Array.from_buffers(dtype, len(v), [None, pa.py_buffer(raw.tobytes())])
    if (
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
    ):
        text = pc.binary_join_element_wise(
            "née ", pa.array(v).cast(pa.string()), pa.array(v % 17).cast(pa.string()), "/"
        )
        # Every seventh value is empty, unless all values are equal.
        if len(v) and v.min() != v.max():
            text = pc.if_else(pa.array(v % 7 == 0), "", text)
        if long:
            text = pc.binary_repeat(text, pa.array(20 + np.abs(v) % 30))
        return text.cast(dtype)
    if pa.types.is_date32(dtype):
        return pa.array((v % 40_000).astype(np.int32)).view(dtype)
    if pa.types.is_date64(dtype):
        return pa.array((v % 40_000) * 86_400_000).view(dtype)
    if pa.types.is_time(dtype):
        day = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
        word = np.int32 if dtype.bit_width == 32 else np.int64
        return pa.array((np.abs(v) % day[dtype.unit]).astype(word)).view(dtype)
    if pa.types.is_timestamp(dtype) or pa.types.is_duration(dtype):
        return pa.array(v % 2**50).view(dtype)
    raise AssertionError(f"no values for {dtype}")


def column(dtype: pa.DataType, pattern: str, nulls: str, rows: int, seed: int) -> pa.Array:
    """Return a column of the matrix."""
    rng = np.random.default_rng(seed)
    values = PATTERNS[pattern](rows, rng).astype(np.int64)
    return build(dtype, values, NULLS[nulls], rng, long=pattern == "long")


def random_type(rng: np.random.Generator, depth: int, *, maps: bool = False) -> pa.DataType:
    """Return a random type with at most `depth` levels of nesting."""
    leaves = [t for name, t in SCALARS.items() if name != "null"]
    choice = rng.random()
    if depth == 0 or choice < 0.4:
        if choice < 0.06:
            return list(VECTORS.values())[rng.integers(len(VECTORS))]
        return leaves[rng.integers(len(leaves))]
    if choice < 0.7:
        children = [
            pa.field(
                f"f{i}", random_type(rng, depth - 1, maps=maps), nullable=bool(rng.random() < 0.8)
            )
            for i in range(rng.integers(1, 4))
        ]
        return pa.struct(children)
    if maps and choice < 0.75:
        return pa.map_(pa.string(), random_type(rng, depth - 1, maps=maps))
    item = pa.field(
        "item", random_type(rng, depth - 1, maps=maps), nullable=bool(rng.random() < 0.8)
    )
    return pa.large_list(item) if choice > 0.95 else pa.list_(item)


def random_table(
    seed: int, *, maps: bool = False, max_rows: int = 2_000, num_rows: int | None = None
) -> pa.Table:
    """Return a table of a few columns with random types and patterns. Its arguments determine all
    values.
    """
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([0, 1, 7, 100, 1_023, 1_024, 1_025, rng.integers(0, max_rows)]))
    rows = rows if num_rows is None else num_rows
    columns, fields = [], []
    for i in range(rng.integers(1, 4)):
        dtype = random_type(rng, int(rng.integers(0, 4)), maps=maps)
        pattern = list(PATTERNS)[rng.integers(len(PATTERNS))]
        rate = float(rng.choice([0.0, 0.1, 0.5, 1.0]))
        nullable = bool(rng.random() < 0.8)
        values = PATTERNS[pattern](rows, rng).astype(np.int64)
        array = build(dtype, values, rate, rng, long=pattern == "long", nullable=nullable)
        columns.append(array)
        fields.append(pa.field(f"c{i}", dtype, nullable=nullable))
    return pa.table(columns, schema=pa.schema(fields))


def for_2_0(table: pa.Table) -> pa.Table:
    """Return the table without nulls that file version 2.0 cannot store: structs are not null, only
    their children are.
    """
    columns = [
        pa.chunked_array([_solid(chunk) for chunk in column.chunks], column.type)
        for column in table.columns
    ]
    return pa.table(columns, schema=table.schema)


def _solid(array: pa.Array) -> pa.Array:
    dtype = array.type
    if pa.types.is_struct(dtype):
        children = [_solid(child) for child in map(array.field, range(dtype.num_fields))]
        return pa.Array.from_buffers(dtype, len(array), [None], children=children)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        validity, offsets = array.buffers()[:2]
        children = [_solid(array.values)]
        return pa.Array.from_buffers(
            dtype, len(array), [validity, offsets], offset=array.offset, children=children
        )
    return array


def assert_same(table: pa.Table, expected: pa.Table, note: str = "") -> None:
    """Check that columns, types and values are equal. Chunks may differ."""
    assert table.column_names == expected.column_names, note
    assert table.num_rows == expected.num_rows, note
    for name in expected.column_names:
        found_column, expected_column = table[name], expected[name]
        assert found_column.type == expected_column.type, (
            f"{note} column {name}: {found_column.type} != {expected_column.type}"
        )
        if not found_column.equals(expected_column):
            a, b = found_column.to_pylist(), expected_column.to_pylist()
            row = next((i for i in range(len(b)) if a[i] != b[i]), None)
            detail = "" if row is None else f": row {row}: {a[row]!r} != {b[row]!r}"
            raise AssertionError(f"{note} column {name} ({expected_column.type}) differs{detail}")

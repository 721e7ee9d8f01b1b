"""Batches of tables become batches of Spark and back; pyarrow's Python values are the oracle."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.errors import InvalidInputError, LanceError, SchemaMismatchError
from lance_spark.spark.types import convert
from lance_spark.spark.types import convert as arrow_buffers
from lance_spark.spark.types import mapping as types
from lance_spark.spark.types.convert import BatchConverter
from tests.support.cells import number_of
from tests.support.spark.versions import HAS_TIME, demanded_schema

UTC = dt.UTC
NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 250)
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, None, False]),
    "int8": (pa.int8(), [-128, None, 127]),
    "int64": (pa.int64(), [-(2**63), None, 2**63 - 1]),
    "uint8": (pa.uint8(), [0, None, 255]),
    "uint16": (pa.uint16(), [0, None, 65535]),
    "uint32": (pa.uint32(), [0, None, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, None, 2**63 - 1]),
    "float16": (pa.float16(), [np.float16(1.5), None, np.float16(-65504)]),
    "float64": (pa.float64(), [1.5, None, float("inf")]),
    "string": (pa.string(), ["a", None, "ä" * 40]),
    "large_string": (pa.large_string(), ["a", None, ""]),
    "binary": (pa.binary(), [b"a", None, b""]),
    "large_binary": (pa.large_binary(), [b"a", None, b"\0"]),
    "fixed_size_binary": (pa.binary(3), [b"abc", None, b"xyz"]),
    "date32": (pa.date32(), [dt.date(1970, 1, 1), None, dt.date(9999, 12, 31)]),
    "date64": (pa.date64(), [dt.date(1970, 1, 1), None, dt.date(2026, 1, 1)]),
    "timestamp_s": (pa.timestamp("s"), [NOON.replace(microsecond=0), None, dt.datetime(1, 1, 1)]),
    "timestamp_us_tz": (
        pa.timestamp("us", "Europe/Vienna"),
        [NOON.replace(tzinfo=UTC), None, dt.datetime(1970, 1, 1, tzinfo=UTC)],
    ),
    "timestamp_ns": (pa.timestamp("ns"), [NOON, None, NOON]),
    "time32": (pa.time32("s"), [dt.time(1, 2, 3), None, dt.time(23, 59, 59)]),
    "time64": (pa.time64("ns"), [dt.time(1, 2, 3, 4), None, dt.time(0)]),
    "duration": (pa.duration("ms"), [dt.timedelta(seconds=1), None, dt.timedelta(days=-1)]),
    "decimal": (pa.decimal128(38, 4), [Decimal("1.2345"), None, Decimal("-9.0000")]),
    "null": (pa.null(), [None, None, None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"]),
    "vector": (pa.list_(pa.float32(), 2), [[1.0, 2.0], None, [3.0, None]]),
    "int_vector": (pa.list_(pa.uint8(), 2), [[1, 2], None, [255, 0]]),
    "half_vector": (pa.list_(pa.float16(), 1), [[np.float16(1.5)], None, [np.float16(2)]]),
    "list": (pa.list_(pa.field("item", pa.int32(), False)), [[1], None, []]),
    "large_list": (pa.large_list(pa.large_string()), [["a", None], None, []]),
    "list_of_vectors": (pa.list_(pa.list_(pa.int8(), 2)), [[[1, 2], None], None, []]),
    "struct": (
        pa.struct([pa.field("x", pa.uint8(), False), ("y", pa.list_(pa.string()))]),
        [{"x": 1, "y": ["a"]}, None, {"x": 3, "y": None}],
    ),
    "map": (pa.map_(pa.string(), pa.uint16()), [[("a", 1), ("b", None)], None, []]),
}


def spark_value(value: Any, arrow: pa.DataType) -> Any:
    """Return what Spark shows of a value that pyarrow shows in this way."""
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, list):
        return [spark_value(item, arrow) for item in value]
    if isinstance(value, dt.time) and not HAS_TIME:
        return pa.scalar(value, pa.time64("ns")).value
    return value


def table(values: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.RecordBatch:
    arrays = [pa.array(list(column), arrow) for arrow, column in values.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(values))


def spark_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    target = types.batch_schema(types.to_spark_schema(batch.schema))
    (converted,) = BatchConverter(batch.schema, target, reading=True)(batch)
    return converted


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("start", [0, 1, 8, 13])
def test_reading_keeps_every_value_of_whole_batches_and_slices(name: str, start: int) -> None:
    arrow, values = COLUMNS[name]
    values = (values * 7)[:20]
    batch = table({name: (arrow, values)})
    spark_schema = types.to_spark_schema(batch.schema)
    converted = spark_batch(batch.slice(start, 5))
    assert converted.schema.equals(demanded_schema(spark_schema))
    converted.validate(full=True)
    shown = converted.column(0).to_pylist()
    assert shown == [spark_value(value, arrow) for value in values[start : start + 5]]


@pytest.mark.parametrize("name", sorted(COLUMNS))
@pytest.mark.parametrize("start", [0, 3])
def test_appending_restores_the_type_of_the_table(name: str, start: int) -> None:
    arrow, values = COLUMNS[name]
    batch = table({name: (arrow, values * 3)}).slice(start)
    converted = spark_batch(batch)
    back = list(BatchConverter(converted.schema, batch.schema, reading=False)(converted))
    back[0].validate(full=True)
    assert back[0].schema.equals(batch.schema)
    assert back[0].column(0).to_pylist() == batch.column(0).to_pylist()


@pytest.mark.parametrize("name", ["int64", "string", "float64", "binary", "date32"])
def test_equal_columns_are_not_copied(name: str) -> None:
    batch = table({name: COLUMNS[name]})
    for before, after in zip(
        batch.column(0).buffers(), spark_batch(batch).column(0).buffers(), strict=True
    ):
        assert (before and before.address) == (after and after.address)


def test_vectors_keep_their_buffer() -> None:
    batch = table({"v": (pa.list_(pa.float32(), 4), [[1.0, 2.0, 3.0, 4.0]] * 8)})
    before, after = batch.column(0).values, spark_batch(batch).column(0).values
    assert before.buffers()[1].address == after.buffers()[1].address


@pytest.mark.parametrize(
    ("arrow", "value", "message"),
    [
        (pa.uint64(), 2**63, "2^63 - 1"),
        (pa.timestamp("ns"), 1, "finer than microseconds"),
        (pa.timestamp("s"), 2**60, "outside the range of microseconds"),
        (pa.duration("ns"), 1, "finer than microseconds"),
        pytest.param(
            pa.time64("ns"),
            1,
            "finer than microseconds",
            marks=pytest.mark.skipif(
                not HAS_TIME,
                reason="Spark 4.0 has no TIME: times are longs, which hold nanoseconds",
            ),
        ),
        (pa.list_(pa.uint64()), [2**64 - 1], "2^63 - 1"),
        (pa.struct([("deep", pa.list_(pa.uint64(), 1))]), {"deep": [2**63]}, "c.deep.element"),
    ],
    ids=str,
)
def test_values_that_spark_cannot_hold_are_refused_by_column_name(
    arrow: pa.DataType, value: Any, message: str
) -> None:
    batch = table({"c": (arrow, [value, None])})
    with pytest.raises(LanceError, match="column c") as caught:
        spark_batch(batch)
    assert message in str(caught.value)


def test_a_value_outside_a_slice_is_not_checked() -> None:
    batch = table({"c": (pa.list_(pa.uint64()), [[2**63], [1]])})
    assert spark_batch(batch.slice(1)).column(0).to_pylist() == [[1]]


@pytest.mark.parametrize(
    ("source", "wanted", "value"),
    [
        (pa.int16(), pa.uint8(), 256),
        (pa.int16(), pa.uint8(), -1),
        (pa.int64(), pa.uint64(), -1),
        (pa.int64(), pa.int32(), 2**31),
        (pa.float32(), pa.float16(), 70000.0),
        (pa.timestamp("us"), pa.timestamp("s"), 1),
        (pa.time64("ns"), pa.time32("s"), 1),
        (pa.duration("us"), pa.duration("ms"), 1),
        (pa.decimal128(10, 2), pa.decimal128(3, 1), Decimal("1.23")),
        (pa.binary(), pa.binary(2), b"abc"),
        (pa.list_(pa.float32()), pa.list_(pa.float32(), 2), [1.0]),
    ],
    ids=str,
)
def test_writing_refuses_values_that_the_table_cannot_hold(
    source: pa.DataType, wanted: pa.DataType, value: Any
) -> None:
    batch = table({"c": (source, [None, value])})
    converter = BatchConverter(batch.schema, pa.schema([("c", wanted)]), reading=False)
    with pytest.raises(InvalidInputError, match="column c"):
        list(converter(batch))


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (pa.string(), pa.int64()),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.string()), pa.string()),
        (pa.struct([("a", pa.int8()), ("b", pa.int8())]), pa.struct([("a", pa.int8())])),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int8()), ("b", pa.int8())])),
    ],
    ids=str,
)
def test_types_that_do_not_fit_are_refused_before_any_batch(
    source: pa.DataType, wanted: pa.DataType
) -> None:
    with pytest.raises(SchemaMismatchError, match="column c"):
        BatchConverter(pa.schema([("c", source)]), pa.schema([("c", wanted)]), reading=False)


def test_reading_does_not_narrow() -> None:
    with pytest.raises(SchemaMismatchError, match="column c is int64"):
        BatchConverter(pa.schema([("c", pa.int64())]), pa.schema([("c", pa.int32())]), reading=True)


def test_a_user_schema_may_widen_and_prune() -> None:
    batch = table(
        {
            "a": (pa.int32(), [1]),
            "s": (pa.struct([("x", pa.int8()), ("y", pa.int8())]), [{"x": 1, "y": 2}]),
        }
    )
    target = pa.schema([("s", pa.struct([("y", pa.int64())])), ("a", pa.int64())])
    (converted,) = BatchConverter(batch.schema, target, reading=True)(batch)
    assert converted.to_pylist() == [{"s": {"y": 2}, "a": 1}]


@pytest.mark.parametrize(
    ("arrow", "rows"),
    [
        (pa.field("c", pa.int32(), False), [1, None]),
        (pa.field("c", pa.struct([pa.field("x", pa.int32(), False)])), [{"x": 1}, {"x": None}]),
        (pa.field("c", pa.list_(pa.field("item", pa.int32(), False))), [[1], [None]]),
    ],
)
def test_nulls_are_refused_in_non_nullable_columns(arrow: pa.Field, rows: list[Any]) -> None:
    loose = {0: pa.int32(), 1: pa.struct([("x", pa.int32())])}.get(
        arrow.type.num_fields * (not pa.types.is_list(arrow.type)), pa.list_(pa.int32())
    )
    if pa.types.is_list(arrow.type):
        loose = pa.list_(pa.int32())
    batch = table({"c": (loose, rows)})
    converter = BatchConverter(batch.schema, pa.schema([arrow]), reading=False)
    with pytest.raises(InvalidInputError, match=r"column c.* null"):
        list(converter(batch))
    assert next(converter(batch.slice(0, 1))).num_rows == 1


def test_a_child_of_a_null_struct_may_be_null() -> None:
    wanted = pa.struct([pa.field("x", pa.int32(), False)])
    batch = table({"c": (pa.struct([("x", pa.int32())]), [{"x": 1}, None])})
    (converted,) = BatchConverter(batch.schema, pa.schema([("c", wanted)]), reading=False)(batch)
    assert converted.column(0).to_pylist() == [{"x": 1}, None]


def test_batches_too_large_for_32_bit_offsets_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_buffers, "_INT32_MAX", 100)
    arrow_buffers.even_offsets.cache_clear()
    values = ["x" * 30] * 10
    batch = table({"c": (pa.large_string(), values), "v": (pa.list_(pa.int8(), 8), [[1] * 8] * 10)})
    target = types.batch_schema(types.to_spark_schema(batch.schema))
    parts = list(BatchConverter(batch.schema, target, reading=True)(batch))
    arrow_buffers.even_offsets.cache_clear()
    assert len(parts) > 3
    assert [v for part in parts for v in part.column(0).to_pylist()] == values


def test_times_are_longs_before_spark_4_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(types, "TIME_TYPE", None)
    batch = table({"t": (pa.time32("ms"), [dt.time(0, 0, 1), None])})
    converted = spark_batch(batch)
    assert converted.column(0).to_pylist() == [10**9, None]
    back = BatchConverter(converted.schema, batch.schema, reading=False)
    assert next(back(converted)).column(0).to_pylist() == batch.column(0).to_pylist()
    with pytest.raises(InvalidInputError, match="time of day"):
        list(back(pa.record_batch({"t": pa.array([-1], pa.int64())})))


@st.composite
def nested(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    """Return a random nested type and rows of the type."""

    def make(depth: int) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        shapes = ["u8", "text"] + (["list", "large", "vector", "struct"] if depth else [])
        shape = draw(st.sampled_from(shapes))
        if shape == "u8":
            return pa.uint8(), st.none() | st.integers(0, 255)
        if shape == "text":
            return pa.large_string(), st.none() | st.text(max_size=4)
        child, values = make(depth - 1)
        if shape == "list":
            return pa.list_(child), st.none() | st.lists(values, max_size=3)
        if shape == "large":
            return pa.large_list(child), st.none() | st.lists(values, max_size=3)
        if shape == "vector":
            return pa.list_(child, 2), st.none() | st.lists(values, min_size=2, max_size=2)
        second_child, more = make(depth - 1)
        return (
            pa.struct([("a", child), ("b", second_child)]),
            st.none() | st.fixed_dictionaries({"a": values, "b": more}),
        )

    arrow, values = make(3)
    return arrow, draw(st.lists(values, min_size=1, max_size=20))


@settings(max_examples=number_of(60, 150), deadline=None)
@given(nested(), st.integers(0, 19), st.integers(0, 20))
def test_nested_values_survive_both_directions(
    made: tuple[pa.DataType, list[Any]], start: int, length: int
) -> None:
    arrow, rows = made
    batch = table({"c": (arrow, rows)}).slice(min(start, len(rows) - 1), length)
    converted = spark_batch(batch)
    converted.validate(full=True)
    assert converted.column(0).to_pylist() == batch.column(0).to_pylist()
    back = next(convert.BatchConverter(converted.schema, batch.schema, reading=False)(converted))
    back.validate(full=True)
    assert back.column(0).to_pylist() == batch.column(0).to_pylist()


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize(("words", "rows"), [(50, 60), (100, 400)], ids=["many", "long"])
def test_dictionaries_that_are_not_short_are_expanded(
    dtype: pa.DataType, words: int, rows: int
) -> None:
    """A scan keeps the dictionaries, which all batches would carry."""
    text = "x" * (10_000 if rows == 400 else 3)
    values = pa.array([f"{number}{text}" for number in range(words)]).cast(dtype)
    indices = pa.array([row % words if row % 7 else None for row in range(rows)], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, values)
    target = pa.binary() if "binary" in str(dtype) else pa.string()
    source = pa.schema([pa.field("x", dtype)])
    convert = BatchConverter(
        source, pa.schema([pa.field("x", target)]), reading=True, keep_dictionaries=True
    )
    (batch,) = convert(pa.record_batch({"x": column}))
    assert batch.schema.types == [target]
    assert batch["x"].to_pylist() == column.to_pylist()


def test_kept_dictionaries_are_checked_for_nulls() -> None:
    column = pa.array(["a", None] * 50).dictionary_encode()
    source, target = (pa.schema([pa.field("x", pa.string(), null)]) for null in (True, False))
    convert = BatchConverter(source, target, reading=True, keep_dictionaries=True)
    with pytest.raises(LanceError, match="x"):
        list(convert(pa.record_batch({"x": column})))
    (batch,) = convert(pa.record_batch({"x": column.drop_null()}))
    assert pa.types.is_dictionary(batch.schema.field("x").type)


def test_unscaled_decimals_are_checked_for_nulls_and_cast() -> None:
    """Only columns of the type of the target stay as a scan returns them."""
    column = pa.array([-15, None, 10**17])
    money = pa.decimal128(18, 1)
    source = pa.schema([pa.field("x", money)])
    for target in (pa.field("x", money, False), pa.field("x", pa.decimal128(20, 2)), source[0]):
        convert = BatchConverter(source, pa.schema([target]), reading=True, unscaled=True)
        if not target.nullable:
            with pytest.raises(LanceError, match="x"):
                list(convert(pa.record_batch({"x": column})))
            continue
        (batch,) = convert(pa.record_batch({"x": column}))
        if target.type == money:
            assert batch["x"].equals(column)
        else:
            assert batch["x"].to_pylist() == [Decimal("-1.5"), None, Decimal(10**16)]

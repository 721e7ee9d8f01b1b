"""Conversion of Python values to Arrow: values that do not fit are refused, not truncated."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError
from lance_spark.predicates.literals import to_array, to_scalar

INF = float("inf")

LOSSY = [
    (2.7, pa.int64()),
    (np.float32(2.7), pa.int64()),
    (pa.scalar(2.7), pa.int64()),
    (Decimal("2.7"), pa.int64()),
    (70_000.0, pa.float16()),
    (1e300, pa.float32()),
    (pa.scalar(1e300), pa.float32()),
    (dt.datetime(2020, 1, 1, 0, 0, 0, 5), pa.timestamp("s")),
    (dt.datetime(2020, 1, 1, 0, 0, 0, 5, tzinfo=dt.UTC), pa.timestamp("ms", "Europe/Berlin")),
    (dt.datetime(2020, 1, 1, 12), pa.date32()),
    (dt.time(1, 2, 3, 4), pa.time32("s")),
    (dt.timedelta(microseconds=5), pa.duration("s")),
    ([1, 2.7], pa.list_(pa.int64())),
    ({"a": 2.7}, pa.struct([("a", pa.int64())])),
    ({"b": 1}, pa.struct([("a", pa.int64())])),
    ([("a", 2.7)], pa.map_(pa.string(), pa.int64())),
    ({"a": 2.7}, pa.map_(pa.string(), pa.int64())),
    ([{"a": 2.7}], pa.list_(pa.map_(pa.string(), pa.int64()))),
    ({"m": {"a": 2.7}}, pa.struct([("m", pa.map_(pa.string(), pa.int64()))])),
    ({"m": {}, "b": 1}, pa.struct([("m", pa.map_(pa.string(), pa.int64()))])),
    ([1, 2.7, Decimal(3)], pa.list_(pa.int64())),
    (Decimal("1E+999999999"), pa.int64()),
    (Decimal("1E-999999999"), pa.decimal128(10, 2)),
    ([Decimal("1E+999999999")], pa.list_(pa.int64())),
    ({"a": Decimal("1E+999999999")}, pa.struct([("a", pa.int64())])),
    ({"a": [Decimal("1E+999999999")]}, pa.map_(pa.string(), pa.list_(pa.int64()))),
    (70_000, pa.float16()),
    (2049, pa.float16()),
    ({"a": 70_000.0}, pa.struct([("a", pa.float16())])),
    ([1, 2049], pa.list_(pa.float16())),
    (pd.Timestamp("2020-01-01T00:00:00.123456789"), pa.timestamp("us")),
    (pd.Timestamp("2020-01-01T00:00:00.123456789", tz="UTC"), pa.timestamp("us", "UTC")),
    (pd.Timedelta(5, "ns"), pa.duration("us")),
    ([pd.Timestamp("2020-01-01T00:00:00.000000001")], pa.list_(pa.timestamp("us"))),
]
EXACT = [
    (2.0, pa.int64()),
    (None, pa.int64()),
    (float("inf"), pa.float16()),
    (dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC), pa.timestamp("s", "Europe/Berlin")),
    (dt.date(2020, 1, 1), pa.date32()),
    (dt.time(1, 2, 3), pa.time32("s")),
    ([1, None, 2.0], pa.list_(pa.int64())),
    ({"a": 2.0, "b": None}, pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ([("a", 2.0)], pa.map_(pa.string(), pa.int64())),
    ([None, [("a", 2.0)]], pa.list_(pa.map_(pa.string(), pa.int64()))),
    ({"m": None}, pa.struct([("m", pa.map_(pa.string(), pa.int64()))])),
    ([1, 2.0, Decimal(3)], pa.list_(pa.int64())),
    (2048, pa.float16()),
    ({"a": 1.5, "b": "x"}, pa.struct([("a", pa.float16()), ("b", pa.string())])),
    ([1, None, 2.5], pa.list_(pa.float16())),
    ([1, None, 2.5], pa.large_list(pa.float16())),
    ([[1.5, 2.0], None], pa.list_(pa.list_(pa.float16(), 2))),
    ([("a", 2.5), ("b", None)], pa.map_(pa.string(), pa.float16())),
    ({"m": [("a", [1.5])]}, pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.float16())))])),
    (Decimal(10**30), pa.decimal128(38, 0)),
    (10**30, pa.decimal128(38, 0)),
]


@pytest.mark.parametrize(("value", "dtype"), LOSSY, ids=str)
def test_values_that_do_not_fit_are_refused(value: Any, dtype: pa.DataType) -> None:
    with pytest.raises((pa.ArrowException, ValueError, TypeError)):
        to_scalar(value, dtype)


@pytest.mark.parametrize(("value", "dtype"), EXACT, ids=str)
def test_values_that_fit_are_unchanged(value: Any, dtype: pa.DataType) -> None:
    result = to_scalar(value, dtype)
    assert result.type == dtype
    assert result.as_py() == value


def test_floats_are_rounded_to_the_precision_of_their_type() -> None:
    assert to_scalar(0.1, pa.float32()).as_py() == float(np.float32(0.1))


def test_scalars_keep_nanoseconds() -> None:
    assert to_scalar(pa.scalar(1_234_567, pa.time64("ns")), pa.time64("ns")).value == 1_234_567


def test_values_of_several_types_are_not_truncated() -> None:
    with pytest.raises(pa.ArrowInvalid, match="truncated"):
        to_array([1, 2.7, Decimal(3)], pa.int64())
    assert to_array([1, None, Decimal(3), 2.0], pa.int64()).to_pylist() == [1, None, 3, 2]


@pytest.mark.parametrize("dtype", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_of_both_signs_in_a_list_are_equal(
    tmp_path: Any, dtype: pa.DataType, zero: float
) -> None:
    data = pa.table({"x": pa.array([0.0, -0.0, 1.0, None, 2.0]).cast(dtype)})
    table = write_dataset(data, str(tmp_path / "t.lance"))
    assert table.to_table(filters=[("x", "in", [zero, 1.0])])["x"].to_pylist() == [0.0, -0.0, 1.0]
    assert table.to_table(filters=[("x", "not in", [zero])])["x"].to_pylist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5, None],
        [np.float16(1), 2.5, None],
        [pa.scalar(1), np.float32(2.5), None],
        np.array([1, 2.5, None], object),
    ],
    ids=str,
)
def test_numbers_of_several_types_become_float16(values: Any) -> None:
    array = to_array(values, pa.float16())
    assert array.type == pa.float16()
    assert array.to_pylist() == [1, 2.5, None]


@pytest.mark.parametrize("values", [[1, 2.5], np.array([1, 2.5], object), np.array([1, 2.5])])
def test_arrays_are_not_truncated(values: Any) -> None:
    with pytest.raises(pa.ArrowInvalid, match="truncated"):
        to_array(values, pa.int64())


@pytest.mark.parametrize("op", ["==", "<", "in"])
def test_a_value_that_does_not_fit_deletes_no_rows(tmp_path: Any, op: str) -> None:
    table = write_dataset(pa.table({"x": [1, 2, 3]}), str(tmp_path / "t.lance"))
    with pytest.raises(InvalidInputError, match=r"filter on 'x': .*2.7.* truncated"):
        table.delete([("x", op, [2.7] if op == "in" else 2.7)])
    assert open_dataset(table.uri).version == 1


def test_a_list_with_nulls_is_refused_and_nan_in_a_list_equals_no_value(tmp_path: Any) -> None:
    nan = float("nan")
    table = write_dataset(pa.table({"x": [1.0, None, nan, 3.0]}), str(tmp_path / "t.lance"))
    for op in ("in", "not in"):
        with pytest.raises(InvalidInputError, match="use is_null"):
            table.delete([("x", op, [1.0, None])])
    assert table.to_table(filters=[("x", "in", [1.0, nan])]).num_rows == 1
    assert table.to_table(filters=[("x", "not in", [1.0, nan])]).num_rows == 2


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_an_update_does_not_truncate_values(tmp_path: Any, mode: Any) -> None:
    table = write_dataset(pa.table({"x": [1, 2, 3], "s": ["a", "b", "c"]}), str(tmp_path / "t"))
    for value in (2.7, lambda rows: [2.7] * rows.num_rows, lambda rows: np.full(3, 2.7)):
        with pytest.raises(InvalidInputError, match="truncated"):
            table.update({"x": value}, mode=mode)
    with pytest.raises(InvalidInputError, match="not a single str"):
        table.update({"s": lambda rows: "xyz"}, mode=mode)
    assert open_dataset(table.uri).to_table() == table.to_table()


def test_float16_is_compared(tmp_path: Any) -> None:
    data = pa.table({"x": pa.array([1, None, 2.5, float("nan")]).cast(pa.float16())})
    table = write_dataset(data, str(tmp_path / "t.lance"))
    assert table.to_table(filters=[("x", ">", 1)]).num_rows == 1
    assert table.to_table(filters=[("x", "in", [2.5, 7])]).num_rows == 1


@pytest.mark.parametrize(
    ("op", "number", "wanted"),
    [
        ("<", 16777217, [-INF, 0.0, 16777216.0]),
        ("<=", 16777217, [-INF, 0.0, 16777216.0]),
        (">", 16777217, [16777218.0, INF]),
        (">=", 16777217, [16777218.0, INF]),
        ("==", 16777217, []),
        ("!=", 16777217, [-INF, 0.0, 16777216.0, 16777218.0, INF]),
        ("<", 10**400, [-INF, 0.0, 16777216.0, 16777218.0]),
        (">", -(10**400), [0.0, 16777216.0, 16777218.0, INF]),
        ("<", -(10**400), [-INF]),
    ],
)
def test_integers_between_floats(tmp_path: Any, op: str, number: int, wanted: list[float]) -> None:
    floats = [None, -INF, 0.0, 16777216.0, 16777218.0, INF]
    table = write_dataset(
        pa.table({"x": pa.array(floats, pa.float32())}), str(tmp_path / "t.lance")
    )
    assert table.to_table(filters=[("x", op, number)])["x"].to_pylist() == wanted
    if op == "==":
        kept = table.to_table(filters=[("x", "in", [number, 0])])["x"].to_pylist()
        assert kept == [0.0]

"""Combinations of values, and the rows that have one of them, compared with Python's sets."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.encoding.rows import RowRanges
from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.rows.partial_overwrite import (
    MAX_PARTITIONS,
    InPartitions,
    Partitions,
    partition_columns,
)
from tests.support.cells import number_of

VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, 0, 127],
    pa.uint64(): [0, 1, 2**64 - 1],
    pa.string(): ["", "a", "é", "a "],
    pa.large_binary(): [b"", b"\0", b"\xff"],
    pa.bool_(): [True, False],
    pa.date32(): [dt.date(1, 1, 1), dt.date(2026, 1, 31)],
    pa.timestamp("ns"): [0, 1, -(2**62)],
    pa.decimal128(10, 2): [Decimal("0.00"), Decimal("-1.10")],
    pa.dictionary(pa.int8(), pa.string()): ["x", "y", "z"],
}
ROW = st.tuples(*(st.sampled_from([None, *values]) for values in VALUES.values()))


def batch_of(rows: list[tuple[Any, ...]], width: int) -> pa.RecordBatch:
    dtypes = list(VALUES)[:width]
    arrays = [pa.array([row[column] for row in rows], dtype) for column, dtype in enumerate(dtypes)]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{column}" for column in range(width)])


@pytest.mark.slow
@settings(max_examples=number_of(60, 150), deadline=None, derandomize=True)
@given(
    st.lists(ROW, min_size=1, max_size=30),
    st.lists(ROW, max_size=40),
    st.integers(1, len(VALUES)),
    st.integers(1, 29),
)
def test_rows_with_the_same_values(
    given_rows: list[tuple[Any, ...]], tested_rows: list[tuple[Any, ...]], width: int, cut: int
) -> None:
    tested_rows = [*tested_rows, *given_rows[:3]]
    schema = Schema.from_arrow(batch_of(given_rows, width).schema)
    columns = partition_columns(schema, schema.names, "t")
    collected = Partitions(columns)
    for part in (given_rows[:cut], given_rows[cut:]):
        part_partitions = Partitions(columns)
        if part:
            part_partitions(batch_of(part, width))
        values = part_partitions.values()
        assert (values is None) == (not part)
        if values is not None:
            collected.merge(values)
    values = collected.values()
    assert values is not None
    combinations = {row[:width] for row in given_rows}
    assert values.num_rows == len(combinations)
    condition = InPartitions(columns, values)
    expected = [row[:width] in combinations for row in tested_rows]
    assert condition.holds(batch_of(tested_rows, width)).to_pylist() == expected
    assert condition.negated().holds(batch_of(tested_rows, width)).to_pylist() == [
        not value for value in expected
    ]


def test_statistics_are_asked_for_each_column() -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    columns = partition_columns(schema, ["a", "b"], "t")
    values = pa.record_batch({"0": pa.array([1, 2]), "1": pa.array(["x", None])})

    def statistics(field: Any, op: str, value: Any) -> RowRanges:
        if field.name == "a":
            return RowRanges.of([range(10) if value.as_py() == 1 else range(20, 30)])
        return RowRanges.of([range(5, 8) if op == "is_null" else range(7, 25)])

    condition = InPartitions(columns, values)
    candidates = condition.candidates(statistics)
    assert candidates is not None
    assert list(candidates) == [range(5, 10), range(20, 25)]
    assert condition.candidates(lambda *_: None) is None
    assert condition.negated().candidates(statistics) is None


def test_too_many() -> None:
    columns = partition_columns(Schema.from_arrow(pa.schema([("a", pa.int64())])), ["a"], "t")
    partitions = Partitions(columns)
    partitions(pa.record_batch({"a": pa.array(range(MAX_PARTITIONS))}))
    partitions(pa.record_batch({"a": pa.array(range(MAX_PARTITIONS))}))
    with pytest.raises(InvalidInputError, match=f"more than {MAX_PARTITIONS} combinations"):
        partitions(pa.record_batch({"a": pa.array([-1])}))


@pytest.mark.parametrize(
    "dtype", [pa.float64(), pa.list_(pa.int8()), pa.struct([("x", pa.int8())])]
)
def test_columns_that_cannot_define_partitions(dtype: pa.DataType) -> None:
    schema = Schema.from_arrow(pa.schema([("a", dtype)]))
    with pytest.raises(InvalidOptionError, match=r"'a' .* cannot define partitions"):
        partition_columns(schema, ["a"], "t")
    with pytest.raises(InvalidOptionError, match="no column 'b'"):
        partition_columns(schema, ["b"], "t")

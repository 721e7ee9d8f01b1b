"""Aggregates from the manifest and indexes: no data file is read, and results equal the results
over all rows.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lance_spark.errors import SchemaMismatchError
from tests.support.spark.requests import Answer, aggregates, ask, col, lit, op

ROWS = 3_000
KINDS: dict[str, DataType] = {
    "id": LongType(),
    "part": IntegerType(),
    "few": LongType(),
    "day": DateType(),
    "at": TimestampType(),
    "clock": TimestampNTZType(),
    "price": DecimalType(10, 2),
}


@pytest.fixture(params=["ZONEMAP", "BTREE"])
def indexed(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A table in three fragments with an index on every column but `text`."""
    rng = np.random.default_rng(9)
    ids = rng.permutation(ROWS)
    start = dt.datetime(2024, 1, 1)
    times = [start + dt.timedelta(seconds=int(i)) for i in ids]
    table = pa.table(
        {
            "id": pa.array(ids),
            "part": pa.array(ids % 60_000, pa.uint16()),
            "few": pa.array([None if i % 3 else int(i) for i in ids], pa.int64()),
            "day": pa.array([time.date() for time in times]),
            "at": pa.array(times, pa.timestamp("ms", "UTC")),
            "clock": pa.array(times, pa.timestamp("ns")),
            "price": pa.array([int(i) for i in ids], pa.decimal128(10, 2)),
            "text": pa.array([None if i % 5 == 0 else str(i) for i in ids]),
            "full": pa.array([str(i) for i in ids]),
        }
    )
    path = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(table, path, max_rows_per_file=1_000)
    for name in KINDS:
        dataset.create_scalar_index(name, request.param)
    return path


def aggregate(path: str, *wanted: tuple[str, str, DataType], **more: Any) -> Answer:
    schema, request = aggregates(
        *((name, [column], spark_type) for name, column, spark_type in wanted)
    )
    return ask(path, schema, {**request, **more})


def is_known(answer: Answer) -> bool:
    return [partition.task for partition in answer.partitions] == [None]


def test_min_and_max(indexed: str) -> None:
    table = lance.dataset(indexed).to_table()
    for name, spark_type in KINDS.items():
        answer = aggregate(indexed, ("min", name, spark_type), ("max", name, spark_type))
        assert is_known(answer), name
        expected = [pc.min(table[name]).as_py(), pc.max(table[name]).as_py()]
        if name in ("at", "clock"):
            expected = [
                pc.cast(pa.scalar(item), answer.batches[0].schema.types[0]).as_py()
                for item in expected
            ]
        assert list(answer.to_pylist()[0].values()) == expected, name
        assert answer.local_rows is not None
        assert answer.local_rows.to_pylist() == answer.to_pylist()


def test_names_are_matched_as_in_spark(indexed: str) -> None:
    assert aggregate(indexed, ("max", "ID", LongType())).to_pylist() == [{"agg0": ROWS - 1}]


def test_all_or_nothing(indexed: str) -> None:
    known, unknown = ("max", "id", LongType()), ("count", "text", LongType())
    assert is_known(aggregate(indexed, known))
    answer = aggregate(indexed, known, unknown)
    assert not is_known(answer)
    assert answer.local_rows is not None
    assert answer.local_rows.to_pylist() == [{"agg0": ROWS - 1, "agg1": ROWS - ROWS // 5}]
    filtered = aggregate(indexed, known, filters=[op("<", col("id"), lit(7, "bigint"))])
    assert not is_known(filtered)
    assert filtered.local_rows is not None
    assert filtered.local_rows.to_pylist() == [{"agg0": 6}]


def test_rows_outside_the_index(indexed: str) -> None:
    more = lance.dataset(indexed).to_table().slice(0, 1)
    larger = pa.array([10 * ROWS], pa.int64())
    lance.write_dataset(more.set_column(0, "id", larger), indexed, mode="append")
    answer = aggregate(indexed, ("max", "id", LongType()))
    assert not is_known(answer)
    assert max(answer.column("agg0")) == 10 * ROWS
    lance.dataset(indexed).delete(f"id > {ROWS - 5}")
    assert max(aggregate(indexed, ("max", "id", LongType())).column("agg0")) == ROWS - 5


def test_an_unreadable_index(indexed: str) -> None:
    for file in Path(indexed, "_indices").rglob("*.lance"):
        file.write_bytes(b"no index")
    answer = aggregate(indexed, ("min", "id", LongType()), ("max", "id", LongType()))
    assert not is_known(answer)
    assert answer.local_rows is not None
    assert answer.local_rows.to_pylist() == [{"agg0": 0, "agg1": ROWS - 1}]


def test_counts(indexed: str, capfd: pytest.CaptureFixture[str]) -> None:
    table = lance.dataset(indexed).to_table()
    for name in ("few", "text", "full", "id"):
        answer = aggregate(indexed, ("count", name, LongType()))
        assert sum(answer.column("agg0")) == len(table[name]) - table[name].null_count, name
    schema, request = aggregates(("count", ["full"], LongType()), ("count_star", None, LongType()))
    answer = ask(indexed, schema, {**request, "tasks": True}, scan_metrics="true")
    assert [sum(answer.column(name)) for name in ("agg0", "agg1")] == [ROWS, ROWS]
    # Pages without nulls are not read.
    assert "numRowsScanned=0 " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("column", "op_name", "dtype"),
    [
        ("word", "min", IntegerType()),
        ("word", "sum", LongType()),
        ("ratio", "max", DecimalType(10, 2)),
        ("at", "max", TimestampNTZType()),
        ("at", "min", DateType()),
        ("price", "sum", DecimalType(20, 1)),
    ],
)
def test_values_of_another_type_are_refused(
    tmp_path: Path, column: str, op_name: str, dtype: DataType
) -> None:
    # As rows are, in a user's schema. The smallest of "9" and "10" is not the smallest number.
    table = pa.table(
        {
            "word": ["9", "10"],
            "ratio": [1.239, 0.5],
            "at": pa.array([1, 2], pa.timestamp("us", "UTC")),
            "price": pa.array([1, 2], pa.decimal128(10, 2)),
            "small": pa.array([3, 4], pa.int16()),
        }
    )
    path = str(tmp_path / "t.lance")
    lance.write_dataset(table, path)
    with pytest.raises(SchemaMismatchError, match=f"column {column} is .* cannot be read as"):
        ask(path, *aggregates((op_name, [column], dtype)))
    grouped = StructType([StructField("group0", IntegerType()), StructField("agg0", LongType())])
    request = {"groups": [col("word")], "aggregates": [{"op": "count_star"}]}
    with pytest.raises(SchemaMismatchError, match="column word is string"):
        ask(path, grouped, request)
    # Wider types hold all values.
    wider = aggregates(("min", ["small"], LongType()), ("sum", ["price"], DecimalType(22, 2)))
    assert ask(path, *wider).column("agg0") == [3]


def test_columns_that_the_table_lacks_are_named(tmp_path: Path) -> None:
    # As after ALTER TABLE, for a DataFrame from before.
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"speed": [1, 2], "s": [{"x": 1}, {"x": 2}]}), path)
    for name, error in (
        (["sped"], "no column sped; did you mean speed"),
        (["s", "y"], "no column s.y; it has x"),
    ):
        with pytest.raises(SchemaMismatchError, match=error):
            ask(path, *aggregates(("min", name, LongType())))
    tree = op("is_null", col("sped"))
    with pytest.raises(SchemaMismatchError, match="no column sped"):
        ask(path, StructType([StructField("speed", LongType())]), {"filters": [tree]})

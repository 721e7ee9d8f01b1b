"""ORDER BY with LIMIT: tasks return their first rows, and Spark's order over Parquet decides."""

from __future__ import annotations

import datetime as dt
import decimal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from lance_spark.dataset.write import write_dataset
from lance_spark.scan import top_rows
from tests.support.cells import every_other
from tests.support.spark.metrics import counted
from tests.support.spark.requests import ask
from tests.support.tables.beside_parquet import write_beside_parquet

ROWS = 3_000
PARTS = 4


def part_of(number: int) -> pa.Table:
    """Return the rows of a fragment. Few values repeat, and all columns but the first have nulls."""
    rng = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    floats = rng.choice([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5, -2.5, 1e-300], ROWS)
    words = rng.choice(["", "a", "ab", "é", "😀", "\uffff", "Z", "a\0"], ROWS)
    days = [dt.date(1969, 12, 1) + dt.timedelta(int(day)) for day in rng.integers(0, 90, ROWS)]
    columns = {
        "small": pa.array(rng.integers(-5, 5, ROWS).astype(np.int8)),
        "count": pa.array(rng.integers(-(2**62), 2**62, ROWS)),
        "whole": pa.array(rng.integers(0, 2**63, ROWS).astype(np.uint64)),
        "ratio": pa.array(floats),
        "half": pa.array(floats.astype(np.float32)),
        "flag": pa.array(rng.random(ROWS) < 0.5),
        "word": pa.array(words),
        "day": pa.array(days),
        "at": pa.array(rng.integers(-(10**15), 10**15, ROWS), pa.timestamp("us", "UTC")),
        "clock": pa.array(rng.integers(0, 3, ROWS) * 1000, pa.timestamp("ns")),
        "cents": pa.array(
            [decimal.Decimal(int(item)).scaleb(-2) for item in rng.integers(-999, 999, ROWS)],
            pa.decimal128(20, 2),
        ),
        "raw": pa.array([word.encode() for word in words], pa.binary()),
    }
    result = {"id": pa.array(ids)}
    for name, array in columns.items():
        missing = pa.array(np.arange(ROWS), mask=rng.random(ROWS) < 0.2)
        result[name] = array.take(missing)
    result["inner"] = pa.StructArray.from_arrays([result["small"], result["word"]], ["n", "w"])
    result["text"] = pa.array([rng.bytes(100).hex() for _ in ids])
    return pa.table(result)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same rows as a Lance table, from which rows were deleted, and as Parquet."""
    folder = tmp_path_factory.mktemp("top_rows")
    tables = [part_of(number) for number in range(PARTS)]
    # Types that Spark reads from Parquet: it has no unsigned integers and no nanoseconds.
    dtypes = {"whole": pa.int64(), "clock": pa.timestamp("us")}
    return write_beside_parquet(folder, tables, dtypes)


@pytest.fixture
def frames(spark: Any, pushdown: Callable[..., None], paths: tuple[str, str]) -> tuple[Any, Any]:
    pushdown(True, False)
    table = spark.read.format("lance").option("target_rows_per_partition", ROWS).load(paths[0])
    return table, spark.read.schema(table.schema).parquet(paths[1])


ORDERS = [
    *("small", "count", "whole", "ratio", "half", "flag", "word", "day", "at", "cents", "raw"),
    *("inner.n", "clock"),
]
DIRECTIONS, NULLS = ["asc", "desc"], ["nulls_first", "nulls_last"]


@pytest.mark.sample(5)
@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_orders_of_all_types(frames: tuple[Any, Any], direction: str, nulls: str) -> None:
    # Each column in both directions, and with nulls first and last.
    for name in every_other(ORDERS, DIRECTIONS.index(direction) + NULLS.index(nulls)):
        order = getattr(sf.col(name), f"{direction}_{nulls}")()
        top, expected = (
            frame.select(name, "id", "text").orderBy(order, sf.desc("id")).limit(700).collect()
            for frame in frames
        )
        assert repr(top) == repr(expected), name


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("query", "is_asked"),
    [
        (lambda f: f.orderBy("small", sf.desc("count"), "id").limit(20), True),
        (lambda f: f.orderBy(sf.desc("word"), sf.asc_nulls_last("day"), "id").limit(900), True),
        (lambda f: f.where("small > 3").orderBy("ratio", "id").limit(5), True),
        (lambda f: f.orderBy(sf.desc("count")).limit(15).select("id"), True),
        (lambda f: f.select("id", "count").orderBy(sf.desc("count")).limit(7).offset(3), True),
        (lambda f: f.where("inner.w = 'ab'").orderBy(sf.desc("at"), "id").limit(9), True),
        (lambda f: f.orderBy("id").limit(200_000), False),
        (lambda f: f.orderBy("clock", "id").limit(9), False),
        (lambda f: f.orderBy("inner.n", "id").limit(9), False),
        (lambda f: f.where("clock is not null and id % 7 = 1").orderBy("id").limit(9), False),
        (lambda f: f.orderBy(sf.col("small") + 1, "id").limit(9), False),
        (lambda f: f.limit(5000).orderBy("id").limit(9).select(sf.lit(1)), False),
        (lambda f: f.groupBy("small").count().orderBy("small").limit(3), False),
        (
            lambda f: (
                f.orderBy(sf.desc("count")).limit(50).join(f.where("flag"), "id").select("id")
            ),
            True,
        ),
    ],
)
def test_queries_with_an_order(
    frames: tuple[Any, Any], query: Callable[[Any], Any], is_asked: bool
) -> None:
    top, other = (query(frame) for frame in frames)
    assert list(map(repr, top.collect())) == list(map(repr, other.collect()))
    returned = max(counted(top))
    limit = 1_000
    assert (returned <= limit * PARTS) == is_asked or not is_asked


def test_only_the_order_is_read_of_all_rows(frames: tuple[Any, Any]) -> None:
    table = frames[0].select("id", "text")
    top = table.orderBy(sf.desc("id")).limit(10)
    assert [row.id for row in top.collect()] == [
        row for row in range(PARTS * ROWS - 1, 0, -1) if row % 5 != 3
    ][:10]
    (few,) = counted(top, "numBytesRead")
    assert len(table.collect()) > 9_000
    (all_bytes,) = counted(table, "numBytesRead")
    assert few < all_bytes / 2


def test_first_rows_are_read_on_the_driver(
    frames: tuple[Any, Any], pushdown: Callable[..., None]
) -> None:
    pushdown(True, True)
    for query in (
        lambda frame: frame.orderBy("ratio", "id").limit(25),
        lambda frame: frame.where("flag").orderBy(sf.desc("word"), "id").limit(400),
    ):
        top, other = (query(frame) for frame in frames)
        assert "LocalTableScan" in top._jdf.queryExecution().executedPlan().toString()
        assert list(map(repr, top.collect())) == list(map(repr, other.collect()))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "query",
    [
        lambda f: f.orderBy(sf.desc_nulls_first("ratio"), sf.asc_nulls_last("word"), "id").limit(9),
        lambda f: f.orderBy("word", sf.desc("half"), "id").limit(30).select("id", "word", "half"),
        lambda f: f.orderBy("at", "id").limit(5).select(sf.col("id").alias("a"), "word", "id"),
        lambda f: f.where("id < 40").orderBy(sf.desc("cents"), "id").drop("raw"),
        lambda f: f.where("id < 40").orderBy("raw", "id").limit(9).orderBy("day", "id").limit(4),
        lambda f: f.where("id < 40").select("id", "inner").orderBy(sf.desc("id")),
        lambda f: f.orderBy("id").limit(0),
    ],
)
def test_rows_of_the_driver_are_ordered_without_a_job(
    spark: Any, frames: tuple[Any, Any], pushdown: Callable[..., None], query: Callable[[Any], Any]
) -> None:
    pushdown(True, True)
    top, other = (query(frame) for frame in frames)
    expected = list(map(repr, other.collect()))
    spark.sparkContext.setJobGroup("ordered", "ordered")
    try:
        assert list(map(repr, top.collect())) == expected
        assert spark.sparkContext.statusTracker().getJobIdsForGroup("ordered") == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    # Other parts of the query are left to Spark.
    counted_rows = query(frames[0]).agg(sf.count("*")).collect()[0][0]
    assert counted_rows == len(expected)
    doubled = query(frames[0]).select((sf.col(top.columns[0]) * 2).alias("x")).collect()
    assert len(doubled) == len(expected)


def test_a_row_position_is_not_taken_from_a_part(
    spark: Any, pushdown: Callable[..., None], paths: tuple[str, str]
) -> None:
    pushdown(True, False)
    reader = spark.read.format("lance").schema("id BIGINT, _rowoffset BIGINT")
    table = reader.option("target_rows_per_partition", ROWS).load(paths[0])
    live = [row for row in range(PARTS * ROWS) if row % 5 != 3]
    assert [tuple(row) for row in table.orderBy(sf.desc("id")).limit(3).collect()] == [
        (row, live.index(row)) for row in live[-1:-4:-1]
    ]


@pytest.mark.parametrize("dtype", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_of_more_rows_than_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: pa.DataType
) -> None:
    # Rows after those that were collected are compared with the last one of the first rows.
    monkeypatch.setattr(top_rows, "_COLLECTED_ROWS", 50)
    rng = np.random.default_rng(7)
    values = rng.choice([0.0, -0.0, np.nan, np.nan, np.nan, np.inf, -np.inf, 1.5, -2.5, 6e4], 1_000)
    floats = pa.array(values.astype(dtype.to_pandas_dtype()), mask=rng.random(1_000) < 0.1)
    path = str(tmp_path / "floats.lance")
    write_dataset(pa.table({"x": floats}), path)
    ranks = [_rank(value) for value in floats.to_pylist()]
    for descending in (True, False):
        valid = sorted((rank for rank in ranks if rank is not None), reverse=descending)
        nulls = [None] * floats.null_count
        for nulls_first in (True, False):
            expected = [*nulls, *valid] if nulls_first else [*valid, *nulls]
            for rows in (1, 30, 120, 700, 1_000):
                order = {"col": ["x"], "descending": descending, "nulls_first": nulls_first}
                request = {"top": {"rows": rows, "order": [order]}}
                first = ask(path, ["x"], request, batch_size="40").column("x")
                assert Counter(map(_rank, first)) == Counter(expected[:rows]), order


def _rank(value: float | None) -> tuple[bool, float] | None:
    """Return the place of a value in Spark's order, in which NaN is the largest number."""
    if value is None:
        return None
    return bool(np.isnan(value)), 0.0 if np.isnan(value) else float(value)

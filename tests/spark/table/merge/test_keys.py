"""The keys of a small source filter the rows of the table that a merge reads."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

import lance_spark
from lance_spark.dataset.dataset import open_dataset
from lance_spark.spark.table import LanceTable
from lance_spark.spark.table.merge import join
from lance_spark.spark.table.merge import join as keys

ROWS = 3_000
DAY = dt.date(2024, 1, 1)


@pytest.fixture
def filters(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The filters of tables; tables of any size are filtered."""
    monkeypatch.setattr(keys, "MIN_TABLE_ROWS", 0)
    seen: list[Any] = []
    frame = getattr(join, "frame")  # noqa: B009 - the module does not export it

    def noted(*args: Any, filter_tree: Any = None, **options: Any) -> Any:
        if filter_tree is not None:
            seen.append(filter_tree)
        return frame(*args, filter_tree=filter_tree, **options)

    monkeypatch.setattr(join, "frame", noted)
    return seen


@pytest.fixture
def path(tmp_path: Path) -> str:
    ids = np.arange(ROWS)
    data = pa.table(
        {
            "id": ids,
            "small": pa.array((ids % 100).astype(np.int8), mask=ids % 9 == 1),
            "word": [f"w{number}" for number in ids.tolist()],
            "day": pa.array([DAY + dt.timedelta(int(number)) for number in ids]),
            "at": pa.array(ids * 1_000_000 + 7, pa.timestamp("us", "UTC")),
            "cents": pa.array([decimal.Decimal(int(n)).scaleb(-2) for n in ids]).cast(
                pa.decimal128(10, 2)
            ),
            "ratio": ids / 2,
            "raw": pa.array([b"%d" % number for number in ids]),
            "Mixed": ids + 5,
            "inner": pa.StructArray.from_arrays([pa.array(ids)], ["a"]),
            "v": np.zeros(ROWS, np.int64),
        }
    )
    path = str(tmp_path / "t")
    lance_spark.write_dataset(data, path, max_rows_per_file=1_000)
    return path


def changed(path: str) -> list[int]:
    rows = open_dataset(path).to_table(["id"], filter="v = 1")
    return sorted(rows["id"].to_pylist())


def values(spark: Any, expressions: list[str]) -> Any:
    """Return a frame with a column `s` of SQL expressions."""
    return spark.sql("SELECT * FROM VALUES " + ", ".join(f"({e})" for e in expressions) + " t(s)")


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("condition", "expressions", "expected", "num_keys"),
    [
        ("target.id = s", ["3", "CAST(NULL AS INT)", "3000000", "9"], [3, 9], 3),
        ("ID = s AND word = concat('w', s)", ["4L", "7L"], [4, 7], 2),
        ("small = s", ["5L", "1000L", "-129L"], None, 1),
        ("word = s", ["'w5'", "'W6'", "NULL"], [5], 2),
        ("day = s", ["DATE '2024-01-03'"], [2], 1),
        ("at = s", ["TIMESTAMP '1970-01-01 00:00:09.000007Z'"], [9], 1),
        ("cents = s", ["CAST(0.05 AS DECIMAL(10,2))"], [5], 1),
        ("cents = s", ["0.05"], [5], 1),
        ("cents = s", ["CAST(0.05 AS DECIMAL(12, 4))"], [5], 0),
        ("raw = s", ["X'3137'"], [17], 1),
        ("ratio = s", ["1.5D"], [3], 0),
        ("mixed = s", ["9L"], [4], 1),
        ("target.inner.a = s", ["9L"], [9], 0),
        ("id <=> s", ["9L"], [9], 0),
        ("id = s + 1", ["9L"], [10], 0),
        ("id = s OR id = 4", ["4L"], [4], 0),
        ("id = s AND v = 0", ["CAST(NULL AS BIGINT)"], [], 1),
    ],
)
def test_rows_are_those_of_the_join(
    spark: Any,
    path: str,
    filters: list[Any],
    condition: str,
    expressions: list[str],
    expected: list[int] | None,
    num_keys: int,
) -> None:
    source = values(spark, expressions)
    merge = LanceTable.forPath(spark, path).merge(source, condition)
    merge.whenMatchedUpdate(set={"v": "1"}).execute()
    if expected is None:
        expected = [n for n in range(ROWS) if n % 100 == 5 and n % 9 != 1]
    assert changed(path) == expected
    if not num_keys:
        assert filters == []
    else:
        (tree,) = filters
        (part,) = tree["args"]
        assert max(1, len(part.get("args", [])) - 1) == num_keys


def test_new_rows_are_inserted(spark: Any, path: str, filters: list[Any]) -> None:
    table = LanceTable.forPath(spark, path).alias("t")
    source = spark.createDataFrame([(5, 1), (ROWS + 1, 1), (None, 1)], "id long, v long").alias("s")
    result = (
        table.merge(source, "t.id = s.id")
        .whenMatchedUpdate(set={"v": "s.v"})
        .whenNotMatchedInsert(values={"id": "s.id", "v": "s.v"})
        .execute()
    )
    assert (result.num_inserted_rows, result.num_updated_rows) == (2, 1)
    assert len(filters) == 1
    table.merge(source, "t.id = s.id").whenNotMatchedInsertAll().execute()
    assert open_dataset(path).count_rows() == ROWS + 3
    # Rows that match no row of the source are needed.
    table.merge(source, "t.id = s.id").whenNotMatchedBySourceDelete().execute()
    assert len(filters) == 2
    assert sorted(open_dataset(path).to_table(["id"])["id"].to_pylist()) == [5, ROWS + 1]


def test_a_source_is_evaluated_once(spark: Any, path: str, filters: list[Any]) -> None:
    # Other rows each time that the frame is evaluated.
    random = sf.udf(lambda _: int(np.random.default_rng().integers(0, ROWS)), "long")
    source = spark.range(3).select(random.asNondeterministic()("id").alias("id"))
    table = LanceTable.forPath(spark, path)
    table.merge(source, "target.id = source.id").whenMatchedUpdate(set={"v": "1"}).execute()
    # A function of a user may take long: its rows are not collected.
    assert filters == []
    source = spark.range(500).selectExpr("CAST(floor(rand() * 100000) AS BIGINT) AS id")
    result = (
        table.merge(source, "target.id = source.id")
        .whenNotMatchedInsert(values={"id": "source.id", "v": "2"})
        .execute()
    )
    assert len(filters) == 1
    kept = {int(literal["lit"]) for literal in filters[0]["args"][0]["args"][1:]}
    inserted = open_dataset(path).to_table(["id"], filter="v = 2")["id"].to_pylist()
    assert set(inserted) == {key for key in kept if key >= ROWS}
    assert result.num_inserted_rows == len(inserted)


def test_large_sources_are_not_collected(
    spark: Any, path: str, filters: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LanceTable.forPath(spark, path)
    monkeypatch.setattr(keys, "MAX_ROWS", 10)
    for source in (spark.range(11), spark.range(20_000_000).where("id % 1000000 = 1")):
        table.merge(source, "target.id = source.id").whenMatchedUpdate(set={"v": "1"}).execute()
    assert filters == []
    assert changed(path) == list(range(11))

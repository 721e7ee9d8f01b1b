"""The sizes that scans report: Spark broadcasts a table where it broadcasts the same in Parquet, and
where filters leave few rows of a large one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

ROWS = 400_000
THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of people, and one of sales, in Lance and in Parquet."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(5)
    people = pa.table(
        {
            "person": rng.permutation(ROWS),
            "rating": np.array(["low risk", "good", "high risk"])[rng.integers(0, 3, ROWS)],
            "level": np.array(["primary", "secondary", "college"])[rng.integers(0, 3, ROWS)],
            "state": [f"state {number}" for number in rng.integers(0, 100, ROWS)],
            "part": np.arange(ROWS) // (ROWS // 100),
            "weight": rng.random(ROWS),
        }
    )
    sales = pa.table({"buyer": rng.integers(0, 2 * ROWS, ROWS), "price": rng.random(ROWS)})
    for name, rows in (("people", people), ("sales", sales)):
        frame = spark.createDataFrame(rows).repartition(2)
        for form in ("lance", "parquet"):
            frame.write.format(form).mode("append").save(str(folder / form / name))
    return folder


@pytest.fixture
def threshold(spark: Any) -> Iterator[Any]:
    """Return a function that sets the bytes up to which Spark broadcasts."""
    yield lambda size: spark.conf.set(THRESHOLD, size)
    spark.conf.unset(THRESHOLD)


def read(spark: Any, tables: Path, form: str, name: str) -> Any:
    return spark.read.format(form).load(str(tables / form / name))


def size_of(frame: Any) -> int:
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def join_of(frame: Any) -> str:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    (name,) = re.findall(r"SortMergeJoin|BroadcastHashJoin|ShuffledHashJoin", plan)
    return str(name)


@pytest.mark.parametrize(
    ("columns", "row"), [(["weight"], 16), (["person", "weight"], 24), (["person", "state"], 36)]
)
def test_sizes_are_like_those_of_parquet(
    spark: Any, tables: Path, pushdown: Any, columns: list[str], row: int
) -> None:
    """`row` is Spark's size of a row. What compresses to less than a third of it counts for that."""
    pushdown(True, False)
    lance, parquet = (
        size_of(read(spark, tables, form, "people").select(*columns))
        for form in ("lance", "parquet")
    )
    assert 0.5 * parquet < lance < 1.25 * max(parquet, ROWS * row / 3)


def test_a_table_is_broadcast_where_it_is_in_parquet(
    spark: Any, tables: Path, pushdown: Any, threshold: Any
) -> None:
    pushdown(True, False)

    def joined(form: str) -> Any:
        people = read(spark, tables, form, "people").select("person", "weight")
        sales = read(spark, tables, form, "sales")
        return sales.join(people, sales.buyer == people.person).agg({"weight": "max"})

    # Less than the rows take in Spark.
    threshold(ROWS * 24 // 2)
    assert size_of(read(spark, tables, "parquet", "people").select("person", "weight")) < ROWS * 12
    assert join_of(joined("parquet")) == join_of(joined("lance")) == "BroadcastHashJoin"
    assert sorted(joined("lance").collect()) == sorted(joined("parquet").collect())


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("state = 'state 7'", "BroadcastHashJoin"),
        ("state = 'no such state'", "BroadcastHashJoin"),
        ("state IN ('state 7', 'state 8') AND level = 'college'", "BroadcastHashJoin"),
        # All rows are next to each other, so that a sample may have none of them.
        ("part = 33", "BroadcastHashJoin"),
        ("level <> 'college'", "SortMergeJoin"),
        ("part >= 20", "SortMergeJoin"),
        ("state IS NOT NULL", "SortMergeJoin"),
    ],
)
def test_a_large_table_is_broadcast_if_filters_leave_little(
    spark: Any, tables: Path, pushdown: Any, threshold: Any, condition: str, expected: str
) -> None:
    pushdown(True, False)
    whole = size_of(read(spark, tables, "lance", "people").select("person"))
    threshold(whole // 2)

    def joined(form: str) -> Any:
        people = read(spark, tables, form, "people").where(condition).select("person")
        sales = read(spark, tables, form, "sales")
        return sales.join(people, sales.buyer == people.person).groupBy().count()

    assert join_of(joined("lance")) == expected
    assert joined("lance").collect() == joined("parquet").collect()


def test_rows_that_indexes_rule_out_are_not_in_the_size(
    spark: Any, tables: Path, pushdown: Any, tmp_path: Path
) -> None:
    import lance

    pushdown(True, False)
    path = str(tmp_path / "t.lance")
    rows = pa.table({"key": np.arange(ROWS), "value": np.random.default_rng(1).random(ROWS)})
    lance.write_dataset(rows, path).create_scalar_index("key", "BTREE")
    frame = spark.read.format("lance").load(path)
    assert size_of(frame.where("key < 4000")) * 50 < size_of(frame)

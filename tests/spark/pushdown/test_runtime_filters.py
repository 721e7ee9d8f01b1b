"""Filters by the keys of the other side of a join: Parquet gives the rows, the plan the filter."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.support.spark.metrics import counted
from tests.support.spark.settings import settings
from tests.support.spark.versions import SPARK

FRAGMENTS = 6
ROWS = 400
#: Spark 4.0 does not see the filters that a scan has taken, and adds no filter by keys.
ADDS_FILTERS = SPARK >= (4, 1)


def facts() -> pa.Table:
    ids = np.arange(FRAGMENTS * ROWS)
    missing = ids % 11 == 5
    words = pa.array([f"w{row % 97}" for row in ids])
    return pa.table(
        {
            "id": ids,
            "key": pa.array(ids // 4, mask=missing),
            "small": pa.array((ids % 50).astype(np.int16)),
            "word": pa.array([None if row % 7 == 3 else f"w{row % 97}" for row in ids]),
            "day": pa.array([dt.date(2024, 1, 1) + dt.timedelta(int(row) % 60) for row in ids]),
            "at": pa.array((ids % 80) * 3_600_000_000, pa.timestamp("us", "UTC")),
            "cents": pa.array([decimal.Decimal(int(row % 70)).scaleb(-2) for row in ids]),
            "ratio": (ids % 30) / 2,
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(np.repeat(ids, 3).astype(np.float32)), 3
            ),
            "inner": pa.StructArray.from_arrays([pa.array(ids // 4), words], ["key", "word"]),
        }
    )


def names() -> pa.Table:
    keys = np.arange(FRAGMENTS * ROWS // 4)
    return pa.table(
        {
            "code": pa.array(keys, mask=keys % 13 == 2),
            "label": [f"w{key % 97}" for key in keys],
            "date": [dt.date(2024, 1, 1) + dt.timedelta(int(key) % 60) for key in keys],
            "hour": pa.array((keys % 80) * 3_600_000_000, pa.timestamp("us", "UTC")),
            "amount": [decimal.Decimal(int(key % 70)).scaleb(-2) for key in keys],
            "half": (keys % 30) / 2,
            "group": pa.array(keys % 40),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tables `facts` and `names`, as Lance tables and as Parquet files."""
    folder = tmp_path_factory.mktemp("runtime_filters")
    rows = facts()
    for start in range(0, len(rows), ROWS):
        part = rows.slice(start, ROWS)
        lance.write_dataset(part, f"{folder}/facts.lance", mode="append")
    lance.dataset(f"{folder}/facts.lance").create_scalar_index("key", "ZONEMAP")
    lance.dataset(f"{folder}/facts.lance").create_scalar_index("id", "BTREE")
    lance.write_dataset(names(), f"{folder}/names.lance")
    pq.write_table(rows, f"{folder}/facts.parquet")
    pq.write_table(names(), f"{folder}/names.parquet")
    return str(folder)


@pytest.fixture
def views(spark: Any, pushdown: Callable[..., None], folder: str) -> Iterator[Callable[[], None]]:
    """Return a function that makes the views `facts` and `names` of the Lance tables."""

    def make() -> None:
        pushdown(True, False)
        for name in ("facts", "names"):
            frame = spark.read.format("lance").load(f"{folder}/{name}.lance")
            frame.createOrReplaceTempView(name)

    yield make
    spark.catalog.dropTempView("facts")
    spark.catalog.dropTempView("names")


def plan_of(frame: Any) -> str:
    """Return the plan after the query has run."""
    text = str(frame._jdf.queryExecution().executedPlan().toString())
    return text.partition("== Initial Plan ==")[0] if "Final Plan" in text else text


@cache
def rows_of_parquet(folder: str, query: str) -> tuple[str, ...]:
    """Return the rows of a query over the Parquet files, which are the same in every session."""
    spark = SparkSession.active()
    for name in ("facts", "names"):
        spark.read.parquet(f"{folder}/{name}.parquet").createOrReplaceTempView(name)
    return tuple(rows_of(spark.sql(query)))


def rows_of(frame: Any) -> list[str]:
    return sorted(map(repr, frame.collect()))


def is_filtered(frame: Any) -> bool:
    """Return whether a scan was filtered by keys when the query ran."""
    return bool(
        re.search(r"RuntimeFilters: \[dynamicpruningexpression\(\w+#\w+ IN ", plan_of(frame))
    )


JOINS = {
    "numbers": "select * from facts join names on key = code where group = 3",
    "strings": "select id, code from facts join names on word = label where group in (3, 4)",
    "dates": "select id, code from facts join names on day = date where group = 3 and code < 300",
    "times": "select id, code from facts join names on at = hour where group = 3",
    "decimals": "select id, code from facts join names on cents = amount where group = 3",
    "widened": "select id, code from facts join names on small = code where group < 3",
    "fractions": "select id, code from facts join names on ratio = half where group = 3",
    "children": "select id, code from facts join names on inner.key = code where group = 3",
    "two keys": "select id from facts join names on key = code and word = label where group < 9",
    "semi": "select id, vector from facts where key in (select code from names where group = 3)",
    "exists": "select id from facts where exists "
    "(select 1 from names where code = key and label like 'w1%')",
    "anti": "select id from facts where key not in "
    "(select code from names where group = 3 and code is not null)",
    "not exists": "select id from facts where not exists "
    "(select 1 from names where code = key and group = 3)",
    "left": "select id, code from facts left join names on key = code and group = 3",
    "right": "select id, code from facts right join names on key = code and id < 500 "
    "where group = 3",
    "full": "select id, code from (select * from facts where id < 90) full join "
    "(select * from names where group = 3) on key = code",
    "null-safe": "select id, code from facts join names on key <=> code where group = 3",
    "no keys": "select id from facts join names on key = code where group = 3 and label = 'none'",
    "limit": "select count(id) from (select * from facts limit 1000000) join names on key = code "
    "where group = 3",
    "aggregate": "select key, n from (select key, count(*) n from facts group by key) "
    "join names on key = code where group = 3",
    "itself": "select a.id, b.id from facts a join facts b on a.key = b.key where b.small = 7",
    "twice": "select sum(id) from facts join names on key = code where group = 3 "
    "union all select sum(id) from facts",
    "three": "select a.id from facts a join names n on a.key = n.code join facts b "
    "on b.id = a.id where n.group = 3 and b.small < 20",
}
FILTERED = {
    *("numbers", "strings", "dates", "times", "decimals", "two keys", "semi"),
    *("exists", "itself", "twice", "three"),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", JOINS)
def test_joins_give_the_rows_of_parquet(
    spark: Any, views: Callable[[], None], folder: str, name: str
) -> None:
    expected = list(rows_of_parquet(folder, JOINS[name]))
    views()
    frame = spark.sql(JOINS[name])
    assert rows_of(frame) == expected
    assert bool(expected) != (name == "no keys")
    if ADDS_FILTERS:
        assert is_filtered(frame) == (name in FILTERED)
    # The plan is run again, and keeps no filter of the first run.
    assert rows_of(frame) == expected


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "values",
    [
        {"spark.sql.adaptive.enabled": "false"},
        {"spark.lance.columnar.enabled": "false"},
        {"spark.sql.codegen.wholeStage": "false"},
        {"spark.lance.pushdown.local": "true"},
        {"spark.sql.autoBroadcastJoinThreshold": "-1"},
        {"spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": "false"},
        {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"},
    ],
    ids=lambda values: "-".join(values).replace("spark.sql.", ""),
)
def test_settings_change_no_row(
    spark: Any, views: Callable[[], None], folder: str, values: dict[str, str]
) -> None:
    for name in ("numbers", "semi", "itself"):
        expected = list(rows_of_parquet(folder, JOINS[name]))
        views()
        with settings(spark, values):
            assert rows_of(spark.sql(JOINS[name])) == expected


@pytest.mark.skipif(not ADDS_FILTERS, reason="Spark 4.0 adds no filter")
def test_fragments_and_rows_are_skipped(spark: Any, views: Callable[[], None]) -> None:
    views()
    query = "select id from facts join names on key = code where group = 1 and code < 100"
    frame = spark.sql(query)
    ids = [row.id for row in frame.collect()]
    # The keys 1, 41 and 81, but for those without a code; the rows of each key follow each other.
    codes = [code for code in (1, 41, 81) if code % 13 != 2]
    assert sorted(ids) == [
        row for code in codes for row in range(4 * code, 4 * code + 4) if row % 11 != 5
    ]
    assert len(ids) in counted(frame)
    # The zone map of the column has the keys of each fragment.
    assert FRAGMENTS - 1 in counted(frame, "numFragmentsSkipped")


@pytest.mark.skipif(not ADDS_FILTERS, reason="Spark 4.0 adds no filter")
def test_an_index_finds_the_keys(spark: Any, views: Callable[[], None]) -> None:
    views()
    frame = spark.sql("select id from facts join names on id = code where group = 1 and code < 100")
    assert sorted(row.id for row in frame.collect()) == [1, 81]
    # The B-tree has the fragment of each key.
    assert FRAGMENTS - 1 in counted(frame, "numFragmentsSkipped")


@pytest.mark.skipif(not ADDS_FILTERS, reason="Spark 4.0 adds no filter")
def test_many_keys_become_a_range(spark: Any, pushdown: Callable[..., None], tmp_path: Any) -> None:
    pushdown(True, False)
    count = 30_000
    ids = np.arange(count)
    lance.write_dataset(pa.table({"id": ids, "key": ids}), tmp_path / "facts.lance")
    codes = pa.table({"code": ids, "even": ids % 2 == 0})
    lance.write_dataset(codes, tmp_path / "codes.lance")
    facts = spark.read.format("lance").load(str(tmp_path / "facts.lance"))
    codes = spark.read.format("lance").load(str(tmp_path / "codes.lance"))
    condition = (sf.col("code") >= 2_000) & (sf.col("code") < 28_000) & sf.col("even")
    frame = facts.join(codes.where(condition), facts.key == codes.code)
    assert sorted(row.id for row in frame.collect()) == list(range(2_000, 28_000, 2))
    assert is_filtered(frame)
    # The range has the odd numbers too.
    assert 27_998 - 2_000 + 1 in counted(frame)


def test_names_that_differ_by_case_only(
    spark: Any, pushdown: Callable[..., None], tmp_path: Any
) -> None:
    pushdown(True, False)
    lance.write_dataset(pa.table({"k": [1, 2, 3], "K": [3, 2, 1]}), tmp_path / "facts.lance")
    lance.write_dataset(pa.table({"code": [1, 2], "use": [True, False]}), tmp_path / "c.lance")
    with settings(spark, {"spark.sql.caseSensitive": "true"}):
        facts = spark.read.format("lance").load(str(tmp_path / "facts.lance"))
        codes = spark.read.format("lance").load(str(tmp_path / "c.lance"))
        frame = facts.join(codes.where("use = true"), codes.code == facts.K)
        assert [(row.k, row.K) for row in frame.collect()] == [(3, 1)]


@pytest.mark.skipif(not ADDS_FILTERS, reason="Spark 4.0 adds no filter")
def test_filters_grow_with_the_joins(
    spark: Any, pushdown: Callable[..., None], tmp_path: Any
) -> None:
    """Each side of a join is filtered by the keys of the other, which has such filters itself."""
    pushdown(True, False)
    lance.write_dataset(pa.table({"id": np.arange(100)}), tmp_path / "t.lance")

    def joined(depth: int) -> Any:
        if depth == 0:
            rows = spark.read.format("lance").load(str(tmp_path / "t.lance"))
            return rows.where("id < 90")
        return joined(depth - 1).join(joined(depth - 1), "id")

    def plans(depth: int) -> float:
        """Return how many plans the plan of a query has for each of its tables."""
        frame = joined(depth)
        assert frame.count() == 90
        text = frame._jdf.queryExecution().executedPlan().toString()
        return text.count("AdaptiveSparkPlan") / 2**depth

    assert is_filtered(joined(1))
    assert plans(4) <= plans(1)

"""Joins with NEAREST BY: exact ones are Spark's own, approximate ones are those of `nearest_join`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.spark.table import LanceTable
from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.versions import SPARK

DIMENSION = 4
#: What the plan of `nearest_join` has, and Spark's own plan of such a join has not.
JOINED = "MapInArrow"

pytestmark = [
    pytest.mark.usefixtures("pushed"),
    pytest.mark.skipif(SPARK < (4, 2), reason="Spark has these joins since 4.2"),
]


@pytest.fixture(scope="module")
def path(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A table with an index, a row without a vector and rows that the index does not cover."""
    lance_spark.enable(spark)
    path = str(tmp_path_factory.mktemp("nearest_by") / "items.lance")
    values = np.random.default_rng(5).standard_normal((330, DIMENSION)).astype(np.float32)
    rows: list[Any] = values.tolist()
    rows[7] = None
    table = pa.table(
        {
            "id": range(330),
            "name": [f"n{number}" for number in range(330)],
            "v": pa.array(rows, pa.list_(pa.float32(), DIMENSION)),
        }
    )
    lance.write_dataset(table[:300], path, max_rows_per_file=100)
    lance.dataset(path).create_index("v", "IVF_FLAT", num_partitions=4)
    lance.write_dataset(table[300:], path, mode="append")
    queries = [(number, values[number].tolist()) for number in (3, 8, 310)]
    frame = spark.createDataFrame([*queries, (1000, None)], "id long, taste array<float>")
    frame.createOrReplaceTempView("users")
    spark.read.format("lance").load(path).createOrReplaceTempView("items")
    yield path
    for name in ("users", "items"):
        spark.catalog.dropTempView(name)


def plan_of(frame: Any) -> str:
    text: str = frame._jdf.queryExecution().toString()
    return text


def rows_of(frame: Any) -> list[Any]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("how", "by"),
    [
        ("INNER JOIN", "DISTANCE l2_distance(users.taste, items.v)"),
        ("LEFT JOIN", "DISTANCE l2_distance(items.v, users.taste)"),
        ("LEFT JOIN", "DISTANCE cosine_distance(taste, v)"),
        ("JOIN", "SIMILARITY dot_product(taste, v)"),
        ("JOIN", "DISTANCE vector_l2_distance(taste, v)"),
        ("LEFT JOIN", "SIMILARITY vector_cosine_similarity(taste, v)"),
        ("JOIN", "SIMILARITY vector_inner_product(v, transform(taste, x -> -x))"),
    ],
)
def test_rows_are_those_of_the_exact_join(spark: Any, path: str, how: str, by: str) -> None:
    text = "SELECT users.id AS user, items.id, name FROM users {} items {} NEAREST 3 BY {}"
    exact = spark.sql(text.format(how, "EXACT", by))
    spark.conf.set("spark.lance.nearest.nprobes", "4")
    try:
        near = spark.sql(text.format(how, "APPROX", by))
    finally:
        spark.conf.unset("spark.lance.nearest.nprobes")
    assert JOINED not in plan_of(exact)
    assert JOINED in plan_of(near)
    assert near.schema == exact.schema
    rows = rows_of(near)
    assert rows == rows_of(exact)
    assert len(rows) == (10 if how == "LEFT JOIN" else 9)


def test_searches_the_index(spark: Any, path: str) -> None:
    """Fewer partitions find the rows that `nearest_join` finds with as many."""
    spark.conf.set("spark.lance.nearest.nprobes", "1")
    try:
        by_statement = spark.sql(
            "SELECT users.id, items.* FROM users JOIN items APPROX NEAREST 50 BY "
            "DISTANCE l2_distance(taste, v)"
        )
    finally:
        spark.conf.unset("spark.lance.nearest.nprobes")
    users = spark.table("users").withColumnRenamed("id", "user")
    joined = LanceTable.forPath(spark, path).nearest_join(users, ("taste", "v"), k=50, nprobes=1)
    statement_ids = sorted((row[0], row[1]) for row in by_statement.collect())
    assert statement_ids == sorted((row.user, row.id) for row in joined.collect())
    every = spark.sql(
        "SELECT * FROM users JOIN items EXACT NEAREST 50 BY DISTANCE l2_distance(taste, v)"
    )
    assert statement_ids != sorted((row[0], row[2]) for row in every.collect())


def test_the_dataframe_api(spark: Any, path: str) -> None:
    users = spark.table("users")
    items = spark.read.format("lance").load(path).select("v", "id")
    from pyspark.sql import functions as f

    distance = f.call_function("l2_distance", users.taste, items.v)
    near = users.nearestByJoin(items, distance, 1, "approx", "distance", joinType="leftouter")
    assert JOINED in plan_of(near)
    rows = {row[0]: row[3] for row in near.collect()}
    assert rows == {3: 3, 8: 8, 310: 310, 1000: None}
    assert near.columns == ["id", "taste", "v", "id"]
    # Both sides may be the same table.
    other = spark.read.format("lance").load(path)
    pair = other.nearestByJoin(
        items, f.call_function("l2_distance", other.v, items.v), 1, "approx", "distance"
    )
    assert all(row[0] == row[4] for row in pair.where(other.id < 20).collect())


def test_a_table_by_name(spark: Any, path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    catalog = TestCatalog.of(spark, "nearest_by", tmp_path_factory.mktemp("nearest_by_names"))
    catalog.sql("CREATE TABLE CAT.t AS SELECT * FROM items")
    text = f"""
        SELECT users.id AS user, n.id FROM users JOIN {catalog.name}.t AS n
        APPROX NEAREST 2 BY DISTANCE l2_distance(n.v, users.taste)
    """
    near = spark.sql(text)
    assert JOINED in plan_of(near)
    exact = spark.sql(text.replace("APPROX", "EXACT"))
    assert rows_of(near) == rows_of(exact)


@pytest.mark.parametrize(
    "text",
    [
        # Conditions on the table, other expressions, other directions.
        "(SELECT * FROM items WHERE id < 50) t APPROX NEAREST 2 BY DISTANCE l2_distance(taste, v)",
        "(SELECT id, name, v FROM items LIMIT 20) t APPROX NEAREST 2 BY DISTANCE "
        "l2_distance(taste, v)",
        "items t APPROX NEAREST 2 BY SIMILARITY l2_distance(taste, v)",
        "items t APPROX NEAREST 2 BY DISTANCE abs(users.id - t.id)",
        "items t APPROX NEAREST 2 BY DISTANCE l2_distance(t.v, array(1f, 0f, 0f, 0f)) + 1",
    ],
)
def test_other_joins_are_left_to_spark(spark: Any, path: str, text: str) -> None:
    near = spark.sql(f"SELECT users.id AS user, t.id FROM users JOIN {text}")
    exact = spark.sql(
        f"SELECT users.id AS user, t.id FROM users JOIN {text.replace('APPROX', 'EXACT')}"
    )
    assert JOINED not in plan_of(near)
    assert rows_of(near) == rows_of(exact)


@pytest.mark.parametrize(
    ("columns", "is_joined"),
    [
        (
            "map('a', id) AS m, named_struct('x', id, 'y', array(id)) AS s, "
            "TIMESTAMP_NTZ '2020-01-02 03:04:05' AS t, timestamp_seconds(id) AS u, "
            "CAST(id AS DECIMAL(20, 3)) AS d, INTERVAL '1' DAY AS i, X'00FF' AS b, NULL AS n, "
            "CAST(id AS FLOAT) AS f, date_from_unix_date(1) AS a, true AS c, id AS id, id AS id",
            True,
        ),
        ("parse_json('[1, \"x\"]') AS v", True),
        ("make_interval(1) AS i", False),
    ],
)
def test_types_of_queries(spark: Any, path: str, columns: str, is_joined: bool) -> None:
    text = f"""
        SELECT q.*, items.id AS item FROM (SELECT taste, {columns} FROM users) q
        LEFT JOIN items APPROX NEAREST 1 BY DISTANCE l2_distance(taste, items.v)
    """
    near, exact = spark.sql(text), spark.sql(text.replace("APPROX", "EXACT"))
    assert (JOINED in plan_of(near)) is is_joined
    assert near.schema == exact.schema
    if not is_joined:
        # Python has no values of the type.
        near, exact = near.drop("i"), exact.drop("i")
    # Variants have no equality.
    assert list(map(str, rows_of(near))) == list(map(str, rows_of(exact)))


def test_without_push_down(spark: Any, path: str) -> None:
    text = "SELECT * FROM users JOIN items APPROX NEAREST 2 BY DISTANCE l2_distance(taste, v)"
    spark.conf.set("spark.lance.pushdown.enabled", "false")
    try:
        assert JOINED not in plan_of(spark.sql(text))
    finally:
        spark.conf.set("spark.lance.pushdown.enabled", "true")
    assert JOINED in plan_of(spark.sql(text))

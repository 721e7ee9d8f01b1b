"""Which statements raise which errors of values: Spark over Parquet is the oracle, with ANSI mode and
without. A part of a query that is pushed must not hide an error of another part."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark.versions import SPARK

_ROWS = """
    SELECT id,
      CASE WHEN id = 5 THEN -2147483648 WHEN id % 7 = 0 THEN NULL ELSE id END AS i,
      CASE WHEN id IN (8, 12) THEN 9223372036854775807 ELSE bigint(id) END AS l,
      CASE WHEN id % 5 = 0 THEN 0D ELSE double(id) END AS d,
      CASE WHEN id % 4 = 0 THEN 'x' WHEN id % 9 = 0 THEN NULL ELSE string(id) END AS t,
      CASE WHEN id % 3 = 0 THEN array(1) ELSE array(1, 2, 3) END AS a,
      array(0F, float(id)) AS v,
      int(id % 3) AS k
    FROM (SELECT int(id) AS id FROM range(0, 20, 1, 1))
"""
_QUERIES = [
    "SELECT id FROM {} WHERE abs(i) = 2147483647 AND i > 0",
    "SELECT id FROM {} WHERE i > 0 AND abs(i) = 2147483647",
    "SELECT id FROM {} WHERE (abs(i) = 5 OR k = 1) AND k = 1",
    "SELECT id FROM {} WHERE NOT (l * 2 > 0 AND id < 3)",
    "SELECT count(*) FROM {} WHERE t != 'y' AND CAST(t AS INT) > 3 AND t != 'x'",
    "SELECT id FROM {} WHERE 1 / d > 0 AND d > 0",
    "SELECT abs(i), id FROM {} ORDER BY id LIMIT 3",
    "SELECT id FROM {} ORDER BY id LIMIT 3",
    "SELECT sum(l) FROM {}",
    "SELECT sum(l) + sum(i) FROM {} WHERE id IN (8, 1)",
    "SELECT max(l) + max(i) FROM {}",
    "SELECT k, sum(l) / (count(*) - 7) FROM {} GROUP BY k",
    "SELECT CAST(max(l) AS INT) FROM {}",
    "SELECT id FROM {} WHERE l2_distance(a, array(1, 2, 3)) >= 0 AND id = 1",
    "SELECT id, l2_distance(a, array(1, 2, 3)) FROM {} ORDER BY id DESC LIMIT 1",
]
_SAFE = ["i > 0", "id < 4", "k = 1", "t != 'x'", "i IS NOT NULL", "t IS NULL", "id IN (1, 2, 13)"]
_FAILING = [
    "abs(i) = 7",
    "1 / d > 0.1",
    "CAST(t AS INT) > 3",
    "a[2] = 3",
    "id % k = 0",
    "l + l > 0",
]


def _random_query(choices: random.Random) -> str:
    # With two expressions that raise errors, the tasks of a query compete.
    parts = [choices.choice(_FAILING), *choices.sample(_SAFE, choices.randint(1, 3))]
    choices.shuffle(parts)
    condition = parts[0]
    for part in parts[1:]:
        inner = f"({condition}) OR {part}"
        condition = inner if choices.random() < 0.15 else f"({condition}) AND {part}"
    return f"SELECT {choices.choice(('id', 'count(*)', 'k, t'))} FROM {{}} WHERE {condition}"


def _outcome(spark: Any, query: str) -> Any:
    try:
        return sorted(map(tuple, spark.sql(query).collect()), key=repr)
    except Exception as error:
        condition = getattr(error, "getCondition", None)
        if condition is not None:
            return condition()
        # An error of Java that Spark does not know: its cause, without numbers of tasks.
        return re.findall(r"Exception: .*", str(error))[-1]


@pytest.fixture
def tables(spark: Any, pushed: None, tmp_path: Path) -> Iterator[tuple[str, str]]:
    names = ("errors_oracle", "errors_of_lance")
    for name, provider in zip(names, ("parquet", "lance"), strict=True):
        path = str(tmp_path / name)
        rows = spark.sql(_ROWS).coalesce(1).withMetadata("v", {"arrow.fixed-size-list.size": 2})
        rows.write.format(provider).save(path)
        spark.read.format(provider).load(path).createOrReplaceTempView(name)
    before = spark.conf.get("spark.sql.ansi.enabled")
    yield names
    spark.conf.set("spark.sql.ansi.enabled", before)
    spark.conf.unset("spark.lance.pushdown.local")
    for name in names:
        spark.catalog.dropTempView(name)


def test_errors_are_those_over_parquet(spark: Any, tables: tuple[str, str]) -> None:
    choices = random.Random(20)
    queries = [*_QUERIES, *(_random_query(choices) for _ in range(16))]
    raised = 0
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for query in queries if ansi == "true" else queries[::4]:
            expected, found = (_outcome(spark, query.format(name)) for name in tables)
            assert found == expected, (ansi, query)
            raised += isinstance(expected, str)
    assert raised > 10


@pytest.mark.skipif(SPARK < (4, 1), reason="the plans of Spark 4.0 have other texts")
def test_what_is_pushed_beside_other_expressions(spark: Any, tables: tuple[str, str]) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.lance.pushdown.local", "false")
    for condition, pushed in (
        ("k = 1 AND abs(i) = 7", True),
        ("abs(i) = 7 AND k = 1", False),
        # No value of these raises an error.
        ("lower(t) = 'y' AND k = 1", True),
        ("id % 3 = 0 AND k = 1", True),
        ("CAST(id AS BIGINT) + 0D > 1 AND k = 1", True),
        ("t RLIKE 'x' AND k = 1", True),
        ("l2_distance(v, array(3, 4)) = 5 AND k = 1", True),
        ("l2_distance(v, array(3)) = 5 AND k = 1", False),
    ):
        plan = spark.sql(f"EXPLAIN SELECT id FROM {tables[1]} WHERE {condition}").head()[0]
        assert (".k = 1)" in plan.partition("filters=[")[2].partition("]")[0]) == pushed, condition

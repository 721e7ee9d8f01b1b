"""Aggregates in subqueries over the same rows: one scan has them, and Parquet gives the values."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.support.tables.beside_parquet import write_beside_parquet

ROWS = 300


def rows_of(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    cents = [Decimal(int(value)).scaleb(-2) for value in rng.integers(-9999, 9999, ROWS)]
    return pa.table(
        {
            "id": ids,
            "k": pa.array(rng.integers(0, 50, ROWS).astype(np.int32), mask=ids % 7 == 2),
            "cents": pa.array(cents, pa.decimal128(7, 2), mask=ids % 11 == 3),
            "x": rng.integers(0, 9, ROWS) / 4,
            "word": [f"w{value}" for value in rng.integers(0, 30, ROWS)],
        }
    )


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("subqueries")
    return write_beside_parquet(folder, [rows_of(number) for number in range(2)], {})


def some(*aggregates: str, where: str = "where k < 20", table: str = "t") -> str:
    return ", ".join(f"(select {aggregate} from {table} {where})" for aggregate in aggregates)


IN_TABLE = some("sum(k)", "min(cents)", "count(x)")
#: Queries, and how many scans of the table they have.
QUERIES = {
    f"select {IN_TABLE}": 1,
    # Parts of expressions, with aggregates that a scan takes and others.
    f"select case when (select count(*) from t where k < 20) > 3 then {some('avg(cents)')} "
    f"else {some('avg(x)')} end, {some('count(distinct word)', '0.5 * max(cents)')}": 1,
    # A scan for each condition; equal ones are written in other ways.
    f"select {some('sum(k)', 'max(x)')}, {some('sum(k)', 'max(k)', where='where k > 40')}, "
    f"{some('min(id)', where='where 20 > k')}": 2,
    # Metadata know the count; the others have no condition.
    f"select {some('count(*)', 'sum(k)', 'avg(cents)', where='')}": 2,
    f"select {some('sum(k)')}": 1,
    # Spark sorts rows for the largest string, and not for the others.
    f"select {some('sum(k)', 'count(*)', 'max(word)', where='where k > 1000')}": 2,
    f"select {some('count(*)', 'sum(k)', where='where k > null')}": 0,
    # Subqueries in the conditions of others, and of a subquery that is not merged.
    "select count(*) from t a where x > (select avg(x) from t b where k > "
    f"{some('avg(k)', where='where id < 99')} and k < {some('max(k)', where='where id < 99')})": 3,
    f"select id from t where id in (select a.id from t a join t b on a.id = b.id "
    f"where a.x > {some('avg(x)')} and b.x < {some('max(x)')} + 9)": None,
    f"select id from t where k in ({some('max(k)')[1:-1]}) or k in ({some('min(k)')[1:-1]})": 3,
    f"select k, count(*) from t group by k having count(*) > {some('avg(k)')} - 11 "
    f"and count(*) > {some('min(k)')}": 2,
    "select id, (select count(*) from t b where b.k = a.k and b.id < a.id), "
    f"(select sum(k) from t b where b.k = a.k), {IN_TABLE} from t a where id < 9": None,
    # Other rows in each.
    f"select {some('sum(id)', 'count(*)', where='where rand() < 2')}": 2,
    f"select * from ({some('sum(k) s')[1:-1]}) cross join ({some('count(*) c', where='')[1:-1]})": 2,
    f"select {some('count(*) filter (where x > 1)', 'sum(k) filter (where x < 1)')}": 1,
    "with a as (select * from t where k < 20) "
    f"select {some('sum(k)', 'max(id)', where='', table='a')} from a limit 3": None,
    # Subqueries that become joins, whose keys are not null then, as those around them are.
    "with s as (select t.k, word, sum(cents) total from t join (select id, k from t where k < 9) u "
    "on t.id = u.id group by t.k, word) select * from s a "
    "where total > (select 1.2 * avg(total) from s b where b.word = a.word)": 2,
    "with s as (select k, word, sum(cents) total from t group by k, word) select * from s a "
    "where total > (select 1.2 * avg(total) from s b where b.word = a.word)": 2,
    "select id from t a where x > (select avg(b.x) from t b join t c on b.id = c.k where b.k = a.k "
    "and c.id > (select min(d.id) from t d join t e on d.id = e.id where d.word = c.word))": None,
    "select id from t a where exists (select max(b.x) from t b join t c on b.id = c.k "
    "where b.k = a.k having max(b.x) > 1)": 3,
    "select id from t a where x > (select avg(x) from t b where b.k = a.k and b.id > "
    "(select min(id) from t c where c.word = b.word))": 3,
    "select (select count(*) from t a where x > (select avg(x) from t b where b.k = a.k)), "
    f"{some('sum(k)', where='')}": 3,
    "select a.id, m from t a, lateral (select max(x) m from t b where b.k = a.k) where id < 9": 3,
    # Subqueries in those that become joins before the scans around them are planned.
    "select a.id, s from t a, lateral (select sum(k) s from t b where x > "
    "(select avg(x) from t c where id < 99))": 3,
    "select id from t a where x > (select avg(b.x) from t b where b.k = a.k and b.id in "
    "(select max(id) from t c where x > (select avg(x) from t d where id < 99)))": 4,
    "select id from t where k in (select l.s % 50 from t b, lateral (select sum(k) s from t c "
    "where x > (select avg(x) from t d where id < 99)) l)": None,
    "select id from t where x > (select max(l.s) % 2 from t b, lateral (select sum(k) s from t c "
    "where x > (select avg(x) from t d where id < 99 and k < (select max(k) from t e))) l)": None,
    "select id from t a where id < 9 or exists (select 1 from t b where b.id > a.id and b.k in "
    "(select sum(k) % 9 from t c where x > (select avg(x) from t d where d.id < 99)))": None,
    # Those that are no joins when scans are planned.
    "select id from t a where exists (select max(x) from t b where b.k = a.k having max(x) > 1)": 2,
    "select id from t a where x in (select max(x) from t b where b.k = a.k group by b.word)": 2,
    "select id from t a where x not in (select max(x) from t b where b.k = a.k)": 2,
}


def scans(frame: Any) -> int:
    """Return how many different scans a plan has."""
    text = frame._jdf.queryExecution().executedPlan().toString()
    # Filters name columns by the alias of the query.
    return len(set(re.findall(r"lance pushdown (.*?) partitions", re.sub(r"\b[a-z]\.", "", text))))


def values(frame: Any) -> list[str]:
    return sorted(repr(tuple(row)) for row in frame.collect())


def test_subqueries_over_the_same_rows_have_one_scan(
    spark: Any, pushdown: Callable[..., None], paths: tuple[str, str]
) -> None:
    expected = {}
    spark.read.parquet(paths[1]).createOrReplaceTempView("t")
    for query in QUERIES:
        expected[query] = values(spark.sql(query))
    spark.read.format("lance").load(paths[0]).createOrReplaceTempView("t")
    for local in (False, True):
        pushdown(True, local)
        frames = {query: spark.sql(query) for query in QUERIES}
        if not local:
            assert {query: QUERIES[query] and scans(frames[query]) for query in QUERIES} == QUERIES
        assert {query: values(frame) for query, frame in frames.items()} == expected
    spark.catalog.dropTempView("t")


def test_a_path_that_a_query_names_twice_is_one_table(
    spark: Any, pushdown: Callable[..., None], paths: tuple[str, str]
) -> None:
    pushdown(True, False)
    table = f"lance.`{paths[0]}`"
    frame = spark.sql(f"select {some('sum(k)', 'max(x)', table=table)}")
    assert scans(frame) == 1
    rows = spark.read.parquet(paths[1]).where("k < 20")
    assert values(frame) == values(rows.selectExpr("sum(k)", "max(x)"))


#: Subqueries about rows that have no group.
CORRELATED = [
    "select id, (select count(*) from t b where b.k = a.id {}) from t a where id < 60",
    "select id, (select count(x) + 1 from t b where b.k = a.id and x > 1 {}) from t a where id < 60",
    "select id, (select sum(k) from t b where b.k = a.id {}) from t a where id < 60",
    "select id from t a where id < 60 and 0 = (select count(*) from t b where b.k = a.id {})",
]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("group", ["", "group by k", "group by upper(word)", "group by 'constant'"])
def test_counts_of_missing_groups(
    spark: Any,
    pushdown: Callable[..., None],
    paths: tuple[str, str],
    legacy: bool,
    group: str,
) -> None:
    """A setting of Spark makes the count of a missing group 0, not null."""
    pushdown(True, False)
    setting = "spark.sql.optimizer.decorrelateSubqueryLegacyIncorrectCountHandling.enabled"
    results = {}
    spark.conf.set(setting, str(legacy).lower())
    try:
        for format_name, path in zip(("lance", "parquet"), paths, strict=True):
            rows = spark.read.format(format_name).load(path).where("k > 20")
            rows.createOrReplaceTempView("t")
            results[format_name] = [outcome(spark, query.format(group)) for query in CORRELATED]
    finally:
        spark.conf.unset(setting)
        spark.catalog.dropTempView("t")
    assert results["lance"] == results["parquet"]
    refused = "upper" in group
    assert all(isinstance(rows, list) is not refused for rows in results["parquet"])


def outcome(spark: Any, query: str) -> list[str] | str | None:
    """Return the rows of a query, or the condition of its error."""
    try:
        return values(spark.sql(query))
    except PySparkException as error:
        return error.getCondition()

"""Queries like TPC-H, and random queries, give the same rows with and without push-down, with the
settings of several sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.cells import number_of
from tests.support.spark.query_tables import write_tables
from tests.support.spark.random_queries import Queries, together
from tests.support.spark.settings import INTERPRETED, settings

#: Queries like the TPC-H queries in their names, on three tables.
SHOP = {
    "q1 pricing summary": """
        select g, ok, count(*) n, sum(price) p, min(day) d, max(wide) w, avg(tiny) a from items
        where day <= date'2024-09-02' group by g, ok""",
    "q2 minimum by correlation": """
        select i.id, i.name from items i join orders o on i.order_id = o.id
        where i.price = (select min(price) from items j where j.order_id = o.id) and o.status = 'O'""",
    "q3 shipping priority": """
        select o.id, sum(i.price * (1 - tiny)) revenue, o.day from customers c join orders o on c.id = o.customer
        join items i on i.order_id = o.id where c.name like '%a%' and o.day < date'2024-06-15' and i.day > date'2023-06-15'
        group by o.id, o.day order by revenue desc, o.id limit 10""",
    "q4 order priority": """
        select status, count(*) n from orders o where o.day >= date'2024-02-01' and o.day < date'2024-02-01' + interval '3' month
        and exists (select * from items i where i.order_id = o.id and i.day < i.at) group by status""",
    "q5 local supplier": """
        select c.name, sum(i.price) p from customers c, orders o, items i
        where c.id = o.customer and i.order_id = o.id and i.s.a in (1, 2, 3) group by c.name""",
    "q6 forecast": """
        select sum(price * tiny) revenue from items where day >= date'2023-06-01' and day < date'2024-06-01'
        and x between -5 and 5 and price < 24""",
    "q7 volume": """
        select a.status s1, b.status s2, year(i.day) y, sum(i.price) v from items i join orders a on i.order_id = a.id
        join orders b on i.g = b.id where (a.status = 'O' and b.status = 'F') or (a.status = 'F' and b.status = 'O')
        group by 1, 2, 3""",
    "q8 market share": """
        select year(o.day) y, sum(case when i.s.b = 'a' then i.price else 0 end) / sum(i.price) share
        from items i join orders o on i.order_id = o.id group by 1""",
    "q10 returned": """
        select c.id, c.balance, sum(i.price) r from customers c join orders o on c.id = o.customer
        join items i on i.order_id = o.id where i.ok group by c.id, c.balance order by r desc, c.id limit 20""",
    "q11 important stock": """
        select g, sum(price) v from items group by g having sum(price) > (select sum(price) * 0.0001 from items)""",
    "q12 shipping modes": """
        select name, sum(case when o.status = 'O' or o.status = 'F' then 1 else 0 end) hi from orders o join items i
        on o.id = i.order_id where i.name in ('a', 'ab', 'B') and i.day < date'2024-08-01' group by name""",
    "q13 distribution": """
        select n, count(*) c from (select c.id, count(o.id) n from customers c left outer join orders o
        on c.id = o.customer and o.meta.tag not like '%special%requests%' group by c.id) group by n""",
    "q14 promotion": """
        select 100 * sum(case when name like 'a%' then price else 0 end) / sum(price) p from items
        where at >= timestamp'2024-01-20 00:00:00' and at < timestamp'2024-03-20 00:00:00'""",
    "q15 top supplier": """
        with r as (select g, sum(price) t from items where day >= date'2023-01-01' group by g)
        select g, t from r where t = (select max(t) from r)""",
    "q16 parts": """
        select name, tiny % 5 k, count(distinct order_id) n from items where name <> 'ab' and name not like 'special%'
        and g in (1, 4, 6) and order_id not in (select id from orders where meta.tag like '%b%') group by 1, 2""",
    "q17 small quantity": """
        select sum(price) / 7.0 y from items i where name = 'abc'
        and tiny < (select 0.2 * avg(tiny) from items j where j.g = i.g)""",
    "q18 large volume": """
        select o.id, o.total, sum(i.tiny) q from orders o join items i on o.id = i.order_id
        where o.id in (select order_id from items group by order_id having sum(tiny) > 100) group by 1, 2""",
    "q19 disjunction": """
        select sum(price) from items i, orders o where o.id = i.order_id and (
        (i.name = 'a' and i.tiny between 1 and 110 and o.status = 'O')
        or (i.name = 'ab' and i.tiny between 10 and 120 and o.status in ('F', 'P')) or i.s.c.w = 'B')""",
    "q20 nested in": """
        select name from customers where id in (select customer from orders where id in
        (select order_id from items where s.b like 'a%' and price > 0)) order by name""",
    "q21 waiting": """
        select c.name, count(*) n from customers c, orders o, items i where c.id = o.customer and i.order_id = o.id
        and exists (select * from items j where j.order_id = o.id and j.g <> i.g)
        and not exists (select * from items k where k.order_id = o.id and k.g <> i.g and k.ok) group by c.name""",
    "q22 sales opportunity": """
        select substring(name, 1, 1) k, count(*) n from customers c where balance > (select min(balance) from customers
        where balance > -5.0 and not isnan(balance)) and not exists (select * from orders o where o.customer = c.id) group by 1""",
}
#: So many random queries are one query for Spark.
TOGETHER = 10
SEEDS = range(number_of(1, 30))
SQL = "spark.sql."
#: For so few rows, compiling takes longer than running.
QUICK = {**INTERPRETED, SQL + "shuffle.partitions": "1", SQL + "ansi.enabled": "false"}
#: Settings that change the meaning of a query, or its plan.
SESSIONS: dict[str, dict[str, str]] = {
    "default": {},
    "ANSI": {SQL + "ansi.enabled": "true", SQL + "session.timeZone": "America/New_York"},
    "exact decimals": {
        SQL + "decimalOperations.allowPrecisionLoss": "false",
        SQL + "session.timeZone": "Asia/Kathmandu",
        SQL + "timestampType": "TIMESTAMP_NTZ",
    },
    "legacy": {
        SQL + "session.timeZone": "Australia/Lord_Howe",
        SQL + "legacy.timeParserPolicy": "LEGACY",
        SQL + "legacy.typeCoercion.datetimeToString.enabled": "true",
        SQL + "legacy.castComplexTypesToString.enabled": "true",
        SQL + "legacy.literal.pickMinimumPrecision": "false",
        SQL + "legacy.exponentLiteralAsDecimal.enabled": "true",
        SQL + "legacy.sizeOfNull": "true",
        SQL + "legacy.allowNegativeScaleOfDecimal": "true",
    },
    "names and texts": {
        SQL + "caseSensitive": "true",
        SQL + "parser.escapedStringLiterals": "true",
        SQL + "ansi.enabled": "true",
    },
    "sorted joins": {
        SQL + "autoBroadcastJoinThreshold": "-1",
        SQL + "adaptive.enabled": "false",
        SQL + "exchange.reuse": "false",
        SQL + "shuffle.partitions": "3",
    },
    "costs": {
        SQL + "cbo.enabled": "true",
        SQL + "cbo.joinReorder.enabled": "true",
        SQL + "cbo.starSchemaDetection": "true",
        SQL + "constraintPropagation.enabled": "false",
        SQL + "join.preferSortMergeJoin": "false",
    },
    "fewer rules": {
        SQL + "optimizer.nestedSchemaPruning.enabled": "false",
        SQL + "optimizer.dynamicPartitionPruning.enabled": "false",
        SQL + "optimizer.decorrelateInnerQuery.enabled": "false",
        SQL + "optimizer.expression.nestedPruning.enabled": "false",
        SQL + "codegen.wholeStage": "true",
        SQL + "codegen.factoryMode": "FALLBACK",
    },
}

#: Runs a query without push-down, with it, and with answers while it is planned.
Run = Callable[[str], tuple[Counter[str], Counter[str], Counter[str]]]


@pytest.fixture(scope="module")
def ways(
    spark: Any, pushdown: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """Return the rows of a query without push-down, with tasks only, and with answers while it is
    planned.
    """
    for name, path in write_tables(tmp_path_factory.mktemp("shop")).items():
        spark.read.format("lance").load(path).createOrReplaceTempView(name)

    def run(query: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
        result = []
        for on, local in ((False, False), (True, False), (True, True)):
            pushdown(on, local)
            result.append(Counter(repr(row) for row in spark.sql(query).collect()))
        return result[0], result[1], result[2]

    with settings(spark, QUICK):
        yield run


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", SHOP)
def test_shop(ways: Run, name: str) -> None:
    off, tasks, local = ways(SHOP[name])
    assert tasks == off
    assert local == off
    assert off


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("session", SESSIONS)
def test_random(spark: Any, ways: Run, session: str, seed: int) -> None:
    source = Queries(f"{session} {seed}")
    queries = [source.query() for _ in range(TOGETHER)]
    with settings(spark, SESSIONS[session]):
        off, *with_rule = ways(together(queries))
    for on in with_rule:
        differing = sorted({*(off - on), *(on - off)})
        wrong = {int(row.split("query=")[1].split(",")[0]) for row in differing}
        assert not differing, (
            "\n".join(queries[index] for index in sorted(wrong)) + "\n" + "\n".join(differing[:20])
        )

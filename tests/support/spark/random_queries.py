"""Random queries over the tables of `query_tables`; a seed always gives the same queries. None of
them fails in ANSI mode.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

#: Columns that are compared, and literals to compare them with.
COMPARED = {
    "id": ["0", "17", "99", "200", "-1", "3000000000"],
    "order_id": ["5", "30", "59"],
    "g": ["0", "3", "6", "null"],
    "tiny": ["-128", "0", "127", "300"],
    "small": ["-300", "1", "40000"],
    "x": ["double('nan')", "double('inf')", "-double('inf')", "0.0D", "-0.0D", "0.5D", "1"],
    "f": ["float('nan')", "0.5F", "float('-inf')", "-0.0F", "0.1D"],
    "name": ["''", "'a'", "'ab'", "'ÄÖ'", "'null'", "null"],
    "bin": ["X''", "X'00'", "X'00FF'", "X'80'"],
    "price": ["0", "10.25", "-3.1", "1.005", "99999999.99"],
    "wide": ["0.000001", "-12.5", "1000000"],
    "day": ["date'2024-01-01'", "date'2023-03-05'", "'2024-02-29'"],
    "at": ["timestamp'2024-02-01 00:00:00'", "timestamp'2024-03-10 02:30:00Z'"],
    "clock": ["timestamp_ntz'2024-01-20 00:00:00'", "timestamp_ntz'2024-03-01 07:01:00'"],
    "s.a": ["1", "4", "null"],
    "s.b": ["'a'", "'b_c'", "''"],
    "s.c.u": ["7", "25", "49"],
    "s.c.v": ["double('nan')", "0.0D", "5.5D"],
    "s.c.w": ["'abc'", "'B'"],
    "`odd-name`": ["3", "19"],
    "`Upper Case`": ["'a'", "'special requests'"],
}
TEXTS = ["name", "s.b", "s.c.w", "`Upper Case`"]
ANY = [*COMPARED, "s", "s.c", "list", "parts", "vector", "ok"]
PATTERNS = [
    "'%'",
    "''",
    "'a%'",
    "'%c'",
    "'%b%'",
    "'_b%'",
    "'b\\\\%c'",
    "'b\\\\_c'",
    "'_'",
    "'%Ö'",
    "'a'",
]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
#: Spark evaluates most of these conditions itself. The meaning of the last ones depends on settings.
COMPUTED = [
    *("id % 3 = 1", "length(name) > 2", "try_cast(x as int) > 0", "upper(s.b) = 'B'"),
    *("g + tiny > 3", "price * 2 > 10.5", "price + wide > 5", "wide - 1 < price * tiny"),
    *("year(day) = 2024", "month(at) < 3", "day > clock", "abs(x) >= 2", "size(list) > 1"),
    *("price / 3 > 1.111", "wide * price > 12.3456", "wide / price < 0.1", "price / wide > 1e-6"),
    *("hour(at) < 5", "cast(at as date) = day", "at < clock", "cast(at as string) like '%-02-%'"),
    *("at > timestamp '2024-02-10 20:30:00'", "day = cast(at as date) - 30", "at >= day"),
    *("date_trunc('MONTH', at) = timestamp '2024-02-01'", "day > '2024-02-29'", "g = '3'"),
    *("cast(price as int) = 3", "cast(wide as decimal(12, 1)) > price", "'a' || name = 'ab'"),
    *("size(parts) < 1", "cast(s.c as string) like '%7%'", "clock = timestamp '2024-01-20'"),
    *("name like 'b\\\\%c'", "name = 'b\\\\_c'", "concat(day, '') < '2024-02'", "price < 1e1"),
]
ORDERED = ["id", "g", "tiny", "price", "day", "at", "clock", "s.a", "s.c.u", "name", "x", "f", "ok"]
NUMERIC = ["id", "g", "tiny", "small", "price", "s.a", "s.c.u"]
#: Arguments of sums; types of decimals depend on settings.
SUMMED = ["price * tiny", "price * wide", "wide - g", "price / 7", "hour(at)", "length(name)"]
OUTPUTS = [
    *ANY,
    "bin",
    "s.c.u + 1",
    "parts.n",
    "get(list, 0)",
    "coalesce(g, -1)",
    "concat(name, s.b)",
    "cast(at as string)",
    "price / wide",
    "wide * price",
    "cast(s as string)",
]


class Queries:
    """A source of queries."""

    def __init__(self, seed: int | str) -> None:
        self._rng = random.Random(seed)
        self._choice = self._rng.choice

    def atom(self) -> str:
        choice = self._rng.randrange(14)
        column = self._choice(list(COMPARED))
        literal = self._choice(COMPARED[column])
        if choice < 4:
            return f"{column} {self._choice(OPERATORS)} {literal}"
        if choice == 4:
            items = [self._choice(COMPARED[column]) for _ in range(self._rng.randrange(1, 5))]
            return f"{column} {self._choice(['', 'not '])}in ({', '.join(items)})"
        if choice == 5:
            return f"{self._choice(ANY)} is {self._choice(['', 'not '])}null"
        if choice == 6:
            word = self._choice(["like", "like", "not like"])
            return f"{self._choice(TEXTS)} {word} {self._choice(PATTERNS)}"
        if choice == 7:
            low, high = self._choice(COMPARED[column]), self._choice(COMPARED[column])
            return f"{column} between {low} and {high}"
        if choice == 8:
            return self._choice(["ok", "not ok", "ok = true", "ok <=> null", "ok = (g > 3)"])
        if choice == 9:
            pairs = [("g", "s.a"), ("name", "s.b"), ("x", "s.c.v"), ("x", "f"), ("tiny", "small")]
            left, right = self._choice(pairs)
            return f"{left} {self._choice(OPERATORS)} {right}"
        if choice == 10:
            function = self._choice(["startswith", "endswith", "contains"])
            part = self._choice(["'a'", "'c'", "''", "'Ö'"])
            return f"{function}({self._choice(TEXTS)}, {part})"
        return self._choice(COMPUTED)

    def condition(self, depth: int = 2) -> str:
        if depth == 0 or self._rng.random() < 0.3:
            return self.atom()
        if self._rng.random() < 0.2:
            return f"not ({self.condition(depth - 1)})"
        word = self._choice([" and ", " or "])
        return f"({word.join(self.condition(depth - 1) for _ in range(2))})"

    def where(self) -> str:
        if self._rng.random() < 0.2:
            return ""
        return f" where {self.condition(self._rng.randrange(3))}"

    def columns(self, many: int = 4) -> str:
        picked = self._rng.sample(OUTPUTS, self._rng.randrange(1, many))
        return ", ".join(f"{text} as c{index}" for index, text in enumerate(picked))

    def rows(self) -> str:
        return f"select {self.columns()} from items{self.where()}"

    def star(self) -> str:
        return f"select * from {self._choice(['items', 'nothing'])} where {self.condition()}"

    def counts(self) -> str:
        source = self._choice(["items", "items", "items", "nothing"])
        aggregates = [
            self._choice(
                [
                    "count(*)",
                    f"count({self._choice(ANY)})",
                    f"min({self._choice(ORDERED)})",
                    f"max({self._choice(ORDERED)})",
                    f"sum({self._choice(NUMERIC)})",
                    f"avg({self._choice(['g', 'id', 'price', 'wide'])})",
                    f"sum({self._choice(SUMMED)})",
                    f"count(distinct {self._choice(ORDERED)})",
                    f"count(*) filter (where {self.atom()})",
                ][: 4 if self._rng.random() < 0.5 else None]
            )
            for _ in range(self._rng.randrange(1, 5))
        ]
        listed = ", ".join(f"{text} as c{index}" for index, text in enumerate(aggregates))
        return f"select {listed} from {source}{self.where()}"

    def groups(self) -> str:
        keys = [
            "g",
            "ok",
            "name",
            "s.a",
            "day",
            "s.c",
            "cast(at as date)",
            "hour(at)",
            "price * 1.5",
        ]
        key = self._choice(keys)
        having = self._choice(["", " having count(*) > 3"])
        value = self._choice(ORDERED)
        return (
            f"select {key} as k, count(*) as n, max({value}) as m, sum(id) as t from items{self.where()} "
            f"group by {key}{having}"
        )

    def limits(self) -> str:
        many = self._rng.randrange(0, 260)
        inner = f"select {self.columns()} from items{self.where()} limit {many}"
        return f"select count(*) as n from ({inner})"

    def tops(self) -> str:
        order = self._choice(["x desc, id", "s.b, id desc", "price nulls last, id", "id"])
        offset = self._choice(["", f" offset {self._rng.randrange(9)}"])
        many = self._rng.randrange(1, 20)
        return (
            f"select id, {self.columns()} from items{self.where()} "
            f"order by {order} limit {many}{offset}"
        )

    def joins(self) -> str:
        join = self._choice(["join", "left join", "right join", "left semi join", "left anti join"])
        wanted = (
            "i.id, i.s.c"
            if "semi" in join or "anti" in join
            else "i.id as a, o.id as b, o.meta.tag"
        )
        return (
            f"select {wanted} from (select * from items{self.where()}) i {join} orders o "
            f"on i.order_id = o.id and o.status <> '{self._choice('OFP')}'"
        )

    def selfs(self) -> str:
        return (
            f"select a.id as a, b.id as b, b.s.b from items a join (select * from items{self.where()}) b "
            f"on a.g = b.tiny and a.{self._choice(['id < 40', 'ok', 's.a > 2'])}"
        )

    def subqueries(self) -> str:
        return self._choice(
            [
                f"select id from items where order_id in (select id from orders where status = 'O') and {self.condition(1)}",
                f"select id, s.b from items i where exists (select 1 from orders o where o.id = i.order_id and o.total > 20) "
                f"or {self.atom()}",
                f"select id from items where id > (select avg(id) from items{self.where()})",
                f"select o.id, (select count(*) from items i where i.order_id = o.id and {self.atom()}) as n from orders o",
                "select o.id, x.m from orders o, lateral (select max(i.id) as m from items i where i.order_id = o.id) x",
            ]
        )

    def shapes(self) -> str:
        return self._choice(
            [
                f"select distinct g, s.a from items{self.where()}",
                f"select id, e.k, e.n from items lateral view explode(parts) t as e where {self.atom()}",
                f"select id, row_number() over (partition by g order by id) as r, lag(s.b) over (order by id) as l "
                f"from items{self.where()}",
                f"select id from items{self.where()} union all select id from orders where status = 'F'",
                f"select id from items{self.where()} except select id from orders",
                f"with c as (select id, g, s from items{self.where()}) "
                f"select a.id, b.s.a from c a join c b on a.id = b.id",
                f"select * from (select g, ok, id from items{self.where()}) pivot (count(id) for ok in (true, false))",
                f"select g, ok, count(*) as n from items{self.where()} group by cube (g, ok)",
            ]
        )

    def query(self) -> str:
        generators = (
            [self.rows] * 6
            + [self.star]
            + [self.counts] * 5
            + [self.groups] * 2
            + [self.limits, self.tops, self.joins, self.joins, self.selfs, self.subqueries]
            + [self.shapes] * 2
        )
        return self._choice(generators)()


def together(queries: Sequence[str]) -> str:
    """Return one query with the rows of several queries as text, each with the number of its
    query.
    """
    options = "map('ignoreNullFields', 'false')"
    return " union all ".join(
        f"(select {index} as query, to_json(struct(*), {options}) as row from ({text}))"
        for index, text in enumerate(queries)
    )

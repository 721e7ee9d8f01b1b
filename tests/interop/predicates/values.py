"""Random computed values: expressions of a family of types, nested at most two deep."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.interop.predicates import literals
from tests.support.spark.versions import HAS_TIME

_UNITS = ["'year'", "'quarter'", "'month'", "'week'", "'day'", "'hour'", "'minute'", "'second'"]
_INTERVALS = [
    *("INTERVAL 1 DAY", "INTERVAL '3' DAYS", "INTERVAL -2 DAYS", "INTERVAL 1 WEEK"),
    *("INTERVAL 1 MONTH", "INTERVAL '13' MONTH", "INTERVAL -1 YEAR", "INTERVAL '1 year 2 months'"),
]
_SHORT_INTERVALS = ["INTERVAL 1 HOUR", "INTERVAL '90' MINUTES", "INTERVAL '1 day 3 hours'"]


class Values:
    """A source of expressions.

    Parameters
    ----------
    rng : random.Random
    column : callable
        Returns the SQL of a column of one of some families.
    """

    def __init__(self, rng: random.Random, column: Callable[..., Any]) -> None:
        self._rng = rng
        self._choice = rng.choice
        self._column = column
        #: Computed values of the new types of times.
        self._families = ["span", *(["hours"] if HAS_TIME else [])]

    def condition(self) -> str:
        """Return a condition on a computed value."""
        family = self._choice(
            ["number", "number", "number", "text", "text", "date", "time", *self._families]
        )
        value = self._of(family, 2)
        form = self._choice(["{} {} {}"] * 6 + ["{} IS NULL", "{} IN ({})", "{} BETWEEN {} AND {}"])
        if form == "{} IS NULL":
            return f"({value}) IS NULL"
        operands = [self._of(family, self._choice([0, 0, 1])) for _ in range(2)]
        if form == "{} IN ({})":
            return f"({value}) IN ({', '.join(operands)})"
        if form.count("{}") == 3 and "BETWEEN" in form:
            return f"({value}) BETWEEN {operands[0]} AND {operands[1]}"
        op = self._choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
        return f"{value} {op} {operands[0]}"

    def _of(self, family: str, depth: int) -> str:
        if depth == 0 or self._rng.random() < 0.15:
            return self._leaf(family)
        if self._rng.random() < 0.2:
            return self._chosen(family, depth)
        call: Callable[[int], str] = getattr(self, f"_{family}")
        return call(depth - 1)

    def _leaf(self, family: str) -> str:
        if self._rng.random() < 0.3:
            return {
                "number": lambda: self._choice(
                    ["0", "1", "2", "-3", "7", "0.5", "1e1", "100L", "2Y"]
                ),
                "text": lambda: literals.text(
                    self._rng, self._choice(["a", "", "ab", " a ", "Ä", "😀a"])
                ),
                "date": lambda: self._choice(
                    ["DATE '2024-01-31'", "DATE '2024-02-29'", "DATE '1970-01-01'"]
                ),
                "time": lambda: "TIMESTAMP '2024-01-31 12:30:15'",
                "hours": lambda: self._choice(["TIME '12:34:56'", "TIME '23:59:59.999999'"]),
                "span": lambda: self._choice(["INTERVAL '1' DAY", "INTERVAL 90 MINUTES"]),
            }[family]()
        columns = {
            "number": ("integer", "integer", "float", "decimal"),
            "text": ("text",),
            "date": ("day",),
            "time": ("instant",),
            "hours": ("hours",),
            "span": ("span",),
        }
        sql: str = self._column(*columns[family]).sql
        return sql

    def _chosen(self, family: str, depth: int) -> str:
        first, second = self._of(family, depth - 1), self._of(family, depth - 1)
        flag = self._choice([self._column("flag").sql, f"{self._column('integer').sql} > 1"])
        return self._choice(
            [
                f"coalesce({first}, {second})",
                f"nvl({first}, {second})",
                f"if({flag}, {first}, {second})",
                f"CASE WHEN {flag} THEN {first} ELSE {second} END",
                f"CASE WHEN {flag} THEN {first} END",
                f"nullif({first}, {second})",
                f"nvl2({flag}, {first}, {second})",
            ]
        )

    def _number(self, depth: int) -> str:
        first, second = self._of("number", depth), self._of("number", depth)
        text, date, time = (self._of(name, 0) for name in ("text", "date", "time"))
        size = self._choice(
            ["tinyint", "smallint", "int", "bigint", "float", "double", "decimal(20, 3)"]
        )
        return self._choice(
            [
                *(f"({first} {op} {second})" for op in ("+", "-", "*", "%")),
                *(f"({first} {op} {second})" for op in ("/", "DIV")),
                f"({first} % 1000 {self._choice('+-*')} {second} % 100)",
                f"-({first})",
                f"abs({first})",
                f"floor({first})",
                f"cast({first} as {size})",
                f"try_cast({first} as {size})",
                f"try_cast({text} as {size})",
                f"length({self._of('text', depth)})",
                f"{self._choice(['year', 'month', 'day', 'quarter', 'dayofweek'])}({self._choice([date, time])})",
                f"{self._choice(['hour', 'minute', 'second'])}({time})",
                *(self._of_hours() if HAS_TIME else ()),
                f"datediff({date}, {self._choice([date, time])})",
            ]
        )

    def _text(self, depth: int) -> str:
        first, second = self._of("text", depth), self._of("text", depth)
        start, size = self._choice(["-3", "-1", "0", "1", "2"]), self._choice(["0", "1", "2", "9"])
        return self._choice(
            [
                f"lower({first})",
                f"upper({first})",
                f"{self._choice(['trim', 'ltrim', 'rtrim'])}({first})",
                f"substring({first}, {start}, {size})",
                f"substring({first}, {start})",
                f"{self._choice(['left', 'right'])}({first}, {size})",
                f"concat({first}, {second})",
                f"({first} || {second})",
                f"replace({first}, 'a', 'bb')",
                f"cast({self._choice([self._column('integer').sql, self._column('flag').sql, self._column('day').sql])} as string)",
            ]
        )

    def _date(self, depth: int) -> str:
        day, time = self._of("date", depth), self._of("time", depth)
        return self._choice(
            [
                f"({day} {self._choice('+-')} {self._choice(['1', '30', '365'])})",
                f"({day} {self._choice('+-')} {self._choice(_INTERVALS)})",
                f"date_add({day}, 7)",
                f"to_date({time})",
                f"cast({time} as date)",
                f"trunc({day}, {self._choice(_UNITS[:4])})",
                f"try_cast({self._of('text', 0)} as date)",
            ]
        )

    def _time(self, depth: int) -> str:
        instant, date = self._of("time", depth), self._of("date", 0)
        return self._choice(
            [
                f"date_trunc({self._choice(_UNITS)}, {instant})",
                f"({instant} {self._choice('+-')} {self._choice(_INTERVALS + _SHORT_INTERVALS)})",
                f"cast({date} as timestamp)",
                f"to_timestamp({self._column('clock').sql})",
                f"cast({self._column('clock').sql} as timestamp)",
            ]
        )

    def _of_hours(self) -> tuple[str, ...]:
        hour = self._of("hours", 0)
        return tuple(f"{part}({hour})" for part in ("hour", "minute", "second"))

    def _hours(self, depth: int) -> str:
        hour = self._of("hours", depth)
        return self._choice(
            [
                f"({hour} {self._choice('+-')} {self._choice(_SHORT_INTERVALS)})",
                f"cast({hour} as time)",
                f"cast({self._of('text', 0)} as time)",
                f"try_cast({self._of('text', 0)} as time)",
                f"cast(cast({hour} as string) as time)",
                f"time_trunc({self._choice(_UNITS[5:])}, {hour})",
            ]
        )

    def _span(self, depth: int) -> str:
        span, short_span = self._of("span", depth), self._of("span", 0)
        return self._choice(
            [
                f"({span} {self._choice('+-')} {short_span})",
                f"-({span})",
                f"({span} * 2)",
                f"abs({span})",
                f"({self._of('time', 0)} - {self._of('time', 0)})",
            ]
        )

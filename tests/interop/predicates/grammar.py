"""Random predicates of Spark's SQL; the same seed gives the same predicates.

A predicate is a tree: `Tree` has a template with a place for each of its parts, so that a part can
stand for the whole when a failure is made smaller.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tests.interop.predicates import literals
from tests.interop.predicates.columns import COMPARED, NULLABLE, Column
from tests.interop.predicates.values import Values
from tests.support.spark.versions import HAS_TIME

COMPARISONS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]
_TYPES = [
    *("int", "bigint", "smallint", "tinyint", "double", "float", "decimal(10, 2)"),
    *("decimal(38, 18)", "string", "date", "timestamp", "timestamp_ntz", "boolean", "binary"),
    *("interval day to second", *(["time"] if HAS_TIME else [])),
]
#: The share of predicates about columns of the families that are wanted often.
_OFTEN = 0.8
#: Templates of two predicates. Some have no parentheses, so that precedence decides.
_BINARY = [
    *["({}) AND ({})", "({}) OR ({})"] * 6,
    *("{} AND {}", "{} OR {}", "NOT {} AND {}", "NOT {} OR {}", "{} and not {}", "{} or !({})"),
    *("({}) = ({})", "({}) <=> ({})", "({}) <> ({})", "({}) IS DISTINCT FROM ({})", "({}) < ({})"),
]
_UNARY = [
    *["NOT ({})"] * 5,
    *("NOT {}", "!({})", "! {}", "(({}))", "({}) IS TRUE", "({}) IS NOT TRUE", "({}) IS FALSE"),
    *("({}) IS NOT FALSE", "({}) IS UNKNOWN", "({}) IS NOT UNKNOWN", "({}) IS NULL", "({}) = true"),
    *("({}) IS NOT NULL", "isnull({})", "coalesce({}, true)", "({}) IN (true)", "NOT NOT ({})"),
    *("({}) <=> NULL", "/* c */ ({})", "({}) -- c\n", "if({}, true, false)"),
    "CASE WHEN {} THEN true ELSE false END",
]


@dataclass(frozen=True)
class Tree:
    """A predicate: a template, and the predicates in its places."""

    template: str
    parts: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        if not self.parts:
            return self.template
        return self.template.format(*map(str, self.parts))

    def smaller(self) -> Iterator[Tree]:
        """Yield trees with one part less, the smallest trees first."""
        yield from self.parts
        for index, part in enumerate(self.parts):
            for smaller_part in part.smaller():
                yield Tree(
                    self.template, (*self.parts[:index], smaller_part, *self.parts[index + 1 :])
                )


class Predicates:
    """A source of predicates.

    Parameters
    ----------
    seed : int
    names : collection of str
        Top-level columns of the table, in small letters.
    often : collection of str
        Families of columns that most predicates are about.
    """

    def __init__(self, seed: int, names: Collection[str], often: Collection[str] = ()) -> None:
        self._rng = random.Random(seed)
        self._choice = self._rng.choice
        self._values = Values(self._rng, self._column)
        existing_names = {name.lower() for name in names}
        self._columns = [column for column in COMPARED if _top(column.sql) in existing_names]
        self._often = [column for column in self._columns if column.family in often]
        self._nullable = [column for column in NULLABLE if _top(column) in existing_names]

    def predicate(self) -> Tree:
        """Return a predicate, nested at most three deep."""
        return self._tree(self._choice([0, 0, 0, 1, 1, 2, 3]))

    def _tree(self, depth: int) -> Tree:
        if depth == 0:
            return Tree(self._atom())
        if self._rng.random() < 0.3:
            return Tree(self._choice(_UNARY), (self._tree(depth - 1),))
        return Tree(self._choice(_BINARY), (self._tree(depth - 1), self._tree(depth - 1)))

    def _column(self, *families: str) -> Column:
        if not families and self._often and self._rng.random() < _OFTEN:
            return self._choice(self._often)
        fitting = [column for column in self._columns if not families or column.family in families]
        return self._choice(fitting)

    def _literal(self, column: Column) -> str:
        family = column.family
        if self._rng.random() < 0.06:
            family = self._choice(list(literals.FAMILIES))
        return literals.FAMILIES[family](self._rng)

    def _atom(self) -> str:
        generators = [
            *[self._compared] * 10,
            *[self._in, self._between, self._liked] * 2,
            *(self._null, self._distinct, self._columns_compared, self._function, self._cast),
            *(self._arithmetic, self._flag, self._constant),
            *[self._values.condition] * 3,
        ]
        return self._choice(generators)()

    def _compared(self) -> str:
        column = self._column()
        op, literal = self._choice(COMPARISONS), self._literal(column)
        return (
            f"{literal} {op} {column.sql}"
            if self._rng.random() < 0.25
            else f"{column.sql} {op} {literal}"
        )

    def _in(self) -> str:
        column = self._column()
        items = [self._literal(column) for _ in range(self._choice([1, 1, 2, 3, 4, 13]))]
        return f"{column.sql} {self._choice(['', 'NOT '])}IN ({', '.join(items)})"

    def _between(self) -> str:
        column = self._column()
        word = self._choice(["BETWEEN", "BETWEEN", "NOT BETWEEN"])
        if self._rng.random() < 0.1:
            return f"{self._literal(column)} {word} {column.sql} AND {self._literal(column)}"
        return f"{column.sql} {word} {self._literal(column)} AND {self._literal(column)}"

    def _pattern(self) -> str:
        return literals.text(self._rng, self._choice(literals.PATTERNS))

    def _liked(self) -> str:
        column = self._column("text") if self._rng.random() < 0.93 else self._column()
        word = self._choice(
            ["LIKE"] * 5
            + ["NOT LIKE", "ILIKE", "NOT ILIKE", "RLIKE", "NOT RLIKE", "LIKE ANY", "LIKE ALL"]
        )
        if "RLIKE" in word:
            return f"{column.sql} {word} {literals.text(self._rng, self._choice(literals.REGEXES))}"
        if word in ("LIKE ANY", "LIKE ALL"):
            return f"{column.sql} {word} ({self._pattern()}, {self._pattern()})"
        escape = self._choice(
            [""] * 5
            + [
                *(" ESCAPE '!'", " ESCAPE '\\\\'", " ESCAPE '%'", " ESCAPE '_'", " ESCAPE 'ab'"),
                " ESCAPE ''''",
            ]
        )
        return f"{column.sql} {word} {self._pattern()}{escape}"

    def _null(self) -> str:
        name = self._choice([self._column().sql, self._choice(self._nullable)])
        return self._choice(
            [
                *("{} IS NULL", "{} IS NOT NULL", "isnull({})", "isnotnull({})", "NOT {} IS NULL"),
                *("{} <=> NULL", "{} = NULL"),
            ]
        ).format(name)

    def _distinct(self) -> str:
        column = self._column()
        word = self._choice(["IS DISTINCT FROM", "IS NOT DISTINCT FROM", "<=>"])
        operand = (
            self._literal(column) if self._rng.random() < 0.8 else self._column(column.family).sql
        )
        return f"{column.sql} {word} {operand}"

    def _columns_compared(self) -> str:
        left_column = self._column()
        numbers = ("integer", "float", "decimal")
        alike = numbers if left_column.family in numbers else (left_column.family,)
        times = ("day", "instant", "clock")
        alike = times if left_column.family in times else alike
        right_column = self._column(*alike) if self._rng.random() < 0.9 else self._column()
        if self._rng.random() < 0.1:
            return f"{left_column.sql} IN ({right_column.sql}, {self._literal(left_column)})"
        return f"{left_column.sql} {self._choice(COMPARISONS)} {right_column.sql}"

    def _function(self) -> str:
        word, other_word = self._column("text").sql, self._column("text").sql
        part = literals.text(
            self._rng, self._choice(["a", "", "'", "\\", "😀", "%", "b", "O'B", "\n"])
        )
        choices = [
            *(
                f"{name}({word}, {part})"
                for name in ("startswith", "endswith", "contains", "startsWith")
            ),
            *(f"isnan({self._column('float').sql})", f"NOT isnan({self._column('float').sql})"),
            f"isnan({self._column().sql})",
            f"length({word}) {self._choice(COMPARISONS)} {self._choice('0123')}",
            f"{self._choice(['lower', 'upper', 'trim'])}({word}) = {part}",
            f"coalesce({word}, {part}) = {part}",
            f"nvl({self._column('integer').sql}, 0) > {self._choice(literals.WHOLE)}",
            f"abs({self._column('float', 'decimal').sql}) < {self._choice(literals.POINTED)}",
            f"substring({word}, 1, 1) = {part}",
            f"startswith({word}, {other_word})",
            f"contains({self._column('bytes').sql}, X'61')",
            f"startswith({self._column('bytes').sql}, X'ff')",
            f"year({self._column('day', 'instant', 'clock').sql}) = 2024",
            f"coalesce({self._column('span').sql}, INTERVAL '1' DAY) > INTERVAL '1' HOUR",
            f"extract(day from {self._column('span').sql}) = 1",
            *(self._of_hours() if HAS_TIME else ()),
            f"cast({self._column('instant', 'clock').sql} as date) = DATE '2024-01-31'",
            f"date_trunc('day', {self._column('instant').sql}) = TIMESTAMP '2024-01-31 00:00:00'",
            f"regexp_like({word}, {part})",
            f"equal_null({self._column('integer').sql}, 5)",
            f"nullif({word}, {part}) is null",
        ]
        return self._choice(choices)

    def _of_hours(self) -> tuple[str, ...]:
        name = self._column("hours").sql
        return (
            f"hour({name}) = 12",
            f"extract(minute from {name}) = 34",
            f"second({name}) > 30",
            f"cast({name} as string) LIKE '12:%'",
            f"coalesce({name}, TIME '00:00') < TIME '12:00'",
            f"{name} LIKE '12:%'",
        )

    def _cast(self) -> str:
        column, target = self._column(), self._choice(_TYPES)
        cast = self._choice(["cast({} as {})", "cast({} as {})", "{}::{}", "try_cast({} as {})"])
        return (
            f"{cast.format(column.sql, target)} {self._choice(COMPARISONS)} {self._literal(column)}"
        )

    def _arithmetic(self) -> str:
        column = self._column("integer", "float", "decimal").sql
        template = self._choice(
            [
                *("{} + 1", "{} - 0.5", "{} * 2", "{} / 2", "{} % 3", "-{}", "+{}", "{} + {}"),
                *("{} DIV 2", "{} & 1", "~{}"),
            ]
        )
        return f"{template.replace('{}', column)} {self._choice(COMPARISONS)} {literals.number(self._rng)}"

    def _flag(self) -> str:
        name = self._column("flag").sql
        form = self._choice(
            [
                *("{}", "NOT {}", "!{}", "{} = true", "{} IS TRUE", "{} IS NOT TRUE"),
                *("{} IS FALSE", "{} IS UNKNOWN", "true = {}", "{} IN (true, NULL)"),
            ]
        )
        return form.format(name)

    def _constant(self) -> str:
        column = self._column()
        return self._choice(
            [
                *("true", "false", "NULL", "NOT NULL", "1 = 1", "1 > 2", "NULL = NULL"),
                *("NULL <=> NULL", "'a' = 'A'", "1 IN (1, NULL)", "cast(NULL as boolean)"),
                *("1 = '1'", "'a' LIKE 'a%'", "0.1 = 0.1D", "1e0 = 1"),
                "double('NaN') = double('NaN')",
                f"{self._literal(column)} {self._choice(COMPARISONS)} {self._literal(column)}",
            ]
        )


def _top(sql: str) -> str:
    first = sql[1 : sql.index("`", 1)] if sql.startswith("`") else sql.split(".", maxsplit=1)[0]
    return first.lower()

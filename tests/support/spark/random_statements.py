"""Random statements that change rows, each with a query that gives the same rows.

The query reads a view `model`, which has the rows before the statement, and `source`. Spark
evaluates both, so that the query says what the statement means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: Columns of the table. The values of id are unique.
SCHEMA = "id BIGINT, k INT, v DOUBLE, s STRING, st STRUCT<a: INT, b: STRING>"
COLUMNS = ("id", "k", "v", "s", "st")
_CONDITIONS = (
    "{t}k = {n}",
    "{t}k < {n}",
    "{t}v > {n} OR {t}s IS NULL",
    "{t}s LIKE 's{n}%'",
    "{t}st.a = {n}",
    "{t}st IS NULL",
    "{t}id % 3 = {n} % 3",
    "NOT ({t}k = {n})",
    "{t}k IN (1, {n}, NULL)",
    "coalesce({t}k, {n}) > 4",
)
_VALUES = {
    "k": ("{n}", "{t}k + 1", "NULL", "length({t}s)", "-{t}k"),
    "v": ("{t}v * 2", "{n} / 4", "NULL", "{t}k + {t}v"),
    "s": ("concat({t}s, '{n}')", "'s{n}'", "NULL", "upper({t}s)"),
    "st": ("named_struct('a', {n}, 'b', {t}s)", "NULL", "{t}st"),
}
#: Conditions of merges, and whether each new id of the source matches no row. A row of the source
#: may match several rows of the table, and a row of the table at most one of the source.
MATCHES = (
    ("t.id = s.id", True),
    ("t.id <=> s.id", True),
    ("t.k = s.id", False),
    ("t.id = s.id AND t.k <=> s.k", False),
    ("t.id = s.id AND (t.k < {n} OR s.s IS NULL)", False),
    ("s.id = t.id + 1 AND s.k > {n}", False),
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and the query for the rows of the table after it.

    Attributes
    ----------
    text : str
        ``{table}`` stands for the name of the table.
    query : str
        Over the views `model` and `source`.
    """

    text: str
    query: str


class Statements:
    """Makes statements from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._next_id = 0

    def rows(self, count: int) -> list[tuple[object, ...]]:
        """Return new rows with new ids."""
        return [self._row(self._new_id()) for _ in range(count)]

    def source(self) -> list[tuple[object, ...]]:
        """Return rows of a source with some ids of the table and some new ids, each once."""
        old = self._random.sample(range(max(self._next_id, 1)), min(self._next_id, 8))
        return [self._row(number) for number in old] + self.rows(self._random.randrange(3))

    def statement(self) -> Statement:
        """Return a statement."""
        make: Callable[[], Statement] = self._random.choice(
            (self._delete, self._delete_in, self._update, self.merge)
        )
        return make()

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _row(self, number: int) -> tuple[object, ...]:
        chance = self._random
        return (
            number,
            None if chance.random() < 0.2 else chance.randrange(8),
            None if chance.random() < 0.1 else chance.randrange(100) / 4,
            None if chance.random() < 0.2 else f"s{chance.randrange(8)}",
            None if chance.random() < 0.2 else (chance.randrange(8), "b"),
        )

    def _condition(self, table: str = "") -> str:
        texts = self._random.sample(_CONDITIONS, self._random.choice((1, 1, 2)))
        joined = f" {self._random.choice(('AND', 'OR'))} ".join(f"({text})" for text in texts)
        return joined.format(t=table, n=self._random.randrange(8))

    def _assignments(self, table: str = "") -> dict[str, str]:
        names = self._random.sample(sorted(_VALUES), self._random.choice((1, 1, 2, 3)))
        number = self._random.randrange(8)
        return {
            name: self._random.choice(_VALUES[name]).format(t=table, n=number) for name in names
        }

    def _delete(self) -> Statement:
        condition = self._condition()
        return Statement(
            f"DELETE FROM {{table}} WHERE {condition}",
            f"SELECT * FROM model WHERE NOT coalesce({condition}, false)",
        )

    def _delete_in(self) -> Statement:
        negated = self._random.choice(("", "NOT "))
        condition = f"id {negated}IN (SELECT id FROM source WHERE {self._condition()})"
        return Statement(
            f"DELETE FROM {{table}} WHERE {condition}",
            f"SELECT * FROM model WHERE NOT ({condition})",
        )

    def _update(self) -> Statement:
        condition, values = self._condition(), self._assignments()
        where_clause = f" WHERE {condition}"
        if self._random.random() < 0.3:
            condition, where_clause = "true", ""
        sets = ", ".join(f"{name} = {value}" for name, value in values.items())
        columns = [
            f"CASE WHEN {condition} THEN {values[name]} ELSE {name} END AS {name}"
            if name in values
            else name
            for name in COLUMNS
        ]
        return Statement(
            f"UPDATE {{table}} SET {sets}{where_clause}",
            f"SELECT {', '.join(columns)} FROM model",
        )

    def merge(self, match: tuple[str, bool] = MATCHES[0]) -> Statement:
        """Return a merge with one of `MATCHES`. Its query joins both sides, and takes the first
        clause that applies.
        """
        on = match[0].format(n=self._random.randrange(8))
        clauses: list[tuple[str, str, dict[str, str] | None]] = []
        texts: list[str] = []
        matched, target = "t_here AND s_here", "t_here AND s_here IS NULL"
        for _ in range(self._random.choice((0, 1, 2))):
            self._clause(clauses, texts, matched, "WHEN MATCHED", ("t.", "s."))
        # Without the second part, a new row could have the id of another.
        if self._random.random() < 0.6 and match[1]:
            condition = self._condition("s.")
            texts.append(
                f"WHEN NOT MATCHED AND {condition} THEN INSERT (id, k, s) VALUES (id, k + 1, s)"
            )
            new = {"id": "s.id", "k": "s.k + 1", "v": "NULL", "s": "s.s", "st": "NULL"}
            clauses.append(("t_here IS NULL", condition, new))
        if self._random.random() < 0.5 or not texts:
            self._clause(clauses, texts, target, "WHEN NOT MATCHED BY SOURCE", ("t.",))
        chosen = " ".join(
            f"WHEN {side} AND coalesce({condition}, false) THEN {number}"
            for number, (side, condition, _) in enumerate(clauses)
        )
        columns = [self._merged(clauses, name) for name in COLUMNS]
        deleted = [number for number, (_, _, values) in enumerate(clauses) if values is None]
        removed = f"AND c NOT IN ({', '.join(map(str, deleted))})" if deleted else ""
        return Statement(
            f"MERGE INTO {{table}} t USING source s ON {on} {' '.join(texts)}",
            f"SELECT {', '.join(columns)} FROM (SELECT t, s, t_here, CASE {chosen} ELSE -1 END AS c"
            " FROM (SELECT struct(*) AS t, true AS t_here FROM model) FULL OUTER JOIN"
            f" (SELECT struct(*) AS s, true AS s_here FROM source) ON {on})"
            f" WHERE (t_here OR c >= 0) {removed}",
        )

    def _clause(
        self,
        clauses: list[tuple[str, str, dict[str, str] | None]],
        texts: list[str],
        side: str,
        words: str,
        tables: Sequence[str],
    ) -> None:
        condition = self._condition(self._random.choice(tables))
        if self._random.random() < 0.3:
            texts.append(f"{words} AND {condition} THEN DELETE")
            clauses.append((side, condition, None))
            return
        values = self._assignments(self._random.choice(tables))
        sets = ", ".join(f"t.{name} = {value}" for name, value in values.items())
        texts.append(f"{words} AND {condition} THEN UPDATE SET {sets}")
        clauses.append((side, condition, values))

    @staticmethod
    def _merged(clauses: Sequence[tuple[str, str, dict[str, str] | None]], name: str) -> str:
        cases = " ".join(
            f"WHEN {number} THEN {values[name]}"
            for number, (_, _, values) in enumerate(clauses)
            if values is not None and name in values
        )
        return f"CASE c {cases} ELSE t.{name} END AS {name}" if cases else f"t.{name} AS {name}"

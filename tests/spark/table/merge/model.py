"""A model of merges in plain Python, row by row, and clauses to try it with."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
#: An expression in SQL, and as a function of a row of the table and a row of the source. One of
#: the rows may be missing.
Both = tuple[str, Callable[[Row, Row], Any]]


class AmbiguousError(Exception):
    """Several rows of the source match one row."""


@dataclass(frozen=True)
class Clause:
    """A clause for "matched", "new" or "left" rows; `values` is None for deletes, empty for all."""

    rows: str
    condition: Both | None
    values: Mapping[str, Both] | None

    def applies(self, target: Row, source: Row) -> bool:
        return self.condition is None or self.condition[1](target, source) is True

    @property
    def texts(self) -> list[str]:
        condition = [self.condition[0]] if self.condition else []
        return [*condition, *(assignment[0] for assignment in (self.values or {}).values())]

    def add_to(self, builder: Any) -> Any:
        condition = self.condition and self.condition[0]
        prefix = {"matched": "whenMatched", "new": "whenNotMatched"}.get(
            self.rows, "whenNotMatchedBySource"
        )
        if self.values is None:
            return getattr(builder, f"{prefix}Delete")(condition)
        action = "Insert" if self.rows == "new" else "Update"
        if not self.values:
            return getattr(builder, f"{prefix}{action}All")(condition)
        texts = {name: assignment[0] for name, assignment in self.values.items()}
        return getattr(builder, f"{prefix}{action}")(condition, texts)


@dataclass(frozen=True)
class Outcome:
    """Rows by their ids, the ids of those that changed, and rows that are new."""

    kept: dict[int, Row]
    updated: set[int]
    deleted: set[int]
    inserted: list[Row]


def merged(
    rows: Mapping[int, Row], source: list[Row], on: Both, clauses: list[Clause], names: list[str]
) -> Outcome:
    """Merge rows of a source into the rows of a table."""
    kept = {number: dict(row) for number, row in rows.items()}
    changed: dict[int, list[tuple[Clause, Row]]] = {}
    matched_rows: set[int] = set()
    inserted = []
    for source_row in source:
        pairs = [number for number, row in rows.items() if on[1](row, source_row) is True]
        matched_rows.update(pairs)
        for number in pairs:
            clause = first(clauses, "matched", rows[number], source_row)
            if clause is not None:
                changed.setdefault(number, []).append((clause, source_row))
        if not pairs:
            clause = first(clauses, "new", {}, source_row)
            if clause is not None:
                inserted.append(dict.fromkeys(names) | new_values(clause, {}, source_row, names))
    for number in rows.keys() - matched_rows:
        clause = first(clauses, "left", rows[number], {})
        if clause is not None:
            changed[number] = [(clause, {})]
    updated, deleted = set(), set()
    for number, matches in changed.items():
        clause, source_row = matches[0]
        if len(matches) > 1 and any(c.values is not None or c.condition for c, _ in matches):
            raise AmbiguousError(number)
        if clause.values is None:
            deleted.add(number)
            del kept[number]
        else:
            updated.add(number)
            kept[number].update(new_values(clause, rows[number], source_row, names))
    return Outcome(kept, updated, deleted, inserted)


def first(clauses: list[Clause], rows: str, target: Row, source: Row) -> Clause | None:
    return next(
        (clause for clause in clauses if clause.rows == rows and clause.applies(target, source)),
        None,
    )


def new_values(clause: Clause, target: Row, source: Row, names: list[str]) -> Row:
    if not clause.values:
        return {name: value for name, value in source.items() if name in names}
    return {
        name.lower(): assignment[1](target, source) for name, assignment in clause.values.items()
    }


def plus(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b


def more(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a > b


def equal(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a == b


def either(a: Any, b: Any) -> Any:
    """Return OR of three truth values."""
    return True if a is True or b is True else None if a is None or b is None else False


ON: list[Both] = [
    ("t.k = s.k", lambda t, s: equal(t["k"], s["k"])),
    (
        "t.k = s.k AND t.j = s.j",
        lambda t, s: equal(t["k"], s["k"]) is True and equal(t["j"], s["j"]),
    ),
    ("t.k = s.k OR t.v = s.v", lambda t, s: either(equal(t["k"], s["k"]), equal(t["v"], s["v"]))),
    (
        "t.k - s.k BETWEEN 0 AND 1",
        lambda t, s: None if t["k"] is None or s["k"] is None else 0 <= t["k"] - s["k"] <= 1,
    ),
]
_MATCHED: list[Both] = [
    ("t.v > s.v", lambda t, s: more(t["v"], s["v"])),
    ("s.flag", lambda t, s: s["flag"]),
    ("t.j = 1", lambda t, s: equal(t["j"], 1)),
]
# If only one side has a column, its name needs no alias.
_NEW: list[Both] = [("v > 500", lambda t, s: more(s["v"], 500)), ("s.flag", lambda t, s: s["flag"])]
_LEFT: list[Both] = [
    ("v > 30", lambda t, s: more(t["v"], 30)),
    ("t.j = 2", lambda t, s: equal(t["j"], 2)),
]
_SET: list[Mapping[str, Both]] = [
    {"v": ("t.v + s.v", lambda t, s: plus(t["v"], s["v"]))},
    {
        "TEXT": ("s.text", lambda t, s: s["text"]),
        "v": ("t.k * 1000", lambda t, s: None if t["k"] is None else t["k"] * 1000),
    },
    {},
]
_VALUES: list[Mapping[str, Both]] = [
    {"k": ("k", lambda t, s: s["k"]), "v": ("-s.v", lambda t, s: s["v"] and -s["v"])},
    {},
]
_SET_LEFT: list[Mapping[str, Both]] = [
    {"text": ("'gone'", lambda t, s: "gone")},
    {"j": ("j + 10", lambda t, s: plus(t["j"], 10))},
]


def some_clauses(choose: random.Random) -> list[Clause]:
    """Return clauses of all kinds, in a random order that the rules allow."""
    clauses: list[Clause] = []
    for rows, conditions, values in (
        ("matched", _MATCHED, [None, *_SET]),
        ("new", _NEW, _VALUES),
        ("left", _LEFT, [None, *_SET_LEFT]),
    ):
        count = choose.choice([0, 1, 1, 2])
        for number in range(count):
            last = number == count - 1
            condition = None if last and choose.random() < 0.6 else choose.choice(conditions)
            clauses.append(Clause(rows, condition, choose.choice(values)))  # type: ignore[arg-type]
    if not clauses:
        return some_clauses(choose)
    order = [clause.rows for clause in clauses]
    choose.shuffle(order)
    by_rows = {
        rows: iter([clause for clause in clauses if clause.rows == rows]) for rows in set(order)
    }
    return [next(by_rows[rows]) for rows in order]

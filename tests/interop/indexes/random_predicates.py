"""Random conditions on indexed columns, as text for both clients."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

_DEPTH = 2
_OPS = ("=", "=", "<>", "<", "<=", ">", ">=", "BETWEEN", "IN", "NOT IN", "IS NULL", "IS NOT NULL")
#: Comparisons of floats in which both clients have the same order: pylance takes a NaN of negative
#: sign for the least value.
_SAME_FOR_FLOATS = ("=", "IN", "NOT IN", "IS NULL", "IS NOT NULL")

#: The columns that a condition compares with lists of values.
_IN = re.compile(r"([\w.]+) (?:NOT )?IN \(")


@dataclass(frozen=True)
class Predicate:
    """A condition.

    Attributes
    ----------
    own : str
        The text for this package.
    pylance : str or None
        The text for pylance; None if it has no such literal, or another order of values.
    """

    own: str
    pylance: str | None

    def combined(self, word: str, other: Predicate) -> Predicate:
        """Return both conditions joined by AND or OR."""
        text = None
        # pylance takes `c NOT IN (1) OR c NOT IN (2)` for true, also where c is null.
        of_both = set(_IN.findall(self.own)) & set(_IN.findall(other.own))
        if self.pylance is not None and other.pylance is not None and not of_both:
            text = f"({self.pylance}) {word} ({other.pylance})"
        return Predicate(f"({self.own}) {word} ({other.own})", text)

    def negated(self) -> Predicate:
        """Return the negation."""
        text = None if self.pylance is None else f"NOT ({self.pylance})"
        return Predicate(f"NOT ({self.own})", text)


@dataclass(frozen=True)
class Literal:
    """A value as text."""

    own: str
    pylance: str | None


class Predicates:
    """Makes conditions on the columns of a table.

    Parameters
    ----------
    rng : random.Random
    table : pa.Table
        Its values become those of the conditions.
    columns : sequence of str
        Children of structs have paths with dots.
    """

    def __init__(self, rng: random.Random, table: pa.Table, columns: Sequence[str]) -> None:
        self._rng = rng
        self._columns = list(columns)
        self._values: Mapping[str, pa.ChunkedArray] = {
            column: _values(table, column) for column in columns
        }

    def on(self, column: str, depth: int = 0) -> Predicate:
        """Return a condition that has one on a column, and maybe others."""
        draw = self._rng.random()
        if depth < _DEPTH and draw < 0.35:
            other = self.on(self._rng.choice([column, *self._columns]), depth + 1)
            return self.on(column, depth + 1).combined(self._rng.choice(["AND", "OR"]), other)
        leaf = self._leaf(column)
        return leaf.negated() if draw < 0.5 else leaf

    def _leaf(self, column: str) -> Predicate:
        dtype = self._values[column].type
        if pat.is_list(dtype):
            return self._of_lists(column)
        makers: list[Callable[[str], Predicate]] = [self._comparison]
        if pat.is_string(dtype) or pat.is_large_string(dtype):
            makers += [self._of_texts]
        return self._rng.choice(makers)(column)

    def _comparison(self, column: str) -> Predicate:
        dtype = self._values[column].type
        op = self._rng.choice(_OPS)
        if op.startswith("IS"):
            return Predicate(f"{column} {op}", f"{column} {op}")
        if pat.is_boolean(dtype) and op not in ("=", "<>"):
            op = "="
        if op == "BETWEEN":
            low, high = sorted((self._value(column), self._value(column)))
            parts = [literal(low, dtype), literal(high, dtype)]
            own, text = (_joined(parts, side, " AND ") for side in ("own", "pylance"))
        elif op.endswith("IN"):
            parts = [
                literal(self._value(column), dtype) for _ in range(self._rng.choice([1, 2, 5, 40]))
            ]
            own, text = (_joined(parts, side, ", ", "({})") for side in ("own", "pylance"))
        else:
            parts = [literal(self._value(column), dtype)]
            own, text = (_joined(parts, side, "") for side in ("own", "pylance"))
        if pat.is_floating(dtype) and op not in _SAME_FOR_FLOATS:
            text = None
        return Predicate(f"{column} {op} {own}", None if text is None else f"{column} {op} {text}")

    def _of_texts(self, column: str) -> Predicate:
        text = self._value(column).replace("'", "")
        start = self._rng.randrange(len(text) + 1)
        part = text[start : start + self._rng.randrange(1, 7)]
        draw = self._rng.randrange(4)
        if draw == 0:
            return Predicate(f"contains({column}, '{part}')", f"contains({column}, '{part}')")
        if draw == 1:
            return Predicate(f"{column} LIKE '%{part}%'", f"{column} LIKE '%{part}%'")
        if draw == 2:
            return Predicate(f"{column} LIKE '{text[:4]}%'", f"{column} LIKE '{text[:4]}%'")
        return Predicate(
            f"startswith({column}, '{text[:5]}')", f"starts_with({column}, '{text[:5]}')"
        )

    def _of_lists(self, column: str) -> Predicate:
        dtype = self._values[column].type.value_type
        count = self._rng.choice([1, 1, 2, 3])
        items = [literal(self._value(column), dtype) for _ in range(count)]
        text = _joined(items, "own", ", ")
        if count == 1 and self._rng.random() < 0.5:
            return Predicate(f"array_has({column}, {text})", f"array_has({column}, {text})")
        name = self._rng.choice(["array_has_any", "array_has_all"])
        return Predicate(f"{name}({column}, [{text}])", f"{name}({column}, [{text}])")

    def _value(self, column: str) -> Any:
        """Return a value of a column, or an item of its lists, which is not null or NaN."""
        values = self._values[column]
        for _ in range(100):
            value = values[self._rng.randrange(len(values))].as_py()
            if isinstance(value, list):
                value = self._rng.choice(value) if value else None
            if value is not None and value not in (math.inf, -math.inf) and not _is_nan(value):
                return value
        return _ANY[str(values.type)]


#: Values of columns that have none.
_ANY: Mapping[str, Any] = {"int64": 5, "string": "x"}


def literal(value: Any, dtype: pa.DataType) -> Literal:
    """Return a value as text."""
    if pat.is_string(dtype) or pat.is_large_string(dtype):
        text = "'" + value.replace("'", "''") + "'"
        return Literal(text, text)
    if pat.is_binary(dtype) or pat.is_fixed_size_binary(dtype):
        return Literal(f"X'{value.hex()}'", None)
    if pat.is_date(dtype):
        return Literal(f"DATE '{value}'", f"DATE '{value}'")
    if pat.is_timestamp(dtype):
        shown = value.replace(tzinfo=None).isoformat(" ")
        if dtype.tz:
            return Literal(f"TIMESTAMP '{shown}Z'", None)
        return Literal(f"TIMESTAMP_NTZ'{shown}'", f"TIMESTAMP '{shown}'")
    if pat.is_boolean(dtype):
        return Literal(str(value).lower(), str(value).lower())
    if pat.is_floating(dtype):
        return Literal(repr(value), repr(value))
    if pat.is_decimal(dtype):
        # pylance takes a literal with a point for a float.
        return Literal(str(value), str(int(value)) if value == int(value) else None)
    return Literal(str(value), str(value))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _joined(parts: Sequence[Literal], side: str, by: str, form: str = "{}") -> str | None:
    texts = [getattr(part, side) for part in parts]
    return None if None in texts else form.format(by.join(texts))


def _values(table: pa.Table, column: str) -> pa.ChunkedArray:
    first, *others = column.split(".")
    values = table[first]
    for name in others:
        values = pa.chunked_array([chunk.field(name) for chunk in values.chunks])
    return values

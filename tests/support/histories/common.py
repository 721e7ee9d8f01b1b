"""Helpers for changes of random histories: names and keys, conditions on rows, and literals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

import lance
import pyarrow as pa

from tests.support.histories.model import (
    FLOATS,
    INTEGERS,
    STRINGS,
    TYPES,
    WORDS,
    Change,
    Column,
    Row,
    Rows,
    State,
    not_null,
    random_value,
)

Operations = lance.LanceOperation
SIMPLE = (*INTEGERS, *FLOATS, *STRINGS, pa.bool_())


@dataclass
class Common:
    """State that the changes of a history share: features of the table, and unused names and
    keys.
    """

    data_version: str
    stable: bool
    overlays: bool = False

    def __post_init__(self) -> None:
        self._keys = count()
        self._numbers = count()

    @property
    def solid(self) -> bool:
        return self.data_version == "2.0"

    def required(self, column: Column) -> bool:
        """Return whether all rows must have a value."""
        return not column.nullable or (self.solid and pa.types.is_struct(column.type))

    def keys(self, number: int) -> list[int]:
        return [next(self._keys) for _ in range(number)]

    def column(self, random: Random, types: tuple[pa.DataType, ...] = TYPES) -> Column:
        number = next(self._numbers)
        return Column(number, f"c{number}", random.choice(types))

    def fresh_name(self) -> str:
        return f"n{next(self._numbers)}"

    def values(self, columns: tuple[Column, ...], random: Random) -> dict[int, Any]:
        return {column.number: self.value(column, random) for column in columns}

    def value(self, column: Column, random: Random) -> Any:
        make = random_value if column.nullable else not_null
        return make(column.type, random, solid=self.solid)

    def rows(self, columns: tuple[Column, ...], keys: list[int], random: Random) -> Rows:
        return {key: Row(self.values(columns, random)) for key in keys}


Maker = Callable[[Common, State, Random], Change | None]


def first_columns(common: Common, random: Random) -> tuple[Column, ...]:
    types = (pa.int32(), pa.string(), *random.sample(TYPES, random.randrange(4)))
    columns = (common.column(random, (dtype,)) for dtype in types)
    return tuple(replace(column, nullable=random.random() < 0.85) for column in columns)


@dataclass(frozen=True)
class Condition:
    """A predicate for each of both clients, and as a function of a row."""

    filters: list[tuple[Any, ...]]
    sql: str
    meets: Callable[[int, Row], bool]

    def keys(self, state: State) -> list[int]:
        return [key for key, row in state.rows.items() if self.meets(key, row)]


def condition(state: State, random: Random) -> Condition:
    choice = random.random()
    numbers, words = state.of_type(*INTEGERS), state.of_type(*STRINGS)
    if choice < 0.4 and numbers:
        column, low = random.choice(numbers), random.randrange(30)
        high, number = low + random.choice([1, 4, 12]), column.number
        return Condition(
            [(column.name, ">=", low), (column.name, "<", high)],
            f"{column.name} >= {low} AND {column.name} < {high}",
            lambda _, row: (v := row.values.get(number)) is not None and low <= v < high,
        )
    if choice < 0.55 and words:
        column, word = random.choice(words), random.choice(WORDS)
        number = column.number
        return Condition(
            [(column.name, "==", word)],
            f"{column.name} = '{word}'",
            lambda _, row: row.values.get(number) == word,
        )
    if choice < 0.63 and state.columns:
        column = random.choice(state.columns)
        number = column.number
        return Condition(
            [(column.name, "is_null")],
            f"{column.name} IS NULL",
            lambda _, row: row.values.get(number) is None,
        )
    if choice < 0.67:
        return Condition([], "true", lambda _key, _row: True)
    if choice < 0.8 and state.rows:
        # A run of rows, so that sometimes all rows of a fragment are deleted.
        keys = list(state.rows)
        start = random.randrange(len(keys))
        chosen = keys[start : start + random.choice([4, 8, 20])]
    else:
        chosen = random.sample(list(state.rows), min(len(state.rows), random.choice([1, 2, 6])))
    chosen = chosen or [0]
    listed = ", ".join(map(str, chosen))
    result = frozenset(chosen)
    return Condition([("key", "in", chosen)], f"key IN ({listed})", lambda key, _: key in result)


def literal(value: Any, dtype: pa.DataType) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)

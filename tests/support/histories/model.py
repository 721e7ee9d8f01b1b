"""What a table of a random history must hold: versions, columns, rows, row ids, written down by plain Python.

A column is known by a number of its own, so that it stays the same one through renaming and casts; a row by its key, a column that is
never touched. A change is a function of two states: the one that it was planned on, and the newest one when it was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

#: Stands for the number of the version that is being committed.
NOW = -1
WORDS = ["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine"]
KEY = pa.field("key", pa.int64(), nullable=False)

INTEGERS = (pa.int16(), pa.int32(), pa.int64())
FLOATS = (pa.float32(), pa.float64())
STRINGS = (pa.string(), pa.large_string())
VECTOR = pa.list_(pa.float32(), 4)
LABELS = pa.list_(pa.string())
STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
DEEP = pa.struct(
    [("p", pa.struct([("q", pa.int64())])), ("l", pa.list_(pa.int32())), ("z", pa.float64())]
)
ROWS = pa.list_(pa.struct([("m", pa.int32()), ("n", pa.string())]))
TYPES = (
    *INTEGERS,
    *INTEGERS,
    *FLOATS,
    *STRINGS,
    pa.string(),
    pa.bool_(),
    pa.date32(),
    pa.binary(),
    pa.timestamp("us"),
    pa.decimal128(9, 2),
    VECTOR,
    LABELS,
    STRUCT,
    DEEP,
    ROWS,
)


def random_value(dtype: pa.DataType, random: Random, *, solid: bool = False) -> Any:
    """Return a value, sometimes null. With `solid`, leave out nulls that file version 2.0 does not
    keep.
    """
    if random.random() < 0.12 and not (solid and pa.types.is_nested(dtype)):
        return None
    if pa.types.is_integer(dtype):
        return random.randrange(30)
    if pa.types.is_floating(dtype):
        return random.randrange(-40, 40) / 4
    if pa.types.is_boolean(dtype):
        return random.random() < 0.5
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return " ".join(random.choice(WORDS) for _ in range(random.choice([1, 1, 1, 2])))
    if pa.types.is_fixed_size_list(dtype):
        return [float(random.randrange(8)) for _ in range(dtype.list_size)]
    if pa.types.is_list(dtype):
        return [not_null(dtype.value_type, random, solid) for _ in range(random.randrange(1, 4))]
    if pa.types.is_struct(dtype):
        return {item.name[0]: random_value(item.type, random, solid=solid) for item in dtype}
    number = random.randrange(20_000)
    if pa.types.is_binary(dtype):
        return number.to_bytes(random.choice([2, 3, 60]), "little")
    if pa.types.is_decimal(dtype):
        return Decimal(number) / 100
    moment = datetime(2020, 1, 1) + timedelta(minutes=number)
    return moment.date() if pa.types.is_date(dtype) else moment


def not_null(dtype: pa.DataType, random: Random, solid: bool) -> Any:
    while (value := random_value(dtype, random, solid=solid)) is None:
        pass
    return value


def named(value: Any, dtype: pa.DataType) -> Any:
    """Return a value with the names of the children of structs. The model names children by their
    first letter.
    """
    if value is None:
        return None
    if pa.types.is_struct(dtype):
        return {item.name: named(value.get(item.name[0]), item.type) for item in dtype}
    if pa.types.is_list(dtype):
        return [named(item, dtype.value_type) for item in value]
    return value


@dataclass(frozen=True)
class Column:
    """A column. It stays the same column as long as `number` is the same."""

    number: int
    name: str
    type: pa.DataType
    nullable: bool = True

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, self.nullable)


@dataclass(frozen=True)
class Row:
    """The values of a row by number of the column, and its row id and versions in tables with
    stable row ids.

    Attributes
    ----------
    values : mapping
    created, updated : int
        Versions.
    row_id : int or None
        None until it has been seen.
    """

    values: Mapping[int, Any]
    created: int = NOW
    updated: int = NOW
    row_id: int | None = None

    def with_values(self, values: Mapping[int, Any], *, touch: bool = True) -> Row:
        """Return the row with some new values. `touch` says whether this counts as an update."""
        updated = NOW if touch else self.updated
        return replace(self, values={**self.values, **values}, updated=updated)


Rows = Mapping[int, Row]


class KnownBugError(Exception):
    """A bug of pylance explains the result. The history ends here."""


@dataclass(frozen=True)
class State:
    """The content of a version. Rows are mapped by key, in their order as far as it is known."""

    columns: tuple[Column, ...] = ()
    rows: Rows = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([KEY, *(column.field for column in self.columns)])

    def column(self, number: int) -> Column | None:
        return next((column for column in self.columns if column.number == number), None)

    def of_type(self, *types: pa.DataType) -> list[Column]:
        return [column for column in self.columns if column.type in types]

    def with_rows(self, rows: Rows) -> State:
        return replace(self, rows=rows)

    def with_columns(self, columns: tuple[Column, ...]) -> State:
        return replace(self, columns=columns)

    def table(
        self, rows: Rows | None = None, columns: tuple[Column, ...] | None = None
    ) -> pa.Table:
        """Return all rows, or some rows, as a reader must return them."""
        rows = self.rows if rows is None else rows
        columns = self.columns if columns is None else columns
        arrays = [pa.array(list(rows), pa.int64())]
        for column in columns:
            values = [named(row.values.get(column.number), column.type) for row in rows.values()]
            arrays.append(pa.array(values, column.type))
        return pa.table(arrays, schema=pa.schema([KEY, *(column.field for column in columns)]))


def settled(state: State, version: int) -> State:
    """Return the state with the number of its version."""
    rows = {}
    for key, row in state.rows.items():
        created = version if row.created == NOW else row.created
        updated = version if row.updated == NOW else row.updated
        rows[key] = replace(row, created=created, updated=updated)
    return state.with_rows(rows)


@dataclass(frozen=True)
class Change:
    """A change, as each client makes it.

    Attributes
    ----------
    name : str
    ours, theirs : callable or None
        Make it on a handle of the version that it is planned on; None if a client cannot.
    effect : callable
        The state that it leaves, of the one that it was planned on and the newest one.
    keeps_order : bool
        Whether the rows of the effect are in the table's order.
    looks_at : frozenset of int
        Keys of the rows that it was planned on, which nobody may have changed if it is committed as planned.
    commits : bool
        Whether there is a new version for sure.
    gives_back_fragments : bool
        Whether fragments of old versions come back.
    refusal : str
        A word of the error by which both clients may refuse it, in small letters.
    given_back : mapping of int to int
        By key, the version of the last update that pylance may give back to a row that an overlay
        has changed since the change was planned.
    """

    name: str
    ours: Callable[[Any], Any] | None
    theirs: Callable[[Any], Any] | None
    effect: Callable[[State, State], State]
    keeps_order: bool = True
    looks_at: frozenset[int] = frozenset()
    commits: bool = True
    gives_back_fragments: bool = False
    refusal: str = ""
    given_back: Mapping[int, int] = field(default_factory=dict)

"""Changes of columns that random histories are made of: each with what both clients do, and what it leaves."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import lance
import pyarrow as pa

from tests.support.histories.common import (
    Common,
)
from tests.support.histories.model import (
    FLOATS,
    INTEGERS,
    STRINGS,
    Change,
    Column,
    State,
    named,
)


def add_column(common: Common, state: State, random: Random) -> Change:
    column = common.column(random)
    if random.random() < 0.3 and not common.required(column):
        field = column.field
        return Change(
            f"add column {column.name} {column.type} without values",
            lambda dataset: dataset.add_columns(field),
            lambda dataset: dataset.add_columns(field),
            lambda _, now: now.with_columns((*now.columns, column)),
        )
    values = {key: common.value(column, random) for key in state.rows}
    other = common.value(column, random)
    schema = pa.schema([column.field])

    def batch_of(batch: pa.RecordBatch) -> pa.RecordBatch:
        wanted = [named(values.get(key, other), column.type) for key in batch["key"].to_pylist()]
        return pa.record_batch([pa.array(wanted, column.type)], schema=schema)

    def effect(_: State, now: State) -> State:
        rows = {
            key: row.with_values({column.number: values.get(key, other)})
            for key, row in now.rows.items()
        }
        return State((*now.columns, column), rows, now.config, now.metadata)

    return Change(
        f"add column {column.name} {column.type}",
        lambda dataset: dataset.add_columns(batch_of, ["key"], schema),
        lambda dataset: dataset.add_columns(
            lance.batch_udf(output_schema=schema)(batch_of), ["key"]
        ),
        effect,
    )


def drop_column(common: Common, state: State, random: Random) -> Change | None:
    if not state.columns:
        return None
    column = random.choice(state.columns)
    return Change(
        f"drop column {column.name}",
        lambda dataset: dataset.drop_columns([column.name]),
        lambda dataset: dataset.drop_columns([column.name]),
        lambda _, now: now.with_columns(
            tuple(one for one in now.columns if one.number != column.number)
        ),
    )


def _altered(now: State, column: Column, **changes: Any) -> State:
    return now.with_columns(
        tuple(
            replace(one, **changes) if one.number == column.number else one for one in now.columns
        )
    )


def rename_column(common: Common, state: State, random: Random) -> Change | None:
    if not state.columns:
        return None
    column, name = random.choice(state.columns), common.fresh_name()
    alteration = {"path": column.name, "name": name}
    return Change(
        f"rename column {column.name} to {name}",
        lambda dataset: dataset.alter_columns(alteration),
        lambda dataset: dataset.alter_columns(alteration),
        lambda _, now: _altered(now, column, name=name),
    )


def cast_column(common: Common, state: State, random: Random) -> Change | None:
    columns = state.of_type(*INTEGERS, *FLOATS, *STRINGS)
    if not columns:
        return None
    column = random.choice(columns)
    family = next(kinds for kinds in (INTEGERS, FLOATS, STRINGS) if column.type in kinds)
    kind = random.choice([item for item in family if item != column.type])
    alteration = {"path": column.name, "data_type": kind}

    def effect(_: State, now: State) -> State:
        rows = {key: row.with_values({}) for key, row in now.rows.items()}
        return _altered(now, column, type=kind).with_rows(rows)

    return Change(
        f"cast column {column.name} from {column.type} to {kind}",
        lambda dataset: dataset.alter_columns(alteration),
        lambda dataset: dataset.alter_columns(alteration),
        effect,
        refusal="index",
    )


def alter_nullability(common: Common, state: State, random: Random) -> Change | None:
    """Let a column be null, or no longer."""
    if not state.columns:
        return None
    column = random.choice(state.columns)
    alteration = {"path": column.name, "nullable": not column.nullable}
    return Change(
        f"let column {column.name} be {'null' if not column.nullable else 'no null'}",
        lambda dataset: dataset.alter_columns(alteration),
        lambda dataset: dataset.alter_columns(alteration),
        lambda _, now: _altered(now, column, nullable=not column.nullable),
        refusal="null",
    )


def add_child(common: Common, state: State, random: Random) -> Change | None:
    """A struct gets another child without values."""
    structs = [column for column in state.columns if pa.types.is_struct(column.type)]
    if not structs:
        return None
    column = random.choice(structs)
    letters = {child.name[0] for child in column.type}
    letter = next(item for item in "efghijk" if item not in letters)
    child = pa.field(letter, random.choice([pa.int32(), pa.string()]))
    schema = pa.schema([pa.field(column.name, pa.struct([child]))])
    kind = pa.struct([*column.type, child])

    def effect(_: State, now: State) -> State:
        rows = {}
        for key, row in now.rows.items():
            value = row.values.get(column.number)
            # Dropped children of that name are not this one.
            plain = None if value is None else {**value, letter: None}
            rows[key] = row.with_values({column.number: plain}, touch=False)
        return _altered(now, column, type=kind).with_rows(rows)

    return Change(
        f"add column {column.name}.{letter}",
        lambda dataset: dataset.add_columns(schema),
        lambda dataset: dataset.add_columns(schema),
        effect,
        refusal="version",
    )


def alter_child(common: Common, state: State, random: Random) -> Change | None:
    """Drop or rename a child of a struct."""
    structs = [column for column in state.columns if pa.types.is_struct(column.type)]
    if not structs:
        return None
    column = random.choice(structs)
    children = list(column.type)
    place = random.randrange(len(children))
    child = children[place]
    path = f"{column.name}.{child.name}"

    # The struct may have other children by the time that the change is made.
    def without(now: State) -> State:
        left = [item for item in now.column(column.number).type if item.name != child.name]
        if left:
            return _altered(now, column, type=pa.struct(left))
        return now.with_columns(tuple(one for one in now.columns if one.number != column.number))

    def renamed(now: State) -> State:
        there = now.column(column.number).type
        kind = [pa.field(name, item.type) if item.name == child.name else item for item in there]
        return _altered(now, column, type=pa.struct(kind))

    if random.random() < 0.5 and len(children) > 1:
        return Change(
            f"drop column {path}",
            lambda dataset: dataset.drop_columns([path]),
            lambda dataset: dataset.drop_columns([path]),
            lambda _, now: without(now),
        )
    name = f"{child.name[0]}{common.fresh_name()}"
    alteration = {"path": path, "name": name}
    return Change(
        f"rename column {path} to {name}",
        lambda dataset: dataset.alter_columns(alteration),
        lambda dataset: dataset.alter_columns(alteration),
        lambda _, now: renamed(now),
    )

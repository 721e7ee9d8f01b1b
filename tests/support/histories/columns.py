"""Changes of columns in random histories: the calls of both clients, and the effect."""

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
            lambda _, current: current.with_columns((*current.columns, column)),
        )
    values = {key: common.value(column, random) for key in state.rows}
    other_value = common.value(column, random)
    schema = pa.schema([column.field])

    def batch_of(batch: pa.RecordBatch) -> pa.RecordBatch:
        wanted = [
            named(values.get(key, other_value), column.type) for key in batch["key"].to_pylist()
        ]
        return pa.record_batch([pa.array(wanted, column.type)], schema=schema)

    def effect(_: State, current: State) -> State:
        rows = {
            key: row.with_values({column.number: values.get(key, other_value)})
            for key, row in current.rows.items()
        }
        return State((*current.columns, column), rows, current.config, current.metadata)

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
        lambda _, current: current.with_columns(
            tuple(kept for kept in current.columns if kept.number != column.number)
        ),
    )


def _altered(current: State, column: Column, **changes: Any) -> State:
    return current.with_columns(
        tuple(
            replace(table_column, **changes)
            if table_column.number == column.number
            else table_column
            for table_column in current.columns
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
        lambda _, current: _altered(current, column, name=name),
    )


def cast_column(common: Common, state: State, random: Random) -> Change | None:
    columns = state.of_type(*INTEGERS, *FLOATS, *STRINGS)
    if not columns:
        return None
    column = random.choice(columns)
    family = next(types for types in (INTEGERS, FLOATS, STRINGS) if column.type in types)
    dtype = random.choice([item for item in family if item != column.type])
    alteration = {"path": column.name, "data_type": dtype}

    def effect(_: State, current: State) -> State:
        rows = {key: row.with_values({}) for key, row in current.rows.items()}
        return _altered(current, column, type=dtype).with_rows(rows)

    return Change(
        f"cast column {column.name} from {column.type} to {dtype}",
        lambda dataset: dataset.alter_columns(alteration),
        lambda dataset: dataset.alter_columns(alteration),
        effect,
        refusal="index",
    )


def alter_nullability(common: Common, state: State, random: Random) -> Change | None:
    """Make a column nullable, or not nullable."""
    if not state.columns:
        return None
    column = random.choice(state.columns)
    alteration = {"path": column.name, "nullable": not column.nullable}
    return Change(
        f"let column {column.name} be {'null' if not column.nullable else 'no null'}",
        lambda dataset: dataset.alter_columns(alteration),
        lambda dataset: dataset.alter_columns(alteration),
        lambda _, current: _altered(current, column, nullable=not column.nullable),
        refusal="null",
    )


def add_child(common: Common, state: State, random: Random) -> Change | None:
    """Add a child without values to a struct."""
    structs = [column for column in state.columns if pa.types.is_struct(column.type)]
    if not structs:
        return None
    column = random.choice(structs)
    letters = {child.name[0] for child in column.type}
    letter = next(item for item in "efghijk" if item not in letters)
    child = pa.field(letter, random.choice([pa.int32(), pa.string()]))
    schema = pa.schema([pa.field(column.name, pa.struct([child]))])
    struct = pa.struct([*column.type, child])

    def effect(_: State, current: State) -> State:
        rows = {}
        for key, row in current.rows.items():
            value = row.values.get(column.number)
            # Dropped children of the same name are different children.
            plain = None if value is None else {**value, letter: None}
            rows[key] = row.with_values({column.number: plain}, touch=False)
        return _altered(current, column, type=struct).with_rows(rows)

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

    # The struct may have other children when the change is made.
    def without(current: State) -> State:
        remaining = [item for item in current.column(column.number).type if item.name != child.name]
        if remaining:
            return _altered(current, column, type=pa.struct(remaining))
        return current.with_columns(
            tuple(kept for kept in current.columns if kept.number != column.number)
        )

    def renamed(current: State) -> State:
        existing = current.column(column.number).type
        renamed_children = [
            pa.field(name, item.type) if item.name == child.name else item for item in existing
        ]
        return _altered(current, column, type=pa.struct(renamed_children))

    if random.random() < 0.5 and len(children) > 1:
        return Change(
            f"drop column {path}",
            lambda dataset: dataset.drop_columns([path]),
            lambda dataset: dataset.drop_columns([path]),
            lambda _, current: without(current),
        )
    name = f"{child.name[0]}{common.fresh_name()}"
    alteration = {"path": path, "name": name}
    return Change(
        f"rename column {path} to {name}",
        lambda dataset: dataset.alter_columns(alteration),
        lambda dataset: dataset.alter_columns(alteration),
        lambda _, current: renamed(current),
    )

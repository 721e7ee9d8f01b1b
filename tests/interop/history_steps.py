"""The changes that random histories are made of, each with what both clients do and what it leaves.

A maker gets what is common to a history, the state that the change is planned on and randomness, and returns the change, or None if
there is nothing of the kind to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import lance
import pyarrow as pa
from lance.file import LanceFileWriter

import lance_spark
from lance_spark.table.fragment import DataFile
from lance_spark.table.operations.data_replacement import DataReplacement
from tests.interop.history_model import (
    DEEP,
    FLOATS,
    INTEGERS,
    KEY,
    LABELS,
    STRINGS,
    STRUCT,
    TYPES,
    VECTOR,
    WORDS,
    Change,
    Column,
    Row,
    Rows,
    State,
    named,
    not_null,
    random_value,
)

Operations = lance.LanceOperation
SIMPLE = (*INTEGERS, *FLOATS, *STRINGS, pa.bool_())
INDEXES: dict[str, tuple[pa.DataType, ...]] = {
    "BTREE": (*INTEGERS, *FLOATS, *STRINGS, pa.date32()),
    "BITMAP": (*INTEGERS, *STRINGS),
    "LABEL_LIST": (LABELS,),
    "NGRAM": (pa.string(),),
    "ZONEMAP": INTEGERS,
    "BLOOMFILTER": (*INTEGERS, pa.string()),
    "INVERTED": (pa.string(),),
    "IVF_FLAT": (VECTOR,),
}


@dataclass
class Common:
    """What the changes of a history share: the kind of table, and names and keys that were never used."""

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
        """Whether all rows must have a value."""
        return not column.nullable or (self.solid and pa.types.is_struct(column.type))

    def keys(self, number: int) -> list[int]:
        return [next(self._keys) for _ in range(number)]

    def column(self, random: Random, kinds: tuple[pa.DataType, ...] = TYPES) -> Column:
        number = next(self._numbers)
        return Column(number, f"c{number}", random.choice(kinds))

    def fresh_name(self) -> str:
        return f"n{next(self._numbers)}"

    def values(self, columns: tuple[Column, ...], random: Random) -> dict[int, Any]:
        return {one.number: self.value(one, random) for one in columns}

    def value(self, column: Column, random: Random) -> Any:
        make = random_value if column.nullable else not_null
        return make(column.type, random, solid=self.solid)

    def rows(self, columns: tuple[Column, ...], keys: list[int], random: Random) -> Rows:
        return {key: Row(self.values(columns, random)) for key in keys}


Maker = Callable[[Common, State, Random], Change | None]


def append(common: Common, state: State, random: Random) -> Change:
    number = random.choice([1, 2, 5, 12, 30])
    given = tuple(one for one in state.columns if random.random() < 0.9 or common.required(one))
    given = given if random.random() < 0.3 else state.columns
    rows = common.rows(given, common.keys(number), random)
    data, per_file = state.table(rows, given), random.choice([4, 11, 1000])

    def ours(dataset: lance_spark.Dataset) -> None:
        lance_spark.write_dataset(data, dataset.uri, "append", max_rows_per_file=per_file)

    def theirs(dataset: lance.LanceDataset) -> None:
        lance.write_dataset(data, dataset, mode="append", max_rows_per_file=per_file)

    return Change(
        f"append {number} rows of {len(given)} columns",
        ours,
        theirs,
        lambda _, now: now.with_rows({**now.rows, **rows}),
    )


def overwrite(common: Common, state: State, random: Random) -> Change:
    columns = first_columns(common, random)
    rows = common.rows(columns, common.keys(random.choice([0, 3, 20])), random)
    data, version = state.table(rows, columns), common.data_version
    return Change(
        f"overwrite with {len(rows)} rows",
        lambda dataset: lance_spark.write_dataset(
            data, dataset.uri, "overwrite", max_rows_per_file=7
        ),
        lambda dataset: lance.write_dataset(
            data, dataset, mode="overwrite", max_rows_per_file=7, data_storage_version=version
        ),
        lambda _, now: replace(now, columns=columns, rows=rows),
    )


def first_columns(common: Common, random: Random) -> tuple[Column, ...]:
    kinds = (pa.int32(), pa.string(), *random.sample(TYPES, random.randrange(4)))
    columns = (common.column(random, (kind,)) for kind in kinds)
    return tuple(replace(one, nullable=random.random() < 0.85) for one in columns)


@dataclass(frozen=True)
class Condition:
    """A predicate in both spellings, and as a function of a row."""

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
        # A run of rows: fragments go with all their rows now and then.
        keys = list(state.rows)
        start = random.randrange(len(keys))
        chosen = keys[start : start + random.choice([4, 8, 20])]
    else:
        chosen = random.sample(list(state.rows), min(len(state.rows), random.choice([1, 2, 6])))
    chosen = chosen or [0]
    listed = ", ".join(map(str, chosen))
    found = frozenset(chosen)
    return Condition([("key", "in", chosen)], f"key IN ({listed})", lambda key, _: key in found)


def delete(common: Common, state: State, random: Random) -> Change:
    which = condition(state, random)

    def effect(planned: State, now: State) -> State:
        gone = set(which.keys(planned))
        return now.with_rows({key: row for key, row in now.rows.items() if key not in gone})

    return Change(
        f"delete where {which.sql}",
        lambda dataset: dataset.delete(which.filters),
        lambda dataset: dataset.delete(which.sql),
        effect,
        looks_at=frozenset(which.keys(state)),
        commits=False,
    )


def delete_chosen(common: Common, state: State, random: Random) -> Change | None:
    """Rows by id, address or position, with a filter on top or without: by us."""
    if not state.rows:
        return None
    which = condition(state, random)
    chosen = random.sample(list(state.rows), min(len(state.rows), random.choice([1, 3, 10])))
    how = random.choice(["ids", "addresses", "indices"])
    found = frozenset(which.keys(state)) & set(chosen)

    def ours(dataset: lance_spark.Dataset) -> None:
        table = dataset.to_table(["key", "_rowid", "_rowaddr", "_rowoffset"])
        name = {"ids": "_rowid", "addresses": "_rowaddr", "indices": "_rowoffset"}[how]
        pairs = dict(zip(table["key"].to_pylist(), table[name].to_pylist(), strict=True))
        dataset.delete(which.filters, **{how: [pairs[key] for key in chosen]})

    def effect(planned: State, now: State) -> State:
        gone = set(which.keys(planned)) & set(chosen)
        return now.with_rows({key: row for key, row in now.rows.items() if key not in gone})

    return Change(
        f"delete {how} of {chosen} where {which.sql}",
        ours,
        None,
        effect,
        looks_at=found,
        commits=False,
    )


def literal(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def update(common: Common, state: State, random: Random) -> Change | None:
    """Rows with new values, in new fragments."""
    if not state.columns:
        return None
    which = condition(state, random)
    columns = random.sample(state.columns, min(len(state.columns), random.choice([1, 1, 2])))
    values = {one.number: common.value(one, random) for one in columns}
    given = {one.name: pa.scalar(named(values[one.number], one.type), one.type) for one in columns}
    sql = {one.name: literal(values[one.number], one.type) for one in columns}

    def effect(planned: State, now: State) -> State:
        chosen = set(which.keys(planned)) & now.rows.keys()
        stay = {key: row for key, row in now.rows.items() if key not in chosen}
        moved = {key: now.rows[key].with_values(values) for key in now.rows if key in chosen}
        return now.with_rows({**stay, **moved})

    found = which.keys(state)
    return Change(
        f"update {sql} where {which.sql}",
        lambda dataset: dataset.update(given, which.filters),
        (lambda dataset: dataset.update(sql, where=which.sql))
        if all(one.type in SIMPLE for one in columns)
        else None,
        effect,
        keeps_order=not found,
        looks_at=frozenset(found),
        commits=False,
    )


def update_columns(common: Common, state: State, random: Random) -> Change | None:
    """Rows with new values, which stay where they are: new files for the columns."""
    columns = state.of_type(*SIMPLE, VECTOR)
    if not columns or not state.rows:
        return None
    which = condition(state, random)
    column = random.choice(columns)
    value = common.value(column, random)
    found = which.keys(state)
    new = pa.table(
        {
            "key": pa.array(found, pa.int64()),
            column.name: pa.array([value] * len(found), column.type),
        }
    )

    def theirs(dataset: lance.LanceDataset) -> None:
        updated, fields, offsets = [], [], {}
        for fragment in dataset.get_fragments():
            keys = set(fragment.to_table(columns=["key"])["key"].to_pylist())
            if keys.isdisjoint(found):
                continue
            metadata, fields, matched = fragment.update_columns(
                new, left_on="key", right_on="key", with_offsets=True
            )
            updated.append(metadata)
            offsets[fragment.fragment_id] = matched
        operation = Operations.Update(
            updated_fragments=updated,
            fields_modified=fields,
            update_mode="rewrite_columns",
            updated_fragment_offsets=offsets,
        )
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)

    def effect(planned: State, now: State) -> State:
        chosen = set(which.keys(planned))
        return now.with_rows(
            {
                key: row.with_values({column.number: value}) if key in chosen else row
                for key, row in now.rows.items()
            }
        )

    return Change(
        f"update column {column.name} = {value!r} where {which.sql}",
        lambda dataset: dataset.update(
            {column.name: pa.scalar(value, column.type)}, which.filters, mode="columns"
        ),
        theirs if found else None,
        effect,
        looks_at=frozenset(found),
        commits=False,
    )


def merge_insert(common: Common, state: State, random: Random) -> Change | None:
    """Rows that are there get new values, others come in: by pylance, we have none."""
    known = random.sample(list(state.rows), min(len(state.rows), random.choice([0, 1, 5])))
    new = common.keys(random.choice([0, 1, 4]))
    mode = random.choice(["upsert", "upsert", "update", "insert", "partial", "replace"])
    columns = state.columns
    if mode == "partial" and columns:
        columns = tuple(random.sample(columns, 1))
    rows = common.rows(columns, [*known, *new], random)
    if not rows:
        return None
    data = state.table(rows, columns)

    def theirs(dataset: lance.LanceDataset) -> None:
        builder = dataset.merge_insert("key")
        if mode != "insert":
            builder = builder.when_matched_update_all()
        if mode in ("upsert", "insert", "replace"):
            builder = builder.when_not_matched_insert_all()
        if mode == "replace":
            builder = builder.when_not_matched_by_source_delete()
        builder.execute(data)

    def effect(planned: State, now: State) -> State:
        matched = {key for key in rows if key in planned.rows} & now.rows.keys()
        missing = {key: row for key, row in rows.items() if key not in planned.rows}
        result = dict(now.rows)
        if mode != "insert":
            for key in matched:
                result[key] = result.pop(key).with_values(rows[key].values)
        if mode in ("upsert", "insert", "replace"):
            result |= missing
        if mode == "replace":
            # Rows that came in meanwhile were not seen.
            gone = planned.rows.keys() - rows.keys()
            result = {key: row for key, row in result.items() if key not in gone}
        return now.with_rows(result)

    return Change(
        f"merge_insert {mode} of {len(known)} known and {len(new)} new rows, {len(columns)} columns",
        None,
        theirs,
        effect,
        keeps_order=False,
        looks_at=frozenset({"replace": state.rows, "insert": ()}.get(mode, known)),
        commits=False,
    )


def compact(common: Common, state: State, random: Random) -> Change:
    options: dict[str, Any] = {
        "target_rows_per_fragment": random.choice([8, 20, 1000]),
        "materialize_deletions_threshold": random.choice([0.0, 0.1, 0.5]),
    }
    deferred = random.choice([None, False, True]) if not common.stable else None
    named_options = options if deferred is None else {**options, "defer_index_remap": deferred}
    return Change(
        f"compact {named_options}",
        lambda dataset: dataset.compact_files(**named_options),
        lambda dataset: dataset.optimize.compact_files(**named_options),
        lambda _, now: now,
        # Fragments stand in the order of their ids: those that stay come first.
        keeps_order=False,
        commits=False,
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
    kind = random.choice([one for one in family if one != column.type])
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
    structs = [one for one in state.columns if pa.types.is_struct(one.type)]
    if not structs:
        return None
    column = random.choice(structs)
    letters = {child.name[0] for child in column.type}
    letter = next(one for one in "efghijk" if one not in letters)
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
    structs = [one for one in state.columns if pa.types.is_struct(one.type)]
    if not structs:
        return None
    column = random.choice(structs)
    children = list(column.type)
    place = random.randrange(len(children))
    child = children[place]
    path = f"{column.name}.{child.name}"
    if random.random() < 0.5 and len(children) > 1:
        kind = pa.struct(children[:place] + children[place + 1 :])
        return Change(
            f"drop column {path}",
            lambda dataset: dataset.drop_columns([path]),
            lambda dataset: dataset.drop_columns([path]),
            lambda _, now: _altered(now, column, type=kind),
        )
    name = f"{child.name[0]}{common.fresh_name()}"
    kind = pa.struct([*children[:place], pa.field(name, child.type), *children[place + 1 :]])
    alteration = {"path": path, "name": name}
    return Change(
        f"rename column {path} to {name}",
        lambda dataset: dataset.alter_columns(alteration),
        lambda dataset: dataset.alter_columns(alteration),
        lambda _, now: _altered(now, column, type=kind),
    )


def _with(given: Mapping[str, str], values: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**given, **values}
    return {key: value for key, value in merged.items() if value is not None}


def config(common: Common, state: State, random: Random) -> Change:
    key = random.choice(["k1", "k2", "k3"])
    if random.random() < 0.25 and not any("cleanup" in name for name in state.config):
        # Commits remove old versions from now on.
        values = {
            "lance.auto_cleanup.interval": str(random.choice([1, 3])),
            "lance.auto_cleanup.older_than": "0s",
        }
        if random.random() < 0.5:
            values = {**values, "lance.auto_cleanup.retain_versions": "4"}
    else:
        values = {key: str(random.randrange(1000))}
    if key in state.config and random.random() < 0.4:
        return Change(
            f"delete config {key}",
            lambda dataset: dataset.delete_config_keys([key]),
            lambda dataset: dataset.delete_config_keys([key]),
            lambda _, now: replace(now, config=_with(now.config, {key: None})),
        )
    return Change(
        f"set config {values}",
        lambda dataset: dataset.update_config(values),
        lambda dataset: dataset.update_config(values),
        lambda _, now: replace(now, config=_with(now.config, values)),
    )


def metadata(common: Common, state: State, random: Random) -> Change:
    values = {random.choice(["m1", "m2"]): str(random.randrange(1000))}
    instead = random.random() < 0.3
    return Change(
        f"set metadata {values}{' in place of all' if instead else ''}",
        lambda dataset: dataset.update_metadata(values, replace=instead),
        lambda dataset: dataset.update_metadata(values, replace=instead),
        lambda _, now: replace(now, metadata=_with({} if instead else now.metadata, values)),
    )


def schema_metadata(common: Common, state: State, random: Random) -> Change:
    """Metadata of the schema or of a field: only that both clients see the same is looked at."""
    values = {random.choice(["s1", "s2"]): str(random.randrange(1000))}
    name = random.choice([KEY.name, *(one.name for one in state.columns)])
    if random.random() < 0.5:
        return Change(
            f"set schema metadata {values}",
            lambda dataset: dataset.update_schema_metadata(values),
            lambda dataset: dataset.update_schema_metadata(values),
            lambda _, now: now,
        )
    return Change(
        f"set metadata {values} of {name}",
        lambda dataset: dataset.update_field_metadata({name: values}),
        lambda dataset: dataset.update_field_metadata({name: values}),
        lambda _, now: now,
    )


def replace_data(common: Common, state: State, random: Random) -> Change | None:
    """A new file for one column of one fragment, committed by hand."""
    columns = state.of_type(*SIMPLE, VECTOR)
    if not columns or not state.rows:
        return None
    column, key = random.choice(columns), random.choice(list(state.rows))
    seed = random.random()
    found: dict[int, Any] = {}

    def file_of(dataset: lance.LanceDataset) -> tuple[int, lance.fragment.DataFile]:
        for fragment in dataset.get_fragments():
            rows = fragment.to_table(columns=["key"], with_row_address=True)
            keys = rows["key"].to_pylist()
            if key in keys:
                break
        offsets = [address & 0xFFFFFFFF for address in rows["_rowaddr"].to_pylist()]
        physical = fragment.physical_rows
        values = Random(seed)
        new = [common.value(column, values) for _ in range(physical)]
        found.update({one: new[offset] for one, offset in zip(keys, offsets, strict=True)})
        table = pa.table([pa.array(new, column.type)], schema=pa.schema([column.field]))
        file = write_file(common, dataset, table, column.name, f"replaced-{seed}.lance")
        return fragment.fragment_id, file

    def theirs(dataset: lance.LanceDataset) -> None:
        group = Operations.DataReplacementGroup(*file_of(dataset))
        operation = Operations.DataReplacement([group])
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)

    def ours(dataset: lance_spark.Dataset) -> None:
        twin = lance.dataset(dataset.uri, version=dataset.version)
        number, file = file_of(twin)
        new = DataFile(
            file.path,
            tuple(file.fields),
            tuple(file.column_indices),
            file.file_major_version,
            file.file_minor_version,
            file.file_size_bytes,
        )
        type(dataset).commit(dataset, DataReplacement(((number, new),)), dataset.version)

    def effect(_: State, now: State) -> State:
        return now.with_rows(
            {
                one: row.with_values({column.number: found[one]}) if one in found else row
                for one, row in now.rows.items()
            }
        )

    return Change(
        f"replace column {column.name} of the fragment of key {key}", ours, theirs, effect
    )


def create_index(common: Common, state: State, random: Random) -> Change | None:
    children = [
        (f"{column.name}.{child.name}", child.type)
        for column in state.columns
        if pa.types.is_struct(column.type)
        for child in column.type
        if child.type in (*INTEGERS, *STRINGS)
    ]
    paths = [(one.name, one.type) for one in state.columns]
    candidates = [
        (path, kind)
        for path, data_type in (*paths, *children, (KEY.name, KEY.type), (KEY.name, KEY.type))
        for kind, types in INDEXES.items()
        if data_type in types
    ]
    if not candidates or not state.rows:
        return None
    path, kind = random.choice(candidates)

    def theirs(dataset: lance.LanceDataset) -> None:
        if kind == "IVF_FLAT":
            dataset.create_index(path, kind, num_partitions=1, replace=True)
        else:
            dataset.create_scalar_index(path, kind)

    return Change(f"index {kind} on {path}", None, theirs, lambda _, now: now, commits=False)


def optimize_indices(common: Common, state: State, random: Random) -> Change:
    options: dict[str, Any] = random.choice(
        [{}, {"num_indices_to_merge": 0}, {"num_indices_to_merge": 1}, {"num_indices_to_merge": 9}]
    )
    return Change(
        f"optimize indices {options}",
        None,
        lambda dataset: dataset.optimize.optimize_indices(**options),
        lambda _, now: now,
        commits=False,
    )


def overlay(common: Common, state: State, random: Random) -> Change | None:
    """New values for single cells, by pylance, which calls them experimental."""
    columns = state.of_type(*SIMPLE, VECTOR)
    if not common.overlays or not columns or not state.rows:
        return None
    column, key = random.choice(columns), random.choice(list(state.rows))
    near = list(state.rows)[max(list(state.rows).index(key) - 2, 0) :][:5]
    values = {one: common.value(column, random) for one in near}
    name = f"overlay-{random.random()}.lance"
    found: dict[int, Any] = {}

    def theirs(dataset: lance.LanceDataset) -> None:
        for fragment in dataset.get_fragments():
            rows = fragment.to_table(columns=["key"], with_row_address=True)
            keys = rows["key"].to_pylist()
            if key in keys:
                break
        offsets = {
            one: address & 0xFFFFFFFF
            for one, address in zip(keys, rows["_rowaddr"].to_pylist(), strict=True)
            if one in values
        }
        ordered = sorted(offsets, key=lambda one: offsets[one])
        found.update({one: values[one] for one in ordered})
        field = pa.field(column.name, column.type)
        array = pa.array([values[one] for one in ordered], column.type)
        table = pa.table([array], schema=pa.schema([field]))
        file = write_file(common, dataset, table, column.name, name)
        overlay = Operations.DataOverlayFile(file, sorted(offsets.values()))
        group = Operations.DataOverlayGroup(fragment.fragment_id, [overlay])
        operation = Operations.DataOverlay([group])
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)

    def effect(_: State, now: State) -> State:
        return now.with_rows(
            {
                one: row.with_values({column.number: found[one]}) if one in found else row
                for one, row in now.rows.items()
            }
        )

    return Change(f"overlay column {column.name} of keys {near}", None, theirs, effect)


def write_file(
    common: Common, dataset: lance.LanceDataset, table: pa.Table, column: str, name: str
) -> lance.fragment.DataFile:
    """Write a data file of one column into a table."""
    path = Path(dataset.uri) / "data" / name
    path.parent.mkdir(exist_ok=True)
    with LanceFileWriter(str(path), table.schema, version=common.data_version) as writer:
        writer.write_batch(table)
    (field,) = (one.id() for one in dataset.lance_schema.fields() if one.name() == column)
    major, minor = map(int, common.data_version.split("."))
    return lance.fragment.DataFile(name, [field], [0], major, minor, path.stat().st_size)


def drop_index(common: Common, state: State, random: Random) -> Change:
    chosen = random.random()

    def drop(dataset: Any) -> None:
        names = sorted(
            {one["name"] for one in dataset.list_indices() if not one["name"].startswith("__")}
        )
        if names:
            dataset.drop_index(names[int(chosen * len(names))])

    return Change("drop an index", drop, drop, lambda _, now: now, commits=False)


#: Makers with how often they are chosen.
MAKERS: dict[Maker, int] = {
    append: 6,
    delete: 5,
    delete_chosen: 1,
    update: 5,
    update_columns: 4,
    merge_insert: 4,
    compact: 4,
    add_column: 3,
    drop_column: 1,
    rename_column: 1,
    cast_column: 2,
    alter_child: 1,
    add_child: 1,
    alter_nullability: 1,
    config: 1,
    metadata: 1,
    schema_metadata: 1,
    replace_data: 2,
    overlay: 4,
    create_index: 4,
    optimize_indices: 1,
    drop_index: 1,
    overwrite: 1,
}

__all__ = ["DEEP", "MAKERS", "STRUCT", "Common", "Maker", "condition", "first_columns"]

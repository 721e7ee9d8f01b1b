"""Changes of rows in random histories: the calls of both clients, and the effect."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import lance
import pyarrow as pa

import lance_spark
from tests.support.histories.common import (
    SIMPLE,
    Common,
    Operations,
    condition,
    first_columns,
    literal,
)
from tests.support.histories.model import (
    VECTOR,
    Change,
    State,
    named,
)


def append(common: Common, state: State, random: Random) -> Change:
    number = random.choice([1, 2, 5, 12, 30])
    written = tuple(
        column for column in state.columns if random.random() < 0.9 or common.required(column)
    )
    written = written if random.random() < 0.3 else state.columns
    rows = common.rows(written, common.keys(number), random)
    data, per_file = state.table(rows, written), random.choice([4, 11, 1000])

    def ours(dataset: lance_spark.Dataset) -> None:
        lance_spark.write_dataset(data, dataset.uri, "append", max_rows_per_file=per_file)

    def theirs(dataset: lance.LanceDataset) -> None:
        lance.write_dataset(data, dataset, mode="append", max_rows_per_file=per_file)

    return Change(
        f"append {number} rows of {len(written)} columns",
        ours,
        theirs,
        lambda _, current: current.with_rows({**current.rows, **rows}),
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
        lambda _, current: replace(current, columns=columns, rows=rows),
    )


def delete(common: Common, state: State, random: Random) -> Change:
    row_condition = condition(state, random)

    def effect(planned: State, current: State) -> State:
        gone = set(row_condition.keys(planned))
        return current.with_rows({key: row for key, row in current.rows.items() if key not in gone})

    return Change(
        f"delete where {row_condition.sql}",
        lambda dataset: dataset.delete(row_condition.filters),
        lambda dataset: dataset.delete(row_condition.sql),
        effect,
        looks_at=frozenset(row_condition.keys(state)),
        commits=False,
    )


def delete_chosen(common: Common, state: State, random: Random) -> Change | None:
    """Delete rows by id, address or position, with a filter or without. Only this package can do
    it.
    """
    if not state.rows:
        return None
    row_condition = condition(state, random)
    chosen = random.sample(list(state.rows), min(len(state.rows), random.choice([1, 3, 10])))
    choice = random.choice(["ids", "addresses", "indices"])
    result = frozenset(row_condition.keys(state)) & set(chosen)

    def ours(dataset: lance_spark.Dataset) -> None:
        table = dataset.to_table(["key", "_rowid", "_rowaddr", "_rowoffset"])
        name = {"ids": "_rowid", "addresses": "_rowaddr", "indices": "_rowoffset"}[choice]
        pairs = dict(zip(table["key"].to_pylist(), table[name].to_pylist(), strict=True))
        dataset.delete(row_condition.filters, **{choice: [pairs[key] for key in chosen]})

    def effect(planned: State, current: State) -> State:
        gone = set(row_condition.keys(planned)) & set(chosen)
        return current.with_rows({key: row for key, row in current.rows.items() if key not in gone})

    return Change(
        f"delete {choice} of {chosen} where {row_condition.sql}",
        ours,
        None,
        effect,
        looks_at=result,
        commits=False,
    )


def update(common: Common, state: State, random: Random) -> Change | None:
    """Give rows new values, in new fragments."""
    if not state.columns:
        return None
    row_condition = condition(state, random)
    columns = random.sample(state.columns, min(len(state.columns), random.choice([1, 1, 2])))
    values = {column.number: common.value(column, random) for column in columns}
    scalars = {
        column.name: pa.scalar(named(values[column.number], column.type), column.type)
        for column in columns
    }
    sql = {column.name: literal(values[column.number], column.type) for column in columns}

    def effect(planned: State, current: State) -> State:
        chosen = set(row_condition.keys(planned)) & current.rows.keys()
        stay = {key: row for key, row in current.rows.items() if key not in chosen}
        moved = {
            key: current.rows[key].with_values(values) for key in current.rows if key in chosen
        }
        return current.with_rows({**stay, **moved})

    result = row_condition.keys(state)
    return Change(
        f"update {sql} where {row_condition.sql}",
        lambda dataset: dataset.update(scalars, row_condition.filters),
        (lambda dataset: dataset.update(sql, where=row_condition.sql))
        if all(column.type in SIMPLE for column in columns)
        else None,
        effect,
        keeps_order=not result,
        looks_at=frozenset(result),
        commits=False,
    )


def update_columns(common: Common, state: State, random: Random) -> Change | None:
    """Give rows new values at the same addresses, in new files for the columns."""
    columns = state.of_type(*SIMPLE, VECTOR)
    if not columns or not state.rows:
        return None
    row_condition = condition(state, random)
    column = random.choice(columns)
    value = common.value(column, random)
    result = row_condition.keys(state)
    new = pa.table(
        {
            "key": pa.array(result, pa.int64()),
            column.name: pa.array([value] * len(result), column.type),
        }
    )

    def theirs(dataset: lance.LanceDataset) -> None:
        updated, fields, offsets = [], [], {}
        for fragment in dataset.get_fragments():
            keys = set(fragment.to_table(columns=["key"])["key"].to_pylist())
            if keys.isdisjoint(result):
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

    def effect(planned: State, current: State) -> State:
        chosen = set(row_condition.keys(planned))
        return current.with_rows(
            {
                key: row.with_values({column.number: value}) if key in chosen else row
                for key, row in current.rows.items()
            }
        )

    return Change(
        f"update column {column.name} = {value!r} where {row_condition.sql}",
        lambda dataset: dataset.update(
            {column.name: pa.scalar(value, column.type)}, row_condition.filters, mode="columns"
        ),
        theirs if result else None,
        effect,
        looks_at=frozenset(result),
        commits=False,
    )


def update_overlay(common: Common, state: State, random: Random) -> Change | None:
    """Give rows new values in overlays. Only this package does it by a condition."""
    columns = state.of_type(*SIMPLE, VECTOR)
    if not common.overlays or not columns or not state.rows:
        return None
    row_condition = condition(state, random)
    column = random.choice(columns)
    value = common.value(column, random)
    result = frozenset(row_condition.keys(state))

    def effect(planned: State, current: State) -> State:
        chosen = set(row_condition.keys(planned))
        return current.with_rows(
            {
                key: row.with_values({column.number: value}) if key in chosen else row
                for key, row in current.rows.items()
            }
        )

    return Change(
        f"overlay by update: {column.name} = {value!r} where {row_condition.sql}",
        lambda dataset: dataset.update(
            {column.name: pa.scalar(value, column.type)}, row_condition.filters, mode="overlay"
        ),
        None,
        effect,
        looks_at=result,
        commits=False,
    )


def merge_insert(common: Common, state: State, random: Random) -> Change | None:
    """Give existing rows new values and insert others. Only pylance can do it."""
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

    def effect(planned: State, current: State) -> State:
        matched = {key for key in rows if key in planned.rows} & current.rows.keys()
        missing = {key: row for key, row in rows.items() if key not in planned.rows}
        result = dict(current.rows)
        if mode != "insert":
            for key in matched:
                result[key] = result.pop(key).with_values(rows[key].values)
        if mode in ("upsert", "insert", "replace"):
            result |= missing
        if mode == "replace":
            # The merge did not see rows that were added after its planned version.
            gone = planned.rows.keys() - rows.keys()
            result = {key: row for key, row in result.items() if key not in gone}
        return current.with_rows(result)

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
        lambda _, current: current,
        # Fragments are ordered by their ids, so fragments that are not rewritten come first.
        keeps_order=False,
        commits=False,
    )

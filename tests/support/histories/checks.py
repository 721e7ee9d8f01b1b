"""Checks of a version: both clients read what the model holds, also by indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import lance
import pyarrow as pa

import lance_spark
from lance_spark.indexes.text.queries import MatchQuery
from lance_spark.mutations.indexes.existing import UNKNOWN
from lance_spark.table.manifest.manifest import Manifest
from tests.support.histories.model import (
    FLOATS,
    INTEGERS,
    LABELS,
    NOW,
    STRINGS,
    VECTOR,
    WORDS,
    Change,
    KnownBugError,
    State,
)
from tests.support.interop.tables import assert_same

#: Types of indexes that can be checked.
CHECKED = ("BTree", "Bitmap", "LabelList", "NGram", "ZoneMap", "BloomFilter")
CREATED, UPDATED = "_row_created_at_version", "_row_last_updated_at_version"


def check_content(
    ours: lance_spark.Dataset,
    theirs: lance.LanceDataset,
    outcomes: Sequence[State],
    change: Change,
    *,
    stable: bool,
    brief: bool = False,
) -> State:
    """Read a version by both clients. Return the outcome that it has, with the ids and versions of
    its rows.
    """
    if not brief:
        theirs.validate()
        ours.validate()
    system = ["_rowid", "_rowaddr", *((CREATED, UPDATED) if stable else ())]
    names = theirs.schema.names
    full = theirs.to_table(columns=[*names, *system])
    read = ours.to_table([*names, *system])
    assert_same(read, full, "we read otherwise")
    assert ours.schema.equals(theirs.schema, check_metadata=True), (ours.schema, theirs.schema)
    if not brief:
        assert_same(theirs.to_table(), full.select(names), "pylance reads otherwise")
    assert ours.count_rows() == theirs.count_rows() == full.num_rows
    result = full.select(names)
    keys = result["key"].to_pylist()
    assert len(keys) == len(set(keys)), f"rows twice: {sorted(keys)}"
    updated = full[UPDATED].to_pylist() if stable else []
    state = _fitting(result, keys, updated, outcomes, change)
    assert ours.config() == dict(theirs.config()) == dict(state.config)
    assert dict(ours.metadata) == dict(theirs.metadata) == dict(state.metadata)
    if change.keeps_order:
        assert keys == list(state.rows), f"rows are in the order {keys}, not {list(state.rows)}"
    listed = full.select(system).to_pylist()
    row_ids = [row["_rowid"] for row in listed]
    assert len(set(row_ids)) == len(row_ids)
    rows = {}
    for key, row in zip(keys, listed, strict=True):
        known = state.rows[key]
        if stable:
            assert known.row_id in (None, row["_rowid"]), f"row {key} has another id"
            assert known.created in (NOW, row[CREATED]), (
                f"row {key} was created at {known.created}, not {row[CREATED]}"
            )
            if change.given_back.get(key) == row[UPDATED]:
                raise KnownBugError("a stale update gives rows back their versions before overlays")
            assert known.updated in (NOW, row[UPDATED]), (
                f"row {key} was updated at {known.updated}, not {row[UPDATED]}"
            )
            known = replace(known, row_id=row["_rowid"])
        else:
            assert row["_rowid"] == row["_rowaddr"]
        rows[key] = known
    return state.with_rows(rows)


def _fitting(
    table: pa.Table,
    keys: list[int],
    updated: list[int],
    outcomes: Sequence[State],
    change: Change,
) -> State:
    ordered = table.sort_by("key")
    errors = []
    fitting = []
    for outcome in outcomes:
        try:
            assert_same(ordered, outcome.table().sort_by("key"), change.name)
        except AssertionError as error:
            expected = sorted(outcome.rows)
            missing, extra = set(expected) - set(keys), set(keys) - set(expected)
            errors.append(f"{error}; rows missing {sorted(missing)}, too many {sorted(extra)}")
        else:
            fitting.append(outcome)
    if not fitting:
        raise AssertionError("\n".join(errors) or "no outcome could fit")
    # Only one outcome moves or updates a row that already has its new value.
    return max(
        fitting,
        key=lambda item: (
            [item.rows[key].updated for key in keys] == updated,
            list(item.rows) == keys,
        ),
    )


def check_queries(
    ours: lance_spark.Dataset,
    theirs: lance.LanceDataset,
    state: State,
    random: Random,
    most: int = 3,
) -> None:
    """Try filters on some columns, first on columns with indexes, and a take."""
    rows = state.rows
    indexes = theirs.list_indices()
    listed = _indexes(ours.list_indices()), _indexes(indexes)
    assert listed[0] == listed[1], f"we see the indexes {listed[0]}, pylance {listed[1]}"
    indexed = {index["fields"][0] for index in indexes if index["fields"]}
    full_text = {index["fields"][0] for index in indexes if index["type"] == "Inverted"}
    columns = random.sample(state.columns, len(state.columns))
    for column in sorted(columns, key=lambda candidate: candidate.name not in indexed)[:most]:
        values = {key: row.values.get(column.number) for key, row in rows.items()}
        name, dtype, result = column.name, column.type, random.randrange(3)
        if dtype in (*INTEGERS, *FLOATS, *STRINGS) and result == 0:
            nulls = {key for key, v in values.items() if v is None}
            _both(ours, theirs, [(name, "is_null")], f"{name} IS NULL", nulls)
        elif dtype in (*INTEGERS, *FLOATS):
            low = random.randrange(30)
            high = low + random.choice([1, 5, 20])
            near = {key for key, v in values.items() if v is not None and low <= v < high}
            filters = [(name, ">=", low), (name, "<", high)]
            _both(ours, theirs, filters, f"{name} >= {low} AND {name} < {high}", near)
        elif dtype in STRINGS:
            word = random.choice(WORDS)
            equal_keys = {key for key, v in values.items() if v == word}
            within = {key for key, v in values.items() if v is not None and word in v}
            if result == 1 and dtype == pa.string():
                _by_text(ours, theirs, f"contains({name}, '{word}')", within)
            else:
                _both(ours, theirs, [(name, "==", word)], f"{name} = '{word}'", equal_keys)
            if name in full_text:
                _full_text(ours, theirs, name, word, within)
        elif dtype == LABELS:
            word = random.choice(WORDS)
            within = {key for key, v in values.items() if v is not None and word in v}
            _by_text(ours, theirs, f"array_has_any({name}, ['{word}'])", within)
        elif dtype == VECTOR:
            _nearest(ours, theirs, name, values, random)
        elif pa.types.is_struct(dtype):
            child = random.choice(list(dtype))
            if child.type in (*INTEGERS, *STRINGS):
                value = random.choice(WORDS if child.type in STRINGS else range(30))
                equal_keys = {k for k, v in values.items() if v and v.get(child.name[0]) == value}
                path = f"{name}.{child.name}"
                _both(ours, theirs, [(path, "==", value)], f"{path} = {value!r}", equal_keys)
    if random.random() < 0.3:
        sample = {random.randrange(50) for _ in range(5)}
        listed = ", ".join(map(str, sample))
        _both(
            ours, theirs, [("key", "in", list(sample))], f"key IN ({listed})", sample & rows.keys()
        )
    if rows:
        chosen = [random.randrange(len(rows)) for _ in range(3)]
        assert_same(ours.take(chosen), theirs.take(chosen), f"take of {chosen}")


def _both(
    ours: lance_spark.Dataset,
    theirs: lance.LanceDataset,
    filters: list[tuple[Any, ...]],
    sql: str,
    expected: set[int],
) -> None:
    rows = ours.to_table(["key"], filters=filters)["key"].to_pylist()
    assert sorted(rows) == sorted(expected), f"we find {rows} where {sql}, not {sorted(expected)}"
    _theirs(theirs, sql, expected)


def _by_text(
    ours: lance_spark.Dataset, theirs: lance.LanceDataset, sql: str, expected: set[int]
) -> None:
    rows = ours.to_table(["key"], filter=sql)["key"].to_pylist()
    assert sorted(rows) == sorted(expected), f"we find {rows} where {sql}, not {sorted(expected)}"
    _theirs(theirs, sql, expected)


def _theirs(theirs: lance.LanceDataset, sql: str, expected: set[int]) -> None:
    result = sorted(theirs.to_table(columns=["key"], filter=sql)["key"].to_pylist())
    if result != sorted(expected):
        plain = theirs.to_table(columns=["key"], filter=sql, use_scalar_index=False)["key"]
        raise AssertionError(
            f"pylance finds {result} where {sql}, not {sorted(expected)}; without index {sorted(plain.to_pylist())}"
        )


def _nearest(
    ours: lance_spark.Dataset,
    theirs: lance.LanceDataset,
    name: str,
    values: dict[int, Any],
    random: Random,
) -> None:
    query = [float(random.randrange(8)) for _ in range(4)]
    distances = {
        key: sum((a - b) ** 2 for a, b in zip(v, query, strict=True))
        for key, v in values.items()
        if v is not None
    }
    if not distances:
        return
    nearest = sorted(distances.values())[:5]
    options: dict[str, Any] = {"column": name, "q": query, "k": 5, "metric": "L2"}
    # 1,000 rows are measured again; codes of one byte tell these values apart.
    exact = {"nprobes": 10, "refine_factor": 200, "ef": 1_000}
    for use_index in (False, True):
        options = {**options, "use_index": use_index, **(exact if use_index else {})}
        for client in (ours, theirs):
            try:
                table = client.to_table(columns=["key", "_distance"], nearest=options)
            except pa.ArrowInvalid as error:
                is_moved = any(index["type"] == "FragmentReuse" for index in theirs.list_indices())
                if "HNSW graph has" in str(error) and is_moved:
                    raise KnownBugError("graphs lack rows that moved") from error
                raise
            pairs = zip(table["key"].to_pylist(), table["_distance"].to_pylist(), strict=True)
            problems = []
            for key, distance in pairs:
                assert distances.get(key) == distance, (
                    f"{key} is not {distance} from {query} in {name}"
                )
                problems.append(distance)
            assert sorted(problems) == nearest, (
                f"nearest in {name}, index {use_index}: {problems}, not {nearest}"
            )


def _full_text(
    ours: lance_spark.Dataset,
    theirs: lance.LanceDataset,
    name: str,
    word: str,
    expected: set[int],
) -> None:
    query = {"query": word, "columns": [name]}
    rows = theirs.to_table(columns=["key", "_score"], full_text_query=query)["key"].to_pylist()
    assert sorted(rows) == sorted(expected), (
        f"pylance finds {sorted(rows)} with the word {word} in {name}, not {sorted(expected)}"
    )
    rows = ours.to_table(["key"], full_text_query=MatchQuery(word, name))["key"].to_pylist()
    assert sorted(rows) == sorted(expected), (
        f"we find {sorted(rows)} with the word {word} in {name}, not {sorted(expected)}"
    )


def check_indexes(ours: lance_spark.Dataset) -> None:
    """Compare each index with its column."""
    for index in ours.describe_indices():
        is_checked = index.index_type in CHECKED or index.index_type.startswith("IVF")
        if is_checked and UNKNOWN not in index.field_names:
            check = ours.check_index(index.name)
            if any("overlaps the zone before it" in problem for problem in check.problems):
                raise KnownBugError("an update of an index leaves zones of rewritten columns in it")
            assert check.is_valid, f"{check}"


def _indexes(listed: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            item["name"],
            item["uuid"],
            tuple(item["fields"]),
            tuple(sorted(item["fragment_ids"] or ())),
        )
        for item in listed
    )


def check_manifest(manifest: Manifest, before: Manifest | None, change: Change) -> None:
    """Check that ids increase, and that flags match the content."""
    fragments = manifest.fragments
    ids = [fragment.id for fragment in fragments]
    assert len(ids) == len(set(ids))
    largest = manifest.max_fragment_id
    if ids:
        assert largest is not None
        assert max(ids) <= largest
    if before is not None:
        known = -1 if before.max_fragment_id is None else before.max_fragment_id
        assert (-1 if largest is None else largest) >= known, f"max_fragment_id {largest} < {known}"
        assert manifest.next_row_id >= before.next_row_id, (
            f"next_row_id {manifest.next_row_id} < {before.next_row_id}"
        )
        if not change.gives_back_fragments:
            old = {fragment.id for fragment in before.fragments}
            reused = [row_id for row_id in ids if row_id not in old and row_id <= known]
            reserved = change.name.startswith("compact")
            assert not reused or reserved, f"fragments {reused} are no new ones"
    proto = manifest.to_proto()
    expected = 1 if any(fragment.HasField("deletion_file") for fragment in proto.fragments) else 0
    expected |= 2 if manifest.flags.stable_row_ids else 0
    expected |= 16 if proto.base_paths else 0
    expected |= 64 if any(fragment.overlays for fragment in proto.fragments) else 0
    hidden = ("column_row_ids", "column_created_at_versions", "column_last_updated_at_versions")
    spilled = any(fragment.HasField(name) for fragment in proto.fragments for name in hidden)
    expected |= 2048 if spilled else 0
    assert proto.reader_feature_flags == expected, (
        f"reader flags {proto.reader_feature_flags}, not {expected}"
    )
    expected |= 8 if proto.config else 0
    assert proto.writer_feature_flags == expected, (
        f"writer flags {proto.writer_feature_flags}, not {expected}"
    )

"""Random changes by both clients, some planned on old versions, against a Python dictionary.

A change that was planned on an old version affects the rows of that version, if all of them are
unchanged. Otherwise it is planned again, and affects the rows of the newest version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import lance
import pyarrow as pa
import pytest

import lance_spark
from tests.support.cells import number_of
from tests.support.tables.pylance_written import manifests

SEQUENCES = number_of(40, 2_000)
BATCHES = 8
STEPS = 5


@dataclass(frozen=True)
class Row:
    """A row. Two rows are equal only if no client changed the row in between."""

    key: int
    value: int
    changed: int


Rows = Mapping[int, Row]


@dataclass
class Model:
    """The rows of each version, by key."""

    versions: list[Rows]
    next_key: int
    created: dict[int, int] = field(default_factory=dict)

    @property
    def now(self) -> Rows:
        return self.versions[-1]


@dataclass(frozen=True)
class Change:
    operation: str
    low: int
    high: int
    value: int
    version: int
    ours: bool

    def chosen(self, rows: Rows) -> list[int]:
        return [key for key, row in rows.items() if self.low <= row.value < self.high]

    def effect(self, rows: Rows, keys: list[int], step: int) -> Rows:
        if self.operation == "delete":
            return {key: row for key, row in rows.items() if key not in keys}
        return {**rows, **{key: Row(key, self.value, step) for key in keys}}

    def outcomes(self, model: Model, step: int) -> list[Rows]:
        """Return the possible contents of the table after the change."""
        planned, now = model.versions[self.version - 1], model.now
        keys = self.chosen(planned)
        possible = [self.effect(now, self.chosen(now), step)]
        if all(now.get(key) == planned[key] for key in keys):
            possible.append(self.effect(now, keys, step))
        return possible


def table_of(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([row.key for row in rows], pa.int64()),
            "value": pa.array([row.value for row in rows], pa.int64()),
            "text": pa.array([f"t{row.key}" for row in rows], pa.string()),
        }
    )


def random_change(random: Random, versions: int) -> Change:
    operation = random.choice(["delete", "update", "update", "columns"])
    low = random.randrange(100)
    version = versions if random.random() < 0.5 else random.randint(1, versions)
    width = random.choice([3, 10, 40, 100])
    # pylance rewrites columns of one fragment only, and does not retry.
    ours = operation == "columns" or random.random() < 0.6
    return Change(operation, low, low + width, random.randrange(100), version, ours)


def make(change: Change, path: Path) -> None:
    if change.ours:
        dataset = lance_spark.open_dataset(str(path), change.version)
        filters = [("value", ">=", change.low), ("value", "<", change.high)]
        if change.operation == "delete":
            dataset.delete(filters)
        else:
            mode = "rows" if change.operation == "update" else "columns"
            dataset.update({"value": change.value}, filters, mode=mode)
        return
    theirs = lance.dataset(str(path), version=change.version)
    condition = f"value >= {change.low} and value < {change.high}"
    if change.operation == "delete":
        theirs.delete(condition)
    else:
        theirs.update({"value": str(change.value)}, where=condition)


def append(random: Random, model: Model, path: Path, step: int) -> None:
    count = random.choice([1, 5, 20])
    keys = range(model.next_key, model.next_key + count)
    rows = [Row(key, random.randrange(100), step) for key in keys]
    model.next_key += count
    if random.random() < 0.5:
        lance_spark.write_dataset(table_of(rows), str(path), mode="append")
    else:
        lance.write_dataset(table_of(rows), str(path), mode="append")
    model.versions.append({**model.now, **{row.key: row for row in rows}})


def values(rows: Rows) -> dict[int, int]:
    return {key: row.value for key, row in rows.items()}


def run(seed: int, path: Path) -> None:
    random = Random(seed)
    stable = random.random() < 0.5
    count = random.choice([0, 5, 40, 100])
    rows = [Row(key, random.randrange(100), 0) for key in range(count)]
    version = random.choice(["2.0", "2.1", "2.2"])
    dataset = lance.write_dataset(
        table_of(rows),
        str(path),
        max_rows_per_file=random.choice([4, 20, 100]),
        enable_stable_row_ids=stable,
        data_storage_version=version,
    )
    model = Model([{row.key: row for row in rows}], count)
    if random.random() < 0.5 and count:
        dataset.create_scalar_index("value", random.choice(["BTREE", "BITMAP"]))
        dataset.create_scalar_index("key", "BTREE")
        model.versions += [model.now] * 2
    ids: dict[int, int] = {}
    for step in range(1, STEPS + 1):
        if random.random() < 0.25:
            append(random, model, path, step)
        else:
            change = random_change(random, len(model.versions))
            make(change, path)
            theirs = lance.dataset(str(path)).to_table(columns=["key", "value"]).to_pylist()
            read = {row["key"]: row["value"] for row in theirs}
            assert len(read) == len(theirs), change
            fitting = [rows for rows in change.outcomes(model, step) if values(rows) == read]
            assert fitting, change
            model.versions.append(fitting[0])
        if step in (STEPS // 2, STEPS):
            check(path, model, ids if stable else None)


def check(path: Path, model: Model, ids: dict[int, int] | None) -> None:
    """Both clients see the rows; indexes answer; rows have the ids that they had."""
    theirs = lance.dataset(str(path))
    theirs.validate()
    assert theirs.version == len(model.versions)
    columns = ["key", "value", "text", "_rowid"]
    if ids is not None:
        columns += ["_row_created_at_version", "_row_last_updated_at_version"]
    rows = theirs.to_table(columns=columns)
    assert lance_spark.open_dataset(str(path)).to_table(columns) == rows
    expected = values(model.now)
    listed = rows.to_pylist()
    assert {row["key"]: row["value"] for row in listed} == expected
    assert all(row["text"] == f"t{row['key']}" for row in listed)
    assert len({row["_rowid"] for row in listed}) == len(listed)
    for probe in (expected.get(0, 50), 17):
        hits = theirs.to_table(columns=["key"], filter=f"value = {probe}")["key"].to_pylist()
        assert sorted(hits) == sorted(key for key, value in expected.items() if value == probe)
    if ids is None:
        return
    for row in listed:
        assert ids.setdefault(row["key"], row["_rowid"]) == row["_rowid"]
        born = model.created.setdefault(row["key"], row["_row_created_at_version"])
        assert row["_row_created_at_version"] == born
        assert born <= row["_row_last_updated_at_version"] <= theirs.version
    assert manifests(path)[-1].next_row_id == model.next_key


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_changes(tmp_path: Path, batch: int) -> None:
    for seed in range(batch, SEQUENCES, BATCHES):
        try:
            run(seed, tmp_path / str(seed))
        except AssertionError as error:
            raise AssertionError(f"sequence {seed}: {error}") from error

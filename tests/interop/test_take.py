"""Rows by position, batches of odd sizes and parts of structs, of tables with several fragments,
pages and deletions.
"""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.file.writer import FileWriter
from tests.support.interop.tables import TABLES, assert_same, for_2_0, random_table

#: As many tables as `make test-long` chooses of ten thousand.
SEEDS = max(16, TABLES // 100)
ROWS = 3_000


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileWriter.__init__, "__defaults__", (4096, None))


def part_of(array: pa.Array, field: pa.Field, paths: list[list[str]]) -> tuple[pa.Array, pa.Field]:
    """Return the children that the paths name, in the order of the struct."""
    if any(not path for path in paths):
        return array, field
    children, fields = [], []
    for child in field.type:
        below = [path[1:] for path in paths if path[0] == child.name]
        if below:
            kept, kept_field = part_of(array.field(child.name), child, below)
            children.append(kept)
            fields.append(kept_field)
    mask = array.is_null() if array.null_count else None
    return (
        pa.StructArray.from_arrays(children, fields=fields, mask=mask),
        field.with_type(pa.struct(fields)),
    )


def subset(table: pa.Table, columns: list[str]) -> pa.Table:
    tops = list(dict.fromkeys(name.split(".")[0] for name in columns))
    arrays, fields = [], []
    for top in tops:
        paths = [name.split(".")[1:] for name in columns if name.split(".")[0] == top]
        array, field = part_of(pa.concat_arrays(table[top].chunks), table.schema.field(top), paths)
        arrays.append(array)
        fields.append(field)
    return pa.table(arrays, schema=pa.schema(fields))


def some_columns(schema: pa.Schema, rng: np.random.Generator) -> list[str]:
    """Return some columns in a random order, and of structs some children in a random order."""
    names: list[str] = []
    for field in schema:
        if rng.random() < 0.3:
            continue
        paths = [field.name]
        if pa.types.is_struct(field.type) and rng.random() < 0.8:
            count = int(rng.integers(1, field.type.num_fields + 1))
            picked = rng.permutation(field.type.num_fields)[:count].tolist()
            paths = []
            for i in picked:
                child = field.type.field(i)
                below = f"{field.name}.{child.name}"
                if pa.types.is_struct(child.type) and rng.random() < 0.5:
                    below += f".{child.type.field(child.type.num_fields - 1).name}"
                paths.append(below)
        names += paths
    return [names[i] for i in rng.permutation(len(names))] or [schema.names[-1]]


def indices_of(rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    if not rows:
        return {"none": np.zeros(0, np.int64)}
    return {
        "none": np.zeros(0, np.int64),
        "random": rng.integers(0, rows, 60),
        "sorted": np.unique(rng.integers(0, rows, 300)),
        "duplicates": np.repeat(rng.integers(0, rows, 7), 4),
        "ends": np.array([rows - 1, 0, rows // 2]),
        "run": np.arange(rows // 3, min(rows, rows // 3 + 1200)),
        "all": rng.permutation(rows),
    }


def check(path: Path, expected: pa.Table, rng: np.random.Generator, note: str) -> None:
    """Read a table with this package in every way."""
    ours = lance_spark.open_dataset(str(path))
    assert ours.count_rows() == expected.num_rows
    assert_same(ours.to_table(), expected, note)
    for case, rows in indices_of(expected.num_rows, rng).items():
        assert_same(ours.take(rows), expected.take(pa.array(rows)), f"{note}, take {case}")
        columns = some_columns(expected.schema, rng)
        part = subset(expected, columns)
        assert_same(
            ours.take(rows, columns), part.take(pa.array(rows)), f"{note}, take {case} {columns}"
        )
    size = int(rng.choice([1, 7, 333, 1_000, 1_025, 4_097]))
    if size == 1:
        size = max(1, expected.num_rows // 50)
    columns = some_columns(expected.schema, rng)
    batches = list(ours.to_batches(columns, batch_size=size))
    assert all(0 < batch.num_rows <= size for batch in batches)
    table = pa.Table.from_batches(batches, schema=batches[0].schema) if batches else None
    if table is not None:
        table.validate(full=True)
        assert_same(table, subset(expected, columns), f"{note}, batches of {size} {columns}")
    tasks = ours.plan(rows_per_task=max(1, expected.num_rows // 5))
    batches_of_tasks = [batch for task in tasks for batch in task.batches()]
    assert_same(pa.Table.from_batches(batches_of_tasks, ours.schema), expected, f"{note}, tasks")


def delete(path: Path, rng: np.random.Generator) -> None:
    """Delete rows in all parts of the table, and a run of rows."""
    dataset = lance.dataset(str(path))
    first = int(rng.integers(0, ROWS - 600))
    share = int(rng.choice([2, 13, 50]))
    dataset.delete(f"id % {share} = 1 or (id >= {first} and id < {first + 600})")


def with_ids(table: pa.Table) -> pa.Table:
    return table.append_column("id", pa.array(np.arange(table.num_rows)))


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_pylance_wrote(tmp_path: Path, seed: int) -> None:
    version = ["2.0", "2.1", "2.2", "2.3"][seed % 4]
    rng = np.random.default_rng(seed)
    table = with_ids(random_table(10_000 + seed, maps=version in ("2.2", "2.3"), num_rows=ROWS))
    if version == "2.0":
        table = for_2_0(table)
    path = tmp_path / "t.lance"
    limit = int(rng.choice([700, 1_500, 10_000]))
    lance.write_dataset(
        table,
        str(path),
        data_storage_version=version,
        max_rows_per_file=limit,
        max_page_bytes=int(rng.choice([1_000, 10_000, 1 << 25])),
    )
    if seed % 4:
        delete(path, rng)
    expected = lance.dataset(str(path)).to_table()
    check(path, expected, rng, f"{version} seed {seed}")


@pytest.mark.sample(8)
@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_take_from_written_tables(tmp_path: Path, seed: int) -> None:
    version = ["2.0", "2.1", "2.2"][seed % 3]
    rng = np.random.default_rng(seed)
    table = with_ids(random_table(20_000 + seed, maps=version == "2.2", num_rows=ROWS))
    if version == "2.0":
        table = for_2_0(table)
    path = tmp_path / "t.lance"
    limit = int(rng.choice([700, 1_500, 10_000]))
    lance_spark.write_dataset(
        table, str(path), data_storage_version=version, max_rows_per_file=limit
    )
    theirs = lance.dataset(str(path))
    assert_same(theirs.to_table(), table, f"{version} seed {seed}")
    if seed % 4:
        delete(path, rng)
        theirs = lance.dataset(str(path))
    expected = theirs.to_table()
    kept = table.filter(pa.array(np.isin(table["id"].to_numpy(), expected["id"].to_numpy())))
    assert_same(expected, kept, f"{version} seed {seed}, deleted")
    check(path, expected, rng, f"{version} seed {seed}")
    for rows in indices_of(expected.num_rows, rng).values():
        if len(rows):
            assert_same(theirs.take(rows.tolist()), expected.take(pa.array(rows)), "pylance takes")

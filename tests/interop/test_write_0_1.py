"""Files of version 0.1 as this package writes them: what pylance reads, and the statistics that it would have written.

Version 0.1 loses most nulls. What a file of it holds, as pylance reads it, must survive being written by us: this gives rows of
any type that the version can store.
"""

from __future__ import annotations

import os
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.file.legacy import LegacyFileReader
from lance_spark.file.open import open_file
from lance_spark.storage.local import LocalSource
from tests.interop.tables import assert_same, random_table
from tests.interop.test_legacy import TYPES, array_of, nullable_items

TABLES = int(os.environ.get("LANCE_SPARK_TEST_TABLES", "2000")) // 10
GROUP = 25


def as_stored(table: pa.Table, path: Path) -> lance.LanceDataset:
    """Write a table with pylance; what it reads of that is what version 0.1 can hold."""
    lance.write_dataset(table, str(path), data_storage_version="0.1")
    return lance.dataset(str(path))


def data_file(path: Path) -> LegacyFileReader:
    (file,) = (path / "data").glob("*.lance")
    reader = open_file(LocalSource(str(file)))
    assert isinstance(reader, LegacyFileReader)
    return reader


def has_fixed_bools(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return pa.types.is_boolean(kind.value_type) or has_fixed_bools(kind.value_type)
    return any(has_fixed_bools(kind.field(at).type) for at in range(kind.num_fields))


def check(path: Path, expected: pa.Table, *, seed: int = 1) -> None:
    """Read a table that we wrote with pylance: all rows, a range, scattered rows, one column."""
    dataset = lance.dataset(str(path))
    dataset.validate()
    assert dataset.data_storage_version == "0.1"
    assert dataset.count_rows() == expected.num_rows
    assert_same(dataset.to_table(), expected, "all")
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.integers(0, expected.num_rows, 20))
    if not any(has_fixed_bools(field.type) for field in expected.schema):
        # pylance panics on rows by number of these, in its own files too.
        assert_same(dataset.take(rows.tolist()), expected.take(pa.array(rows)), "take")
    first, last = int(rows[3]), int(rows[15]) + 1
    part = dataset.to_table(offset=first, limit=last - first)
    assert_same(part, expected.slice(first, last - first), "range")
    names = expected.column_names[-1:]
    assert_same(dataset.to_table(names), expected.select(names), f"{names}")
    assert_same(lance_spark.open_dataset(str(path)).to_table(), expected, "ours")


def check_statistics(ours: Path, theirs: Path) -> None:
    """Compare the statistics of two tables of one file each, and the schemas that these have."""
    mine, other = data_file(ours), data_file(theirs)
    assert [f.logical_type for f in mine.schema.walk()] == [
        f.logical_type for f in other.schema.walk()
    ]
    for node in other.schema.walk():
        wanted, found = other.statistics(node.id), mine.statistics(node.id)
        assert (wanted is None) == (found is None), node.name
        if wanted is None or found is None:
            continue
        assert (wanted.bounds == found.bounds).all(), node.name
        for name in ("null_count", "minimum", "maximum"):
            expected, actual = getattr(wanted, name), getattr(found, name)
            # The bytes differ between -0.0 and 0.0, which compare as equal.
            assert expected.to_pylist() == actual.to_pylist(), (node.name, name)
            assert repr(expected.to_pylist()) == repr(actual.to_pylist()), (node.name, name)
    mine.close()
    other.close()


@pytest.mark.parametrize("name", TYPES)
def test_every_type(tmp_path: Path, name: str) -> None:
    table = pa.table({"x": array_of(TYPES[name], 2_500, 0.3), "y": np.arange(2_500)})
    theirs = tmp_path / "theirs"
    expected = as_stored(table, theirs).to_table()
    ours = tmp_path / "ours"
    lance_spark.write_dataset(expected, str(ours), data_storage_version="0.1")
    check(ours, expected)
    theirs = tmp_path / "again"
    as_stored(expected, theirs)
    check_statistics(ours, theirs)


@pytest.mark.parametrize("first", range(0, TABLES, GROUP))
def test_random_tables(tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + GROUP, TABLES)):
        table = random_table(seed)
        table = pa.Table.from_arrays(
            [column.cast(nullable_items(column.type)) for column in table.columns],
            schema=pa.schema([f.with_type(nullable_items(f.type)) for f in table.schema]),
        )
        if not table.num_rows:
            continue
        expected = as_stored(table, tmp_path / f"{seed}").to_table()
        ours, theirs = tmp_path / f"{seed}-ours", tmp_path / f"{seed}-theirs"
        batches = expected.to_batches(max_chunksize=1 + seed * 37 % 3_000)
        lance_spark.write_dataset(
            pa.Table.from_batches(batches, expected.schema),
            str(ours),
            data_storage_version="legacy",
        )
        check(ours, expected, seed=seed)
        as_stored(expected, theirs)
        check_statistics(ours, theirs)

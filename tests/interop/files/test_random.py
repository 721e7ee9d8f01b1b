"""Tables of random nested types for every file version, both ways between this package and pylance.

A seed is all it takes to see a failure again: ``random_table(seed)``; seeds count up from 0.
`make test-long` tries ten thousand. Version 2.3 is only read; 0.1 has its tables in `test_legacy`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from tests.interop.conftest import Pylance
from tests.support.interop.tables import TABLES, assert_same, for_2_0, random_table

GROUP = 50
GROUPS = range(0, TABLES, GROUP)


def table_of(seed: int, version: str) -> pa.Table:
    table = random_table(seed, maps=version in ("2.2", "2.3"))
    return for_2_0(table) if version == "2.0" else table


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("first", GROUPS)
def test_random_tables_of_pylance_are_read(
    pylance: Pylance, tmp_path: Path, version: str, first: int
) -> None:
    for seed in range(first, min(first + GROUP, TABLES)):
        table = table_of(seed, version)
        path = tmp_path / f"{seed}.lance"
        pylance.write(table, path, version)
        # Version 2.0 does not keep everything, for example lists with only nulls: the expected
        # values are the values that pylance reads.
        expected = pylance.read(path) if version == "2.0" else table
        dataset = lance_spark.open_dataset(str(path))
        assert_same(dataset.to_table(), expected, f"{version} seed {seed}")
        rng = np.random.default_rng(seed)
        if table.num_rows:
            rows = rng.integers(0, table.num_rows, 20)
            assert_same(dataset.take(rows), expected.take(rows), f"take, {version} seed {seed}")
        size = int(rng.integers(1, 500))
        batches = list(dataset.to_batches(batch_size=size))
        assert all(0 < batch.num_rows <= size for batch in batches)
        assert_same(
            pa.Table.from_batches(batches, schema=dataset.schema), expected, f"batches, seed {seed}"
        )


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("first", GROUPS)
def test_pylance_reads_written_random_tables(
    pylance: Pylance, tmp_path: Path, version: str, first: int
) -> None:
    for seed in range(first, min(first + GROUP, TABLES)):
        table = table_of(seed, version)
        path = tmp_path / f"{seed}.lance"
        lance_spark.write_dataset(table, str(path), data_storage_version=version)
        assert_same(pylance.read(path), table, f"{version} seed {seed}")

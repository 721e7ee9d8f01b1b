"""Counts of reads and writes of a table."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark import Dataset, open_dataset, write_dataset
from lance_spark.dataset import IOStats

NONE = IOStats()


@pytest.fixture(params=["local", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "t") if request.param == "local" else f"memory://{tmp_path.name}/t"


def table_of(rows: int) -> pa.Table:
    return pa.table({"a": np.random.default_rng(1).random(rows), "b": range(rows)})


def test_reads(uri: str) -> None:
    write_dataset(table_of(100_000), uri, max_rows_per_file=30_000)
    dataset = open_dataset(uri)
    assert dataset.io_stats_snapshot() == NONE
    dataset.to_table(["a"])
    stats = dataset.io_stats_snapshot()
    # A read of 64 KiB from the end of each file, and the pages of one column.
    assert 800_000 <= stats.read_bytes < 800_000 + 5 * 65_536
    assert stats.read_iops >= 4
    assert (stats.write_iops, stats.written_bytes) == (0, 0)
    assert dataset.io_stats_snapshot() == dataset.io_stats_incremental() == stats
    assert dataset.io_stats_incremental() == dataset.io_stats_snapshot() == NONE
    dataset.count_rows("a > 0.5")
    assert dataset.io_stats_incremental().read_bytes >= 800_000, "tasks count, too"
    other = pickle.loads(pickle.dumps(open_dataset(uri)))
    other.take([5])
    assert dataset.io_stats_snapshot().read_bytes > 0, "other objects of the table count, too"


def test_writes(uri: str) -> None:
    dataset = write_dataset(table_of(10), uri)
    before = open_dataset(uri)
    dataset = dataset.insert(table_of(50_000)).delete("b < 3").add_columns({"c": 1})
    stats = before.io_stats_snapshot()
    assert stats.written_bytes >= 400_000
    # A data file, a deletion file, new columns of two fragments, and manifests and transactions.
    assert stats.write_iops >= 7
    assert dataset.io_stats_snapshot().written_bytes < stats.written_bytes
    assert before.checkout_latest().count_rows() == 50_004


def test_counts_of_tables_are_separate(tmp_path: Path) -> None:
    one, two = (write_dataset(table_of(10), tmp_path / name) for name in ("one", "two"))
    one.to_table()
    assert one.io_stats_snapshot() != NONE
    assert two.io_stats_snapshot() == NONE


def test_the_bytes_of_a_scan_are_about_those_of_pylance(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lance.write_dataset(table_of(200_000), path)
    read = []
    datasets: list[Any] = [lance.dataset(path), open_dataset(path)]
    for dataset in datasets:
        dataset.io_stats_incremental()
        dataset.to_table(["a"])
        read.append(dataset.io_stats_incremental().read_bytes)
    assert read[1] == pytest.approx(read[0], rel=0.06)
    assert isinstance(datasets[1], Dataset)

"""The driver's memory during a compaction does not grow with the number of rows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark import LanceTable
from lance_spark.dataset.write import write_dataset
from tests.spark.table.tables import checked

FRAGMENTS = 1000
FEW, MANY = 100, 2000
MIB = 1024 * 1024
if not Path("/proc/self/clear_refs").exists():
    pytest.skip("Linux tells how much memory a process had", allow_module_level=True)


@contextmanager
def watched(growth: dict[str, int]) -> Iterator[None]:
    """Record by how much the memory of this process grows: memory of Python objects, and all
    memory.
    """
    status = Path("/proc/self/status")

    def kib(name: str) -> int:
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

    tracemalloc.start()
    # Reset the maximum of resident memory.
    Path("/proc/self/clear_refs").write_text("5")
    before = kib("VmRSS")
    try:
        yield
    finally:
        growth["objects"] = tracemalloc.get_traced_memory()[1]
        growth["all"] = (kib("VmHWM") - before) * 1024
        tracemalloc.stop()


def written(path: Path, rows: int) -> Path:
    """Write a table of many fragments, every tenth row of which is deleted."""
    ids = np.arange(FRAGMENTS * rows)
    write_dataset(pa.table({"id": ids, "v": ids % 7}), str(path), max_rows_per_file=rows)
    lance.dataset(path).delete("id % 10 = 3")
    return path


def test_a_thousand_small_fragments(spark: Any, tmp_path: Path) -> None:
    growth: dict[str, int] = {}
    # The first run loads modules.
    for rows in (FEW, MANY):
        path = written(tmp_path / str(rows), rows)
        with watched(growth):
            row = LanceTable.forPath(spark, str(path)).optimize().executeCompaction().first()
        assert row is not None
        assert row.fragments_removed == FRAGMENTS
        assert 1 <= row.fragments_added <= 3
        table = checked(path).to_table()
        ids = np.arange(FRAGMENTS * rows)
        assert np.array_equal(table["id"].to_numpy(), ids[ids % 10 != 3])
    # Limits for 1,000 fragments with deletion vectors; 8 bytes per moved row would be 14 MB.
    assert growth["objects"] < 8 * MIB
    assert growth["all"] < 24 * MIB


def test_addresses_would_be_noticed() -> None:
    growth: dict[str, int] = {}
    with watched(growth):
        addresses = np.arange(FRAGMENTS * MANY * 9 // 10)
        assert addresses[-1]
    # All memory of the process is not compared: the process may use memory that it already had.
    assert growth["objects"] > 13 * MIB
